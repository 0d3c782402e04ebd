"""Two bots on one server, each in a process of its own as far as they know: what one writes, the other one sees at its next step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast
from unittest.mock import patch

from msgspec import structs

from bubbot.app import bot as bot_module
from bubbot.app.forgetting import finish_forgetting
from bubbot.arguments.fields import NoArguments
from bubbot.errors import CommandRefused
from bubbot.features.budget.settings import BudgetSettings
from bubbot.gateway.limits import PersonLimits
from bubbot.home import Home
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import ChatMigration, Inbound, Sender
from bubbot.ports.settings import SettingsSection
from bubbot.ports.turn import Turn
from bubbot.tape.entry import timestamp
from bubbot.tool import INSIDE, Tool, tool
from tests.callers import by, run
from tests.family import GROUP, MEMBER, OWNER, Family, family
from tests.turns import calls, says

STRANGER = "7"
POST = calls("post_send", to="ben", text="hi")
POSTING: Mapping[str, Any] = MappingProxyType(
    {
        "rules": [
            {"when": "wait", "steps": [calls("wait_now"), POST, says("Done.")]},
            {"when": "post", "steps": [POST, says("Done.")]},
        ]
    }
)


@asynccontextmanager
async def pair(
    folder: Path, address: str, script: Mapping[str, Any] | None = None, *sections: SettingsSection, **options: Any
) -> AsyncIterator[tuple[Family, Family]]:
    """Run two bots on one server. Each runs the turns of what it received, so that a test says who does what."""
    one, two = ScriptedModel(script), ScriptedModel(script)
    with patch.object(bot_module, "_share_turns", lambda *_arguments, **_named: None):
        async with (
            family(folder / "a", one, *sections, agents={}, store=address) as first,
            family(folder / "b", two, *sections, agents={}, store=address, **options) as second,
        ):
            yield first, second


async def order(bot: Family, text: str) -> list[str]:
    """Let the owner type a command in the direct chat with one bot."""
    return await bot.say(text, OWNER, OWNER)


class TestAccess:
    async def test_a_grant_and_a_revocation_hold_for_the_next_message_elsewhere(
        self, tmp_path: Path, postgres_address: str
    ) -> None:
        async with pair(tmp_path, postgres_address) as (first, second):
            assert await second.say("hello", STRANGER, STRANGER) != ["You said: hello"]
            await order(first, f",access.grant {STRANGER} member channel=tg")
            assert await second.say("hello again", STRANGER, STRANGER) == ["You said: hello again"]
            await order(first, f",access.revoke {STRANGER} channel=tg")
            assert await second.say("still here", STRANGER, STRANGER) == []

    async def test_a_code_that_one_bot_gave_counts_at_the_other_and_once(
        self, tmp_path: Path, postgres_address: str
    ) -> None:
        async with pair(tmp_path, postgres_address) as (first, second):
            (offer,) = await second.say("hello", STRANGER, STRANGER)
            code = next(word for word in offer.replace("`", " ").split() if len(word.strip(".*")) == 8).strip(".*")

            async def approve(bot: Family) -> str:
                try:
                    return str(await run(cast("Any", bot.daemon.access.approve), by(f"tg:{OWNER}"), code))
                except CommandRefused as error:
                    return error.code

            outcomes = await asyncio.gather(approve(first), approve(second))
            assert sorted("code_used" in each for each in outcomes) == [False, True]
            granted = await first.facts("access/granted", "bubbot/access")
            assert len(granted) == 1

    async def test_a_moved_chat_goes_on_as_its_session_elsewhere(self, tmp_path: Path, postgres_address: str) -> None:
        async with pair(tmp_path, postgres_address) as (first, second):
            await first.say("one", MEMBER, MEMBER)
            moved = ChatMigration("tg", "mv", MEMBER, "55", timestamp(datetime.now(UTC)))
            await first.daemon.bot.channel_runtimes["tg"].receive(moved)
            await second.say("two", MEMBER, "55")
            said = [entry.payload.get("content") for entry in await second.entries(MEMBER) if entry.kind == "message"]
            assert [text for text in said if text in ("one", "two")] == ["one", "two"]

    async def test_messages_that_come_at_once_are_taken_in_their_order(
        self, tmp_path: Path, postgres_address: str
    ) -> None:
        async with pair(tmp_path, postgres_address) as (first, _):
            now, people = timestamp(datetime.now(UTC)), [OWNER, MEMBER]
            inbounds = [
                Inbound("tg", f"x{number}", people[number % 2], Sender(people[number % 2]), f"say {number}", now)
                for number in range(40)
            ]
            runtime = first.daemon.bot.channel_runtimes["tg"]
            async with asyncio.TaskGroup() as group:
                for inbound in inbounds:
                    group.create_task(runtime.receive(inbound))
            taken = [entry.key for entry in await first.entries("bubbot/inbox/tg")]
            for person in people:
                theirs = [inbound.external_id for inbound in inbounds if inbound.session == f"tg:{person}"]
                assert theirs
                assert [key for key in taken if key in theirs] == theirs

    async def test_the_messages_of_a_person_count_wherever_they_were_received(
        self, tmp_path: Path, postgres_address: str
    ) -> None:
        async with pair(tmp_path, postgres_address) as (first, second):
            for bot in (first, second):
                runtime = bot.daemon.bot.channel_runtimes["tg"]
                runtime.apply_policy(structs.replace(runtime.policy, person_limits=PersonLimits(messages_per_minute=3)))
                await runtime.inbox.read_others()
            assert await first.say("one", MEMBER, MEMBER) == ["You said: one"]
            assert await first.say("two", MEMBER, MEMBER) == ["You said: two"]
            assert await second.say("three", MEMBER) == ["You said: three"]
            (notice,) = await second.say("four", MEMBER)
            assert "3" in notice
            assert await first.say("five", MEMBER, MEMBER) != ["You said: five"]


class TestApprovals:
    async def test_a_card_of_one_bot_is_answered_at_the_other(self, tmp_path: Path, postgres_address: str) -> None:
        async with pair(tmp_path, postgres_address, POSTING) as (first, second):
            await first.say("post it")
            await order(second, f",approve {first.cards[-1]}")
            assert [*first.done, *second.done] == [("post.send", "ben: hi")]
            await order(first, f",deny {first.cards[-1]}")
            assert len(await first.facts("approval.decided", "bubbot/access")) == 1

    async def test_a_grant_that_is_taken_back_holds_in_the_middle_of_a_turn_elsewhere(
        self, tmp_path: Path, postgres_address: str
    ) -> None:
        reached, go_on = asyncio.Event(), asyncio.Event()

        @tool("wait.now", effect=INSIDE)
        async def wait_now(turn: Turn, args: NoArguments) -> str:
            """Wait."""
            reached.set()
            await go_on.wait()
            return "waited"

        tools: list[Tool] = [wait_now]
        async with pair(tmp_path, postgres_address, POSTING, tools=tools) as (first, second):
            await first.say("post it", OWNER, OWNER)
            await order(first, f",approve {first.cards[-1]} always")
            (grant,) = first.daemon.bot.features.approvals.service.state.grants  # type: ignore[union-attr]
            await second.say("post it")
            assert second.done == [("post.send", "ben: hi")]  # the grant holds here, too
            answer = asyncio.create_task(second.say("wait, then post"))
            await asyncio.wait_for(reached.wait(), 10)
            service = first.daemon.bot.features.approvals.service  # type: ignore[union-attr]
            assert await service.revoke(grant.id, "terminal", "terminal")
            go_on.set()
            await answer
            assert second.done == [("post.send", "ben: hi")]
            assert len(second.cards) == 1


class TestFeatures:
    async def test_memory_that_one_chat_saves_is_in_the_others_next_turn(
        self, tmp_path: Path, postgres_address: str
    ) -> None:
        async with pair(tmp_path, postgres_address) as (first, second):
            await second.say("hello", MEMBER, MEMBER)
            await order(first, ",memory.save scope=workspace The code is swordfish.")
            await second.say("hello", MEMBER, MEMBER)
            assert "swordfish" in second.model.requests[-1].system
            await order(first, ",memory.save scope=workspace The code is swordfish.\nLunch is mackerel.")
            await second.say("hello", MEMBER, MEMBER)
            assert "mackerel" in second.model.requests[-1].system

    async def test_a_job_of_one_bot_is_known_to_the_other_and_goes_there_when_it_is_removed(
        self, tmp_path: Path, postgres_address: str
    ) -> None:
        async with pair(tmp_path, postgres_address) as (first, second):
            store = second.daemon.bot.schedule_store
            assert store is not None
            await order(first, ",schedule every day at 9 :: Good morning")
            await second.say("hello", MEMBER, MEMBER)
            (job,) = store.state.jobs
            assert store.state.jobs[job].status == "on"
            await order(first, f",schedule.remove {job}")
            await second.say("hello", MEMBER, MEMBER)
            assert job not in store.state.jobs or store.state.jobs[job].status == "over"

    async def test_two_keepers_fire_a_job_once(self, tmp_path: Path, postgres_address: str) -> None:
        async with pair(tmp_path, postgres_address) as (first, second):
            await order(first, ",schedule every day at 9 :: Good morning")
            await second.say("hello", MEMBER, MEMBER)
            stores = [bot.daemon.bot.schedule_store for bot in (first, second)]
            for store in stores:
                assert store is not None
                store.now = lambda: datetime.now(UTC) + timedelta(days=1)
            assert stores[0] is not None
            (job,) = stores[0].state.jobs
            await asyncio.gather(first.fire(job), second.fire(job))
            received = [entry.key for entry in await first.entries("bubbot/inbox/tg") if f"{job}@" in (entry.key or "")]
            assert len(received) == 1
            answers = [part.text for bot in (first, second) for part in bot.channel.sent if "Nobody waits" in part.text]
            assert len(answers) == 1

    async def test_what_one_bot_spends_is_missing_at_the_other(self, tmp_path: Path, postgres_address: str) -> None:
        limit = BudgetSettings.model_validate({"tokens_day": 20})
        async with pair(tmp_path, postgres_address, None, limit) as (first, second):
            await order(first, "hello")
            await first.daemon.bot.features.budget.budget.wait_written()  # type: ignore[union-attr]
            (refusal,) = await second.say("hello", MEMBER, MEMBER)
            assert "budget" in refusal

    async def test_a_topic_and_a_model_are_those_that_were_chosen_elsewhere(
        self, tmp_path: Path, postgres_address: str
    ) -> None:
        async with pair(tmp_path, postgres_address) as (first, second):
            await first.say(",topic garden", MEMBER, MEMBER)
            await first.say("roses", MEMBER, MEMBER)
            answer = await second.say(",topics", MEMBER, MEMBER)
            assert "garden" in str(answer)

    async def test_what_a_person_allows_at_one_bot_and_takes_back_there_holds_at_the_other(
        self, tmp_path: Path, postgres_address: str
    ) -> None:
        async with pair(tmp_path, postgres_address) as (first, second):
            allowed = second.daemon.bot.features.consents.has_consented
            assert not await allowed(("tg", MEMBER), "training")
            await first.say(",consent training yes", MEMBER, MEMBER)
            assert await allowed(("tg", MEMBER), "training")
            assert not await allowed(("tg", MEMBER), "evaluation")
            assert not await allowed(("tg", OWNER), "training")
            await first.say(",consent training no", MEMBER, MEMBER)
            assert not await allowed(("tg", MEMBER), "training")

    async def test_a_view_is_shown_elsewhere_until_its_grant_is_taken_back(
        self, tmp_path: Path, postgres_address: str
    ) -> None:
        async with pair(tmp_path, postgres_address, {"default": [says("Noted.")]}) as (first, second):
            await second.say("I bring the map.", MEMBER, MEMBER)
            await second.say("What is new?")
            await order(first, f",grant tg:{MEMBER} to tg:{GROUP}")
            await order(first, f",view.add tg:{MEMBER} chat=tg:{GROUP}")
            await second.say("What is new now?")
            assert "I bring the map." in str(second.model.requests[-1].messages)
            await order(first, f",grant.revoke tg:{MEMBER} to tg:{GROUP}")
            await second.say("I bring boots, too.", MEMBER, MEMBER)
            await second.say("And what else?")
            shown = str(second.model.requests[-1].messages)
            assert [word for word in ("map", "boots") if word in shown] == []
            assert "And what else?" in shown


async def test_a_stop_that_is_typed_at_one_bot_reaches_the_turn_of_the_other(
    tmp_path: Path, postgres_address: str
) -> None:
    reached, never = asyncio.Event(), asyncio.Event()

    @tool("wait.now", effect=INSIDE)
    async def wait_now(turn: Turn, args: NoArguments) -> str:
        """Wait."""
        reached.set()
        await never.wait()
        return "waited"

    async with pair(tmp_path, postgres_address, POSTING, tools=[wait_now]) as (first, second):
        tasks = second.daemon.start_features()
        answer = asyncio.create_task(second.say("wait, then post"))
        await asyncio.wait_for(reached.wait(), 10)
        assert await first.daemon.bot.runtime.find_activity(f"tg:{GROUP}") == (True, 0)
        assert await first.say(",stop") == []  # the turn itself says so
        assert await answer == ["Stopped."]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_person_who_is_forgotten_is_in_nobodys_memory(tmp_path: Path, postgres_address: str) -> None:
    async with pair(tmp_path, postgres_address) as (first, second):
        await second.say("my code is swordfish", MEMBER, MEMBER)
        await second.say("hello", MEMBER, MEMBER)
        assert "swordfish" in str(second.model.requests[-1].messages)
        await order(first, f",access.forget tg:{MEMBER} confirm=true")
        bot = first.daemon.bot  # which starts again now, and forgets before anything else
        await finish_forgetting(bot.base_store, Home(tmp_path / "a"), bot.workspace)
        await second.say("hello", MEMBER, MEMBER)
        assert "hello" in str(second.model.requests[-1].messages)
        assert "swordfish" not in str(second.model.requests[-1])
