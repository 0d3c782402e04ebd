"""Runs of a restored home: the original bot went on with them, so their release ends them."""

from __future__ import annotations

from datetime import datetime

from bubbot.features.tasks.facts import TASKS_TAPE, RunChanged
from bubbot.features.tasks.state import TASKS_PROJECTION
from bubbot.shell_command import CommandContext
from bubbot.tape.entry import TapeEntry
from bubbot.tape.projection import read_projection

RESTORED_REASON = "task_restored"


async def end_open_work(context: CommandContext, _at: datetime) -> tuple[str, list[TapeEntry], int]:
    """Return the tape and the facts that cancel the runs that have not ended, and their number."""
    state = await read_projection(TASKS_PROJECTION, context.open_tape(TASKS_TAPE))
    names = [run.run for run in state.runs.values() if not run.has_ended]
    ended = [RunChanged(run=name, status="cancelled", reason=RESTORED_REASON).to_entry() for name in names]
    return TASKS_TAPE, ended, len(ended)
