"""What evaluations add to the feature: the command that runs them, and the middleware of their turns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence

from bubbot.command import make_tools
from bubbot.feature import Around, Feature, Kernel
from bubbot.features.judge.evals.commands import EVAL_TIMEOUT_SECONDS, EvalCommands
from bubbot.features.judge.evals.facts import EVALS_TAPE
from bubbot.features.judge.evals.library import EvalLibrary
from bubbot.features.judge.evals.runner import EvalRunner
from bubbot.ports.people import AsksConsent
from bubbot.ports.turn import Turn
from bubbot.runtime.compose import ComposedRequest


def evals_feature(
    kernel: Kernel,
    consents: AsksConsent,
    *,
    compose: Callable[[Turn], Awaitable[ComposedRequest]],
    list_memories: Callable[[], Sequence[str]],
    locks: MutableMapping[str, asyncio.Lock],
) -> Feature:
    """Build the parts of a feature; see `EvalRunner`."""
    runner = EvalRunner(kernel, consents, compose=compose, list_memories=list_memories, locks=locks)
    commands = EvalCommands(EvalLibrary(kernel.home), kernel.open_tape(EVALS_TAPE).fetch, runner)
    return Feature(
        name="judge.evals",
        tools=make_tools(
            EvalCommands, lambda: commands, eval_run={"timeout": EVAL_TIMEOUT_SECONDS, "is_for_people": True}
        ),
        around=Around(model=(runner.around_model,), tool=(runner.around_tool,)),
    )
