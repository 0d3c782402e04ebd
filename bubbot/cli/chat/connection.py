"""A chat with the bot of a home, in this process or in the running one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from bubbot import plugins
from bubbot.app.tapes import new_id, now
from bubbot.cli.output import show_on_stderr
from bubbot.cli.setup import CommandSetup
from bubbot.home import WriterLock
from bubbot.ports.channel import Channel, ChannelOptions
from bubbot.server.chat import ChatConnection, RemoteChat
from bubbot.server.client import run_on_home
from bubbot.tape.entry import timestamp

T = TypeVar("T")


async def with_chat(
    setup: CommandSetup,
    session: str,
    settings: Mapping[str, Any],
    talk: Callable[[ChatConnection], Awaitable[T]],
    *,
    hold: bool = False,
    is_shared: bool = False,
    wait_seconds: float = 0.0,
) -> T:
    """Connect to the running bot of this home, or open the bot here, and return the result of `talk`.

    Args:
        settings: keys of the adapter that override those of the configuration.
        talk: uses the connection.
        hold: show nothing before `ask` has its result.
        is_shared: if the bot opens here, serve other commands of the home meanwhile.
        wait_seconds: seconds to wait for a process that accepts no requests, with a notice on standard error.

    Raises:
        HomeLocked: a process that accepts no requests writes to the home.
        ControlError: the running bot ended.
    """

    async def in_this_process() -> T:
        setup.home.ensure()
        with WriterLock(setup.home):  # raises if a bot runs, whose client need not load one
            from bubbot.cli.chat.local import open_local_chat

            if is_shared:
                from bubbot.cli.chat.serving import open_shared_chat
        if is_shared:
            async with open_shared_chat(setup, session, settings) as chat:
                return await talk(chat)
        async with open_local_chat(setup, session, settings, hold=hold) as chat:
            return await talk(chat)

    async def in_the_bot(address: str) -> T:
        chat = RemoteChat(session)
        async with chat.connect(address, _make_adapter(setup, session, settings, chat)):
            return await talk(chat)

    def announce_wait(pid: int) -> None:
        show_on_stderr(
            f"bubbot: process {pid} is writing to this home; waiting for it, {wait_seconds:g} seconds at most"
        )

    return await run_on_home(setup.home, in_this_process, in_the_bot, wait_seconds=wait_seconds, on_wait=announce_wait)


def _make_adapter(setup: CommandSetup, session: str, settings: Mapping[str, Any], chat: RemoteChat) -> Channel:
    """Make the adapter for this terminal or pipe like the bot."""
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
