"""Watering plants, and looking which need it."""

from __future__ import annotations

from typing import Annotated

from bubbot.features.plants.facts import PLANTS_TAPE, PlantWatered
from bubbot.features.plants.settings import PlantSettings
from bubbot.features.plants.state import PLANTS_PROJECTION
from msgspec import Meta, Struct

from bubbot.arguments.fields import Args
from bubbot.command import Caller, command, make_group
from bubbot.shell_command import CommandContext
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.service import TapeService
from bubbot.tool import INSIDE, READS_OWN, CommandHelp, HelpTopic


class WaterArgs(Args, frozen=True):
    """A plant, and its water."""

    plant: Annotated[str, Meta(description="the name of the plant", min_length=1, max_length=40)]
    litres: Annotated[float | None, Meta(description="how much water")] = None


class PlantRow(Struct, frozen=True):
    """A plant that got water.

    Attributes:
        plant: its name.
        litres: how much.
        watered: when, ISO 8601.
    """

    plant: str
    litres: float
    watered: str

    def describe(self, _caller: Caller) -> str:
        """Say it in a line."""
        return f"{self.plant}: {self.litres:g} l"


class PlantCommands:
    """The plants of a home."""

    def __init__(self, tape: TapeService, projections: ProjectionRunner, settings: PlantSettings) -> None:
        self._tape = tape
        self._plants = projections.project(PLANTS_PROJECTION, tape)
        self._settings = settings

    @command(
        "plants water <plant>",
        chat=("plants.water", "water"),
        form="<plant> [litres]",
        example="fern",
        effect=INSIDE,
        for_model=True,
        help=CommandHelp(HelpTopic.TIMES, "Water a plant", (",water fern",)),
    )
    async def water(self, args: WaterArgs) -> PlantRow:
        """Water a plant."""
        fact = PlantWatered(args.plant, args.litres or self._settings.litres)
        (entry,) = await self._tape.append([fact.to_entry()])
        return PlantRow(fact.plant, fact.litres, entry.date or "")

    @command(
        "plants list",
        chat=("plants.list", "plants"),
        rows="plants",
        effect=READS_OWN,
        for_model=True,
        help=CommandHelp(HelpTopic.TIMES, "Show the plants", (",plants",)),
    )
    async def list_plants(self) -> list[PlantRow]:
        """Show which plants got water last."""
        state = await self._plants.catch_up()
        return [PlantRow(each.fact.plant, each.fact.litres, each.date) for each in state.watered]


async def open_plants(context: CommandContext) -> PlantCommands:
    """Return the plants of the home."""
    return PlantCommands(context.open_tape(PLANTS_TAPE), ProjectionRunner(), context.settings)


COMMANDS = make_group(
    "plants", PlantCommands, open_plants, "Water plants.", help_line="water plants, and see which got water"
)
