"""A home in which much has happened, for the trace page: many chats, memory, jobs, topics, deliveries, effects and an auditor."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from bubbot.app.bot import PortWrappers, open_app
from bubbot.home import Home
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Inbound, Sender
from bubbot.ports.model import ModelEvent, ModelReply, ModelRequest, Usage
from bubbot.settings.loader import ModelSettings, Settings
from bubbot.stores.sqlite.store import open_readonly, open_store
from bubbot.tape import entry as make
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import timestamp
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService, session_tape
from tests.doubles import SteppingClock
from tests.isolation.model import please
from tests.isolation.oracle import Place, canaries
from tests.isolation.world import PLACES, World

PLACE = {place.session: place for place in PLACES}
OWNER_CHAT, AUDITED, OTHER, GROUP = PLACE["tg:1"], PLACE["tg:5"], PLACE["tg:7"], PLACE["tg:-8"]
THREAD = PLACE["tg:5:3"]
PROMPT_WORDS = ("workspaceword7q", "personword7q")
"""Words that the model of the audited chat was shown in its system prompt only: the memory of others, and of the person."""
AUDITOR = "anna"
T = TypeVar("T")
SHARED = ("bubbot/inbox/", "bubbot/outbox/", "bubbot/schedule", "bubbot/budget", "bubbot/replay")


async def live(home: Path) -> World:
    """Let people live in a new home; `anna` may see the chat of the person 5."""
    world, people = World(home), dict[Place, str]()
    async with world.life():
        for place in (OWNER_CHAT, AUDITED, OTHER):
            await world.say(place, f"About kw1: {world.canary()}")
            likes = f"Likes {world.canary()}"
            await world.say(place, please("memory_save", content=likes, scope="chat"))
            # It adds a line only: one that takes something away would ask.
            await world.say(place, please("memory_save", content=f"{likes}\nLoves {world.canary()}", scope="chat"))
            person = f"Is {world.canary()}"
            await world.say(place, please("memory_save", content=person, scope="user"))
            people[place] = person
            await world.say(place, f",schedule.add tomorrow at 9 text={world.canary()}")
            await world.say(place, ",topic rome")
            await world.say(place, f"Rome: {world.canary()}")
            await world.say(place, please("file_write", path="note.txt", content=world.canary()))
        everybody = world.canary()
        await world.say(OWNER_CHAT, f",memory.save {everybody} scope=workspace")
        for place, text, scope in (
            (OWNER_CHAT, f"{everybody}\n{PROMPT_WORDS[0]}", "workspace"),
            (THREAD, f"{people[AUDITED]}\n{PROMPT_WORDS[1]}", "user"),
        ):
            assert (await world.say(place, f',memory.save "{text}" scope={scope}')).startswith("Saved")
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
        for place in (AUDITED, OTHER):
            await world.say(place, f"At last: {world.canary()}")
            assert "wrote: “" in await world.say(place, f",explain What of {world.canary()}?")
        for place in (OWNER_CHAT, AUDITED, OTHER):  # their turns run again with another model
            await world.say(place, ",consent evaluation yes")
        await world.say(OWNER_CHAT, f",audit {AUDITOR} of {AUDITED.session}")
    await replay(home, {place.session: world.canary() for place in (AUDITED, OTHER)})
    return world


class OtherModel(ScriptedModel):
    """Gives one answer to everything."""

    answer = ""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        yield ModelReply(f"Else: {self.answer}", usage=Usage(len(request.as_bytes()) // 4, 5))


async def replay(home: Path, answers: Mapping[str, str]) -> None:
    """Replay chats at the terminal, each with a model that gives this answer."""
    model, sender, settings = OtherModel(), Sender("0", "owner"), Settings(model=ModelSettings(name="scripted"))
    options: Mapping[str, Any] = {"channel_settings": {"write": lambda _: None}}
    async with open_app(settings, Home(home), wrappers=PortWrappers(model=lambda _: model), **options) as bot:
        for session, answer in answers.items():
            model.answer = answer
            for number, again in enumerate(("", " again=yes")):
                text = f",replay chat={session}{again}"
                when = timestamp(datetime.now(UTC))
                told = await bot.ask(Inbound("stdin", f"{session} {number}", "replay", sender, text, when))
                assert "Replays" in told.text, told.text


def apart(work: Coroutine[Any, Any, T]) -> T:
    """Run something asynchronous in a thread of its own: the driver of the browser keeps a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def lived(home: Path) -> World:
    """The same, from a test that is not asynchronous."""
    return apart(live(home))


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


HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<img src=x onerror=alert(3)>",
    '"><svg onload=alert(4)>',
    "' onmouseover='alert(5)",
    "[x](javascript:alert(6)) javascript:alert(7)",
    '<a href="javascript:alert(8)">press</a>',
    "<iframe src=http://evil.example/></iframe><link rel=stylesheet href=http://evil.example/x.css>",
    "<style>body{display:none}</style><base href=http://evil.example/>",
    "<meta http-equiv=refresh content='0;url=http://evil.example/'>",
    "</textarea></title></pre><!-- ]]> --!>",
    "{{ 7*7 }}{% for x in y %}${7*7}",
    '=HYPERLINK("http://evil.example/","x")',
    "\u202egnp.exe\u2066\u2069 \u200f\u0627\u0644\u0639",
    "\x00\x1b[2J\ud800",
)
"""Words that try to be more than words."""


async def find_hostile(home: Path, session: str) -> list[int]:
    """Return the first entry of each kind that `add_hostile` added, for some of the words, and the long one."""
    store = await open_readonly(Home(home).database)
    try:
        head = await store.head(tape_of(home, session))
        first = head - 6 * len(HOSTILE)
        return [*range(first, first + 12), head]
    finally:
        await store.aclose()


async def add_hostile(home: Path, session: str) -> int:
    """Add entries of every kind whose every text is hostile, and one of a megabyte; return the newest id."""
    store = await open_store(Home(home).database, salt=os.urandom, now=SteppingClock())
    tape = TapeService(store, tape_of(home, session), now=SteppingClock(), new_id=str, session=session)
    try:
        for text in (each.encode(errors="replace").decode() for each in HOSTILE):
            sender = {"id": "5", "name": text}
            await tape.append(
                [
                    make.message("user", text, sender=sender),
                    make.tool_call([{"id": text, "type": "function", "function": {"name": text, "arguments": text}}]),
                    make.tool_result([{"tool_call_id": text, "content": text}]),
                    make.event(text, {text: text, "blobs": [text]}),
                    make.error(text, text),
                    anchor(f"topic/{text}", {"owner": text, "summary": text}),
                ]
            )
        await tape.append([make.message("user", "</script>" + "A" * 1_000_000 + "<script>alert(9)</script>")])
        return await tape.head()
    finally:
        await store.aclose()


async def add_turn(home: Path, session: str, question: str, answer: str) -> None:
    """Add a turn as a bot writes it."""
    store = await open_store(Home(home).database, salt=os.urandom, now=SteppingClock())
    tape = TapeService(store, tape_of(home, session), now=SteppingClock(), new_id=str, session=session)
    try:
        await tape.append(
            [
                make.event("turn/start", {"attempt": 1, "session": session, "inbounds": []}, turn="c" * 32),
                make.message("user", question, turn="c" * 32),
                make.message("assistant", answer, turn="c" * 32),
                make.event("turn/end", {"status": "answered"}, turn="c" * 32),
            ]
        )
    finally:
        await store.aclose()
