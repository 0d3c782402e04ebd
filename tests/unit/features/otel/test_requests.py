"""What a model was shown goes out with the span of its call: as it was rebuilt, within the rule of content and within bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bubbot.app.bot import Bot
from bubbot.errors import ConfigError
from bubbot.features.otel import requests
from bubbot.features.otel.content import Exposure
from bubbot.features.otel.spans import TurnSpans
from bubbot.home import Home
from bubbot.runtime.compose import rebuild_sent
from bubbot.tape.entry import TapeEntry, event
from bubbot.tape.query import TapeQuery
from bubbot.tape.store import Batch
from tests.fakes.otlp_server import Receiver, Span, receiver
from tests.raw import tamper
from tests.traced import say, settings_for, traced, written

SHOWN = ("gen_ai.system_instructions", "gen_ai.tool.definitions", "gen_ai.input.messages")
SCRIPT = {
    "rules": [
        {"when": "look", "steps": [{"calls": [{"name": "tape_info", "arguments": {}}]}, {"text": "it is short"}]},
        {"when": "hello", "steps": [{"text": "x" * 600}]},
    ]
}
ANN: dict[str, Any] = {"sender": "81450002", "name": "Ann Summers", "direct": False, "addressed": True}


async def talk(home: Path, *texts: str, content: str = "full", **fields: Any) -> Receiver:
    """Some turns of a bot: what came of them."""
    async with (
        receiver() as taken,
        traced(settings_for(home, SCRIPT, endpoint=taken.url, content=content), home) as bot,
    ):
        for text in texts:
            await say(bot, text, **fields)
        await taken.turns(len(texts))
        await written(bot, "otel/exported")
    return taken


async def _read_steps(bot: Bot) -> list[TapeEntry]:
    (steps,) = await bot.store.fetch([TapeQuery(bot.tape("stdin:default").name, names=("loop.step",))])
    return list(steps)


def messages(span: Span) -> list[str]:
    """The texts of the messages of a span."""
    found = json.loads(span["gen_ai.input.messages"])
    return [part.get("content", part.get("response", part.get("name"))) for each in found for part in each["parts"]]


async def test_a_span_has_the_request_as_it_is_rebuilt(tmp_path: Path) -> None:
    async with (
        receiver() as taken,
        traced(settings_for(tmp_path, SCRIPT, endpoint=taken.url, content="full"), tmp_path) as bot,
    ):
        for text in ("hello", "look here"):
            await say(bot, text)
        await taken.turns(2)
        calls, tape = taken.named("chat"), bot.tape("stdin:default")
        steps = {step.id: step.data for step in await _read_steps(bot)}
        ids = {call["bubbot.entry.id"] for call in calls}
        sent = {each: await rebuild_sent(steps[each], tape) for each in ids}
    assert len(calls) == 3
    for call in calls:
        rebuilt = sent[call["bubbot.entry.id"]]
        request = rebuilt.sent
        assert rebuilt.is_equal
        assert call["bubbot.request.is_exact"] is True
        assert json.loads(call["gen_ai.system_instructions"]) == [{"type": "text", "content": request.system}]
        tools = [{"type": "function", "name": tool.name, "description": tool.description} for tool in request.tools]
        found = json.loads(call["gen_ai.tool.definitions"])
        assert [{name: tool[name] for name in ("type", "name", "description")} for tool in found] == tools
        assert found[0]["parameters"] == json.loads(request.tools[0].text)["function"]["parameters"]
        assert [each["role"] for each in json.loads(call["gen_ai.input.messages"])] == [
            each["role"] for each in request.messages
        ]
    assert "x" * 600 in messages(calls[1]), "what was said in an earlier turn"
    assert messages(calls[2])[-2:] == ["tape_info", next(iter(taken.named("execute_tool")))["output.value"]]


async def test_without_content_nothing_of_a_request_goes_out(tmp_path: Path) -> None:
    taken = await talk(tmp_path, "hello", content="off")
    (call,) = taken.named("chat")
    assert not {*SHOWN, "llm.invocation_parameters", "bubbot.request.is_exact"} & set(call.attributes)


async def test_people_of_earlier_turns_are_redacted_in_the_history(tmp_path: Path) -> None:
    async with (
        receiver() as taken,
        traced(settings_for(tmp_path, SCRIPT, endpoint=taken.url, content="redacted"), tmp_path) as bot,
    ):
        await say(bot, "hello", **ANN)
        await taken.turns(1)
        await say(bot, "look at what Summers wrote", sender="81450007", name="Bo", direct=False, addressed=True)
        await taken.turns(2)
    shown = messages(taken.named("chat")[1])
    person = taken.roots[0]["user.id"]
    assert any(f"[person {person}] (#[person {person}]): hello" in text for text in shown)
    assert any(f"look at what [person {person}] wrote" in text for text in shown)
    assert not any(word in text for text in shown for word in ("Ann", "Summers", "81450002"))


async def test_a_request_that_cannot_be_rebuilt_leaves_the_messages_of_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise ConfigError("the strategy of a package that is gone")

    monkeypatch.setattr(requests, "rebuild_sent", fail)
    taken = await talk(tmp_path, "hello", "look here")
    assert messages(taken.named("chat")[2])[0] == "look here"
    assert not {*SHOWN[:2], "bubbot.request.is_exact"} & set(taken.named("chat")[2].attributes)


async def test_words_that_were_erased_since_are_not_sent_and_the_span_says_that_it_is_not_exact(tmp_path: Path) -> None:
    async with (
        receiver(opened=False) as taken,
        traced(settings_for(tmp_path, SCRIPT, endpoint=taken.url, content="full"), tmp_path) as bot,
    ):
        await say(bot, "first of all")
        await taken.until(lambda: taken.headers)  # these spans are on their way
        await say(bot, "hello words to forget")
        await say(bot, "look here")
        tape = bot.tape("stdin:default")
        (found,) = await bot.store.fetch([TapeQuery(tape.name, kinds=("message",))])
        (said,) = [each.id for each in found if "forget" in str(each.payload)]
        await bot.store.erase([Batch("bubbot/home", (event("tape/erased"),))], [(tape.name, (said,))])
        taken.gate.set()
        await taken.turns(3)
    assert b"words to forget" not in b"".join(taken.bodies)
    exact = {call["bubbot.request.is_exact"] for call in taken.named("chat") if call.trace == taken.roots[-1].trace}
    assert exact == {False}


async def test_a_damaged_message_of_an_earlier_turn_holds_up_no_later_one(tmp_path: Path) -> None:
    """Who wrote it is not known, so that what a model was shown of it stays here, too."""
    async with traced(
        settings_for(tmp_path, SCRIPT, endpoint="http://127.0.0.1:9", content="redacted"), tmp_path
    ) as bot:
        await say(bot, "hello")
        await say(bot, "look here")
    damaged = "SELECT min(seq) FROM entries WHERE kind = 'message' AND payload LIKE '%hello%'"
    tamper(Home(tmp_path).database, f"UPDATE entries SET payload = '{{' WHERE seq = ({damaged})")
    async with (
        receiver() as taken,
        traced(settings_for(tmp_path, SCRIPT, endpoint=taken.url, content="redacted"), tmp_path),
    ):
        await taken.turns(1)
    assert messages(taken.named("chat")[0]) == ["look here"]


async def test_a_turn_with_very_long_requests_has_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_SYSTEM_CHARS", 100)
    monkeypatch.setattr(requests, "MAX_TOOLS_CHARS", 2_000)
    monkeypatch.setattr(requests, "MAX_TURN_CHARS", 1)
    monkeypatch.setattr(requests, "MIN_LIST_CHARS", 500)
    taken = await talk(tmp_path, "hello", "look here")
    call = taken.named("chat")[-1]
    assert "more characters]" in call["gen_ai.system_instructions"]
    assert len(call["gen_ai.system_instructions"]) < 200
    tools = json.loads(call["gen_ai.tool.definitions"])
    assert tools[-1]["name"].endswith("more tools left out]")
    assert len(call["gen_ai.tool.definitions"]) < 2_200
    assert messages(call)[0].endswith("older messages left out]")
    assert "x" * 600 not in messages(call)
    assert len(call["gen_ai.input.messages"]) < 700


@pytest.mark.parametrize("content", ["off", "redacted", "full"])
def test_parameters_are_those_that_the_model_of_the_attempt_got(content: str) -> None:
    fit = {"rules": [], "parameters": {"temperature": 0.5, "user": "81450002", "seed": 7_000_000}}
    step = {"step": 1, "parameters": {"temperature": 1}, "attempts": [{"model": "a/b", "fit": fit}, {"model": "a/c"}]}
    facts = [event("turn/start", {"session": "s:1"}, turn="ab"), event("loop.step", step, turn="ab")]
    entries = [fact.with_id(number) for number, fact in enumerate(facts, 1)]
    spans = [
        each for each in TurnSpans(entries, Exposure(content, str, b"key")).build() if each.name.startswith("chat")
    ]
    first, second = spans
    assert (first.attributes["gen_ai.request.temperature"], second.attributes["gen_ai.request.temperature"]) == (0.5, 1)
    assert first.attributes["gen_ai.request.seed"] == 7_000_000
    if content == "off":
        assert "llm.invocation_parameters" not in first.attributes
    else:
        found = json.loads(str(first.attributes["llm.invocation_parameters"]))
        assert (found["temperature"], found["seed"]) == (0.5, 7_000_000)
        assert (found["user"] == "81450002") == (content == "full")
