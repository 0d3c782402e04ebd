"""Questions of features: a card asks, and the chat goes on with a command, whatever the answer is."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bubbot.arguments.fields import NoArguments
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.approvals import ApprovalQuestion
from bubbot.ports.turn import Turn
from bubbot.tool import INSIDE, tool
from tests.family import GROUP, MEMBER, OWNER, Family, family
from tests.turns import says

CARD = re.compile(r"Question \W*(\w{5})")


class Asking:
    """A bot with a command that asks, and one that goes on after the answer."""

    def __init__(self, question: ApprovalQuestion) -> None:
        self.bot: Family | None = None
        self.went_on: list[str] = []

        @tool("door.open", effect=INSIDE)
        async def open_door(turn: Turn, args: NoArguments) -> str:
            """Ask for the door."""
            assert self.bot is not None
            approvals = self.bot.daemon.bot.features.approvals
            assert approvals is not None
            return await approvals.ask(turn, question)

        @tool("door.go_on", effect=INSIDE)
        async def go_on(turn: Turn, args: NoArguments) -> str:
            """Look at the answer."""
            assert self.bot is not None
            approvals = self.bot.daemon.bot.features.approvals
            assert approvals is not None
            number = CARD.findall("\n".join(self.bot.channel.texts))[-1]
            answer = await approvals.service.find_answer(number)
            said = "nothing" if answer is None else f"{'yes' if answer.is_yes else 'no'} by {answer.by}"
            self.went_on.append(said.strip())
            return said

        self.tools = (open_door, go_on)

    @property
    def number(self) -> str:
        """The newest card."""
        assert self.bot is not None
        found: list[str] = CARD.findall("\n".join(self.bot.channel.texts))
        return found[-1]


@asynccontextmanager
async def asking(home: Path, **question: Any) -> AsyncIterator[tuple[Family, Asking]]:
    made = ApprovalQuestion(**{"about": "door", "details": "Open the door?", "command": ",door.go_on", **question})
    asks = Asking(made)
    model = ScriptedModel({"default": [says("The model was asked.")]})
    async with family(home, model, agents={}, tools=asks.tools) as bot:
        asks.bot = bot
        yield bot, asks


async def test_a_yes_goes_on_with_the_command_and_asks_no_model(tmp_path: Path) -> None:
    async with asking(tmp_path) as (bot, asks):
        sent = await bot.say(",door.open", OWNER, OWNER)
        assert any("Open the door?" in text for text in sent)
        await bot.say(f",approve {asks.number}", OWNER, OWNER)
        assert asks.went_on == ["yes by 1"]
        assert bot.model.requests == []


async def test_a_no_goes_on_with_the_command_too(tmp_path: Path) -> None:
    async with asking(tmp_path) as (bot, asks):
        await bot.say(",door.open", OWNER, OWNER)
        await bot.say(f",deny {asks.number} not now", OWNER, OWNER)
        assert asks.went_on == ["no by 1"]
        assert bot.model.requests == []


async def test_only_who_asked_answers_their_own_question(tmp_path: Path) -> None:
    async with asking(tmp_path) as (bot, asks):
        await bot.say(",door.open", MEMBER, GROUP)
        number = asks.number
        await bot.say(f",approve {number}", MEMBER, GROUP)
        assert asks.went_on == [f"yes by {MEMBER}"]


async def test_a_question_for_owners_is_not_answered_by_a_member(tmp_path: Path) -> None:
    async with asking(tmp_path, by="owner") as (bot, asks):
        await bot.say(",door.open", MEMBER, GROUP)
        number = asks.number
        await bot.say(f",approve {number}", MEMBER, GROUP)
        assert asks.went_on == []
        await bot.say(f",approve {number}", OWNER, GROUP)
        assert asks.went_on == [f"yes by {OWNER}"]


async def test_an_answer_after_its_end_counts_as_none(tmp_path: Path) -> None:
    async with asking(tmp_path, hours=0.0000001) as (bot, asks):
        await bot.say(",door.open", OWNER, OWNER)
        await bot.say(f",approve {asks.number}", OWNER, OWNER)
        assert asks.went_on == []
