"""The feature: recorded requests built again, and slices run again with another model."""

from __future__ import annotations

from bubbot.command import make_tools
from bubbot.feature import Feature, Kernel
from bubbot.features.replay.commands import REPLAY_TIMEOUT_SECONDS, ReplayCommands
from bubbot.runtime.compose import Recompose
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.settings.loader import Settings


def create(kernel: Kernel, _settings: Settings) -> Feature:
    """Build the feature under these settings; a reload builds it again."""
    assert kernel.recompose is not None
    return replay_feature(kernel, kernel.strategies, kernel.recompose)


def replay_feature(kernel: Kernel, strategies: ContextStrategies, recompose: Recompose) -> Feature:
    """Build the record. The arguments: see `ReplayCommands`."""
    commands = ReplayCommands(kernel, strategies, recompose)
    tools = make_tools(ReplayCommands, lambda: commands, session_replay={"timeout": REPLAY_TIMEOUT_SECONDS})
    return Feature(name="replay", tools=tools)
