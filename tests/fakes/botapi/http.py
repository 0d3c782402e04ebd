"""The HTTP side: tokens, methods, files, faults on the wire, and the log of what every bot did."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePosixPath

from aiohttp import web

from tests.fakes.botapi.asking import ASKING
from tests.fakes.botapi.changing import CHANGING
from tests.fakes.botapi.errors import Json, Refusal, conflict
from tests.fakes.botapi.params import Params, read
from tests.fakes.botapi.published import LibraryApi, PublishedApi, make_judge
from tests.fakes.botapi.reach import Site
from tests.fakes.botapi.sending import SENDING, UPLOAD_LIMIT
from tests.fakes.botapi.updates import LONGEST_POLL, WHILE_WEBHOOK
from tests.fakes.botapi.webhooks import Webhooks
from tests.fakes.botapi.world import Bot
from tests.fakes.platform import http

METHODS = SENDING | CHANGING | ASKING
WELL_FORMED = re.compile(r"[1-9]\d{0,16}:[\w-]{35}")


@dataclass(slots=True)
class Call(http.Call):
    """A request for a method; see `tests.fakes.platform.http.Call`."""

    bot: str = ""
    params: dict[str, str] = field(default_factory=dict)

    @property
    def method(self) -> str:
        return self.route

    def __str__(self) -> str:
        return f"{self.method} {self.params} -> {self.status}"


class Front(http.Front[Call]):
    """Answers requests for methods and files."""

    def __init__(self, site: Site, webhooks: Webhooks, conflict_pause: float) -> None:
        super().__init__(site.world.changed, str.lower)
        self.site = site
        self.webhooks = webhooks
        self.conflict_pause = conflict_pause
        self.judge = _judge()
        self.complaints: list[str] = []
        """What the published Bot API does not allow: of the adapter's requests, and of the answers to anybody's."""
        self.odd: set[int] = set()
        """Updates that are not as the Bot API describes them, on purpose."""

    def app(self) -> web.Application:
        app = web.Application(client_max_size=UPLOAD_LIMIT + 1024 * 1024)
        app.router.add_route("*", "/bot{token:[^/]+}/{method:[^/]+}", self._method)
        app.router.add_route("*", "/file/bot{token:[^/]+}/{path:.+}", self._file)
        app.router.add_route("*", "/{rest:.*}", self._nothing)
        return app

    async def _nothing(self, request: web.Request) -> web.Response:
        return Refusal(404, "Not Found").response()

    def _bot(self, request: web.Request) -> Bot:
        token = request.match_info["token"]
        if not WELL_FORMED.fullmatch(token):
            raise Refusal(404, "Not Found")
        if token not in self.site.world.bots:
            raise Refusal(401, "Unauthorized")
        return self.site.world.bots[token]

    async def _method(self, request: web.Request) -> web.StreamResponse:
        call = Call(self.site.world.clock.now(), request.match_info["method"])
        self.record(call)
        return await self.respond(request, call, lambda: self._answer(request, call))

    async def _answer(self, request: web.Request, call: Call) -> web.Response:
        try:
            if request.method not in ("GET", "POST"):
                raise Refusal(405, "Method Not Allowed")
            bot = self._bot(request)
            call.bot = bot.user.username
            params = await read(request)
            call.params, call.files = params.values, {name: len(one.content) for name, one in params.files.items()}
            if "python-telegram-bot" in request.headers.get("User-Agent", ""):
                self.complaints += self.judge.check_call(call.method, call.params, call.files)
            call.result = await self.carry_out(bot, call.method, params)
            if isinstance(self.judge, PublishedApi) and call.method in self.judge.methods:
                self.complaints += self.judge.check_result(call.method, self._regular(call.result))
        except web.HTTPRequestEntityTooLarge:
            return _refused(call, Refusal(413, "Request Entity Too Large"))
        except Refusal as refusal:
            if refusal.status == 409:
                await self._slowly(request)
            return _refused(call, refusal)
        return web.json_response({"ok": True, "result": call.result})

    def _regular(self, result: object) -> object:
        """Leave out the updates that are odd on purpose."""
        updates = result if isinstance(result, list) else []
        return [each for each in updates if each.get("update_id") not in self.odd] if updates else result

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
        call = Call(self.site.world.clock.now(), "file", params={"path": request.match_info["path"]})
        self.record(call)
        return await self.respond(request, call, lambda: self._download(request, call))

    def _download(self, request: web.Request, call: Call) -> web.Response:
        path = request.match_info["path"]
        try:
            call.bot = self._bot(request).user.username
            file_id, end = self.site.world.linked.get(path, ("", 0.0))
            if end <= self.site.world.clock.now():
                raise Refusal(404, "Not Found")
        except Refusal as refusal:
            return refusal.response()
        headers = {"Content-Disposition": f'attachment; filename="{PurePosixPath(path).name}"'}
        content = self.site.world.files[file_id].content
        return web.Response(body=content, content_type="application/octet-stream", headers=headers)


@cache
def _judge() -> LibraryApi | PublishedApi:
    """Return the judge of all servers: it takes a while to read, and does not change."""
    return make_judge()


def _refused(call: Call, refusal: Refusal) -> web.Response:
    call.result = refusal.body()
    return refusal.response()


def _list(text: str) -> list[object] | None:
    """`allowed_updates`: what is no JSON array counts as absent."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, list) else None
