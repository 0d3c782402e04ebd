"""The feature: explaining an answer from the tape, without asking a model."""

from __future__ import annotations

from bubbot.command import make_tools
from bubbot.feature import Feature
from bubbot.features.why.commands import WhyCommands
from bubbot.runtime.context.strategy import ContextStrategies


def why_feature(strategies: ContextStrategies, page: str = "") -> Feature:
    """Build the record.

    Args:
        strategies: rebuild requests.
        page: the address of the trace page; empty: nobody serves it.
    """
    commands = WhyCommands(strategies, page)
    return Feature(name="why", tools=make_tools(WhyCommands, lambda: commands))
