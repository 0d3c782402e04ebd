"""A family with a cook and a teacher in one group: the settings of the bot, and its scripted model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCRIPT: Mapping[str, Any] = {
    "rules": [
        {"when": "asks you, tom", "steps": [{"text": "On Friday, slowly and with care.", "pace": 0.25}]},
        {"when": "asks you, rosi", "steps": [{"text": "Rosi waits.", "delay": 60}]},
        {"when": "count slowly", "steps": [{"text": "one two three four five six seven eight", "pace": 0.25}]},
        {"when": "ask both", "steps": [{"text": "@rosi, then @tom: what do you say?"}]},
        {"when": "plan", "steps": [{"text": "@tom, which day?"}]},
        {"when": "be silent", "steps": [{"text": "[SILENT]"}]},
        {"when": "think", "steps": [{"text": "thought: {text}", "delay": 3}]},
        {"when": "wait", "steps": [{"text": "late", "delay": 60}]},
    ],
    "default": [{"text": "You said: {text}"}],
}
AGENTS = """
[agents.rosi]
title = "Rosi"
about = "cooking"
[agents.tom]
title = "Tom"
about = "homework"
"""


def add_agents(home: Path, settings: str = AGENTS) -> None:
    """Add the agents to the configuration of a home."""
    with (home / "config.toml").open("a") as file:
        file.write(settings)
