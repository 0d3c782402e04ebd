"""What a running turn shows: pieces that add up to the answer, and nothing that could cost a turn."""

from __future__ import annotations

import asyncio
import logging

import pytest

from bubbot.gateway.previews import PreviewSink
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import (
    Preview,
    StepFinished,
    StopRequest,
    TextStreamed,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from bubbot.ports.model import ModelReply
from bubbot.runtime.calls import ToolLimits
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import Kind
from tests.turns import HOME, WAIT, KeptChannel, Options, Played, calls, replying, running, says


class Shown(KeptChannel):
    """A channel that keeps its previews; it fails at those that are named."""

    def __init__(self, *failing: type[Preview]) -> None:
        super().__init__()
        self.seen: list[tuple[str, Preview]] = []
        self._failing = failing

    def preview(self, session: str, event: Preview) -> None:
        """See `ShowsPreviews`."""
        self.seen.append((session, event))
        if isinstance(event, self._failing):
            raise RuntimeError("the window is gone")

    @property
    def events(self) -> list[Preview]:
        """What was shown, of whatever session."""
        return [event for _, event in self.seen]

    @property
    def text(self) -> str:
        """The pieces of text, put together."""
        return "".join(event.text for event in self.events if isinstance(event, TextStreamed))


def options(channel: Shown, limit: int = 16_000) -> Options:
    """A bench whose previews go to this channel."""
    return Options(show=PreviewSink({channel.name: channel}), calls=ToolLimits(result_limit=limit))


async def test_a_turn_shows_its_text_its_tools_and_its_end_in_order(memory_store: InMemoryStore) -> None:
    channel = Shown()
    model = Played({"text": "Let me look.", **calls("tape_info")}, says("two words"))
    async with running(memory_store, model, options(channel), channel=channel) as bench:
        await bench.say("hello")
    size = next(event.size for event in channel.events if isinstance(event, ToolFinished))
    pieces = [event for event in channel.events if not isinstance(event, TextStreamed)]
    assert pieces == [
        TurnStarted(1, "m-first-1", is_first_attempt=True),
        StepFinished(1, 1),
        ToolStarted("tape_info", "{}"),
        ToolFinished("tape_info", ok=True, size=size, spilled=False, arguments="{}"),
        StepFinished(2, 0),
        TurnFinished("answered"),
    ]
    assert channel.text == "Let me look.two words"
    assert {session for session, _ in channel.seen} == {HOME}


async def test_a_failed_call_and_a_result_that_is_kept_aside_are_shown_as_such(memory_store: InMemoryStore) -> None:
    channel = Shown()
    model = Played(calls("nothing_here"), calls("tape_info"), says("done"))
    async with running(memory_store, model, options(channel, limit=100), channel=channel) as bench:
        await bench.say("hello")
    ended = [event for event in channel.events if isinstance(event, ToolFinished)]
    assert [(one.name, one.ok) for one in ended] == [("nothing_here", False), ("tape_info", True)]
    assert ended[1].spilled
    assert ended[1].size > 100


async def test_a_model_that_streams_nothing_is_shown_all_the_same(memory_store: InMemoryStore) -> None:
    channel = Shown()
    async with running(memory_store, replying(ModelReply("all at once")), options(channel), channel=channel) as bench:
        assert (await bench.say("hello")).text == channel.text == "all at once"


@pytest.mark.parametrize("failing", [TurnStarted, TextStreamed, ToolStarted, TurnFinished])
async def test_a_preview_that_fails_is_logged_once_and_the_answer_arrives(
    memory_store: InMemoryStore, caplog: pytest.LogCaptureFixture, failing: type[Preview]
) -> None:
    channel = Shown(failing)
    model = Played(calls("tape_info"), says("the answer"))
    async with running(memory_store, model, options(channel), channel=channel) as bench:
        with caplog.at_level(logging.WARNING):
            assert (await bench.say("hello")).status == "answered"
        assert channel.texts == ["the answer"]
        assert [record.message for record in caplog.records] == ["preview failed"]
        assert isinstance(channel.events[-1], failing)
        await bench.say("again")
    assert sum(isinstance(event, TurnStarted) for event in channel.events) == 2


async def test_previews_are_no_facts(memory_store: InMemoryStore) -> None:
    kinds: list[list[str]] = []
    for channel in (Shown(), KeptChannel()):
        store = InMemoryStore()
        given = options(channel) if isinstance(channel, Shown) else Options()
        async with running(store, ScriptedModel(), given, channel=channel) as bench:
            await bench.say("hello")
            kinds.append([entry.name or entry.kind for entry in await bench.entries()])
    assert kinds[0] == kinds[1]


async def test_a_session_of_a_channel_that_is_not_there_is_shown_nowhere() -> None:
    here = Shown()
    sink = PreviewSink({"stdin": here})
    sink("elsewhere:home", TurnStarted())
    assert here.events == []
    sink("stdin:home", TurnStarted())
    assert here.events == [TurnStarted()]


class TestStop:
    async def test_it_ends_the_running_turn_and_is_not_itself_kept(self, memory_store: InMemoryStore) -> None:
        channel = Shown()
        model = Played({"text": "late", "delay": 60}, says("here"))
        async with running(memory_store, model, options(channel), channel=channel) as bench:
            waiting, queued = await bench.post("first"), await bench.post("second")
            while not bench.requests:  # noqa: ASYNC110 - the model has no bell
                await asyncio.sleep(0)
            before = await memory_store.head(bench.inbox.name)
            async with asyncio.timeout(WAIT):
                await bench.gate.receive(StopRequest("test", "home"))
                assert (await waiting).status == "stopped"
                assert (await queued).text == "here"
            assert TurnFinished("stopped") in channel.events
            names = [entry.name for entry in await bench.entries(bench.inbox.name)]
            assert names[before:] == ["inbox/done", "inbox/done"]
            assert [entry.payload["kind"] for entry in await bench.entries() if entry.kind == Kind.ERROR] == ["stopped"]

    async def test_a_turn_that_is_only_being_opened_is_stopped_too(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, Played(says("here"))) as bench:
            accepted = await bench.inbox.accept(bench.inbound("first"))
            assert accepted is not None
            waiting = bench.app.submit(accepted)
            assert bench.app.stop(HOME)
            async with asyncio.timeout(WAIT):
                assert (await waiting).status == "stopped"
            assert bench.requests == []
            assert (await bench.say("second")).status == "answered"

    async def test_where_nothing_runs_it_does_nothing(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.gate.receive(StopRequest("test", "home"))
            await bench.say("hello")
            await bench.gate.receive(StopRequest("test", "home"))
            await bench.gate.receive(StopRequest("test", "home", "thread"))
            assert (await bench.say("again")).status == "answered"
