"""The same work without a channel: python -m benchmarks.soak.direct HOME CHATS.

Messages go to `AppRuntime` as they would after acceptance, and answers are left where the runtime puts them, on the outbox
tape. Asked `{"messages": 10, "ahead": 4}` every chat says so many more, at most `ahead` of them unanswered.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.soak import words
from benchmarks.soak.talk import Message, asked, tell
from bubbot.app.bot import Bot, PortWrappers, open_bot
from bubbot.app.channel_factory import ChannelFactory
from bubbot.app.settings import load
from bubbot.gateway.channel_runtime import ChannelPolicy, ChannelRuntime
from bubbot.home import Home
from bubbot.log import setup
from bubbot.ports.channel import Inbound, MessagePart, Outbound, Receipt, Receive, Sender
from bubbot.ports.turn import AcceptedInbound, TurnResult

CHANNEL = "direct"


class NoChannel:
    """What has to be there in the place of a channel; nothing comes or goes."""

    name = CHANNEL

    async def run(self, receive: Receive) -> None:
        """Nothing comes."""

    def parts(self, outbound: Outbound) -> Sequence[MessagePart]:
        """Whole."""
        return [MessagePart(outbound.chat, outbound.text)]

    async def send(self, part: MessagePart) -> Receipt:
        """Nothing goes."""
        return Receipt()


class Chats:
    """Chats that talk to the runtime."""

    def __init__(self, app: Bot, chats: int) -> None:
        self._app = app
        self._said = [0] * chats
        self._ids: Iterator[int] = itertools.count(1)

    async def talk(self, messages: int, ahead: int) -> Message:
        """As many messages in each chat; raises `RuntimeError` at an answer that is wrong."""
        begun = time.monotonic()
        await asyncio.gather(*(self._chat(chat, messages, ahead) for chat in range(len(self._said))))
        return {"begun": begun, "end": time.monotonic()}

    async def _chat(self, chat: int, messages: int, ahead: int) -> None:
        first = self._said[chat]
        self._said[chat] += messages
        waiting: deque[tuple[int, asyncio.Future[TurnResult]]] = deque()
        for number in range(first, first + messages):
            if len(waiting) >= ahead:
                await self._answered(chat, *waiting.popleft())
            waiting.append((number, self._app.runtime.submit(self._accepted(chat, number))))
        while waiting:
            await self._answered(chat, *waiting.popleft())

    def _accepted(self, chat: int, number: int) -> AcceptedInbound:
        one, time_sent = next(self._ids), "2026-11-22T10:00:00+00:00"
        said = words.message(chat, number)
        return AcceptedInbound(one, Inbound(CHANNEL, str(one), str(chat), Sender("1", "Somebody"), said, time_sent))

    async def _answered(self, chat: int, number: int, result: asyncio.Future[TurnResult]) -> None:
        text = (await result).text
        self._app.held_messages.clear()
        if text != words.answer(chat, number):
            raise RuntimeError(f"chat {chat}: the answer to message {number} is {text!r}")


async def main(home: Path, chats: int) -> None:
    """Serves until standard input closes."""
    setup("info", secrets=())

    async def lines(maker: ChannelFactory) -> list[ChannelRuntime]:
        return [await maker.build_runtime(NoChannel(), ChannelPolicy(queue_limit=None), hold=True)]

    async with open_bot(load(home=home), Home(home), lines, PortWrappers()) as app:
        people = Chats(app, chats)
        tell({"running": True})
        async for question in asked():
            tell({"reply": await people.talk(question["messages"], question["ahead"])})
            await app.runtime.wait_idle()


if __name__ == "__main__":
    os.umask(0o077)
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
