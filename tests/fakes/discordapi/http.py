"""The HTTP side: tokens, routes, files, faults on the wire, rate limits, and the log of what the bot did."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from aiohttp import web

from tests.fakes.discordapi.asked import Asked, Route, Site, Upload, read
from tests.fakes.discordapi.commands import COMMANDS
from tests.fakes.discordapi.errors import Json, Refusal
from tests.fakes.discordapi.faults import Cut, Effect, Fault, Faults, Html, Refuse, Slow, TooMany, Wedge, template
from tests.fakes.discordapi.gateway import Gateway
from tests.fakes.discordapi.interactions import INTERACTIONS
from tests.fakes.discordapi.limits import Buckets, too_many
from tests.fakes.discordapi.messages import MESSAGES
from tests.fakes.discordapi.places import PLACES

API = "/api/v10"
MAJOR = ("channel", "guild", "webhook")
VIA = {"Via": "1.1 google"}
Answer = tuple[int, object, dict[str, str]]


@dataclass(slots=True)
class Call:
    """One request: when it came, what it asked, what it was told. `status` 0 means that no answer was given."""

    time: float
    method: str
    path: str
    route: str
    auth: str = ""
    query: dict[str, str] = field(default_factory=dict)
    json: object = None
    files: dict[str, int] = field(default_factory=dict)
    status: int = 0
    result: object = None
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class _Way:
    method: str
    pattern: re.Pattern[str]
    route: str
    act: Route


def _ways(routes: dict[str, Route]) -> list[_Way]:
    """Routes with words come before those with parameters in the same place."""
    ways = []
    for route in sorted(routes, key=lambda one: (one.count("{"), -len(one))):
        method, _, path = route.partition(" ")
        pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path))
        ways.append(_Way(method, pattern, template(route), routes[route]))
    return ways


@dataclass(slots=True)
class Front:
    """Answers requests over HTTP. Every effect happens between two waits, so that a request has it whole or not."""

    site: Site
    gateway: Gateway
    faults: Faults
    buckets: Buckets
    log: list[Call]
    starts: int = 1000
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    ways: list[_Way] = field(default_factory=list)

    def __post_init__(self) -> None:
        gates: dict[str, Route] = {"GET /gateway": self._gateway, "GET /gateway/bot": self._gateway_bot}
        self.ways = _ways(MESSAGES | PLACES | COMMANDS | INTERACTIONS | gates)

    def app(self) -> web.Application:
        """The application for aiohttp."""
        app = web.Application(client_max_size=self.site.sizes.request + 1024 * 1024)
        app.router.add_get("/gateway{rest:/?|/resume}", self._connection)
        app.router.add_get("/attachments/{channel}/{id}/{name}", self._file)
        app.router.add_route("*", "/{rest:.*}", self._request)
        return app

    def _gateway(self, asked: Asked) -> Json:
        return {"url": self.site.world.origin.replace("http://", "ws://") + "/gateway"}

    def _gateway_bot(self, asked: Asked) -> Json:
        left = max(0, self.starts - self.gateway.identified)
        limit = {"max_concurrency": 1, "remaining": left, "reset_after": 14_400_000, "total": self.starts}
        return {**self._gateway(asked), "session_start_limit": limit, "shards": 1}

    def _way(self, request: web.Request) -> tuple[_Way | None, dict[str, str]]:
        """Where a request goes. Escaped slashes stay inside their part."""
        path = request.rel_url.raw_path.removeprefix(API)
        if path == request.rel_url.raw_path:
            return None, {}
        for way in self.ways:
            found = way.pattern.fullmatch(path)
            if found is not None and way.method == request.method:
                return way, found.groupdict()
        return None, {}

    async def _request(self, request: web.Request) -> web.StreamResponse:
        way, path = self._way(request)
        route = way.route if way else f"{request.method} {request.path}"
        auth = request.headers.get("Authorization", "")
        call = Call(self.site.world.clock.now(), request.method, request.path, route, auth, dict(request.query))
        self.log.append(call)
        call.fault = self.faults.take(route)
        self.site.world.changed.set()
        try:
            body, files = await read(request, self.site.sizes.request)
        except Refusal as refusal:
            call.json, call.status, call.result = None, refusal.status, refusal.body()
            return _json(refusal.status, refusal.body(), VIA)
        call.json, call.files = body, {one.name: len(one.content) for one in files.values()}
        if broken := await self._broken(request, call, "before"):
            return broken
        status, result, headers = self._answer(way, call, path, body, files)
        self.site.world.changed.set()
        if broken := await self._broken(request, call, "after"):
            return broken
        if isinstance(call.fault, Slow):
            await asyncio.sleep(call.fault.seconds)
        if isinstance(call.fault, Cut):
            return await _half(request, json.dumps(result).encode())
        call.status, call.result = status, result
        self.site.world.changed.set()
        return _json(status, result, headers)

    def _answer(
        self, way: _Way | None, call: Call, path: dict[str, str], body: object, files: dict[int, Upload]
    ) -> Answer:
        headers = VIA
        try:
            if way is None:
                known = any(one.pattern.fullmatch(call.path.removeprefix(API)) for one in self.ways)
                raise Refusal(405, 0, "405: Method Not Allowed") if known else Refusal(404, 0, "404: Not Found")
            anybody = way.route == "GET /gateway" or way.route.split()[1].startswith(("/interactions", "/webhooks"))
            if not anybody and call.auth != f"Bot {self.site.world.bot.token}":
                raise Refusal(401, 0, "401: Unauthorized")
            major = next((path[name] for name in MAJOR if name in path), "")
            verdict = self.buckets.check(way.route, major, self.site.world.clock.now())
            headers = {**VIA, **verdict.headers}
            if verdict.wait > 0:
                everywhere = verdict.scope == "global"
                headers |= {"X-RateLimit-Scope": verdict.scope, "Retry-After": str(int(verdict.wait) + 1)}
                return 429, too_many(verdict.wait, everywhere=everywhere), headers
            result = way.act(Asked(self.site, path, call.query, body, files))
        except Refusal as refusal:
            return refusal.status, refusal.body(), headers
        if result is None:
            return 204, None, headers
        created = call.route in ("POST /channels/{}/threads", "POST /channels/{}/messages/{}/threads")
        return 201 if created else 200, result, headers

    async def _connection(self, request: web.Request) -> web.StreamResponse:
        """A client comes to the gateway, which may be out of order."""
        call = Call(self.site.world.clock.now(), request.method, request.path, "gateway", query=dict(request.query))
        self.log.append(call)
        call.fault = self.faults.take("gateway")
        self.site.world.changed.set()
        if broken := await self._broken(request, call, "before"):
            return broken
        if isinstance(call.fault, Slow):
            await asyncio.sleep(call.fault.seconds)
        call.status = 101
        return await self.gateway.handle(request)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        call = Call(self.site.world.clock.now(), request.method, request.path, "file")
        call.auth = request.headers.get("Authorization", "")
        self.log.append(call)
        call.fault = self.faults.take("file")
        if broken := await self._broken(request, call, "before"):
            return broken
        number = request.match_info["id"]
        file = self.site.world.files.get(int(number)) if number.isdigit() else None
        if file is None or request.match_info["channel"] not in file.url:
            call.status = 404
            return web.Response(status=404, text="This content is no longer available.")
        if broken := await self._broken(request, call, "after"):
            return broken
        if isinstance(call.fault, Slow):
            await asyncio.sleep(call.fault.seconds)
        if isinstance(call.fault, Cut):
            return await _half(request, file.content)
        call.status = 200
        self.site.world.changed.set()
        name = PurePosixPath(request.match_info["name"]).name
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return web.Response(body=file.content, content_type=file.mime, headers=headers)

    async def _broken(self, request: web.Request, call: Call, when: Effect) -> web.Response | None:
        """What a fault makes of a request at this moment; None where it goes on."""
        fault = call.fault
        if fault is None or getattr(fault, "effect", "") != when:
            return None
        match fault:
            case Html(status=status, page=page):
                call.status = status
                return web.Response(status=status, text=page, content_type="text/html")
            case Refuse(status=status, message=message, code=code):
                call.status = status
                return _json(status, Refusal(status, code, message).body(), VIA)
            case TooMany(retry_after=seconds, scope=scope, banned=banned):
                call.status = 429
                if banned:
                    headers = {"Retry-After": str(int(seconds) + 1)}
                    return web.Response(status=429, text="error code: 1015", headers=headers)
                headers = {**VIA, "X-RateLimit-Scope": scope, "Retry-After": str(int(seconds) + 1)}
                if scope == "global":
                    headers["X-RateLimit-Global"] = "true"
                return _json(429, too_many(seconds, everywhere=scope == "global"), headers)
            case Wedge():
                await self.closing.wait()  # ends with the server, or when the client has gone
        if request.transport is not None:
            request.transport.abort()
        return web.Response()


async def _half(request: web.Request, body: bytes) -> web.StreamResponse:
    """Promises the whole body and ends the connection in its middle."""
    response = web.StreamResponse(headers={"Content-Length": str(len(body)), "Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response


def _json(status: int, body: object, headers: dict[str, str]) -> web.Response:
    """JSON without a character set: clients of Discord compare the content type to the letter."""
    if body is None:
        return web.Response(status=status, headers=headers)
    return web.Response(status=status, body=json.dumps(body).encode(), headers={**headers, "Content-Type": "application/json"})  # fmt: skip
