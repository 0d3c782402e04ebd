"""What is known of plants."""

from __future__ import annotations

from bubbot.tape.fact import Fact

PLANTS_TAPE = "bubbot/plants"


class PlantWatered(Fact):
    """A plant got water.

    Attributes:
        plant: its name.
        litres: how much.
    """

    EVENTS = ("plants/watered",)
    plant: str
    litres: float

    @property
    def subject(self) -> str:
        """The plant."""
        return self.plant


FACTS: tuple[type[Fact], ...] = (PlantWatered,)
