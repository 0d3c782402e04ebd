"""A chat whose bot runs in this process and serves other commands of its home."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from msgspec import structs

from bubbot.app.bot import PortWrappers, open_app
from bubbot.cli.chat.local import LocalChat
from bubbot.cli.chat.service import chat_service
from bubbot.cli.commands import answer_command
from bubbot.cli.setup import CommandSetup
from bubbot.errors import ControlError
from bubbot.ports.channel import Channel, Inbound
from bubbot.ports.turn import TurnResult
from bubbot.server.address import socket_path
from bubbot.server.api import Api
from bubbot.server.local import serve_socket
from bubbot.server.protocol import JsonObject
from bubbot.server.terminal import SharedTerminal
from bubbot.settings.environment import runtime_folder
from bubbot.settings.loader import Settings


@asynccontextmanager
async def open_shared_chat(setup: CommandSetup, session: str, settings: Mapping[str, Any]) -> AsyncIterator[LocalChat]:
    """Open the bot of a home for one session and serve other commands until the block ends."""
    path = socket_path(setup.home.path, runtime_folder(), Path(gettempdir()))
    terminals: list[SharedTerminal] = []

    def share(local: Channel) -> Channel:
        terminals.append(SharedTerminal(local, session))
        return terminals[-1]

    adapter_settings, wrappers = {"chat": session.partition(":")[2], **settings}, PortWrappers(channel=share)
    async with open_app(
        setup.settings, setup.home, channel_settings=adapter_settings, wrappers=wrappers, address=str(path)
    ) as bot:
        (terminal,) = terminals
        terminal.read_blob = bot.channel_factory.blob_reader(terminal.name)
        chat = LocalChat(bot, session, [])
        api = _make_api(chat, terminal, setup.settings)
        async with serve_socket(api, path):
            yield chat
            api.is_stopping = True
            await bot.runtime.wait_idle()


def _make_api(chat: LocalChat, terminal: SharedTerminal, settings: Settings) -> Api:
    """Make the API that a chat offers to other commands: chats, questions, and commands that write."""
    bot = chat.bot
    service = chat_service(bot, terminal)

    async def accept(inbound: Inbound) -> asyncio.Future[TurnResult] | None:
        await chat.take_up(inbound.session)
        return await service.accept(inbound)

    async def deliver_pending(session: str) -> int:
        await chat.take_up(session)
        return await service.deliver_pending(session)

    async def command(body: JsonObject) -> JsonObject:
        context = structs.replace(bot.turn_services.command_context, exclusive=bot.runtime.exclusive)
        return await answer_command(context, settings, body)

    async def refuse_reload(_body: JsonObject) -> JsonObject:
        raise ControlError("a chat is open for this home, and no bot runs: the chat reads its settings when it starts")

    async def status(_body: JsonObject) -> JsonObject:
        return {"chat": True}  # which is not a bot that receives from its channels

    queries = {"command": command, "reload": refuse_reload, "status": status}
    handlers = terminal.handlers(structs.replace(service, accept=accept, deliver_pending=deliver_pending))
    return Api(queries, handlers, terminal.forget_client)
