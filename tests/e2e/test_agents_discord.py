"""A cook and a teacher in a server on Discord, with the real daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.agent_group import SCRIPT, add_agents
from tests.e2e.on_discord import answered, configured, connected, named, said, texts
from tests.e2e.platforms import EDIT, POST
from tests.fakes.discordapi.rooms import Room
from tests.fakes.discordapi.server import Server
from tests.fakes.discordapi.world import User


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(limits=None) as found:
        yield found


@pytest.fixture
def ada(server: Server) -> User:
    return server.user("Ada")


@pytest.fixture
def bob(server: Server) -> User:
    return server.user("Bob")


@pytest.fixture
def room(server: Server, ada: User, bob: User, home: Path) -> Room:
    """A channel of a server with the daemon's agents."""
    configured(home, server, SCRIPT, owners=[ada.id, bob.id], debounce=0, edit_interval=0.2)
    add_agents(home)
    return server.guild("Family", ada, [bob]).text("kitchen")


async def test_each_way_to_call_an_agent(server: Server, ada: User, bob: User, room: Room, home: Path) -> None:
    async with connected(home, server):
        await server.until(lambda: {"rosi", "tom"} <= {one["name"] for one in server.bot.commands}, 60)
        room.say(ada, "good morning")  # nobody is called
        room.say(ada, "Rosi, one")
        await answered(server, room, "**Rosi:** You said: Rosi, one")
        room.say(bob, "@tom two")
        await answered(server, room, "**Tom:** You said: @tom two")
        room.say(bob, "and now?", reply_to=said(server, room)[0])
        await answered(server, room, "**Rosi:** You said: and now?")
        used = server.slash(room, ada, "tom", {"text": 'is "four" even?'})
        await server.until(lambda: used.text, 60)
        assert used.text == '**Tom:** You said: @tom is "four" even?'
        room.say(ada, "Rosi, be silent")
        room.say(ada, "/rosi three")
        await answered(server, room, "**Rosi:** You said: @rosi three")
    assert len(texts(server, room)) + (used.text not in texts(server, room)) == 5


async def test_each_answer_of_a_chain_is_shown_while_it_is_written(
    server: Server, ada: User, room: Room, home: Path
) -> None:
    async with connected(home, server):
        room.say(ada, "Rosi, plan a feast")
        await server.until(lambda: len(texts(server, room)) > 1 and "Friday" in texts(server, room)[1], 60)
        assert texts(server, room)[1].startswith("**Tom:** On Friday")
        await answered(server, room, "**Rosi:** @tom, which day?", "**Tom:** On Friday, slowly and with care.")
        assert len(server.calls(POST)) == 2
        assert server.calls(EDIT)


async def test_nobody_is_asked_about_a_message_that_was_deleted(
    server: Server, ada: User, bob: User, room: Room, home: Path
) -> None:
    async with connected(home, server):
        first = room.say(ada, "@bot ask both")
        room.say(bob, "Tom, think")  # people come first: two calls wait
        await server.until(lambda: len(texts(server, room)) == 1, 60)
        room.delete(first)
        await answered(server, room, "@rosi, then @tom: what do you say?", "**Tom:** thought: Tom, think")
        room.say(ada, "Tom, later")
        await answered(server, room, "**Tom:** You said: Tom, later")
        assert len(texts(server, room)) == 3
    outcomes = [
        one["outcome"] for one in named(home, "bubbot/inbox/discord", "inbox/done") if len(one["inbounds"]) == 2
    ]
    assert outcomes == ["withdrawn"]


async def test_a_group_that_is_only_recorded_shows_its_agents_what_was_said(
    server: Server, ada: User, bob: User, home: Path
) -> None:
    room = server.guild("Family", ada, [bob]).text("kitchen")
    keys = {"owners": [ada.id, bob.id], "debounce": 0, "record_only": [room.id]}
    configured(home, server, SCRIPT, **keys)
    add_agents(home)
    async with connected(home, server):
        room.say(bob, "there are only onions")
        room.say(ada, "Rosi, what is for dinner?")
        await answered(server, room, "**Rosi:** You said: Rosi, what is for dinner?")
    assert len(texts(server, room)) == 1
    steps = [one for one in named(home, f"discord:{room.id}", "loop.step") if one["status"] == "ok"]
    shown = {number for low, high in steps[-1]["shown"] for number in range(low, high + 1)}
    assert len(shown) >= 3  # the anchor, what Bob said, and the question
