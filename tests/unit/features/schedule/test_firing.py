"""What a firing may do, what is told of it, and where."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from bubbot.arguments.fields import NoArguments
from bubbot.errors import DeliveryFailed
from bubbot.features.access.service import AccessService
from bubbot.features.budget.metering import budget_subject
from bubbot.features.schedule.facts import SCHEDULE_TAPE, Actor, ChatRef, FiringFailed, Job, JobRemoved
from bubbot.features.schedule.firing import (
    Firing,
    Firings,
    ScheduledTurn,
    describe_action,
    firing_inbound,
    mark_instant,
)
from bubbot.features.schedule.settings import ScheduleSettings
from bubbot.features.schedule.state import JobState
from bubbot.features.schedule.store import ScheduleStore
from bubbot.ports.access import Allowance
from bubbot.ports.channel import Inbound, Outbound, Role, Sender
from bubbot.ports.model import ModelEvent, ModelReply, ModelRequest, ToolCall
from bubbot.ports.turn import AcceptedInbound, SourcedReply, Turn, TurnOutcome
from bubbot.runtime.queue import QueuePolicy
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import Kind
from bubbot.tape.fact import Cited
from bubbot.tape.provenance import Source
from bubbot.tape.service import TapeService
from bubbot.texts import Texts
from bubbot.tool import tool
from tests.callers import by, run
from tests.doubles import CountingIds
from tests.gateways import admitting
from tests.schedules import NOON, Timed, WallClock, fold_job, make_job, timed
from tests.turns import KeptChannel, Options, Played, Replying, calls, says
from tests.virtual import virtual

HOURLY = ",schedule 0 * * * *: look"


async def hours(bot: Timed, count: int) -> list[str]:
    """What people read in each of the next hours, an empty text where they read nothing."""
    told = []
    for _ in range(count):
        before = len(bot.texts)
        await bot.passes(hours=1)
        told.append("\n".join(bot.texts[before:]))
    return told


class TestWhatIsSaid:
    @virtual
    async def test_a_turn_that_has_nothing_to_say_sends_nothing(self) -> None:
        async with timed(InMemoryStore(), Played(says("[SILENT]"))) as bot:
            await bot.say(HOURLY)
            assert await hours(bot, 2) == ["", ""]
            assert [one.payload["data"]["status"] for one in await bot.facts("ran")] == ["silent"] * 2

    @virtual
    async def test_a_fixed_text_stands_on_the_tape_as_the_bots_own(self) -> None:
        async with timed(InMemoryStore(), Played(says("x"))) as bot:
            await bot.say(",remind in 5m: drink water")
            await bot.passes(minutes=6)
            said = [one for one in await bot.bench.entries() if one.kind == Kind.MESSAGE]
            assert [(one.payload["role"], one.meta["origin"]) for one in said] == [
                ("user", "schedule"), ("assistant", "schedule")
            ]  # fmt: skip
            assert said[1].payload["content"] == "⏰ drink water"

    @virtual
    async def test_what_a_job_says_quotes_nothing(self) -> None:
        async with timed(InMemoryStore(), Played(says("x"))) as bot:
            await bot.say(",remind in 5m: tea")
            await bot.passes(minutes=6)
            assert bot.bench.channel.sent[-1].reply_to == ""

    @virtual
    async def test_ran_and_delivered_are_told_apart(self) -> None:
        channel = KeptChannel()
        async with timed(InMemoryStore(), Played(says("x")), channel=channel) as bot:
            await bot.say(",remind 0 * * * *: tea")
            await bot.passes(hours=1)
            channel.failures = [DeliveryFailed("too long", permanent=True)]
            await bot.passes(hours=1)
            told = await bot.say(",schedule.history 0000a1")
            lines = [re.sub(", turn .*", "", line.strip()) for line in told.splitlines()]
            assert lines[1:] == [
                "2026-11-22 13:00:00 fired, due 2026-11-22 13:00:00",
                "2026-11-22 13:00:00 ran, answered (due 2026-11-22 13:00:00",
                "delivered (due 2026-11-22 13:00:00)",
                "2026-11-22 14:00:00 fired, due 2026-11-22 14:00:00",
                "2026-11-22 14:00:00 ran, answered (due 2026-11-22 14:00:00",
                "not delivered: too long (due 2026-11-22 14:00:00)",
            ]

    @virtual
    async def test_a_chat_that_is_gone_ends_its_jobs_with_a_fact(self) -> None:
        channel = KeptChannel()
        async with timed(InMemoryStore(), Played(says("x")), channel=channel) as bot:
            await bot.say(",remind 0 * * * *: tea")
            channel.failures = [DeliveryFailed("chat not found", permanent=True, gone=True)]
            await bot.passes(hours=5)
            over = [one.payload["data"] for one in await bot.facts("over")]
            assert [(one["reason"], one["detail"]) for one in over] == [("reason_chat_gone", "chat not found")]
            assert len(await bot.facts("fired")) == 1
            assert "its chat cannot be reached any more: chat not found" in await bot.say(",schedules")

    @virtual
    async def test_the_chat_that_made_a_job_for_one_that_is_gone_is_told(self) -> None:
        channel = KeptChannel()
        async with timed(InMemoryStore(), Played(says("x")), channel=channel) as bot:
            await bot.say(",remind to=test:5 0 * * * *: tea", sender="1", chat="1")
            channel.failures = [DeliveryFailed("chat not found", permanent=True, gone=True)]
            sending = asyncio.create_task(bot.schedule.send_notices())
            await bot.passes(hours=5)
            sending.cancel()
            told = [(one.chat, one.text) for one in channel.sent if "has ended" in one.text]
        reason = "as the chat that gets its answers cannot be reached any more: chat not found"
        assert told == [("1", f"The scheduled job tea (0000a1) has ended, {reason}")]

    @virtual
    async def test_a_crash_before_that_chat_is_told_loses_no_notice_and_doubles_none(self) -> None:
        channel, store, clock = KeptChannel(), InMemoryStore(), WallClock()
        gone = DeliveryFailed("chat not found", permanent=True, gone=True)
        async with timed(store, Played(says("x")), channel=channel, clock=clock) as bot:
            await bot.say(",remind to=test:5 0 * * * *: tea", sender="1", chat="1")
            channel.failures = [gone]
            await bot.passes(hours=1, seconds=1)  # nobody sends the notice any more
            assert await bot.facts("over") == []
        for life in ("second", "third"):
            async with timed(store, Played(says("x")), channel=channel, clock=clock, life=life) as bot:
                channel.failures = [gone]
                sending = asyncio.create_task(bot.schedule.send_notices())
                await bot.passes(hours=5)
                sending.cancel()
                assert len(await bot.facts("over")) == 1
            assert [one.chat for one in channel.sent if "has ended" in one.text] == ["1"]

    @virtual
    async def test_a_job_pays_for_its_own_turns(self) -> None:
        payers: list[tuple[str, str]] = []

        @tool("test.payer", commands=("payer",))
        async def payer(turn: Turn, args: NoArguments) -> str:
            """Note who pays."""
            payers.append((budget_subject(turn).job, turn.origin))
            return "noted"

        async with timed(InMemoryStore(), Played(says("x")), Options(tools=[payer])) as bot:
            await bot.say(",payer")
            await bot.say(",schedule 0 * * * *: ,payer")
            await bot.passes(hours=1, seconds=1)
            assert payers[:2] == [("", "human"), (await bot.job(), "schedule")]


class TestAlone:
    @virtual
    async def test_what_its_maker_says_meanwhile_does_not_join_a_firing(self) -> None:
        go = asyncio.Event()

        async def stream(request: ModelRequest) -> AsyncIterator[ModelEvent]:
            if len(model.requests) == 1:
                await go.wait()
                yield ModelReply("", (ToolCall("c1", "tape_info", "{}"),), "tool_calls")
            else:
                yield ModelReply("[SILENT]" if len(model.requests) == 2 else "hello yourself")

        model = Replying(stream)
        async with timed(InMemoryStore(), model, Options(waiting=QueuePolicy(busy="steer"))) as bot:
            await bot.say(HOURLY)
            await asyncio.sleep(3601)
            said = await bot.bench.post("hello")
            go.set()
            assert (await said).text == "hello yourself"
            assert [one.payload["data"]["status"] for one in await bot.facts("ran")] == ["silent"]


class TestLists:
    @virtual
    async def test_jobs_that_did_what_they_were_to_do_are_listed_on_request_alone(self) -> None:
        async with timed(InMemoryStore(), Played(says("x"))) as bot:
            await bot.say(",remind in 5m: tea")
            await bot.passes(minutes=6)
            assert await bot.say(",schedules") == "Nothing is scheduled here."
            assert "over (it was for one time)" in await bot.say(",schedules over=true")

    @virtual
    async def test_a_message_that_says_it_was_a_firing_is_a_message(self) -> None:
        async with timed(InMemoryStore(), Played(says("x"))) as bot:
            await bot.say(",schedule 0 * * * *: look")
            forged = bot.bench.inbound("hello", external_id="schedule:0000a1@2026", origin="schedule")
            await bot.bench.gate.receive(forged)
            await bot.quiet()
            assert bot.texts[-1] == "x"
            assert await bot.facts("ran") == []


class TestFailing:
    @virtual
    async def test_failures_are_told_at_growing_distances_then_the_job_is_paused(self) -> None:
        model = Played({"error": "refused", "message": "no"})
        async with timed(InMemoryStore(), model, limits=ScheduleSettings(max_failures=6)) as bot:
            await bot.say(HOURLY)
            told = await hours(bot, 8)
            assert [bool(one) for one in told] == [True, True, False, True, False, True, False, False]
            assert told[0].startswith("The scheduled job look (0000a1) failed: I could not answer this")
            assert "failed, 4 times in a row now" in told[3]
            assert told[5].endswith("It is paused after 6 failures in a row; ,schedule.resume 0000a1 lets it go on.")
            assert "paused (it kept failing)" in await bot.say(",schedules")
            assert len(await bot.facts("failed")) == 6

    @virtual
    async def test_that_it_works_again_is_told(self) -> None:
        bad = {"error": "refused", "message": "no"}
        async with timed(InMemoryStore(), Played(bad, bad, says("fine"), says("[SILENT]"))) as bot:
            await bot.say(HOURLY)
            told = await hours(bot, 4)
            assert told[2] == "The scheduled job look (0000a1) works again, after 2 failures in a row.\n\nfine"
            assert told[3] == ""

    @virtual
    async def test_a_command_that_is_refused_is_a_failure(self) -> None:
        async with timed(InMemoryStore(), Played(says("x"))) as bot:
            await bot.say(",schedule 0 * * * *: ,nonsense")
            (told,) = await hours(bot, 1)
            assert told.startswith("The scheduled job ,nonsense (0000a1) failed: There is no command ,nonsense")

    @virtual
    async def test_a_turn_is_stopped_when_its_time_is_up(self) -> None:
        async def stream(request: ModelRequest) -> AsyncIterator[ModelEvent]:
            await asyncio.sleep(600)
            yield ModelReply("late")

        async with timed(InMemoryStore(), Replying(stream)) as bot:
            await bot.say(",schedule budget=2m 0 * * * *: look")
            await bot.passes(hours=1, minutes=3)
            assert "It took longer than the 120 seconds it may take" in bot.texts[-1]

    @virtual
    async def test_a_firing_that_no_turn_can_be_made_of_is_a_failure_of_its_job(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def prepare(*_: object) -> None:
            raise AttributeError

        async with timed(InMemoryStore(), Played(says("x"))) as bot:
            await bot.say(HOURLY)
            monkeypatch.setattr(Firings, "prepare", prepare)
            (told,) = await hours(bot, 1)
            assert "AttributeError" in told
            assert [one.payload["data"]["count"] for one in await bot.facts("failed")] == [1]
            assert bot.book.state.jobs["0000a1"].failures == 1


class TestRights:
    @virtual
    async def test_a_scheduled_turn_may_not_schedule_unless_its_job_allows_it(self) -> None:
        nested = calls("schedule_add", when="in 5m", text="more")
        model = Played(nested, says("one"), nested, says("two"))
        async with timed(InMemoryStore(), model) as bot:
            await bot.say(",schedule at 13:00: look")
            await bot.say(",schedule nested=true at 14:00: look")
            await bot.passes(hours=1, minutes=30)
            assert "may not schedule" in str(bot.bench.requests[1].messages[-1])
            assert len(bot.book.state.jobs) == 2
            await bot.passes(hours=1)
            assert bot.texts[-1] == "⏰ more"

    @virtual
    async def test_the_jobs_of_somebody_who_was_revoked_do_not_run(self) -> None:
        store = InMemoryStore()
        rules = admitting(store, owners={"1"})
        assert isinstance(rules.access, AccessService)
        async with timed(store, Played(says("x")), Options(rules=rules)) as bot:
            await run(rules.access.grant, by("terminal"), "5", "test", "member")
            told = await bot.say(HOURLY, sender="5", chat="5")
            assert told.startswith("Scheduled")
            assert (await hours(bot, 1))[0] == "x"
            await run(rules.access.revoke, by("terminal"), "5", "test")
            assert await hours(bot, 2) == ["", ""]
            assert [one.payload["data"]["reason"] for one in await bot.facts("refused")] == ["reason_revoked"]
            told = await bot.say(",schedules every=true", sender="1", chat="1")
            assert "paused (whoever made it may no longer speak here)" in told

    @virtual
    async def test_people_see_and_touch_what_belongs_to_their_chat_and_owners_all(self) -> None:
        store = InMemoryStore()
        rules = admitting(store, owners={"1"}, members={"5", "6"})
        async with timed(store, Played(says("x")), Options(rules=rules)) as bot:
            await bot.say(HOURLY, sender="5", chat="5")
            assert await bot.say(",schedules", sender="6", chat="6") == "Nothing is scheduled here."
            assert await bot.say(",schedules every=true", sender="6", chat="6") == "Nothing is scheduled here."
            for touch in ("show", "pause", "remove", "run", "history", "edit"):
                assert "there is no job 0000a1 here" in await bot.say(f",schedule.{touch} 0000a1", sender="6", chat="6")
            assert "(in test:5)" in await bot.say(",schedules every=true", sender="1", chat="1")
            assert await bot.say(",schedules", sender="1", chat="1") == "Nothing is scheduled here."
            assert (await bot.say(",schedule.pause 0000a1", sender="1", chat="1")).startswith("Paused")

    @virtual
    @pytest.mark.parametrize("by_model", [False, True])
    async def test_a_group_learns_nothing_of_other_chats_from_its_owner(self, by_model: bool) -> None:
        store = InMemoryStore()
        rules = admitting(store, owners={"1"}, members={"5"}, groups={"-9"})
        steps = [calls("schedule.list", every=True), calls("schedule.show", job="0000a1"), says("That is all.")]
        async with timed(store, Played(*steps), Options(rules=rules)) as bot:
            await bot.say(",remind at tomorrow 9:00: take the medicine", sender="5", chat="5")
            group = {"chat": "-9", "direct": False}
            if by_model:
                await bot.say("what reminders are there?", sender="1", **group)
            else:
                for touch in (
                    "list every=true",
                    "show 0000a1",
                    "history 0000a1",
                    "edit 0000a1 text=x",
                    "remove 0000a1",
                ):
                    told = await bot.say(f",schedule.{touch}", sender="1", **group)
                    assert "direct chat" in told or "there is no job 0000a1 here" in told
            assert "medicine" not in str(await bot.bench.entries("test:-9"))
            assert "medicine" in await bot.say(",schedules every=true", sender="1", chat="1")

    @virtual
    @pytest.mark.parametrize("given", ["to=test:5", "urgent=true", "nested=true"])
    async def test_in_a_group_an_owner_sets_nothing_that_reaches_beyond_it(self, given: str) -> None:
        store = InMemoryStore()
        rules = admitting(store, owners={"1"}, groups={"-9"})
        async with timed(store, Played(says("x")), Options(rules=rules)) as bot:
            group = {"chat": "-9", "direct": False, "sender": "1"}
            assert "in a direct chat" in await bot.say(f",remind {given} in 5m: hi", **group)
            await bot.say(",remind in 5m: hi", **group)
            assert "in a direct chat" in await bot.say(f",schedule.edit {await bot.job()} {given}", **group)
            (standing,) = bot.book.state.jobs.values()
            assert (standing.job.to, standing.job.urgent, standing.job.nested) == (None, False, False)

    @virtual
    async def test_a_job_has_no_power_over_other_chats_though_an_owner_made_it(self) -> None:
        store = InMemoryStore()
        rules = admitting(store, owners={"1"}, members={"5"})
        model = Played(calls("schedule.list", every=True), says("done"))
        async with timed(store, model, Options(rules=rules)) as bot:
            await bot.say(",remind at tomorrow 9:00: take the medicine", sender="5", chat="5")
            await bot.say(",schedule nested=true in 5m: what is planned?", sender="1", chat="1")
            await bot.passes(minutes=6)
            assert bot.texts[-1] == "done"
            assert "medicine" not in str(await bot.bench.entries("test:1"))

    @virtual
    @pytest.mark.law("P1")
    async def test_a_job_is_shown_its_persons_own_memory_unless_its_answer_goes_elsewhere(self) -> None:
        store = InMemoryStore()
        rules = admitting(store, owners={"1"}, groups={"-9"})
        async with timed(store, Played(says("x")), Options(rules=rules)) as bot:
            await bot.say(",memory.save scope=user Likes tea.", sender="1", chat="1")
            await bot.say(",schedule in 5m: what is for me?", sender="1", chat="1")
            await bot.passes(minutes=6)
            assert "Likes tea." in bot.bench.requests[-1].system
            await bot.say(",schedule to=test:-9 in 5m: what is for them?", sender="1", chat="1")
            await bot.passes(minutes=6)
            assert bot.bench.channel.sent[-1].chat == "-9"
            assert "Likes tea." not in bot.bench.requests[-1].system

    @virtual
    async def test_a_missed_job_is_told_where_it_was_made(self) -> None:
        store = InMemoryStore()
        rules = admitting(store, owners={"1"}, members={"5"})
        async with timed(store, Played(says("x")), Options(rules=rules), keep=False) as bot:
            await bot.say(",schedule to=test:5 catch_up=skip in 5m: what of my divorce?", sender="1", chat="1")
            bot.clock.forward += timedelta(hours=1)
            bot.start()
            await bot.passes(minutes=1)
            assert "divorce" in bot.texts[-1]
            assert bot.bench.channel.sent[-1].chat == "1"

    @virtual
    async def test_what_a_job_tells_is_in_the_language_of_who_made_it_also_after_a_restart(self) -> None:
        store = InMemoryStore()
        rules = admitting(store, owners={"1", "2"})
        async with timed(store, Played(says("x")), Options(rules=rules)) as bot:
            for typed in (",schedule catch_up=skip in 5m: ,help", ",schedule in 20m: ,nonsense"):
                asked = bot.bench.inbound(typed, chat="1")
                result = await bot.bench.gate.accept(
                    structs.replace(asked, sender=Sender("1", "Ann", language="zh-hans"))
                )
                assert result is not None
                await result
        async with timed(store, Played(says("x")), Options(rules=rules), keep=False, life="b") as again:
            again.clock.forward += timedelta(minutes=10)
            again.start()
            await again.passes(minutes=1)
            assert "我不在线时" in again.texts[-1]
            await again.passes(minutes=15)
            assert "没有" in again.texts[-1]

    @virtual
    async def test_whoever_changes_a_job_answers_for_it(self) -> None:
        store = InMemoryStore()
        rules = admitting(store, owners={"1"}, groups={"-9"})
        async with timed(store, Played(says("x")), Options(rules=rules)) as bot:
            group = {"chat": "-9", "direct": False}
            await bot.say(",schedule 0 * * * *: ,reset erase", sender="1", **group)
            await bot.say(",schedule.edit a1", sender="7", **group)
            assert (await bot.say(",schedule.edit 0000a1 name=mine", sender="7", **group)).startswith("Changed")
            (told,) = await hours(bot, 1)
            assert "failed: ,reset is for the owner" in told
            assert (await bot.say(",schedule.run 0000a1", sender="1", **group)) == "mine (0000a1) runs now."
            await bot.quiet()
            assert (await bot.bench.events("tape/erased", "test:-9")) != []  # for whoever asked

    @virtual
    async def test_a_change_that_changes_nothing_is_refused_unless_it_lets_the_job_go_on(self) -> None:
        bad = {"error": "refused", "message": "no"}
        async with timed(InMemoryStore(), Played(bad, bad, says("x")), limits=ScheduleSettings(max_failures=2)) as bot:
            await bot.say(HOURLY)
            assert (await bot.say(",schedule.edit 0000a1 name=mine")).startswith("Changed")
            assert await bot.say(",schedule.edit 0000a1 name=mine") == "Nothing changed: 0000a1 is like that already."
            assert len(await bot.bench.events("schedule/changed", SCHEDULE_TAPE)) == 1
            await hours(bot, 3)
            assert "paused (it kept failing)" in await bot.say(",schedules")
            assert (await bot.say(",schedule.edit 0000a1 name=mine")).startswith("Changed")
            assert "paused" not in await bot.say(",schedules")
            assert (await hours(bot, 1))[0].endswith("x")

    @virtual
    async def test_only_owners_send_what_a_job_says_elsewhere(self) -> None:
        store = InMemoryStore()
        rules = admitting(store, owners={"1"}, members={"5"})
        async with timed(store, Played(says("x")), Options(rules=rules)) as bot:
            assert "only an owner may set to" in await bot.say(",remind to=test:5 in 5m: hi", sender="5", chat="5")
            await bot.say(",remind to=test:5 in 5m: hi", sender="1", chat="1")
            await bot.passes(minutes=6)
            assert (bot.bench.channel.sent[-1].chat, bot.texts[-1]) == ("5", "hi")

    @virtual
    async def test_limits_of_a_chat(self) -> None:
        store = InMemoryStore()
        rules = admitting(store, members={"5"})
        async with timed(
            store, Played(says("x")), Options(rules=rules), limits=ScheduleSettings(max_jobs_per_chat=2)
        ) as bot:
            five = {"sender": "5", "chat": "5"}
            assert "needs an end" in await bot.say(",schedule every 1m: spam", **five)
            assert "Scheduled" in await bot.say(",schedule runs=3 every 1m: ok", **five)
            assert "Scheduled" in await bot.say(HOURLY, **five)
            assert "there are 2 jobs here already" in await bot.say(HOURLY, **five)
            await bot.passes(minutes=10)
            assert len(await bot.facts("fired")) == 3
            assert [one.payload["data"]["reason"] for one in await bot.facts("over")] == ["reason_runs"]


class TestTimes:
    @virtual
    async def test_quiet_hours_hold_back_until_they_end(self) -> None:
        async with timed(InMemoryStore(), Played(says("x"))) as bot:
            await bot.say(",schedule.chat quiet=22:00-07:00 zone=Europe/Berlin")
            await bot.say(",remind 0 * * * *: hourly")
            told = await bot.say(",remind at 23:30: late")
            assert "falls into the quiet hours of this chat (22:00-07:00)" in told
            await bot.say(",remind urgent=true at 23:00: alarm")
            before = len(bot.texts)
            await bot.passes(hours=8, minutes=59)  # 21:59 in Berlin
            assert bot.texts[before:] == ["⏰ hourly"] * 8
            await bot.passes(hours=9)
            assert bot.texts[before + 8 :] == ["⏰ alarm"]
            await bot.passes(minutes=2)
            held = [text.rpartition("\n")[2] for text in bot.texts[before + 9 :]]
            assert sorted(held) == ["⏰ hourly", "⏰ late"]

    @virtual
    async def test_jitter_is_within_its_bounds_and_the_same_after_a_restart(self) -> None:
        async with timed(InMemoryStore(), Played(says("x"))) as bot:
            await bot.say(",remind jitter=10m 0 * * * *: tea")
            await bot.passes(hours=12, minutes=11)
            late = [
                (bot.clock.start + timedelta(seconds=0), one.payload["data"]["mark"], one.date)
                for one in await bot.facts("ran")
            ]
            waits = {date[14:19] for _, _, date in late}
            assert len(late) == 12
            assert len(waits) > 6
            assert all(wait <= "10:01" for wait in waits)

    @virtual
    async def test_pause_resume_run_and_remove(self) -> None:
        async with timed(InMemoryStore(), Played(says("x"))) as bot:
            await bot.say(",remind name=tea 0 * * * *: tea")
            await bot.say(",schedule.pause tea")
            assert await hours(bot, 3) == [""] * 3
            told = await bot.say(",schedule.resume tea")
            assert "next Sun 22 Nov 2026 at 16:00" in told
            assert await hours(bot, 1) == ["⏰ tea"]
            await bot.say(",schedule.run tea")
            await bot.quiet()
            assert bot.texts[-1] == "⏰ tea"
            assert await hours(bot, 1) == ["⏰ tea"]
            await bot.say(",schedule.remove tea")
            assert await hours(bot, 2) == ["", ""]
            asked = await bot.facts("asked")
            assert len(asked) == 1

    @virtual
    async def test_an_end_date(self) -> None:
        async with timed(InMemoryStore(), Played(says("x"))) as bot:
            await bot.say(',remind until="2026-11-22 15:30" 0 * * * *: tea')
            assert await hours(bot, 5) == ["⏰ tea", "⏰ tea", "⏰ tea", "", ""]
            assert [one.payload["data"]["reason"] for one in await bot.facts("over")] == ["reason_until"]

    @virtual
    async def test_a_prompt_is_answered_though_the_bot_was_killed_in_its_turn(self) -> None:
        store, begun = InMemoryStore(), asyncio.Event()

        async def stream(request: ModelRequest) -> AsyncIterator[ModelEvent]:
            begun.set()
            await asyncio.Event().wait()
            yield ModelReply("never")

        async with timed(store, Replying(stream)) as bot:
            await bot.say(HOURLY)
            await asyncio.sleep(3600)
            await begun.wait()
        async with timed(store, Played(says("done")), clock=bot.clock, life="second") as bot:
            await bot.passes(seconds=5)
            assert bot.texts == ["done"]
            assert len(await bot.facts("fired")) == len(await bot.facts("ran")) == 1


class TestMarks:
    @pytest.mark.parametrize("facts", [0, 1200])
    @virtual
    async def test_a_start_reads_little_and_knows_everything(self, facts: int) -> None:
        store = InMemoryStore()
        async with timed(store, Played(says("x"))) as bot:
            await bot.say(",remind every 1m: tea")
            await bot.say(",remind runs=1000 every 1m: tea")
            await bot.passes(minutes=5 + facts // 4)
            before = bot.book.state
            await bot.stop()
            await bot.book.load()
            assert bot.book.state == before
            assert bool(await bot.facts("checkpoint")) == bool(facts)


DUE = "2026-11-22T13:00:00Z"
MADE = make_job(place=ChatRef("test", "-1", "7", False, "s"), by=Actor("test", "5"), zone="Europe/Berlin", since=DUE)
HEAD = "Scheduled job j, due 2026-11-22 14:00 Europe/Berlin"


class TestInbound:
    @pytest.mark.parametrize(
        ("fields", "mark", "text"),
        [
            ({}, DUE, f"[{HEAD}: the text that follows was sent as it is.]"),
            ({"do": "command", "text": ",x"}, DUE, ",x"),
            (
                {"do": "prompt", "text": "hm?"},
                DUE,
                f"[{HEAD}. Nobody waits for an answer: if there is nothing to say, answer exactly [SILENT].]\nhm?",
            ),
            (
                {"name": "stand up"},
                f"{DUE}!ab",
                f"[{HEAD.replace('j,', 'j (stand up),')}: the text that follows was sent as it is.]",
            ),
            (
                {"zone": "Gone/Zone"},
                DUE,
                f"[Scheduled job j, due {DUE}: the text that follows was sent as it is.]",
            ),
        ],
    )
    def test_a_firing_says_what_it_is(self, fields: dict[str, Any], mark: str, text: str) -> None:
        job = JobState(Cited(structs.replace(MADE, **fields), source=Source.PEOPLE), NOON)
        assert firing_inbound(job, mark, Actor("test", "9", "Bob", ("staff",)), NOON) == Inbound(
            channel="test",
            external_id=f"schedule:j@{mark}",
            chat="-1",
            sender=Sender("9", "Bob", roles=("staff",)),
            text=text,
            time="2026-11-22T12:00:00.000000+00:00",
            thread="7",
            direct=False,
            space="s",
            origin="schedule",
            provenance="people",
        )

    @pytest.mark.parametrize(
        ("mark", "accepted", "jitter", "is_late"),
        [
            (DUE, timedelta(), 0, False),
            (DUE, timedelta(minutes=2), 0, False),
            (DUE, timedelta(minutes=2, seconds=1), 0, True),
            (DUE, timedelta(minutes=6, seconds=1), 600, True),  # it was to come after 4 of its 10 minutes
            (DUE, timedelta(minutes=6), 600, False),
            (f"{DUE}!ab", timedelta(days=1), 0, False),  # somebody asked for it
        ],
    )
    def test_it_is_late_if_it_is_accepted_two_minutes_after_its_time(
        self, mark: str, accepted: timedelta, jitter: int, is_late: bool
    ) -> None:
        job = fold_job(structs.replace(MADE, jitter=jitter))
        inbound = firing_inbound(job, mark, MADE.by, mark_instant(DUE) + accepted)
        assert Firing(job, mark, inbound).is_late is is_late

    def test_a_long_action_is_cut(self) -> None:
        for length, shown in ((120, "x" * 120), (121, "x" * 120 + "…")):
            assert describe_action(structs.replace(MADE, text="x" * length), Texts()) == f"says '{shown}'"


@dataclass
class SourceOfTurns:
    """The source of the turns of one job, and the current role of each person."""

    firings: Firings
    book: ScheduleStore
    roles: dict[str, Role]
    asked: list[Inbound]
    inbound: Inbound


async def source_of_turns(job: Job, failures: int = 0, max_failures: int = 5) -> SourceOfTurns:
    ids = CountingIds()
    tape = TapeService(InMemoryStore(), SCHEDULE_TAPE, now=lambda: NOON, new_id=ids)
    book = ScheduleStore(
        tape, now=lambda: NOON, new_id=ids, zone="UTC", limits=ScheduleSettings(max_failures=max_failures)
    )
    await book.load()
    await book.write([job.to_entry(), FiringFailed("j", DUE, "", "", failures).to_entry()])
    roles, asked = {"5": Role.MEMBER, "1": Role.OWNER}, list[Inbound]()

    def role_of(inbound: Inbound) -> Role:
        asked.append(inbound)
        return roles.get(inbound.sender.id, Role.STRANGER)

    inbound = firing_inbound(book.state.jobs["j"], DUE, job.by, mark_instant(DUE))
    return SourceOfTurns(Firings(book, role_of), book, roles, asked, inbound)


OWNER = Actor("other", "1", "Ann", ("staff",))
GRANTED = structs.replace(
    MADE, to=ChatRef("test", "2"), granted=OWNER, allow=("web.get: a", "shell.run"), nested=True, budget=9
)
ANSWER = TurnOutcome("answered", "tea")


class TestPermissions:
    async def test_a_turn_has_the_current_role_of_its_person_and_what_its_job_allows(
        self, begin: Callable[..., Any]
    ) -> None:
        source = await source_of_turns(GRANTED)
        turn = await begin(role=Role.OWNER)
        source.firings.prepare(turn, source.inbound)
        assert (turn.role, turn.cause, turn.time_limit_seconds) == (Role.MEMBER, "j", 9.0)
        assert (turn.replies_elsewhere, turn.fixed_reply, turn.notices) == (True, "tea", [])
        assert turn.metadata[ScheduledTurn] == ScheduledTurn(may_schedule=True)
        granter = structs.replace(
            source.inbound, channel="other", sender=Sender("1", "Ann", roles=("staff",)), direct=True
        )
        assert granter in source.asked
        turn.inbounds = (AcceptedInbound(1, source.inbound),)
        assert source.firings.list_allowed(turn) == (Allowance("web.get", "a"), Allowance("shell.run"))
        turn.inbounds = (AcceptedInbound(1, structs.replace(source.inbound, origin="human")),)
        assert source.firings.list_allowed(turn) == ()

    async def test_a_job_for_its_own_chat_says_so_and_a_late_one_is_told(self, begin: Callable[..., Any]) -> None:
        source = await source_of_turns(structs.replace(MADE, do="prompt"))
        turn = await begin()
        late = structs.replace(source.inbound, time="2026-11-22T15:00:00+00:00")
        source.firings.prepare(turn, late)
        assert (turn.replies_elsewhere, turn.fixed_reply) == (False, None)
        assert turn.metadata[ScheduledTurn] == ScheduledTurn(may_schedule=False)
        assert [notice.partition(";")[0] for notice in turn.notices] == [
            "This was due on Sunday 2026-11-22 14:00, 2 hours ago"
        ]

    @pytest.mark.parametrize(
        ("roles", "reason"),
        [
            ({"5": Role.STRANGER}, "reason_revoked"),
            ({"1": Role.ADMIN}, "reason_grant"),  # who sent its messages elsewhere is no owner any more
            ({"1": Role.STRANGER}, "reason_grant"),
        ],
    )
    async def test_a_job_whose_permission_is_gone_does_not_run_and_is_paused(
        self, begin: Callable[..., Any], roles: dict[str, Role], reason: str
    ) -> None:
        source = await source_of_turns(GRANTED)
        source.roles.update(roles)
        turn = await begin(role=Role.OWNER)
        source.firings.prepare(turn, source.inbound)
        assert (turn.role, turn.cause, turn.fixed_reply) == (Role.STRANGER, "", None)
        assert turn.metadata[ScheduledTurn] == ScheduledTurn(may_schedule=False)
        reply = source.firings.build_reply(turn, source.inbound, ANSWER)
        assert (reply.text, reply.target) == ("", None)
        not_run, paused = reply.entries[SCHEDULE_TAPE]
        assert (not_run.name, not_run.data["reason"], not_run.data["turn"]) == ("schedule/refused", reason, "t1")
        assert (paused.name, paused.data["reason"], paused.data["by"]["id"]) == ("schedule/paused", reason, "")

    async def test_what_was_made_at_the_terminal_stays_the_owners(self, begin: Callable[..., Any]) -> None:
        terminal = Actor("terminal", "terminal")
        source = await source_of_turns(structs.replace(GRANTED, by=terminal, granted=terminal))
        source.roles.clear()
        turn = await begin()
        source.firings.prepare(turn, source.inbound)
        assert turn.role is Role.OWNER

    async def test_a_firing_without_its_job_may_do_nothing(self, begin: Callable[..., Any]) -> None:
        source = await source_of_turns(MADE)
        await source.book.write([JobRemoved("j", MADE.by).to_entry()])
        turn = await begin(role=Role.OWNER)
        source.firings.prepare(turn, source.inbound)
        assert turn.role is Role.STRANGER
        assert source.firings.build_reply(turn, source.inbound, ANSWER) == SourcedReply()
        assert source.firings.failure_entries(source.inbound, "x") == {}
        assert source.firings.list_allowed(turn) == ()


class TestReplies:
    @pytest.mark.parametrize(
        ("failures", "text", "said"),
        [
            (0, "tea", "tea"),
            (0, "", ""),
            (1, "", "The scheduled job j works again, after 1 failure."),
            (3, "tea", "The scheduled job j works again, after 3 failures in a row.\n\ntea"),
        ],
    )
    async def test_an_answer_goes_where_the_job_says(
        self, begin: Callable[..., Any], failures: int, text: str, said: str
    ) -> None:
        source = await source_of_turns(GRANTED, failures)
        reply = source.firings.build_reply(await begin(), source.inbound, TurnOutcome("answered", text))
        (ran,) = reply.entries[SCHEDULE_TAPE]
        assert (ran.name, dict(ran.data)) == (
            "schedule/ran", {"job": "j", "mark": DUE, "turn": "t1", "status": "answered"}
        )  # fmt: skip
        assert reply.target == Outbound("test", "2", "", "")
        assert reply.text == said

    @pytest.mark.parametrize(
        ("failures", "is_told", "is_paused"),
        [(0, True, False), (1, True, False), (2, False, False), (3, True, False), (4, False, False), (5, True, True), (6, True, True)],
    )  # fmt: skip
    async def test_failures_are_told_where_the_job_was_made(
        self, begin: Callable[..., Any], failures: int, is_told: bool, is_paused: bool
    ) -> None:
        source = await source_of_turns(GRANTED, failures, max_failures=6)
        outcome = TurnOutcome("failed", "x" * 600)
        reply = source.firings.build_reply(await begin(), source.inbound, outcome)
        failed, *paused = reply.entries[SCHEDULE_TAPE]
        assert (failed.data["count"], failed.data["reason"]) == (failures + 1, "x" * 500)
        assert [one.data["reason"] for one in paused] == ["reason_failing"] * is_paused
        assert (bool(reply.text), "is paused" in reply.text) == (is_told, is_paused)
        assert reply.target == Outbound("test", "-1", "", "7")

    async def test_a_firing_that_no_turn_can_be_made_of_counts_as_a_failure(self) -> None:
        source = await source_of_turns(MADE, 2)
        (failed,) = source.firings.failure_entries(source.inbound, "broken")[SCHEDULE_TAPE]
        assert dict(failed.data) == {"job": "j", "mark": DUE, "turn": "", "reason": "broken", "count": 3}
