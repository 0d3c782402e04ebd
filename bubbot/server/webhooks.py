"""The bot's HTTP server for webhooks: each channel has its own path."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeAlias

from aiohttp import web
from aiohttp.typedefs import Handler
from msgspec import Struct, field, structs

from bubbot.ports.channel import SupportsWebhook, WebhookVerifier
from bubbot.server.listener import (
    HttpAddress,
    HttpConnections,
    HttpLimits,
    HttpRefused,
    listen,
    read_body,
    suspend_deadline,
)
from bubbot.server.paths import check_paths

log = logging.getLogger(__name__)

SERVER_BODY_BYTES = 1_100_000
"""Bytes of a call; above what any channel takes, so that the channel can refuse it itself."""
HTTP_UNAUTHORIZED, HTTP_NOT_FOUND, HTTP_SERVER_ERROR = 401, 404, 500


class WebhookSettings(Struct, frozen=True):
    """The address and limits of the server."""

    host: str = "127.0.0.1"
    port: int = 8080
    limits: HttpLimits = field(default_factory=HttpLimits)


WebhookChannels: TypeAlias = Callable[[], Mapping[str, SupportsWebhook]]
"""The current channels with a webhook, by name."""


@asynccontextmanager
async def serve_webhooks(channels: WebhookChannels, settings: WebhookSettings) -> AsyncIterator[int]:
    """Serve the channels until the block ends; yield the port.

    Raises:
        ConfigError: the address cannot be used, or two channels want the same path.
    """
    check_paths(channels())
    routes = [web.post("/{path:.*}", _webhook_handler(channels))]
    address = HttpAddress("http", settings.host, settings.port)
    connections = HttpConnections(structs.replace(settings.limits, body_bytes=SERVER_BODY_BYTES))
    async with listen(address, routes, connections) as port:
        log.info(
            "listening for webhooks",
            extra={"action": "http.listening", "paths": ", ".join(channel.path for channel in channels().values())},
        )
        yield port


def _webhook_handler(channels: WebhookChannels) -> Handler:
    async def handle_call(request: web.Request) -> web.Response:
        match = next(((name, channel) for name, channel in channels().items() if channel.path == request.path), None)
        if match is None:
            return _refuse(HTTP_NOT_FOUND)
        name, channel = match
        headers = {key.lower(): value for key, value in request.headers.items()}
        if isinstance(channel, WebhookVerifier) and not channel.verify(headers):
            return _refuse(HTTP_UNAUTHORIZED)
        try:
            body = await read_body(request)
        except HttpRefused as refused:
            return _refuse(refused.status)
        with suspend_deadline(request):
            try:
                status = await channel.handle(headers, body)
            except Exception:  # the platform sees the failure and calls again; the other channels keep running
                log.exception("webhook call failed", extra={"action": "http.failed", "channel": name})
                status = HTTP_SERVER_ERROR
            return web.Response(status=status)

    return handle_call


def _refuse(status: int) -> web.Response:
    """Answer without reading the body, and close the connection: the following bytes are not a request."""
    response = web.Response(status=status)
    response.force_close()
    return response
