"""Chat completions over a real server, with a bot that answers when the test wants it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp
import pytest
from msgspec import structs

from bubbot.ports.channel import Inbound, TextStreamed, TurnStarted
from bubbot.ports.turn import TurnResult
from bubbot.server.api import Api
from bubbot.server.completions import Completions
from bubbot.server.network import NETWORK_LIMITS, NetworkSettings, serve_network
from bubbot.server.remote import ChatService, RemoteChannel
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, SteppingClock

TOKEN = "0123456789abcdef"
WAIT = 60.0
BOT_ENDED = "it answers after its next start"


class Bench:
    """A server whose bot accepts everything; `accepted` has the messages, and the futures of their turns."""

    def __init__(self) -> None:
        self.remote = RemoteChannel("stdin")
        self.accepted: asyncio.Queue[tuple[Inbound, asyncio.Future[TurnResult]]] = asyncio.Queue()
        self.tape = TapeService(InMemoryStore(), "t", now=SteppingClock(), new_id=CountingIds("id"), session="stdin:a")

    async def accept(self, inbound: Inbound) -> asyncio.Future[TurnResult] | None:
        """Begins a turn."""
        result: asyncio.Future[TurnResult] = asyncio.get_running_loop().create_future()
        self.accepted.put_nowait((inbound, result))
        return result

    @asynccontextmanager
    async def served(self) -> AsyncIterator[int]:
        """The port."""

        async def never(_: object) -> None: ...

        service = ChatService(self.accept, never, never, never, never, lambda: (), lambda _: self.tape)  # type: ignore[arg-type]
        api = Api({})
        ids = CountingIds("c")
        completions = Completions(
            api,
            self.remote,
            service,
            model="bot",
            commands=False,
            now=lambda: datetime(2026, 11, 22, tzinfo=UTC),
            new_id=ids,
        )
        limits = structs.replace(NETWORK_LIMITS, shutdown_seconds=0.1)  # its turns do not end by themselves
        async with serve_network(api, NetworkSettings("127.0.0.1", 0, TOKEN), completions, limits) as port:
            yield port


async def complete(port: int, *, stream: bool) -> tuple[int, str]:
    """The status and the body of the answer to a message."""
    body = {"messages": [{"role": "user", "content": "hello"}], "stream": stream}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body) as answer,
    ):
        return answer.status, await answer.text()


@pytest.mark.parametrize("stream", [False, True])
async def test_the_end_of_the_bot_is_told_to_who_waits_for_an_answer(stream: bool) -> None:
    bench = Bench()
    async with asyncio.timeout(WAIT), bench.served() as port:
        asking = asyncio.create_task(complete(port, stream=stream))
        inbound, _ = await bench.accepted.get()
        assert inbound.is_one_shot, "a command that fails is its answer"
        bench.remote.preview("stdin:default", TurnStarted(1, inbound.message))
        bench.remote.preview("stdin:default", TextStreamed("half an "))
    status, text = await asking
    if stream:
        *_, error, end = [line.removeprefix("data: ") for line in text.splitlines() if line]
        assert (status, end) == (200, "[DONE]")
        assert BOT_ENDED in json.loads(error)["error"]["message"]
    else:
        assert status == 502
        assert BOT_ENDED in json.loads(text)["error"]["message"]
