"""What evaluations add to the feature: the command that runs them, and the middleware of their turns."""

from __future__ import annotations

from bubbot.command import make_tools
from bubbot.feature import Feature, Kernel
from bubbot.features.judge.evals.commands import EVAL_TIMEOUT_SECONDS, EvalCommands
from bubbot.features.judge.evals.facts import EVALS_TAPE
from bubbot.features.judge.evals.library import EvalLibrary
from bubbot.features.judge.evals.runner import EvalRunner
from bubbot.ports.people import AsksConsent


def evals_feature(kernel: Kernel, consents: AsksConsent) -> Feature:
    """Build the parts of a feature.

    Args:
        kernel: of the running bot.
        consents: knows who allows that models are compared with their words.
    """
    runner = EvalRunner(kernel, consents)
    commands = EvalCommands(EvalLibrary(kernel.home), kernel.open_tape(EVALS_TAPE).fetch, runner)
    return Feature(
        name="judge.evals",
        tools=make_tools(
            EvalCommands, lambda: commands, eval_run={"timeout": EVAL_TIMEOUT_SECONDS, "is_for_people": True}
        ),
        around_model=(runner.around_model,),
        around_tool=(runner.around_tool,),
    )
