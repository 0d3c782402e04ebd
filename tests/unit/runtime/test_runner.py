"""The steps of a turn: model, calls, results, until there is an answer; every step a fact that can be built again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bubbot.arguments.fields import NoArguments
from bubbot.errors import ModelUnavailable
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.model import FailedAttempt, ModelEvent, ModelReply, ModelRequest, TextDelta, ToolCall, Usage
from bubbot.ports.turn import Turn
from bubbot.runtime.runner import RunnerSettings
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import Kind
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts
from bubbot.tool import READS_OWN, Tool, tool
from tests.turns import HOME, Options, Played, Replying, asked, calls, replying, running, says, texts_of


async def forked(store: TapeStore) -> list[str]:
    """What the open forks hold durably, by kind or name."""
    return [
        entry.name or entry.kind
        for record in await store.forks()
        for batch in record.staged
        for entry in batch.entries
        if batch.tape == record.tape
    ]


def watching(store: TapeStore, seen: list[list[str]]) -> Tool:
    """A tool that looks at what is durable while it runs."""

    @tool("look.on", effect=READS_OWN)
    async def look_on(turn: Turn, args: NoArguments) -> str:
        """Looks at the store."""
        seen.append(await forked(store))
        return "seen"

    return look_on


class TestDurability:
    async def test_a_call_is_durable_before_its_tool_runs(self, store: TapeStore) -> None:
        seen: list[list[str]] = []
        model = Played(calls("look_on"), says("ok"))
        async with running(store, model, Options(tools=[watching(store, seen)])) as bench:
            await bench.say("look")
        assert seen[0][-2:] == ["tool_call", "loop.step"]

    async def test_a_result_is_durable_before_the_next_model_call(self, store: TapeStore) -> None:
        seen: list[list[str]] = []

        async def stream(request: ModelRequest) -> AsyncIterator[ModelEvent]:
            seen.append(await forked(store))
            first = len(seen) == 1
            yield ModelReply("" if first else "ok", (ToolCall("c", "tape_info", "{}"),) if first else ())

        async with running(store, Replying(stream)) as bench:
            await bench.say("look")
        assert "message" in seen[0]
        assert seen[1][-1] == "tool_result"

    async def test_the_last_step_is_written_by_the_merge_alone(self, store: TapeStore) -> None:
        async with running(store, ScriptedModel()) as bench:
            await bench.say("hello")
            names = [entry.name or entry.kind for entry in await bench.entries()]
            assert names[-3:] == ["message", "loop.step", "turn/end"]

    async def test_every_entry_of_a_turn_carries_its_id(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, Played(calls("tape_info"), says("ok"))) as bench:
            result = await bench.say("hello")
            assert {entry.meta.get("turn") for entry in await bench.entries()} == {result.turn_id}


class TestOverflow:
    async def test_it_opens_a_window_with_the_exact_state_and_asks_once_more(self, memory_store: InMemoryStore) -> None:
        model = Played(says("one"), {"error": "overflow", "message": "17 tokens too many"}, says("short now"))
        async with running(memory_store, model) as bench:
            await bench.say("earlier")
            result = await bench.say("long")
            assert (result.status, result.text) == ("answered", "short now")
            (found,) = [entry for entry in await bench.entries() if entry.name == "auto_handoff/context_overflow"]
            assert found.payload["state"] == {"reason": "context_length_exceeded", "error": "17 tokens too many"}
            assert asked(bench.requests[-1])[1:] == [("user", "[2026-11-21 20:21] long")]

    async def test_the_step_says_auto_handoff(self, memory_store: InMemoryStore) -> None:
        model = Played({"error": "overflow", "message": "too long"}, says("ok"))
        async with running(memory_store, model) as bench:
            await bench.say("long")
            first, second = await bench.events("loop.step")
            assert (first["status"], first["error"], second["status"]) == ("auto_handoff", "too long", "ok")

    async def test_a_second_overflow_ends_the_turn(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, Played({"error": "overflow"})) as bench:
            result = await bench.say("long")
            assert (result.status, len(bench.requests)) == ("failed", 2)
            assert [step["status"] for step in await bench.events("loop.step")] == ["auto_handoff", "error"]

    async def test_the_window_is_durable_before_the_second_try(self, store: TapeStore) -> None:
        seen: list[list[str]] = []

        async def stream(request: ModelRequest) -> AsyncIterator[ModelEvent]:
            seen.append(await forked(store))
            async for item in Played({"error": "overflow"} if len(seen) == 1 else says("ok")).stream(request):
                yield item

        async with running(store, Replying(stream)) as bench:
            await bench.say("long")
        assert seen[1][-2:] == ["auto_handoff/context_overflow", "handoff"]

    @pytest.mark.parametrize(("error", "status"), [("overflow", "answered"), ("unavailable", "failed")])
    async def test_an_error_text_with_half_a_character_is_stored(
        self, memory_store: InMemoryStore, error: str, status: str
    ) -> None:
        model = Played({"error": error, "message": "bad \ud83d"}, says("ok"))
        async with running(memory_store, model) as bench:
            assert (await bench.say("long")).status == status
            assert (await bench.say("again")).text == "ok"


class TestAnAnswerThatIsCut:
    @pytest.mark.parametrize("texts", [Texts("en"), Texts("zh"), Texts("de")])
    @pytest.mark.parametrize(
        ("finish", "reason", "sentence"),
        [
            ("length", "", "answer_cut"),
            ("content_filter", "SAFETY", "answer_filtered"),
            ("unknown", "pause_turn", "answer_unfinished"),
            ("unknown", "", "answer_unfinished"),
        ],
    )
    async def test_people_are_told_and_the_tape_keeps_what_the_model_said(
        self, memory_store: InMemoryStore, texts: Texts, finish: Any, reason: str, sentence: str
    ) -> None:
        model = replying(ModelReply("Once upon a", finish=finish, reason=reason), ModelReply("a time"))
        async with running(memory_store, model, Options(texts=texts)) as bench:
            told = (await bench.say("tell me")).text
            assert told == f"Once upon a\n\n{texts.say(sentence, reason=reason or finish)}"
            (step,) = [entry.payload["data"] for entry in await bench.entries() if entry.name == "loop.step"]
            assert (step["finish"], step.get("finish_reason", "")) == (finish, reason)
            assert bench.channel.texts == [told]
            assert texts_of(await bench.entries(), "assistant") == ["Once upon a"]
            assert (await bench.say("go on")).text == "a time"


class TestAttempts:
    """Which model was asked, which answered, what failed on the way and why, and what it cost."""

    async def test_a_fallback_is_named_with_what_failed_before_it(self, memory_store: InMemoryStore) -> None:
        async def stream(request: ModelRequest) -> AsyncIterator[ModelEvent]:
            yield FailedAttempt("a/first", "model_unavailable", "503", 0.25, 1.5, "a/first")
            yield FailedAttempt("a/first", "model_unavailable", "503 again", 0.25, 0.0, "a/second")
            yield TextDelta("hello")
            yield ModelReply("hello", usage=Usage(3, 4, cost=0.002), model="a/second")

        async with running(memory_store, Replying(stream)) as bench:
            await bench.say("hi")
            (step,) = await bench.events("loop.step")
            assert (step["model"], step["answered"], step["cost"]) == ("scripted", "a/second", 0.002)
            assert [(one["model"], one["status"], one.get("error")) for one in step["attempts"]] == [
                ("a/first", "failed", "503"),
                ("a/first", "failed", "503 again"),
                ("a/second", "ok", None),
            ]
            assert step["attempts"][0]["elapsed_ms"] >= 250
            assert step["attempts"][2]["first_text_ms"] >= 0
            assert (step["attempts"][2]["usage"]["output_tokens"], step["attempts"][2]["cost"]) == (4, 0.002)
            told = (await bench.say(",why")).text
            assert ": ok, scripted asked, a/second answered, 3 tokens in, 4 out, cost 0.002 USD, " in told
            assert re.search(r"^  a/first failed after 2\d\d ms: 503 again$", told, re.MULTILINE)

    async def test_an_error_after_failures_is_recorded_once(self, memory_store: InMemoryStore) -> None:
        async def stream(request: ModelRequest) -> AsyncIterator[ModelEvent]:
            yield FailedAttempt("a/first", "model_unavailable", "down", 0.0)
            raise ModelUnavailable("down")

        async with running(memory_store, Replying(stream)) as bench:
            await bench.say("hi")
            (step,) = await bench.events("loop.step")
            assert [(one["model"], one["error"]) for one in step["attempts"]] == [("a/first", "down")]
            assert step["cost"] is None
            assert "cost unknown" in (await bench.say(",why")).text

    async def test_a_call_that_never_ends_is_recorded_when_it_is_stopped(self, memory_store: InMemoryStore) -> None:
        asked_for = asyncio.Event()

        async def stream(request: ModelRequest) -> AsyncIterator[ModelEvent]:
            yield TextDelta("hel")
            asked_for.set()
            await asyncio.Event().wait()

        async with running(memory_store, Replying(stream)) as bench:
            result = await bench.post("hi")
            await asked_for.wait()
            assert bench.app.stop(HOME)
            assert (await result).status == "stopped"
            (step,) = await bench.events("loop.step")
            assert (step["status"], [one["status"] for one in step["attempts"]]) == ("stopped", ["stopped"])


@pytest.mark.law("T7")
class TestHandoffs:
    async def test_one_asked_for_in_a_step_stands_after_the_steps_results(self, memory_store: InMemoryStore) -> None:
        both = [{"name": "tape_handoff", "arguments": {"name": "phase/two"}}, {"name": "tape_info", "arguments": {}}]
        async with running(memory_store, Played({"calls": both}, says("ok"))) as bench:
            await bench.say("go on")
            names = [entry.name or entry.kind for entry in await bench.entries()]
            place = names.index("tool_result")
            assert names[place : place + 3] == ["tool_result", "phase/two", "handoff"]
            assert len((await bench.entries())[place].payload["results"]) == 2

    async def test_two_in_one_step_are_two_batches_in_order(self, memory_store: InMemoryStore) -> None:
        both = [{"name": "tape_handoff", "arguments": {"name": name}} for name in ("phase/a", "phase/b")]
        async with running(memory_store, Played({"calls": both}, says("ok"))) as bench:
            await bench.say("go on")
            names = [entry.name or entry.kind for entry in await bench.entries()]
            place = names.index("tool_result")
            assert names[place + 1 : place + 5] == ["phase/a", "handoff", "phase/b", "handoff"]
            assert asked(bench.requests[-1])[1] == ("user", "[2026-11-21 20:21] go on")

    async def test_one_asked_for_by_a_command_stands_after_the_command(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say(",handoff phase/two what we know")
            names = [entry.name or entry.kind for entry in await bench.entries()]
            place = names.index("command")
            assert names[place : place + 3] == ["command", "phase/two", "handoff"]


class TestModelsThatFail:
    async def test_a_stream_without_a_reply_is_a_failure(self, memory_store: InMemoryStore) -> None:
        async def stream(request: ModelRequest) -> AsyncIterator[ModelEvent]:
            yield TextDelta("half an ans")

        async with running(memory_store, Replying(stream)) as bench:
            result = await bench.say("hello")
            assert (result.status, "ended without an answer" in result.text) == ("failed", True)

    async def test_one_that_takes_too_long_is_stopped(self, memory_store: InMemoryStore) -> None:
        options = Options(run=RunnerSettings(timeout=0.05))
        async with running(memory_store, Played({"text": "late", "delay": 60}), options) as bench:
            result = await bench.say("hello")
            assert (result.status, "within 0.05 seconds" in result.text) == ("failed", True)

    async def test_the_failed_step_is_a_fact_with_its_error(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, Played({"error": "refused", "message": "no such key"})) as bench:
            await bench.say("hello")
            (step,) = await bench.events("loop.step")
            assert (step["status"], step["error"]) == ("error", "no such key")

    async def test_an_empty_answer_is_a_failure_that_stays_out_of_the_next_context(
        self, memory_store: InMemoryStore
    ) -> None:
        async with running(memory_store, Played(says(""), says("there"))) as bench:
            result = await bench.say("hello")
            assert (result.status, "empty answer" in result.text) == ("failed", True)
            await bench.say("are you there?")
            assert [role for role, _ in asked(bench.requests[1])] == ["assistant", "user", "user"]

    async def test_a_model_that_never_stops_calling_ends_at_the_step_limit(self, memory_store: InMemoryStore) -> None:
        endless = (
            ModelReply("", (ToolCall(f"c{number}", "tape_search", f'{{"query":"{number}"}}'),)) for number in range(9)
        )
        model = replying(*endless)
        async with running(memory_store, model, Options(run=RunnerSettings(max_steps=4))) as bench:
            result = await bench.say("search")
            assert (result.status, len(model.requests)) == ("failed", 4)
            assert "after 4 steps" in result.text

    async def test_an_error_of_the_adapter_itself_does_not_end_the_session(self, memory_store: InMemoryStore) -> None:
        async def stream(request: ModelRequest) -> AsyncIterator[ModelEvent]:
            raise KeyError("choices")
            yield TextDelta("")

        async with running(memory_store, Replying(stream)) as bench:
            assert (await bench.say("hello")).status == "failed"
            assert (await bench.say(",tape.info")).status == "answered"


class TestTextThatCannotBeStored:
    async def test_half_a_surrogate_pair_becomes_a_replacement_character(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, replying(ModelReply("so \ud83d!"))) as bench:
            assert (await bench.say("hello")).text == "so \N{REPLACEMENT CHARACTER}!"

    async def test_two_halves_that_belong_together_become_the_character(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, replying(ModelReply("so \ud83d\ude00!"))) as bench:
            assert (await bench.say("hello")).text == "so 😀!"

    async def test_names_arguments_ids_and_reasoning_too(self, memory_store: InMemoryStore) -> None:
        calls = (ToolCall("\ud800", "\ud800x", '{"q":"\ud800"}'),)
        broken = ModelReply("\udc00", calls, reasoning="\ud800", response_id="\ud800", replay={"thought": "\ud800"})
        async with running(memory_store, replying(broken, ModelReply("ok"))) as bench:
            assert (await bench.say("hello")).text == "ok"
            (call,) = [entry for entry in await bench.entries() if entry.kind == Kind.TOOL_CALL]
            assert call.payload["calls"][0]["function"]["name"] == "\N{REPLACEMENT CHARACTER}x"


class TestCallIds:
    async def test_calls_without_ids_get_their_own_and_their_results(self, memory_store: InMemoryStore) -> None:
        nameless = ModelReply("", (ToolCall("", "tape_info", "{}"), ToolCall("", "memory_show", "{}")))
        async with running(memory_store, replying(nameless, ModelReply("ok"))) as bench:
            await bench.say("hello")
            results = [content for role, content in asked(bench.requests[1]) if role == "tool"]
            assert results[0].startswith("entries:")
            assert results[1].startswith("Memory:")

    async def test_ids_that_a_model_uses_again_in_every_step_pair_with_their_own_results(
        self, memory_store: InMemoryStore
    ) -> None:
        again = (
            ModelReply("", (ToolCall("call_0", "tape_info", "{}"),)),
            ModelReply("", (ToolCall("call_0", "memory_show", "{}"),)),
        )
        async with running(memory_store, replying(*again, ModelReply("ok"))) as bench:
            await bench.say("hello")
            results = [content for role, content in asked(bench.requests[2]) if role == "tool"]
            assert results[0].startswith("entries:")
            assert results[1].startswith("Memory:")

    async def test_one_id_for_two_calls_of_a_step_is_told_apart(self, memory_store: InMemoryStore) -> None:
        twins = ModelReply("", (ToolCall("x", "tape_info", "{}"), ToolCall("x", "memory_show", "{}")))
        async with running(memory_store, replying(twins, ModelReply("ok"))) as bench:
            await bench.say("hello")
            ids = [message["tool_call_id"] for message in bench.requests[1].messages if message["role"] == "tool"]
            assert len(set(ids)) == 2


class TestWhatIsKept:
    async def test_a_system_prompt_is_stored_once_for_each_version(self, memory_store: InMemoryStore) -> None:
        model = Played(says("a"), says("b"), calls("memory_save", content="Likes tea."), says("c"), says("d"))
        async with running(memory_store, model) as bench:
            for text in ("one", "two", "three", "four"):
                await bench.say(text)
            prompts = [entry for entry in await bench.entries() if entry.kind == Kind.SYSTEM]
            assert len(prompts) == 2
            for entry in prompts:
                kept = await memory_store.get_blob(HOME, entry.payload["digest"])
                assert len(kept.decode()) == entry.payload["characters"]

    async def test_a_step_says_what_was_shown_and_what_it_used(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("hello")
            (step,) = await bench.events("loop.step")
            entries = await bench.entries()
            assert step["shown"] == ((1, 1), (3, 3))
            assert [entries[place - 1].kind for place in (1, 3)] == ["anchor", "message"]
            assert step["usage"]["input_tokens"] > 0

    async def test_an_answer_names_its_model(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("hello")
            (answer,) = [entry for entry in await bench.entries() if entry.payload.get("role") == "assistant"]
            assert answer.meta["model"] == "scripted"


async def test_closing_a_model_call_early_cancels_it(memory_store: InMemoryStore) -> None:
    ended = asyncio.Event()

    async def stream(request: ModelRequest) -> AsyncIterator[ModelEvent]:
        try:
            await asyncio.sleep(60)
            raise ModelUnavailable("never")
            yield TextDelta("")
        finally:
            ended.set()

    async with running(memory_store, Replying(stream), Options(run=RunnerSettings(timeout=0.05))) as bench:
        await bench.say("hello")
        assert ended.is_set()
