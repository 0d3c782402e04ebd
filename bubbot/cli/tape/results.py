"""What the commands about the store return: the contract of `--json`, and what a shell is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct

from bubbot.command import Caller
from bubbot.formatting import format_bytes
from bubbot.log import printable
from bubbot.ports.store import IndexState
from bubbot.tape.chain import AuditFinding

EXIT_OK, EXIT_INDEX_BEHIND, EXIT_DAMAGED = 0, 1, 5


class TapeRow(Struct, frozen=True):
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

    right: ClassVar = (1,)
    name: str
    session: str
    entries: int
    erased: int
    archived_from: str | None
    hash: str
    title: str = ""

    @property
    def label(self) -> str:
        """The name that people know."""
        return self.session or self.name

    def values(self, caller: Caller) -> Mapping[str, object]:
        """Return the formatted values of its cells."""
        say = caller.texts.say
        notes = [say("TapeRow.archive", name=self.archived_from)] if self.archived_from else []
        notes += [say("TapeRow.erased", number=self.erased)] if self.erased else []
        notes += [printable(self.title)] if self.title else []
        return {"label": self.label, "notes": "; ".join(notes)}


class TapeList(Struct, frozen=True):
    """Every tape.

    Attributes:
        tapes: the tapes, by name.
    """

    tapes: tuple[TapeRow, ...]

    @property
    def rows(self) -> tuple[TapeRow, ...]:
        """The rows of a table: by the names that people know."""
        return tuple(sorted(self.tapes, key=lambda row: (row.label, row.name)))

    def describe(self, _caller: Caller) -> str:
        """Say nothing if there are none."""
        return ""


class EntryLine(Struct, frozen=True, kw_only=True):
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


class VerifyResult(Struct, frozen=True):
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


class TapesVerified(VerifyResult, frozen=True, kw_only=True):
    """A verification with what was asked for.

    Attributes:
        position: of the head that was kept from earlier.
        is_older: that head is of a form that did not cover the names of tapes.
    """

    position: str
    is_older: bool

    @property
    def exit_code(self) -> int:
        """The exit code: 5 for damage."""
        return EXIT_OK if self.intact else EXIT_DAMAGED

    def describe(self, caller: Caller) -> str:
        """Write a line for each damage, and a summary."""
        say = caller.texts.say
        lines = [
            f"{finding.location} {finding.problem}: {finding.detail}"
            for finding in self.findings
            if finding.problem != "erased"
        ]
        lines += [say("VerifyResult.trigger", name=name) for name in self.triggers]
        lines += [say("VerifyResult.index", name=name) for name in self.indexes]
        lines = [" ".join(line.splitlines()) for line in lines]
        if self.head_matches is not None:
            name = "VerifyResult.head" if self.head_matches else "VerifyResult.other_head"
            lines.append(say(name, position=self.position))
            lines += [say("VerifyResult.older_head")] if self.is_older else []
        if self.indexes:
            return "\n".join([*lines, say("VerifyResult.again")])
        counts = dict.fromkeys(("altered", "missing", "renamed", "erased"), 0)
        for finding in self.findings:
            counts[finding.problem] += 1
        summary = say("VerifyResult.summary", entries=self.entries, tapes=self.tapes, head=self.head, **counts)
        return "\n".join([*lines, summary])


class SizedTape(Struct, frozen=True):
    """The disk usage of a tape.

    Attributes:
        name: of the tape.
        archived_from: its former name; None if it is not an archive.
        count: how many entries it has.
        entries: bytes of its entries.
        blobs: bytes of its blobs.
        session: the session it belongs to; empty if it has none.
    """

    right: ClassVar = (0, 1, 2)
    name: str
    archived_from: str | None
    count: int
    entries: int
    blobs: int
    session: str

    def values(self, _caller: Caller) -> Mapping[str, object]:
        """Return the further values of its cells."""
        return {"bytes": self.entries + self.blobs, "label": f"{self.session}  {self.name}".strip()}


class SizeResult(Struct, frozen=True):
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

    @property
    def rows(self) -> tuple[SizedTape, ...]:
        """The rows of a table."""
        return self.tapes

    def footer(self, caller: Caller) -> str:
        """Say how large the file is."""
        return caller.texts.say("SizeResult", file=self.file, free=self.free, wal=self.wal)

    describe = footer


class CopiesElsewhere(Struct, frozen=True):
    """What another tape holds of an archive that is erased; it stays.

    Attributes:
        tape: the name of the other tape.
        session: its session; empty if it has none.
        entries: how many of its entries are made of entries of the archive.
        prompts: how many of its kept prompts show some.
    """

    tape: str
    session: str
    entries: int
    prompts: int


class CollectedArchive(Struct, frozen=True):
    """An archive that is erased.

    Attributes:
        name: its name.
        session: its session; empty if it has none.
        entries: how many entries still had content.
        copies: what other chats hold of it, which stays.
    """

    name: str
    session: str
    entries: int
    copies: tuple[CopiesElsewhere, ...] = ()


class GcResult(Struct, frozen=True):
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


class Collection(GcResult, frozen=True, kw_only=True):
    """A collection with what is said of it.

    Attributes:
        fork_days: the age in days from which a turn was cut off long ago.
        gives_back: the database gives its free room back; None after a dry run.
    """

    fork_days: int
    gives_back: bool | None = None

    def describe(self, caller: Caller) -> str:
        """Write a line for each kind of data, and how large the database is."""
        say, form = caller.texts.say, "planned" if self.dry_run else "done"

        def say_copies(copies: CopiesElsewhere) -> str:
            chat = printable(copies.session or copies.tape)
            return say("reset_copies_line", chat=chat, entries=copies.entries, prompts=copies.prompts)

        if self.days is None:
            lines = [say("GcResult.forever")]
        else:
            entries = sum(archive.entries for archive in self.archives)
            values = {"days": self.days, "number": len(self.archives), "count": entries}
            lines = [say(f"GcResult.archives_{form}", **values)]
        lines.append(say(f"GcResult.turns_{form}", days=self.fork_days, number=self.turns))
        lines.append(say(f"GcResult.blobs_{form}", number=self.blobs))
        if self.dry_run:
            for each in self.archives:
                session = each.session or say("CollectedArchive.no_session")
                line = say("CollectedArchive", session=session, entries=each.entries, name=each.name)
                lines.append(" ".join(line.splitlines()))
        else:
            lines.append(say("GcResult.size", size=format_bytes(self.size or 0), freed=format_bytes(self.freed or 0)))
            lines += [] if self.gives_back else [say("GcResult.earlier")]
        for archive in self.archives:
            if archive.copies:
                lines += [say("CollectedArchive.copies", name=archive.name), *map(say_copies, archive.copies)]
        return "\n".join(lines)


class IndexResult(Struct, frozen=True):
    """The search index.

    Attributes:
        usable: searches use it.
        rebuilding: the running bot is building it again.
        state: how far it goes; None if there is none, or it is being built.
    """

    usable: bool
    rebuilding: bool
    state: IndexState | None

    @property
    def exit_code(self) -> int:
        """The exit code: 1 if there is none, or it belongs to other tapes."""
        return EXIT_OK if self.usable or self.rebuilding else EXIT_INDEX_BEHIND

    def describe(self, caller: Caller) -> str:
        """Say how far it goes."""
        say, state = caller.texts.say, self.state
        if state is None:
            return say("IndexResult.rebuilding" if self.rebuilding else "IndexResult.none")
        size = say("IndexResult.size", bytes=format_bytes(state.bytes), texts=format_bytes(state.texts))
        if not state.fresh:
            return say("IndexResult.foreign", size=size)
        behind = say("IndexResult.behind", number=state.behind) if state.behind else ""
        return say("IndexResult.fresh", entries=state.entries, behind=behind, size=size)


class IndexOff(IndexResult, frozen=True):
    """No search index, as the settings want it."""

    def describe(self, caller: Caller) -> str:
        """Say which setting it is."""
        return caller.texts.say("IndexResult.off")


class RepairResult(Struct, frozen=True):
    """A repair.

    Attributes:
        restored: names of the triggers that were restored.
        rebuilt: names of the indexes that were built anew.
    """

    restored: tuple[str, ...]
    rebuilt: tuple[str, ...]


class CopyResult(Struct, frozen=True):
    """A copy of all tapes in another store.

    Attributes:
        source: the file or database that was copied; no password is in it.
        target: the file or database with the copy.
        tapes: their number, archives included.
        archives: the number of archives.
        entries: the number of entries, erased ones included.
        erased: how many of them were erased.
        blobs: the number of files and texts beside the entries.
        forks: the number of open turns.
        head: the deployment head of the copy; its hash is that of the source.
    """

    source: str
    target: str
    tapes: int
    archives: int
    entries: int
    erased: int
    blobs: int
    forks: int
    head: str


class ArchiveResult(Struct, frozen=True):
    """A tape that was archived.

    Attributes:
        tape: its name, under which there is an empty tape now.
        archive: the name of the archive.
    """

    tape: str
    archive: str

    def describe(self, _caller: Caller) -> str:
        """Name the archive alone, for programs too."""
        return self.archive


class SkippedLine(Struct, frozen=True):
    """A line that could not be read.

    Attributes:
        number: of the line, from 1.
        reason: what is wrong.
    """

    number: int
    reason: str


class TapeImportResult(Struct, frozen=True):
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
