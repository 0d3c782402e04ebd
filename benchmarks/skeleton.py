"""Measure the least that a durable turn of eight entries takes in Python, without classes, features, a model or a channel.

    python -m benchmarks.skeleton

For each message: the fork with the opening entry is committed, a request is encoded and hashed over the last twenty
messages, eight entries are encoded, salted, hashed and chained, and the merge commits them and closes the fork. Commits
run in a thread of their own, and an event loop waits for them. Beside it stand the eight rows alone, ready before the
clock runs, with a transaction for each turn. Nothing looks at rights, budgets, provenance or ids that came before;
nothing is read again after a crash.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from benchmarks.bench.words import Words
from bubbot.stores import rows
from bubbot.stores.sqlite import schema

Facts = list[tuple[str, Any, Any, str, str | None, str | None, bool]]
"""The entries of a turn: kind, payload, meta, date, key, name, and whether it opens a window."""
Commit = Callable[[Callable[[], None]], "asyncio.Future[None]"]
Jobs = SimpleQueue[tuple["asyncio.Future[None]", Callable[[], None]] | None]
"""Writes and who waits for them; None ends the thread."""
SHOWN_MESSAGES = 20
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


@contextmanager
def open_database(folder: Path, sessions: int) -> Iterator[sqlite3.Connection]:
    """Open a new database with a tape for each session."""
    connection = sqlite3.connect(folder / "bubbot.db", isolation_level=None, check_same_thread=False)
    with closing(connection):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        schema.migrate(connection, now="2026-01-01T00:00:00Z")
        connection.executemany("INSERT INTO tapes (name) VALUES (?)", [(str(number),) for number in range(sessions)])
        yield connection


def make_turns(count: int) -> list[Facts]:
    """Make the entries of so many turns."""
    words = Words(11)
    return [
        [
            (str(one.kind), *map(json.loads, one.texts), one.date, one.key, one.name, one.opens_window)
            for one in words.turn(0)
        ]
        for _ in range(count)
    ]


def _encode_rows(facts: Facts, tape: int, head: int, chain: bytes) -> list[tuple[Any, ...]]:
    """Build the rows of a turn, without their global positions."""
    salts, made = os.urandom(16 * len(facts)), []
    for place, (kind, payload, meta, date, key, name, opens) in enumerate(facts):
        head += 1
        texts, salt = (_encode(payload), _encode(meta)), salts[place * 16 : place * 16 + 16]
        digest = sha256(salt + "\n".join(texts).encode()).digest()
        chain = sha256(chain + _encode([head, kind, date, key, digest.hex()]).encode()).digest()
        at = rows.microseconds(datetime.fromisoformat(date))
        made.append((tape, head, kind, key, name, 1 if opens else None, at, date, *texts, salt, digest, chain))
    return made


def measure_raw(connection: sqlite3.Connection, turns: list[Facts], sessions: int) -> float:
    """Return the processor seconds for the rows alone, a transaction for each turn."""
    ready, seq = [], 0
    for number, facts in enumerate(turns):
        made = _encode_rows(facts, number % sessions + 1, number // sessions * len(facts), bytes(32))
        ready.append([(seq + place, *row) for place, row in enumerate(made, 1)])
        seq += len(made)
    began = time.process_time()
    for positioned in ready:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(rows.INSERT_ENTRY, positioned)
        connection.execute("COMMIT")
    return time.process_time() - began


def measure_skeleton(connection: sqlite3.Connection, turns: list[Facts], sessions: int) -> float:
    """Return the processor seconds for the turns, as many at once as there are sessions."""
    began = time.process_time()
    asyncio.run(_run_sessions(connection, turns, sessions))
    return time.process_time() - began


async def _run_sessions(connection: sqlite3.Connection, turns: list[Facts], sessions: int) -> None:
    loop = asyncio.get_running_loop()
    jobs: Jobs = SimpleQueue()

    def serve() -> None:
        while group := _take_waiting(jobs):
            error = _commit(connection, [write for _, write in group])
            for done, _ in group:
                loop.call_soon_threadsafe(_settle, done, error)

    def commit(write: Callable[[], None]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = loop.create_future()
        jobs.put((done, write))
        return done

    thread = Thread(target=serve)
    thread.start()
    try:
        async with asyncio.TaskGroup() as group:
            for number in range(sessions):
                group.create_task(_run_session(connection, commit, number + 1, turns[number::sessions]))
    finally:
        jobs.put(None)
        thread.join()


def _take_waiting(jobs: Jobs) -> list[tuple[asyncio.Future[None], Callable[[], None]]]:
    """Wait for a write and take along what else waits; return nothing at the end."""
    group, job = [], jobs.get()
    while job is not None:
        group.append(job)
        if jobs.empty():
            return group
        job = jobs.get()
    if group:
        jobs.put(None)
    return group


def _commit(connection: sqlite3.Connection, writes: Sequence[Callable[[], None]]) -> sqlite3.Error | None:
    """Commit writes as one transaction; return the error if that fails."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        for write in writes:
            write()
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        return error
    return None


