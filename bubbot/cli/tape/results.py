"""Results of `bubbot tape --json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from bubbot.features.conversation.anchors import AnchorSummary
from bubbot.ports.store import IndexState, TapeSize
from bubbot.records import dataclass
from bubbot.tape.chain import AuditFinding


@dataclass(frozen=True, slots=True)
class TapeRow:
    """A tape.

    Attributes:
        name: its name.
        session: the session it belongs to; empty if it has none.
        entries: how many entries it has.
        erased: how many of them were erased.
        archived_from: its former name; None if it is not an archive.
        hash: the chain value of its newest entry, in hex.
        title: what people call the chat of its session; empty if that is not known.
    """

    name: str
    session: str
    entries: int
    erased: int
    archived_from: str | None
    hash: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class TapeList:
    """Every tape.

    Attributes:
        tapes: the tapes, by name.
    """

    tapes: tuple[TapeRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryLine:
    """An entry, one a line, as in the tape format. `tape show` prints no other values.

    Attributes:
        id: its number on the tape.
        kind: its kind.
        date: its time, ISO 8601; empty if it came from a file without one.
        payload: its content; absent if it was erased.
        meta: facts about it; absent if it was erased.
        key: the key that keeps it from being written twice.
        erased: true if it was erased.
    """

    is_open: ClassVar[bool] = True
    id: int
    kind: str
    date: str
    payload: Any = None
    meta: Mapping[str, Any] | None = None
    key: str = ""
    erased: bool = False


@dataclass(frozen=True, slots=True)
class AnchorList:
    """The anchors of a tape.

    Attributes:
        tape: the name of the tape.
        anchors: newest first.
    """

    tape: str
    anchors: tuple[AnchorSummary, ...]


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """The result of a verification.

    Attributes:
        intact: nothing is altered, missing or renamed, all triggers and indexes are right, and the given head matches.
        tapes: how many tapes were checked.
        entries: how many entries were read.
        findings: damage and erasures.
        triggers: names of triggers that are missing or changed.
        indexes: names of indexes that do not hold what their tables hold; if there are any, nothing else was checked.
        head: the deployment head; empty if it was not read.
        head_matches: the head of `--head` is the one that the tapes had then; None without `--head`, or if it was not read.
    """

    intact: bool
    tapes: int
    entries: int
    findings: tuple[AuditFinding, ...]
    triggers: tuple[str, ...]
    indexes: tuple[str, ...]
    head: str
    head_matches: bool | None


@dataclass(frozen=True, slots=True)
class SizedTape(TapeSize):
    """The disk usage of a tape.

    Attributes:
        name: of the tape.
        archived_from: its former name; None if it is not an archive.
        count: how many entries it has.
        entries: bytes of its entries.
        blobs: bytes of its blobs.
        session: the session it belongs to; empty if it has none.
    """

    session: str


@dataclass(frozen=True, slots=True)
class SizeResult:
    """The disk usage of a database, in bytes.

    Attributes:
        file: the whole file.
        free: the free part of it.
        wal: the write-ahead log.
        gives_back: free pages can be released to the disk step by step.
        tapes: the size of each, the largest first.
    """

    file: int
    free: int
    wal: int
    gives_back: bool
    tapes: tuple[SizedTape, ...]


@dataclass(frozen=True, slots=True)
class CollectedArchive:
    """An archive that is erased.

    Attributes:
        name: its name.
        session: its session; empty if it has none.
        entries: how many entries still had content.
    """

    name: str
    session: str
    entries: int


@dataclass(frozen=True, slots=True)
class GcResult:
    """What a collection removed, or would remove.

    Attributes:
        dry_run: nothing was removed.
        days: the minimum age of archives; None if they are kept for ever.
        archives: the archives.
        turns: how many turns were cut off long ago.
        blobs: how many blobs nothing names.
        size: bytes of the database afterwards; None after a dry run.
        freed: bytes by which it is smaller; None after a dry run.
    """

    dry_run: bool
    days: int | None
    archives: tuple[CollectedArchive, ...]
    turns: int
    blobs: int
    size: int | None = None
    freed: int | None = None


@dataclass(frozen=True, slots=True)
class IndexResult:
    """The search index.

    Attributes:
        usable: searches use it.
        rebuilding: the running bot is building it again.
        state: how far it goes; None if there is none, or it is being built.
    """

    usable: bool
    rebuilding: bool
    state: IndexState | None


@dataclass(frozen=True, slots=True)
class RepairResult:
    """A repair.

    Attributes:
        restored: names of the triggers that were restored.
        rebuilt: names of the indexes that were built anew.
    """

    restored: tuple[str, ...]
    rebuilt: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """A tape that was archived.

    Attributes:
        tape: its name, under which there is an empty tape now.
        archive: the name of the archive.
    """

    tape: str
    archive: str


@dataclass(frozen=True, slots=True)
class SkippedLine:
    """A line that could not be read.

    Attributes:
        number: of the line, from 1.
        reason: what is wrong.
    """

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class TapeImportResult:
    """An import.

    Attributes:
        session: the session that has the tape now.
        entries: how many entries it has.
        renumbered: entries that had other ids in the file.
        erased: entries that had been erased.
        unhashed: entries that no hash confirms.
        unreadable: the lines that were left out.
        unreadable_file: where they were written to; None if all could be read.
    """

    session: str
    entries: int
    renumbered: int
    erased: int
    unhashed: int
    unreadable: tuple[SkippedLine, ...]
    unreadable_file: str | None
