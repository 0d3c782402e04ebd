"""Turns as spans, from a real bot to a receiver that decodes what it is sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.semconv._incubating.attributes import (
    error_attributes,
    gen_ai_attributes,
    session_attributes,
    user_attributes,
)
from opentelemetry.semconv.schemas import Schemas

from bubbot.arguments.fields import Args
from bubbot.features.agents.settings import AgentsSettings
from bubbot.features.otel import names
from bubbot.features.otel.content import Exposure
from bubbot.features.otel.names import split_model
from bubbot.features.otel.spans import TurnSpans
from bubbot.ports.turn import Turn
from bubbot.tape.entry import TapeEntry, event, message
from bubbot.tape.query import TapeQuery
from bubbot.tool import READS_OWN, Tool, tool
from tests.fakes.otlp_server import Receiver, Span, receiver
from tests.traced import WAIT, say, settings_for, traced, written
from tests.traced import message as inbound

INTERNAL, CLIENT, ERROR = 1, 3, 2
"""Kinds and a status of OTLP."""
BOOTSTRAP = '[Anchor created: session/start]: {"owner":"human"}'
"""What a model is shown of the beginning of a tape."""


def calls(*names: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments} for name in names]}


SCRIPT = {
    "rules": [
        {"when": "one tool", "steps": [{**calls("tape_info"), "text": "let me see"}, {"text": "it is short"}]},
        {"when": "both at once", "steps": [calls("wait_here", "wait_here", "nonsense tool"), {"text": "both"}]},
        {"when": "delegate", "steps": [calls("agent_run", task="count words"), {"text": "done"}]},
        {"when": "throw away", "steps": [calls("agent_run", task="count words", mode="result"), {"text": "done"}]},
        {"when": "count words", "steps": [calls("tape_info"), {"text": "five"}]},
        {"when": "fail", "steps": [{"error": "refused"}]},
        {"when": "hang", "steps": [calls("hang")]},
    ]
}


@tool("wait.here", effect=READS_OWN)
async def wait_here(turn: Turn, args: Args) -> str:
    """Wait for the other call."""
    places = turn.metadata.setdefault(_Barrier, _Barrier())
    assert isinstance(places, _Barrier)
    await places.both.wait()
    begun = turn.now()
    while turn.now() - begun < timedelta(milliseconds=5):  # noqa: ASYNC110 - times are whole milliseconds
        await asyncio.sleep(0)
    return "here"


class _Barrier:
    def __init__(self) -> None:
        self.both = asyncio.Barrier(2)


TOOLS: list[Tool] = [wait_here]


async def trace(home: Path, text: str, **otel: Any) -> tuple[Receiver, Span]:
    """One turn of a bot: what came, and the turn's span."""
    async with receiver() as taken:
        settings = settings_for(home, SCRIPT, endpoint=taken.url, **otel)
        async with traced(settings, home, tools=TOOLS) as bot:
            await say(bot, text)
            await taken.turns(1)
    (root,) = taken.roots
    assert all(count == 1 for count in taken.ids.values())
    assert {span.trace for span in taken.spans} == {root.trace}
    for span in taken.spans:
        above = root if span is root else next(one for one in taken.spans if one.id == span.parent)
        assert above.start <= span.start <= span.end <= above.end, f"{span.name} is not within {above.name}"
    return taken, root


def parts(span: Span, name: str) -> list[tuple[str, Any]]:
    """The messages of an attribute: role, and content, calls or results."""
    found = []
    for one in json.loads(span[name]):
        for part in one["parts"]:
            said = part.get("content", part.get("response", (part.get("name"), part.get("arguments"))))
            found.append((one["role"], said))
    return found


def stamp(span: Span) -> str:
    """What stands before a message of a person in the request of a span: the minute in which it came."""
    (asked,) = [text for role, text in parts(span, "gen_ai.input.messages") if role == "user"]
    return str(asked)[: asked.index("] ") + 2]


