"""The feature: recorded requests built again, and slices run again with another model."""

from __future__ import annotations

from bubbot.feature import Feature, Kernel
from bubbot.features.replay.tools import replay_tool
from bubbot.runtime.compose import Recompose
from bubbot.runtime.context.strategy import ContextStrategies


def replay_feature(kernel: Kernel, strategies: ContextStrategies, recompose: Recompose) -> Feature:
    """Build the record.

    Args:
        kernel: opens tapes for work that is thrown away.
        strategies: rebuild requests.
        recompose: builds the request of a recorded step as this code would.
    """
    return Feature(name="replay", tools=[replay_tool(kernel, strategies, recompose)])
