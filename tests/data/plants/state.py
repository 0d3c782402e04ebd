"""Which plant got water last, and when."""

from __future__ import annotations

from functools import singledispatchmethod
from typing import Any, ClassVar

import msgspec
from bubbot.features.plants.facts import PLANTS_TAPE, PlantWatered

from bubbot.tape.fact import Cited, Current, FactState
from bubbot.tape.projection import checkpoint_model, project_facts


class PlantState(FactState, dict=True):
    """The newest watering of each plant."""

    FACTS: ClassVar = (PlantWatered,)
    watered: Current[PlantWatered] = msgspec.field(default_factory=Current)

    @singledispatchmethod
    def fold(self, fact: Any, cited: Cited[Any], /) -> None:
        """Change the state by one fact."""
        raise NotImplementedError(type(fact).__name__)

    @fold.register
    def _(self, _fact: PlantWatered, cited: Cited[Any], /) -> None:
        self.watered.put(cited)


PLANTS_PROJECTION = project_facts(PlantState, name="plants", version=1, tapes=PLANTS_TAPE, interval=500)
CHECKPOINTS = {PLANTS_PROJECTION.checkpoint_name: checkpoint_model(PlantState)}
