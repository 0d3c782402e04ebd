"""A tape in figures, as a model is told them in a turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bubbot.features.conversation.tape import tape_tools
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, event, message
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from bubbot.tool import Toolbox


@pytest.fixture
def told(begin: Callable[..., Any]) -> Callable[..., Any]:
    async def told(*entries: TapeEntry) -> list[str]:
        """What a model is told in a turn that has appended these."""
        turn, info = await begin(), Toolbox(tape_tools()).find("tape.info")
        await turn.tape.append(list(entries))
        return str(await info.run(turn, info.parse("{}"))).splitlines()

    return told


def step(**usage: object) -> TapeEntry:
    return event("loop.step", {"status": "ok", "usage": usage})


async def test_what_a_tape_is_told_by(chat: TapeService, told: Callable[..., Any]) -> None:
    await chat.append([message("user", "a"), anchor("phase/a"), step(input_tokens=1), message("user", "b")])
    await chat.append([step(input_tokens=12, output_tokens=3, cached_tokens=8, cost=0.5), message("user", "c")])
    await chat.append([anchor(name, window=False) for name in ("memory/open", "memory/seal")])
    assert await told() == [
        "entries: 8, 2026-11-21 21:21 to 2026-11-21 21:21",
        "last anchor: phase/a (#2), 6 entries since",
        "last model call: 12 tokens in (8 cached), 3 out, $0.5",
    ]


@pytest.mark.parametrize("data", [{}, {"usage": None}, "text"])
async def test_a_step_that_reports_nothing_has_no_usage(told: Callable[..., Any], data: object) -> None:
    lines = await told(step(input_tokens=1), TapeEntry("event", {"name": "loop.step", "data": data}))
    assert not [line for line in lines if line.startswith("last model call")]


async def test_odd_counts_are_nothing(told: Callable[..., Any]) -> None:
    assert (await told(step(input_tokens="12", cost=1)))[-1] == "last model call: 0 tokens in, 0 out, $1"


async def test_a_turn_counts_its_own_entries(chat: TapeService, told: Callable[..., Any]) -> None:
    await chat.append([anchor("phase/a"), message("user", "a")])
    lines = await told(message("user", "b"), step(input_tokens=7))
    assert lines[0].startswith("entries: 4,")
    assert lines[1:] == ["last anchor: phase/a (#1), 3 entries since", "last model call: 7 tokens in, 0 out"]


class CountingStore(InMemoryStore):
    """Counts the entries that queries find."""

    found = 0

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        answers = await super().fetch(queries)
        self.found += sum(map(len, answers))
        return answers


@pytest.mark.parametrize("store", [CountingStore()], ids=["counting"])
async def test_the_cost_does_not_grow_with_the_tape(
    store: CountingStore, chat: TapeService, begin: Callable[..., Any]
) -> None:
    await chat.append([anchor("phase/a"), *[message("user", "a"), step(input_tokens=1)] * 500])
    turn, info = await begin(), Toolbox(tape_tools()).find("tape.info")
    store.found = 0
    assert str(await info.run(turn, info.parse("{}"))).startswith("entries: 1001,")
    assert store.found == 3


@pytest.mark.law("T8")
async def test_looking_writes_nothing(chat: TapeService, store: TapeStore, told: Callable[..., Any]) -> None:
    await chat.append([anchor("phase/a"), step(input_tokens=1)])
    before = await store.tapes()
    await told()
    assert [(one.name, one.head) for one in await store.tapes()] == [(one.name, one.head) for one in before]
