"""The health of `bubbot run`, over HTTP, where `[health] port` is set."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from bubbot.cli.setup import CommandSetup
from bubbot.wiring.daemon import Daemon


@asynccontextmanager
async def health(daemon: Daemon, made: CommandSetup) -> AsyncIterator[None]:
    """Answers about the bot until the block ends.

    The HTTP library and that for metrics are loaded only where somebody wants to ask.
    """
    settings = made.settings.health
    if settings.port is None:
        yield
        return
    door: Any = import_module("bubbot.gateway.health_server")
    metrics: Any = import_module("bubbot.gateway.metrics").Metrics()
    attached(daemon, metrics)
    watch = daemon.app.watch
    asked = door.Asked(
        watch.channels,
        lambda: watch.quarantine,
        watch.snapshot,
        lambda: watch.store.commits,
        watch.failing,
        watch.full,
    )
    async with door.health_door(door.HealthAddress(settings.host, settings.port), asked, metrics):
        yield


def attached(daemon: Daemon, metrics: Any) -> None:
    """Counts what the bot does, and after each reload what its channels do then; what was counted goes on."""
    over = daemon.app.watch.over

    def attach() -> None:
        metrics.attach(over.lines.values(), over.activity, over.budget)

    attach()
    daemon.reloaded.append(attach)
