"""What models and people are told of the tape, and the handoff they ask for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bubbot.errors import ToolRetry
from bubbot.features.search.tools import tape_tools
from bubbot.ports.channel import Role, Sender
from bubbot.ports.tool import Toolbox
from bubbot.ports.turn import Turn
from bubbot.tape.anchor import MEMORY_OPEN, MEMORY_SEAL, anchor
from bubbot.tape.entry import event, message, tool_call, tool_result
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from tests.doubles import CountingIds, SteppingClock

BOX = Toolbox(tape_tools())


@pytest.fixture
def chat(store: TapeStore, ids: CountingIds) -> TapeService:
    return TapeService(store, "chat", now=SteppingClock(), new_id=ids)


@pytest.fixture
def begin(chat: TapeService, clock: SteppingClock) -> Callable[..., Any]:
    async def turn(**changes: Any) -> Turn:
        fork = await chat.open_fork()
        berlin = ZoneInfo("Europe/Berlin")
        made = Turn("t1", "stdin:default", fork, Sender("1"), Role.MEMBER, now=clock, zone=berlin)
        return replace(made, **changes)

    return turn


async def use(turn: Turn, tool: str, /, **arguments: object) -> str:
    one = BOX.find(tool)
    answer = await one.run(turn, one.parse(json.dumps(arguments)))
    assert isinstance(answer, str)
    return answer


def test_the_tools_and_their_names() -> None:
    assert [(one.name, one.commands) for one in tape_tools()] == [
        ("tape.info", ()),
        ("tape.search", ("search",)),
        ("tape.anchors", ("anchors",)),
        ("tape.handoff", ("handoff",)),
    ]
    schema = json.dumps([dict(one.spec().as_json()) for one in tape_tools()])
    assert "$ref" not in schema, "some providers refuse references"


async def test_info(chat: TapeService, begin: Callable[..., Any]) -> None:
    turn = await begin()
    assert await use(turn, "tape.info") == "The tape is empty."
    await turn.tape.append([message("user", "hello")])
    assert await use(turn, "tape.info") == "entries: 1, 2026-11-21 21:21 to 2026-11-21 21:21\nlast anchor: none"
    usage = {"input_tokens": 1200, "output_tokens": 30, "cached_tokens": 1000, "cost": 0.0012}
    await turn.tape.append([anchor("phase/a"), event("loop.step", {"usage": usage})])
    assert await use(turn, "tape.info") == (
        "entries: 3, 2026-11-21 21:21 to 2026-11-21 21:21\n"
        "last anchor: phase/a (#2), 1 entries since\n"
        "last model call: 1200 tokens in (1000 cached), 30 out, $0.0012"
    )


async def test_search_cites_and_marks(chat: TapeService, begin: Callable[..., Any]) -> None:
    await chat.append([message("user", "Volcano\ntour"), message("user", "volcanoe trip")])
    await chat.correct(1, "tour cancelled")
    turn = await begin()
    assert await use(turn, "tape.search", query="volcano") == (
        'Found 2 for "volcano" on the whole tape, newest first:\n'
        "#2 2026-11-21 21:21 message: volcanoe trip\n"
        "#1 2026-11-21 21:21 message [superseded by #3]: Volcano tour"
    )
    assert "#1 2026-11-21 21:21 message (typo) [superseded by #3]: Volcano tour" in await use(
        turn, "tape_search", query="volcnao"
    )
    assert (await use(turn, "tape.search", query="volcano", limit=1)).count("\n") == 1


async def test_search_says_what_it_left_out(chat: TapeService, begin: Callable[..., Any]) -> None:
    zones = [
        entry
        for text in ("tea", "coffee")
        for entry in (anchor(MEMORY_OPEN), event("memory.long_term", {"content": text}), anchor(MEMORY_SEAL))
    ]
    await chat.append([*zones, message("user", "tea")])
    await chat.hide(7)
    turn = await begin()
    search = {"id": "c", "function": {"name": "tape_search", "arguments": '{"query":"tea"}'}}
    await turn.tape.append([tool_call([search]), tool_result([{"tool_call_id": "c", "content": "tea"}])])
    assert await use(turn, "tape.search", query="tea") == (
        'Nothing found for "tea" on the whole tape.\n'
        "Left out: 1 own output of earlier searches, 1 hidden, 1 in older versions of the memory."
    )


async def test_search_names_its_bounds(chat: TapeService, begin: Callable[..., Any]) -> None:
    turn = await begin()
    assert await use(turn, "tape.search", query="x", kinds=["message"], start="2026-11-21", end="2026-11-22") == (
        'Nothing found for "x" on the whole tape from 2026-11-21 until 2026-11-22 (only message).'
    )


async def test_search_takes_one_sided_dates_in_the_chats_zone(chat: TapeService, begin: Callable[..., Any]) -> None:
    at = ["2026-11-20T22:59:00+00:00", "2026-11-20T23:01:00+00:00"]
    await chat.append([replace(message("user", "tea"), date=date) for date in at])
    turn = await begin()
    assert "#1" not in await use(turn, "tape.search", query="tea", start="2026-11-21")
    assert "#2" not in await use(turn, "tape.search", query="tea", end="2026-11-20")
    assert "#2" in await use(turn, "tape.search", query="tea", start="2026-11-21")
    assert "Found 2" in await use(turn, "tape.search", query="tea", start="0001-01-01", end="9999-12-31")


async def test_search_takes_kinds_as_text(chat: TapeService, begin: Callable[..., Any]) -> None:
    await chat.append([message("user", "tea"), event("note", {"text": "tea"}), anchor("tea")])
    turn = await begin()
    assert "Found 2" in await use(turn, "tape.search", query="tea", kinds="message, anchor")
    assert "Found 3" in await use(turn, "tape.search", query="tea", kinds="")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"query": "  "}, "query is empty"),
        ({}, "query is missing"),
        ({"query": "x", "start": "yesterday"}, "2026-11-21"),
        ({"query": "x", "start": "2026-11-22", "end": "2026-11-21"}, "is after end"),
        ({"query": "x", "kinds": "messages"}, "'message'"),
        ({"query": "x", "limit": 0}, "limit"),
    ],
)
async def test_search_says_what_to_mend(begin: Callable[..., Any], arguments: dict[str, object], says: str) -> None:
    with pytest.raises(ToolRetry, match=says):
        await use(await begin(), "tape.search", **arguments)


async def test_the_question_itself_is_no_answer(chat: TapeService, begin: Callable[..., Any]) -> None:
    turn = await begin()
    await turn.tape.append([message("user", "what did I say about bananas?")])
    turn.message_ids.append(1)
    assert "Nothing found" in await use(turn, "tape.search", query="bananas")


async def test_anchors(chat: TapeService, begin: Callable[..., Any]) -> None:
    turn = await begin()
    assert await use(turn, "anchors") == "There are no anchors on this tape yet."
    topic = anchor("topic/b", {"parents": [1]}, window=False)
    await turn.tape.append([anchor("phase/a"), topic, anchor(MEMORY_OPEN), anchor(MEMORY_SEAL)])
    assert await use(turn, "tape.anchors") == (
        '#2 2026-11-21 21:21 topic/b: {"parents":[1]} (no new window) [parents: #1]\n#1 2026-11-21 21:21 phase/a: {}'
    )
    assert (await use(turn, "anchors", zones="true")).count("memory/") == 2


@pytest.mark.law("T7")
async def test_a_handoff_waits_for_the_results_of_the_step(chat: TapeService, begin: Callable[..., Any]) -> None:
    await chat.append([message("user", "a"), message("user", "b")])
    turn = await begin()
    answer = await use(turn, "handoff", name=" phase/b ", summary="so far", next_steps=["go"], source_ids=[1, 2])
    assert answer == "A new window opens at phase/b."
    state = {"summary": "so far", "next_steps": ["go"], "source_ids": [1, 2], "owner": "agent"}
    assert turn.pending_handoffs == [("phase/b", state)]
    assert turn.tape.delta == ()
    for name, given in turn.pending_handoffs:
        await turn.tape.handoff(name, given)
    assert [entry.name for entry in turn.tape.delta] == ["phase/b", "handoff"]


@pytest.mark.parametrize(
    ("origin", "owner"), [("human", "agent"), ("agent:scout", "scout"), ("schedule", "agent"), ("system", "agent")]
)
async def test_a_handoff_says_who_owns_the_next_phase(begin: Callable[..., Any], origin: str, owner: str) -> None:
    turn = await begin(origin=origin)
    await use(turn, "tape.handoff", name="phase/b")
    assert turn.pending_handoffs == [("phase/b", {"owner": owner})]


async def test_a_handoff_typed_as_text(chat: TapeService, begin: Callable[..., Any]) -> None:
    await chat.append([message("user", "a"), message("user", "b")])
    turn = await begin(runs_command=True)
    await use(turn, "handoff", name="phase/b", source_ids="1, 2", next_steps="go\nrest", phase="b")
    state = {"phase": "b", "next_steps": ["go", "rest"], "source_ids": [1, 2], "owner": "human"}
    assert turn.pending_handoffs == [("phase/b", state)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": " "}, "name is empty"),
        ({"summary": "x"}, "name is missing"),
        ({"name": "memory/seal"}, "memory zone"),
        ({"name": "phase/b", "source_ids": [3]}, "names entry 3; this tape has entries 1 to 1"),
        ({"name": "phase/b", "source_ids": "one"}, "source_ids"),
        ({"name": "phase/b", "sumary": "x"}, "there is no sumary"),
    ],
)
async def test_a_handoff_says_what_to_mend(
    chat: TapeService, begin: Callable[..., Any], arguments: dict[str, object], says: str
) -> None:
    await chat.append([message("user", "a")])
    turn = await begin()
    with pytest.raises(ToolRetry, match=says):
        await use(turn, "tape.handoff", **arguments)
    assert turn.pending_handoffs == []
