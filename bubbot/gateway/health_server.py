"""How the bot is, over HTTP, for programs on this machine: `/live`, `/ready` and `/metrics`."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from bubbot.errors import BubbotError
from bubbot.gateway.health.formatter import why_failing
from bubbot.gateway.health.snapshot import BackupStatus, ChannelState, HealthSnapshot, ModelOutage
from bubbot.gateway.http_server import HttpAddress, HttpConnections, HttpLimits, http_server
from bubbot.gateway.metrics import Metrics
from bubbot.texts import Texts

log = logging.getLogger(__name__)
Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

SAMPLE = 0.5
"""Seconds between two looks at how late the event loop is."""
LIMITS = HttpLimits(connections=32, shutdown_seconds=2.0)


@dataclass(frozen=True, slots=True)
class HealthAddress:
    """Where the door is."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class HealthProbe:
    """What the door asks of the bot that runs just now: another one may have taken the place of the first."""

    channels: Callable[[], Sequence[ChannelState]]
    quarantine: Callable[[], BackupStatus | None]
    snapshot: Callable[[], Awaitable[HealthSnapshot]]
    commits: Callable[[], int]
    failing: Callable[[], Sequence[ModelOutage]] = tuple
    full: Callable[[], bool] = bool


@asynccontextmanager
async def health_door(
    address: HealthAddress, asked: HealthProbe, metrics: Metrics, limits: HttpLimits = LIMITS
) -> AsyncIterator[int]:
    """Answers until the block ends; gives the port. Raises `ConfigError` where the address cannot be used."""
    connections = HttpConnections(limits)

    @web.middleware
    async def timed(request: web.Request, handler: Handler) -> web.StreamResponse:
        with connections.working(request):
            return await handler(request)

    app = web.Application(middlewares=[timed])
    app.router.add_get("/live", _live)
    app.router.add_get("/ready", _ready(asked))
    app.router.add_get("/metrics", _metrics(asked, metrics))
    async with http_server(app, HttpAddress("health", address.host, address.port), connections) as port:
        sampling = asyncio.create_task(_sample(metrics))
        where = f"[{address.host}]" if ":" in address.host else address.host
        log.info("health and metrics at http://%s:%d", where, port, extra={"action": "health.listening", "port": port})
        if not _is_loopback(address.host):
            log.warning(
                "[health] host is %s: whoever reaches this machine there can read how the bot is; 127.0.0.1 keeps it "
                "to this machine",
                address.host,
                extra={"action": "health.open"},
            )
        try:
            yield port
        finally:
            sampling.cancel()
            await asyncio.gather(sampling, return_exceptions=True)


async def _live(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


def _ready(asked: HealthProbe) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def ready(_request: web.Request) -> web.Response:
        deaf = {
            one.name: {"state": one.state or "begins", "note": one.note} for one in asked.channels() if not one.fine
        }
        fine = not deaf
        told: dict[str, object] = {"ready": fine, "channels": deaf}
        if (held := asked.quarantine()) is not None:
            fine = False
            told |= {"ready": False, "quarantine": held.name}
        if failing := asked.failing():  # whoever sees 503 may cut the bot off; people still have their commands
            told["models"] = {
                one.name: {"since": one.since, "asked": one.newest, "why": why_failing(Texts(), one)} for one in failing
            }
        if asked.full():
            told["disk"] = "full"
        return web.json_response(told, status=200 if fine else 503)

    return ready


def _metrics(asked: HealthProbe, metrics: Metrics) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def told(_request: web.Request) -> web.Response:
        try:
            found = await asked.snapshot()
        except BubbotError as error:
            log.warning("no metrics: %s", error, extra={"action": "health.failed"})
            return web.Response(status=503, text="the database cannot be read\n")
        body = metrics.text(found, asked.commits())
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    return told


async def _sample(metrics: Metrics) -> None:
    clock = asyncio.get_running_loop().time
    while True:
        wanted = clock() + SAMPLE
        await asyncio.sleep(SAMPLE)
        metrics.lagged(clock() - wanted)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
