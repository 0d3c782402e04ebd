"""What models and people are told of the tape, and the handoff they ask for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from bubbot.errors import ToolRetry
from bubbot.features.conversation.tape import tape_tools
from bubbot.ports.channel import Role
from bubbot.ports.turn import Turn
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import event, message
from bubbot.tape.service import TapeService
from bubbot.tool import Toolbox

BOX = Toolbox(tape_tools())


async def use(turn: Turn, tool: str, /, **arguments: object) -> str:
    one = BOX.find(tool)
    answer = await one.run(turn, one.parse(json.dumps(arguments)))
    assert isinstance(answer, str)
    return answer


def test_the_tools_and_their_names() -> None:
    assert [(one.name, one.commands) for one in tape_tools()] == [
        ("tape.info", ()),
        ("tape.anchors", ("anchors",)),
        ("tape.graph", ("graph",)),
        ("tape.handoff", ("handoff",)),
        ("result.read", ()),
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


async def test_anchors(chat: TapeService, begin: Callable[..., Any]) -> None:
    turn = await begin()
    assert await use(turn, "anchors") == "There are no anchors on this tape yet."
    topic = anchor("topic/b", {"parents": [1]}, window=False)
    await turn.tape.append([anchor("phase/a"), topic, anchor("memory/open"), anchor("memory/seal")])
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
    await chat.append([message("user", "a"), message("user", "b"), anchor("one"), anchor("two", window=False)])
    turn = await begin(runs_command=True, role=Role.ADMIN)
    await use(turn, "handoff", name="phase/b", source_ids="1, 2", next_steps="go\nrest", phase="b", parents="3, 4")
    state = {"phase": "b", "next_steps": ["go", "rest"], "source_ids": [1, 2], "parents": [3, 4], "owner": "human"}
    assert turn.pending_handoffs == [("phase/b", state)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": " "}, "name is empty"),
        ({"summary": "x"}, "name is missing"),
        ({"name": "memory/seal"}, "memory zone"),
        ({"name": "phase/b", "source_ids": [3]}, "names entry 3; this tape has entries 1 to 1"),
        ({"name": "phase/b", "source_ids": "one"}, "source_ids"),
        ({"name": "phase/b", "parents": [1]}, "parents names entry 1, which is not an anchor of this tape"),
        ({"name": "phase/b", "parents": [2]}, "parents names entry 2, which is not an anchor"),
        ({"name": "phase/b", "parents": [2**70]}, "is not an anchor"),
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
