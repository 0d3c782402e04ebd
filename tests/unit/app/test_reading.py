"""Words of another chat in a whole bot: each way in which a model meets them again asks for the grant anew."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bubbot.models.scripted import ScriptedModel
from bubbot.ports.model import ModelReply, ModelRequest, ToolCall
from tests.family import MEMBER, OWNER, Family, family
from tests.summarising import SummarisingModel, is_summary
from tests.turns import calls, says

SOURCE, HOME = f"tg:{MEMBER}", f"tg:{OWNER}"
READ: Mapping[str, Any] = calls("chat_read", session=SOURCE)


def scripted(**rules: Sequence[Mapping[str, Any]]) -> ScriptedModel:
    """Make a model that answers by a word of the newest message."""
    return ScriptedModel({"rules": [{"when": when, "steps": list(steps)} for when, steps in rules.items()]})


async def tell_and_grant(bench: Family) -> None:
    """Let Ben say something in his chat that Ann's may read."""
    await bench.say("the code is swordfish", MEMBER, MEMBER)
    await bench.say(f",grant {SOURCE} to {HOME}", OWNER, OWNER)


def last_result(bench: Family) -> str:
    """Return the newest result of a tool that a model was shown."""
    return [str(each["content"]) for each in bench.model.requests[-1].messages if each["role"] == "tool"][-1]


@pytest.mark.law("P1")
@pytest.mark.parametrize(
    "again", [calls("tape_search", query="code", kinds=["tool_result"]), calls("tape_read", ids=[*range(1, 15)])]
)
async def test_what_was_read_is_found_and_opened_as_long_as_the_grant_holds(
    tmp_path: Path, again: Mapping[str, Any]
) -> None:
    model = scripted(fetch=[READ, says("done")], lookup=[again, says("done")])
    async with family(tmp_path, model, agents={}) as bench:
        await tell_and_grant(bench)
        await bench.say("fetch it", OWNER, OWNER)
        assert "swordfish" in last_result(bench)
        await bench.say("lookup", OWNER, OWNER)
        assert "swordfish" in last_result(bench)
        await bench.say(f",grant.revoke {SOURCE} to {HOME}", OWNER, OWNER)
        await bench.say("lookup", OWNER, OWNER)
        assert "swordfish" not in str(model.requests[-1].messages)


@pytest.mark.law("P1")
@pytest.mark.parametrize("strategy", ["summary", "window"])
async def test_a_summary_in_any_chat_cites_what_was_read_by_its_chat(tmp_path: Path, strategy: str) -> None:
    def write(request: ModelRequest) -> str:
        marks = [*dict.fromkeys(re.findall(rf"{SOURCE}#\d+", str(request.messages[0]["content"])))]
        return json.dumps({"summary": f"They know the code ({', '.join(marks)}).", "source_ids": marks})

    def answer(request: ModelRequest) -> ModelReply:
        is_asked = "fetch" in str(request.messages[-1]["content"])
        call = ToolCall("c1", "chat_read", json.dumps({"session": SOURCE}))
        return ModelReply("", (call,), "tool_calls") if is_asked else ModelReply("ok")

    model = SummarisingModel(write, size=8_000, answer=answer)
    async with family(tmp_path, model, agents={}) as bench:
        await tell_and_grant(bench)
        await bench.say(f",strategy {strategy}", OWNER, OWNER)
        await bench.say("fetch it", OWNER, OWNER)
        assert "I summarised" in (await bench.say(",summary", OWNER, OWNER))[-1]
        (anchor,) = [
            each for each in await bench.entries(OWNER) if each.name == "auto_handoff/summary" and each.kind == "anchor"
        ]
        assert "They know the code" in str(anchor.payload["state"])
        assert bench.daemon.bot.tape(SOURCE).name in str(anchor.payload["state"])
        await bench.say("thanks", OWNER, OWNER)
        assert "They know the code" in str(model.requests[-1].messages)
        assert not is_summary(model.requests[-1])
