"""The HTTP health endpoints of `bubbot run`, if `[health] port` is set."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bubbot.cli.setup import CommandSetup
from bubbot.wiring.daemon import Daemon

if TYPE_CHECKING:
    from bubbot.gateway.metrics import Metrics


@asynccontextmanager
async def health(daemon: Daemon, setup: CommandSetup) -> AsyncIterator[None]:
    """Serve the health of the bot until the block ends.

    The libraries for HTTP and metrics are loaded only if a port is configured.
    """
    settings = setup.settings.health
    if settings.port is None:
        yield
        return
    from bubbot.gateway.health_server import HealthAddress, HealthProbe, health_door
    from bubbot.gateway.metrics import Metrics

    metrics = Metrics()
    attached(daemon, metrics)
    watch = daemon.app.watch
    probe = HealthProbe(
        watch.channels,
        lambda: watch.quarantine,
        watch.snapshot,
        lambda: watch.store.commits,
        watch.failing,
        watch.full,
    )
    async with health_door(HealthAddress(settings.host, settings.port), probe, metrics):
        yield


def attached(daemon: Daemon, metrics: Metrics) -> None:
    """Attach the metrics to the bot, and after each reload to its new channels; counters keep their values."""
    sources = daemon.app.watch.over

    def attach() -> None:
        metrics.attach(sources.lines.values(), sources.activity, sources.budget)

    attach()
    daemon.reloaded.append(attach)
