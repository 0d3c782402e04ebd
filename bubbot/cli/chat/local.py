"""A chat whose bot runs in this process. Importing it loads the whole bot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from bubbot.app.bot import Bot, open_app
from bubbot.cli.progress import START_DELAY_SECONDS, show_progress
from bubbot.cli.setup import CommandSetup
from bubbot.errors import ModelError
from bubbot.ports.channel import Inbound
from bubbot.server.chat import NO_FILES, ShowResult
from bubbot.server.remote import AskResult, store_files

POLL_SECONDS = 0.2


class LocalChat:
    """A chat whose bot runs in this process; see `ChatConnection`."""

    def __init__(self, bot: Bot, session: str, unshown: list[Callable[[str], None]], *, plain: bool = False) -> None:
        self._plain = plain
        self.bot = self._bot = bot
        self._session = session
        self._unshown = unshown
        self._taken_up: set[str] = set()
        self._take_up_lock = asyncio.Lock()

    async def take_up(self, session: str) -> int:
        """Queue the work that an earlier process left open in a session, once; return the number of messages."""
        async with self._take_up_lock:
            if session in self._taken_up:
                return 0
            open_turns = await self._bot.recover(session, deliver=session == self._session)
            self._taken_up.add(session)
            return len(open_turns)

    async def open(self) -> str:
        bot = self._bot
        try:
            notice = (await bot.models.model_for_tape(bot.tape(self._session))).traits.notice or ""
        except ModelError as error:
            notice = str(error)
        await bot.warm_model(self._session)
        return notice

    async def deliver_pending(self) -> int:
        return await self.take_up(self._session)

    async def run(self) -> None:
        await self._bot.channel.run(self._bot.gate.receive)

    def stop(self) -> None:
        self._bot.runtime.stop(self._session)

    async def wait_until_idle(self) -> None:
        await self._bot.runtime.wait_idle()

    async def ask(self, inbound: Inbound, show: ShowResult, files: Mapping[str, bytes] = NO_FILES) -> AskResult:
        """See `ChatConnection`. Undelivered answers of earlier turns wait for the next chat."""
        bot = self._bot
        if inbound.model:
            bot.check_model(inbound.model)
        for earlier in await bot.recover(self._session, deliver=False):
            await earlier
        bot.held_messages.clear()
        inbound = await store_files(bot.tape(self._session), inbound, files)
        loading = asyncio.create_task(self._show_loading())
        try:
            result = AskResult.of(await bot.ask(inbound))
        finally:
            loading.cancel()
            await asyncio.wait([loading])
        if result.text:
            self._unshown.append(partial(show, result))
        for message in bot.held_messages:
            await bot.deliverer.deliver(message)
        self._unshown.clear()
        return result

    async def _show_loading(self) -> None:
        """Show that the model is loading, if it takes long."""
        await asyncio.sleep(START_DELAY_SECONDS)
        while not self._bot.models.loading_names():  # noqa: ASYNC110 - it must be polled
            await asyncio.sleep(POLL_SECONDS)
        with show_progress("Loading the model", plain=self._plain, start_delay=0):
            while self._bot.models.loading_names():  # noqa: ASYNC110 - as above
                await asyncio.sleep(POLL_SECONDS)


@asynccontextmanager
async def open_local_chat(
    setup: CommandSetup, session: str, settings: Mapping[str, Any], *, hold: bool
) -> AsyncIterator[LocalChat]:
    """Open the bot of a home for one session; see `with_chat` for the arguments."""
    unshown: list[Callable[[str], None]] = []
    adapter_settings = {"chat": session.partition(":")[2], **settings}

    def write(text: str) -> None:
        """Show the first text after a requested turn as its answer; later ones are about its files."""
        (unshown.pop() if unshown else settings["write"])(text)

    if "write" in settings:
        adapter_settings["write"] = write
    async with open_app(setup.settings, setup.home, channel_settings=adapter_settings, hold=hold) as bot:
        yield LocalChat(bot, session, unshown, plain=setup.is_plain)
