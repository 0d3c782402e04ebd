"""The control socket of `bubbot run`: what `chat`, `ask` and every writing command ask of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

from bubbot.cli.write_command import CommandContext, answer
from bubbot.control.codec import JsonObject, encode
from bubbot.control.peer import ControlPeer
from bubbot.errors import ModelError
from bubbot.gateway.control import ControlServer
from bubbot.gateway.remote import ChatService
from bubbot.models.lazy import LazyModel
from bubbot.ports.channel import Inbound
from bubbot.ports.turn import TurnResult
from bubbot.wiring.daemon import Daemon
from bubbot.wiring.reload import Reloader


@asynccontextmanager
async def control(daemon: Daemon, reloader: Reloader, path: Path) -> AsyncIterator[ControlServer]:
    """Answers on the socket at `path` until the block ends."""
    app = daemon.app

    async def command(_peer: ControlPeer, body: JsonObject) -> JsonObject:
        current = reloader.current
        desk = CommandContext(app.opened, app.workspace, current, app.runtime.exclusive, daemon.access, app.time.book)
        return await answer(desk, body)

    async def reload(_peer: ControlPeer, _body: JsonObject) -> JsonObject:
        return asdict(await reloader.reload("command"))

    async def status(_peer: ControlPeer, _body: JsonObject) -> JsonObject:
        return {"snapshot": encode(await app.watch.snapshot())}

    remote = daemon.remote
    handlers = {**remote.handlers(_doors(daemon)), "command": command, "reload": reload, "status": status}
    server = ControlServer(handlers, remote.left)
    async with server.listening(path):
        yield server


def _doors(daemon: Daemon) -> ChatService:
    app, line = daemon.app, daemon.app.lines[daemon.remote.name]

    async def notice(session: str) -> str:
        try:
            model = await app.models.on(app.tape(session))
        except ModelError as error:
            return str(error)
        if isinstance(model, LazyModel):
            model.warm()
        return model.traits.notice or ""

    async def owed(session: str) -> int:
        await line.deliverer.resume(session, queued=True)
        running, waiting = app.runtime.busy(session)
        return waiting + running

    async def idle(session: str) -> None:
        await app.runtime.session_idle(session)
        await line.deliverer.delivered(session.split(":", 2)[1])  # not what others are slow to take

    async def accept(inbound: Inbound) -> asyncio.Future[TurnResult] | None:
        return await line.gate.accept(inbound)  # a reload puts another gate there

    return ChatService(accept, notice, owed, idle, line.deliverer.delivered, lambda: app.commands, app.tape)
