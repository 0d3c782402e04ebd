"""Discord's REST API over discord.py: its rate limits, plain JSON, an end to every wait, and no token in any log or error.

The library's own exceptions are not used beyond this file: they hold the request they are about.
"""

from __future__ import annotations

import asyncio
import io
import json as json_module
import logging
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
from discord import DiscordException, File, HTTPException, RateLimited
from discord.http import HTTPClient, Ratelimit, Route

from channels.discord.errors import DiscordApiError, DiscordUnavailable, problem
from channels.discord.settings import DiscordSettings

_TALKATIVE = ("discord.http", "discord.client", "discord.gateway", "discord.state", "discord.webhook.async_")
"""Loggers of the library; below the level of a warning their lines have what people wrote in them."""
_WEB_TOKEN = re.compile(r"(/(?:webhooks|interactions)/[^/\s]+/)[^/\s?]+")
_MAJOR = {"channels": "channel_id", "guilds": "guild_id", "webhooks": "webhook_id", "interactions": "webhook_id"}
"""First words of a path, and what their second one is to the limits of the library."""


@dataclass(frozen=True, slots=True)
class DiscordApiTiming:
    """Seconds, and where time and chance come from. Tests make them short."""

    call: float = 30.0
    introduction: float = 4.0
    """Who asks for it waits at a terminal."""
    upload: float = 110.0
    download: float = 180.0
    longest_wait: float = 5.0
    """What the limits may hold a call; what would have to wait longer fails and says how long."""
    refused: float = 60.0
    """How long nothing is asked after the token was refused: too much of that bars the whole address."""
    closing: float = 5.0
    answer_first: float = 1.5
    """How long an interaction waits for its answer before it is shown that one is worked on; Discord gives it 3."""
    callback: float = 2.5
    interaction: float = 14.5 * 60
    """How long the token of an interaction is used; Discord says 15 minutes."""
    monotonic: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True)
class FileUpload:
    """A file of a request."""

    name: str
    content: bytes
    media_type: str = "application/octet-stream"


