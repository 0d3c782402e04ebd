"""A real bot in its home, with every chat of a few people, whose words are watched wherever they appear.

The daemon, its features, its SQLite file, its adapters for platforms and its server are real; the platforms and the model are in
this process. A feature of its own watches requests and results of tools, as packages may; the platforms and the programs at the
server watch what people read, live previews included. So are watched: what a receiver of traces is sent, the log, and the trace
page.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import Random
from subprocess import CompletedProcess
from typing import Any
from unittest.mock import patch

from msgspec import structs
from pydantic import SecretStr

from bubbot.app import bot as bot_module
from bubbot.app.bot import PortWrappers
from bubbot.app.daemon import Daemon, open_daemon
from bubbot.app.turns import build_session_deps
from bubbot.arguments.fields import dump_args
from bubbot.errors import BubbotError, EntryNotFound
from bubbot.feature import Around, Feature, FeatureFactory
from bubbot.features.agents.settings import AgentsSettings
from bubbot.features.agents.task import SubTask
from bubbot.features.files.settings import FileSettings
from bubbot.features.memory.settings import MemorySettings, MemoryViewSettings
from bubbot.features.otel import exporter
from bubbot.features.otel.settings import OtelSettings
from bubbot.features.schedule.timer import JobTimer
from bubbot.gateway import live
from bubbot.home import Home
from bubbot.middleware import CallNext, ModelCall, ToolInvocation
from bubbot.ports.channel import (
    AGENT_ORIGIN,
    TASK_ORIGIN,
    Attachment,
    ButtonPress,
    ChannelEvent,
    ChatMigration,
    Deletion,
    Edit,
    HasChat,
    Inbound,
    Preview,
    Quote,
    Reaction,
    Role,
    Sender,
    TextStreamed,
)
from bubbot.ports.model import ModelReply
from bubbot.ports.turn import Turn
from bubbot.server.protocol import COMMAND_PATH, encode
from bubbot.settings.loader import ModelSettings
from bubbot.tape.entry import timestamp
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import session_tape
from bubbot.tool import Toolbox, ToolOutput
from tests.approving import acting_tools
from tests.e2e import inside
from tests.isolation.agents import AGENTS, BOT_NODES, NARROW_NODES, PRIVATE, AgentOracle, PrivateWord
from tests.isolation.doors import TOKEN, Doors, with_doors
from tests.isolation.model import LeakyModel
from tests.isolation.oracle import SECRET, Account, Oracle, Place, canaries
from tests.isolation.platforms import Platforms, Post
from tests.isolation.programs import read_all
from tests.isolation.watch import LogReader, SpanReceiver, TraceVisitor
from tests.made_settings import make_settings
from tests.summarising import is_summary
from tests.tasks import write_task

IMPORTED = "tg:30"
"""The chat whose tape came from another bot."""
DATE = "2026-11-21T20:21:00+00:00"
WAIT = 60.0
GUEST = ("tg", "9")
"""May speak in the open group alone."""
STRANGER = ("dc", "99")
PLACES = (
    Place("tg", "1", person="1", is_owner=True), Place("dc", "11", person="11", is_owner=True), Place("tg", "5", person="5"),
    Place("dc", "15", person="15"), Place("tg", "7", person="7"), Place("tg", "5", "3", person="5"),
    Place("tg", "-8", speakers=("1", "5", "7", "9")), Place("tg", "-8", "2", speakers=("5", "7", "9")),
    Place("dc", "90", speakers=("11", "15")), Place("dc", "90", "904", speakers=("11", "15")),
    Place("tg", "30", person="30"), Place("tg", "1", "6", person="1", is_owner=True),
    Place("stdin", "work", person="0", is_owner=True), Place("stdin", "home", person="0", is_owner=True),
)  # fmt: skip
PROGRAMS = tuple(place for place in PLACES if place.channel == "stdin")
"""The sessions of programs with the owner's token."""
BOT_KEY = "sk-zqkey7f3a9d1c5b8e"
"""The key of the bot's provider: nobody is shown it."""
SETTINGS = make_settings(
    FileSettings(enabled=True),
    OtelSettings(endpoint="http://127.0.0.1:9"),
    MemorySettings(
        view="all",
        views={"all": MemoryViewSettings(nodes=[*BOT_NODES]), "narrow": MemoryViewSettings(nodes=[*NARROW_NODES])},
    ),
    AgentsSettings.model_validate(AGENTS),
    model=ModelSettings(name="scripted", api_key=SecretStr(BOT_KEY)),
    channels={
        "tg": {
            "kind": "telegram", "token": f"7:{'a' * 35}", "owners": ["1"], "members": ["5", "7", "30"], "groups": ["-8"], "respond_to_all": ["-8"],
            "record_only": ["-8"], "debounce": 0, "messages_per_minute": 0, "messages_per_hour": 0,
        },
        "dc": {
            "kind": "discord", "token": f"{'a' * 24}.{'b' * 6}.{'c' * 27}", "owners": ["11"], "members": ["15"], "record_only": ["90"], "debounce": 0,
            "messages_per_minute": 0, "messages_per_hour": 0,
        },
    },
)  # fmt: skip
OF_NUMBERS = ("bubbot/budget", "bubbot/otel", "bubbot/models")
"""Tapes without words of people, as no checkpoint has any."""
READS_OWN_TAPE = ("tape.read", "tape.around", "tape.search", "session.context", "session.why", "tape.graph")
"""The tools that open what a sub-task left on the tape."""

