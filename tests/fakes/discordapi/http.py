"""The HTTP side: tokens, routes, files, faults on the wire, rate limits, and the log of what the bot did."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from aiohttp import web

from tests.fakes.discordapi.asked import Asked, Route, Site, Upload, read
from tests.fakes.discordapi.commands import COMMANDS
from tests.fakes.discordapi.errors import VIA, Json, Refusal, json_response, too_many
from tests.fakes.discordapi.gateway import Gateway
from tests.fakes.discordapi.interactions import INTERACTIONS
from tests.fakes.discordapi.limits import Buckets
from tests.fakes.discordapi.messages import MESSAGES
from tests.fakes.discordapi.places import PLACES
from tests.fakes.platform import http
from tests.fakes.platform.faults import Slow

API = "/api/v10"
MAJOR = ("channel", "guild", "webhook")
Answer = tuple[int, object, dict[str, str]]


@dataclass(slots=True)
class Call(http.Call):
    """A request for a route; see `tests.fakes.platform.http.Call`."""

    method: str
    path: str
    auth: str = ""
    query: dict[str, str] = field(default_factory=dict)
    json: object = None

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.json} -> {self.status}"


def template(route: str) -> str:
    """Blank the parameters of a route: `POST /channels/{}/messages`."""
    return re.sub(r"\{[^}]*\}", "{}", route)


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


class Front(http.Front[Call]):
    """Answers requests for routes and files, and lets connections to the gateway in. `starts` is its daily limit."""

    def __init__(self, site: Site, gateway: Gateway, buckets: Buckets) -> None:
        super().__init__(site.world.changed, template)
        self.site = site
        self.gateway = gateway
        self.buckets = buckets
        self.starts = 1000
        gates: dict[str, Route] = {"GET /gateway": self._gateway, "GET /gateway/bot": self._gateway_bot}
        self.ways = _ways(MESSAGES | PLACES | COMMANDS | INTERACTIONS | gates)

    def app(self) -> web.Application:
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

    def _called(self, request: web.Request, route: str) -> Call:
        auth = request.headers.get("Authorization", "")
        call = Call(self.site.world.clock.now(), route, request.method, request.path, auth, dict(request.query))
        self.record(call)
        return call

    async def _request(self, request: web.Request) -> web.StreamResponse:
        way, path = self._way(request)
        call = self._called(request, way.route if way else f"{request.method} {request.path}")
        try:
            body, files = await read(request, self.site.sizes.request)
        except Refusal as refusal:
            call.status, call.result = refusal.status, refusal.body()
            return json_response(refusal.status, refusal.body(), VIA)
        call.json, call.files = body, {one.name: len(one.content) for one in files.values()}

        def carry_out() -> web.Response:
            status, call.result, headers = self._answer(way, call, path, body, files)
            return json_response(status, call.result, headers)

        return await self.respond(request, call, carry_out)

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
        """Let a client connect to the gateway, which may be out of order."""
        call = self._called(request, "gateway")
        if failed := await self.fail(request, call, "before"):
            return failed
        if isinstance(call.fault, Slow):
            await asyncio.sleep(call.fault.seconds)
        call.status = 101
        return await self.gateway.handle(request)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        return await self.respond(request, self._called(request, "file"), lambda: self._download(request))

    def _download(self, request: web.Request) -> web.Response:
        number = request.match_info["id"]
        file = self.site.world.files.get(int(number)) if number.isdigit() else None
        if file is None or request.match_info["channel"] not in file.url:
            return web.Response(status=404, text="This content is no longer available.")
        name = PurePosixPath(request.match_info["name"]).name
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return web.Response(body=file.content, content_type=file.mime, headers=headers)
