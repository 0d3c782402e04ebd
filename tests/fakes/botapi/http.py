"""The HTTP side: tokens, methods, files, faults on the wire, and the log of what every bot did."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from aiohttp import web

from tests.fakes.botapi.asking import ASKING
from tests.fakes.botapi.changing import CHANGING
from tests.fakes.botapi.errors import Json, Refusal, conflict
from tests.fakes.botapi.faults import Cut, Effect, Fault, Faults, Html, Refuse, Slow, Wedge
from tests.fakes.botapi.params import Params, read
from tests.fakes.botapi.reach import Site
from tests.fakes.botapi.sending import SENDING, UPLOAD_LIMIT
from tests.fakes.botapi.updates import LONGEST_POLL, WHILE_WEBHOOK
from tests.fakes.botapi.webhooks import Webhooks
from tests.fakes.botapi.world import Bot

METHODS = SENDING | CHANGING | ASKING
WELL_FORMED = re.compile(r"[1-9]\d{0,16}:[\w-]{35}")


@dataclass(slots=True)
class Call:
    """One request: when it came, what it asked, what it was told. `status` 0 means that no answer was given."""

    time: float
    bot: str
    method: str
    params: dict[str, str] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    status: int = 0
    result: object = None
    fault: Fault | None = None


@dataclass(slots=True)
class Front:
    """Answers requests over HTTP. Every effect happens between two waits, so that a request has it whole or not."""

    site: Site
    webhooks: Webhooks
    faults: Faults
    log: list[Call]
    conflict_pause: float
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=UPLOAD_LIMIT + 1024 * 1024)
        app.router.add_route("*", "/bot{token:[^/]+}/{method:[^/]+}", self._method)
        app.router.add_route("*", "/file/bot{token:[^/]+}/{path:.+}", self._file)
        app.router.add_route("*", "/{rest:.*}", self._nothing)
        return app

    async def _nothing(self, request: web.Request) -> web.Response:
        return _json(404, Refusal(404, "Not Found").body())

    def _bot(self, request: web.Request) -> Bot:
        token = request.match_info["token"]
        if not WELL_FORMED.fullmatch(token):
            raise Refusal(404, "Not Found")
        if token not in self.site.world.bots:
            raise Refusal(401, "Unauthorized")
        return self.site.world.bots[token]

    async def _method(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        call = Call(self.site.world.clock.now(), "", method)
        self.log.append(call)
        call.fault = self.faults.take(method)
        self.site.world.changed.set()
        if broken := await self._broken(request, call, "before"):
            return broken
        status, body = await self._answer(request, call)
        self.site.world.changed.set()
        if broken := await self._broken(request, call, "after"):
            return broken
        if isinstance(call.fault, Slow):
            await asyncio.sleep(call.fault.seconds)
        if isinstance(call.fault, Cut):
            return await _half(request, json.dumps(body).encode())
        call.status = status
        self.site.world.changed.set()
        return _json(status, body)

    async def _answer(self, request: web.Request, call: Call) -> tuple[int, Json]:
        try:
            if request.method not in ("GET", "POST"):
                raise Refusal(405, "Method Not Allowed")
            bot = self._bot(request)
            call.bot = bot.user.username
            params = await read(request)
            call.params, call.files = params.values, {name: len(one.content) for name, one in params.files.items()}
            call.result = await self.carry_out(bot, call.method, params)
        except web.HTTPRequestEntityTooLarge:
            call.result = Refusal(413, "Request Entity Too Large").body()
            return 413, call.result
        except Refusal as refusal:
            if refusal.status == 409:
                await self._slowly(request)
            call.result = refusal.body()
            return refusal.status, refusal.body()
        return 200, {"ok": True, "result": call.result}

    async def _slowly(self, request: web.Request) -> None:
        """The first conflict is told at once, further ones within the pause only after it."""
        bot, now = self._bot(request), asyncio.get_running_loop().time()
        if now < bot.next_conflict:
            await asyncio.sleep(self.conflict_pause)
        else:
            bot.next_conflict = now + self.conflict_pause

    async def carry_out(self, bot: Bot, method: str, params: Params) -> object:
        """One method for one bot. Names are taken in any case of letters."""
        name = method.lower()
        waiting: dict[str, Callable[[Bot, Params], Awaitable[object]]] = {
            "getupdates": self._get_updates,
            "setwebhook": self.webhooks.set,
            "deletewebhook": self.webhooks.remove,
        }
        if name in waiting:
            return await waiting[name](bot, params)
        if name not in METHODS:
            raise Refusal(404, "Not Found: method not found")
        return METHODS[name](self.site, bot, params)

    async def _get_updates(self, bot: Bot, params: Params) -> list[Json]:
        if bot.webhook is not None:
            raise conflict(WHILE_WEBHOOK)
        bot.queue.allow(_list(params.text("allowed_updates")))
        limit, timeout = params.number("limit", 100, 1, 100), params.number("timeout", 0, 0, LONGEST_POLL)
        held = min(timeout, self.site.world.longest_poll)
        return await bot.queue.get(params.number("offset", 0, -(2**31), 2**31 - 1), limit, held)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        call = Call(self.site.world.clock.now(), "", "file", {"path": request.match_info["path"]})
        self.log.append(call)
        call.fault = self.faults.take("file")
        if broken := await self._broken(request, call, "before"):
            return broken
        try:
            call.bot = self._bot(request).user.username
            file_id, end = self.site.world.linked.get(request.match_info["path"], ("", 0.0))
            if end <= self.site.world.clock.now():
                raise Refusal(404, "Not Found")
        except Refusal as refusal:
            call.status = refusal.status
            return _json(refusal.status, refusal.body())
        content = self.site.world.files[file_id].content
        if broken := await self._broken(request, call, "after"):
            return broken
        if isinstance(call.fault, Slow):
            await asyncio.sleep(call.fault.seconds)
        if isinstance(call.fault, Cut):
            return await _half(request, content)
        call.status = 200
        name = PurePosixPath(request.match_info["path"]).name
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return web.Response(body=content, content_type="application/octet-stream", headers=headers)

    async def _broken(self, request: web.Request, call: Call, when: Effect) -> web.Response | None:
        """What a fault makes of a request at this moment; None where it goes on."""
        fault = call.fault
        if fault is None or getattr(fault, "effect", "") != when:
            return None
        match fault:
            case Html(status=status, page=page):
                call.status = status
                return web.Response(status=status, text=page, content_type="text/html")
            case Refuse(status=status, description=description, retry_after=seconds):
                call.status = status
                return _json(status, Refusal(status, description, {"retry_after": seconds} if seconds else None).body())
            case Wedge():
                await self.closing.wait()  # ends with the server, or when the client has gone
        _abort(request)
        return web.Response()


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


async def _half(request: web.Request, body: bytes) -> web.StreamResponse:
    """Promises the whole body and ends the connection in its middle."""
    response = web.StreamResponse(headers={"Content-Length": str(len(body)), "Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response


def _json(status: int, body: Json) -> web.Response:
    return web.json_response(body, status=status)


def _list(text: str) -> list[object] | None:
    """`allowed_updates`: what is no JSON array counts as absent."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, list) else None