async def test_a_plain_turn_is_an_agent_with_a_step_and_a_model_call(tmp_path: Path) -> None:
    taken, root = await trace(tmp_path, "hello", content="full", service="my bot")
    assert (root.name, taken.tree(root)) == ("invoke_agent bubbot", ["step 1", ["chat scripted"]])
    assert root.trace == root["bubbot.turn.id"], "`,why` and a viewer name it alike"
    assert root["openinference.span.kind"] == "AGENT"
    assert root["gen_ai.conversation.id"] == root["session.id"] == "stdin:default"
    assert root["user.id"] == "stdin:1"
    assert (root["input.value"], root["output.value"]) == ("hello", "You said: hello")
    assert (root["bubbot.turn.status"], root["bubbot.turn.origin"], root["bubbot.turn.attempt"]) == (
        "answered",
        "human",
        1,
    )
    assert root.resource["service.name"] == "my bot"
    (call,) = taken.named("chat")
    assert (call.kind, root.kind) == (CLIENT, INTERNAL)
    assert "openinference.span.kind" not in call.attributes, "its operation says it"
    assert (call["gen_ai.operation.name"], call["gen_ai.provider.name"], call["gen_ai.request.model"]) == (
        "chat",
        "scripted",
        "scripted",
    )
    assert call["gen_ai.response.finish_reasons"] == ["stop"]
    assert call["gen_ai.usage.input_tokens"] > 100
    assert call["gen_ai.usage.output_tokens"] >= 1
    assert [text.removeprefix(stamp(call)) for _, text in parts(call, "gen_ai.input.messages")] == [BOOTSTRAP, "hello"]
    assert parts(call, "gen_ai.output.messages") == [("assistant", "You said: hello")]
    assert {span.status for span in taken.spans} == {0}


async def test_the_turn_of_a_named_agent_has_its_name(tmp_path: Path) -> None:
    async with receiver() as taken:
        made = settings_for(tmp_path, SCRIPT, endpoint=taken.url)
        settings = made.model_copy(update={"agents": AgentsSettings.model_validate({"rosi": {}})})
        async with traced(settings, tmp_path) as bot:
            await bot.gate.receive(inbound("@rosi hello"))
            await taken.turns(1)
    (root,) = taken.roots
    assert (root.name, root["gen_ai.agent.name"], root["bubbot.turn.origin"]) == ("invoke_agent rosi", "rosi", "human")


async def test_tool_calls_stand_in_their_step_and_the_turn_has_the_whole_list(tmp_path: Path) -> None:
    taken, root = await trace(tmp_path, "use one tool", content="redacted")
    assert taken.tree(root) == ["step 1", ["chat scripted", "execute_tool tape_info"], "step 2", ["chat scripted"]]
    (call,) = taken.named("execute_tool")
    assert (call["openinference.span.kind"], call["gen_ai.tool.name"], call["gen_ai.tool.call.arguments"]) == (
        "TOOL",
        "tape_info",
        "{}",
    )
    assert call["output.value"] == call["gen_ai.tool.call.result"]
    assert call["output.value"].startswith("entries: ")
    first, second = taken.named("chat")
    assert first["gen_ai.response.finish_reasons"] == ["tool_call"]
    assert parts(first, "gen_ai.output.messages") == [("assistant", "let me see"), ("assistant", ("tape_info", {}))]
    said = [("user", "use one tool"), *parts(first, "gen_ai.output.messages"), ("tool", call["output.value"])]
    opening, (role, asked), *further = parts(second, "gen_ai.input.messages")
    assert opening == ("assistant", BOOTSTRAP)
    assert [(role, asked.removeprefix(stamp(second))), *further] == said
    assert parts(root, "gen_ai.input.messages") == said
    assert parts(root, "gen_ai.output.messages") == [("assistant", "it is short")]
    assert root["session.id"] != "stdin:default", "a pseudonym"


