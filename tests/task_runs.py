"""A home in which a task has run: with a question, a call that its rules forbade, and verdicts that cite entries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bubbot.models.scripted import ScriptedModel
from tests.family import MEMBER, OWNER, family
from tests.tasks import TaskBench, write_task
from tests.turns import calls, says

DIGEST = """title = "Digest"
description = "Gathers the news and sums them up."

[nodes.search]
title = "Search the news"
prompt = "SEARCH {limit} things"
tools = ["memory.save"]
artifact = { type = "object", required = ["items"], properties = { items = { type = "array" } } }

[nodes.notes]
title = "Read the notes"
prompt = "NOTES please"

[nodes.sum]
title = "Sum up"
after = ["search", "notes"]
prompt = "SUM it up"
view_tokens = 400

[nodes.check]
title = "Check the facts"
after = ["sum", "search"]
prompt = "CHECK it"

[nodes.ok]
title = "Publish?"
after = ["sum", "check"]
confirm = "Publish {limit}?"

[nodes.post]
title = "Post it"
after = ["ok", "sum"]
prompt = "POST it"
"""
RULES = """
  Scenario: It remembers nothing
    When tool "memory.save" is called
    Then it is refused

  Scenario: People decide
    When node "post" starts
    Then gate ok was confirmed before
"""
ANSWERS: Mapping[str, Any] = MappingProxyType(
    {
        "rules": [
            {"when": "SEARCH 3 things", "steps": [calls("memory_save", content="x"), says('{"items": [1, 2]}')]},
            {"when": "NOTES please", "steps": [says("some notes " * 200)]},
            {"when": "SUM it up", "steps": [says("The town has a new school.")]},
            {"when": "CHECK it", "steps": [says("All of it is true.")]},
            {"when": "POST it", "steps": [says("Posted: the town has a new school.")]},
        ]
    }
)


def write_digest(home: Path) -> None:
    """Write the task into a home."""
    write_task(home, "digest", DIGEST, RULES, "limit = 3\n")


async def begin_digest(bench: TaskBench, description: str, person: str = OWNER, chat: str = "") -> str:
    """Run the task until it asks, in a chat or else in the direct one of the person; return the run."""
    await bench.say(f",task.run digest {description}", sender=person, chat=chat or person)
    return bench.run.run


async def run_digests(home: Path) -> dict[str, str]:
    """Run the task in the chat of the owner to its end, and in that of the member until it asks; return the runs by person."""
    write_digest(home)
    async with family(home, ScriptedModel(ANSWERS), agents={}) as bot:
        bench = TaskBench(bot)
        runs = {OWNER: await begin_digest(bench, "the school board")}
        await bench.answer()
        runs[MEMBER] = await begin_digest(bench, "the harvest", MEMBER)
    return runs
