"""Optional capabilities of a store beyond `TapeStore`, one protocol each, and the factory of a package's store.

A store may lack any of them; a command that needs one raises a sentence (`require_chain` and others).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from bubbot.errors import ConfigError
from bubbot.ports.progress import OnProgress, ignore_progress
from bubbot.tape.chain import AuditFinding
from bubbot.tape.entry import TapeEntry
from bubbot.tape.handle import Clock
from bubbot.tape.store import Batch, TapeStore


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The options of a store factory.

    Attributes:
        address: `[store] address`; empty if not set.
        readonly: read only, while another process may write. The database itself must then refuse writes: SQLite opens
            with `mode=ro` and `query_only`; a store on PostgreSQL sets `default_transaction_read_only` and preferably
            uses a role that may only `SELECT`. A store that cannot do this raises `StoreUnavailable`.
    """

    home: Path
    address: str = field(repr=False)
    readonly: bool
    now: Clock


StoreFactory: TypeAlias = Callable[[StoreOptions], Awaitable[TapeStore]]
"""Open a store. Packages offer it in the group `bubbot.stores`. Raise `StoreError` or `ConfigError`."""


class DeploymentAudit(Struct, frozen=True):
    """The result of an audit.

    Attributes:
        tapes: the number of checked tapes.
        entries: the number of read entries.
        findings: damage and erasures.
        head: the deployment head; empty if it was not read.
        triggers: names of missing or changed triggers; without them the database can lose history.
        indexes: names of indexes that disagree with their tables: they hide facts. If there are any, nothing else was
            checked.
    """

    tapes: int
    entries: int
    findings: tuple[AuditFinding, ...]
    head: str
    triggers: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()

    @property
    def damage(self) -> tuple[AuditFinding, ...]:
        """The findings that mean damage: all except erasures."""
        return tuple(finding for finding in self.findings if finding.problem != "erased")


class TapeHead(Struct, frozen=True):
    """The end of a tape: its name, its newest id and the hash of that entry."""

    name: str
    id: int
    hash: str


class DatabaseContent(Struct, frozen=True):
    """The content of a database as a manifest records it.

    Attributes:
        version: of the schema.
        workspace: the label in the names of its tapes.
        tapes: the end of each tape, by name.
        head: of the deployment, over all tapes.
    """

    version: int
    workspace: str
    tapes: tuple[TapeHead, ...]
    head: str


class TapeSize(Struct, frozen=True):
    """The disk usage of a tape.

    Attributes:
        name: of the tape.
        archived_from: its former name; None if it is not an archive.
        count: how many entries it has.
        entries: bytes of its entries.
        blobs: bytes of its blobs.
    """

    name: str
    archived_from: str | None
    count: int
    entries: int
    blobs: int


class DatabaseSize(Struct, frozen=True):
    """The disk usage of a database, in bytes.

    Attributes:
        file: the whole file.
        free: the free part of it.
        wal: the write-ahead log.
        gives_back: free pages can be released to the disk step by step.
        tapes: the size of each, by name.
    """

    file: int
    free: int
    wal: int
    gives_back: bool
    tapes: tuple[TapeSize, ...]


class UnreferencedBlobs(Struct, frozen=True):
    """Blobs that no entry up to a position names.

    Attributes:
        position: a global position.
        tapes: (digest, bytes) of each blob, by its tape.
    """

    position: int
    tapes: dict[str, tuple[tuple[str, int], ...]]


class PositionedEntry(Struct, frozen=True):
    """An entry with its place in the order of all tapes."""

    position: int
    tape: str
    entry: TapeEntry


@runtime_checkable
class LabelsWorkspace(Protocol):
    """A store that stores the label in its tape names. For others the label is the path of the home."""

    async def workspace(self, default: str) -> str:
        """Return the label; the first call stores and returns `default`."""
        ...


@runtime_checkable
class CountsEntries(Protocol):
    """A store that counts its transactions and entries."""

    @property
    def commit_count(self) -> int:
        """The number of transactions committed since the store was opened."""
        ...

    async def count_entries(self) -> int:
        """Count the entries of all tapes, erased ones included."""
        ...


@runtime_checkable
class OrdersEntries(Protocol):
    """A store that orders the entries of all tapes by one global position.

    Positions are above 0 and only rise, on a tape and over all tapes. A reader up to a position has missed nothing
    below it: later entries stand above. There may be gaps, so positions are not counts.
    """

    async def newest_position(self) -> int:
        """Return the newest readable position; 0 without entries."""
        ...

    async def read_after(self, position: int, limit: int) -> list[PositionedEntry]:
        """Return the next entries after a position, at most `limit`; empty if there are no more yet."""
        ...


