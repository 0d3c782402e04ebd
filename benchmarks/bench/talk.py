"""A bot without a channel that is talked with: the runtime, its tools and its store, as in the daemon."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path

from benchmarks.bench.tapes import name, session
from benchmarks.bench.words import TOOLS, WINDOW, Words
from benchmarks.soak.direct import CHANNEL, NoChannel
from bubbot.app.bot import Bot, PortWrappers, open_bot
from bubbot.app.channel_factory import ChannelFactory
from bubbot.app.daemon import rare_collections
from bubbot.app.settings import load
from bubbot.gateway.channel_runtime import ChannelPolicy, ChannelRuntime
from bubbot.home import Home
from bubbot.ports.channel import Inbound, Sender
from bubbot.ports.turn import AcceptedInbound, TurnResult
from bubbot.tape.service import TapeService

SENT = "2026-11-22T10:00:00+00:00"
PLAIN = "How do things stand with the garden, and is there news of the fence?"
WITH_TOOLS = f"Please {TOOLS}: how do things stand with the garden?"


class TurnFailed(Exception):
    """A turn did not end in an answer: what was measured means nothing."""


class Talk:
    """A bot, and what people say to it."""

    def __init__(self, app: Bot, seed: int = 11) -> None:
        self.app = app
        self._seed = seed
        self._ids = itertools.count(1)

    @cached_property
    def words(self) -> Words:
        """What is said. Made when it is needed: it takes as long as opening a bot."""
        return Words(self._seed)

    def tape(self, chat: int = 0) -> TapeService:
        """The tape of a chat, past the runtime."""
        return self.app.tape(session(chat))

    async def say(self, chat: int = 0, text: str = PLAIN) -> TurnResult:
        """One whole turn."""
        one = next(self._ids)
        inbound = Inbound(CHANNEL, str(one), str(chat), Sender("1", "Ann"), text, SENT)
        result = await self.app.runtime.submit(AcceptedInbound(one, inbound))
        self.app.held_messages.clear()
        if result.status != "answered":
            raise TurnFailed(f"a turn ended as {result.status}: {result.text}")
        return result

    async def new_window(self, chat: int = 0) -> None:
        """A window of 50 entries, so that what is measured does not hang on how much was measured before."""
        async with self.app.runtime.exclusive(session(chat)):
            tape = self.tape(chat)
            anchor = await tape.handoff("phase/next", {"summary": "The garden and the fence."})
            made = [entry for number in range(WINDOW // 8 + 1) for entry in self.words.turn(number)]
            await tape.append(made[: WINDOW - (await tape.head() - anchor.id)])


@asynccontextmanager
async def talking(home: Path, wrappers: PortWrappers | None = None) -> AsyncIterator[Talk]:
    """A bot on this home for the block."""

    async def lines(maker: ChannelFactory) -> list[ChannelRuntime]:
        return [await maker.build_runtime(NoChannel(), ChannelPolicy(queue_limit=None), hold=True)]

    async with open_bot(load(home=home), Home(home), lines, wrappers or PortWrappers()) as app:
        assert app.tape(session(0)).name == name(0), "the home was made for another workspace"
        with rare_collections():
            yield Talk(app)
            await app.runtime.wait_idle()
