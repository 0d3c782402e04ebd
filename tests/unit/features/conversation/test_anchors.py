"""The list of anchors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bubbot.shell_command import CommandContext
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, message
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from tests.callers import run_shell
from tests.doubles import CountingIds, SteppingClock


@pytest.fixture
def anchors(store: TapeStore, chat: TapeService, ids: CountingIds) -> Callable[..., Any]:
    async def anchors(**options: Any) -> Any:
        """The anchors of the chat, as a shell gives them to programs."""
        context = CommandContext(store, "w", SteppingClock(), ids)
        told: Any = await run_shell("tape anchors", context, tape=chat.name, **options)
        return told.data["anchors"]

    return anchors


def zone(version: int) -> list[TapeEntry]:
    return [anchor(name, {"version": version}, window=False) for name in ("memory/open", "memory/seal")]


async def test_anchors_are_listed_newest_first_without_zone_markers(
    chat: TapeService, anchors: Callable[..., Any]
) -> None:
    await chat.append([anchor("phase/a", {"summary": "été"}), message("user", "x"), *zone(1)])
    await chat.append([anchor("topic/b", {"parents": [1]}, window=False), *zone(2)])
    topic, phase = await anchors()
    assert topic == {
        "id": 5,
        "name": "topic/b",
        "date": "2026-11-21T20:21:04.000000+00:00",
        "state": '{"parents":[1]}',
        "opens_window": False,
        "parents": (1,),
    }
    assert (phase["id"], phase["state"], phase["opens_window"]) == (1, '{"summary":"été"}', True)


async def test_zone_markers_are_listed_when_asked_for(chat: TapeService, anchors: Callable[..., Any]) -> None:
    await chat.append([anchor("phase/a"), *zone(1)])
    assert [(line["name"], line["opens_window"]) for line in await anchors(zones=True)] == [
        ("memory/seal", False),
        ("memory/open", False),
        ("phase/a", True),
    ]


async def test_many_saved_memories_do_not_push_the_others_off_the_list(
    chat: TapeService, anchors: Callable[..., Any]
) -> None:
    await chat.append([anchor("phase/a"), anchor("phase/b"), *[entry for n in range(60) for entry in zone(n)]])
    assert [line["name"] for line in await anchors()] == ["phase/b", "phase/a"]
    assert len(await anchors(zones=True)) == 50


async def test_a_long_state_is_cut_and_an_odd_one_does_no_harm(chat: TapeService, anchors: Callable[..., Any]) -> None:
    odd = [TapeEntry("anchor", {"name": "x", "state": "text"}), TapeEntry("anchor", {"state": {"parents": ["a", 1]}})]
    await chat.append([anchor("phase/a", {"summary": "x" * 500}), *odd])
    last, middle, first = await anchors()
    assert (len(first["state"]), first["state"][-1]) == (200, "…")
    assert (middle["state"], last["name"], last["parents"]) == ("{}", "", (1,))


@pytest.mark.law("T8")
async def test_listing_writes_nothing(chat: TapeService, anchors: Callable[..., Any], store: TapeStore) -> None:
    await chat.append([anchor("phase/a")])
    before = await store.tapes()
    await anchors()
    assert await store.tapes() == before
