"""Thoughts within a model's text: beside the answer on the tape, and on no road to people or to a model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import structs

from bubbot.arguments.fields import NoArguments
from bubbot.cli.tape.command import format_tape_entry
from bubbot.features.agents.settings import AgentsSettings
from bubbot.features.search.view import SearchView
from bubbot.features.trace.entries import describe_entry
from bubbot.ports.channel import Preview, TextDiscarded, TextStreamed
from bubbot.ports.model import ModelEvent, ModelReply, ModelRequest, TextDelta, ToolCall
from bubbot.ports.turn import Turn
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape import entry as make
from bubbot.tape.entry import Kind
from bubbot.tape.store import TapeStore
from bubbot.tool import READS_OWN, Tool, tool
from tests.contract.test_tainted_answers import complete, completing
from tests.schedules import timed
from tests.turns import (
    Bench,
    Options,
    Played,
    Replying,
    asked,
    assert_rebuilt,
    calls,
    replying,
    running,
    says,
)
from tests.virtual import virtual

UNOPENED = "They ask for a secret.\n</think>\n\nHello!"
THOUGHTFUL = [
    "<think>They ask for a secret.</think>\n\nHello!",
    UNOPENED,
    "[THINK]They ask for a secret.[/THINK]Hello!",
    "<|channel|>analysis<|message|>A secret.<|end|><|start|>assistant<|channel|>final<|message|>Hello!<|return|>",
    "<thought>A secret.</thought>\n<final>Hello!</final>",
]
QUIET = ["[SILENT].", "**[SILENT]**", "They ask for a secret.\n</think>\n[SILENT]"]
EMPTY = ["\u200b", "&nbsp;", "```\n```", "<think>They ask for a secret.", "They ask for a secret.\n</think>"]


def looking() -> Tool:
    @tool("look.at", effect=READS_OWN)
    async def look_at(turn: Turn, args: NoArguments) -> str:
        """Look."""
        return "seen"

    return look_at


def asking_to_look(text: str, call: str) -> ModelReply:
    return ModelReply(text, (ToolCall(call, "look_at", "{}"),), finish="tool_calls")


async def written(bench: Bench) -> list[tuple[str, str]]:
    """What the model wrote, as content and thoughts."""
    return [
        (str(entry.payload.get("content", "")), str(entry.payload.get("thoughts", "")))
        for entry in await bench.entries()
        if entry.kind == Kind.TOOL_CALL or entry.payload.get("role") == "assistant"
    ]


class Piecemeal(Replying):
    """A model that answers with the same text each time, some characters at once."""

    def __init__(self, text: str, name: str = "piecemeal") -> None:
        async def stream(request: ModelRequest) -> AsyncIterator[ModelEvent]:
            for place in range(0, len(text), 5):
                yield TextDelta(text[place : place + 5])
            yield ModelReply(text, model=name)

        super().__init__(stream)
        self._name = name


class Screen:
    """What people see of answers while they grow."""

    def __init__(self) -> None:
        self.text = self.discarded = ""

    def show(self, session: str, event: Preview) -> None:
        if isinstance(event, TextStreamed):
            self.text += event.text
        elif isinstance(event, TextDiscarded):
            self.text, self.discarded = "", self.discarded + self.text

    def take(self) -> tuple[str, str]:
        """What is shown, and what was taken back."""
        taken = self.text, self.discarded
        self.text = self.discarded = ""
        return taken


class TestTape:
    @pytest.mark.parametrize("text", THOUGHTFUL)
    async def test_thoughts_stand_beside_the_answer_and_are_not_sent_again(self, store: TapeStore, text: str) -> None:
        async with running(store, Played(says(text), says("bye"))) as bench:
            assert (await bench.say("hello")).text == "Hello!"
            await bench.say("and now?")
            (content, thoughts), _ = await written(bench)
            assert content == "Hello!"
            assert "secret" in thoughts
            assert ("assistant", "Hello!") in asked(bench.requests[1])
            assert b"secret" not in bench.requests[1].as_bytes()
            await assert_rebuilt(bench)

    async def test_an_answer_without_thoughts_has_no_such_field(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, Played(says("Hello!"))) as bench:
            await bench.say("hello")
            (answer,) = [entry for entry in await bench.entries() if entry.payload.get("role") == "assistant"]
            assert set(answer.payload) == {"role", "content"}

    async def test_a_text_beside_calls_is_kept_without_its_thoughts_too(self, store: TapeStore) -> None:
        call = structs.replace(
            asking_to_look("<think>A secret.</think>I look.", "c1"), replay={"reasoning_content": "kept"}
        )
        lone = asking_to_look("A secret.\n</think>\n", "c2")
        model = replying(call, lone, ModelReply("done"))
        async with running(store, model, Options(tools=[looking()])) as bench:
            await bench.say("look")
            assert await written(bench) == [
                ("I look.", "<think>A secret.</think>"),
                ("", "A secret.\n</think>"),
                ("done", ""),
            ]
            assert b"secret" not in bench.requests[2].as_bytes()
            sent = [message for message in bench.requests[2].messages if message.get("tool_calls")]
            assert [message["content"] for message in sent] == ["I look.", ""]
            assert sent[0]["replay"] == {"reasoning_content": "kept"}, "what a provider wants back is not touched"

    async def test_what_an_earlier_version_stored_is_sent_as_it_was(self, memory_store: InMemoryStore) -> None:
        old = "<think>They ask for a secret.</think>Hello!"
        async with running(memory_store, Played(says("Hi."))) as bench:
            await bench.say("hello")
            await bench.tape().append([make.message("assistant", old, model="m")])
            calls_entry = {"id": "c", "type": "function", "function": {"name": "look_at", "arguments": "{}"}}
            await bench.tape().append([make.tool_call([calls_entry], text=old, model="m")])
            await bench.tape().append([make.tool_result([{"tool_call_id": "c", "content": "seen"}])])
            await bench.say("and now?")
            assert [content for role, content in asked(bench.requests[1]) if role == "assistant"][-2:] == [old, old]
            await assert_rebuilt(bench)

    async def test_thoughts_are_shown_in_the_trace_and_the_shell_no_hits_and_erased_with_their_entry(
        self, store: TapeStore
    ) -> None:
        async with running(store, Played(says(THOUGHTFUL[0]))) as bench:
            await bench.say("hello")
            (answer,) = [entry for entry in await bench.entries() if entry.payload.get("role") == "assistant"]
            assert [(part.label, part.words.text) for part in describe_entry(answer).parts] == [
                ("", "Hello!"),
                ("thoughts", "<think>They ask for a secret.</think>"),
            ]
            assert "assistant: Hello! (thoughts: <think>They ask" in format_tape_entry(answer)
            found = await bench.tape().read(SearchView("secret"))
            assert found.hits == (), "nobody said it"
            await bench.say(",reset erase")
            assert not any("secret" in entry.all_text() for entry in await bench.entries())


class TestRoads:
    @pytest.mark.parametrize("text", [*THOUGHTFUL, *QUIET, *EMPTY])
    async def test_a_chat_and_its_preview(self, memory_store: InMemoryStore, text: str) -> None:
        screen = Screen()
        model = Piecemeal(text)
        async with running(memory_store, model, Options(show=screen.show)) as bench:
            await bench.say("hello")  # people may see what turns out to be a thought, once
            first, _ = screen.take()
            result = await bench.say("hello again")
            again = screen.take()
            await bench.quiet()
        answer = "Hello!" if text in THOUGHTFUL else ""
        assert first == answer
        assert again == (answer, "")
        assert result.status == ("answered" if answer else "silent" if text in QUIET else "failed")
        assert all("secret" not in part for part in bench.channel.texts)
        assert result.status == "failed" or result.text == answer

    @pytest.mark.parametrize("text", THOUGHTFUL)
    async def test_the_result_of_a_sub_task(self, memory_store: InMemoryStore, text: str) -> None:
        screen = Screen()
        model = Played(calls("agent_run", task="greet"), says(text), says("done"))
        async with running(memory_store, model, Options(agents=AgentsSettings(), show=screen.show)) as bench:
            await bench.say("greet")
            results = [entry for entry in await bench.entries() if entry.kind == Kind.TOOL_RESULT]
            assert "Hello!" in results[-1].all_text()
            assert "secret" not in results[-1].all_text()
            assert b"secret" not in bench.requests[-1].as_bytes()
        assert screen.take() == ("done", "")

    @virtual
    @pytest.mark.parametrize("text", [*THOUGHTFUL, *QUIET])
    async def test_a_job_sends_no_thought(self, text: str) -> None:
        async with timed(InMemoryStore(), Played(says(text))) as bot:
            await bot.say(",schedule in 5m: greet")
            await bot.passes(minutes=6)
            ran = [one.payload["data"]["status"] for one in await bot.facts("ran")]
            assert ran == ["silent" if text in QUIET else "answered"]
            assert [part for part in bot.bench.channel.texts if "secret" in part] == []

    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("text", THOUGHTFUL)
    async def test_a_program_that_talks_to_it(self, tmp_path: Path, text: str, stream: bool) -> None:
        async with completing(tmp_path, is_tainted=False, answer={"text": text, "pace": 1e-9}) as port:
            first, _ = await complete(port, stream=stream)
            # What a stream has sent cannot be taken back.
            assert first == ("They ask for a secret.\n\nHello!" if stream and text == UNOPENED else "Hello!")
            assert await complete(port, stream=stream) == ("Hello!", False)


class TestLearning:
    async def test_a_thought_that_no_mark_begins_is_shown_once_by_a_model(self, memory_store: InMemoryStore) -> None:
        screen = Screen()
        async with running(memory_store, Piecemeal(UNOPENED), Options(show=screen.show)) as bench:
            result = await bench.say("hello")
            assert result.text == "Hello!"
            assert screen.take() == ("Hello!", "They ask for a secret.")
            await bench.say("in another chat", chat="other")
            assert screen.take() == ("Hello!", "")

    async def test_it_is_known_from_the_tape_after_a_restart(self, store: TapeStore) -> None:
        async with running(store, Piecemeal(UNOPENED)) as bench:
            await bench.say("hello")
        screen = Screen()
        async with running(store, Piecemeal(UNOPENED), Options(show=screen.show), life="second") as bench:
            await bench.say("hello again")
            assert screen.take() == ("Hello!", "")

    async def test_other_models_are_shown_live(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, Piecemeal(UNOPENED)) as bench:
            await bench.say("hello")
        pieces: list[str] = []

        def show(session: str, event: Preview) -> None:
            if isinstance(event, TextStreamed):
                pieces.append(event.text)

        other = Piecemeal("Hello there!", "other")
        async with running(memory_store, other, Options(show=show), life="second") as bench:
            await bench.say("hello again")
        assert len(pieces) > 1
