"""The bot's HTTP server for channels that their platform calls, each at its own path."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from aiohttp import web

from bubbot.ports.channel import SupportsWebhook, WebhookVerifier
from bubbot.server.listener import HttpAddress, HttpConnections, HttpLimits, http_server
from bubbot.server.paths import check_paths

log = logging.getLogger(__name__)

SERVER_BODY_BYTES = 1_100_000
"""Bytes of a call; above what any channel takes, so that the channel can refuse it itself."""
HTTP_UNAUTHORIZED, HTTP_NOT_FOUND, HTTP_BAD_REQUEST, HTTP_TOO_LARGE, HTTP_SERVER_ERROR = 401, 404, 400, 413, 500


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """The address and limits of the server."""

    host: str = "127.0.0.1"
    port: int = 8080
    limits: HttpLimits = field(default_factory=HttpLimits)


WebhookChannels: TypeAlias = Callable[[], Mapping[str, SupportsWebhook]]
"""The channels that are called, by name, as they are at the moment."""


@asynccontextmanager
async def serve_webhooks(channels: WebhookChannels, settings: WebhookSettings) -> AsyncIterator[int]:
    """Serve the channels until the block ends; yield the port.

    Raises:
        ConfigError: the address cannot be used, or two channels want the same path.
    """
    check_paths(channels())
    app = web.Application(client_max_size=SERVER_BODY_BYTES)
    connections = HttpConnections(settings.limits)
    app.router.add_post("/{path:.*}", _webhook_handler(channels, connections))
    async with http_server(app, HttpAddress("http", settings.host, settings.port), connections) as port:
        log.info(
            "listening for webhooks",
            extra={"action": "http.listening", "paths": ", ".join(channel.path for channel in channels().values())},
        )
        yield port


def _webhook_handler(
    channels: WebhookChannels, connections: HttpConnections
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle_call(request: web.Request) -> web.Response:
        match = next(((name, channel) for name, channel in channels().items() if channel.path == request.path), None)
        if match is None:
            return _refuse(HTTP_NOT_FOUND)
        name, channel = match
        headers = {key.lower(): value for key, value in request.headers.items()}
        if isinstance(channel, WebhookVerifier) and not channel.verify(headers):
            return _refuse(HTTP_UNAUTHORIZED)
        if request.content_length is not None and request.content_length > SERVER_BODY_BYTES:
            return _refuse(HTTP_TOO_LARGE)
        try:
            body = await request.read()
        except (web.RequestPayloadError, OSError):  # a wrong length or encoding, or the client is gone
            return _refuse(HTTP_BAD_REQUEST)
        with connections.suspend_deadline(request):
            try:
                status = await channel.handle(headers, body)
            except Exception:  # the platform sees the failure and calls again; the other channels keep running
                log.exception("webhook call failed", extra={"action": "http.failed", "channel": name})
                status = HTTP_SERVER_ERROR
            return web.Response(status=status)

    return handle_call


def _refuse(status: int) -> web.Response:
    """Answer without having read the body, and close: any bytes that follow are not a request."""
    response = web.Response(status=status)
    response.force_close()
    return response