async def test_calls_that_ran_at_the_same_time_overlap_and_one_that_failed_says_so(tmp_path: Path) -> None:
    taken, root = await trace(tmp_path, "both at once")
    first, second, unknown = taken.named("execute_tool")
    assert (first.name, second.name) == ("execute_tool wait_here", "execute_tool wait_here")
    assert max(first.start, second.start) <= min(first.end, second.end)
    assert first.parent == second.parent == unknown.parent
    assert (unknown.name, unknown.status, unknown["error.type"]) == ("execute_tool unknown", ERROR, "tool_error")
    assert root.status == 0


async def test_a_sub_task_stands_below_the_call_that_ran_it(tmp_path: Path) -> None:
    taken, root = await trace(tmp_path, "delegate this", content="full")
    inner = ["step 1", ["chat scripted", "execute_tool tape_info"], "step 2", ["chat scripted"]]
    ran = ["chat scripted", "execute_tool agent_run", ["invoke_agent task", inner]]
    assert taken.tree(root) == ["step 1", ran, "step 2", ["chat scripted"]]
    (agent,) = taken.named("invoke_agent task")
    assert (agent["openinference.span.kind"], agent["input.value"], agent["output.value"]) == (
        "AGENT",
        "count words",
        "five",
    )
    assert parts(root, "gen_ai.input.messages")[-1][1].startswith("five"), "the turn has its result, not its messages"
    assert len(parts(root, "gen_ai.input.messages")) == 3


async def test_the_copies_of_a_chosen_branch_are_no_calls(tmp_path: Path) -> None:
    async with receiver() as taken:
        settings = settings_for(tmp_path, SCRIPT, endpoint=taken.url)
        async with traced(settings, tmp_path) as bot:
            await say(bot, ',branch.ask prompts="be brief | give reasons" count words')
            await say(bot, ",branch.choose 2")
            await taken.turns(2)
    asked, chosen = taken.roots
    assert len(taken.named("execute_tool tape_info")) == 2, "one of each branch"
    assert taken.tree(chosen) == ["execute_tool branch.choose"]
    assert asked.trace != chosen.trace


async def test_a_sub_task_whose_entries_were_dropped_shows_what_it_cost(tmp_path: Path) -> None:
    taken, root = await trace(tmp_path, "throw away")
    ran = [
        "chat scripted",
        "execute_tool agent_run",
        ["invoke_agent sub-task", ["step sub-task", ["chat scripted"], "step sub-task", ["chat scripted"]]],
    ]
    assert taken.tree(root) == ["step 1", ran, "step 2", ["chat scripted"]]


async def test_a_failed_model_call_is_an_error_with_its_kind(tmp_path: Path) -> None:
    taken, root = await trace(tmp_path, "fail")
    (call,) = taken.named("chat")
    (step,) = taken.named("step")
    assert {span.status for span in (root, step, call)} == {ERROR}
    assert {span["error.type"] for span in (root, step, call)} == {"model_refused"}
    assert {span.message for span in taken.spans} == {""}, "a provider may quote what it was sent"
    assert "gen_ai.response.finish_reasons" not in call.attributes


async def test_a_turn_that_was_stopped_says_so_and_so_does_its_call(tmp_path: Path) -> None:
    running = asyncio.Event()

    @tool("hang", effect=READS_OWN)
    async def hang(turn: Turn, args: Args) -> str:
        """Run until stopped."""
        running.set()
        await asyncio.Event().wait()
        return ""

    async with (
        receiver() as taken,
        traced(settings_for(tmp_path, SCRIPT, endpoint=taken.url), tmp_path, tools=[hang]) as bot,
    ):
        result = await bot.gate.accept(inbound("hang"))
        assert result is not None
        async with asyncio.timeout(WAIT):
            await running.wait()
        bot.runtime.stop("stdin:default")
        await result
        await taken.turns(1)
    (root,) = taken.roots
    assert (root["bubbot.turn.status"], root.status, root["error.type"]) == ("stopped", ERROR, "stopped")
    (call,) = taken.named("execute_tool")
    assert (call.status, call["error.type"]) == (ERROR, "not_finished")