@runtime_checkable
class WaitsForRoom(Protocol):
    """A store that waits for room if its disk is full."""

    @property
    def is_full(self) -> bool:
        """True while writes wait for room."""
        ...

    async def wait_for_room(self) -> None:
        """Wait until there seems to be room."""
        ...

    def stop_waiting_for_room(self) -> None:
        """From now on, let writes without room raise `StoreFull`."""
        ...


@runtime_checkable
class NoticesReplacement(Protocol):
    """A store in a file that may be removed or replaced while it is open."""

    @property
    def is_replaced(self) -> bool:
        """True if its path no longer leads to its file: then it writes nothing, since that would be lost with this
        process.
        """
        ...


@runtime_checkable
class KeepsChain(Protocol):
    """A store that chains its entries by hashes."""

    async def audit(self, tape: str | None = None, *, on_progress: OnProgress = ignore_progress) -> DeploymentAudit:
        """Check the chain of one tape or of all; report checked entries as progress."""
        ...

    async def deployment_head(self, position: int | None = None, *, older: bool = False) -> str:
        """Return the head over all tapes, now or at a global position; `older`: in the form of version 2."""
        ...


@runtime_checkable
class MeasuresSize(Protocol):
    """A store that can report its disk usage."""

    async def measure_size(self) -> DatabaseSize: ...


@runtime_checkable
class CollectsGarbage(MeasuresSize, Protocol):
    """A store from which `bubbot tape gc` can remove unneeded data."""

    async def count_erasable(self, archive: str) -> int:
        """Count the entries of an archive that an erasure would blank."""
        ...

    async def erase_archive(self, archive: str, fact: Batch, also: Sequence[tuple[str, tuple[int, ...]]]) -> None:
        """Erase an archive and single entries of other tapes by the fact `tape/erased`."""
        ...

    async def find_unreferenced_blobs(self) -> UnreferencedBlobs:
        """Find blobs that no entry names."""
        ...

    async def drop_blobs(self, tape: str, blobs: UnreferencedBlobs, date: str) -> int:
        """Remove the blobs of a tape that are still unreferenced; return their number."""
        ...

    async def release_pages(self, *, allow_rewrite: bool) -> None:
        """Release free room to the disk."""
        ...


class FillsIndex(Protocol):
    """The indexer of a search index."""

    async def run(self) -> None:
        """Index until cancelled."""
        ...

    async def fill(self, on_progress: OnProgress = ignore_progress, total: int = 0) -> None:
        """Index all entries now; report how many of `total` are indexed."""
        ...

    async def aclose(self) -> None:
        """Close what is open."""
        ...


class IndexState(Struct, frozen=True):
    """The progress of an index.

    Attributes:
        position: the global position up to which it covers every entry.
        entries: entries up to there.
        behind: entries after that.
        bytes: its size.
        texts: the bytes of the texts that it indexes.
        fresh: it belongs to this database; another one is never used.
    """

    position: int
    entries: int
    behind: int
    bytes: int
    texts: int
    fresh: bool


@runtime_checkable
class IndexesTexts(Protocol):
    """A store with a search index. In others a search reads every entry of a tape."""

    @property
    def is_indexing(self) -> bool:
        """True while an indexer is running."""
        ...

    def build_indexer(self) -> FillsIndex:
        """Make the indexer; only one may exist at a time."""
        ...

    async def index_state(self) -> IndexState | None:
        """Report the progress of the index; None without one."""
        ...

    async def forget_index(self) -> None:
        """Delete the index; a running indexer starts again."""
        ...


def require_chain(store: object) -> KeepsChain:
    """Return the store as one with a hash chain. Raise `ConfigError` for others, like the next functions."""
    if not isinstance(store, KeepsChain):
        raise _lacks(store, "keeps no hashes that could be checked")
    return store


def require_sizes(store: object) -> MeasuresSize:
    """Return the store as one that measures its size."""
    if not isinstance(store, MeasuresSize):
        raise _lacks(store, "does not measure what takes its room")
    return store


def require_garbage_collection(store: object) -> CollectsGarbage:
    """Return the store as one from which unneeded data can be removed."""
    if not isinstance(store, CollectsGarbage):
        raise _lacks(store, "has nothing that bubbot could remove")
    return store


def require_index(store: object) -> IndexesTexts:
    """Return the store as one with a search index."""
    if not isinstance(store, IndexesTexts):
        raise _lacks(store, "has no search index: every search reads the tape")
    return store


def _lacks(store: object, predicate: str) -> ConfigError:
    return ConfigError(f"This store ({type(store).__name__}) {predicate}.")


async def no_wait_for_room() -> None:
    """Return at once, for stores that cannot tell."""
