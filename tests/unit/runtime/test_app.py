"""The application runtime: every inbound finds its session, and sessions do not see each other."""

from __future__ import annotations

import asyncio
import gc

import pytest

from bubbot.errors import ConfigError, StoreUnavailable
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.turn import AcceptedInbound, TapeChange
from bubbot.runtime.app import AppRuntime
from bubbot.stores.inmemory import InMemoryStore
from tests.turns import CHANNEL, HOME, WAIT, KeptChannel, Played, calls, running, says, texts_of


async def test_chats_have_tapes_of_their_own(memory_store: InMemoryStore) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        await bench.say("a secret", chat="a")
        await bench.say("hello", chat="b")
        assert texts_of(await bench.entries("test:b"), "user") == ["hello"]
        assert "a secret" not in str(bench.requests[1].messages)


async def test_what_one_chat_remembers_the_other_does_not(memory_store: InMemoryStore) -> None:
    model = Played(calls("memory_save", content="Likes tea."), says("noted"), says("what?"))
    async with running(memory_store, model) as bench:
        await bench.say("I like tea", chat="a")
        await bench.say("what do I like?", chat="b")
        assert "tea" not in bench.requests[-1].system


async def test_a_channel_that_does_not_run_here_is_an_error(memory_store: InMemoryStore) -> None:
    async with (
        running(memory_store, ScriptedModel()) as bench,
        running(memory_store, ScriptedModel(), channel=KeptChannel("other"), life="other") as other,
    ):
        with pytest.raises(ConfigError, match="no channel other runs here"):
            bench.app.submit(AcceptedInbound(1, other.inbound("hello")))


async def test_it_is_idle_when_no_session_has_anything_to_do(memory_store: InMemoryStore) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        await bench.app.wait_idle()
        waiting = [await bench.post("hello", chat=chat) for chat in "abc"]
        async with asyncio.timeout(WAIT):
            await bench.app.wait_idle()
        assert all(one.done() for one in waiting)


async def test_a_session_is_taken_up_again_after_it_was_idle(memory_store: InMemoryStore) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        for number in range(3):
            assert (await bench.say(str(number))).text == f"You said: {number}"
            await bench.app.wait_idle()


async def test_a_message_that_comes_when_everything_ends_is_refused_and_owed_still(
    memory_store: InMemoryStore,
) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        pass
    with pytest.raises(RuntimeError, match="finished"):
        await bench.gate.accept(bench.inbound("hello"))
    gc.collect(1)  # a task that was never begun would be told here
    assert [one.inbound.text for one in await bench.inbox.open_inbounds()] == ["hello"]


async def test_a_message_that_could_not_be_written_is_not_taken_for_one_on_its_way(
    memory_store: InMemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    apps: list[AppRuntime] = []

    async def fail(_: object) -> None:
        raise StoreUnavailable("no")

    async def live() -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            apps.append(bench.app)
            monkeypatch.setattr(memory_store, "append", fail)
            bench.app.submit_change(TapeChange(1, bench.inbound("overheard", external_id="m9")))
            async with asyncio.timeout(WAIT):
                await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        await live()
    assert caught.group_contains(StoreUnavailable)
    assert not await apps[0].has_message(CHANNEL, HOME, "m9")


async def test_a_store_that_fails_is_not_survived_in_silence(memory_store: InMemoryStore) -> None:
    apps: list[AppRuntime] = []

    async def live() -> None:
        async with running(memory_store, Played({"text": "late", "delay": 0.01})) as bench:
            apps.append(bench.app)
            await bench.post("hello")
            await memory_store.aclose()
            async with asyncio.timeout(WAIT):
                await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        await live()
    assert caught.group_contains(StoreUnavailable)
    assert apps[0].session_activity(HOME) == (False, 0)  # no turn is shown as running that nothing runs
