"""Long tapes, written through the real store in big batches, and copies of them to measure on."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from benchmarks.bench import words
from benchmarks.soak.direct import CHANNEL
from benchmarks.soak.parts import configured
from bubbot.app.tapes import now
from bubbot.stores.postgres.store import PostgresStore
from bubbot.stores.sqlite.store import SqliteStore, open_store
from bubbot.tape.entry import TapeEntry
from bubbot.tape.service import session_tape
from bubbot.tape.store import Batch

BATCH = 8_000
"""Entries in one transaction."""
WORKSPACE = "bench"


def session(chat: int) -> str:
    """The session of a chat."""
    return f"{CHANNEL}:{chat}"


def name(chat: int) -> str:
    """The tape of a chat."""
    return session_tape(WORKSPACE, session(chat))


async def build(home: Path, entries: int, chats: int = 1) -> float:
    """A home with a tape of so many entries for each chat; seconds it took."""
    configured(home, words.script(), {})
    with (home / "config.toml").open("a") as settings:
        settings.write("[search]\nindex = false\n")  # filling it beside what is measured would be measured with it
    return await fill(home, {name(chat): entries for chat in range(chats)})


async def fill(home: Path, sizes: Mapping[str, int]) -> float:
    """Write a tape of so many entries under each name into the database of a home; return the seconds it took."""
    begun = time.perf_counter()
    await fill_store(await open_store(home / "bubbot.db", salt=os.urandom, now=now), sizes)
    return time.perf_counter() - begun


async def fill_store(store: SqliteStore | PostgresStore, sizes: Mapping[str, int]) -> None:
    """Write a tape of so many entries under each name into a store, and close it."""
    vocabulary = words.Words()
    try:
        await store.workspace(WORKSPACE)
        waiting: list[Batch] = []
        for tape, entries in sizes.items():
            for batch in _batches(words.tape(entries, vocabulary)):
                waiting.append(Batch(tape, batch))
                if sum(len(one.entries) for one in waiting) >= BATCH:
                    await store.append(waiting)
                    waiting = []
        await store.append(waiting)
    finally:
        await store.aclose()


def _batches(entries: Iterator[TapeEntry]) -> Iterator[tuple[TapeEntry, ...]]:
    while batch := tuple(islice(entries, BATCH)):
        yield batch


def copied(home: Path, to: Path) -> Path:
    """A copy of a home whose database is closed."""
    shutil.copytree(home, to)
    return to


def bytes_of(home: Path) -> int:
    """Of the database."""
    return sum(path.stat().st_size for path in home.glob("bubbot.db*"))


def write_lines(path: Path, entries: int) -> None:
    """The same tape as a file of JSON lines."""
    with path.open("wb") as file:
        for place, entry in enumerate(words.tape(entries, words.Words()), 1):
            file.write(words.line(entry.with_id(place)))