class DiscordApi:
    """Calls of one bot, with connections of its own. May be made anywhere; opens itself where it is first used."""

    def __init__(self, settings: DiscordSettings, timing: DiscordApiTiming) -> None:
        self._settings = settings
        self._timing = timing
        self._opening = asyncio.Lock()
        self._http: _DiscordHttp | None = None
        self._files: aiohttp.ClientSession | None = None
        self._closed = False
        self._barred: tuple[float, DiscordApiError] | None = None
        self._hush = _DiscordRedactingFilter(settings.token)
        for name in _TALKATIVE:
            logging.getLogger(name).addFilter(self._hush)

    def fresh_key(self) -> str:
        """For a message whose part has no key: the library repeats requests whose outcome nobody heard."""
        return f"{int(self._timing.chance() * 10**18):019d}"

    async def http(self) -> HTTPClient:
        """The library's client, with its session open. Its exceptions are for the caller to translate."""
        return (await self._opened())[0]

    async def call(
        self,
        verb: str,
        path: str,
        *,
        json: Any = None,
        params: Mapping[str, str | int] | None = None,
        files: Sequence[FileUpload] = (),
        within: float | None = None,
    ) -> Any:
        """The answer to a request as JSON, None where it is empty. Raises `DiscordApiError` or `DiscordUnavailable`.

        `path` begins with `/` and has its ids in it. With `files` the JSON goes along as `payload_json`.
        """
        self._check_bar()
        wait = within or (self._timing.upload if files else self._timing.call)
        try:
            async with asyncio.timeout(wait):
                http, _ = await self._opened()
                return await http.ask(verb, path, json, params, files)
        except TimeoutError:
            raise DiscordUnavailable(f"a request neither came back nor failed within {wait:g} s") from None
        except DiscordApiError as error:
            self._bar(error, path)
            raise

    @property
    def date(self) -> str:
        """The header `Date` of the newest answer to a call; empty before."""
        return self._http.date if self._http else ""

    async def download(self, url: str, limit: int) -> bytes | None:
        """A file by its address, asked without the token; None where it is larger than `limit` bytes."""
        try:
            async with asyncio.timeout(self._timing.download):
                _, files = await self._opened()
                return await _download(files, url, self._settings.proxy, limit)
        except TimeoutError:
            raise DiscordUnavailable(f"it was not there within {self._timing.download:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise DiscordUnavailable(f"the connection failed ({type(error).__name__})") from None

    async def aclose(self) -> None:
        """Closes every connection."""
        self._closed = True
        try:
            async with asyncio.timeout(self._timing.closing), self._opening:
                if self._files is not None:
                    await self._files.close()
                if self._http is not None:
                    await self._http.close()
        except (TimeoutError, aiohttp.ClientError, OSError):
            return  # they are given up either way
        finally:
            for name in _TALKATIVE:
                logging.getLogger(name).removeFilter(self._hush)

    async def _opened(self) -> tuple[_DiscordHttp, aiohttp.ClientSession]:
        async with self._opening:
            if self._closed:
                raise DiscordUnavailable("the channel is closed")
            if self._http is None or self._files is None:
                # Both are of the running loop: this is the first place where there is one for sure.
                connector = aiohttp.TCPConnector(limit=0)
                self._files = aiohttp.ClientSession(
                    connector=connector, connector_owner=False, cookie_jar=aiohttp.DummyCookieJar()
                )
                self._http = _DiscordHttp(self._settings, connector, self._timing.longest_wait)
                await self._http.open(self._settings.token)
            return self._http, self._files

    def _check_bar(self) -> None:
        """What every request would be told for some time is not asked again: that is what makes a ban."""
        if self._barred is None:
            return
        until, refusal = self._barred
        left = until - self._timing.monotonic()
        if left <= 0:
            self._barred = None
            return
        wait = left if refusal.status == 429 else None
        raise DiscordApiError(refusal.status, refusal.code, refusal.text, wait)

    def _bar(self, error: DiscordApiError, path: str) -> None:
        if error.token_refused and not path.startswith(("/webhooks/", "/interactions/")):
            self._barred = (self._timing.monotonic() + self._timing.refused, error)
        elif isinstance(error, _AddressBanned):
            self._barred = (self._timing.monotonic() + (error.retry_after or 0.0), error)


class _AddressBanned(DiscordApiError):
    """A 429 of what stands before Discord: it is about this address, not about one kind of request."""


class _ServerRoute(Route):
    """A route whose address is that of our server; its ids are blanked in the name that limits go by."""

    def __init__(self, base: str, verb: str, path: str) -> None:
        words = path.strip("/").split("/")
        names = ["{}" if word.isdecimal() else word for word in words]
        major = _MAJOR.get(words[0])
        if major and len(words) > 1:
            names[1] = f"{{{major}}}"
        if major == "webhook_id" and len(words) > 2:
            names[2] = "{webhook_token}"
        super().__init__(verb, "/" + "/".join(names))
        self.url = base + path
        if major and len(words) > 1:
            setattr(self, major, words[1])
        if major == "webhook_id" and len(words) > 2:
            self.webhook_token = words[2]


class _OpenRatelimit(Ratelimit):
    """A limit of the library that lets through what may be asked: it refuses every request in a window that is longer
    than the longest wait, also where none has to wait."""

    __slots__ = ()

    async def acquire(self) -> None:
        if self.is_expired():
            self.reset()  # type: ignore[no-untyped-call]
        if self.remaining <= 0:
            return await super().acquire()
        self._last_request = self._loop.time()
        self.remaining -= 1
        self.outgoing += 1
        return None


class _DiscordHttp(HTTPClient):
    """The library's client at an address of its own, without a login, and with waits that may be short."""

    def __init__(self, settings: DiscordSettings, connector: aiohttp.BaseConnector, longest_wait: float) -> None:
        trace = aiohttp.TraceConfig()
        trace.on_request_end.append(self._noted)
        super().__init__(asyncio.get_running_loop(), connector, proxy=settings.proxy, http_trace=trace)
        self.date = ""
        self.max_ratelimit_timeout = longest_wait  # as an argument it would be 30 at least
        self._base = settings.rest_url
        self._opening = False

    async def _noted(self, _session: object, _context: object, ended: aiohttp.TraceRequestEndParams) -> None:
        self.date = ended.response.headers.get("Date", "")

    async def open(self, token: str) -> None:
        """Makes the session, which the library does when it logs in; nothing is asked yet."""
        self._opening = True
        try:
            await self.static_login(token)
        finally:
            self._opening = False

    def get_ratelimit(self, key: str) -> Ratelimit:
        """As the library does it, with our kind of limit."""
        if key not in self._buckets:
            self._buckets[key] = _OpenRatelimit(self.max_ratelimit_timeout)
            self._try_clear_expired_ratelimits()
        return self._buckets[key]

    async def request(self, route: Route, **kwargs: Any) -> Any:
        """As the library does it, but at our address."""
        if self._opening:
            return {}
        if route.url.startswith(Route.BASE):
            route.url = self._base + route.url.removeprefix(Route.BASE)
        try:
            return await super().request(route, **kwargs)
        except asyncio.CancelledError:
            # The library sets it only at the end of a wait that is not given up; all others would wait for ever.
            self._global_over.set()
            raise

    async def ask(
        self, verb: str, path: str, json: Any, params: Mapping[str, str | int] | None, uploads: Sequence[FileUpload]
    ) -> Any:
        """One request. Raises `DiscordApiError` or `DiscordUnavailable`."""
        more: dict[str, Any] = {} if params is None else {"params": dict(params)}
        if uploads:
            files = [File(io.BytesIO(one.content), _name(one.name)) for one in uploads]
            more |= {"files": files, "form": _form(json, uploads, files)}
        elif json is not None:
            more["json"] = json
        try:
            return _result(await self.request(_ServerRoute(self._base, verb, path), **more))
        except RateLimited as error:
            raise DiscordApiError(429, 0, "too many requests", error.retry_after) from None
        except HTTPException as error:
            raise _problem(error, self.token or "") from None
        except TimeoutError:
            raise
        except (DiscordException, aiohttp.ClientError, OSError) as error:
            raise DiscordUnavailable(f"the connection failed ({type(error).__name__})") from None
        except (AttributeError, KeyError, TypeError, ValueError, RuntimeError, RecursionError) as error:
            # The library reads answers without looking: whatever stands there instead ends here.
            raise DiscordUnavailable(f"its answer cannot be read ({type(error).__name__})") from None


def _form(json: Any, uploads: Sequence[FileUpload], files: Sequence[File]) -> list[dict[str, Any]]:
    """The parts of a request with files, as the library takes them."""
    parts = [{"name": "payload_json", "value": json_module.dumps(json or {})}]
    made = [
        {"name": f"files[{number}]", "value": file.fp, "filename": file.filename, "content_type": upload.media_type}
        for number, (upload, file) in enumerate(zip(uploads, files, strict=True))
    ]
    return [*parts, *made]


def _name(name: str) -> str:
    """A file's name that cannot break out of its header."""
    return re.sub(r"[\x00-\x1f\x7f\"\\/]", "_", name)[:200] or "file"


def _result(data: Any) -> Any:
    """The answer as JSON: the library leaves it a text where the content type is not exactly the usual one."""
    if not isinstance(data, str):
        return data
    if not data.strip():
        return None
    try:
        return json_module.loads(data)
    except ValueError:
        raise DiscordUnavailable("its answer is a page and not JSON") from None


def _problem(error: HTTPException, token: str) -> DiscordApiError | DiscordUnavailable:
    headers = error.response.headers
    body: Any = error.text
    if headers.get("content-type") == "application/json":
        body = {"message": error.text, "code": error.code}
    found = problem(error.status, body, token, headers.get("retry-after"))
    if isinstance(found, DiscordApiError) and found.status == 429 and not ("via" in headers and isinstance(body, dict)):
        return _AddressBanned(429, found.code, found.text, found.retry_after)
    return found


async def _download(session: aiohttp.ClientSession, url: str, proxy: str | None, limit: int) -> bytes | None:
    found = bytearray()
    async with session.get(url, proxy=proxy, allow_redirects=False) as response:
        if response.status != 200:
            if response.status >= 500:
                raise DiscordUnavailable(f"it has a fault of its own ({response.status})")
            raise DiscordApiError(response.status, 0, "its address is not valid, or no longer")
        if (response.content_length or 0) > limit:
            return None
        async for chunk in response.content.iter_chunked(65536):
            found += chunk
            if len(found) > limit:
                return None
    return bytes(found)


class _DiscordRedactingFilter(logging.Filter):
    """Takes tokens out of what the library logs, and what people wrote."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.INFO:
            return False
        text = record.getMessage()
        clean = _WEB_TOKEN.sub(r"\1[secret]", text).replace(self._token, "[secret]")
        if clean != text:
            record.msg, record.args = clean, ()
        return True
