"""The bot's health over HTTP, for programs on this machine: `/live`, `/ready` and `/metrics`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from msgspec import Struct
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from bubbot.errors import BubbotError
from bubbot.gateway.health.snapshot import BackupStatus, ChannelState, DiskProblem, HealthSnapshot
from bubbot.gateway.metrics import Metrics
from bubbot.hosts import is_this_machine
from bubbot.server.listener import (
    HttpAddress,
    HttpConnections,
    HttpLimits,
    HttpRefused,
    check_host,
    listen,
    suspend_deadline,
)

log = logging.getLogger(__name__)

LAG_SAMPLE_SECONDS = 0.5
"""Seconds between two measurements of the event loop's lag."""
HEALTH_HTTP_LIMITS = HttpLimits(connections=32, shutdown_seconds=2.0)


class HealthProbe(Struct, frozen=True):
    """Functions that read the current bot, which a restart inside the process may replace.

    Attributes:
        quarantine: the backup that the home was restored from, while it is in quarantine.
        snapshot: the whole state, for metrics.
        commits: transactions of the database so far.
        disk_problem: the reason why writing waits; empty if it does not.
        is_database_replaced: true while nothing is written, because the database was removed or replaced.
    """

    channels: Callable[[], Sequence[ChannelState]]
    quarantine: Callable[[], BackupStatus | None]
    snapshot: Callable[[], Awaitable[HealthSnapshot]]
    commits: Callable[[], int]
    readiness: Callable[[], Mapping[str, object]] = dict
    disk_problem: Callable[[], DiskProblem] = lambda: ""
    is_database_replaced: Callable[[], bool] = bool


@asynccontextmanager
async def serve_health(
    address: HttpAddress, probe: HealthProbe, metrics: Metrics, hosts: Sequence[str] = ()
) -> AsyncIterator[int]:
    """Answer until the block ends; yield the port.

    Args:
        hosts: further names of this machine in requests.

    Raises:
        ConfigError: the address cannot be used.
    """
    routes = [
        web.get("/live", _live),
        web.get("/ready", _ready_handler(probe)),
        web.get("/metrics", _metrics_handler(probe, metrics)),
    ]
    names = (address.host, *hosts)
    async with listen(
        address, routes, HttpConnections(HEALTH_HTTP_LIMITS), [_track_request, _refuse_pages(names)]
    ) as port:
        sampling = asyncio.create_task(_sample(metrics))
        url_host = f"[{address.host}]" if ":" in address.host else address.host
        log.info(
            "serving health and metrics: http://%s:%d",
            url_host,
            port,
            extra={"action": "health.listening", "port": port},
        )
        if not is_this_machine(address.host):
            log.warning(
                "[health] host is %s: anybody who reaches this machine there can read the bot's health; 127.0.0.1 keeps it "
                "to this machine",
                address.host,
                extra={"action": "health.open"},
            )
        try:
            yield port
        finally:
            sampling.cancel()
            await asyncio.gather(sampling, return_exceptions=True)


@web.middleware
async def _track_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    with suspend_deadline(request):
        return await handler(request)


def _refuse_pages(names: Sequence[str]) -> Middleware:
    """Build a middleware that refuses requests with a foreign host, except those of `/live`."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path != "/live" and "Host" in request.headers:  # old probes send none; browsers always do
            try:
                check_host(request, "health", names)
            except HttpRefused as refused:
                return web.Response(status=refused.status, text=f"{refused}\n")
        return await handler(request)

    return check


async def _live(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


def _ready_handler(probe: HealthProbe) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def ready(_request: web.Request) -> web.Response:
        unready = {
            channel.name: {"state": channel.state or "begins", "note": channel.note}
            for channel in probe.channels()
            if not channel.is_receiving
        }
        is_ready = not unready
        body: dict[str, object] = {"ready": is_ready, "channels": unready}
        if (backup := probe.quarantine()) is not None:
            is_ready = False
            body |= {"ready": False, "quarantine": backup.name}
        # Not a reason for 503, which may cut the bot off: people still have their commands.
        body = {**body, **probe.readiness(), **body}
        if problem := probe.disk_problem():  # nothing is accepted until it can be written
            is_ready = False
            body |= {"ready": False, "disk": problem}
        if probe.is_database_replaced():
            is_ready = False
            body |= {"ready": False, "database": "replaced"}
        return web.json_response(body, status=200 if is_ready else 503)

    return ready


def _metrics_handler(probe: HealthProbe, metrics: Metrics) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def metrics_page(_request: web.Request) -> web.Response:
        try:
            snapshot = await probe.snapshot()
        except BubbotError as error:
            log.warning("metrics unavailable: %s", error, extra={"action": "health.failed"})
            return web.Response(status=503, text="the database cannot be read\n")
        body = metrics.render(snapshot, probe.commits())
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    return metrics_page


async def _sample(metrics: Metrics) -> None:
    clock = asyncio.get_running_loop().time
    while True:
        due = clock() + LAG_SAMPLE_SECONDS
        await asyncio.sleep(LAG_SAMPLE_SECONDS)
        metrics.record_lag(clock() - due)
