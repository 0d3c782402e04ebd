"""A `Kernel` for features that need little of the bot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo

from bubbot.errors import AccessError, EntryNotFound
from bubbot.feature import Kernel
from bubbot.ports.channel import Outbound, Role
from bubbot.ports.session_names import keep_session
from bubbot.ports.turn import Turn
from bubbot.tape.entry import TapeEntry
from bubbot.tape.handle import TapeHandle
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.service import TapeService
from bubbot.texts import Texts
from tests.doubles import SteppingClock


async def read_no_session(turn: Turn, source: str) -> TapeHandle:
    raise AccessError(f"{turn.session} may not read {source}")


async def open_no_copy(reference: str) -> TapeService:
    raise EntryNotFound(f"{reference} cannot be opened here")


def stage_nothing(_turn: Turn, _key: str, _outbound: Outbound) -> bool:
    return False


def draft_nothing(_session: str, _key: str, _outbound: Outbound) -> Mapping[str, Sequence[TapeEntry]]:
    return {}


async def wait_for_nothing(_turn: Turn) -> None: ...


async def find_nothing_sent(_session: str, _channel: str, _key: str) -> str | None:
    return None


async def find_english(_channel: str, _person: str, _chat: str) -> Texts:
    return Texts()


def make_kernel(**fields: Any) -> Kernel:
    """A kernel of a bot without channels, with these fields."""
    unused = cast("Any", None)
    return Kernel(
        **{
            "home": Path("unused"),
            "now": SteppingClock(),
            "new_id": lambda: "unused",
            "zone": ZoneInfo("UTC"),
            "texts": Texts(),
            "projections": ProjectionRunner(),
            "open_tape": unused,
            "role_of": lambda _: Role.OWNER,
            "accept": unused,
            "send": unused,
            "notify": unused,
            "read_session": read_no_session,
            "draft": draft_nothing,
            "stage": stage_nothing,
            "wait_until_sent": wait_for_nothing,
            "find_sent": find_nothing_sent,
            "open_copy": open_no_copy,
            "ordered_entries": None,
            "current_session": lambda session: session,
            "first_session": keep_session,
            "find_texts": find_english,
            **fields,
        }
    )
