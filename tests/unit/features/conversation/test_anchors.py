"""The list of anchors."""

from __future__ import annotations

import pytest

from bubbot.features.conversation.anchors import AnchorSummary, AnchorsView
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, message
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from tests.doubles import CountingIds, SteppingClock


@pytest.fixture
def chat(store: TapeStore, ids: CountingIds) -> TapeService:
    return TapeService(store, "chat", now=SteppingClock(), new_id=ids)


def zone(version: int) -> list[TapeEntry]:
    return [anchor(name, {"version": version}, window=False) for name in ("memory/open", "memory/seal")]


async def test_anchors_are_listed_newest_first_without_zone_markers(chat: TapeService) -> None:
    await chat.append([anchor("phase/a", {"summary": "été"}), message("user", "x"), *zone(1)])
    await chat.append([anchor("topic/b", {"parents": [1]}, window=False), *zone(2)])
    assert await chat.read(AnchorsView()) == (
        AnchorSummary(
            5, "topic/b", "2026-11-21T20:21:04.000000+00:00", '{"parents":[1]}', opens_window=False, parents=(1,)
        ),
        AnchorSummary(1, "phase/a", "2026-11-21T20:21:00.000000+00:00", '{"summary":"été"}', opens_window=True),
    )


async def test_zone_markers_are_listed_when_asked_for(chat: TapeService) -> None:
    await chat.append([anchor("phase/a"), *zone(1)])
    found = await chat.read(AnchorsView(zones=True))
    assert [(line.name, line.opens_window) for line in found] == [
        ("memory/seal", False),
        ("memory/open", False),
        ("phase/a", True),
    ]


async def test_many_saved_memories_do_not_push_the_others_off_the_list(chat: TapeService) -> None:
    await chat.append([anchor("phase/a"), anchor("phase/b"), *[entry for n in range(60) for entry in zone(n)]])
    assert [line.name for line in await chat.read(AnchorsView(limit=1))] == ["phase/b"]
    assert [line.name for line in await chat.read(AnchorsView(limit=5))] == ["phase/b", "phase/a"]
    assert len(await chat.read(AnchorsView(limit=5, zones=True))) == 5
    assert await chat.read(AnchorsView(limit=0)) == ()


async def test_a_long_state_is_cut_and_an_odd_one_does_no_harm(chat: TapeService) -> None:
    odd = [TapeEntry("anchor", {"name": "x", "state": "text"}), TapeEntry("anchor", {"state": {"parents": ["a", 1]}})]
    await chat.append([anchor("phase/a", {"summary": "x" * 500}), *odd])
    last, middle, first = await chat.read(AnchorsView())
    assert (len(first.state), first.state[-1]) == (200, "…")
    assert (middle.state, last.name, last.parents) == ("{}", "", (1,))


async def test_a_tape_without_anchors_lists_none(chat: TapeService) -> None:
    assert await chat.read(AnchorsView()) == ()


@pytest.mark.law("T8")
async def test_listing_writes_nothing_and_a_fork_lists_its_own(chat: TapeService, store: TapeStore) -> None:
    await chat.append([anchor("phase/a")])
    before = await store.tapes()
    fork = await chat.open_fork()
    await fork.append([anchor("phase/b")])
    assert [line.id for line in await fork.read(AnchorsView())] == [2, 1]
    assert await store.tapes() == before
