"""The feature: reporting what model calls took and cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bubbot.command import make_tools
from bubbot.feature import Feature
from bubbot.features.usage.commands import UsageCommands
from bubbot.features.usage.reporter import UsageReporter


def usage_feature(find_reporter: Callable[[], UsageReporter]) -> Feature:
    """Build the record. `find_reporter` returns a reporter under the settings in force."""
    drawing = asyncio.Lock()
    return Feature(name="usage", tools=make_tools(UsageCommands, lambda: UsageCommands(find_reporter(), drawing)))
