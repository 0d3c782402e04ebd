"""A turn on a tape of its own, for tests of tools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bubbot.ports.channel import Role, Sender
from bubbot.ports.turn import Turn
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from tests.doubles import NO_RUNNER, CountingIds, SteppingClock


@pytest.fixture
def chat(store: TapeStore, ids: CountingIds) -> TapeService:
    return TapeService(store, "chat", now=SteppingClock(), new_id=ids)


@pytest.fixture
def begin(chat: TapeService, clock: SteppingClock) -> Callable[..., Any]:
    async def turn(**changes: Any) -> Turn:
        fork = await chat.open_fork()
        berlin = ZoneInfo("Europe/Berlin")
        made = Turn("t1", "stdin:default", fork, Sender("1"), Role.MEMBER, now=clock, zone=berlin, runner=NO_RUNNER)
        return replace(made, **changes)

    return turn