@pytest.mark.parametrize(("content", "name"), [("off", "unknown"), ("full", "nonsense")])
async def test_a_command_is_a_call_without_a_model(tmp_path: Path, content: str, name: str) -> None:
    async with receiver() as taken:
        settings = settings_for(tmp_path, SCRIPT, endpoint=taken.url, content=content)
        async with traced(settings, tmp_path) as bot:
            await say(bot, ",tape.info")
            await say(bot, ",nonsense words")
            await taken.turns(2)
    first, second = taken.roots
    assert taken.tree(first) == ["execute_tool tape.info"]
    assert taken.tree(second) == [f"execute_tool {name}"]
    good, bad = taken.named("execute_tool")
    assert (good.status, bad.status, bad["error.type"]) == (0, ERROR, "refused")
    if content == "full":
        assert (first["input.value"], good["input.value"]) == (",tape.info", ",tape.info")
        assert first["output.value"] == good["output.value"] != ""


async def test_a_turn_that_puts_the_tape_aside_or_erases_it_is_sent_and_what_is_erased_is_not(tmp_path: Path) -> None:
    async with receiver(opened=False) as taken:
        settings = settings_for(tmp_path, SCRIPT, endpoint=taken.url, content="full")
        async with traced(settings, tmp_path) as bot:
            await say(bot, "first of all")
            await taken.until(lambda: taken.headers)  # these spans are on their way
            for text in ("words to forget", ",reset erase", ",yes", "afterwards"):
                await say(bot, text)
            taken.gate.set()
            await taken.until(lambda: any(span["input.value"] == "afterwards" for span in taken.roots))
            await written(bot, "otel/exported", 2)
    asked = [span["input.value"] for span in taken.roots]
    assert asked[0] == "first of all"
    assert asked[-1] == "afterwards"
    assert b"words to forget" not in b"".join(taken.bodies)


@pytest.mark.parametrize("turn", ["not hexadecimal", "0" * 32])
def test_a_turn_of_any_id_has_a_trace_and_each_part_a_span(turn: str) -> None:
    """Zeros are no id of a trace."""
    facts = [
        event("turn/start", {"session": "s:1", "attempt": 1, "inbounds": []}, turn=turn),
        *(event("loop.step", {"step": step, "status": "ok"}, turn=turn) for step in (1, 2)),
        event("turn/end", {"status": "answered"}, turn=turn),
    ]
    spans = TurnSpans(
        [_entry(number, fact) for number, fact in enumerate(facts, 1)], Exposure("full", str, b"key")
    ).build()
    assert {len(span.trace) for span in spans} == {16}
    assert {span.trace for span in spans} != {bytes(16)}
    assert len({span.id for span in spans}) == len(spans) > 1


def test_the_same_facts_give_the_same_spans() -> None:
    entries = [
        _entry(1, event("turn/start", {"session": "s:1", "attempt": 1, "inbounds": []})),
        _entry(2, message("user", "hi", sender={"id": "1"})),
        _entry(3, event("turn/end", {"status": "answered"})),
    ]
    exposure = Exposure("full", str, b"key")
    assert TurnSpans(entries, exposure).build() == TurnSpans(entries, exposure).build()
    assert TurnSpans([entries[0], TapeEntry("event", {}, erased=True, id=2)], exposure).build()
    assert TurnSpans([TapeEntry("event", {}, erased=True, id=1)], exposure).build() == []


