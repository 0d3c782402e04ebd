"""The bot's one HTTP door: channels that are called by their platform, each at its own path."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

from aiohttp import web

from bubbot.channel import Webhook
from bubbot.errors import ConfigError
from bubbot.gateway.paths import check_paths

log = logging.getLogger(__name__)

BODY_LIMIT = 1_100_000
"""Bytes of a call; above what any channel takes, so that the channel can say so itself."""
ENDING = 5.0
"""Seconds that calls under way have to end."""


@dataclass(frozen=True, slots=True)
class WebSettings:
    """Where the door is."""

    host: str = "127.0.0.1"
    port: int = 8080


Channels: TypeAlias = Callable[[], Mapping[str, Webhook]]
"""The channels that are called, by name, as they are at the moment."""


@asynccontextmanager
async def web_door(channels: Channels, settings: WebSettings) -> AsyncIterator[int]:
    """Serves the channels until the block ends; gives the port.

    Raises `ConfigError` where the address cannot be used, or two channels want one path.
    """
    check_paths(channels())
    app = web.Application(client_max_size=BODY_LIMIT)
    app.router.add_post("/{path:.*}", _called(channels))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=ENDING)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, settings.host, settings.port).start()
        except OSError as error:
            raise ConfigError(
                f"[http] host and port: {settings.host}:{settings.port} cannot be listened on ({error.strerror}); "
                "choose another port"
            ) from None
        log.info(
            "listening for webhooks",
            extra={"action": "http.listening", "paths": ", ".join(one.path for one in channels().values())},
        )
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _called(channels: Channels) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def called(request: web.Request) -> web.Response:
        found = next(((name, one) for name, one in channels().items() if one.path == request.path), None)
        if found is None:
            return web.Response(status=404)
        name, channel = found
        try:
            body = await request.read()
        except web.RequestPayloadError:  # a length or an encoding that is not true
            return web.Response(status=400)
        try:
            status = await channel.handle({key.lower(): value for key, value in request.headers.items()}, body)
        except Exception:  # the platform is told of a failure and calls again; the others go on
            log.exception("a call could not be taken", extra={"action": "http.failed", "channel": name})
            status = 500
        return web.Response(status=status)

    return called
