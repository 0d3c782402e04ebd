"""A cook and a teacher in a group on Telegram, with the real daemon: who answers, what people see, and what ends a chain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.e2e.agent_group import AGENTS, SCRIPT, add_agents
from tests.e2e.bot import entries, run
from tests.e2e.daemon import Daemon, configured, running
from tests.e2e.on_discord import named
from tests.e2e.test_telegram import said, texts
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server
from tests.fakes.botapi.world import User

GREETING = 1
"""Messages with which the bot greets a group."""


@dataclass
class Family:
    """A daemon with its agents, and people that it answers."""

    server: Server
    daemon: Daemon
    home: Path
    ada: User
    bob: User

    async def room(self, title: str, **given: Any) -> Gathering:
        """A new group, greeted."""
        room = self.server.supergroup(title, [self.ada, self.bob], **given)
        await self.server.until(lambda: texts(room), 60)
        return room

    async def answered(self, room: Gathering, *wanted: str) -> None:
        """Waits until the bot has said these things in a group after its greeting, and nothing else."""
        await self.server.until(lambda: len(texts(room)) >= GREETING + len(wanted) and "…" not in texts(room)[-1], 60)
        await self.daemon.quiet(self.server)
        assert texts(room)[GREETING:] == [*wanted]


@pytest_asyncio.fixture(scope="class", loop_scope="class")
async def family(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Family]:
    home = tmp_path_factory.mktemp("agents") / "home"
    async with Server(limits=None, conflict_pause=0.1, longest_poll=0.3, privacy=False) as server:
        ada, bob = server.user("Ada", username="ada"), server.user("Bob")
        keys = {"debounce": 0, "edit_interval": 0.2, "poll_timeout": 1, "messages_per_minute": 0}
        configured(home, server, SCRIPT, owners=[ada.id, bob.id], **keys)
        add_agents(home)
        async with running(home) as daemon:
            yield Family(server, daemon, home, ada, bob)


@pytest.mark.asyncio(loop_scope="class")
class TestWhoAnswers:
    async def test_each_way_to_call_an_agent(self, family: Family) -> None:
        room = await family.room("Ways")
        room.say("good morning", family.ada)  # nobody is called
        room.say("Rosi, one", family.ada)
        room.say("well @tom two", family.bob)
        room.say("/rosi three", family.ada)
        room.say("/tom@bubbot_bot four", family.ada)
        await family.answered(
            room,
            "Rosi: You said: Rosi, one",
            "Tom: You said: well @tom two",
            "Rosi: You said: @rosi three",
            "Tom: You said: @tom four",
        )

    async def test_a_reply_goes_to_the_agent_that_wrote_the_message(self, family: Family) -> None:
        room = await family.room("Replies")
        room.say("Tom, hello", family.ada)
        await family.answered(room, "Tom: You said: Tom, hello")
        room.say("and now?", family.bob, reply_to=said(room)[-1])
        await family.answered(room, "Tom: You said: Tom, hello", "Tom: You said: and now?")

    async def test_a_live_answer_is_one_message_that_begins_with_the_name(self, family: Family) -> None:
        room = await family.room("Live")
        room.say("Rosi, count slowly", family.ada)
        await family.server.until(lambda: len(texts(room)) > GREETING and "two" in texts(room)[-1], 60)
        assert texts(room)[-1].startswith("Rosi: one two")
        await family.server.until(lambda: texts(room)[-1].endswith("eight"), 60)
        assert texts(room)[GREETING:] == ["Rosi: one two three four five six seven eight"]

    async def test_a_called_agent_is_shown_while_it_writes(self, family: Family) -> None:
        room = await family.room("Called")
        room.say("Rosi, plan a feast", family.ada)
        await family.server.until(lambda: texts(room)[-1].startswith("Tom: On Friday,") and "…" in texts(room)[-1], 60)
        await family.answered(room, "Rosi: @tom, which day?", "Tom: On Friday, slowly and with care.")

    async def test_silence_is_an_answer(self, family: Family) -> None:
        room = await family.room("Silent")
        room.say("Rosi, be silent", family.ada)
        room.say("Tom, hi", family.ada)
        await family.answered(room, "Tom: You said: Tom, hi")


@pytest.mark.asyncio(loop_scope="class")
class TestWhatAgentsSee:
    async def test_an_edit_of_the_message_that_began_the_chain(self, family: Family) -> None:
        room = await family.room("Edited")
        first = room.say("@bot ask all", family.ada)
        await family.answered(room, "You said: @bot ask all")
        room.say("Rosi, wait", family.bob)
        await family.daemon.quiet(family.server)
        room.edit(first, "@bot ask nobody")
        room.say("/stop", family.bob)
        room.say("Tom, hi", family.ada)
        await family.answered(room, "You said: @bot ask all", "Stopped.", "Tom: You said: Tom, hi")
        corrections = named(family.home, f"telegram:{room.chat.id}", "correction")
        assert [one["content"] for one in corrections] == ["@bot ask nobody"]

    async def test_a_group_that_moves_in_mid_chain_gets_the_rest(self, family: Family) -> None:
        room = family.server.group("Moving", [family.ada, family.bob])
        await family.server.until(lambda: texts(room), 60)
        room.say("Rosi, plan a feast", family.ada)
        await family.server.until(lambda: len(texts(room)) == GREETING + 1, 60)
        moved = family.server.migrate(room, family.ada)
        await family.server.until(lambda: [*texts(room), *texts(moved)][-1].endswith("with care."), 60)
        moved.say("Tom, and now?", family.bob)
        await family.server.until(lambda: texts(moved)[-1] == "Tom: You said: Tom, and now?", 60)


@pytest.mark.asyncio(loop_scope="class")
class TestWhatEndsAChain:
    async def _begin(self, family: Family, title: str) -> Gathering:
        """A group in which Rosi is asked by the bot and thinks, and Tom waits for her."""
        room = await family.room(title)
        room.say("@bot ask both", family.ada)
        await family.server.until(lambda: len(texts(room)) == GREETING + 1, 60)
        return room

    async def test_a_stop_ends_all_of_it(self, family: Family) -> None:
        room = await self._begin(family, "Stopped")
        room.say("/stop", family.bob)
        room.say("Tom, later", family.bob)
        await family.answered(room, "@rosi, then @tom: what do you say?", "Stopped.", "Tom: You said: Tom, later")

    @pytest.mark.parametrize("command", ["/new", "/reset erase"])
    async def test_another_conversation_ends_what_waits(self, family: Family, command: str) -> None:
        room = await family.room(f"Another {command}")
        room.say("@bot ask both", family.ada)
        room.say("@rosi wait", family.bob)  # people come first: she thinks, and two calls wait
        await family.server.until(lambda: len(texts(room)) == GREETING + 1, 60)
        room.say(command, family.ada)
        room.say("/stop", family.bob)
        await family.server.until(lambda: len(texts(room)) == GREETING + 3, 60)
        room.say("Tom, later", family.bob)
        await family.server.until(lambda: texts(room)[-1].endswith("You said: Tom, later"), 60)
        await family.daemon.quiet(family.server)
        assert len(texts(room)) == GREETING + 4
        inbox: list[dict[str, Any]] = entries(family.home, "bubbot/inbox/telegram")
        stored = [(one["id"], one["payload"]) for one in inbox if "payload" in one]
        done = {each for _, fact in stored if fact["name"] == "inbox/done" for each in fact["data"]["inbounds"]}
        calls = {number for number, fact in stored if "call" in fact["data"]}
        assert calls
        assert calls <= done


class TestTheSettingsChange:
    async def test_agents_that_are_removed_while_their_calls_wait(self, tmp_path: Path) -> None:
        home = tmp_path / "home"
        async with Server(limits=None, conflict_pause=0.1, longest_poll=0.3, privacy=False) as server:
            ada = server.user("Ada")
            configured(home, server, SCRIPT, owners=[ada.id], debounce=0, poll_timeout=1)
            without = (home / "config.toml").read_text()
            add_agents(home)
            room = server.supergroup("Removed", [ada])
            async with running(home) as daemon:
                room.say("@bot ask both", ada)
                await server.until(lambda: len(texts(room)) == GREETING + 1, 60)
                await daemon.quiet(server)  # the receipt is stored
                await daemon.kill()
            (home / "config.toml").write_text(without)
            async with running(home) as daemon:
                await server.until(lambda: len(texts(room)) == GREETING + 3, 60)
                await daemon.quiet(server)
        gone = "is not an agent here any more: nobody answers in its place."
        assert texts(room)[GREETING + 1 :] == [f"rosi {gone}", f"tom {gone}"]

    @pytest.mark.proof  # the turn before has to be longer than a reload takes
    async def test_an_agent_that_a_reload_removes_while_its_call_waits(self, tmp_path: Path) -> None:
        home, slow = tmp_path / "home", {"when": "asks you, rosi", "steps": [{"text": "Rosi waited.", "delay": 20}]}
        async with Server(limits=None, conflict_pause=0.1, longest_poll=0.3, privacy=False) as server:
            ada = server.user("Ada")
            script = {**SCRIPT, "rules": [slow, *SCRIPT["rules"]]}
            configured(home, server, script, owners=[ada.id], debounce=0, poll_timeout=1)
            without = (home / "config.toml").read_text()
            add_agents(home)
            room = server.supergroup("Reloaded", [ada])
            async with running(home):
                room.say("@bot ask both", ada)
                await server.until(lambda: len(texts(room)) == GREETING + 1, 60)
                (home / "config.toml").write_text(without + AGENTS.partition("[agents.tom]")[0])
                reloaded = await asyncio.to_thread(run, home, "reload")
                assert reloaded.returncode == 0, reloaded.stderr
                await server.until(lambda: len(texts(room)) == GREETING + 3, 60)
        gone = "tom is not an agent here any more: nobody answers in its place."
        assert texts(room)[GREETING + 1 :] == ["Rosi: Rosi waited.", gone]

    async def test_the_menu_offers_agents_that_all_chats_may_call(self, tmp_path: Path) -> None:
        home = tmp_path / "home"
        async with Server(limits=None, conflict_pause=0.1, longest_poll=0.3) as server:
            ada = server.user("Ada")
            configured(home, server, SCRIPT, owners=[ada.id], debounce=0, poll_timeout=1)
            add_agents(home, AGENTS + 'chats = ["telegram:-1"]\n')
            async with running(home):
                await server.until(lambda: server.calls("setMyCommands"), 60)
                offered = str([call.params["commands"] for call in server.calls("setMyCommands")])
        assert '"rosi"' in offered
        assert "Ask Rosi: cooking" in offered
        assert '"tom"' not in offered
