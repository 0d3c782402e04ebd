"""HTTP through a SOCKS proxy, over httpx."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress

import httpx

from bubbot.models.openai.http import KEEPALIVE_SECONDS, ConnectionFailed, describe_cause

MAX_IDLE_CONNECTIONS = 32


class SocksHttp:
    """An `HttpClient` over httpx. Raise `ValueError` for a proxy of another protocol."""

    def __init__(self, trust: ssl.SSLContext, proxy: str, *, connect_seconds: float, follows_redirects: bool) -> None:
        self._connect_seconds = connect_seconds
        self._client = httpx.AsyncClient(
            proxy=proxy,
            verify=trust,
            trust_env=False,
            timeout=httpx.Timeout(None, connect=connect_seconds),
            limits=httpx.Limits(
                max_connections=None, max_keepalive_connections=MAX_IDLE_CONNECTIONS, keepalive_expiry=KEEPALIVE_SECONDS
            ),
            follow_redirects=follows_redirects,
        )

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> SocksResponse:
        """See `HttpClient.send`."""
        try:
            request = self._client.build_request(method, url, content=body, headers=headers)
            return SocksResponse(await self._client.send(request, stream=True))
        except httpx.ConnectTimeout:
            raise ConnectionFailed(f"no connection within {self._connect_seconds:g} seconds") from None
        except httpx.ProxyError:
            raise ConnectionFailed("the proxy refused the connection") from None
        except (httpx.ConnectError, httpx.InvalidURL) as error:
            raise ConnectionFailed(describe_cause(error) or "no connection") from None
        except (httpx.HTTPError, OSError) as error:
            raise ConnectionFailed(describe_cause(error) or "the connection broke") from None

    async def aclose(self) -> None:
        """See `HttpClient.aclose`."""
        await self._client.aclose()


class SocksResponse:
    """An `HttpResponse` over httpx."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._pieces = response.aiter_bytes()
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers

    async def read(self) -> bytes:
        """See `HttpResponse.read`."""
        try:
            return await anext(self._pieces, b"")
        except (httpx.HTTPError, httpx.StreamError, OSError):
            raise ConnectionFailed("the connection broke") from None

    async def pause(self, seconds: float) -> None:
        """See `HttpResponse.pause`; httpx reads when it is asked."""
        await asyncio.sleep(seconds)

    async def aclose(self) -> None:
        """See `HttpResponse.aclose`."""
        with suppress(Exception):  # the connection may be closed already, which is the goal
            await self._response.aclose()
