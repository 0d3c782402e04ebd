"""Writing tasks: an example to edit, or one that the bot writes from a description and that a person confirms."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from types import MappingProxyType

from bubbot.errors import CommandRefused, ValueInvalid
from bubbot.feature import Kernel
from bubbot.features.tasks.definition import is_task_name
from bubbot.features.tasks.facts import TaskDrafted
from bubbot.features.tasks.harness.steps import OWN_STEPS
from bubbot.features.tasks.library import TaskLibrary, parse_files
from bubbot.features.tasks.results import TaskWritten
from bubbot.features.tasks.sources import DefinitionInvalid
from bubbot.formatting import clean
from bubbot.ports.approvals import ApprovalQuestion
from bubbot.ports.channel import Role
from bubbot.ports.turn import Turn
from bubbot.tape.entry import JsonObject, Kind, thaw
from bubbot.tape.query import TapeQuery
from bubbot.toml_tables import Problem

EXAMPLE_FILES: Mapping[str, str] = MappingProxyType(
    {
        "task.toml": """title = "Summary"
description = "Gathers what is known about a subject and sums it up."

[nodes.gather]
title = "Gather"
prompt = "List what you know about the subject of this run, in at most {most} points."
artifact = { type = "object", required = ["points"], properties = { points = { type = "array", items = { type = "string" } } } }

[nodes.summary]
title = "Sum up"
after = ["gather"]
prompt = "Sum up the points in two sentences, for people in a hurry."
""",
        "config.toml": "most = 5\n",
        "scripts/rules.feature": """Feature: What this task must and must not do

  Scenario: It sums up what it gathered
    When node summary starts
    Then the artifact of gather exists
""",
    }
)
MAX_REPAIRS = 2
DRAFT_HOURS = 24.0
_SYSTEM = """You write tasks for bubbot: graphs of steps under a contract. Answer with one JSON object alone: \
{"files": {"task.toml": "…", "config.toml": "…", "scripts/rules.feature": "…"}}.

task.toml is TOML. `title`, `description`, then one table [nodes.NAME] for each step, NAME in small letters: `title`, `after` (a list \
of the steps it waits for), and either `prompt` (what a model does in this step) or `confirm` (a question for a person). A step with a \
prompt may have `tools` (a list of names) and `artifact` (a JSON Schema of what it hands in; every step that others wait for needs one, \
unless it hands in a text). `{key}` in a prompt stands for a value of config.toml. The feature file is Gherkin with these steps alone:
"""


class TaskWriter:
    """Writes tasks from descriptions. Nothing that the model wrote is a task before a person said yes to all of it."""

    def __init__(self, kernel: Kernel, library: TaskLibrary) -> None:
        self._kernel = kernel
        self._library = library

    async def write(self, turn: Turn, name: str, description: str) -> TaskWritten:
        """Let the model write a task, and ask an owner to confirm it, whole.

        Raises:
            ValueInvalid: the name cannot be used.
            CommandRefused: the model wrote nothing that can run, or nobody can be asked.
            ModelError: see `TurnRunner.ask`.
        """
        if not is_task_name(name):
            raise ValueInvalid("task_name_wrong", task=name)
        if self._library.has(name):
            raise ValueInvalid("task_exists", task=name)
        if (ask := self._kernel.ask) is None:
            raise CommandRefused("task_no_approvals")
        files = await self._draft(turn, name, description)
        details = "\n\n".join(f"{path}\n{text.rstrip()}" for path, text in files.items())
        question = ApprovalQuestion("task.new", details, f",task.keep {name}", "owner", DRAFT_HOURS)
        number = await ask(turn, question)
        await turn.tape.append([TaskDrafted(name, files, number, turn.sender.id).to_entry()])
        return TaskWritten(name, number, tuple(files))

    async def _draft(self, turn: Turn, name: str, description: str) -> dict[str, str]:
        system = _SYSTEM + "\n".join(f"- {step.pattern}" for step in OWN_STEPS)
        tools = [tool.name for tool in self._kernel.list_tools() if tool.for_model and turn.role.at_least(tool.role)]
        asked = f"Write the task {name!r}.\n\n{clean(description)}\n\nTools that a step may use: {', '.join(tools)}"
        messages: list[JsonObject] = [{"role": "user", "content": asked}]
        problem = ""
        for _ in range(MAX_REPAIRS + 1):
            reply = await turn.runner.ask(turn, system, messages, purpose="task")
            try:
                files = _read_files(reply.text)
                found = await asyncio.to_thread(self._check, files, name)
                problems = [each for each in found if not each.is_warning]
                if not problems:
                    return files
                problem = "\n".join(map(str, problems))
            except (ValueError, DefinitionInvalid) as error:
                problem = str(error)
            messages += [
                {"role": "assistant", "content": reply.text},
                {
                    "role": "user",
                    "content": f"This cannot be used:\n{problem}\nAnswer again with the whole JSON object.",
                },
            ]
        raise CommandRefused("task_not_written", problem=problem)

    def _check(self, files: Mapping[str, str], name: str) -> list[Problem]:
        return self._library.check(parse_files(files, name, self._library.product), Role.OWNER)

    async def keep(self, turn: Turn, name: str) -> TaskWritten:
        """Write a confirmed task into the folder of tasks.

        Raises:
            CommandRefused: it was not confirmed.
            ValueInvalid: there is another task of this name by now.
        """
        query = TapeQuery(turn.tape.name, kinds=(Kind.EVENT,), names=TaskDrafted.EVENTS, newest=True, limit=50)
        drafts = [TaskDrafted.try_of(entry) for entry in (await turn.tape.fetch([query]))[0] if not entry.erased]
        named = [each for each in drafts if each is not None and each.task == name]
        if not named:
            raise CommandRefused("task_no_draft", task=name)
        confirmed = [each for each in named if await self._is_confirmed(each)]
        if not confirmed:
            raise CommandRefused("task_unconfirmed", task=name, question=named[0].approval)
        draft = confirmed[0]
        files: dict[str, str] = thaw(draft.files)
        if not self._library.has_files(name, files):  # else the turn runs again, or somebody pressed twice
            self._library.write(name, files)
        return TaskWritten(name, files=tuple(files))

    async def _is_confirmed(self, draft: TaskDrafted) -> bool:
        answer = await self._kernel.find_answer(draft.approval) if self._kernel.find_answer else None
        return answer is not None and answer.is_yes


def _read_files(text: str) -> dict[str, str]:
    """Read the answer of the model. Raise `ValueError` if it is not what was asked for."""
    start, end = text.find("{"), text.rfind("}")
    found = json.loads(text[start : end + 1]) if 0 <= start < end else None
    files = found.get("files") if isinstance(found, dict) else None
    if not isinstance(files, dict) or not all(isinstance(each, str) for each in files.values()):
        raise ValueError('the answer has to be one JSON object {"files": {…}} with a text for each file')
    allowed = {path: body for path, body in files.items() if path in EXAMPLE_FILES}
    if "task.toml" not in allowed:
        raise ValueError(f"files has to hold task.toml; others may be {', '.join(EXAMPLE_FILES)}")
    return allowed
