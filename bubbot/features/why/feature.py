"""The feature: explaining an answer from the tape, without asking a model."""

from __future__ import annotations

from bubbot.command import make_tools
from bubbot.feature import Feature, Kernel
from bubbot.features.why.commands import WhyCommands
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.settings.loader import Settings


def create(kernel: Kernel, settings: Settings) -> Feature:
    """Build the feature under these settings; a reload builds it again."""
    return why_feature(kernel.strategies, settings.trace.address)


def why_feature(strategies: ContextStrategies, page: str = "") -> Feature:
    """Build the record.

    Args:
        strategies: rebuild requests.
        page: the address of the trace page; empty: nobody serves it.
    """
    commands = WhyCommands(strategies, page)
    return Feature(name="why", tools=make_tools(WhyCommands, lambda: commands))