TASK = """[nodes.look]
prompt = "What do you know?"

[nodes.again]
after = ["look"]
prompt = "And what else?"
"""
"""A task that repeats in each step what its chat knows, and tells it the chat."""


@dataclass
class World:
    """A home through several lives of its bot.

    Attributes:
        home: the folder.
        oracle: says who may see what.
        agents: says which agent may be shown what of that.
        leaks: what was shown to people or to the model who may not see it.
        seen: how often each kind of thing was watched, so that a run can prove that it looked.
        daemon: the bot of this life.
        toolbox: its tools.
        edited: set when a live answer grew.
        answers: by session, what its people have read since somebody wrote there.
        turns: messages that people have written.
        files: what was uploaded, by the platform's reference.
        buttons: those below messages of the bot: the session, the message and the ids.
        written: by session, the ids of the messages that people wrote there.
        posted: by session, the ids of the messages that the bot wrote there.
        words: by message, its canaries.
        moved: the newest name of each group whose id was changed, by the first one.
        visitor: looks at the trace page.
        doors: the programs at the server.
    """

    home: Path
    oracle: Oracle = field(default_factory=lambda: Oracle({place.session: place for place in PLACES}))
    agents: AgentOracle = field(default_factory=AgentOracle)
    leaks: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    daemon: Daemon = field(init=False)
    toolbox: Toolbox = field(init=False)
    edited: asyncio.Event = field(init=False)
    turns: int = 0
    answers: dict[str, list[str]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    buttons: list[tuple[str, str, list[str]]] = field(default_factory=list)
    written: dict[str, list[str]] = field(default_factory=dict)
    posted: dict[str, list[str]] = field(default_factory=dict)
    words: dict[str, set[str]] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    visitor: TraceVisitor = field(init=False)
    doors: Doors = field(init=False)
    _platforms: Platforms = field(init=False)
    _spans: SpanReceiver = field(default_factory=SpanReceiver)
    _log: LogReader = field(default_factory=lambda: LogReader(SETTINGS.secrets()))
    _replayed: dict[str, str] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=lambda: count(1))
    _canaries: count[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        channels = {place.thread or place.chat: place.session for place in PLACES if place.channel == "dc"}
        self._platforms = Platforms(self, channels)

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        """Run the bot until the block ends."""
        build = build_session_deps

        def capture(*arguments: object) -> object:
            made = build(*arguments)  # type: ignore[arg-type]
            self.toolbox = made[1]
            return made

        watching = FeatureFactory("watching", lambda _kernel, _settings: self._feature())
        self.edited = asyncio.Event()
        if not (self.home / "tasks").exists():
            write_task(self.home, "look", TASK)
        home, tools = Home(self.home), acting_tools(lambda name, _: self.seen.update([f"done {name}"]))[:1]
        wrappers = PortWrappers(
            model=lambda _: LeakyModel(self._wait_for_edit, self._is_discreet, self.agents.invent),
            tools=tools,
            features=(watching,),
        )
        with (
            self._spans.receive(),
            self._log.read(),
            patch.object(exporter, "GATHER_SECONDS", 0.02),
            self._platforms.serve(),
            patch.object(bot_module, "build_session_deps", capture),
            patch.object(live, "FIRST_MESSAGE_DELAY_SECONDS", 0.0),
            patch.object(live, "TYPING_DELAY_SECONDS", 0.0),
        ):
            async with AsyncExitStack() as stack:
                settings = with_doors(SETTINGS)
                self.daemon = await stack.enter_async_context(open_daemon(settings, home, wrappers=wrappers))
                bot = self.daemon.bot
                visitor = TraceVisitor.open(SETTINGS, home, bot, self.daemon.access, Random(self.turns))
                self.visitor = await stack.enter_async_context(visitor)
                otel = next(feature for feature in bot.features.lasting if feature.name == "otel")
                work = [asyncio.ensure_future(run()) for run in otel.lifecycle.background.values()]
                for task in work:
                    stack.callback(task.cancel)
                programs = [place.session for place in PROGRAMS]
                doors = Doors.open(self.daemon, settings, home, programs, self.show)
                self.doors = await stack.enter_async_context(doors)
                await bot.recover_all()
                await self.quiet()
                yield
                await self.quiet()
                self.look_outside()

    def canary(self) -> str:
        """Return a new word."""
        return f"zq{next(self._canaries):05}x"

    async def post(self, place: Place, text: str, sender: str = "", **more: Any) -> None:
        """Let somebody write; returns once the message is durable, or refused, or on its way. `more`: see `compose`."""
        inbound = self.compose(place, text, sender, **more)
        if place not in PROGRAMS:
            return await self.receive(inbound)
        way = self.turns % 4
        if inbound.attachments or way == 0:
            self.doors.ask(inbound, {each.reference: self.files[each.reference] for each in inbound.attachments})
        elif inbound.quote is not None or way == 1:
            await self.receive(inbound)
        else:
            self.seen["completion"] += 1
            self.doors.complete(inbound, stream=way == 2)
        return None

    def compose(
        self,
        place: Place,
        text: str,
        sender: str = "",
        *,
        addressed: bool = True,
        quote: Quote | None = None,
        attachments: tuple[Attachment, ...] = (),
        is_forwarded: bool = False,
    ) -> Inbound:
        """Note that somebody writes, and return the message."""
        oracle, who = self.oracle, sender or place.person or ""
        oracle.present[place.session] |= canaries(text)
        if not text.startswith(",") or text.startswith(
            (",correct ", ",session.correct ")
        ):  # a correction is what its person says, too
            oracle.said[place.session] |= canaries(text)
        files = [*attachments, *(quote.attachments if quote else ())]
        read = [self.files[each.reference].decode(errors="replace") for each in files]
        further = f"{quote} {attachments} {read}"
        self.write(place.session, further)
        number = self.turns = self.turns + 1
        message = str(number)
        self.written.setdefault(place.session, []).append(message)
        self.words[message] = canaries(f"{text} {further}")
        return Inbound(
            place.channel, message, self.chat_of(place), Sender(who, f"Person {who}"), text, timestamp(datetime.now(UTC)),
            thread=place.thread, message=message, direct=place.person is not None,
            addressed=addressed or place.person is not None, quote=quote, attachments=attachments,
            provenance="world" if is_forwarded else "own",
        )  # fmt: skip

    async def receive(self, event: ChannelEvent) -> None:
        """Let a platform or a program report something; returns once it is durable, or refused."""
        if event.channel == PROGRAMS[0].channel and isinstance(event, HasChat):
            return await self.doors.receive(event, event.session)
        await self.daemon.bot.channel_runtimes[event.channel].gate.receive(event)
        return None

    async def hand_over_file(self, place: Place, text: str, file: Attachment) -> None:
        """Let a program send a message with a file that it says is there already."""
        self.seen["reach"] += 1
        inbound = structs.replace(self.compose(place, text), attachments=(file,))
        bot = self.daemon.bot
        with suppress(EntryNotFound):  # the file of another chat, which is refused
            data = await bot.base_store.get_blob(session_tape(bot.workspace, place.session), file.digest)
            # an own file of this chat, or the system prompt of an earlier request
            words = data.decode(errors="replace")
            self.agents.hand_over(words, place.session)
            self.oracle.present[place.session] |= canaries(words) & self.oracle.shown[place.session]
        await self.receive(inbound)
        await self.quiet()

    async def trespass(self, place: Place, other: Place, sender: str, text: str) -> None:
        """Let a program speak for somebody in a chat of a platform, and open that chat: its words get nowhere."""
        self.seen["reach"] += 1
        number = f"t{next(self._numbers)}"
        inbound = Inbound(
            other.channel, number, self.chat_of(other), Sender(sender), text, timestamp(datetime.now(UTC)),
            thread=other.thread, message=number,
        )  # fmt: skip
        for name, body in (("event", {"event": encode(inbound)}), ("open", {"session": other.session})):
            answer = await self.doors.try_request(place.session, name, body)
            self.look("door", place.session, str(answer))
        await self.quiet()

    async def repeat(self, first: Place, second: Place, texts: Sequence[str]) -> None:
        """Let a program ask behind another one and leave; then one in the second session chooses the same id."""
        self.seen["repeat"] += 1
        await self.receive(self.compose(first, texts[0]))
        asked = self.compose(first, texts[1])
        await self.doors.leave_behind(asked)
        again = structs.replace(asked, chat=second.chat, text=texts[2])
        await self.receive(again)
        await self.quiet()

    async def edit(self, place: Place, message: str, text: str, sender: str) -> None:
        """Let somebody change a message. What people write who may not speak gets nowhere."""
        if place.has(place.channel, sender):
            self.write(place.session, text)
        who, when = Sender(sender, f"Person {sender}"), timestamp(datetime.now(UTC))
        key = f"e{next(self._numbers)}"
        await self.receive(Edit(place.channel, key, self.chat_of(place), message, who, text, when, place.thread))
        await self.quiet()

    async def delete(self, place: Place, message: str) -> None:
        """Let somebody delete a message: what was said in it alone is said no more."""
        self.seen["deleted"] += 1
        key, when = f"d{next(self._numbers)}", timestamp(datetime.now(UTC))
        await self.receive(Deletion(place.channel, key, self.chat_of(place), message, when, place.thread))
        await self.quiet()
        self.oracle.said[place.session] -= self.words[message] - self.oracle.repeated[place.session]

    async def react(self, place: Place, message: str, emojis: tuple[str, ...], sender: str) -> None:
        """Let somebody react to a message: the names of emojis are words, too."""
        self.seen["reaction"] += 1
        if place.has(place.channel, sender):
            self.write(place.session, " ".join(emojis))
        who, when = Sender(sender, f"Person {sender}"), timestamp(datetime.now(UTC))
        key = f"r{next(self._numbers)}"
        await self.receive(Reaction(place.channel, key, self.chat_of(place), message, who, emojis, when, place.thread))
        await self.quiet()

    async def press(self, place: Place, message: str, button: str, sender: str) -> None:
        """Let somebody press a button, which may stand below a message of another chat."""
        who, when = Sender(sender, f"Person {sender}"), timestamp(datetime.now(UTC))
        key, is_direct = f"b{next(self._numbers)}", place.person is not None
        await self.receive(
            ButtonPress(
                place.channel, key, self.chat_of(place), message, who, button, when, place.thread, direct=is_direct
            )
        )
        await self.quiet()

    async def move(self, place: Place, to: str) -> None:
        """The platform gives a group another id."""
        self.moved[place.chat_session] = f"{place.channel}:{to}"
        self.seen["moved"] += 1
        key = f"v{next(self._numbers)}"
        await self.receive(ChatMigration(place.channel, key, place.chat, to, timestamp(datetime.now(UTC))))

    def chat_of(self, place: Place) -> str:
        """Return the id of a chat on its platform now."""
        return self.moved.get(place.chat_session, place.chat_session).partition(":")[2]

    def newest_name(self, session: str) -> str:
        """Return the session as its platform names it now."""
        old = next((old for old in self.moved if f"{session}:".startswith(f"{old}:")), "")
        return self.moved[old] + session.removeprefix(old) if old else session

    def first_name(self, session: str) -> str:
        """Return the session as it was named first."""
        old, new = next((pair for pair in self.moved.items() if f"{session}:".startswith(f"{pair[1]}:")), ("", ""))
        return old + session.removeprefix(new) if old else session

    def write(self, session: str, text: str) -> None:
        """Note what somebody said in a session, by any way on which words come in."""
        self.oracle.present[session] |= canaries(text)
        self.oracle.said[session] |= canaries(text)

    async def say(self, place: Place, text: str, sender: str = "", **more: Any) -> str:
        """Let somebody write, and return the answer once all is quiet; empty if there is none. `more`: see `post`."""
        read = self.answers[place.session] = []
        async with asyncio.timeout(WAIT):
            await self.post(place, text, sender, **more)
            await self.quiet()
        self.look_outside()
        return "\n".join(read)

    async def quiet(self) -> None:
        """Return when no turn runs and nothing is delivered."""
        for _ in range(2):
            await self.doors.quiet()
            await self.daemon.bot.runtime.wait_idle()
            for runtime in self.daemon.bot.channel_runtimes.values():
                await runtime.deliverer.wait_until_idle()

    async def fire(self, job: str) -> None:
        """Let a job run whose time has come, as the timer of a daemon does."""
        schedule = self.daemon.bot.features.schedule
        assert schedule is not None
        timer = JobTimer(schedule.store, self.daemon.bot.directory.accept, notify_missed=schedule.notify_missed)
        await timer.check_job(job)
        await self.quiet()

    def read(self, post: Post) -> None:
        """See `People`."""
        session = self.first_name(post.session)
        self.seen["edit" if post.is_edit else "sent"] += 1
        if post.is_edit:
            self.edited.set()
        else:
            self.posted.setdefault(session, []).append(post.message)
        if post.buttons:
            self.buttons.append((session, post.message, list(post.buttons)))
        quoted = self.words.get(post.reply_to, ())
        text = " ".join([post.text, *(f"[{label}]" for label in post.labels)])
        if post.reply_to and post.reply_to not in self.written.get(session, ()):
            self.leaks.append(f"sent to {session}: a reply to a message of another chat")
        self.show("sent", session, text, f"{post.rest} {quoted}")

    def notice_typing(self, session: str) -> None:
        """See `People`."""
        self.seen["typing"] += 1
        if self.first_name(session) not in self.oracle.places:
            self.leaks.append(f"typing in {session}, where nobody may speak")

    def watch(self, session: str, event: Preview) -> None:
        """See `People`."""
        self.seen["preview"] += isinstance(event, TextStreamed)
        self.look("preview", session, str(event))
        if self.seen["preview"] % 50 == 49:  # as an error of a library, with the address that it called
            raise ConnectionError(f"POST https://example.org/bot{BOT_KEY}/edit")

    def download(self, reference: str) -> bytes:
        """See `People`."""
        return self.files[reference]

    def show(self, where: str, session: str, text: str, rest: str = "") -> None:
        """Note what the people of a chat read; `rest` comes with it, such as a file."""
        self.seen[f"{where} to a program"] += session.startswith("stdin:")
        if session in self.oracle.places:
            if where == "sent":
                self.answers.setdefault(session, []).append(text)
            self.look(where, session, f"{text} {rest}")
            if where == "sent":  # a terminal shows the calls of sub-tasks while they run
                self.look_for_secrets(where, session, f"{text} {rest}")
        elif found := canaries(f"{text} {rest}"):  # somebody who may not speak at all
            self.leaks.append(f"{where} to {session}: {found}")

    async def knock(self, token: str, place: Place, text: str) -> None:
        """Let somebody with another token than the owner's knock at the doors for programs: nothing comes in or out."""
        for path, answer in [*await self.doors.knock(token, place.chat, text), *await self.doors.read_health()]:
            self.seen["knock"] += 1
            self.leaks += [f"{path} for a stranger: {word}" for word in sorted(canaries(answer))]
        _, status = await self.doors.request(f"{COMMAND_PATH}status", {}, TOKEN)
        self.seen["status"] += '"snapshot"' in status
        self.leaks += [f"status for a program: {word}" for word in sorted(canaries(status) - self.oracle.jobs)]
        if await self.visitor.admit(TOKEN) is not None:
            self.leaks.append("the trace page takes the token of programs")
        await self.quiet()

    def look(self, where: str, session: str, text: str, *, elsewhere: bool = False) -> None:
        """Check what is shown in a session; what may be seen there is there from now on."""
        if session not in self.oracle.places:
            self.leaks.append(f"{where} in {session}, where nobody may speak: {text[:200]}")
            return
        found = canaries(text)
        visible = self.oracle.visible(session, elsewhere=elsewhere)
        self.leaks += [f"{where} in {session}: {word}" for word in sorted(found - visible)]
        self.leaks += [f"{where} in {session}: the key of the bot"] if BOT_KEY in text else []
        (self.oracle.shown if where == "request" else self.oracle.present)[session] |= found & visible

    def look_for_secrets(self, where: str, session: str, text: str) -> None:
        """Check that what only a sub-task knows is not shown."""
        found = set(SECRET.findall(text)) - self.oracle.secrets[session]
        self.leaks += [f"{where} in {session}: {word}, of a sub-task" for word in sorted(found)]

    def look_outside(self) -> None:
        """Look at what leaves the bot for others than people: nothing that anybody wrote is there."""
        for where, text in (("spans", self._spans.take()), ("log", self._log.take())):
            self.seen[where] += bool(text)
            self.leaks += [f"{where}: {word}" for word in sorted(canaries(text))]
            self.leaks += [f"{where}: the key of the bot"] if BOT_KEY in text else []

    async def visit(self, person: str, pages: int = 24) -> None:
        """Let somebody look at the trace page."""
        visible = self.oracle.audited(person)
        for path, text in await self.visitor.look(person, pages):
            self.seen["page"] += 1
            self.seen["audited page"] += bool(canaries(text))
            self.leaks += [f"page {path} for {person}: {word}" for word in sorted(canaries(text) - visible)]
        granted = sorted(session for auditor, session in self.oracle.audits if auditor == person)
        everywhere = [place.session for place in PLACES]
        async for tool, text in read_all(self.visitor.store, self.visitor.workspace, granted, everywhere):
            self.seen["program"] += bool(canaries(text))
            words = sorted(canaries(text) - self.oracle.audited_alone(person))
            self.leaks += [f"{tool} for a program that may read {granted}: {word}" for word in words]

    async def _wait_for_edit(self) -> None:
        """Let a live answer grow before its end, every now and then."""
        if next(self._numbers) % 8 == 0:
            self.edited.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(0.03):
                    await self.edited.wait()

    def _is_discreet(self) -> bool:
        """Return true for most answers."""
        return next(self._numbers) % 20 > 0

    def _feature(self) -> Feature:
        return Feature(name="watching", around=Around(model=(self._watch_model,), tool=(self._watch_tool,)))

    async def _watch_model(self, call: ModelCall, call_next: CallNext[ModelCall, ModelReply]) -> ModelReply:
        turn, request = call.turn, call.request
        if turn.session in self._replayed:  # an owner has the turns of a chat run again: nobody is shown what comes out
            self.seen["replayed"] += 1
            self.look("request", self._replayed[turn.session], f"{request.system}\n{request.messages}")
            return await call_next(call)
        session, text = turn.session, f"{request.system}\n{[dict(message) for message in request.messages]}"
        is_answering = not turn.is_subtask and not is_summary(request)
        self.seen["sub-task" if turn.is_subtask else "summary" if is_summary(request) else "request"] += 1
        self.seen["view"] += is_answering and ", newest messages" in text
        self.seen["view of anchors"] += is_answering and ", anchors" in text and "UTC, anchor " in text
        is_step_of_task = turn.origin.startswith(f"{TASK_ORIGIN}:")
        self.seen["asked in a task"] += is_step_of_task
        self.seen["evidence"] += is_answering and "Recalled from earlier in this chat" in text
        self.seen["picture"] += "base64," in text
        self.seen["own memory"] += "This person, in every direct chat" in request.system
        if is_answering:  # a command that failed is said, too
            words = canaries([accepted.inbound.text for accepted in turn.inbounds])
            self.oracle.said[session] |= words & self.oracle.present[session]
        self.look("request", session, text, elsewhere=turn.replies_elsewhere)
        if not turn.is_subtask:
            self.look_for_secrets("request", session, text)
        self._look_at_agent(turn, text, sums_up=is_summary(request))
        reply = await call_next(call)
        self._note_words(turn, reply)
        self.oracle.jobs |= canaries([call.arguments for call in reply.calls if call.name == "post_send"])
        self.look("reply", session, f"{reply.text} {reply.calls}", elsewhere=turn.replies_elsewhere)
        if (is_answering or is_step_of_task) and not reply.calls:  # what a step came to, its task tells the chat
            self.oracle.said[session] |= canaries(reply.text) & self.oracle.present[session]
            self.oracle.repeated[session] |= canaries(reply.text)
            if is_answering and turn.replies_elsewhere:
                self._send_elsewhere(turn.cause, session, reply.text)
        return reply

    def _look_at_agent(self, turn: Turn, text: str, *, sums_up: bool) -> None:
        """Check that an agent is asked where it may be, with the rights of a person, and is not shown what belongs to others.

        What sums a window up is no agent: it reads the calls of all.
        """
        if turn.runs_command:  # what explains something to people
            return
        session, agent = turn.session, turn.agent.name
        fork = turn.tape.id if turn.is_subtask else ""
        self.seen[f"asked {agent or 'the bot'}"] += 1
        self.seen["asked by an agent"] += turn.origin == AGENT_ORIGIN
        self.seen["own words"] += bool(PRIVATE.search(text))
        owners = {(place.channel, place.person) for place in PLACES if place.is_owner}
        if turn.origin == AGENT_ORIGIN and turn.role is Role.OWNER:
            person = session.partition(":")[0], turn.sender.id
            self.leaks += [] if person in owners else [f"{agent} is an owner in {session}, for {person}"]
        if sums_up:
            return
        if not self.agents.may_be_in(agent, session):
            self.leaks.append(f"{agent} in {session}")
        found = self.agents.hidden(text, (session, agent), turn=turn.id, fork=fork)
        self.leaks += [f"{agent or 'the bot'} in {session}: {word} of {self.agents.words[word]}" for word in found]

    def _note_words(self, turn: Turn, reply: ModelReply) -> None:
        """Note to whom the words belong that an agent has written."""
        session, agent = turn.session, turn.agent.name
        fork = turn.tape.id if turn.is_subtask else ""
        task = turn.find_metadata(SubTask)
        order = None if task is None else task.order.branch
        if order is not None:
            self.agents.groups[session] = order.group
            of_branch = PrivateWord(
                "branch call", session, order.alternative.agent or "", "", turn.id, fork, (order.group, order.number)
            )
            self.seen["branch"] += 1
            self.agents.note(str(reply.calls), of_branch)
            self.agents.note(reply.text, replace(of_branch, kind="branch answer"))
            return
        self.agents.note(str(reply.calls), PrivateWord("task" if fork else "call", session, agent, "", turn.id, fork))
        self.agents.note(reply.text, PrivateWord("task" if fork else "said", session, agent, "", turn.id, fork))

    async def _watch_tool(self, call: ToolInvocation, call_next: CallNext[ToolInvocation, ToolOutput]) -> ToolOutput:
        turn, name, args = call.turn, call.tool.name, dump_args(call.args)
        session, place = turn.session, self.oracle.places[turn.session]
        if name in ("memory.save", "memory.daily"):
            self.oracle.keep(session, args["scope"], args["content"])
        if name == "memory.remember":
            self.oracle.keep(session, args["scope"], args["text"])
        if name.startswith("schedule."):
            self.oracle.jobs |= canaries(args)
            self._edit_elsewhere(session, args)
        if turn.is_subtask and name == "agent.run":
            self.seen["secret"] += bool(SECRET.search(args["task"]))
        if turn.replies_elsewhere:
            self._send_elsewhere(turn.cause, session, "")
        if name == "session.explain" and self.oracle.places[session] in PROGRAMS and args["chat"] in self.oracle.places:
            self.oracle.present[session] |= self.oracle.visible(args["chat"])  # whoever has the home may look at it
        if name in ("topic.open", "topic.bind") or (name == "tape.handoff" and call.call is None):
            self.oracle.said[session] |= (
                canaries(args) & self.oracle.present[session]
            )  # names and states that people typed
        if name == "session.replay" and place.is_owner and args["chat"] in self.oracle.places:
            self._replayed[session] = args["chat"]
        try:
            output = await call_next(call)
        except BubbotError as error:  # the reason is shown, too, and stays on the tape
            self.look(name, session, str(error), elsewhere=turn.replies_elsewhere)
            raise
        finally:
            if name == "session.replay":
                self._replayed.pop(session, None)
        self.seen[name] += 1
        self._follow(turn, name, args)
        text = output if isinstance(output, str) else str(output)
        self._look_at_tool(turn, name, text)
        if name == "chat.read":
            self.seen["granted"] += bool(canaries(text))
        self.look(name, session, text, elsewhere=turn.replies_elsewhere)
        if name == "session.usage" and not self.oracle.places[session].is_owner and "Person " in text:
            self.leaks.append(f"who uses the bot elsewhere, in {session}")
        if name in READS_OWN_TAPE and not turn.is_subtask:
            self.oracle.secrets[session] |= set(SECRET.findall(text))
        elif not turn.is_subtask:
            self.look_for_secrets(name, session, text)
        return output

    def _look_at_tool(self, turn: Turn, name: str, text: str) -> None:
        """Check that the agent may call a tool, and may look up what that shows it."""
        if turn.runs_command:
            return
        session, agent = turn.session, turn.agent.name
        each: Turn | None = turn
        while each is not None and not each.runs_command:  # nobody may do more through others
            if not self.agents.may_call(each.agent.name, name):
                self.leaks.append(f"{name} called for {each.agent.name} in {session}")
            each = each.parent
        fork = turn.tape.id if turn.is_subtask else ""
        found = self.agents.find(text, (session, agent), tool=name, turn=turn.id, fork=fork)
        self.leaks += [f"{name} for {agent or 'the bot'} in {session}: {word}" for word in found]

    def _follow(self, turn: Turn, name: str, args: Mapping[str, Any]) -> None:
        """Note who may read what, and who is whom, from now on: however it was changed."""
        oracle, place = self.oracle, self.oracle.places[turn.session]
        if name in ("grant.add", "grant.revoke"):
            if not place.is_owner:
                self.leaks.append(f"{name} in {turn.session}")
            change = oracle.readings.add if name == "grant.add" else oracle.readings.discard
            change((self.first_name(args["source"]), self.first_name(args["reader"])))
        elif name in ("audit.add", "audit.revoke"):
            if not place.is_owner:
                self.leaks.append(f"{name} in {turn.session}")
            change = oracle.audits.add if name == "audit.add" else oracle.audits.discard
            change((args["auditor"], self.first_name(args["session"])))
        elif name == "view.add":  # an owner may write into the view of another chat
            shown = self.first_name(args.get("chat") or turn.session)
            oracle.present[shown] |= canaries(args) & oracle.present[turn.session]
            self.agents.views.add((shown, self.first_name(args["session"]), args["what"], args["agent"].strip()))
        elif name == "view.remove":
            shown, viewed = self.first_name(args.get("chat") or turn.session), self.first_name(args["session"])
            for view in [*self.agents.views]:
                is_meant = args["what"] in ("", view[2]) and args["agent"].strip() in ("", view[3])
                if view[:2] == (shown, viewed) and is_meant:
                    self.agents.views.discard(view)
        elif name in ("topic.open", "topic.bind") and args.get("source"):
            self.agents.bound.add((turn.session, self.first_name(args["source"])))
        elif name == "topic.bind":  # a thread goes on with a topic of its chat
            self.agents.bound.add((turn.session, place.chat_session))
        elif name == "branch.choose":
            self.agents.choose(turn.session, turn.agent.name, args["group"], args["number"])
        elif name == "access.grant":
            oracle.admit(args["channel"] or place.channel, args["id"])
        elif name == "people.export":  # of the chats that one is in
            oracle.present[turn.session] |= oracle.of_person((place.channel, turn.sender.id))
        elif name == "access.unlink":
            oracle.unlink((place.channel, turn.sender.id))
        elif name == "access.revoke":  # ends the links of the account, too
            account = (args["channel"] or place.channel, args["id"])
            oracle.unlink(account)
            oracle.send_away(*account)
            oracle.audits = {audit for audit in oracle.audits if audit[0] != ":".join(account)}

    def _edit_elsewhere(self, session: str, args: Mapping[str, object]) -> None:
        """What an owner writes into the job of another chat is there for that chat."""
        schedule = self.daemon.bot.schedule_store
        assert schedule is not None
        state = schedule.state.jobs.get(str(args.get("job")))
        if state is not None and self.oracle.places[session].is_owner:
            self.oracle.present[state.job.session] |= canaries(args) & self.oracle.present[session]

    def _send_elsewhere(self, job_id: str, session: str, text: str) -> None:
        """An owner made a job whose answer goes to another chat: that is the reason why it may."""
        place = self.oracle.places[session]
        if not place.is_owner:
            self.leaks.append(f"a job of {session} answers elsewhere")
            return
        schedule = self.daemon.bot.schedule_store
        assert schedule is not None
        if (state := schedule.state.jobs.get(job_id)) is not None:
            self.seen["job elsewhere"] += 1
            target = state.job.target.session
            if target in self.oracle.places:
                self.oracle.present[target] |= canaries([text, state.job.text]) & self.oracle.present[session]

    async def audit(self) -> None:
        """Look through the tapes: each holds what got into its chat for a reason, and nothing else."""
        store, workspace = self.daemon.bot.base_store, self.daemon.bot.workspace
        for session in self.oracle.places:
            (entries,) = await store.fetch([TapeQuery(session_tape(workspace, session))])
            found = canaries([(entry.payload, entry.meta) for entry in entries])
            allowed = self.oracle.present[session] | self.oracle.shared
            self.leaks += [f"tape of {session}: {word}" for word in sorted(found - allowed)]
        for tape in await store.tapes():
            if tape.name.startswith("bubbot/"):
                (entries,) = await store.fetch([TapeQuery(tape.name)])
                sums = [
                    entry for entry in entries if tape.name in OF_NUMBERS or str(entry.name).endswith("/checkpoint")
                ]
                found = canaries([(entry.payload, entry.meta) for entry in sums])
                self.leaks += [f"{tape.name}: {word}" for word in sorted(found)]

    def import_tape(self, session: str) -> None:
        """Read the tape of another bot for a session, while no bot runs."""
        path = self.home.parent / f"{session.replace(':', '_')}.jsonl"
        words = [self.canary() for _ in range(6)]
        self.write(session, " ".join(words))
        entries = [
            {"id": number, "kind": "message", "payload": {"role": role, "content": f"About kwall: {word}"}, "meta": {}, "date": DATE}
            for number, (word, role) in enumerate(zip(words, ("user", "assistant") * 3, strict=True), 1)
        ]  # fmt: skip
        path.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
        done = inside.run(self.home, "tape", "import", str(path), "--session", session)
        assert done.returncode == 0, done.stderr.decode()
        self._look_at_command("tape import", done, set())

    def export(self) -> None:
        """Look at everything that the shell writes of one chat or of one person."""
        oracle = self.oracle
        for place, session in enumerate(oracle.places):
            further = (("tape", "graph"), ("context", "compare"), ("why",), ("tape", "show"), ("memory", "show"))
            for command in (("tape", "export"), ("memory", "export"), further[place % len(further)]):
                self._export(oracle.present[session] | oracle.shared, *command, session)
        for account in {account_of(place) for place in PLACES if place.person is not None}:
            self._export(oracle.own_memory(account), "memory", "export", "--user", ":".join(account))
        self._export(oracle.shared, "memory", "export", "--workspace")
        self._export(oracle.jobs, "schedule", "list")
        for command in (("access", "history"), ("usage",)):
            self._export(set(), *command)

    def export_system(self) -> None:
        """Try to export what is about more than one chat."""
        for tape in ("bubbot/memory/workspace", "bubbot/outbox/tg", "bubbot/inbox/tg", "bubbot/schedule"):
            self._export(set(), "tape", "export", tape)

    def _export(self, allowed: set[str], *command: str) -> None:
        self._look_at_command(" ".join(command), inside.run(self.home, *command), allowed)

    def _look_at_command(self, command: str, done: CompletedProcess[bytes], allowed: set[str]) -> None:
        found = canaries(done.stdout.decode() + done.stderr.decode())
        self.seen["export"] += bool(found)
        self.leaks += [f"{command}: {word}" for word in sorted(found - allowed)]


def account_of(place: Place) -> Account:
    """Return the account of a direct chat."""
    assert place.person is not None
    return place.channel, place.person
