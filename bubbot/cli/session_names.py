"""Which tape a word on the command line means, and which session a tape belongs to."""

from __future__ import annotations

from bubbot.errors import ConfigError, EntryNotFound
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService, session_tape
from bubbot.wiring.app import new_id, now

IMPORTS = "bubbot/imports"
"""The system's tape that says which tape was imported, and for which session."""
IMPORTED = "tape/imported"


async def tape_name(store: SqliteStore, workspace: str, wanted: str) -> str:
    """The tape that a name or session id means. Raises `EntryNotFound`."""
    names = {one.name for one in await store.tapes()}
    for name in (wanted, session_tape(workspace, wanted), session_tape(workspace, f"stdin:{wanted}")):
        if name in names:
            return name
    raise EntryNotFound(f"there is no tape {wanted}; bubbot tape list shows those there are")


async def session_of(store: SqliteStore, tape: str) -> str:
    """The session id: that of its import, or the one which the bootstrap anchor of the tape carries."""
    queries = (
        TapeQuery(IMPORTS, kinds=("event",), names=(IMPORTED,), newest=True),
        TapeQuery(tape, kinds=("anchor",), names=("session/start",), limit=1),
    )
    imports, starts = await store.fetch(queries)
    known = {fact.payload["data"]["tape"]: fact.payload["data"]["session"] for fact in reversed(imports)}
    session = known.get(tape) or (starts[0].meta.get("session") if starts else None)
    return session if isinstance(session, str) else ""


def session_named(text: str) -> str:
    """The session id that a name means: `work` is `stdin:work`, and what has a colon stands for itself."""
    name = text.strip()
    if not name or not all(name.split(":")) or not name.isprintable():
        raise ConfigError(f"{text!r} is no session; give a name such as work, or an id such as telegram:42")
    return name if ":" in name else f"stdin:{name}"


def not_of_the_system(tape: str, what: str) -> None:
    """Raises `ConfigError` for a tape that belongs to the system."""
    if tape.startswith("bubbot/"):
        raise ConfigError(f"{tape} belongs to the system and is never {what}; bubbot tape show prints it")


async def no_open_turn(store: SqliteStore, tape: str, session: str) -> None:
    """Raises `ConfigError` where a process died in a turn of this tape: its merge counts on the tape as it was."""
    if any(fork.tape == tape for fork in await store.forks()):
        raise ConfigError(f"{session} has an unfinished turn: let bubbot chat --session {session} finish it first")


def service(store: SqliteStore, name: str, session: str = "") -> TapeService:
    """The tape, for commands."""
    return TapeService(store, name, now=now, new_id=new_id, session=session)
