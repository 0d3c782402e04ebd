"""What the commands of a shell and `bubbot status` get. Whatever counts, tries or rebuilds is imported when it is called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from bubbot.features.learn.settings import LearnSettings
from bubbot.tape.store import TapeStore

if TYPE_CHECKING:
    from bubbot.features.learn.weights.trial import FindTrial
    from bubbot.features.learn.weights.turns import RewardedTurns


class WeightsOptions(Struct, frozen=True):
    """What the commands of a shell get.

    Attributes:
        section: `[learn]` of the settings.
        configured: the name of the configured model.
        check_model: raises `ConfigError` if there can be no model of a name, in the home of this folder.
        find_trial: returns what an evaluation says of an offer.
        open_turns: returns what counts turns with a reward in the tapes of a home.
    """

    section: LearnSettings
    configured: str
    check_model: Callable[[Path, str], None]
    find_trial: FindTrial
    open_turns: Callable[[TapeStore], RewardedTurns]
