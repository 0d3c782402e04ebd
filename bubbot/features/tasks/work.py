"""A run as a turn works on it: its sources, its states as the turn has changed them, and its harness."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bubbot.features.tasks.definition import TaskDefinition
from bubbot.features.tasks.facts import TASKS_TAPE, EventKind, NodeChanged, RunChanged, RunEventSeen
from bubbot.features.tasks.harness.events import RunEvent
from bubbot.features.tasks.harness.feature_files import Harness
from bubbot.features.tasks.harness.monitor import Monitor, RuleVerdict
from bubbot.features.tasks.state import NodeState, RunState
from bubbot.tape.entry import TapeEntry, canonical, thaw, timestamp
from bubbot.tape.fork import ForkedTape
from bubbot.tape.provenance import Source


@dataclass
class RunWork:
    """A run under way.

    Attributes:
        state: as the facts say that are durable or staged in the turn.
        definition: its schema, config and harness.
        description: what people want of it.
        harness: its rules.
        monitor: judges what happens.
        opened_at: the entry of its sources on the tape of its chat.
        source: whose words the description is.
        last_event: the number of the last event.
        entries: the entries of events, by number, as far as they are durable.
        repeatable: what cut-off attempts did, by node and attempt: if the attempt goes on, it does so again, and it is no
            second event.
        running: the tokens that the attempts under way in this process have used, by node.
        reserved: tokens of calls under way, of all attempts.
        is_cancelled: set once somebody ended the run.
        is_stopped: set once no attempt is under way any more.
    """

    state: RunState
    definition: TaskDefinition
    description: str
    harness: Harness
    monitor: Monitor
    opened_at: int
    source: Source = Source.OWN
    last_event: int = 0
    entries: dict[int, int] = field(default_factory=dict)
    repeatable: dict[tuple[str, int], Counter[str]] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    reserved: int = 0
    is_cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    is_stopped: asyncio.Event = field(default_factory=asyncio.Event)
    _counted_until: float = 0.0

    @property
    def run(self) -> str:
        """The name of the run."""
        return self.state.run

    def find_node(self, name: str) -> NodeState:
        """Return the state of a node."""
        return self.state.nodes[self.state.queued.fact.nodes.index(name)]

    def change(self, tape: ForkedTape, fact: NodeChanged | RunChanged, now: datetime) -> None:
        """Stage a fact with a fork, and change the state as its merge does."""
        tape.stage(TASKS_TAPE, [fact.to_entry()])
        self.state = self.state.apply(fact, timestamp(now))

    async def merge(self, fork: ForkedTape, fact: NodeChanged, now: datetime) -> None:
        """Merge the fork of a node with the fact that it ended; only then others may begin that wait for it."""
        fork.stage(TASKS_TAPE, [fact.to_entry()])
        await fork.merge()
        self.state = self.state.apply(fact, timestamp(now))

    def take_seconds(self, started: float) -> float:
        """Return the seconds of an attempt that no other attempt has counted; together they are the time of the run."""
        now = time.monotonic()
        seconds, self._counted_until = now - max(started, self._counted_until), now
        return round(seconds, 3)

    # Events

    def load_events(self, entries: Sequence[TapeEntry]) -> None:
        """Take in the events of earlier turns, and those of attempts that were cut off."""
        seen = [(fact, entry.id) for entry in entries if (fact := RunEventSeen.try_of(entry)) and fact.run == self.run]
        for fact, number in sorted(seen, key=lambda pair: pair[0].number):
            self.monitor.record(RunEvent(fact.number, fact.time, fact.kind, fact.name, fact.node, thaw(fact.fields)))
            self.last_event = max(self.last_event, fact.number)
            self.entries[fact.number] = number
            if fact.node and (node := self.find_node(fact.node)).status == "running" and node.attempt == fact.attempt:
                made = self.repeatable.setdefault((fact.node, fact.attempt), Counter())
                made[_identify(fact.kind, fact.name, thaw(fact.fields))] += 1

    def make_event(self, kind: EventKind, name: str, node: str, now: datetime, values: Mapping[str, Any]) -> RunEvent:
        """Make the event that would come next."""
        return RunEvent(self.last_event + 1, now.timestamp(), kind, name, node, values)

    def judge(self, event: RunEvent, attempt: int) -> Sequence[RuleVerdict]:
        """Return the rules that an event would violate; none for what the same attempt did before it was cut off."""
        return () if self.repeats(event, attempt) else self.monitor.judge(event)

    def repeats(self, event: RunEvent, attempt: int) -> bool:
        """Return true for what the same attempt did before it was cut off, and has not done again yet."""
        made = self.repeatable.get((event.node, attempt))
        return bool(made and made[_identify(event.kind, event.name, event.values)])

    async def record(self, tape: ForkedTape, event: RunEvent, attempt: int = 0) -> None:
        """Record an event, in the monitor and on a fork, unless there are no rules to judge it."""
        if not self.harness.rules:
            return
        if self.repeats(event, attempt):
            self.repeatable[event.node, attempt][_identify(event.kind, event.name, event.values)] -= 1
            return
        self.monitor.record(event)
        self.last_event = event.number
        seen = RunEventSeen(
            self.run, event.number, event.time, event.kind, event.name, event.node, attempt, dict(event.values)
        )
        await tape.append([seen.to_entry()])

    def cite(self, tape: ForkedTape, numbers: Sequence[int]) -> list[list[int]]:
        """Return the entries of events as id ranges, as far as a fork has them."""
        found = {n: self.entries[n] for n in numbers if n in self.entries}
        if len(found) < len(set(numbers)):
            for entry in tape.delta:
                fact = RunEventSeen.try_of(entry) if entry.name in RunEventSeen.EVENTS else None
                if fact is not None and fact.run == self.run and fact.number in numbers:
                    found[fact.number] = entry.id
        return [[number, number] for number in sorted(set(found.values()))]


def _identify(kind: str, name: str, values: Mapping[str, Any]) -> str:
    return canonical({"event": [kind, name, values]})
