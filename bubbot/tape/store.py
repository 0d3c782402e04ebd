"""The tape store port: where entries are kept. Implementations live in `stores/`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bubbot.tape.blobs import BlobStore
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import TapeQuery


@dataclass(frozen=True, slots=True)
class Batch:
    """Entries for one tape. `expect_head`: the id its newest entry must have, else `TapeConflict`.

    `keep_first`: a key that is already on the tape skips its entry, whatever the content (inbox, schedule);
    otherwise other content under a stored key is a `TapeConflict`.
    """

    tape: str
    entries: tuple[TapeEntry, ...]
    expect_head: int | None = None
    keep_first: bool = False


@dataclass(frozen=True, slots=True)
class ResetBatch:
    """Put the tape's entries aside under the name `archive`, and start the tape anew.

    `erase` also blanks them, those of earlier archives, and those of other tapes named in `also` (tape, ids); the fact that says so is the
    event `tape/erased` among the first entries of the new tape.
    """

    archive: str
    erase: bool = False
    also: tuple[tuple[str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class ForkRecord:
    """An open fork as it is kept on disk: the session tape, its head when the fork was opened, what was staged.

    `staged` are batches in the order they were staged; those of the session tape are the fork's delta.
    """

    id: str
    tape: str
    base: int
    staged: tuple[Batch, ...]
    reset: ResetBatch | None = None


@dataclass(frozen=True, slots=True)
class TapeSummary:
    """One line of the list of tapes. `archived_from`: the name it had before a reset put it aside."""

    name: str
    head: int
    hash: str
    archived_from: str | None = None
    erased: int = 0


class TapeStore(BlobStore, Protocol):
    """An append-only store of tapes. There is no update and no delete.

    Every writing method is one transaction: it returns after the commit, or raises and has written nothing.
    A caller cancelled while waiting either wrote nothing or wrote everything. Raises `StoreUnavailable` or
    `StoreFull` where the database failed, `TapeCorrupt` where stored bytes are unreadable or were altered.
    After `aclose` every method raises `StoreUnavailable`.
    """

    async def append(self, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
        """Appends the batches, all or nothing, and returns the stored entries, one for each given.

        An entry whose key is on its tape already is not written; the stored one stands in its place. Two
        batches may name the same tape. Raises `TapeConflict`.
        """
        ...

    async def append_along(self, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
        """As `append`, for what nobody waits for: it may be committed together with the next write, if that comes soon.

        Whatever is asked to be written after it is never durable before it.
        """
        ...

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """What each query finds, as `evaluate` defines it, all from one state of the database."""
        ...

    async def head(self, tape: str) -> int:
        """The newest id; 0 for a tape without entries."""
        ...

    async def tapes(self) -> list[TapeSummary]:
        """Every tape, archives included, by name."""
        ...

    async def open_fork(self, record: ForkRecord) -> None:
        """Keeps an open fork durably. Raises `TapeConflict` where the tape's head is no longer `base`."""
        ...

    async def extend_fork(self, fork: str, staged: Sequence[Batch], reset: ResetBatch | None = None) -> None:
        """Adds to an open fork durably. Raises `EntryNotFound` where it is not open."""
        ...

    async def merge_fork(
        self, fork: str, batches: Sequence[Batch], reset: tuple[str, ResetBatch] | None = None
    ) -> list[tuple[TapeEntry, ...]]:
        """Closes a fork and appends its batches in one transaction, after the reset (tape, how) where given."""
        ...

    async def drop_fork(self, fork: str) -> None:
        """Closes a fork and forgets it. Dropping one that is not open is fine."""
        ...

    async def forks(self) -> list[ForkRecord]:
        """The open forks, oldest first."""
        ...

    async def reset(self, tape: str, how: ResetBatch, first: Sequence[TapeEntry]) -> tuple[TapeEntry, ...]:
        """Puts the tape aside (or erases it) and starts it anew with these entries, in one transaction."""
        ...

    async def aclose(self) -> None:
        """Finishes what was accepted and closes; calling it twice is fine."""
        ...
