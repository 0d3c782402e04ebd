"""People of four languages with one bot: each is spoken to in their own, if somebody has translated the bot into it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bubbot.texts.catalogue import list_languages
from tests.e2e.daemon import configured, running
from tests.e2e.test_telegram import texts
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server

TYPED = {
    "zh-hans": "/remind 一小时后：喝水",
    "de": "/remind in einer Stunde: Wäsche",
    "en": "/remind in an hour: tea",
    "fr": "/remind in 1 hour: du thé",
}


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(limits=None, privacy=False) as server:
        yield server


def language_of(text: str) -> str:
    """Of a text of the bot, by its looks."""
    text = re.sub("喝水|中文|du thé", "", text)  # what people wrote, and the name of a language
    if re.search(r"[\u4e00-\u9fff]", text):
        return "zh"
    return "de" if re.search(r"\b(?:ich|dich|du|nicht|ist|um|der|die|das|und|Schreib)\b", text) else "en"


def spoken(tag: str) -> str:
    """The language in which a person with this tag is answered by a bot that is set to English."""
    language = tag.partition("-")[0]
    return language if language in list_languages("bubbot.texts") else "en"


async def test_each_is_answered_in_their_own_language_also_after_a_restart(server: Server, tmp_path: Path) -> None:
    home = tmp_path / "home"
    people = {tag: server.user(f"P{tag[:2]}", language_code=tag) for tag in TYPED}
    strangers = {tag: server.user(f"S{tag[:2]}", language_code=tag) for tag in TYPED}
    members = [person.id for person in people.values()]
    configured(home, server, owners=members[:1], members=members[1:], live=False)

    async def ask(room: Gathering, text: str) -> str:
        before = len(texts(room))
        room.say(text)
        await server.until(lambda: len(texts(room)) > before)
        return texts(room)[-1]

    async def meet(tag: str) -> None:
        assert language_of(await ask(server.private(strangers[tag]), "hello?")) == spoken(tag)
        for text in ("/start", "/remind abc", TYPED[tag]):
            answer = await ask(rooms[tag], text)
            assert language_of(answer) == spoken(tag), answer

    async def meet_again(tag: str) -> None:
        assert language_of(await ask(rooms[tag], "/schedule_list")) == spoken(tag)

    rooms = {tag: server.private(person) for tag, person in people.items()}
    async with running(home) as daemon:
        await asyncio.gather(*map(meet, TYPED))
        await daemon.quiet(server)
    async with running(home) as daemon:
        await asyncio.gather(*map(meet_again, TYPED))
        await daemon.quiet(server)
