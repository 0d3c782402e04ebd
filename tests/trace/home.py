"""A home in which much has happened, for the trace page: many chats, memory, jobs, topics, deliveries, effects and an auditor."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from bubbot.home import Home
from bubbot.stores.sqlite.store import open_readonly
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import session_tape
from tests.privacy.model import please
from tests.privacy.oracle import canaries
from tests.privacy.world import PLACES, World

PLACE = {place.session: place for place in PLACES}
OWNER_CHAT, AUDITED, OTHER, GROUP = PLACE["tg:1"], PLACE["tg:5"], PLACE["tg:7"], PLACE["tg:-8"]
AUDITOR = "anna"
SHARED = ("bubbot/inbox/", "bubbot/outbox/", "bubbot/schedule", "bubbot/budget")


async def live(home: Path) -> World:
    """Let people live in a new home; `anna` may see the chat of the person 5."""
    world = World(home)
    async with world.life():
        for place in (OWNER_CHAT, AUDITED, OTHER):
            await world.say(place, f"About kw1: {world.canary()}")
            await world.say(place, please("memory_save", content=f"Likes {world.canary()}", scope="chat"))
            await world.say(place, please("memory_save", content=f"Loves {world.canary()}", scope="chat"))
            await world.say(place, please("memory_save", content=f"Is {world.canary()}", scope="user"))
            await world.say(place, f",schedule.add tomorrow at 9 text={world.canary()}")
            await world.say(place, ",topic rome")
            await world.say(place, f"Rome: {world.canary()}")
            await world.say(place, please("file_write", path="note.txt", content=world.canary()))
        await world.say(OWNER_CHAT, f",memory.save {world.canary()} scope=workspace")
        await world.say(GROUP, f"In the group: {world.canary()}", "5")
        await world.say(OWNER_CHAT, ",grant tg:7 to tg:5")
        await world.say(AUDITED, please("chat_read", session="tg:7", limit=5))
        state = world.daemon.bot.schedule_store
        assert state is not None
        for place in (OWNER_CHAT, AUDITED, OTHER):
            await world.say(place, please("memory_clear", confirm=True))  # asks
            (job,) = [each.job.id for each in state.state.jobs_of(place.session)]
            await world.say(place, f",schedule.run {job}")
            await world.fire(job)
        await world.say(OWNER_CHAT, f",audit {AUDITOR} of {AUDITED.session}")
    return world


def lived(home: Path) -> World:
    """The same, from a test that is not asynchronous."""
    return asyncio.run(live(home))


async def words_of_tapes(home: Path) -> Mapping[str, set[str]]:
    """Return the canaries on each tape, as it is stored."""
    store = await open_readonly(Home(home).database)
    try:
        names = [tape.name for tape in await store.tapes()]
        return {name: canaries((await store.fetch([TapeQuery(name)]))[0]) for name in names}
    finally:
        await store.aclose()


async def words_about(home: Path, session: str) -> set[str]:
    """Return the canaries that belong to a session: those on its tape, and in facts of shared tapes that name it."""
    store = await open_readonly(Home(home).database)
    try:
        found = (await words_of_tapes(home))[tape_of(home, session)]
        for tape in await store.tapes():
            if tape.name.startswith(SHARED):
                entries = (await store.fetch([TapeQuery(tape.name)]))[0]
                found |= canaries([each for each in entries if each.payload.get("data", {}).get("session") == session])
        return found
    finally:
        await store.aclose()


def tape_of(home: Path, session: str) -> str:
    """Return the name of the tape of a session."""
    return session_tape(str(home.resolve()), session)
