"""The trial of an offer: what an evaluation says of its model, as the settings require it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct

from bubbot.tape.service import TapeService


class Trial(Struct, frozen=True):
    """The newest evaluation of an offered model since it was offered.

    Attributes:
        run: its id; empty if none is complete yet.
        setup: the setup that came out worst.
        passed: results of that setup that pass.
        results: all results of it.
        regression: the setup of the model in use with which it compares badly; empty if it does not.
        is_compared: there is a setup of the model in use to compare it with.
        stand_in: a model that answered instead of it, such as a fallback; empty if none did.
    """

    run: str = ""
    setup: str = ""
    passed: int = 0
    results: int = 0
    regression: str = ""
    is_compared: bool = False
    stand_in: str = ""

    def has_passed(self, share: float) -> bool:
        """Return true if at least this share of the results passes, and nothing got worse than with the model in use."""
        is_enough = self.results > 0 and self.passed >= share * self.results
        return bool(self.run) and is_enough and self.is_compared and not self.regression and not self.stand_in


FindTrial: TypeAlias = Callable[[Callable[[str], TapeService], str, str, str, str], Awaitable[Trial]]
"""Find the trial of an offer: what opens tapes, the name of the evaluation, the offered model, the model in use, and the date of the offer.

If both models have one name, evaluations before that date are those of the model in use.
"""
