"""The turns with which a chat goes on with a run, and what becomes of a run whose turn could not."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from bubbot.command import TERMINAL
from bubbot.features.tasks.facts import TASKS_TAPE, RunChanged
from bubbot.features.tasks.runs import TaskRuns, read_run
from bubbot.middleware import CallNext
from bubbot.ports.channel import JOB_TASK_ORIGIN, TASK_ORIGIN, Inbound, Outbound, Role
from bubbot.ports.turn import SourcedReply, Turn, TurnOutcome
from bubbot.runtime.session import MAX_ATTEMPTS
from bubbot.tape.entry import TapeEntry

_RESUME = re.compile(r"\s*,task[._]resume\s+(?:run=)?(\S+)", re.IGNORECASE)


class TaskTurns:
    """Sets the role of such a turn, and where its answer goes. See `TurnSource`."""

    def __init__(self, runs: TaskRuns, role_of: Callable[[Inbound], Role]) -> None:
        self._runs = runs
        self._role_of = role_of

    def prepare(self, turn: Turn, inbound: Inbound) -> None:
        """Let the turn run in the role that its person has now."""
        turn.role = Role.OWNER if inbound.sender.id in (TERMINAL, "0") else self._role_of(inbound)
        run = find_run(inbound)
        state = self._runs.state.runs.get(run)
        turn.cause = (state.queued.fact.job if state else "") or f"task:{run}"

    def build_reply(self, turn: Turn, inbound: Inbound, outcome: TurnOutcome) -> SourcedReply:  # noqa: ARG002 - the port's
        """Send the answer to the chat of the run."""
        return SourcedReply(outcome.text, Outbound(inbound.channel, inbound.chat, "", inbound.thread))

    def failure_entries(self, inbound: Inbound, reason: str) -> Mapping[str, Sequence[TapeEntry]]:  # noqa: ARG002
        """Say that the run goes on only if somebody resumes it."""
        if not (run := find_run(inbound)):
            return {}
        return {TASKS_TAPE: [RunChanged(run=run, status="blocked", reason="task_turn_failed").to_entry()]}

    async def around_turn(self, turn: Turn, call_next: CallNext[Turn, TurnOutcome]) -> TurnOutcome:
        """Note that a run is blocked if its turn was stopped or failed; go on if an interrupted one has got further."""
        run = find_run(turn.inbounds[0].inbound) if turn.inbounds else ""
        state = self._runs.state.runs.get(run) if run else None
        if state is None or state.has_ended:
            return await call_next(turn)
        inbound = turn.inbounds[0].inbound
        is_given_up = max(accepted.attempts for accepted in turn.inbounds) >= MAX_ATTEMPTS
        if is_given_up and inbound.origin in (TASK_ORIGIN, JOB_TASK_ORIGIN) and state.done > _read_done(inbound):
            self._runs.follow(turn, run)
            return TurnOutcome("silent", "")
        outcome = await call_next(turn)
        if outcome.status in ("stopped", "failed", "too_old") or turn.role is Role.STRANGER:
            self._runs.block(turn, run, "task_stopped" if outcome.status == "stopped" else "task_turn_failed")
            turn.notices.append(turn.texts.say("task_blocked", run=run))
        return outcome


def find_run(inbound: Inbound) -> str:
    """Return the run that an inbound goes on with; empty for another inbound."""
    found = _RESUME.match(inbound.text)
    return read_run(found[1]) if found else ""


def _read_done(inbound: Inbound) -> int:
    """Return how many nodes had succeeded when an inbound was made."""
    parts = inbound.external_id.split(":")
    return int(parts[3]) if len(parts) > 3 and parts[3].isdecimal() else 0
