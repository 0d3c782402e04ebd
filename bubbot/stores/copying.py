"""The copy of all tapes into another, empty store: row by row in their order, through the triggers of that store.

Ids, keys, salts, digests and chains stay. Positions are those of the new store, in the same order. What was erased comes as a
blank row with its digest, and becomes blank by the fact that named it, as it did once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from msgspec import Struct

from bubbot.errors import ConfigError, StoreUnavailable
from bubbot.ports.progress import OnProgress, report_each
from bubbot.stores.names import DatabaseRows, TapeNameRow, name_fact, tape_names
from bubbot.stores.rows import COUNT_ENTRIES, ENTRY_COLUMNS, SELECT_SHARDS, shards_of
from bubbot.stores.transaction import Row, Transaction
from bubbot.tape.erasure import HOME_TAPE, TAPE_ERASED

PORTION_CHARACTERS = 1_000_000
"""Characters of rows after which they are written."""
PORTION_ROWS = 500
_LISTED = 3
"""Tapes that an error names."""
_SELECT = f"SELECT {ENTRY_COLUMNS} FROM entries ORDER BY seq"
_ERASED_BY = "SELECT tape, id FROM erased WHERE fact = ? ORDER BY tape, id"
_INSERT_FORK = "INSERT INTO forks (fork, tape, base, reset, session, epoch) VALUES (?, ?, ?, ?, ?, ?)"
_INSERT_BATCH = "INSERT INTO fork_batches (fork, place, tape, keep_first, entries) VALUES (?, ?, ?, ?, ?)"
_BLANK = ("", "", b"")
"""Payload, meta and salt of an erased entry, until its fact blanks it."""


class TapesToCopy(Struct, frozen=True):
    """All tapes of a store, within one state of it.

    Attributes:
        rows: the database.
        read_blobs: yields digest and bytes of the blobs of a tape, by its number.
        fork_order: the column by which forks were opened.
    """

    rows: DatabaseRows
    read_blobs: Callable[[int], Iterator[tuple[str, bytes]]]
    fork_order: str

    def count_entries(self) -> int:
        return int(self.rows.execute(COUNT_ENTRIES).fetchone()[0])

    def refuse_older(self) -> None:
        """Raise `ConfigError` for tapes that another database would refuse, before anything is written."""
        for tape in tape_names(self.rows):
            if tape.archived_from is not None and not tape.renamed_position:
                raise _older(tape, "was put aside")
            fact = name_fact(self.rows, tape.number)
            if fact is not None and fact[1].get("erased"):
                raise _older(tape, "lost entries to an erasure")


def _older(tape: TapeNameRow, event: str) -> ConfigError:
    return ConfigError(
        f"{tape.name} {event} by a bubbot whose facts do not say so (databases of version 1 or 2), and no other database would "
        "believe it: this home stays where it is"
    )


class CopyCounts(Struct, frozen=True):
    """What was copied.

    Attributes:
        tapes: with archives.
        archives: of them.
        erased: entries that are blank.
        forks: open ones.
    """

    tapes: int
    archives: int
    entries: int
    erased: int
    blobs: int
    forks: int


async def copy_tapes(transaction: Transaction, source: TapesToCopy, on_progress: OnProgress) -> CopyCounts:
    """Copy all tapes, open forks, leases and the label. Raise `ConfigError` if the store holds anything already."""
    await _refuse_filled(transaction)
    await transaction.keep_shards(shards_of(source.rows.execute(SELECT_SHARDS).fetchall()), is_copied=True)
    copy = _Copy(transaction, source)
    await copy.copy_entries(on_progress)
    await copy.copy_lone_blobs()
    forks = await copy.copy_forks()
    label = source.rows.execute("SELECT value FROM deployment WHERE key = 'workspace'").fetchone()
    if label is not None and (kept := await transaction.keep_label(label[0])) != label[0]:
        raise StoreUnavailable(f"the target belongs to another home: its tapes are named after {kept!r}")
    archives = sum(tape.archived_from is not None for tape in copy.names.values())
    return CopyCounts(len(copy.numbers), archives, copy.entries, copy.erased, copy.blobs, forks)


async def _refuse_filled(transaction: Transaction) -> None:
    rows = await transaction.fetch(
        "SELECT name, (SELECT max(id) FROM entries WHERE entries.tape = tapes.tape) FROM tapes WHERE tape IN "
        "(SELECT tape FROM entries) OR tape IN (SELECT tape FROM blobs) ORDER BY name LIMIT ?",
        (_LISTED + 1,),
    )
    rows = rows or await transaction.fetch("SELECT tape, 0 FROM forks ORDER BY tape LIMIT ?", (_LISTED + 1,))
    if rows:
        names = [f"{name} ({head or 0} entries)" for name, head in rows[:_LISTED]]
        others = " and others" if len(rows) > _LISTED else ""
        raise ConfigError(
            f"the target holds tapes already: {', '.join(names)}{others}. A copy goes into an empty database only: name another one"
        )


@dataclass
class _Copy:
    """The state of a copy.

    Attributes:
        names: the tapes of the source, by their numbers there.
        numbers: the numbers here of the tapes that have begun, by those of the source.
    """

    transaction: Transaction
    source: TapesToCopy
    names: dict[int, TapeNameRow] = field(init=False)
    numbers: dict[int, int] = field(default_factory=dict)
    entries: int = 0
    erased: int = 0
    blobs: int = 0

    def __post_init__(self) -> None:
        self.names = {tape.number: tape for tape in tape_names(self.source.rows)}

    async def copy_entries(self, on_progress: OnProgress) -> None:
        await self._read_position()
        rows = report_each(self.source.rows.execute(_SELECT), on_progress, self.source.count_entries())
        waiting = characters = 0
        for seq, number, *columns in rows:
            tape = self.names[number]
            if number not in self.numbers:
                await self._begin(tape)
            payload, meta = columns[7], columns[8]
            if payload is None:
                columns[7:10] = _BLANK
            position = self.transaction.stage_stored(tape.original_name, self.numbers[number], columns)
            self.entries += 1
            waiting, characters = waiting + 1, characters + len(payload or "") + len(meta or "")
            if tape.archived_from is not None and seq == tape.renamed_position:
                await self.transaction.rename(self.numbers[number], tape.name, tape.archived_from)
                await self._read_position()
            if columns[1] == "event" and columns[3] == TAPE_ERASED:
                await self._blank(seq, position)
            if waiting >= PORTION_ROWS or characters >= PORTION_CHARACTERS:
                waiting = characters = 0
                await self.transaction.flush()
        await self.transaction.flush()

    async def _begin(self, tape: TapeNameRow) -> None:
        """Begin a tape, with its blobs: once it is an archive it takes none."""
        self.numbers[tape.number] = await self.transaction.begin_tape(tape.original_name)
        for digest, data in self.source.read_blobs(tape.number):
            await self.transaction.put_blob(tape.original_name, digest, data)
            await self.transaction.flush()
            self.blobs += 1
        await self._read_position()

    async def _blank(self, fact: int, position: int) -> None:
        """Blank the entries that a fact erased; `fact` and `position`: where it is in the source, and here."""
        rows = iter(self.source.rows.execute(_ERASED_BY, (fact,)))
        while portion := [(self.numbers[tape], entry_id) for tape, entry_id in islice(rows, PORTION_ROWS)]:
            await self.transaction.blank(position, portion)
            self.erased += len(portion)
        await self._read_position()

    async def _read_position(self) -> None:
        """Let the transaction know the newest position, which some stores forget after other statements."""
        await self.transaction.find_tape(HOME_TAPE)

    async def copy_lone_blobs(self) -> None:
        """Copy the tapes that have blobs only."""
        for tape in self.names.values():
            if tape.number not in self.numbers and any(self.source.read_blobs(tape.number)):
                await self._begin(tape)

    async def copy_forks(self) -> int:
        """Copy leases and open forks; return the number of these."""
        await self._insert("INSERT INTO leases (tape, epoch) VALUES (?, ?)", "SELECT tape, epoch FROM leases")
        forks = await self._insert(
            _INSERT_FORK, f"SELECT fork, tape, base, reset, session, epoch FROM forks ORDER BY {self.source.fork_order}"
        )
        await self._insert(
            _INSERT_BATCH, "SELECT fork, place, tape, keep_first, entries FROM fork_batches ORDER BY fork, place"
        )
        return forks

    async def _insert(self, statement: str, question: str) -> int:
        count, rows = 0, iter(self.source.rows.execute(question))
        while portion := _take(rows):
            await self.transaction.execute(statement, *portion)
            count += len(portion)
        return count


def _take(rows: Iterator[Any]) -> Sequence[Row]:
    """Take a portion of rows; empty at the end."""
    return [tuple(row) for row in islice(rows, PORTION_ROWS)]
