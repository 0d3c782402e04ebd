"""What the facts about skills come to."""

from __future__ import annotations

from functools import singledispatchmethod
from typing import Any, ClassVar

import msgspec

from bubbot.features.skills.facts import FACTS, SKILLS_TAPE, SkillInstalled, SkillRemoved
from bubbot.tape.fact import Cited, Current, FactState
from bubbot.tape.projection import checkpoint_model, project_facts


class SkillsState(FactState):
    """The skills that an owner accepted.

    Attributes:
        installed: the newest fact about each.
    """

    FACTS: ClassVar = FACTS
    installed: Current[SkillInstalled] = msgspec.field(default_factory=Current)

    @singledispatchmethod
    def fold(self, fact: Any, cited: Cited[Any], /) -> None:
        """Change the state by one fact."""
        raise NotImplementedError(type(fact).__name__)

    @fold.register
    def _(self, _fact: SkillInstalled, cited: Cited[Any], /) -> None:
        self.installed.put(cited)

    @fold.register
    def _(self, fact: SkillRemoved, _cited: Cited[Any], /) -> None:
        self.installed.drop(fact.name)


SKILLS_PROJECTION = project_facts(SkillsState, name="skills", version=1, tapes=SKILLS_TAPE, interval=100)

CHECKPOINTS = {SKILLS_PROJECTION.checkpoint_name: checkpoint_model(SkillsState)}
