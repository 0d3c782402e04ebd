"""The health of the export of traces while no bot runs."""

from __future__ import annotations

from bubbot.ports.checks import HomeReader
from bubbot.ports.health import FeatureHealth, HealthContext


async def read_health(home: HomeReader, context: HealthContext) -> FeatureHealth:
    """Report nothing: only a running bot sends something."""
    return FeatureHealth(name="otel")
