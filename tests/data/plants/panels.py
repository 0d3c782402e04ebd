"""The plants on the trace page."""

from __future__ import annotations

from bubbot.features.plants.facts import PLANTS_TAPE, PlantWatered
from msgspec import Struct

from bubbot.panel import Panel, PanelQuery, PanelReader
from bubbot.tape.boundary import SharedTape


class Garden(Struct, frozen=True):
    """A page of the waterings, newest first."""

    waterings: tuple[PlantWatered, ...]
    litres: float


async def read_garden(reader: PanelReader, query: PanelQuery) -> Garden:
    """Read the newest waterings."""
    entries, _ = await query.read_page(reader.tapes.open_tape(PLANTS_TAPE), *PlantWatered.EVENTS)
    return Garden(tuple(map(PlantWatered.of, entries)), reader.settings.litres)


PANELS = (
    Panel(
        "garden",
        "Garden",
        "deployment",
        read_garden,
        "bubbot.features.plants:garden.html",
        (SharedTape(PLANTS_TAPE),),
    ),
)
