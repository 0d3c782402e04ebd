"""HTTP for the OpenAI protocol, over aiohttp.

Every failure becomes a `ConnectionFailed` in our words: aiohttp's own errors hold headers, and with them the key.
"""

from __future__ import annotations

import asyncio
import errno
import io
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

import aiohttp

KEEPALIVE_SECONDS = 60.0
"""Seconds an idle connection stays open: people answer each other within them."""
CLOSE_TIMEOUT_SECONDS = 5.0
"""Seconds for closing connections; a wedged one does not answer that either."""
MAX_HEADER_BYTES = 64 * 1024
"""Bytes of one header of a response at most."""
LARGE_BODY_BYTES = 1024 * 1024
"""Bytes from which on a request is sent in pieces, so that the event loop does other work in between."""
_REASONS: Mapping[int, str] = {
    errno.ECONNREFUSED: "nothing listens at its address",
    errno.EHOSTUNREACH: "there is no way to its address",
    errno.ENETUNREACH: "there is no way to its address",
    errno.ECONNRESET: "the connection broke",
}


class ConnectionFailed(Exception):
    """A request or its response failed on the way; the text is the reason, in our words."""


class HttpResponse(Protocol):
    """A response whose body is read piece by piece."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; case does not matter in their names."""
        ...

    async def read(self) -> bytes:
        """Return the next piece of the body, decompressed; empty at its end. Raise `ConnectionFailed`."""
        ...

    async def pause(self, seconds: float) -> None:
        """Stop reading for this many seconds; the system keeps what arrives meanwhile."""
        ...

    async def aclose(self) -> None:
        """Drop the connection, unless the body was read to its end; never raise."""
        ...


class HttpClient(Protocol):
    """Connections that are kept open and used again."""

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> HttpResponse:
        """Send a request and return its response once the headers are there. Raise `ConnectionFailed`."""
        ...

    async def aclose(self) -> None: ...


class AiohttpClient:
    """An `HttpClient` over aiohttp. Every request goes through `proxy`, if one is set."""

    def __init__(
        self, trust: ssl.SSLContext, proxy: str | None, *, connect_seconds: float, follows_redirects: bool
    ) -> None:
        self._trust = trust
        self._proxy = proxy
        self._connect_seconds = connect_seconds
        self._follows_redirects = follows_redirects
        self._session: aiohttp.ClientSession | None = None

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> AiohttpResponse:
        """See `HttpClient.send`.

        A server may close an idle connection while the request is sent. It has read nothing then, so the client sends the
        request once more.
        """
        connection = SimpleNamespace(is_reused=False)
        try:
            try:
                return await self._send_once(method, url, headers, body, connection)
            except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
                if not connection.is_reused:
                    raise
                return await self._send_once(method, url, headers, body, connection)
        except aiohttp.ConnectionTimeoutError:
            raise ConnectionFailed(f"no connection within {self._connect_seconds:g} seconds") from None
        except aiohttp.ClientHttpProxyError:
            raise ConnectionFailed("the proxy refused the connection") from None
        except aiohttp.ClientProxyConnectionError:
            raise ConnectionFailed("the proxy cannot be reached") from None
        except (aiohttp.ClientConnectorError, ValueError) as error:  # a ValueError: no address can look like this
            raise ConnectionFailed(describe_cause(error) or "no connection") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionFailed(describe_cause(error) or "the connection broke") from None

    async def aclose(self) -> None:
        """See `HttpClient.aclose`."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(TimeoutError, aiohttp.ClientError, OSError):  # the connections are dropped either way
                async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                    await session.close()

    async def _send_once(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, connection: SimpleNamespace
    ) -> AiohttpResponse:
        session = self._session = self._session or self._open_session()
        parts = urlsplit(url)
        if parts.username is not None:  # aiohttp itself knows only the letters of Latin-1
            credentials = aiohttp.encode_basic_auth(unquote(parts.username), unquote(parts.password or ""))
            headers = {**headers, "authorization": credentials}
            url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        response = await session.request(
            method,
            url,
            headers=headers,
            data=io.BytesIO(body) if len(body) > LARGE_BODY_BYTES else body or None,
            proxy=self._proxy,
            allow_redirects=self._follows_redirects,
            trace_request_ctx=connection,
        )
        return AiohttpResponse(response)

    def _open_session(self) -> aiohttp.ClientSession:
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_note_reuse)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._trust, keepalive_timeout=KEEPALIVE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            # The other waits have limits of the caller's.
            timeout=aiohttp.ClientTimeout(total=None, connect=self._connect_seconds),
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            trace_configs=[trace],
        )


class AiohttpResponse:
    """An `HttpResponse` over aiohttp."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    async def read(self) -> bytes:
        """See `HttpResponse.read`."""
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError):
            raise ConnectionFailed("the connection broke") from None

    async def pause(self, seconds: float) -> None:
        """See `HttpResponse.pause`."""
        connection = self._response.connection  # none after the last byte
        transport = connection.transport if connection is not None else None
        if isinstance(transport, asyncio.ReadTransport):
            transport.pause_reading()
        await asyncio.sleep(seconds)
        if isinstance(transport, asyncio.ReadTransport):
            transport.resume_reading()

    async def aclose(self) -> None:
        """See `HttpResponse.aclose`."""
        self._response.close()


async def _note_reuse(
    _session: aiohttp.ClientSession, context: SimpleNamespace, _params: aiohttp.TraceConnectionReuseconnParams
) -> None:
    context.trace_request_ctx.is_reused = True


def describe_cause(error: BaseException) -> str:
    """Say in our words why there was no connection; empty if no error in the chain says it."""
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, ssl.SSLCertVerificationError):
            return "its certificate is not trusted"
        if isinstance(link, ssl.SSLError):
            return "no encrypted connection could be agreed on"
        if isinstance(link, socket.gaierror):
            return "the name of its address is unknown"
        if isinstance(link, OSError) and (reason := _REASONS.get(link.errno or 0)):
            return reason
        link = link.__cause__ or link.__context__
    return ""
