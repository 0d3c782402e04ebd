"""The feature: reporting what model calls took and cost."""

from __future__ import annotations

from bubbot.feature import Feature
from bubbot.features.usage.reporter import UsageReporter
from bubbot.features.usage.tools import usage_tool


def usage_feature(reporter: UsageReporter) -> Feature:
    """Build the record."""
    return Feature(name="usage", tools=(usage_tool(reporter),))
