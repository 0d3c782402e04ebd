"""A tape in figures."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bubbot.features.conversation.info import InfoView, TapeInfo
from bubbot.ports.model import Usage
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, event, message
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from tests.doubles import CountingIds, SteppingClock


@pytest.fixture
def chat(store: TapeStore, ids: CountingIds) -> TapeService:
    return TapeService(store, "chat", now=SteppingClock(), new_id=ids)


def step(**usage: object) -> TapeEntry:
    return event("loop.step", {"status": "ok", "usage": usage})


async def test_an_empty_tape_has_no_figures(chat: TapeService) -> None:
    assert await chat.read(InfoView()) == TapeInfo()


async def test_what_a_tape_is_told_by(chat: TapeService) -> None:
    await chat.append([message("user", "a"), anchor("phase/a"), step(input_tokens=1), message("user", "b")])
    await chat.append([step(input_tokens=12, output_tokens=3, cached_tokens=8, cost=0.5), message("user", "c")])
    await chat.append([anchor(name, window=False) for name in ("memory/open", "memory/seal")])
    assert await chat.read(InfoView()) == TapeInfo(
        entries=8,
        last_anchor=("phase/a", 2),
        entries_since_anchor=6,
        last_usage=Usage(12, 3, 8, 0.5),
        first_date="2026-11-21T20:21:00.000000+00:00",
        last_date="2026-11-21T20:21:07.000000+00:00",
    )


async def test_without_an_anchor_every_entry_counts(chat: TapeService) -> None:
    await chat.append([message("user", "a"), message("user", "b")])
    info = await chat.read(InfoView())
    assert (info.last_anchor, info.entries_since_anchor, info.last_usage) == (None, 2, None)


@pytest.mark.parametrize("data", [{}, {"usage": None}, "text"])
async def test_a_step_that_reports_nothing_has_no_usage(chat: TapeService, data: object) -> None:
    await chat.append([step(input_tokens=1), TapeEntry("event", {"name": "loop.step", "data": data})])
    assert (await chat.read(InfoView())).last_usage is None


async def test_odd_counts_are_nothing(chat: TapeService) -> None:
    await chat.append([step(input_tokens="12", cost=1)])
    assert (await chat.read(InfoView())).last_usage == Usage(0, 0, 0, 1.0)


async def test_a_fork_counts_its_own_entries(chat: TapeService) -> None:
    await chat.append([anchor("phase/a"), message("user", "a")])
    fork = await chat.open_fork()
    await fork.append([message("user", "b"), step(input_tokens=7)])
    info = await fork.read(InfoView())
    assert (info.entries, info.entries_since_anchor, info.last_usage) == (4, 3, Usage(7))


class CountingStore(InMemoryStore):
    """Counts the entries that queries find."""

    found = 0

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        answers = await super().fetch(queries)
        self.found += sum(map(len, answers))
        return answers


async def test_the_cost_does_not_grow_with_the_tape(clock: SteppingClock, ids: CountingIds) -> None:
    store = CountingStore()
    chat = TapeService(store, "chat", now=clock, new_id=ids)
    await chat.append([anchor("phase/a"), *[message("user", "a"), step(input_tokens=1)] * 500])
    info = await chat.read(InfoView())
    assert (info.entries, store.found) == (1001, 4)


@pytest.mark.law("T8")
async def test_looking_writes_nothing(chat: TapeService, store: TapeStore) -> None:
    await chat.append([anchor("phase/a"), step(input_tokens=1)])
    before = await store.tapes()
    await chat.read(InfoView())
    assert await store.tapes() == before
