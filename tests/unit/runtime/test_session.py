"""A session: one tape, one turn at a time, and whatever happens in a turn is a fact with an answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from bubbot.arguments.fields import NoArguments
from bubbot.errors import DeliveryFailed
from bubbot.models.scripted import ScriptedModel
from bubbot.models.unconfigured import UnconfiguredModel
from bubbot.ports.channel import Quote, Sender
from bubbot.ports.model import Model, ModelReply
from bubbot.ports.turn import Turn
from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.entry import Kind
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts
from bubbot.tool import Tool, tool
from tests.turns import HOME, WAIT, Bench, Options, Played, asked, calls, replying, running, says, texts_of

DEFECT_IN_ENGLISH = "I could not answer this: something went wrong inside me ({name})."


@dataclass
class Floor:
    """A tool in which turns stand until they are let go; `inside` counts them, `most` how many there were at once."""

    inside: int = 0
    most: int = 0
    entered: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    leave: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    def tool(self) -> Tool:
        @tool("stand.here")
        async def stand_here(turn: Turn, args: NoArguments) -> str:
            """Stands."""
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.entered.release()
            try:
                await self.leave.acquire()
            finally:
                self.inside -= 1
            return "left"

        return stand_here

    async def wait_for(self, turns: int) -> None:
        """Returns when so many more have come in."""
        async with asyncio.timeout(WAIT):
            for _ in range(turns):
                await self.entered.acquire()

    def let_go(self, turns: int) -> None:
        for _ in range(turns):
            self.leave.release()


@pytest.fixture
def floor() -> Floor:
    return Floor()


STAND = {"default": [calls("stand_here"), says("done: {text}")]}


async def test_the_first_turn_opens_the_tape_and_the_memory(memory_store: InMemoryStore) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        await bench.say("hello")
        names = [entry.name or entry.kind for entry in await bench.entries()]
        assert names == [
            "session/start", "turn/start", "message", "memory/open", "memory/seal", "system", "message", "loop.step",
            "turn/end",
        ]  # fmt: skip


async def test_a_message_says_who_sent_it_and_where_it_came_from(memory_store: InMemoryStore) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        await bench.say("hello")
        said = next(entry for entry in await bench.entries() if entry.kind == Kind.MESSAGE)
        assert said.meta["sender"] == {"id": "1", "name": "Ann", "role": "owner"}
        assert said.meta["inbound"] == ("bubbot/inbox/test", 1)
        assert said.meta["origin"] == "human"


async def test_the_answer_the_done_inbound_and_the_intent_are_one_merge(sqlite_store: SqliteStore) -> None:
    async with running(sqlite_store, ScriptedModel()) as bench:
        bench.channel.failures = [DeliveryFailed("offline")]
        result = await bench.say("hello")
        (intent,) = await bench.events("outbox/intent", "bubbot/outbox/test")
        (done,) = await bench.events("inbox/done", bench.inbox.name)
        assert (intent["turn"], intent["session"]) == (result.turn_id, HOME)
        assert (done["inbounds"], done["outcome"], done["turn"]) == ((1,), "answered", result.turn_id)


@pytest.mark.law("T14")
class TestTurnsThatFail:
    @pytest.mark.parametrize(
        ("error", "kind"),
        [("unavailable", "model_unavailable"), ("rate_limited", "model_rate_limited"), ("refused", "model_refused")],
    )
    async def test_the_failure_is_told_and_kept(self, store: TapeStore, error: str, kind: str) -> None:
        async with running(store, Played({"error": error, "message": "it rains"})) as bench:
            result = await bench.say("hello")
            assert (result.status, result.text) == (
                "failed",
                f"I could not answer this: it rains. (trace {result.turn_id[:8]})",
            )
            assert bench.channel.texts == [result.text]
            (found,) = [entry for entry in await bench.entries() if entry.kind == Kind.ERROR]
            assert (found.payload["kind"], found.payload["message"]) == (kind, "it rains")
            assert await bench.events("turn/end") == [{"status": "failed"}]

    async def test_the_inbound_is_done(self, store: TapeStore) -> None:
        async with running(store, Played({"error": "unavailable"})) as bench:
            await bench.say("hello")
            assert (await bench.recover()).inbounds == ()
            assert [done["outcome"] for done in await bench.events("inbox/done", bench.inbox.name)] == ["failed"]

    async def test_the_next_turn_works_and_sees_the_message_that_failed(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, Played({"error": "unavailable"}, says("here"))) as bench:
            await bench.say("first")
            assert (await bench.say("second")).text == "here"
            shown = [content.partition("] ")[2] for role, content in asked(bench.requests[1]) if role == "user"]
            assert shown == ["first", "second"]

    async def test_what_it_did_before_it_failed_stays(self, memory_store: InMemoryStore) -> None:
        model = Played(calls("memory_save", content="Likes tea."), {"error": "unavailable"}, says("tea"))
        async with running(memory_store, model) as bench:
            assert (await bench.say("I like tea")).status == "failed"
            await bench.say("what do I like?")
            assert "Likes tea." in bench.requests[-1].system

    async def test_without_a_model_people_are_told_so_and_commands_work(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, UnconfiguredModel()) as bench:
            result = await bench.say("hello")
            assert result.text == f"{Texts().say('no_model')} (trace {result.turn_id[:8]})"
            assert (await bench.say(",tape.info")).status == "answered"

    async def test_a_stopped_turn_says_so_and_the_next_one_works(self, store: TapeStore, floor: Floor) -> None:
        async with running(store, ScriptedModel(STAND), Options([floor.tool()])) as bench:
            waiting = await bench.post("first")
            await floor.wait_for(1)
            assert bench.app.stop(HOME)
            async with asyncio.timeout(WAIT):
                result = await waiting
            assert (result.status, result.text) == ("stopped", "Stopped.")
            assert [entry.payload["kind"] for entry in await bench.entries() if entry.kind == Kind.ERROR] == ["stopped"]
            assert (await bench.recover()).inbounds == ()
            floor.let_go(1)
            assert (await bench.say("second")).text == "done: second"

    async def test_a_stop_after_a_reset_says_that_the_tape_begins_anew(self, memory_store: InMemoryStore) -> None:
        has_begun = asyncio.Event()

        @tool("begin.anew")
        async def begin_anew(turn: Turn, args: NoArguments) -> str:
            """Begin anew, and go on for long."""
            await turn.tape.reset()
            has_begun.set()
            await asyncio.Event().wait()
            return "done"

        async with running(memory_store, ScriptedModel(), Options([begin_anew])) as bench:
            await bench.say("before")
            waiting = await bench.post(",begin.anew")
            async with asyncio.timeout(WAIT):
                await has_begun.wait()
                assert bench.app.stop(HOME)
                result = await waiting
            assert (result.status, result.text) == ("stopped", Texts().say("stopped_anew"))
            assert "before" not in [entry.payload.get("content") for entry in await bench.entries()]

    async def test_a_stop_reaches_a_model_that_is_thinking(self, memory_store: InMemoryStore) -> None:
        model = Played({"text": "late", "delay": 60}, says("ok"))
        async with running(memory_store, model) as bench:
            waiting = await bench.post("first")
            async with asyncio.timeout(WAIT):
                while not bench.requests:  # noqa: ASYNC110 - until the model is asked
                    await asyncio.sleep(0)
                assert bench.app.stop(HOME)
                assert (await waiting).status == "stopped"
            assert (await bench.say("second")).text == "ok"


async def test_a_stop_where_nothing_runs_says_so(memory_store: InMemoryStore) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        assert not bench.app.stop(HOME)
        await bench.say("hello")
        assert not bench.app.stop(HOME)
        assert not bench.app.stop("test:nobody")


class TestOrder:
    async def test_one_turn_of_a_session_runs_at_a_time(self, memory_store: InMemoryStore, floor: Floor) -> None:
        async with running(memory_store, ScriptedModel(STAND), Options([floor.tool()])) as bench:
            waiting = [await bench.post(text) for text in ("one", "two", "three")]
            await floor.wait_for(1)
            assert len(await memory_store.forks()) == 1
            floor.let_go(3)
            async with asyncio.timeout(WAIT):
                results = [await one for one in waiting]
            assert floor.most == 1
            assert [result.text for result in results] == ["done: one", "done: two", "done: three"]
            assert texts_of(await bench.entries(), "user") == ["one", "two", "three"]

    async def test_several_sessions_run_at_once(self, store: TapeStore, floor: Floor) -> None:
        async with running(store, ScriptedModel(STAND), Options([floor.tool()])) as bench:
            waiting = [await bench.post(f"for {chat}", chat=chat) for chat in "abcd"]
            await floor.wait_for(4)
            assert floor.most == 4
            floor.let_go(4)
            async with asyncio.timeout(WAIT):
                results = [await one for one in waiting]
            assert [result.text for result in results] == [f"done: for {chat}" for chat in "abcd"]
            for chat in "abcd":
                assert texts_of(await bench.entries(f"test:{chat}"), "user") == [f"for {chat}"]

    async def test_the_global_limit_holds_the_rest_back(self, memory_store: InMemoryStore, floor: Floor) -> None:
        async with running(memory_store, ScriptedModel(STAND), Options([floor.tool()], at_once=2)) as bench:
            waiting = [await bench.post("x", chat=chat) for chat in "abcde"]
            await floor.wait_for(2)
            floor.let_go(5)
            async with asyncio.timeout(WAIT):
                await asyncio.gather(*waiting)
            assert floor.most == 2

    async def test_answers_go_out_in_the_order_of_their_messages(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            waiting = [await bench.post(str(number)) for number in range(20)]
            async with asyncio.timeout(WAIT):
                await asyncio.gather(*waiting)
            assert bench.channel.texts == [f"You said: {number}" for number in range(20)]


class TestTheSameMessageAgain:
    async def test_it_is_answered_once(self, store: TapeStore) -> None:
        async with running(store, ScriptedModel()) as bench:
            await bench.say("hello", external_id="42")
            assert await bench.gate.accept(bench.inbound("hello", external_id="42")) is None
            assert await bench.gate.accept(bench.inbound("something else", external_id="42")) is None
            await bench.app.wait_idle()
            assert bench.channel.texts == ["You said: hello"]
            assert texts_of(await bench.entries(), "user") == ["hello"]

    async def test_it_is_answered_once_when_it_comes_twice_at_the_same_time(self, store: TapeStore) -> None:
        async with running(store, ScriptedModel()) as bench:
            found = await asyncio.gather(
                *[bench.gate.accept(bench.inbound("hello", external_id="42")) for _ in range(8)]
            )
            (only,) = [one for one in found if one is not None]
            async with asyncio.timeout(WAIT):
                await only
                await bench.app.wait_idle()
            assert bench.channel.texts == ["You said: hello"]

    async def test_it_is_known_after_a_restart(self, store: TapeStore) -> None:
        async with running(store, ScriptedModel()) as bench:
            await bench.say("hello", external_id="42")
        async with running(store, ScriptedModel(), life="second") as bench:
            assert await bench.resume() == []
            assert await bench.gate.accept(bench.inbound("hello", external_id="42")) is None


@pytest.mark.parametrize("text", [" ", "\x00", "\ud800", "漢字👍", "x" * 100_000, "[SILENT]", "</memory>"])
async def test_every_text_becomes_a_turn(store: TapeStore, text: str) -> None:
    async with running(store, Played(says("ok"))) as bench:
        result = await bench.say(text)
        assert (result.status, result.text) == ("answered", "ok")
        assert not _blank(bench)


def _blank(bench: Bench) -> list[object]:
    return [content for _, content in asked(bench.requests[-1]) if not str(content).strip()]


async def test_a_message_no_turn_can_be_made_of_ends_with_a_failure_and_ends_nothing_else(
    sqlite_store: SqliteStore,
) -> None:
    """An adapter of somebody else's may put anything into an inbound."""
    odd: Any = 7
    async with running(sqlite_store, ScriptedModel()) as bench:
        failed = await bench.say("poison", quote=Quote("1", Sender("2", odd), "x"))
        assert (failed.status, "AttributeError" in failed.text) == ("failed", True)
        assert bench.channel.texts == [failed.text]
        assert (await bench.say("hello")).text == "You said: hello"
        assert (await bench.recover()).inbounds == ()
    async with running(sqlite_store, ScriptedModel(), life="second") as bench:
        assert await bench.resume() == []
        assert (await bench.say("again")).text == "You said: again"


