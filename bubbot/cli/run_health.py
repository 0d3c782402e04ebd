"""The health of `bubbot run`, over HTTP, where `[health] port` is set."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from bubbot.cli.setup import Setup
from bubbot.wiring_health import Watch


@asynccontextmanager
async def health(watch: Callable[[], Watch], made: Setup) -> AsyncIterator[Callable[[], None]]:
    """Answers about the bot that `watch` gives, until the block ends. Gives what is to be called where another bot has
    taken the first one's place: what was counted goes on.

    The HTTP library and that for metrics are loaded only where somebody wants to ask.
    """
    settings = made.settings.health
    if settings.port is None:
        yield lambda: None
        return
    door: Any = import_module("bubbot.gateway.health_door")
    metrics: Any = import_module("bubbot.gateway.metrics").Metrics()

    def attach() -> None:
        over = watch().over
        metrics.attach(over.lines.values(), over.activity, over.budget)

    attach()
    asked = door.Asked(
        lambda: watch().channels(),
        lambda: watch().quarantine,
        lambda: watch().snapshot(),
        lambda: watch().store.commits,
    )
    async with door.health_door(door.HealthAddress(settings.host, settings.port), asked, metrics):
        yield attach
