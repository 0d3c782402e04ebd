"""A whole bot whose clock, ids and random bytes are fixed, and on which people act one after another."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from hashlib import shake_256
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import tomlkit

from bubbot.app import tapes
from bubbot.app.bot import PortWrappers
from bubbot.app.channel_factory import ChannelFactory
from bubbot.app.daemon import Daemon, open_daemon
from bubbot.app.own_features import settings_schema
from bubbot.app.reload import Reloader
from bubbot.app.stores import find_workspace
from bubbot.features.schedule.timer import JobTimer
from bubbot.home import Home
from bubbot.ports.channel import ChannelEvent, Inbound, MessagePart, Outbound, Receipt, Receive, Sender
from bubbot.ports.model import ModelEvent, ModelRequest, ModelTraits
from bubbot.tape.entry import timestamp
from tests.approving import acting_tools
from tests.doubles import FixedClock
from tests.e2e import inside
from tests.isolation.model import CONTEXT_TOKENS, LeakyModel

WAIT = 60.0
OTHER_MODEL = "openai/gpt-5-mini"
COMMON: Mapping[str, Any] = {
    "model": {"name": "scripted"},
    "tools": {"files": {"enabled": True}, "shell": {"enabled": True, "sandbox": "none"}},
    "budget": {"day": 50},
    "attachments": {"max_bytes": 100_000},
}
"""The settings of the recorded bot, but for its channels: a `config.toml` of its home that any `bubbot` reads."""
SETTINGS: Mapping[str, Any] = {
    **COMMON,
    # How far an index gets in the background is chance, and what is recalled depends on it.
    "search": {"index": False},
    "channels": {
        "tg": {"kind": "kept", "owners": ["1"], "members": ["5", "7"], "groups": ["-8"], "respond_to_all": ["-8"],
               "record_only": ["-8"], "busy": "steer", "debounce": 0, "messages_per_minute": 0, "messages_per_hour": 0},
        "dc": {"kind": "kept", "owners": ["11"], "members": ["15"], "debounce": 0, "messages_per_minute": 0,
               "messages_per_hour": 0},
    },
}  # fmt: skip
"""The settings of the recorded bot."""


class CountedBytes:
    """Random bytes that are the same in every run: each module that asks has its own sequence."""

    def __init__(self) -> None:
        self._asked: Counter[str] = Counter()
        self._life = ""

    def begin(self, life: str) -> None:
        """Begin new sequences, which do not depend on what the life before asked for."""
        self._asked.clear()
        self._life = life

    def __call__(self, size: int) -> bytes:
        """Return bytes as `os.urandom` does."""
        # The stores ask in an order that tasks decide, the others do not.
        who = sys._getframe(1).f_globals["__name__"]
        self._asked[who] += 1
        return shake_256(f"{self._life}{who} {self._asked[who]}".encode()).digest(size)


class HeldModel(LeakyModel):
    """A model that waits before each answer, or within it, if the stage says so.

    Attributes:
        context_tokens: how much it takes; 0: as much as a `LeakyModel`.
        failure: what it raises instead of an answer.
    """

    def __init__(self, stage: Stage, name: str) -> None:
        super().__init__(stage.hold_back)
        self._stage = stage
        self._name = name
        self.context_tokens = 0
        self.failure: Exception | None = None

    @property
    def name(self) -> str:
        """See `Model.name`."""
        return self._name

    @property
    def traits(self) -> ModelTraits:
        """See `Model.traits`. It sees no images, as when the golden files were recorded."""
        return ModelTraits(context_tokens=self.context_tokens or CONTEXT_TOKENS)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        await self._stage.before_answer()
        if self.failure is not None:
            raise self.failure
        async for each in super().stream(request):
            yield each


class Gate:
    """A place where something waits until it is let through.

    Attributes:
        reached: set once something waits.
        opened: set once it may go on.
    """

    def __init__(self) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    async def wait(self, *_: object) -> None:
        """Wait until the gate is open."""
        self.reached.set()
        async with asyncio.timeout(WAIT):
            await self.opened.wait()


class KeptPlatform:
    """A platform of this process: keeps what its people read. See `Channel`, `SupportsEditing` and `FetchesAttachments`."""

    edit_interval = 1_000.0

    def __init__(self, name: str, stage: Stage) -> None:
        self.name = name
        self._stage = stage
        self._numbers = count(1)

    async def run(self, receive: Receive) -> None:
        """Receive nothing by itself."""
        await asyncio.Event().wait()

    def parts(self, outbound: Outbound) -> Sequence[MessagePart]:
        """Make one part for the text, and one for each file."""
        files = [MessagePart(outbound.chat, "", outbound.thread, file=file) for file in outbound.files]
        text = MessagePart(outbound.chat, outbound.text, outbound.thread, outbound.reply_to, buttons=outbound.buttons)
        return [text, *files] if outbound.text or not files else files

    async def send(self, part: MessagePart) -> Receipt:
        """Keep the text."""
        await self._stage.before_sending(self.name, part)
        self._stage.read.append(part.text)
        self._stage.sent.set()
        message = f"p{next(self._numbers)}"
        if part.buttons is not None:
            self._stage.buttons.append((message, part.buttons.button_id(0)))
        return Receipt(message)

    async def edit(self, message: str, part: MessagePart) -> None:
        """Keep the text so far."""
        self._stage.read.append(part.text)

    async def fetch(self, attachment: Any, limit: int) -> bytes:
        """Return a file whose words are its reference."""
        return f"The file {attachment.reference}.".encode()


class Stage:
    """A bot in its home, through several lives. `lives` is how many it has had already.

    Attributes:
        home: its folder.
        clock: the time that it reads.
        daemon: the bot of this life.
        read: what people have read since somebody acted.
        before_sending: is awaited before a part goes out.
        before_answer: is awaited before the model begins an answer.
        acts_outside: the bot has the tools for tests that act outside.
    """

    daemon: Daemon

    def __init__(self, home: Path, *, as_found: bool = False, lives: int = 0) -> None:
        self.home = home
        self.acts_outside = not as_found
        self.clock = FixedClock()
        self.read: list[str] = []
        self.buttons: list[tuple[str, str]] = []
        self.newest = ""
        self.done: list[tuple[str, str]] = []
        self.before_sending: Callable[[str, MessagePart], Awaitable[None]] = _do_at_once
        self.before_answer: Callable[[], Awaitable[None]] = _do_at_once
        self._acts = count(1 + 10_000 * lives)
        self._bytes = CountedBytes()
        self._ids = (f"id {number}" for number in count(1))
        self._lives = count(1 + lives)
        self.sent = asyncio.Event()
        self.fired = asyncio.Event()
        self.fired.set()
        self.has_previews = False
        self.model = HeldModel(self, "leaky")
        self._models = {OTHER_MODEL: HeldModel(self, OTHER_MODEL)}

    @contextmanager
    def fixed(self) -> Iterator[None]:
        """Fix the clock, the ids and the random bytes of everything in this process until the block ends."""
        replaced: dict[Any, Any] = {tapes.now: self.clock, tapes.new_id: self._new_id}
        if self.acts_outside:
            replaced[find_workspace] = _find_workspace
        with ExitStack() as stack:
            stack.enter_context(patch.object(os, "urandom", self._bytes))
            for name, module in sorted(sys.modules.items()):
                if name.startswith("bubbot."):
                    for key in ("now", "new_id", "find_workspace"):
                        if (found := vars(module).get(key)) in replaced:
                            stack.enter_context(patch.object(module, key, replaced[found]))
            try:
                yield
            finally:
                stack.callback(_restore, {fixed: real for real, fixed in replaced.items()})

    def _new_id(self) -> str:
        return shake_256(next(self._ids).encode()).hexdigest(16)

    @asynccontextmanager
    async def life(self, settings: Mapping[str, Any] = SETTINGS) -> AsyncIterator[None]:
        """Run the bot until the block ends."""
        if (life := next(self._lives)) > 1:
            self._ids = (f"life {life} id {number}" for number in count(1))
            self._bytes.begin(f"life {life} ")
        platforms = {name: KeptPlatform(name, self) for name in ("tg", "dc")}
        tools = acting_tools(lambda *done: self.done.append(done)) if self.acts_outside else ()
        wrappers = PortWrappers(model=lambda model: self._models.get(model.name, self.model), tools=tools)
        chosen = settings_schema().model.model_validate(settings)
        with (
            self.fixed(),
            patch.object(ChannelFactory, "build_adapter", lambda _, name, *_rest, **_more: platforms[name]),
            patch("bubbot.gateway.live.FIRST_MESSAGE_DELAY_SECONDS", 1_000.0),
        ):
            async with open_daemon(chosen, Home(self.home), wrappers=wrappers) as self.daemon:
                await self.daemon.bot.recover_all()
                await self.quiet()
                yield
                await self.quiet()

    def time(self) -> str:
        """Let a minute pass, and return the time."""
        self.clock.advance(minutes=1)
        return timestamp(self.clock.moment)

    async def say(self, chat: str, text: str, sender: str = "", **fields: Any) -> str:
        """Let somebody write; return what people have read once all is quiet.

        Args:
            chat: the channel and the chat, as `tg:1`; a chat with a minus is a group.
            text: what is written.
            sender: the number of the person; by default that of the chat.
            fields: further fields of the inbound.
        """
        return await self.receive(self.message(chat, text, sender, **fields))

    def message(self, chat: str, text: str, sender: str = "", **fields: Any) -> Inbound:
        """Make what a platform reports if somebody writes. See `say`."""
        channel, _, number = chat.partition(":")
        external = f"m{next(self._acts)}"
        self.newest = external
        who = Sender(sender or number, f"Person {sender or number}")
        given = {"message": external, "direct": not number.startswith("-"), **fields}
        return Inbound(channel, external, number, who, text, self.time(), **given)

    async def receive(self, event: ChannelEvent) -> str:
        """Hand in what a platform reports; return what people have read once all is quiet."""
        self.read = []
        async with asyncio.timeout(WAIT):
            await self.accept(event)
            await self.quiet()
        return "\n".join(self.read)

    async def accept(self, event: ChannelEvent) -> None:
        """Hand in what a platform reports, and return once it is stored."""
        await self.daemon.bot.channel_runtimes[event.channel].gate.receive(event)

    async def reload(self, settings: Mapping[str, Any]) -> None:
        """Let the bot, which runs by `SETTINGS`, apply others."""
        current = settings_schema().model.model_validate(SETTINGS)
        reloader = Reloader(self.daemon, current, lambda: settings_schema().model.model_validate(settings))
        await reloader.record_changes()
        try:
            await reloader.reload("command")
        finally:
            for name in settings_schema().model.model_validate(SETTINGS).channels:  # a reload starts them
                await self.daemon.manager.stop_channel(name, WAIT)

    def copy_home(self, folder: Path) -> None:
        """Copy the home as a bot that is killed at this moment leaves it."""
        shutil.copytree(self.home, folder, ignore=shutil.ignore_patterns("*.db*", "*.lock"))
        database, copy = sqlite3.connect(self.home / "bubbot.db"), sqlite3.connect(folder / "bubbot.db")
        with closing(database), closing(copy):
            database.backup(copy)
            copy.execute("PRAGMA journal_mode = WAL")

    def write_config(self) -> None:
        """Write the `config.toml` that a command reads."""
        (self.home / "config.toml").write_text(tomlkit.dumps(COMMON))

    async def command(self, *arguments: str) -> str:
        """Run a command of the shell between two lives, and return what it prints."""
        self.time()
        with self.fixed():
            done: subprocess.CompletedProcess[bytes] = await asyncio.to_thread(inside.run, self.home, *arguments)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    async def say_slowly(self, chat: str, text: str) -> str:
        """Let somebody write, and the model pause until people see the beginning of its answer."""
        self.sent.clear()
        self.has_previews = True
        try:
            with patch("bubbot.gateway.live.FIRST_MESSAGE_DELAY_SECONDS", 0.0):
                return await self.say(chat, text)
        finally:
            self.has_previews = False

    async def hold_back(self) -> None:
        """Wait within an answer, if it is to be seen growing or a job is to be noted first."""
        await self.fired.wait()
        if self.has_previews:
            async with asyncio.timeout(WAIT):
                await self.sent.wait()

    def external(self) -> str:
        """Return the next id of an event of a platform."""
        return f"e{next(self._acts)}"

    async def quiet(self) -> None:
        """Return when no turn runs, the owner knows of every budget that is nearly used up, and nothing is delivered."""
        budget = self.daemon.bot.features.budget
        assert budget is not None
        async with asyncio.timeout(WAIT):
            for _ in range(2):
                await self.daemon.bot.runtime.wait_idle()
                await budget.budget.wait_written()
                for runtime in self.daemon.bot.channel_runtimes.values():
                    await runtime.deliverer.wait_until_idle()

    async def fire(self, job: str) -> None:
        """Let a job run, as the timer does; the model answers once the timer has noted it."""
        schedule = self.daemon.bot.features.schedule
        assert schedule is not None
        timer = JobTimer(schedule.store, self.daemon.bot.directory.accept, notify_missed=schedule.notify_missed)
        self.fired = asyncio.Event()
        try:
            await timer.check_job(job)
        finally:
            self.fired.set()
        await self.quiet()

    def jobs(self) -> Sequence[str]:
        """Return the ids of all jobs, oldest first."""
        schedule = self.daemon.bot.schedule_store
        assert schedule is not None
        return list(schedule.state.jobs)

    def numbers(self, text: str) -> list[str]:
        """Return the numbers in a text, the last first."""
        return re.findall(r"\b\d+\b", text)[::-1][:12]

    def find(self, pattern: str) -> str:
        """Return the newest match in what people have read."""
        found = re.findall(pattern, "\n".join(self.read))
        assert found, f"nothing is {pattern} in {self.read}"
        return str(found[-1])


async def _do_at_once(*_: object) -> None: ...


def _restore(real: Mapping[Any, Any]) -> None:
    """Give modules that were loaded while clock and ids were fixed the real ones."""
    for name, module in sorted(sys.modules.items()):
        if name.startswith("bubbot."):
            for key in ("now", "new_id", "find_workspace"):
                if (found := vars(module).get(key)) in real:
                    setattr(module, key, real[found])


async def _find_workspace(store: Any, home: Home) -> str:
    name: str = await (store.workspace("golden") if hasattr(store, "workspace") else find_workspace(store, home))
    return name
