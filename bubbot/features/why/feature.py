"""The feature: explaining an answer from the tape, without asking a model."""

from __future__ import annotations

from bubbot.command import make_tools
from bubbot.feature import Feature, Kernel
from bubbot.features.why.commands import WhyCommands
from bubbot.runtime.context.copies import FindHeads, find_no_heads
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.settings.loader import Settings


def create(kernel: Kernel, settings: Settings) -> Feature:
    """Build the feature under these settings; a reload builds it again."""
    return why_feature(kernel.strategies, settings.trace.address, kernel.find_heads)


def why_feature(strategies: ContextStrategies, page: str = "", find_heads: FindHeads = find_no_heads) -> Feature:
    """Build the record.

    Args:
        strategies: rebuild requests.
        page: the address of the trace page; empty: nobody serves it.
        find_heads: returns how far a turn may read other tapes now.
    """
    commands = WhyCommands(strategies, page, find_heads)
    return Feature(name="why", tools=make_tools(WhyCommands, lambda: commands))
