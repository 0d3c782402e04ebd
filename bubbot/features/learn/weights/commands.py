"""The commands about exports and newer weights in a shell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bubbot.command import make_group
from bubbot.features.learn.settings import LearnSettings
from bubbot.features.learn.weights.service import WeightsRules, WeightsService
from bubbot.features.learn.weights.trial import FindTrial
from bubbot.shell_command import CommandContext
from bubbot.tape.store import TapeStore

if TYPE_CHECKING:
    from bubbot.features.learn.weights.turns import RewardedTurns


@dataclass(frozen=True, slots=True)
class WeightsOptions:
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


async def open_weights(context: CommandContext) -> WeightsService:
    """Return the running bot's own service, so that a change takes effect at once, or one over the tapes of the home."""
    if (running := context.service(WeightsService)) is not None:
        return running
    options: WeightsOptions = context.settings
    home = context.home
    assert home is not None
    rules = WeightsRules(
        lambda: options.section,
        lambda: options.configured,
        lambda model: options.check_model(home, model),
        options.find_trial,
        lambda: options.open_turns(context.store),
    )
    service = WeightsService(context.store, context.open_tape, rules)
    await service.load()
    return service


COMMANDS = make_group(
    "learn",
    WeightsService,
    open_weights,
    "Let newer weights answer: offer a model that was trained, let an evaluation or yourself accept it, and take it back. `[learn] after` "
    "exports turns for the training.",
    help_line="offer newer weights, accept them, take them back",
)
