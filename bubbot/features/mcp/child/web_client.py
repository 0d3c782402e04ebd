"""HTTP to servers within limits, with their headers to their own origin alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import httpx2

from bubbot.features.mcp.child.limits import MAX_MESSAGE_BYTES
from bubbot.formatting import format_bytes
from bubbot.settings.environment import find_proxy

EVENT_STREAM = "text/event-stream"


class AnswerTooLong(httpx2.StreamError):
    """An answer goes beyond the limit, or hides its length by compression. The SDK fails the one request that it belongs to."""


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Limit the bytes of each answer that is not a stream of events, whose events the SDK limits, and refuse compressed ones."""

    def __init__(
        self, origin: str, headers: Mapping[str, str], transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        """Set what is added to requests.

        Args:
            origin: an address whose origin gets the headers; no other one does.
            headers: may hold secrets.
            transport: what sends; those of httpx by default, through the proxies of the environment.
        """
        self._origin = read_origin(httpx2.URL(origin))
        self._headers = headers
        self._transport = transport
        self._by_proxy: dict[str | None, httpx2.AsyncBaseTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        request.headers["Accept-Encoding"] = "identity"
        if read_origin(request.url) == self._origin:
            for name, value in self._headers.items():
                request.headers[name] = value
        response = await self._choose(request.url).handle_async_request(request)
        if response.headers.get("Content-Encoding", "identity").strip().lower() not in {"", "identity"}:
            await response.aclose()
            raise httpx2.RemoteProtocolError("it compressed an answer, which was not asked for", request=request)
        is_stream = response.headers.get("Content-Type", "").strip().lower().startswith(EVENT_STREAM)
        if is_stream and EVENT_STREAM in request.headers.get("Accept", ""):
            return response
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_BoundedStream(response.stream),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        for each in (self._transport, *self._by_proxy.values()):
            if each is not None:
                await each.aclose()

    def _choose(self, url: httpx2.URL) -> httpx2.AsyncBaseTransport:
        """Return what sends to an address."""
        if self._transport is not None:
            return self._transport
        proxy = find_proxy(str(url))
        if proxy not in self._by_proxy:
            self._by_proxy[proxy] = httpx2.AsyncHTTPTransport(proxy=proxy)
        return self._by_proxy[proxy]


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for data in self._stream:
            size += len(data)
            if size > MAX_MESSAGE_BYTES:
                raise AnswerTooLong(f"it sent an answer of more than {format_bytes(MAX_MESSAGE_BYTES)}")
            yield data

    async def aclose(self) -> None:
        await self._stream.aclose()


def read_origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    """Return what two addresses of one origin have in common."""
    return url.scheme, url.host, url.port
