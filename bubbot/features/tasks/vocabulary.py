"""The steps of harnesses: those of bubbot, and those that packages offer in the group `bubbot.task_steps`."""

from __future__ import annotations

from collections.abc import Mapping

from bubbot import plugins
from bubbot.errors import ConfigError
from bubbot.features.tasks.harness.feature_files import Harness, parse_harness
from bubbot.features.tasks.harness.steps import OWN_STEPS, Step

STEP_GROUP = "bubbot.task_steps"
"""A package offers a `Step`, or a list of them, under any name."""


def load_steps() -> tuple[Step, ...]:
    """Return all steps, bubbot's own first. Raise `ConfigError` if what a package offers is no step."""
    steps = list(OWN_STEPS)
    for name in plugins.list_names(STEP_GROUP):
        found = plugins.load_object(STEP_GROUP, name)
        offered = found if isinstance(found, (list, tuple)) else [found]
        if not all(isinstance(each, Step) for each in offered):
            raise ConfigError(
                f"{name} in {STEP_GROUP} has to be a Step or a list of them; it is {type(found).__name__}."
            )
        steps += offered
    return tuple(steps)


def read_harness(files: Mapping[str, str]) -> Harness:
    """Read the harness of a task with all steps. Raise `HarnessInvalid`, or `ConfigError` as `load_steps` does."""
    return parse_harness(files, load_steps())
