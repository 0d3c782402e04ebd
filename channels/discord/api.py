"""Discord's REST API over discord.py: rate limits, plain JSON, a timeout for every wait, no token in logs or errors.

The library's own exceptions stay in this file: they hold the request that failed, with the token.
"""

from __future__ import annotations

import asyncio
import io
import json as json_module
import logging
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import aiohttp
from discord import DiscordException, File, HTTPException, RateLimited
from discord.http import HTTPClient, Ratelimit, Route
from msgspec import Struct

from channels.discord.errors import DiscordApiError, DiscordUnavailable, parse_error_response, retry_after_seconds
from channels.discord.settings import DiscordSettings

log = logging.getLogger(__name__)
MAX_RATE_LIMITED_TRIES = 5
"""Requests of a call that Discord answers with 429."""
MAX_BUCKETS = 256
"""Rate limits that are kept before those out of use are forgotten."""
_ONE_LIMIT = aiohttp.ClientTimeout(sock_connect=30)
"""`DiscordApi.call` ends each request; a second limit of the client would set a timer for each."""
_LIBRARY_LOGGERS = ("discord.http", "discord.client", "discord.gateway", "discord.state", "discord.webhook.async_")
"""Loggers of the library; below the level of a warning their lines contain what people wrote."""
_URL_TOKEN = re.compile(r"(/(?:webhooks|interactions)/[^/\s]+/)[^/\s?]+")
_MAJOR = {"channels": "channel_id", "guilds": "guild_id", "webhooks": "webhook_id", "interactions": "webhook_id"}
"""The first segment of a path, and the route parameter that the library's rate limits read from the second."""


class DiscordApiTiming(Struct, frozen=True):
    """Timeouts in seconds, the clock and the random source. Tests shorten them."""

    call_timeout: float = 30.0
    verify_timeout: float = 4.0
    """Short, because somebody waits at a terminal."""
    upload_timeout: float = 110.0
    download_timeout: float = 180.0
    max_rate_limit_wait: float = 5.0
    """How long rate limits may delay a call. A call that would wait longer fails and names the wait."""
    token_refused_pause: float = 60.0
    """Pause after Discord refused the token: too many such requests ban the whole IP address."""
    close_timeout: float = 5.0
    defer_after: float = 1.5
    """How long an interaction waits for its answer before it is deferred; Discord allows 3."""
    callback_timeout: float = 2.5
    interaction_lifetime: float = 14.5 * 60
    """How long an interaction's token is used; Discord says 15 minutes."""
    monotonic: Callable[[], float] = time.monotonic
    random_fraction: Callable[[], float] = random.random


class FileUpload(Struct, frozen=True):
    """A file to send with a request."""

    name: str
    content: bytes
    media_type: str = "application/octet-stream"


