"""The service of the process that holds a home for chats and questions of other processes."""

from __future__ import annotations

import asyncio

from bubbot.app.bot import Bot
from bubbot.errors import ModelError
from bubbot.ports.channel import Inbound
from bubbot.ports.model import WarmsUp
from bubbot.ports.turn import TurnResult
from bubbot.server.remote import ChatService, RemoteChannel


def chat_service(app: Bot, remote: RemoteChannel) -> ChatService:
    """Return the operations that clients may request for their sessions."""
    runtime = app.channel_runtimes[remote.name]

    async def read_notice(session: str) -> str:
        try:
            model = await app.models.model_for_tape(app.tape(session))
        except ModelError as error:
            return str(error)
        if isinstance(model, WarmsUp):
            model.warm()
        return model.traits.notice or ""

    async def count_pending(session: str) -> int:
        if app.workers is not None:
            return await app.workers.resume(session)
        await runtime.deliverer.resume(session, queued=True)
        running, waiting = app.runtime.session_activity(session)
        return waiting + running

    async def wait_until_idle(session: str) -> None:
        await app.runtime.wait_session_idle(session)
        chat = session.partition(":")[2]  # a terminal has no threads: a further colon belongs to the name
        await runtime.deliverer.wait_until_delivered(chat)  # do not wait for slower chats

    async def accept(inbound: Inbound) -> asyncio.Future[TurnResult] | None:
        return await runtime.gate.ask(inbound)  # a reload replaces the gate

    return ChatService(
        accept,
        read_notice,
        count_pending,
        wait_until_idle,
        runtime.deliverer.wait_until_delivered,
        lambda: app.commands,
        app.tape,
        app.check_model,
    )