def test_a_span_lasts_as_long_as_what_stands_below_it() -> None:
    """Durations are whole milliseconds, dates are not: this call took 10.4 ms and its sub-task ended after 10.3."""
    call = {"id": "c", "function": {"name": "agent_run", "arguments": "{}"}}
    result = {"tool_call_id": "c", "content": "five (fork f1)", "started": _at(0), "elapsed_ms": 10}
    entries = [
        _entry(1, event("turn/start", {"session": "s:1", "attempt": 1, "inbounds": []})),
        _entry(2, TapeEntry("tool_call", {"content": "", "calls": [call]})),
        _entry(3, event("loop.step", {"step": 1, "elapsed_ms": 1, "attempts": []})),
        _entry(4, event("agent/ended", {"name": "task", "status": "answered", "result": "five"}, fork="f1"), 10_300),
        _entry(5, TapeEntry("tool_result", {"results": [result]}), 10_400),
        _entry(6, event("turn/end", {"status": "answered"}), 10_400),
    ]
    spans = {span.name: span for span in TurnSpans(entries, Exposure("redacted", str, b"key")).build()}
    assert set(spans) == {"invoke_agent bubbot", "step 1", "execute_tool agent_run", "invoke_agent task"}
    agent, run, step, turn = (
        spans[name] for name in ("invoke_agent task", "execute_tool agent_run", "step 1", "invoke_agent bubbot")
    )
    assert (agent.parent, run.parent, step.parent) == (run.id, step.id, turn.id)
    assert agent.end == run.end == step.end
    assert agent.end - turn.start == 10_300_000 + 1_000_000, "the step began a millisecond before its entry"


def _at(microseconds: int) -> str:
    return f"2026-11-24T10:00:00.{microseconds:06}+00:00"


def _entry(number: int, entry: TapeEntry, microseconds: int = 0) -> TapeEntry:
    return entry.with_meta({**entry.meta, "turn": "ab" * 16}, _at(microseconds)).with_id(number)


async def test_a_turn_with_a_damaged_entry_holds_up_no_other(tmp_path: Path) -> None:
    odd: list[Mapping[str, Any]] = [
        {"kind": "tool_call", "payload": {"calls": [{"id": "x"}]}},
        {"kind": "tool_result", "payload": {"results": [3]}},
    ]
    async with receiver() as taken, traced(settings_for(tmp_path, endpoint=taken.url), tmp_path) as bot:
        tape = bot.channel_factory.open_tape("imported")
        for one in odd:
            start = event("turn/start", {"session": "s", "attempt": 1, "inbounds": []}, turn="ab" * 16)
            entry = TapeEntry(str(one["kind"]), one["payload"], {"turn": "ab" * 16})
            await tape.append([start, entry, event("turn/end", {"status": "answered"}, turn="ab" * 16)])
        await say(bot, "hello")
        await taken.until(
            lambda: [
                span for span in taken.roots if span["bubbot.turn.status"] == "answered" and span.trace != "ab" * 16
            ]
        )
        await written(bot, "otel/exported")
        ((end, *_),) = await bot.store.fetch([TapeQuery("imported", names=("turn/end",), newest=True, limit=1)])
        assert end.id == 6


def test_the_names_are_those_of_the_conventions() -> None:
    """Those of OpenTelemetry's own package; OpenInference's are compared in the proof, with those of Phoenix."""
    known = {
        value
        for module in (gen_ai_attributes, error_attributes, session_attributes, user_attributes)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str)
    }
    ours = {
        str(name)
        for name in names.Name
        if not name.startswith(("bubbot.", "openinference.", "input.", "output.", "llm."))
    }
    assert ours - known == set()
    assert Schemas.V1_41_1.value == names.SCHEMA_URL
    operations = {each.value for each in gen_ai_attributes.GenAiOperationNameValues}
    assert {names.INVOKE_AGENT, names.CHAT, names.EXECUTE_TOOL} <= operations
    providers = {each.value for each in gen_ai_attributes.GenAiProviderNameValues}
    assert set(names.PROVIDERS.values()) <= providers
    assert split_model("openai/gpt-4o") == ("openai", "gpt-4o")
    assert split_model("gemini/gemini-3") == ("gcp.gemini", "gemini-3")
    assert split_model("local") == ("local", "local")