class DiscordApi:
    """The REST client of one bot, with its own connections.

    The object may be created outside an event loop; its first call opens the sessions.
    """

    def __init__(self, settings: DiscordSettings, timing: DiscordApiTiming) -> None:
        self._settings = settings
        self._timing = timing
        self._opening = asyncio.Lock()
        self._http: DiscordHttp | None = None
        self._files: aiohttp.ClientSession | None = None
        self._closed = False
        self._barred: tuple[float, DiscordApiError] | None = None
        self._redaction = _DiscordRedactingFilter(settings.token)
        for name in _LIBRARY_LOGGERS:
            logging.getLogger(name).addFilter(self._redaction)

    def new_nonce(self) -> str:
        """Return a random nonce for a part without a key: the library repeats requests whose outcome is unknown."""
        return f"{int(self._timing.random_fraction() * 10**18):019d}"

    async def open_http(self) -> HTTPClient:
        """Return the library's client with an open session. The caller translates its exceptions."""
        return (await self._open())[0]

    async def call(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: Mapping[str, str | int] | None = None,
        files: Sequence[FileUpload] = (),
        timeout: float | None = None,
    ) -> Any:
        """Send a request and return the response as JSON, None if it is empty.

        Args:
            path: begins with `/` and contains its ids.
            json: the body; with `files` it is sent as `payload_json`.
            files: uploads of a multipart request.
            timeout: timeout in seconds; None takes the one of `DiscordApiTiming`.

        Raises:
            DiscordApiError: Discord refused the request.
            DiscordUnavailable: no readable response came in time.
        """
        if (bar := self.find_bar()) is not None:
            raise bar
        wait = timeout or (self._timing.upload_timeout if files else self._timing.call_timeout)
        try:
            async with asyncio.timeout(wait):
                http, _ = await self._open()
                return await http.request_json(method, path, json, params, files)
        except TimeoutError:
            raise DiscordUnavailable(f"a request neither came back nor failed within {wait:g} s") from None
        except DiscordApiError as error:
            self._bar(error, path)
            raise

    @property
    def server_date(self) -> str:
        """The `Date` header of the latest response; empty before the first."""
        return self._http.date if self._http else ""

    async def download(self, url: str, limit: int) -> bytes | None:
        """Download a file without sending the token; return None if it is larger than `limit` bytes."""
        try:
            async with asyncio.timeout(self._timing.download_timeout):
                _, session = await self._open()
                return await _download(session, url, self._settings.proxy, limit)
        except TimeoutError:
            raise DiscordUnavailable(f"it was not there within {self._timing.download_timeout:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise DiscordUnavailable(f"the connection failed ({type(error).__name__})") from None

    async def aclose(self) -> None:
        self._closed = True
        try:
            async with asyncio.timeout(self._timing.close_timeout), self._opening:
                if self._files is not None:
                    await self._files.close()
                if self._http is not None:
                    await self._http.close()
        except (TimeoutError, aiohttp.ClientError, OSError):
            return  # the connections are abandoned either way
        finally:
            for name in _LIBRARY_LOGGERS:
                logging.getLogger(name).removeFilter(self._redaction)

    async def _open(self) -> tuple[DiscordHttp, aiohttp.ClientSession]:
        async with self._opening:
            if self._closed:
                raise DiscordUnavailable("the channel is closed")
            if self._http is None or self._files is None:
                # Both belong to the running loop, and only here is one certain to run.
                connector = aiohttp.TCPConnector(limit=0)
                http = DiscordHttp(self._settings, connector, self._timing.max_rate_limit_wait)
                await http.open(self._settings.token)
                self._files = aiohttp.ClientSession(
                    connector=connector, connector_owner=False, cookie_jar=aiohttp.DummyCookieJar()
                )
                self._http = http
            return self._http, self._files

    def find_bar(self) -> DiscordApiError | None:
        """Return the last refusal while it applies to every request (repeating them leads to a ban); else None."""
        if self._barred is None:
            return None
        until, refusal = self._barred
        remaining = until - self._timing.monotonic()
        if remaining <= 0:
            self._barred = None
            return None
        wait = remaining if refusal.status == 429 else None
        return DiscordApiError(refusal.status, refusal.code, refusal.text, wait)

    def _bar(self, error: DiscordApiError, path: str) -> None:
        if error.is_token_refused and not path.startswith(("/webhooks/", "/interactions/")):
            self._barred = (self._timing.monotonic() + self._timing.token_refused_pause, error)
        elif isinstance(error, _AddressBanned):
            self._barred = (self._timing.monotonic() + (error.retry_after or 0.0), error)


class _AddressBanned(DiscordApiError):
    """A 429 from the proxy in front of Discord: it concerns this IP address, not one route."""


class _ServerRoute(Route):
    """A route with the configured base URL; the name used for rate limits has placeholders for its ids."""

    def __init__(self, base: str, verb: str, path: str) -> None:
        segments = path.strip("/").split("/")
        names = ["{}" if segment.isdecimal() else segment for segment in segments]
        major = _MAJOR.get(segments[0])
        if major and len(segments) > 1:
            names[1] = f"{{{major}}}"
        if major == "webhook_id" and len(segments) > 2:
            names[2] = "{webhook_token}"
        super().__init__(verb, "/" + "/".join(names))
        self.url = base + path
        if major and len(segments) > 1:
            setattr(self, major, segments[1])
        if major == "webhook_id" and len(segments) > 2:
            self.webhook_token = segments[2]


class _Gate:
    """A gate that is shut while anybody holds it."""

    def __init__(self) -> None:
        self._holders = 0
        self._is_open = asyncio.Event()
        self._is_open.set()

    async def wait(self) -> None:
        """Wait until the gate is open."""
        await self._is_open.wait()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Shut the gate until the end of the block, or of that of the last holder."""
        self._holders += 1
        self._is_open.clear()
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                self._is_open.set()


class SharedRatelimit(Ratelimit):
    """The library's rate limit of a bucket, except that requests within the quota pass and a 429 delays new ones.

    The original refuses every request in a window longer than the longest wait, even if none has to wait. A 429 may come
    with requests left in the window: their number is kept. If none is left, the wait that the 429 names counts.

    A call that is cancelled while it leaves still opens the bucket for the others.
    """

    __slots__ = ("longest_wait", "no_429")

    def __init__(self, longest_wait: float) -> None:
        super().__init__(longest_wait)
        self.longest_wait = longest_wait
        self.no_429 = _Gate()

    async def acquire(self) -> None:
        await self.no_429.wait()
        if self.is_expired():
            self.reset()  # type: ignore[no-untyped-call]
        if self.remaining <= 0:
            return await super().acquire()
        # Without the end of the window, the library does not look at its length. Within the quota it does not wait.
        expires, self.expires = self.expires, None
        await super().acquire()
        self.expires = expires
        return None

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        try:
            if isinstance(error, RateLimited) and error.retry_after <= self.longest_wait:
                with self.no_429.hold():
                    await asyncio.sleep(error.retry_after)
                if self.remaining <= 0 or self.is_expired():
                    self.reset()  # type: ignore[no-untyped-call]
        finally:
            leave = super().__aexit__(kind, error, traceback)
            if self.remaining >= self.outgoing:
                await leave  # without a wait
            else:  # the library waits until the window is over; whoever is cancelled in that wait would leave the bucket shut
                await asyncio.shield(asyncio.ensure_future(leave))


class DiscordHttp(HTTPClient):
    """The library's client with a configurable base URL, no login request, and short waits allowed.

    It waits for rate limits itself: if a call is cancelled in the library's wait for a global one, all others wait for
    ever (docs/decisions/0017-libraries-by-public-names.md).
    """

    def __init__(self, settings: DiscordSettings, connector: aiohttp.BaseConnector, longest_wait: float) -> None:
        super().__init__(asyncio.get_running_loop(), connector, proxy=settings.proxy)
        self.date = ""
        self._longest_wait = longest_wait
        self._limits: dict[str, SharedRatelimit] = {}
        self._no_global_limit = _Gate()
        self._base = settings.rest_url
        self._opening = False

    async def open(self, token: str) -> None:
        """Create the session, which the library does at login; no request is sent yet."""
        self._opening = True
        try:
            await self.static_login(token)
        finally:
            self._opening = False

    def get_ratelimit(self, key: str) -> Ratelimit:
        """Return the limit of a bucket, as the library does, but a `SharedRatelimit`."""
        found = super().get_ratelimit(key)
        if isinstance(found, SharedRatelimit):
            return found  # the library keeps it by the bucket's name, once that is known
        if key not in self._limits:
            if len(self._limits) >= MAX_BUCKETS:
                self._limits = {name: limit for name, limit in self._limits.items() if not limit.is_inactive()}
            self._limits[key] = SharedRatelimit(self._longest_wait)
        return self._limits[key]

    async def request(self, route: Route, **kwargs: Any) -> Any:
        """Send a request, as the library does, but to the configured base URL."""
        if self._opening:
            return {}
        if route.url.startswith(Route.BASE):
            route.url = self._base + route.url.removeprefix(Route.BASE)
        for tries_left in reversed(range(MAX_RATE_LIMITED_TRIES)):
            await self._no_global_limit.wait()
            with ExitStack() as held:
                try:
                    return await super().request(route, middlewares=(partial(self._take_rate_limit, held),), **kwargs)
                except RateLimited as error:
                    log.warning(
                        "discord rate limit: request=%s %s seconds=%.2f", route.method, route.path, error.retry_after,
                        extra={"action": "discord.rate_limit"},
                    )  # fmt: skip
                    if error.retry_after > self._longest_wait or not tries_left:
                        raise
                    for file in kwargs.get("files", ()):
                        file.reset()
        raise AssertionError("the last try returns or raises")

    async def _take_rate_limit(
        self, held: ExitStack, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Raise a 429 of the API before the library reads it: a wait that is not a number would block all requests."""
        response = await handler(request)
        self.date = response.headers.get("Date", "")
        if response.status == 429 and "Via" in response.headers and response.content_type == "application/json":
            if "X-RateLimit-Global" in response.headers:
                held.enter_context(self._no_global_limit.hold())
            body = await response.json()
            raise RateLimited(retry_after_seconds(body.get("retry_after"), response.headers.get("Retry-After")))
        return response

    async def request_json(
        self, verb: str, path: str, json: Any, params: Mapping[str, str | int] | None, uploads: Sequence[FileUpload]
    ) -> Any:
        """Send one request and return the parsed response. Raise `DiscordApiError` or `DiscordUnavailable`."""
        options: dict[str, Any] = (
            {"timeout": _ONE_LIMIT} if params is None else {"timeout": _ONE_LIMIT, "params": dict(params)}
        )
        if uploads:
            files = [File(io.BytesIO(upload.content), _safe_name(upload.name)) for upload in uploads]
            options |= {"files": files, "form": _build_form(json, uploads, files)}
        elif json is not None:
            options["json"] = json
        try:
            return _parse_body(await self.request(_ServerRoute(self._base, verb, path), **options))
        except RateLimited as error:
            wait = retry_after_seconds(error.retry_after, None)
            raise DiscordApiError(429, 0, "too many requests", wait) from None
        except HTTPException as error:
            raise _translate_error(error, self.token or "") from None
        except TimeoutError:
            raise
        except (DiscordException, aiohttp.ClientError, OSError) as error:
            raise DiscordUnavailable(f"the connection failed ({type(error).__name__})") from None
        except (AttributeError, KeyError, TypeError, ValueError, RuntimeError, RecursionError) as error:
            # The library does not validate responses: an unexpected form fails here.
            raise DiscordUnavailable(f"its answer cannot be read ({type(error).__name__})") from None


def _build_form(json: Any, uploads: Sequence[FileUpload], files: Sequence[File]) -> list[dict[str, Any]]:
    """Build the parts of a multipart request in the library's form."""
    payload = {"name": "payload_json", "value": json_module.dumps(json or {})}
    parts = [
        {"name": f"files[{number}]", "value": file.fp, "filename": file.filename, "content_type": upload.media_type}
        for number, (upload, file) in enumerate(zip(uploads, files, strict=True))
    ]
    return [payload, *parts]


def _safe_name(name: str) -> str:
    """Return a file name that cannot break out of its header."""
    return re.sub(r"[\x00-\x1f\x7f\"\\/]", "_", name)[:200] or "file"


def _parse_body(data: Any) -> Any:
    """Return the response as JSON: the library leaves it a string if the content type is not exactly the usual one."""
    if not isinstance(data, str):
        return data
    if not data.strip():
        return None
    try:
        return json_module.loads(data)
    except ValueError:
        raise DiscordUnavailable("its answer is a page and not JSON") from None


def _translate_error(error: HTTPException, token: str) -> DiscordApiError | DiscordUnavailable:
    headers = error.response.headers
    body: Any = error.text
    if headers.get("content-type") == "application/json":
        body = {"message": error.text, "code": error.code}
    result = parse_error_response(error.status, body, token, headers.get("retry-after"))
    is_from_api = "via" in headers and isinstance(body, dict)
    if isinstance(result, DiscordApiError) and result.status == 429 and not is_from_api:
        return _AddressBanned(429, result.code, result.text, result.retry_after)
    return result


async def _download(session: aiohttp.ClientSession, url: str, proxy: str | None, limit: int) -> bytes | None:
    content = bytearray()
    async with session.get(url, proxy=proxy, allow_redirects=False) as response:
        if response.status != 200:
            if response.status >= 500:
                raise DiscordUnavailable(f"it has an internal error ({response.status})")
            raise DiscordApiError(response.status, 0, "its address is not valid, or no longer")
        if (response.content_length or 0) > limit:
            return None
        async for chunk in response.content.iter_chunked(65536):
            content += chunk
            if len(content) > limit:
                return None
    return bytes(content)


class _DiscordRedactingFilter(logging.Filter):
    """A log filter that removes tokens, and drops records with what people wrote, or of rate limits: we log those."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < (logging.ERROR if record.name == "discord.http" else logging.INFO):
            return False
        text = record.getMessage()
        clean = _URL_TOKEN.sub(r"\1[secret]", text).replace(self._token, "[secret]")
        if clean != text:
            record.msg, record.args = clean, ()
        return True
