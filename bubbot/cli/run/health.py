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
async def serve_health(daemon: Daemon, setup: CommandSetup) -> AsyncIterator[None]:
    """Serve the health of the bot until the block ends.

    The libraries for HTTP and metrics are loaded only if a port is configured.
    """
    settings = setup.settings.health
    if settings.port is None:
        yield
        return
    from bubbot.gateway.metrics import Metrics
    from bubbot.server.health import HealthAddress, HealthProbe, serve_health

    metrics = Metrics()
    attach_metrics(daemon, metrics)
    watch = daemon.bot.health_collector
    probe = HealthProbe(
        watch.channels,
        lambda: watch.quarantine,
        watch.snapshot,
        lambda: watch.store.commit_count,
        watch.failing_models,
        watch.is_disk_full,
    )
    async with serve_health(HealthAddress(settings.host, settings.port), probe, metrics):
        yield


def attach_metrics(daemon: Daemon, metrics: Metrics) -> None:
    """Attach the metrics to the bot, and after each reload to its new channels; counters keep their values."""
    sources = daemon.bot.health_collector.sources

    def attach() -> None:
        metrics.attach(sources.channel_runtimes.values(), sources.activity, sources.budget)

    attach()
    daemon.on_reload.append(attach)
