"""The list of sessions, newest activity first."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct
from msgspec.structs import replace

from bubbot.gateway.names import NameBook, fetch_readable
from bubbot.ports.session_names import IMPORT_EVENT, IMPORTS_TAPE
from bubbot.tape.boundary import TapeBoundary
from bubbot.tape.entry import TapeEntry, text_field
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.store import SYSTEM_TAPE_PREFIX, TapeSummary

QUERIES_AT_ONCE = 500
MAX_REMEMBERED = 20_000
"""Tapes of which the session and the date of the newest entry are kept in memory."""


class SessionRow(Struct, frozen=True):
    """A tape in the list.

    Attributes:
        tape: its name.
        session: its session; empty if it has none.
        entries: how many entries it has.
        date: of the newest one, ISO 8601; empty if unknown.
        is_archive: it was put aside.
        is_running: a turn runs.
        name: what people call the chat; empty if unknown.
    """

    tape: str
    session: str
    entries: int
    date: str
    is_archive: bool = False
    is_running: bool = False
    name: str = ""

    @property
    def label(self) -> str:
        """What people call it."""
        return self.name or self.id

    @property
    def id(self) -> str:
        """What people type for it."""
        return self.session or self.tape

    def with_name(self, names: NameBook) -> SessionRow:
        """Return the row with the name of its chat."""
        return replace(self, name=names.chats.get(self.session, ""))

    @property
    def has_turns(self) -> bool:
        """True unless the tape is one of the system, whose facts name the turns of other tapes."""
        return not self.tape.startswith(SYSTEM_TAPE_PREFIX)


class SessionDirectory:
    """Knows the sessions of tapes, and when each was last written; a tape is read again only if it has grown."""

    def __init__(self) -> None:
        self._sessions: dict[str, str] = {}
        self._dates: dict[str, tuple[int, str]] = {}

    async def list_rows(self, reader: TapeBoundary, kind: str) -> list[SessionRow]:
        """List the tapes of a kind: `sessions`, `archives` or `system`."""
        tapes = [tape for tape in await reader.tapes() if tape.head and _kind_of(tape) == kind]
        await self._read_dates(reader, tapes)
        await self._read_sessions(reader, [tape.name for tape in tapes])
        running = {fork.tape for fork in await reader.forked_sessions()}
        rows = [self._row(tape, running) for tape in tapes]
        return sorted(rows, key=lambda row: (row.date, row.tape), reverse=True)

    async def find(self, reader: TapeBoundary, tape: str) -> SessionRow:
        """Describe one tape; one without entries has none here either."""
        head = await reader.head(tape)
        summary = TapeSummary(tape, head, "", tape.partition("@")[0] if "@" in tape else None)
        await self._read_dates(reader, [summary])
        await self._read_sessions(reader, [tape])
        running = {fork.tape for fork in await reader.forked_sessions()}
        return self._row(summary, running)

    def _row(self, tape: TapeSummary, running: Collection[str]) -> SessionRow:
        date = self._dates.get(tape.name, (0, ""))[1]
        session = self._sessions.get(tape.name, "")
        return SessionRow(tape.name, session, tape.head, date, tape.archived_from is not None, tape.name in running)

    async def _read_dates(self, reader: TapeBoundary, tapes: Collection[TapeSummary]) -> None:
        stale = [tape for tape in tapes if self._dates.get(tape.name, (0, ""))[0] != tape.head and tape.head]
        if len(self._dates) + len(stale) > MAX_REMEMBERED:
            self._dates.clear()
        for start in range(0, len(stale), QUERIES_AT_ONCE):
            part = stale[start : start + QUERIES_AT_ONCE]
            queries = [TapeQuery(tape.name, IdRanges(((tape.head, tape.head),))) for tape in part]
            for tape, found in zip(part, await fetch_readable(reader, queries), strict=True):
                self._dates[tape.name] = tape.head, found[0].date if found else ""

    async def _read_sessions(self, reader: TapeBoundary, names: Collection[str]) -> None:
        unknown = [name for name in names if name not in self._sessions and not name.startswith(SYSTEM_TAPE_PREFIX)]
        if not unknown:
            return
        if len(self._sessions) + len(unknown) > MAX_REMEMBERED:
            self._sessions.clear()
        imports = TapeQuery(IMPORTS_TAPE, kinds=("event",), names=(IMPORT_EVENT,), newest=True)
        facts = (await fetch_readable(reader, [imports]))[0] if reader.may_read(IMPORTS_TAPE) else ()
        imported = {text_field(fact.data, "tape"): fact for fact in reversed(facts) if not fact.erased}
        for start in range(0, len(unknown), QUERIES_AT_ONCE):
            part = unknown[start : start + QUERIES_AT_ONCE]
            queries = [TapeQuery(name, kinds=("anchor",), names=("session/start",), limit=1) for name in part]
            for name, found in zip(part, await fetch_readable(reader, queries), strict=True):
                session = _session_of(imported.get(name), found)
                if session:  # a tape may get its first anchor later
                    self._sessions[name] = session


def _session_of(fact: TapeEntry | None, starts: Collection[TapeEntry]) -> str:
    session = "" if fact is None else text_field(fact.data, "session")
    return session or next((text_field(start.meta, "session") for start in starts), "")


def _kind_of(tape: TapeSummary) -> str:
    if tape.name.startswith(SYSTEM_TAPE_PREFIX):
        return "system"
    return "archives" if tape.archived_from is not None else "sessions"
