"""The tape for a word on the command line, and the session of a tape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Protocol

from msgspec import Struct

from bubbot.errors import ConfigError, EntryNotFound
from bubbot.tape.entry import TapeEntry
from bubbot.tape.fact import Fact
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import session_tape
from bubbot.tape.store import TapeStore

MAX_SESSION_CHARS = 200
"""The most characters in a session name that a person types."""
IMPORTS_TAPE = "bubbot/imports"
"""The system's tape that records the imported tapes and their sessions."""
IMPORT_EVENT = "tape/imported"


class SessionParts(Struct, frozen=True):
    """What the id of a session is made of; without a thread it is empty."""

    channel: str
    chat: str
    thread: str = ""


def split_session(session: str) -> SessionParts:
    """Return the channel, the chat and the thread of a session."""
    channel, _, place = session.partition(":")
    chat, _, thread = place.partition(":")
    return SessionParts(channel, chat, thread)


class ChatMoved(Fact):
    """The platform gave a chat another id: a fact on the tape of an inbox."""

    EVENTS = ("inbox/moved",)
    chat: str
    to: str
    time: str = ""


async def find_tape(store: TapeStore, workspace: str, reference: str) -> str:
    """Find the tape for a name or session id. Raise `EntryNotFound`."""
    names = {tape.name for tape in await store.tapes()}
    for name in (reference, session_tape(workspace, reference), session_tape(workspace, f"stdin:{reference}")):
        if name in names:
            return name
    if (name := session_tape(workspace, await first_session(store, reference))) in names:
        return name
    raise EntryNotFound(f"there is no tape {reference}; bubbot tape list shows all tapes")


async def first_session(store: TapeStore, session: str) -> str:
    """Return the stored session id, with the first id of its chat: people also use the current id of a moved chat."""
    channel, _, rest = session.partition(":")
    chat, colon, thread = rest.partition(":")
    if not chat:
        return session
    moves = TapeQuery(f"bubbot/inbox/{channel}", kinds=("event",), names=ChatMoved.EVENTS)
    first: dict[str, str] = {}
    for fact in (await store.fetch([moves]))[0]:
        if move := ChatMoved.try_of(fact):
            first[move.to] = first.get(move.chat, move.chat)
    return f"{channel}:{first.get(chat, chat)}{colon}{thread}"


def add_move(moves: Mapping[str, str], fact: TapeEntry) -> Mapping[str, str]:
    """Add the fact of a move to the current ids of a channel's chats, by earlier ids."""
    move = ChatMoved.try_of(fact)
    if move is None:
        return moves
    return {chat: move.to if to == move.chat else to for chat, to in moves.items()} | {move.chat: move.to}


async def read_current_sessions(store: TapeStore) -> Callable[[str], str]:
    """Return a function that maps a session to the current id of its chat; see `Kernel.current_session`."""
    prefix = "bubbot/inbox/"
    channels = [tape.name.removeprefix(prefix) for tape in await store.tapes() if tape.name.startswith(prefix)]
    answers = await store.fetch(
        [TapeQuery(f"{prefix}{channel}", kinds=("event",), names=ChatMoved.EVENTS) for channel in channels]
    )
    nowhere: Mapping[str, str] = {}
    moves = {channel: reduce(add_move, facts, nowhere) for channel, facts in zip(channels, answers, strict=True)}

    def current_session(session: str) -> str:
        channel, colon, rest = session.partition(":")
        chat, separator, thread = rest.partition(":")
        return f"{channel}{colon}{moves.get(channel, {}).get(chat, chat)}{separator}{thread}"

    return current_session


async def keep_session(session: str) -> str:
    """Return the session unchanged, if no chat has moved."""
    return session


class FetchesEntries(Protocol):
    """A store, or a tape that reads others, too."""

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.fetch`."""
        ...


async def read_session(store: FetchesEntries, tape: str) -> str:
    """Read the session id of a tape: from its import, or from its bootstrap anchor; empty if it has none."""
    queries = (
        TapeQuery(IMPORTS_TAPE, kinds=("event",), names=(IMPORT_EVENT,), newest=True),
        TapeQuery(tape, kinds=("anchor",), names=("session/start",), limit=1),
    )
    imports, starts = await store.fetch(queries)
    sessions = {fact.data["tape"]: fact.data["session"] for fact in reversed(imports)}
    session = sessions.get(tape) or (starts[0].meta.get("session") if starts else None)
    return session if isinstance(session, str) else ""


def parse_session(text: str) -> str:
    """Return the session id for a name: `work` is `stdin:work`; a name with a colon is an id already."""
    name = text.strip()
    if not name or not all(name.split(":")) or not name.isprintable():
        raise ConfigError(f"{text!r} is not a session: use a name such as work, or an id such as telegram:42")
    check_session_length(name)
    return name if ":" in name else f"stdin:{name}"


def check_session_length(name: str) -> None:
    """Raise `ConfigError` for a session name with more than `MAX_SESSION_CHARS` characters."""
    if len(name) > MAX_SESSION_CHARS:
        raise ConfigError(
            f"the session {name[:20]}… has a name of {len(name)} characters: use {MAX_SESSION_CHARS} at most"
        )


def require_user_tape(tape: str, usage: str) -> None:
    """Raise `ConfigError` for a tape of the system; the error says that it is never `usage`."""
    if tape.startswith("bubbot/"):
        raise ConfigError(f"{tape} belongs to the system and is never {usage}; bubbot tape show prints it")


async def require_no_open_turn(store: TapeStore, tape: str, session: str) -> None:
    """Raise `ConfigError` if a process died during a turn of this tape.

    The merge of that turn expects an unchanged tape.
    """
    if any(fork.tape == tape for fork in await store.forks()):
        raise ConfigError(f"{session} has an unfinished turn: let bubbot chat --session {session} finish it first")
