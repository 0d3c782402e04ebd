"""The bot's one HTTP door: channels that are called by their platform, each at its own path."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from aiohttp import web

from bubbot.gateway.http_server import HttpAddress, HttpConnections, HttpLimits, http_server
from bubbot.gateway.paths import check_paths
from bubbot.ports.channel import SupportsWebhook, WebhookVerifier

log = logging.getLogger(__name__)

SERVER_BODY_BYTES = 1_100_000
"""Bytes of a call; above what any channel takes, so that the channel can say so itself."""
HTTP_UNAUTHORIZED, HTTP_NOT_FOUND, HTTP_BAD_REQUEST, HTTP_TOO_LARGE, HTTP_SERVER_ERROR = 401, 404, 400, 413, 500


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Where the door is."""

    host: str = "127.0.0.1"
    port: int = 8080
    limits: HttpLimits = field(default_factory=HttpLimits)


Channels: TypeAlias = Callable[[], Mapping[str, SupportsWebhook]]
"""The channels that are called, by name, as they are at the moment."""


@asynccontextmanager
async def web_door(channels: Channels, settings: WebhookSettings) -> AsyncIterator[int]:
    """Serves the channels until the block ends; gives the port.

    Raises `ConfigError` where the address cannot be used, or two channels want one path.
    """
    check_paths(channels())
    app = web.Application(client_max_size=SERVER_BODY_BYTES)
    connections = HttpConnections(settings.limits)
    app.router.add_post("/{path:.*}", _called(channels, connections))
    async with http_server(app, HttpAddress("http", settings.host, settings.port), connections) as port:
        log.info(
            "listening for webhooks",
            extra={"action": "http.listening", "paths": ", ".join(one.path for one in channels().values())},
        )
        yield port


def _called(channels: Channels, connections: HttpConnections) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def called(request: web.Request) -> web.Response:
        found = next(((name, one) for name, one in channels().items() if one.path == request.path), None)
        if found is None:
            return _refused(HTTP_NOT_FOUND)
        name, channel = found
        headers = {key.lower(): value for key, value in request.headers.items()}
        if isinstance(channel, WebhookVerifier) and not channel.verify(headers):
            return _refused(HTTP_UNAUTHORIZED)
        if request.content_length is not None and request.content_length > SERVER_BODY_BYTES:
            return _refused(HTTP_TOO_LARGE)
        try:
            body = await request.read()
        except (web.RequestPayloadError, OSError):  # a length or an encoding that is not true, or the client is gone
            return _refused(HTTP_BAD_REQUEST)
        with connections.working(request):
            try:
                status = await channel.handle(headers, body)
            except Exception:  # the platform is told of a failure and calls again; the others go on
                log.exception("a call could not be taken", extra={"action": "http.failed", "channel": name})
                status = HTTP_SERVER_ERROR
            return web.Response(status=status)

    return called


def _refused(status: int) -> web.Response:
    """Answer without having read the body, and close: whatever still comes is no request."""
    response = web.Response(status=status)
    response.force_close()
    return response
