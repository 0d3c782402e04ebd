"""A server that answers as a test tells it to, over real HTTP: for failures in every form.

It knows nothing of Telegram but where methods and files are and how updates are acknowledged.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.fakes.botapi.published import make_judge

TOKEN = "4242:SECRET-token_of-the-bot"
ME = {"id": 4242, "is_bot": True, "first_name": "Bub", "username": "our_bot"}


@dataclass(frozen=True)
class No:
    """A refusal in the form of the Bot API."""

    code: int
    description: str
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """Anything else that comes back."""

    code: int
    body: bytes


JUDGE = make_judge()
"""Judges each request; what it finds fails the test at its end."""
HANG = object()
"""The connection stays open, and nothing comes."""
DROP = object()
"""The connection ends without an answer."""


@dataclass(frozen=True)
class Call:
    """A request as it came; uploads as (file name, media type, bytes); `connection` is that on which it came."""

    method: str
    parameters: dict[str, Any]
    connection: asyncio.Transport


class ScriptedServer:
    """`say(method, *answers)` queues answers; the queue empty, a method succeeds with what `usual` has for it."""

    def __init__(self) -> None:
        self.url = ""
        self.calls: list[Call] = []
        self.complaints: list[str] = []
        self.updates: list[Any] = []
        self.files: dict[str, Callable[[web.Request], Any]] = {}
        self.usual: dict[str, Any] = {"getMe": ME, "getMyCommands": [], "sendMessage": {"message_id": 7}}
        self.changed = asyncio.Event()
        self._answers: dict[str, list[Any]] = defaultdict(list)
        self._gone = asyncio.Event()

    def say(self, method: str, *answers: Any) -> None:
        self._answers[method].extend(answers)

    def methods(self) -> list[str]:
        return [call.method for call in self.calls]

    def connections(self, method: str) -> list[asyncio.Transport]:
        """Return on which connection each call of a method came."""
        return [call.connection for call in self.calls if call.method == method]

    def sent(self, method: str) -> list[dict[str, Any]]:
        return [call.parameters for call in self.calls if call.method == method]

    async def until(self, true: Callable[[], bool]) -> None:
        """Waits until a request made something true."""
        async with asyncio.timeout(60):
            while not true():
                self.changed.clear()
                await self.changed.wait()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        assert request.match_info["token"] == TOKEN
        method = request.match_info["method"]
        parameters = await _parameters(request)
        assert request.transport is not None
        self.calls.append(Call(method, parameters, request.transport))
        self.complaints += JUDGE.check_call(method, *_as_text(parameters))
        self.changed.set()
        queue = self._answers[method]
        if queue:
            answer = queue.pop(0)
        elif method == "getUpdates":
            answer = await self._news(parameters)
        else:
            answer = self.usual.get(method, True)
        return await self._respond(request, answer)

    async def _news(self, parameters: dict[str, Any]) -> list[Any]:
        self.updates = [one for one in self.updates if one.get("update_id", 0) >= parameters.get("offset", 0)]
        if not self.updates:
            await asyncio.sleep(0.05)
        return self.updates

    async def _respond(self, request: web.Request, answer: Any) -> web.StreamResponse:
        if answer is HANG:
            await self._gone.wait()
        if answer is DROP or answer is HANG:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if isinstance(answer, Page):
            return web.Response(status=answer.code, body=answer.body)
        if isinstance(answer, No):
            body: dict[str, Any] = {"ok": False, "error_code": answer.code, "description": answer.description}
            if answer.parameters:
                body["parameters"] = answer.parameters
            return web.json_response(body, status=answer.code)
        return web.json_response({"ok": True, "result": answer})

    async def give(self, request: web.Request) -> web.StreamResponse:
        assert request.match_info["token"] == TOKEN
        found = self.files[request.match_info["path"]](request)
        response: web.StreamResponse = await found if asyncio.iscoroutine(found) else found
        return response

    def leave(self) -> None:
        self._gone.set()


async def _parameters(request: web.Request) -> dict[str, Any]:
    if request.content_type == "application/json":
        values: dict[str, Any] = await request.json()
        return values
    found: dict[str, Any] = {}
    for name, value in (await request.post()).items():
        if isinstance(value, web.FileField):
            with value.file as opened:
                found[name] = (value.filename, value.content_type, opened.read())
        elif isinstance(value, str):
            found[name] = _value(name, value)
    return found


def _value(name: str, value: str) -> Any:
    if name in ("text", "caption", "chat_id", "url", "secret_token", "file_id", "action"):
        return value
    return json.loads(value)


def _as_text(parameters: dict[str, Any]) -> tuple[dict[str, str], set[str]]:
    """Return parameters as the Bot API reads them, and the names of the files."""
    files = {name for name, value in parameters.items() if isinstance(value, tuple)}
    plain = {name: value for name, value in parameters.items() if name not in files}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in plain.items()}, files


@asynccontextmanager
async def scripted_server() -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer()
    app = web.Application(client_max_size=100_000_000)
    app.router.add_post("/bot{token}/{method}", server.handle)
    app.router.add_get("/file/bot{token}/{path:.*}", server.give)
    # Its access log has the token in it, which is looked for in all that is logged.
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        server.leave()
        await runner.cleanup()
    assert not server.complaints, server.complaints
