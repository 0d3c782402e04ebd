"""What tasks report of their health: the runs that have not ended."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import asdict

from bubbot.features.tasks.facts import TASKS_TAPE, Status
from bubbot.features.tasks.state import MARKS, TASKS_PROJECTION, RunState, TasksState
from bubbot.ports.checks import HomeReader
from bubbot.ports.health import FeatureHealth, HealthContext, HealthRow
from bubbot.tape.projection import read_projection

MAX_SHOWN_RUNS = 5
"""Runs that lines name; of more the last line says how many there are."""


class OpenRun(Struct, frozen=True):
    """A run that has not ended; `done` and `nodes` are numbers of nodes."""

    run: str
    task: str
    session: str
    status: Status
    done: int
    nodes: int
    changed: str

    @classmethod
    def of(cls, state: RunState) -> OpenRun:
        """Describe a run."""
        fact = state.queued.fact
        return cls(state.run, fact.task, fact.session, state.status, state.done, len(state.nodes), state.changed)


def task_health(context: HealthContext, state: TasksState) -> FeatureHealth:
    """Report the runs that have not ended: those that stand still first, then those that changed last."""
    say = context.texts.say
    runs = [OpenRun.of(run) for run in state.runs.values() if not run.has_ended]
    runs.sort(key=lambda run: run.changed, reverse=True)
    runs.sort(key=lambda run: run.status != "blocked")
    lines = [
        say(
            "st_task_is",
            mark=MARKS[run.status],
            run=run.run,
            task=run.task,
            session=context.chats.get(run.session, run.session),
            status=say(f"task_status_{run.status}"),
            done=run.done,
            nodes=run.nodes,
            at=context.format_time(run.changed),
        )
        for run in runs[:MAX_SHOWN_RUNS]
    ]
    if rest := len(runs) - len(lines):
        lines.append(say("st_task_more", count=rest))
    rows = (HealthRow(say("st_tasks"), tuple(lines)),) if lines else ()
    return FeatureHealth(name="tasks", rows=rows, data={"task_runs": [asdict(run) for run in runs]})


async def read_health(home: HomeReader, context: HealthContext) -> FeatureHealth:
    """Report the same from the tape, if no bot runs."""
    async with home.open_tape(TASKS_TAPE) as tape:
        return task_health(context, await read_projection(TASKS_PROJECTION, tape))
