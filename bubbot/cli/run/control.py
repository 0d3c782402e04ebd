"""The control socket of `bubbot run`: requests of `chat`, `ask` and every writing command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

from bubbot.cli.write_command import CommandContext, answer_command
from bubbot.errors import ModelError
from bubbot.models.lazy import LazyModel
from bubbot.ports.channel import Inbound
from bubbot.ports.turn import TurnResult
from bubbot.server.codec import JsonObject, encode
from bubbot.server.control import ControlServer
from bubbot.server.peer import ControlPeer
from bubbot.server.remote import ChatService
from bubbot.wiring.daemon import Daemon
from bubbot.wiring.reload import Reloader


@asynccontextmanager
async def serve_control(daemon: Daemon, reloader: Reloader, path: Path) -> AsyncIterator[ControlServer]:
    """Answer on the socket at `path` until the block ends."""
    app = daemon.bot

    async def command(_peer: ControlPeer, body: JsonObject) -> JsonObject:
        current = reloader.current
        context = CommandContext(
            app.sqlite_store, app.workspace, current, app.runtime.exclusive, daemon.access, app.scheduler.store
        )
        return await answer_command(context, body)

    async def reload(_peer: ControlPeer, _body: JsonObject) -> JsonObject:
        return asdict(await reloader.reload("command"))

    async def status(_peer: ControlPeer, _body: JsonObject) -> JsonObject:
        return {"snapshot": encode(await app.health_collector.snapshot())}

    remote = daemon.remote
    handlers = {**remote.handlers(_chat_service(daemon)), "command": command, "reload": reload, "status": status}
    server = ControlServer(handlers, remote.forget_client)
    async with server.listen(path):
        yield server


def _chat_service(daemon: Daemon) -> ChatService:
    app, runtime = daemon.bot, daemon.bot.channel_runtimes[daemon.remote.name]

    async def read_notice(session: str) -> str:
        try:
            model = await app.models.model_for_tape(app.tape(session))
        except ModelError as error:
            return str(error)
        if isinstance(model, LazyModel):
            model.warm()
        return model.traits.notice or ""

    async def count_pending(session: str) -> int:
        await runtime.deliverer.resume(session, queued=True)
        running, waiting = app.runtime.session_activity(session)
        return waiting + running

    async def wait_until_idle(session: str) -> None:
        await app.runtime.wait_session_idle(session)
        await runtime.deliverer.wait_until_delivered(session.split(":", 2)[1])  # does not wait for slower chats

    async def accept(inbound: Inbound) -> asyncio.Future[TurnResult] | None:
        return await runtime.gate.accept(inbound)  # a reload replaces the gate

    return ChatService(
        accept,
        read_notice,
        count_pending,
        wait_until_idle,
        runtime.deliverer.wait_until_delivered,
        lambda: app.commands,
        app.tape,
    )
