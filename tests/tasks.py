"""Tasks in a whole bot: what is written into its home, and what became of their runs."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bubbot.features.tasks.commands import TaskCommands
from bubbot.features.tasks.runs import TaskRuns
from bubbot.features.tasks.state import NodeState, RunState
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.settings import SettingsSection
from bubbot.tape.entry import JsonObject
from bubbot.tool import Tool
from tests.family import OWNER, Family, family
from tests.turns import says

QUESTION = re.compile(r"Question \W*(\w{5})")


def write_task(home: Path, name: str, schema: str, harness: str = "", config: str = "") -> None:
    """Write a task into a home."""
    folder = home / "tasks" / name
    (folder / "scripts").mkdir(parents=True)
    (folder / "task.toml").write_text(schema)
    if harness:
        (folder / "scripts" / "rules.feature").write_text(f"Feature: rules\n{harness}")
    if config:
        (folder / "config.toml").write_text(config)


def model_of(**steps: Sequence[Mapping[str, Any]] | str) -> ScriptedModel:
    """Make a model that answers prompts that begin with these words, in capitals."""
    rules = [
        {"when": rf"\A{word.upper()}\b", "steps": [says(made)] if isinstance(made, str) else list(made)}
        for word, made in steps.items()
    ]
    return ScriptedModel({"rules": rules, "default": [says("You said: {text}")]})


@dataclass
class TaskBench:
    """A bot with tasks, and the person who asks for them."""

    bot: Family

    @property
    def commands(self) -> TaskCommands:
        """The service of the running bot."""
        services = (service for each in self.bot.daemon.bot.features.lasting for service in each.services)
        return next(service for service in services if isinstance(service, TaskCommands))

    @property
    def runs(self) -> TaskRuns:
        """The runs of the running bot."""
        found = self.commands._runs
        assert found is not None
        return found

    @property
    def run(self) -> RunState:
        """The newest run."""
        return [*self.runs.state.runs.values()][-1]

    def node(self, name: str) -> NodeState:
        """Return a node of the newest run."""
        return self.run.by_node[name]

    async def say(self, text: str, **given: Any) -> list[str]:
        """Let the owner write in a direct chat; return what the bot sent until all was quiet."""
        return await self.bot.say(text, **{"sender": OWNER, "chat": OWNER, **given})

    async def answer(self, word: str = "approve") -> list[str]:
        """Answer the newest question."""
        questions = QUESTION.findall("\n".join(self.bot.channel.texts))
        return await self.say(f",{word} {questions[-1]}")

    async def facts(self, name: str) -> list[JsonObject]:
        """Return the facts of a name on the tape of the chat."""
        return list(await self.bot.facts(name, OWNER))

    async def starts(self) -> list[str]:
        """Return the nodes whose attempts began, in the order of the tape."""
        names = ("task/event", "dag.node/init")
        entries = [entry for entry in await self.bot.entries(OWNER) if entry.name in names[1:]]
        return [entry.payload["state"]["node"] for entry in entries]


@asynccontextmanager
async def tasks(
    home: Path, model: ScriptedModel, *sections: SettingsSection, tools: Sequence[Tool] = (), **limits: Any
) -> AsyncIterator[TaskBench]:
    """Run a bot for the block; the tasks have to be in its home already."""
    async with family(home, model, *sections, agents=limits.pop("agents", {}), tools=tools, **limits) as bot:
        yield TaskBench(bot)