def _settle(done: asyncio.Future[None], error: sqlite3.Error | None) -> None:
    if done.done():  # its session was cancelled
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


async def _run_session(connection: sqlite3.Connection, commit: Commit, tape: int, turns: list[Facts]) -> None:
    window: list[dict[str, str]] = []
    fork, head, chain = (f"fork {tape}",), 0, bytes(32)
    for facts in turns:
        opening = _encode(facts[:1])
        await commit(partial(_open_fork, connection, fork, opening))
        window.append({"role": "user", "content": opening[:200]})
        sha256(_encode({"model": "model", "messages": window[-SHOWN_MESSAGES:]}).encode()).hexdigest()
        await asyncio.sleep(0)  # the model
        window.append({"role": "assistant", "content": "answer"})
        made = _encode_rows(facts, tape, head, chain)
        await commit(partial(_merge, connection, fork, made))
        head, chain = head + len(made), made[-1][-1]


def _open_fork(connection: sqlite3.Connection, fork: tuple[str], opening: str) -> None:
    connection.execute("INSERT INTO forks (fork, tape, base, epoch) VALUES (?, 'tape', 0, 1)", fork)
    connection.execute("INSERT INTO fork_batches VALUES (?, 0, 'tape', 0, ?)", (*fork, opening))


def _merge(connection: sqlite3.Connection, fork: tuple[str], made: list[tuple[Any, ...]]) -> None:
    connection.execute("SELECT tape, base FROM forks WHERE fork = ?", fork).fetchone()
    connection.execute("DELETE FROM fork_batches WHERE fork = ?", fork)
    connection.execute("DELETE FROM forks WHERE fork = ?", fork)
    end = "SELECT id, chain FROM entries INDEXED BY entries_id WHERE tape = ? ORDER BY id DESC LIMIT 1"
    connection.execute(end, made[0][:1]).fetchone()
    (seq,) = connection.execute("SELECT coalesce(max(seq), 0) FROM entries").fetchone()
    connection.executemany(rows.INSERT_ENTRY, [(seq + place, *row) for place, row in enumerate(made, 1)])


def main() -> None:
    """Measure both in turns, and print the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.skeleton", description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=400, help="in each round")
    parser.add_argument("--sessions", type=int, default=100, help="turns at once, whose commits are one")
    parser.add_argument("--rounds", type=int, default=9, help="of each")
    given = parser.parse_args()
    if min(given.turns, given.sessions, given.rounds) < 1:
        parser.error("--turns, --sessions and --rounds are at least 1")
    turns = make_turns(given.turns)
    taken: dict[str, list[float]] = {"raw": [], "skeleton": []}
    for _ in range(given.rounds):
        for name, measure in (("raw", measure_raw), ("skeleton", measure_skeleton)):
            with tempfile.TemporaryDirectory() as folder, open_database(Path(folder), given.sessions) as connection:
                taken[name].append(measure(connection, turns, given.sessions) / given.turns * 1000)
    raw, skeleton = (statistics.median(taken[name]) for name in ("raw", "skeleton"))
    print(
        f"rows alone {raw:.3f} ms of processor time a turn, skeleton of a turn {skeleton:.3f} ms: {skeleton / raw:.2f} times"
    )


if __name__ == "__main__":
    main()
