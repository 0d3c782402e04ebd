"""After an absence: what came too long ago is recorded and told in one notice; the rest is answered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bubbot.models.scripted import ScriptedModel
from bubbot.ports.health import RuntimeLoad
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts
from tests.gateways import Stage, rules
from tests.turns import HOME, Options, Played, asked, running, says, texts_of
from tests.virtual import virtual

DAY = 86_400.0

SAY = Texts().say


def gone(count: int, first: str, last: str) -> str:
    """What a chat is told of messages that came too long ago."""
    begin, end = (time[:16].replace("T", " ") for time in (first, last))
    return SAY("too_old", count=count, when=begin if count == 1 else f"{begin} to {end}")


def at(hour: int, day: int = 19) -> str:
    return f"2026-11-{day}T{hour:02}:00:00+00:00"


def back(store: TapeStore | None = None, life: str = "first", **given: Any) -> Any:
    """A bot that has been away; it is the 21st, 20:21."""
    options = Options(rules=rules(1.0, stale_after=DAY, **given))
    return running(store or InMemoryStore(), ScriptedModel(), options, channel=Stage(), life=life)


@virtual
async def test_one_notice_stands_for_all_of_them_and_the_young_ones_are_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with back() as bench:
        for number in range(50):
            sender = str(number % 3 + 1)
            await bench.gate.receive(bench.inbound(f"old {number}", time=at(number % 24), sender=sender))
        await bench.gate.receive(bench.inbound(",new", time=at(1, 20)))
        await bench.gate.receive(bench.inbound("young", time=at(20, 21)))
        await bench.quiet()
        assert bench.channel.texts == [gone(51, at(0), at(1, 20)), "You said: young"]
        assert len(bench.requests) == 1
        assert texts_of(await bench.entries(), "user") == [*(f"old {number}" for number in range(50)), "young"]
        assert await bench.events("command") == []
        assert (await bench.recover()).inbounds == ()
        outcomes = [done["outcome"] for done in await bench.events("inbox/done", bench.inbox.name)]
        assert outcomes == ["too_old", "answered"]
    warned = [one for one in caplog.records if getattr(one, "action", "") == "turn.too_old"]
    assert [one.levelname for one in warned] == ["WARNING"]  # a wrong clock looks like an absence


@virtual
async def test_what_was_heard_among_them_makes_no_second_notice() -> None:
    async with back() as bench:
        for number in range(6):
            await bench.gate.receive(bench.inbound(f"old {number}", time=at(number)))
            heard = await bench.inbox.record_change(bench.inbound(f"heard {number}", time=at(number), direct=False))
            assert heard is not None
            bench.gate.resume_change(heard)
        await bench.quiet()
        assert bench.channel.texts == [gone(6, at(0), at(5))]


@virtual
async def test_each_chat_gets_its_own() -> None:
    async with back() as bench:
        for chat in ("a", "b", "a"):
            await bench.gate.receive(bench.inbound("old", time=at(3), chat=chat))
        await bench.quiet()
        assert sorted(part.chat for part in bench.channel.sent) == ["a", "b"]


@virtual
async def test_what_an_earlier_process_accepted_and_began_is_answered_however_late() -> None:
    store = InMemoryStore()
    async with running(store, Played({"text": "never", "delay": 60}), Options(rules=rules())) as bench:
        await bench.gate.receive(bench.inbound("begun", time=at(3)))
        await asyncio.sleep(1)
        await bench.gate.receive(bench.inbound("not begun", time=at(4)))
    async with back(store, "second") as bench:
        await bench.resume()
        await bench.quiet()
        assert bench.channel.texts == ["You said: begun", gone(1, at(4), at(4))]


@virtual
async def test_without_an_age_everything_is_answered() -> None:
    async with running(InMemoryStore(), ScriptedModel(), Options(rules=rules())) as bench:
        await bench.say("old", time="2020-01-01T00:00:00+00:00")
        await bench.quiet()
        assert bench.channel.texts == ["You said: old"]


@virtual
async def test_a_chat_has_only_so_many_turns_at_once_over_its_threads() -> None:
    model = Played({"text": "slow", "delay": 10})
    async with running(InMemoryStore(), model, Options(rules=rules()), channel=Stage()) as bench:
        for thread in "abcd":
            await bench.gate.receive(bench.inbound("hello", thread=thread))
        await bench.gate.receive(bench.inbound("hello", chat="other"))
        await asyncio.sleep(5)
        assert [bench.app.session_activity(f"{HOME}:{thread}")[0] for thread in "abcd"] == [True, True, False, False]
        assert bench.app.session_activity("test:other")[0]
        await bench.quiet(100)
        assert bench.channel.texts == ["slow"] * 5
        assert asyncio.get_running_loop().time() == pytest.approx(20)


class TestForgetting:
    """Idle sessions are not kept for ever."""

    @virtual
    async def test_only_so_many_idle_sessions_are_remembered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        kept = 20
        monkeypatch.setattr("bubbot.runtime.app.MAX_IDLE_SESSIONS", kept)
        async with running(InMemoryStore(), Played(says("ok")), Options(rules=rules())) as bench:
            for number in range(kept + 20):
                await bench.say("hello", chat=str(number))
            await asyncio.sleep(1)
            assert bench.app.measure_load() == RuntimeLoad(0, 0, kept)
            assert (await bench.say("again", chat="0")).status == "answered"
            assert [content.partition("] ")[2] for role, content in asked(bench.requests[-1]) if role == "user"] == [
                "hello", "again",
            ]  # fmt: skip

    @virtual
    async def test_idle_sessions_keep_only_so_many_entries_of_their_windows(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("bubbot.runtime.app.MAX_CACHED_ENTRIES", 40)
        async with running(InMemoryStore(), Played(says("ok")), Options(rules=rules())) as bench:
            for number in range(20):
                for text in ("hello", "and again"):
                    await bench.say(text, chat=str(number))
                    await asyncio.sleep(1)
            assert 1 < bench.app.measure_load().sessions < 20
            assert (await bench.say("again", chat="0")).status == "answered"
            assert "hello" in str(bench.requests[-1].messages)

    @virtual
    async def test_a_session_in_use_is_never_forgotten(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("bubbot.runtime.app.MAX_IDLE_SESSIONS", 0)
        model = Played({"text": "slow", "delay": 5})
        async with running(InMemoryStore(), model, Options(rules=rules())) as bench:
            async with bench.app.exclusive(HOME):
                await bench.post("hello")
                await bench.say("elsewhere", chat="other")
                assert bench.app.session_activity(HOME) == (False, 1)
                assert len(bench.requests) == 1
            await bench.quiet()
            await asyncio.sleep(1)
            assert len(bench.requests) == 2
            assert bench.app.measure_load() == RuntimeLoad(0, 0, 0)

    @virtual
    async def test_the_tape_stays_exclusive_while_others_come_and_go(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("bubbot.runtime.app.MAX_IDLE_SESSIONS", 0)
        async with running(InMemoryStore(), Played(says("ok")), Options(rules=rules())) as bench:
            async with bench.app.exclusive(HOME):
                for _ in range(3):
                    await bench.say("elsewhere", chat="other")
                waiting = await bench.post("hello")
                await asyncio.sleep(10)
                assert not waiting.done()
            assert (await waiting).status == "answered"
