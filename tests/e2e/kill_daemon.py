"""A real daemon with its real channels that ends itself with SIGKILL at one point between poll and receipt.

Arguments: HOME [POINT [BREAK]], as in kill_child.py. Points of the channel: `receive`, `send`, `edit`.
BREAK removes one guard: `early-ack`, an update counts as taken before it is durable; `no-fill`, what was missed is not
fetched; `no-find`, nothing is looked for and parts have no keys; `split-done`: see kill_child.py.
KILL_SOCKET in the environment is the path of its control socket; without it there is none.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from msgspec import structs

from bubbot.app.bot import PortWrappers
from bubbot.app.daemon import open_daemon
from bubbot.app.settings import load
from bubbot.cli.chat.service import chat_service
from bubbot.gateway import live
from bubbot.gateway.manager import ShutdownTimeouts
from bubbot.home import Home
from bubbot.log import setup
from bubbot.ports.channel import (
    Channel,
    ChannelEvent,
    MessagePart,
    Receipt,
    Receive,
)
from bubbot.server.api import Api
from bubbot.server.local import serve_socket
from bubbot.tool import Tool
from channels.discord.backfill import Backfill
from tests.e2e import forked
from tests.e2e.hurried import hurry
from tests.e2e.kill_child import Killer, KillingModel, KillingStore, touching

FIRST_AFTER = 0.1
"""Seconds of text before an answer is shown here: kills meet more live answers than people's bots show."""


class KillingChannel:
    """A channel that may end the process around what it receives and sends."""

    def __init__(self, channel: Channel, killer: Killer, *, early: bool) -> None:
        self._channel: Any = channel
        self._killer = killer
        self._early = early
        self._late: set[asyncio.Task[None]] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    async def run(self, receive: Receive) -> None:
        async def guarded(event: ChannelEvent) -> bool | str | None:
            said: bool | str | None = True
            self._killer.at("receive:before")
            if self._early:
                self._late.add(asyncio.create_task(self._later(receive, event)))
            else:
                said = await receive(event)
            self._killer.at("receive:after")
            return said

        await self._channel.run(guarded)

    async def _later(self, receive: Receive, event: ChannelEvent) -> None:
        await asyncio.sleep(0.5)
        await receive(event)

    async def send(self, part: MessagePart) -> Receipt:
        self._killer.at("send:before")
        receipt: Receipt = await self._channel.send(part)
        self._killer.at("send:after")
        return receipt

    async def edit(self, message: str, part: MessagePart) -> None:
        self._killer.at("edit:before")
        await self._channel.edit(message, part)
        self._killer.at("edit:after")

    # Powers are looked for on the object itself, so the ones used are named here.
    @property
    def edit_interval(self) -> float:
        seconds: float = self._channel.edit_interval
        return seconds

    async def typing(self, chat: str, thread: str) -> None:
        await self._channel.typing(chat, thread)

    async def fetch(self, attachment: Any, limit: int) -> bytes:
        content: bytes = await self._channel.fetch(attachment, limit)
        return content

    async def aclose(self) -> None:
        await self._channel.aclose()


class KillingFinder(KillingChannel):
    """One that can be asked for what it sent. `blind`: it is not, and takes no keys."""

    blind = False

    async def send(self, part: MessagePart) -> Receipt:
        return await super().send(structs.replace(part, key="") if self.blind else part)

    async def find(self, part: MessagePart, since: str) -> Sequence[str]:
        found: Sequence[str] = [] if self.blind else await self._channel.find(part, since)
        return found

    async def dismiss(self, chat: str, thread: str, message: str) -> None:
        await self._channel.dismiss(chat, thread, message)


def killing(channel: Channel, killer: Killer, broken: str) -> Channel:
    """The channel with the points in it."""
    if not hasattr(channel, "find"):
        return KillingChannel(channel, killer, early=broken == "early-ack")
    finder = KillingFinder(channel, killer, early=broken == "early-ack")
    finder.blind = broken == "no-find"
    if broken == "no-fill":
        Backfill.fill = nothing_missed  # type: ignore[method-assign, assignment]
    return finder


async def nothing_missed(self: Backfill, chat: str, take: object) -> None:
    """In place of what fetches messages."""


RUNNING = "the killed bot runs"
"""What it prints as soon as it can be asked to end."""


async def main(
    home: Path, point: str, broken: str, *, build_tools: Callable[[Killer], Sequence[Tool]] = lambda _: ()
) -> None:
    """Runs until SIGTERM."""
    setup("info", secrets=())
    setattr(live, "FIRST_MESSAGE_DELAY_SECONDS", FIRST_AFTER)  # noqa: B010 - the type checker rightly minds
    killer, ending = Killer(point), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)

    wrap = PortWrappers(
        store=lambda store: KillingStore(store, killer, split_done=broken == "split-done"),
        model=lambda model: KillingModel(model, killer),
        channel=lambda channel: channel if channel.name == "stdin" else killing(channel, killer, broken),
        tools=[touching(home, killer), *build_tools(killer)],
    )
    async with AsyncExitStack() as stack:
        socket = os.environ.get("KILL_SOCKET", "")
        daemon = await stack.enter_async_context(
            open_daemon(load(home=home), Home(home), address=socket, wrappers=wrap)
        )
        await daemon.bot.recover_all()
        daemon.manager.start(daemon.bot.group.create_task)
        keeping = daemon.start_features()
        if socket:
            api = Api({}, daemon.remote.handlers(chat_service(daemon.bot, daemon.remote)), daemon.remote.forget_client)
            await stack.enter_async_context(serve_socket(api, Path(socket)))
        print(RUNNING, file=sys.stderr, flush=True)
        await ending.wait()
        for task in keeping:
            task.cancel()
        await daemon.manager.stop(ShutdownTimeouts(turns=5.0, deliveries=5.0))


def run(arguments: Sequence[str]) -> int:
    """The process."""
    os.umask(0o077)
    if forked.ANEW not in os.environ:
        hurry()
    home, *broken = arguments
    asyncio.run(main(Path(home), *[*broken, "", ""][:2]))
    return 0