class UnreadableTexts(Texts):
    """Sentences of a package that was replaced under the bot."""

    def say(self, name: str, /, **values: object) -> str:
        """Raise what the missing file raises."""
        raise FileNotFoundError(name)


class TestWithoutSentences:
    """A failure is told in English; it ends its turn and nothing else."""

    @pytest.mark.parametrize(
        ("model", "name"),
        [
            (Played({"error": "unavailable"}, says("here")), "ModelUnavailable"),
            (replying(ModelReply("x", finish="length"), ModelReply("here")), "FileNotFoundError"),
        ],
        ids=["a model that fails", "an answer with a remark"],
    )
    async def test_a_turn_that_fails(self, sqlite_store: SqliteStore, model: Model, name: str) -> None:
        async with running(sqlite_store, model, Options(texts=UnreadableTexts())) as bench:
            failed = await bench.say("hello")
            assert failed.text == f"I could not answer this: something went wrong inside me ({name})."
            assert bench.channel.texts == [failed.text]
            assert (await bench.say("again")).text == "here"
            assert (await bench.recover()).inbounds == ()

    async def test_a_turn_that_is_stopped(self, sqlite_store: SqliteStore, floor: Floor) -> None:
        async with running(
            sqlite_store, ScriptedModel(STAND), Options([floor.tool()], texts=UnreadableTexts())
        ) as bench:
            waiting = await bench.post("first")
            await floor.wait_for(1)
            assert bench.app.stop(HOME)
            async with asyncio.timeout(WAIT):
                assert (await waiting).text == DEFECT_IN_ENGLISH.format(name="FileNotFoundError")
            floor.let_go(1)
            assert (await bench.say("second")).text == "done: second"

    async def test_a_message_no_turn_can_be_made_of(self, sqlite_store: SqliteStore) -> None:
        odd: Any = 7
        async with running(sqlite_store, ScriptedModel(), Options(texts=UnreadableTexts())) as bench:
            failed = await bench.say("poison", quote=Quote("1", Sender("2", odd), "x"))
            assert failed.text == DEFECT_IN_ENGLISH.format(name="AttributeError")
            assert (await bench.say("hello")).text == "You said: hello"


class TestStopAndStatus:
    """A `,status` is answered although a `,stop` follows at once, as in a pipe."""

    async def test_a_stop_right_behind_it_leaves_the_status_alone(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            async with bench.app.exclusive(HOME):
                for line in (",status", ",stop"):
                    await bench.gate.receive(bench.inbound(line))
            await bench.quiet()
            assert len(bench.channel.texts) == 2
            assert Texts().say("NothingToStop") in bench.channel.texts
            assert any(text.startswith("I am listening.") for text in bench.channel.texts)

    async def test_the_message_behind_the_status_is_stopped(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            async with bench.app.exclusive(HOME):
                status = await bench.post(",status")
                stopped = await bench.post("hello")
                assert bench.app.stop(HOME)
            assert ((await status).status, (await stopped).status) == ("answered", "stopped")
            assert bench.requests == []
            assert (await bench.say("again")).status == "answered"
