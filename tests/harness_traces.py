"""Short texts for the events and the scenarios of harness tests."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, get_args

from bubbot.features.tasks.facts import EventKind
from bubbot.features.tasks.harness.events import RunEvent
from bubbot.features.tasks.harness.feature_files import Harness, parse_harness
from bubbot.features.tasks.harness.monitor import Monitor
from bubbot.features.tasks.harness.steps import OWN_STEPS, Step

START = 1000.0


def parse_trace(*lines: str) -> list[RunEvent]:
    """Events a second apart, each as `[+seconds] kind [name] [@node] [key=json …]`, the values without spaces."""
    events, time = list[RunEvent](), START
    for number, line in enumerate(lines, 1):
        found = re.fullmatch(r"(?:\+(\d+) )?(\w+)(?: ([^\s=@]+)(?= |$))?(?: @(\S+))?((?: \S+=\S+)*)", line)
        assert found is not None, line
        time += float(found[1] or 1)
        assert found[2] in get_args(EventKind), line
        kind: Any = found[2]
        values = {key: json.loads(value) for key, value in (pair.split("=", 1) for pair in found[5].split())}
        events.append(RunEvent(number, time, kind, found[3] or "", found[4] or "", values))
    return events


def make_harness(scenario: str, steps: Sequence[Step] = OWN_STEPS) -> Harness:
    """A harness of one scenario, whose steps are separated by `; `."""
    lines = "\n".join(f"    {step}" for step in scenario.split("; "))
    return parse_harness({"rules.feature": f"Feature: rules\n  Scenario: one\n{lines}\n"}, steps)


def make_monitor(scenario: str, *lines: str, steps: Sequence[Step] = OWN_STEPS) -> Monitor:
    """A monitor of one scenario that has recorded these events."""
    monitor = Monitor(make_harness(scenario, steps))
    for event in parse_trace(*lines):
        monitor.record(event)
    return monitor
