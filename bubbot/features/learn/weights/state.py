"""What the facts about exports and weights come to."""

from __future__ import annotations

from functools import singledispatchmethod
from typing import Any, ClassVar

import msgspec

from bubbot.features.learn.tape import LEARN_TAPE
from bubbot.features.learn.weights.facts import (
    FACTS,
    ExportReady,
    OwnerTold,
    WeightsAccepted,
    WeightsOffered,
    WeightsWithdrawn,
)
from bubbot.tape.fact import Cited, Current, FactState
from bubbot.tape.projection import checkpoint_model, project_facts


class LearnState(FactState):
    """The exports, the offers and what became of them.

    Attributes:
        exports: all of them, in their order.
        offers: the newest offer of each model, the newest last.
        accepted: what was accepted and not taken back, in order.
        withdrawn: what was taken back, in order.
        untold: the entries of which no owner was told yet.
    """

    FACTS: ClassVar = FACTS
    exports: Current[ExportReady] = msgspec.field(default_factory=Current)
    offers: Current[WeightsOffered] = msgspec.field(default_factory=Current)
    accepted: Current[WeightsAccepted] = msgspec.field(default_factory=Current)
    withdrawn: Current[WeightsWithdrawn] = msgspec.field(default_factory=Current)
    untold: list[int] = msgspec.field(default_factory=list[int])

    @property
    def open_offer(self) -> Cited[WeightsOffered] | None:
        """The newest offer if it is neither accepted nor taken back; None without one."""
        newest = next(reversed([*self.offers]), None)
        is_closed = newest is not None and (newest.id in self.accepted or newest.id in self.withdrawn)
        return None if is_closed else newest

    @property
    def newest_accepted(self) -> Cited[WeightsAccepted] | None:
        """What windows that open now are answered by; None for the configured model."""
        return next(reversed([*self.accepted]), None)

    @property
    def newest_export(self) -> Cited[ExportReady] | None:
        """The newest export; None before the first."""
        return next(reversed([*self.exports]), None)

    def find_accepted(self, date: str) -> Cited[WeightsAccepted] | None:
        """Return what a window that opened then is answered by; None for the configured model."""
        return next((each for each in reversed([*self.accepted]) if each.date <= date), None)

    @singledispatchmethod
    def fold(self, fact: Any, cited: Cited[Any], /) -> None:
        """Change the state by one fact."""
        raise NotImplementedError(type(fact).__name__)

    @fold.register
    def _(self, _fact: ExportReady, cited: Cited[Any], /) -> None:
        self.exports.put(cited)
        self.untold.append(cited.id)

    @fold.register
    def _(self, _fact: WeightsOffered, cited: Cited[Any], /) -> None:
        self.offers.put(cited)

    @fold.register
    def _(self, fact: WeightsAccepted, cited: Cited[Any], /) -> None:
        if fact.offer not in self.withdrawn:
            self.accepted.put(cited)
        if fact.evaluation:
            self.untold.append(cited.id)

    @fold.register
    def _(self, fact: WeightsWithdrawn, cited: Cited[Any], /) -> None:
        self.accepted.drop(fact.offer)
        self.withdrawn.put(cited)

    @fold.register
    def _(self, fact: OwnerTold, _cited: Cited[Any], /) -> None:
        self.untold = [each for each in self.untold if each != fact.fact]


LEARN_PROJECTION = project_facts(LearnState, name="learn", version=1, tapes=LEARN_TAPE, interval=200)

CHECKPOINTS = {LEARN_PROJECTION.checkpoint_name: checkpoint_model(LearnState)}
