"""What bubbot is compared with: `sqlite3` alone, and a file of JSON lines, both as anybody would write them."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bubbot.stores.rows import INSERT_ENTRY, encode_content, to_row
from bubbot.tape.entry import TapeEntry

Rows = list[tuple[Any, ...]]


class RawSqlite:
    """The same schema with its indexes and triggers, durable commits, one transaction a turn, and nothing else.

    The rows are ready before the clock runs: no JSON is made, nothing is hashed, no id is looked for.
    """

    def __init__(self, path: Path) -> None:
        self._conn = sqlite3.connect(path, isolation_level=None)
        self._conn.execute("PRAGMA journal_mode = WAL")
        self._conn.execute("PRAGMA synchronous = FULL")
        self._conn.execute("PRAGMA foreign_keys = ON")
        self._seq = int(self._conn.execute("SELECT max(seq) FROM entries").fetchone()[0])
        self._ends: dict[str, tuple[int, int, bytes]] = {}

    def rows(self, tape: str, entries: Iterable[TapeEntry]) -> Rows:
        """The rows that come next; they have to be written in the order in which they were made."""
        number, head, chain = self._ends.get(tape) or self._end(tape)
        made = []
        for entry in entries:
            self._seq, head = self._seq + 1, head + 1
            content = encode_content(entry, os.urandom(16))
            row = to_row(entry.with_id(head), content, seq=self._seq, tape=number, previous=chain)
            chain = row[-1]
            made.append(row)
        self._ends[tape] = (number, head, chain)
        return made

    def _end(self, tape: str) -> tuple[int, int, bytes]:
        found = self._conn.execute(
            "SELECT tape, id, chain FROM entries WHERE tape = (SELECT tape FROM tapes WHERE name = ?) "
            "ORDER BY id DESC LIMIT 1",
            (tape,),
        ).fetchone()
        return int(found[0]), int(found[1]), bytes(found[2])

    def write(self, rows: Rows) -> None:
        """One transaction."""
        self._conn.execute("BEGIN IMMEDIATE")
        self._conn.executemany(INSERT_ENTRY, rows)
        self._conn.execute("COMMIT")

    def window(self, tape: str) -> list[tuple[Any, Any]]:
        """The bare query of a context: the entries after the newest anchor, their JSON read."""
        found = self._conn.execute(
            "SELECT payload, meta FROM entries WHERE tape = (SELECT tape FROM tapes WHERE name = ?) AND id > "
            "(SELECT max(id) FROM entries INDEXED BY entries_window WHERE opens = 1 AND tape = "
            "(SELECT tape FROM tapes WHERE name = ?)) ORDER BY id",
            (tape, tape),
        )
        return [(json.loads(payload), json.loads(meta)) for payload, meta in found]

    def like(self, tape: str, text: str, limit: int = 20) -> list[int]:
        """The newest entries whose payload holds the text."""
        found = self._conn.execute(
            "SELECT id FROM entries WHERE tape = (SELECT tape FROM tapes WHERE name = ?) AND payload LIKE ? "
            "ORDER BY id DESC LIMIT ?",
            (tape, f"%{text}%", limit),
        )
        return [row[0] for row in found]

    def texts(self, tape: str) -> list[str]:
        """Every payload of the tape."""
        found = self._conn.execute(
            "SELECT payload FROM entries WHERE tape = (SELECT tape FROM tapes WHERE name = ?) ORDER BY id", (tape,)
        )
        return [row[0] for row in found]

    def close(self) -> None:
        """Done."""
        self._conn.close()


class Jsonl:
    """A tape in one file: read whole for whatever is asked, and appended to with one durable write a turn."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("ab")

    def turn(self, lines: Sequence[bytes]) -> int:
        """What the tape does in a turn: the context is read, then the memory, and the batch is appended."""
        shown = [entry for entry in self._window() if entry["kind"] in ("message", "tool_call", "tool_result")]
        notes = [entry for entry in self._entries() if entry["payload"].get("name") == "memory.long_term"]
        self.append(lines)
        return len(shown) + len(notes)

    def append(self, lines: Sequence[bytes]) -> None:
        """One durable write."""
        self._file.write(b"".join(lines))
        self._file.flush()
        os.fsync(self._file.fileno())

    def _window(self) -> list[Any]:
        window: list[Any] = []
        for entry in self._entries():
            if entry["kind"] == "anchor" and not entry["payload"]["name"].startswith("memory/"):
                window.clear()
            window.append(entry)
        return window

    def _entries(self) -> Iterable[Any]:
        with self._path.open("rb") as file:
            for line in file:
                yield json.loads(line)

    def close(self) -> None:
        """Done."""
        self._file.close()
