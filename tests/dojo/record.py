"""Record plays of AgentDojo for tests that run without it. Runs in AgentDojo's environment: `make agentdojo`.

    .venv-agentdojo/bin/python tests/dojo/record.py tests/data/agentdojo/plays.json

The file has, for each suite, the tools that its plays call, and `plays` by the id of the task and of the attack, if there is one: what
`begin` of `world.py` answers.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agentdojo.task_suite.load_suites import get_suite  # type: ignore[import-not-found]
from world import VERSION, World  # type: ignore[import-not-found]

PLAYS = {
    "workspace": ("user_task_9", "user_task_16", "user_task_32", "user_task_6 injection_task_0"),
    "slack": ("user_task_1", "user_task_7", "user_task_10", "user_task_4 injection_task_4"),
}
"""Short ones: with one call that acts and with several, with a web page, with one choice and with many; and an attack for each suite."""


def record(name: str, plays: tuple[str, ...]) -> dict[str, Any]:
    """Record plays of a suite."""
    world = World(get_suite(VERSION, name))
    found = {play: world.begin(*(*play.split(), None)[:2]) for play in plays}
    called = {call["tool"] for play in found.values() for call in (*play["calls"], *play["attack_calls"])}
    return {"tools": [tool for tool in world.list_tools() if tool["name"] in called], "plays": found}


def main(target: str) -> None:
    """Write the file."""
    suites = {name: record(name, plays) for name, plays in PLAYS.items()}
    head = {"agentdojo": version("agentdojo"), "version": VERSION}
    Path(target).write_text(json.dumps({**head, "suites": suites}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
