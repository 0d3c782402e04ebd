"""The tasks of a home: folders of `tasks`, and what is wrong with them for the person who asks."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bubbot.errors import ConfigError, ValueInvalid
from bubbot.features.tasks.check import check_definition
from bubbot.features.tasks.definition import (
    TaskDefinition,
    has_texts,
    is_task_name,
    list_definitions,
    load_definition,
    read_home_config,
)
from bubbot.features.tasks.harness.dead_steps import find_dead_steps
from bubbot.features.tasks.harness.feature_files import HarnessInvalid
from bubbot.features.tasks.vocabulary import read_harness
from bubbot.formatting import did_you_mean
from bubbot.ports.channel import Role
from bubbot.toml_tables import Problem
from bubbot.tool import Tool

TASKS_FOLDER = "tasks"
"""The folder of tasks in a home; its `config.toml` is the layer of the home."""


def product_layer(name: str, language: str, timezone: str) -> dict[str, Any]:
    """Return the weakest layer of the config of all tasks: what the bot is set to."""
    return {"bot": {"name": name, "language": language, "timezone": timezone}}


class TaskLibrary:
    """The definitions of tasks.

    Attributes:
        folder: the folder of tasks.
        product: the weakest layer of the config.
    """

    def __init__(
        self,
        home: Path,
        product: Mapping[str, Any],
        list_tools: Callable[[], Sequence[Tool]] | None = None,
    ) -> None:
        """Read nothing yet.

        Args:
            home: the home folder.
            product: the weakest layer of the config.
            list_tools: returns all tools; None if no bot runs: then names of tools are not checked.
        """
        self.folder = home / TASKS_FOLDER
        self.product = product
        self._list_tools = list_tools

    def list_names(self) -> list[str]:
        """Return the names of the tasks, sorted. Raise `ConfigError` if their folder cannot be read."""
        try:
            return list_definitions(self.folder)
        except OSError as error:
            raise ConfigError(
                f"the folder {self.folder} cannot be read ({error.strerror}): put a folder there that the bot may read"
            ) from error

    def load(self, name: str) -> TaskDefinition:
        """Read a task. Raise `DefinitionInvalid` with all problems, or `ValueInvalid` if there is none of this name."""
        name = name.strip()
        names = self.list_names()
        if name not in names:
            raise ValueInvalid("task_unknown", task=name, hint=did_you_mean(name, names, otherwise="", before="; "))
        return load_definition(self.folder / name, self.product, read_home_config(self.folder))

    def check(self, definition: TaskDefinition, role: Role, agents: Collection[str] | None = None) -> list[Problem]:
        """Return what is wrong with a task for a person of this role, what keeps it from running first.

        Args:
            agents: the agents of the chat that it names; None if they are not known.
        """
        tools = {tool.name: tool.role for tool in (self._list_tools or tuple)() if tool.for_model}
        schema = definition.schema
        problems: list[Problem] = []
        try:
            harness = read_harness(definition.harness)
        except HarnessInvalid as error:
            problems += [Problem(f"{each.path}:{each.line}", each.message) for each in error.problems]
        else:
            gates = [name for name, node in schema.nodes.items() if node.is_gate]
            known = tools or {tool: Role.MEMBER for node in schema.nodes.values() for tool in node.tools}
            dead = find_dead_steps(harness, nodes=list(schema.nodes), tools=list(known), gates=gates)
            problems += [Problem(f"{each.path}:{each.line}", each.message, is_warning=True) for each in dead]
        known_agents = {node.agent for node in schema.nodes.values()} if agents is None else agents
        found = check_definition(definition, tools=tools, role=role, agents=known_agents, harness_problems=problems)
        if not tools:
            found = [each for each in found if ".tools" not in each.where]
        return found

    def has(self, name: str) -> bool:
        """Return true if there is a task of this name."""
        return name in self.list_names()

    def has_files(self, name: str, files: Mapping[str, str]) -> bool:
        """Return true if there is a task of this name with these files, as they are."""
        return self.has(name) and has_texts(self.folder / name, files)

    def write(self, name: str, files: Mapping[str, str]) -> Path:
        """Write a new task and return its folder. Raise `ValueInvalid` if there is one of this name, `ConfigError` if it cannot."""
        if not is_task_name(name):
            raise ValueInvalid("task_name_wrong", task=name)
        folder = self.folder / name
        if os.path.lexists(folder):
            raise ValueInvalid("task_exists", task=name)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix=".new-", dir=self.folder) as scratch:
                whole = Path(scratch) / name
                for path, text in files.items():
                    target = whole / path
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_text(text, encoding="utf-8")
                whole.rename(folder)
        except OSError as error:
            raise ConfigError(
                f"the task cannot be written to {folder} ({error.strerror}): let the bot write there"
            ) from error
        return folder


def parse_files(files: Mapping[str, str], name: str, product: Mapping[str, Any]) -> TaskDefinition:
    """Read a task from texts, as `load` reads it from its folder. Raise `DefinitionInvalid`."""
    with TemporaryDirectory() as scratch:
        library = TaskLibrary(Path(scratch), product)
        library.write(name, files)
        return library.load(name)
