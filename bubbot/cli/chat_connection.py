"""A chat with the bot of a home: in this process, or in the one that runs for the home."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from bubbot import plugins
from bubbot.app.bot import Bot, open_app
from bubbot.app.tapes import new_id, now
from bubbot.cli.setup import CommandSetup
from bubbot.errors import ModelError
from bubbot.ports.channel import Channel, ChannelOptions, Inbound
from bubbot.server.chat import ChatConnection, RemoteChat, ShowResult
from bubbot.server.client import run_on_home
from bubbot.server.remote import AskResult
from bubbot.tape.entry import timestamp

T = TypeVar("T")


async def with_chat(
    setup: CommandSetup,
    session: str,
    settings: Mapping[str, Any],
    talk: Callable[[ChatConnection], Awaitable[T]],
    *,
    hold: bool = False,
) -> T:
    """Connect to the bot that runs for this home, or open it here if none does, and return what `talk` returns.

    Args:
        setup: the settings and the home of this command.
        session: the session id.
        settings: keys of the adapter that override those of the configuration.
        talk: uses the connection.
        hold: show nothing before `ask` has its result.

    Raises:
        HomeLocked: a process that takes no requests writes to the home.
        ControlError: the running bot ended.
    """

    async def in_this_process() -> T:
        async with _open_local_chat(setup, session, settings, hold=hold) as chat:
            return await talk(chat)

    async def in_the_bot(address: str) -> T:
        chat = RemoteChat(session)
        async with chat.connect(address, _make_adapter(setup, session, settings, chat)):
            return await talk(chat)

    return await run_on_home(setup.home, in_this_process, in_the_bot)


class LocalChat:
    """A chat whose bot is in this process; see `ChatConnection`."""

    def __init__(self, bot: Bot, session: str, unshown: list[Callable[[str], None]]) -> None:
        self._bot = bot
        self._session = session
        self._unshown = unshown

    async def open(self) -> str:
        """See `ChatConnection`."""
        bot = self._bot
        try:
            notice = (await bot.models.model_for_tape(bot.tape(self._session))).traits.notice or ""
        except ModelError as error:
            notice = str(error)
        await bot.warm_model(self._session)
        return notice

    async def deliver_pending(self) -> int:
        """See `ChatConnection`."""
        return len(await self._bot.recover(self._session))

    async def run(self) -> None:
        """See `ChatConnection`."""
        await self._bot.channel.run(self._bot.gate.receive)

    def stop(self) -> None:
        """See `ChatConnection`."""
        self._bot.runtime.stop(self._session)

    async def wait_until_idle(self) -> None:
        """See `ChatConnection`."""
        await self._bot.runtime.wait_idle()

    async def ask(self, inbound: Inbound, show: ShowResult) -> AskResult:
        """See `ChatConnection`. Undelivered answers of earlier turns wait for the next chat."""
        bot = self._bot
        for earlier in await bot.recover(self._session, deliver=False):
            await earlier
        bot.held_messages.clear()
        result = AskResult.of(await bot.ask(inbound))
        if result.text:
            self._unshown.append(partial(show, result))
        for message in bot.held_messages:
            await bot.deliverer.deliver(message)
        self._unshown.clear()
        return result


@asynccontextmanager
async def _open_local_chat(
    setup: CommandSetup, session: str, settings: Mapping[str, Any], *, hold: bool
) -> AsyncIterator[LocalChat]:
    unshown: list[Callable[[str], None]] = []
    adapter_settings = {"chat": session.partition(":")[2], **settings}

    def write(text: str) -> None:
        """Show the first text after a turn that was asked for as its answer; the next ones are about its files."""
        (unshown.pop() if unshown else settings["write"])(text)

    if "write" in settings:
        adapter_settings["write"] = write
    async with open_app(setup.settings, setup.home, channel_settings=adapter_settings, hold=hold) as bot:
        yield LocalChat(bot, session, unshown)


def _make_adapter(setup: CommandSetup, session: str, settings: Mapping[str, Any], chat: RemoteChat) -> Channel:
    """Make the adapter for this terminal or pipe, as the bot makes it."""
    name, _, chat_name = session.partition(":")
    table = {**setup.settings.channels.get(name, {}), "chat": chat_name, **settings}
    kind = str(table.pop("kind", name))
    options = ChannelOptions(
        name,
        setup.home.path,
        lambda: timestamp(now()),
        new_id,
        table,
        chat.files.blob,
        list_commands=lambda: chat.commands,
    )
    channel: Channel = plugins.load("bubbot.channels", kind)(options)
    return channel
