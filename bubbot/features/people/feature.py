"""The feature: people may be forgotten."""

from __future__ import annotations

from bubbot.command import make_tools
from bubbot.feature import Feature, Kernel
from bubbot.features.people.facts import PersonForgetting
from bubbot.features.people.forget import ForgetCommands
from bubbot.ports.forgetting import PEOPLE_TAPE
from bubbot.settings.loader import Settings
from bubbot.tape.fork import MergeResult


def create_lasting(kernel: Kernel, _settings: Settings) -> Feature:
    """Build the feature; it has no settings."""
    commands = ForgetCommands(kernel.open_tape, kernel.restart)

    async def restart_to_forget(merged: MergeResult) -> None:
        if any(entry.name in PersonForgetting.EVENTS for entry in merged.staged.get(PEOPLE_TAPE, ())):
            kernel.restart()

    return Feature(
        name="people",
        tools=make_tools(ForgetCommands, lambda: commands),
        services=(commands,),
        on_merged=(restart_to_forget,),
    )
