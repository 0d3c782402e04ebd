"""What goes from the tape of tasks if a person is forgotten: their runs, and nothing of the runs of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from msgspec import UNSET, Struct
from msgspec.structs import replace

from bubbot.features.tasks.facts import ENDED, TASKS_TAPE, NodeChanged, RunChanged, RunQueued
from bubbot.ports.forgetting import ForgottenPerson, Restatement
from bubbot.tape.entry import TapeEntry


class _RunFacts(Struct):
    """The facts of a run, with the ids of their entries, oldest first."""

    queued: list[tuple[int, RunQueued]]
    changes: list[tuple[int, NodeChanged | RunChanged]]

    @property
    def ids(self) -> set[int]:
        """All entries."""
        return {number for number, _ in (*self.queued, *self.changes)}

    def is_of(self, person: ForgottenPerson, erased: Set[int]) -> bool:
        """Return true if the run is the person's, or in a direct chat of theirs; one whose beginning goes is, too."""
        if not self.queued:  # the rest of an earlier erasure
            return True
        return any(
            number in erased or person.has_account(fact.channel, fact.by) or person.has_chat(fact.session)
            for number, fact in self.queued
        )


def restate_tasks(_tape: str, entries: Sequence[TapeEntry], person: ForgottenPerson, erased: Set[int]) -> Restatement:
    """Erase the person's runs whole; of others in which a turn of the person went on, say again the newest states.

    If a part of the states of a run were missing, steps that are done would begin again.
    """
    gone, added = set[int](), list[TapeEntry]()
    for run in _group_by_run(entries).values():
        if run.is_of(person, erased):
            gone |= run.ids
        elif run.ids & erased:
            gone |= {number for number, _ in run.changes}
            added += [fact.to_entry() for fact in _sum_up(run)]
    return Restatement(frozenset(gone - erased), tuple(added))


def _group_by_run(entries: Sequence[TapeEntry]) -> dict[str, _RunFacts]:
    runs: dict[str, _RunFacts] = {}
    for entry in entries:
        if entry.name in RunQueued.EVENTS:
            queued = RunQueued.of(entry)
            runs.setdefault(queued.run, _RunFacts([], [])).queued.append((entry.id, queued))
        elif entry.name in (*NodeChanged.EVENTS, *RunChanged.EVENTS):
            kind = NodeChanged if entry.name in NodeChanged.EVENTS else RunChanged
            fact: NodeChanged | RunChanged = kind.of(entry)
            runs.setdefault(fact.run, _RunFacts([], [])).changes.append((entry.id, fact))
    return runs


def _sum_up(run: _RunFacts) -> Iterator[NodeChanged | RunChanged]:
    """Yield the newest state of each node with what all its attempts used, then that of the run. After its end nothing counts."""
    nodes: dict[str, list[NodeChanged]] = {}
    newest: RunChanged | None = None
    for _, fact in run.changes:
        if isinstance(fact, RunChanged):
            newest = fact
            if fact.status in ENDED:
                break
            continue
        before = nodes.get(fact.node, [])
        if before and before[-1].status == fact.status == "running" and before[-1].attempt == fact.attempt:
            before.append(fact)  # each names a fork of the attempt
            continue
        tokens = (fact.tokens or 0) + sum(each.tokens or 0 for each in before)
        seconds = (fact.seconds or 0.0) + sum(each.seconds or 0.0 for each in before)
        nodes[fact.node] = [replace(fact, tokens=tokens or UNSET, seconds=seconds or UNSET)]
    for facts in nodes.values():
        yield from facts
    if newest is not None:
        yield newest


FORGETTING = {TASKS_TAPE: restate_tasks}
