"""The tape store port: where entries are stored. Implementations live in `stores/`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

from msgspec import Struct

from bubbot.errors import LeaseLost
from bubbot.tape.blobs import BlobStore
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import TapeQuery
from bubbot.tape.references import Rebase

SYSTEM_TAPE_PREFIX = "bubbot/"
"""The prefix of the system's own tapes; they are never indexed."""


class Lease(Struct, frozen=True):
    """A holder's right to write to the tape of a session.

    Attributes:
        epoch: rises with each new holder; a lease with an older epoch is lost.
    """

    tape: str
    epoch: int


class Batch(Struct, frozen=True):
    """Entries for one tape.

    Attributes:
        entries: in the order of their ids.
        expect_head: the required newest id of the tape, else `TapeConflict`; None: any.
        if_absent: skip an entry whose key is on the tape, whatever the content (inbox, schedule); otherwise different
            content under a stored key is a `TapeConflict`.
        rebase: the entries are a fork's delta: if the tape has grown, references to them follow, also in later batches;
            None: write the entries as they are.
        lease: refuse the whole append with `LeaseLost` if this lease is lost; None: no lease. It is not stored.
        wakes: the session that has work after this; a store whose workers share the sessions tells them in the same
            transaction, even if a stored key skips the entries. Empty: none.
    """

    tape: str
    entries: tuple[TapeEntry, ...]
    expect_head: int | None = None
    if_absent: bool = False
    rebase: Rebase | None = None
    lease: Lease | None = None
    wakes: str = ""

    def skips(self, key: str | None) -> bool:
        """Return true if a stored key skips its entry, whatever the content."""
        return self.if_absent or (self.rebase is not None and key in self.rebase.if_absent)


def refuse_lost_leases(batches: Sequence[Batch], newest_epoch: Callable[[str], int]) -> None:
    """Raise `LeaseLost` if the lease of a batch has an older epoch than the newest of its tape."""
    for lease in {batch.lease for batch in batches if batch.lease is not None}:
        newest = newest_epoch(lease.tape)
        if lease.epoch < newest:
            raise LeaseLost(
                f"another process has taken up the session of {lease.tape} since (epoch {newest}, not {lease.epoch}): "
                "it answers what is open"
            )


class ResetBatch(Struct, frozen=True):
    """The instruction to move a tape's entries under another name and restart the tape.

    Attributes:
        archive: the name for the old entries.
        erase: blank the old entries, those of earlier archives, and those in `erase_also`, with the blobs that only these
            cite; the first entries of the new tape must include the `tape/erased` that records it.
        erase_also: entries of other tapes to erase, as (tape, ids).
    """

    archive: str
    erase: bool = False
    erase_also: tuple[tuple[str, tuple[int, ...]], ...] = ()


class ForkRecord(Struct, frozen=True):
    """An open fork as it is stored on disk.

    Attributes:
        id: `PARENT/NAME` for a nested fork, with the id of the outer one.
        tape: the session tape.
        base: the head of its parent, the tape or another fork, when the fork was opened.
        staged: batches in the order they were staged; those of the session tape are the fork's delta.
        reset: the reset that the merge performs first, if any.
        session: empty if the tape has none, or if an earlier version opened the fork.
        epoch: of the lease under which it was opened; 0 for none.
    """

    id: str
    tape: str
    base: int
    staged: tuple[Batch, ...]
    reset: ResetBatch | None = None
    session: str = ""
    epoch: int = 0

    @property
    def parent(self) -> str:
        """The id of the outer fork; empty for a fork of the tape itself."""
        return self.id.rpartition("/")[0]


class ForkedSession(Struct, frozen=True):
    """A tape with open forks, and its session; empty if unknown (see `ForkRecord`)."""

    tape: str
    session: str


class TapeSummary(Struct, frozen=True):
    """One line of the list of tapes.

    Attributes:
        name: the name of the tape.
        head: its newest id.
        hash: the chain value of that entry, in hex.
        archived_from: the name it had before a reset put it aside.
        erased: entries that were erased.
    """

    name: str
    head: int
    hash: str
    archived_from: str | None = None
    erased: int = 0


