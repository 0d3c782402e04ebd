"""The rule behind `Kernel.read_session`: which chat may read which."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from bubbot.app.tapes import new_id, tape_service
from bubbot.errors import AccessError, ConfigError, EntryNotFound
from bubbot.feature import OpenBlank, OpenCopy, ReadSession
from bubbot.ports.channel import TERMINAL_CHANNEL
from bubbot.ports.session_names import find_tape, keep_session, parse_session, require_user_tape
from bubbot.ports.session_names import read_session as read_session_of_tape
from bubbot.ports.turn import Turn
from bubbot.runtime.context.copies import FindHeads
from bubbot.tape.handle import TapeHandle
from bubbot.tape.references import ReferenceRegistry
from bubbot.tape.service import TapeService, session_tape
from bubbot.tape.store import TapeStore


def session_reader(
    open_tape: Callable[[str], TapeService],
    may_read: Callable[[str, str], bool],
    find_first: Callable[[str], Awaitable[str]] = keep_session,
) -> ReadSession:
    """Build a reader of other sessions.

    Args:
        open_tape: opens the tape of a session by its id; it cannot open system tapes, since no session has their names.
        may_read: returns true if the first session was granted to read the second one; called at each read.
        find_first: see `Kernel.first_session`.
    """

    async def read_session(turn: Turn, source: str) -> TapeHandle:
        session = await find_first(parse_session(source))
        if not (_is_thread_of(turn, session) or may_read(turn.session, session)):
            raise AccessError(f"{turn.session} may not read {session}")
        tape = open_tape(session)
        if not await tape.head():
            raise EntryNotFound(f"there is no session {session}")
        return tape

    return read_session


def head_finder(read_session: ReadSession, find_session: Callable[[str], Awaitable[str]] = keep_session) -> FindHeads:
    """Build a function that returns how far other tapes may be read, each time it is called. See `FindHeads`.

    A grant is for the chat of the turn: none is read if the answer goes to another one.

    Args:
        find_session: returns the session of a tape, for those whose session is not known.
    """

    async def find_heads(turn: Turn, sessions: Mapping[str, str]) -> Mapping[str, int]:
        heads = dict.fromkeys(sessions, 0)
        for name, session in sessions.items() if not turn.replies_elsewhere else ():
            with suppress(AccessError, ConfigError, EntryNotFound):
                tape = await read_session(turn, session or await find_session(name))
                heads[name] = await tape.head() if tape.name == name else 0
        return heads

    return find_heads


def _is_thread_of(turn: Turn, session: str) -> bool:
    """Return true if the turn belongs to a thread in this chat: its readers can also read the chat."""
    places = [accepted.inbound for accepted in turn.inbounds]
    return bool(places) and all(place.thread and session == f"{place.channel}:{place.chat}" for place in places)


def copy_opener(store: TapeStore, workspace: str, references: ReferenceRegistry) -> OpenCopy:
    """Build a function that opens tapes for discarded work: its forks are never stored."""

    async def open_copy(reference: str) -> TapeService:
        # Imported here: few bots copy anything.
        from bubbot.tape.discard import DiscardingStore

        name = await find_tape(store, workspace, reference)
        require_user_tape(name, "copied")
        session = await read_session_of_tape(store, name)
        return tape_service(DiscardingStore(store), name, session, references=references)

    return open_copy


def blank_opener(store: TapeStore, workspace: str, references: ReferenceRegistry) -> OpenBlank:
    """Build a function that opens empty tapes for discarded talks: nothing of them is ever stored."""

    def open_blank() -> TapeService:
        # Imported here: few bots need one.
        from bubbot.tape.discard import DiscardingStore

        session = f"{TERMINAL_CHANNEL}:{new_id()}"
        return tape_service(DiscardingStore(store), session_tape(workspace, session), session, references=references)

    return open_blank
