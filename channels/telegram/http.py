"""The HTTP clients that python-telegram-bot calls the Bot API with.

aiohttp takes a third of the processor time of the library's own client, httpx; only httpx speaks SOCKS and reads every proxy
variable of the environment, so a bot behind a proxy keeps it.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx
from telegram.error import NetworkError, TelegramError, TimedOut
from telegram.request import BaseRequest, HTTPXRequest, RequestData

from channels.telegram.errors import parse_refusal
from channels.telegram.settings import TelegramSettings

CONNECT_SECONDS = 10.0
POOL_SECONDS = 20.0
"""Seconds to wait for a free connection and to connect."""
READ_SECONDS = 20.0
"""Seconds without a byte of the answer, for a call through a proxy that names no limit."""
CLOSE_TIMEOUT_SECONDS = 5.0
"""Seconds for closing connections; a wedged one does not answer that either."""
_JSON_HEADERS: Mapping[str, str] = MappingProxyType({"Content-Type": "application/json"})


class TelegramHttp(BaseRequest):
    """The handling of answers, shared by both clients.

    Attributes:
        date: the header `Date` of the newest answer; empty before the first one.
    """

    date: str = ""
    _token: str

    def check_answer(self, code: int, payload: bytes) -> tuple[int, bytes]:
        """Return the answer. Raise `TelegramApiError` for a refusal: the library's own reading loses its details."""
        if not 200 <= code <= 299:
            raise parse_refusal(code, payload, self._token)
        return code, payload

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """Parse an answer without the library's own parser, which logs the payload: people's messages."""
        try:
            answer: dict[str, Any] = json.loads(payload.decode())
        except (ValueError, RecursionError):
            raise TelegramError("no JSON") from None
        return answer

    async def close(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                await self.shutdown()
        except (TimeoutError, httpx.HTTPError, aiohttp.ClientError, OSError):
            return  # the connections are dropped either way

    async def renew(self) -> None:
        """Drop every connection; the next call opens a new one."""
        await self.close()
        await self.initialize()


class DirectHttp(TelegramHttp):
    """Calls over aiohttp.

    A connected call has no time limit here: `TelegramApi` has one for the whole call, and a timer for each read would cost as
    much as sending the request.
    """

    def __init__(self, settings: TelegramSettings, trust: ssl.SSLContext, *, pool: int) -> None:
        self._token = settings.token
        self._trust = trust
        self._pool = pool
        self._session: aiohttp.ClientSession | None = None

    @property
    def read_timeout(self) -> float:
        """Seconds without a byte of the answer."""
        return READ_SECONDS

    async def initialize(self) -> None:
        """Do nothing: the first call connects."""

    async def shutdown(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def do_request(
        self,
        url: str,
        method: str,
        request_data: RequestData | None = None,
        *_timeouts: Any,
        **_more_timeouts: Any,
    ) -> tuple[int, bytes]:
        """Send a request; see `BaseRequest.do_request`."""
        session = self._session = self._session or self._open_session()
        try:
            body, headers = _body(request_data)
            async with session.request(method, url, data=body, headers=headers, allow_redirects=False) as response:
                payload = await response.read()
                self.date = response.headers.get("date", "")
        except TimeoutError as error:
            raise TimedOut from error
        except aiohttp.ClientError as error:
            raise NetworkError(type(error).__name__) from error
        return self.check_answer(response.status, payload)

    def _open_session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._pool, ssl=self._trust),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(connect=POOL_SECONDS, sock_connect=CONNECT_SECONDS),
            headers={"User-Agent": self.USER_AGENT},
        )


class ProxiedHttp(HTTPXRequest, TelegramHttp):
    """Calls over httpx, through the proxy of the settings or of the environment."""

    def __init__(self, settings: TelegramSettings, trust: ssl.SSLContext, *, pool: int) -> None:
        self._token = settings.token
        super().__init__(
            connection_pool_size=pool, read_timeout=READ_SECONDS, write_timeout=20, connect_timeout=CONNECT_SECONDS,
            pool_timeout=POOL_SECONDS, media_write_timeout=120, proxy=settings.proxy,
            httpx_kwargs={"verify": trust, "event_hooks": {"response": [self._note_date]}},
        )  # fmt: skip

    async def _note_date(self, response: httpx.Response) -> None:
        self.date = response.headers.get("date", "")

    async def do_request(
        self, url: str, method: str, request_data: RequestData | None = None, *args: Any, **kwargs: Any
    ) -> tuple[int, bytes]:
        """Send a request; see `BaseRequest.do_request`."""
        return self.check_answer(*await super().do_request(url, method, request_data, *args, **kwargs))


def load_certificates(settings: TelegramSettings) -> ssl.SSLContext:
    """Load the trusted certificates, which takes tens of milliseconds; none for an unencrypted address."""
    addresses = (settings.base_url, settings.base_file_url)
    proxies = (settings.proxy or "", *map(_find_proxy, addresses))
    if any(address.lower().startswith("https:") for address in (*addresses, *proxies)):
        return httpx.create_ssl_context()
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def open_http(settings: TelegramSettings, trust: ssl.SSLContext, *, pool: int) -> TelegramHttp:
    """Return a client with so many connections."""
    is_proxied = settings.proxy is not None or bool(_find_proxy(settings.base_url))
    return (ProxiedHttp if is_proxied else DirectHttp)(settings, trust, pool=pool)


def _find_proxy(address: str) -> str:
    """Return the proxy that the environment names for an address; empty if none: `NO_PROXY` alone names none."""
    parts, proxies = urlsplit(address), getproxies()
    proxy, host = proxies.get(parts.scheme.lower()) or proxies.get("all", ""), parts.hostname or ""
    return "" if proxy_bypass(host) or proxy_bypass(f"{host}:{parts.port}") else proxy


def _body(request_data: RequestData | None) -> tuple[aiohttp.FormData | bytes | None, Mapping[str, str]]:
    """Return the body and its headers: a form only if it holds files, since one takes ten times as long as JSON."""
    if request_data is None:
        return None, {}
    if not request_data.contains_files:
        return json.dumps(request_data.parameters).encode(), _JSON_HEADERS
    form = aiohttp.FormData(quote_fields=False)
    for name, value in request_data.json_parameters.items():
        form.add_field(name, value)
    for name, (filename, content, media_type) in request_data.multipart_data.items():
        form.add_field(name, content, filename=filename, content_type=media_type)
    return form, {}
