"""The feature: plants."""

from __future__ import annotations

from bubbot.features.plants.commands import PlantCommands
from bubbot.features.plants.facts import PLANTS_TAPE
from bubbot.features.plants.settings import PlantSettings

from bubbot.command import make_tools
from bubbot.feature import Feature, Kernel
from bubbot.settings.loader import Settings


def create(kernel: Kernel, settings: Settings) -> Feature:
    """Build the feature under these settings; a reload builds it again."""
    commands = PlantCommands(kernel.open_tape(PLANTS_TAPE), kernel.projections, settings.section(PlantSettings))
    return Feature(name="plants", tools=make_tools(PlantCommands, lambda: commands))
