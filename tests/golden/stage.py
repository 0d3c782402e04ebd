"""A whole bot whose clock, ids and random bytes are fixed, and on which people act one after another."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from hashlib import shake_256
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bubbot.app import bot as bot_module
from bubbot.app import tapes
from bubbot.app.bot import PortWrappers
from bubbot.app.channel_factory import ChannelFactory
from bubbot.app.daemon import Daemon, open_daemon
from bubbot.app.stores import find_workspace
from bubbot.features.schedule.timer import JobTimer
from bubbot.gateway import live
from bubbot.home import Home
from bubbot.ports.channel import ChannelEvent, Inbound, MessagePart, Outbound, Receipt, Receive, Sender
from bubbot.settings.loader import Settings
from bubbot.tape.entry import timestamp
from bubbot.tape.store import TapeStore
from tests.approving import acting_tools
from tests.doubles import START
from tests.privacy.model import LeakyModel

WAIT = 20.0
SETTINGS: Mapping[str, Any] = {
    "model": {"name": "scripted"},
    "tools": {"files": {"enabled": True}},
    "budget": {"day": 50},
    "channels": {
        "tg": {"kind": "kept", "owners": ["1"], "members": ["5", "7"], "groups": ["-8"], "respond_to_all": ["-8"],
               "record_only": ["-8"], "debounce": 0, "messages_per_minute": 0, "messages_per_hour": 0},
        "dc": {"kind": "kept", "owners": ["11"], "members": ["15"], "debounce": 0, "messages_per_minute": 0,
               "messages_per_hour": 0},
    },
}  # fmt: skip
"""The settings of the recorded bot."""


class FixedClock:
    """Stands still until somebody acts."""

    def __init__(self, moment: datetime = START) -> None:
        self.moment = moment

    def __call__(self) -> datetime:
        """Return the moment."""
        return self.moment

    def advance(self, by: timedelta) -> None:
        """Let time pass."""
        self.moment += by


class CountedBytes:
    """Random bytes that are the same in every run: each module that asks has its own sequence."""

    def __init__(self) -> None:
        self._asked: Counter[str] = Counter()

    def __call__(self, size: int) -> bytes:
        """Return bytes as `os.urandom` does."""
        # The stores ask in an order that tasks decide, the others do not.
        who = sys._getframe(1).f_globals["__name__"]
        self._asked[who] += 1
        return shake_256(f"{who} {self._asked[who]}".encode()).digest(size)


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
    """A bot in its home, through several lives.

    Attributes:
        home: its folder.
        clock: the time that it reads.
        daemon: the bot of this life.
        read: what people have read since somebody acted.
        before_sending: is awaited before a part goes out.
    """

    daemon: Daemon

    def __init__(self, home: Path, *, as_found: bool = False) -> None:
        self.home = home
        self._find_workspace = find_workspace if as_found else _find_workspace
        self.clock = FixedClock()
        self.read: list[str] = []
        self.buttons: list[tuple[str, str]] = []
        self.newest = ""
        self.done: list[tuple[str, str]] = []
        self.before_sending: Callable[[str, MessagePart], Any] = _send_at_once
        self._acts = count(1)
        self._bytes = CountedBytes()
        self._ids = count(1)
        self.sent = asyncio.Event()
        self.fired = asyncio.Event()
        self.fired.set()
        self.has_previews = False
        self.model = LeakyModel(self._hold_back)

    @contextmanager
    def fixed(self) -> Iterator[None]:
        """Fix the clock, the ids and the random bytes of everything in this process until the block ends."""
        replaced = {
            tapes.now: self.clock,
            tapes.new_id: lambda: shake_256(f"id {next(self._ids)}".encode()).hexdigest(16),
        }
        with ExitStack() as stack:
            stack.enter_context(patch.object(os, "urandom", self._bytes))
            for name, module in sorted(sys.modules.items()):
                if name.startswith("bubbot."):
                    for key in ("now", "new_id"):
                        if (found := vars(module).get(key)) in replaced:
                            stack.enter_context(patch.object(module, key, replaced[found]))
            yield

    @asynccontextmanager
    async def life(self, settings: Mapping[str, Any] = SETTINGS) -> AsyncIterator[None]:
        """Run the bot until the block ends."""
        platforms = {name: KeptPlatform(name, self) for name in ("tg", "dc")}
        wrappers = PortWrappers(model=lambda _: self.model, tools=acting_tools(lambda *done: self.done.append(done)))
        chosen = Settings.model_validate(settings)
        with (
            self.fixed(),
            patch.object(ChannelFactory, "build_adapter", lambda _, name, *_rest, **_more: platforms[name]),
            patch.object(bot_module, "find_workspace", self._find_workspace),
            patch.object(live, "FIRST_MESSAGE_DELAY_SECONDS", 1_000.0),
        ):
            async with open_daemon(chosen, Home(self.home), wrappers=wrappers) as self.daemon:
                await self.daemon.bot.recover_all()
                await self.quiet()
                yield
                await self.quiet()

    def time(self) -> str:
        """Let a minute pass, and return the time."""
        self.clock.advance(timedelta(minutes=1))
        return timestamp(self.clock.moment)

    async def say(self, chat: str, text: str, sender: str = "", **fields: Any) -> str:
        """Let somebody write; return what people have read once all is quiet.

        Args:
            chat: the channel and the chat, as `tg:1`; a chat with a minus is a group.
            text: what is written.
            sender: the number of the person; by default that of the chat.
            fields: further fields of the inbound.
        """
        channel, _, number = chat.partition(":")
        external = f"m{next(self._acts)}"
        self.newest = external
        who = Sender(sender or number, f"Person {sender or number}")
        given = {"message": external, "direct": not number.startswith("-"), **fields}
        return await self.receive(Inbound(channel, external, number, who, text, self.time(), **given))

    async def receive(self, event: ChannelEvent) -> str:
        """Hand in what a platform reports; return what people have read once all is quiet."""
        self.read = []
        async with asyncio.timeout(WAIT):
            await self.daemon.bot.channel_runtimes[event.channel].gate.receive(event)
            await self.quiet()
        return "\n".join(self.read)

    async def say_slowly(self, chat: str, text: str) -> str:
        """Let somebody write, and the model pause until people see the beginning of its answer."""
        self.sent.clear()
        self.has_previews = True
        try:
            with patch.object(live, "FIRST_MESSAGE_DELAY_SECONDS", 0.0):
                return await self.say(chat, text)
        finally:
            self.has_previews = False

    async def _hold_back(self) -> None:
        await self.fired.wait()
        if self.has_previews:
            async with asyncio.timeout(WAIT):
                await self.sent.wait()

    def external(self) -> str:
        """Return the next id of an event of a platform."""
        return f"e{next(self._acts)}"

    async def quiet(self) -> None:
        """Return when no turn runs and nothing is delivered."""
        for _ in range(2):
            await self.daemon.bot.runtime.wait_idle()
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


async def _send_at_once(_channel: str, _part: MessagePart) -> None: ...


async def _find_workspace(_store: TapeStore, _home: Home) -> str:
    return "golden"
