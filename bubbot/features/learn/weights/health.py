"""What is reported of exports: how many turns with a reward are missing."""

from __future__ import annotations

from bubbot.features.learn.tape import LEARN_TAPE
from bubbot.features.learn.weights.results import format_missing
from bubbot.features.learn.weights.state import LEARN_PROJECTION
from bubbot.ports.checks import HomeReader
from bubbot.ports.health import FeatureHealth, HealthContext, HealthRow
from bubbot.tape.projection import read_projection

NAME = "learn.weights"


def learn_health(context: HealthContext, after: int, turns: int, trouble: str = "") -> FeatureHealth:
    """Report how many turns there are; `after` is what the settings say, 0 if nothing is exported.

    Args:
        trouble: why the export could not be written; empty if it could.
    """
    say = context.texts.say
    rows = list[HealthRow]()
    if after:
        rows.append(HealthRow(say("st_learn"), (format_missing(context.texts, turns, after),)))
    if trouble:
        rows.append(HealthRow(say("st_learn"), (trouble,), is_trouble=True))
    data = {"learn": {"turns": turns, "after": after, "missing": max(0, after - turns)}} if after else {}
    return FeatureHealth(name=NAME, rows=tuple(rows), data=data, faults={"learn": trouble} if trouble else {})


async def read_health(home: HomeReader, context: HealthContext) -> FeatureHealth:
    """Report it while no bot runs."""
    options = home.settings
    if not options.section.after or home.store is None:
        return learn_health(context, options.section.after, 0)
    turns = options.open_turns(home.store)
    async with home.open_tape(LEARN_TAPE) as tape:
        state = await read_projection(LEARN_PROJECTION, tape)
    return learn_health(context, options.section.after, await turns.look([*state.exports]))
