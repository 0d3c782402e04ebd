"""The feature: recorded requests built again, and slices run again with another model."""

from __future__ import annotations

from bubbot.command import make_tools
from bubbot.feature import Feature, Kernel
from bubbot.features.replay.commands import REPLAY_TIMEOUT_SECONDS, ReplayCommands
from bubbot.ports.people import AsksConsent


def replay_feature(kernel: Kernel, consents: AsksConsent) -> Feature:
    """Build the record. The arguments: see `ReplayCommands`."""
    assert kernel.recompose is not None
    commands = ReplayCommands(kernel, kernel.strategies, kernel.recompose, consents)
    tools = make_tools(ReplayCommands, lambda: commands, session_replay={"timeout": REPLAY_TIMEOUT_SECONDS})
    return Feature(name="replay", tools=tools)
