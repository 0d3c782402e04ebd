"""The views in force, as the facts on their tape say."""

from __future__ import annotations

from functools import singledispatchmethod
from typing import Any, ClassVar

import msgspec

from bubbot.features.views.facts import VIEWS_TAPE, ChatView
from bubbot.tape.fact import Cited, Current, FactState
from bubbot.tape.projection import checkpoint_model, project_facts


class ViewsState(FactState):
    """The views in force, in the order in which they were added."""

    FACTS: ClassVar = (ChatView,)
    views: Current[ChatView] = msgspec.field(default_factory=Current)

    @singledispatchmethod
    def fold(self, fact: Any, cited: Cited[Any], /) -> None:
        """Change the state by one fact."""
        raise NotImplementedError(type(fact).__name__)

    @fold.register
    def _(self, _fact: ChatView, cited: Cited[Any], /) -> None:
        self.views.apply(cited)


VIEWS_PROJECTION = project_facts(ViewsState, name="views", version=1, tapes=VIEWS_TAPE, interval=500)

CHECKPOINTS = {VIEWS_PROJECTION.checkpoint_name: checkpoint_model(ViewsState)}