class TapeStore(BlobStore, Protocol):
    """An append-only store of tapes. There is no update and no delete.

    Every writing method is one transaction: it returns after the commit, or raises and has written nothing. A caller
    cancelled while waiting either wrote nothing or wrote everything. Methods raise `StoreUnavailable` or `StoreFull` if
    the database failed, `TapeCorrupt` if stored bytes are unreadable or were altered. After `aclose` every method
    raises `StoreUnavailable`.
    """

    async def append(self, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
        """Append the batches, all or nothing; return the stored entries, one for each given entry.

        An entry whose key is on its tape already is not written; the stored one stands in its place. Two batches may
        name the same tape.

        Raises:
            TapeConflict: a batch's `expect_head` or a stored key does not match.
            LeaseLost: a batch's lease is lost to another holder.
        """
        ...

    def append_deferred(self, batches: Sequence[Batch]) -> Awaitable[list[tuple[TapeEntry, ...]]]:
        """Append like `append`, for callers that do not wait: the next write, if it comes soon, may commit it.

        Its place is fixed once this returns: later writes are never durable before it.
        """
        ...

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """Return the entries of each query, as `evaluate` defines it, all from one state of the database."""
        ...

    async def head(self, tape: str) -> int:
        """Return the newest id; 0 for a tape without entries."""
        ...

    async def tapes(self) -> list[TapeSummary]:
        """List every tape, archives included, by name."""
        ...

    async def open_fork(self, record: ForkRecord, *, expect_head: bool = True) -> None:
        """Store an open fork durably; a tape and a fork may have several.

        Args:
            expect_head: refuse a fork of a tape that has grown beyond `base`.

        Raises:
            TapeConflict: `base` is not the tape's head, or above it.
            EntryNotFound: the outer fork is not open.
            LeaseLost: the lease of a batch is lost; `extend_fork` and `merge_fork` raise it too.
        """
        ...

    async def extend_fork(self, fork: str, staged: Sequence[Batch], reset: ResetBatch | None = None) -> None:
        """Add batches or a reset to an open fork, durably. Raise `EntryNotFound` if it is not open."""
        ...

    async def merge_fork(
        self, fork: str, batches: Sequence[Batch], reset: tuple[str, ResetBatch] | None = None
    ) -> list[tuple[TapeEntry, ...]]:
        """Close a fork and append its batches in one transaction, after the reset (tape, batch) if given.

        The batches of a nested fork are added to its parent as by `extend_fork`, without a reset.

        Raises:
            TapeConflict: as `append`; or it still has open forks; or the reset would archive entries after `base`.
            EntryNotFound: the fork is not open.
        """
        ...

    async def drop_fork(self, fork: str) -> None:
        """Close and delete a fork and its forks; do nothing if it is not open."""
        ...

    async def forks(self, tape: str | None = None) -> list[ForkRecord]:
        """List the open forks of a tape, or of all tapes, oldest first."""
        ...

    async def forked_sessions(self) -> list[ForkedSession]:
        """List the tapes with open forks, by name, without reading the forks."""
        ...

    async def raise_epoch(self, tape: str) -> int:
        """Start and return the next epoch of a tape's lease, durably; older leases are lost from now on.

        Epochs begin with 1 and only rise, even if the tape is reset.
        """
        ...

    async def reset(self, tape: str, reset_batch: ResetBatch, first: Sequence[TapeEntry]) -> tuple[TapeEntry, ...]:
        """Archive or erase the tape and restart it with these entries, in one transaction."""
        ...

    async def erase(
        self,
        batches: Sequence[Batch],
        entries: Sequence[tuple[str, tuple[int, ...]]],
        blobs: Sequence[tuple[str, tuple[str, ...]]] = (),
    ) -> list[tuple[TapeEntry, ...]]:
        """Append batches and erase single entries of any tapes, in one transaction; return the stored entries.

        The newest `tape/erased` in the first batch gets the ids that it `covers`; further facts go to the home tape.
        Entries of no such tape, blank ones, and facts about names and erasures are skipped. A blob that an erased entry
        cites goes too, unless another entry of its tape or an open fork cites it. What open forks have staged stays:
        merge them first.

        Args:
            entries: as (tape, ids); a tape may be an archive and may be named more than once.
            blobs: further blobs to remove, as (tape, digests), whatever cites them.

        Raises:
            EntryNotFound: the first batch has no `tape/erased`.
            TapeConflict: as `append`.
        """
        ...

    async def aclose(self) -> None:
        """Finish the accepted work and close. Repeated calls do nothing."""
        ...


class StoreHeads(Struct, frozen=True):
    """How far some tapes have come.

    Attributes:
        tapes: their newest ids; without those that have no entry.
        erasure: the position of the newest fact by which entries of any tape were erased; 0 for none.
    """

    tapes: Mapping[str, int]
    erasure: int = 0


@runtime_checkable
class SharesWriting(Protocol):
    """A store to which several processes may write at once. With others, the only writer knows what was written."""

    async def heads(self, tapes: Collection[str]) -> StoreHeads:
        """Return how far these tapes have come, in one question."""
        ...

    def exclusive(self, name: str) -> AbstractAsyncContextManager[None]:
        """Run one block of this name at a time, in all processes.

        Raises:
            StoreUnavailable: the others took too long.
        """
        ...

    async def keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run work in one process at a time: wait until no other one does, and again after the server took it away.

        Another process takes the work over at once if this one ends, and after some seconds if it is frozen. Then the work is
        cancelled here as soon as this process notices, so what the work does has to be harmless if two do it.
        """
        ...
