"""The commands about exports and newer weights in a shell."""

from __future__ import annotations

from bubbot.command import make_group
from bubbot.features.learn.weights.options import WeightsOptions
from bubbot.features.learn.weights.service import WeightsRules, WeightsService
from bubbot.shell_command import CommandContext


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
