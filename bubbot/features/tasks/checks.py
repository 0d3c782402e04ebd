"""What the doctor finds of tasks: those that cannot be read or run, and runs that go on only with a person."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from bubbot.errors import ConfigError, StoreError, TapeCorrupt
from bubbot.features.tasks.definition import CONFIG_FILE, TaskDefinition
from bubbot.features.tasks.facts import TASKS_TAPE
from bubbot.features.tasks.library import TaskLibrary, product_layer
from bubbot.features.tasks.runs import list_waiting
from bubbot.features.tasks.schema import SCHEMA_FILE
from bubbot.features.tasks.sources import DefinitionInvalid
from bubbot.features.tasks.state import TASKS_PROJECTION, RunState
from bubbot.log import printable
from bubbot.ports.channel import Role
from bubbot.ports.checks import Check, Finding, HomeReader, edit_command
from bubbot.tape.projection import read_projection
from bubbot.toml_tables import Problem

MAX_NAMED_RUNS = 5
"""Runs that a finding names."""


async def check_tasks(home: HomeReader) -> list[Finding]:
    """Report the tasks of the home that cannot be read, or that not even an owner can run."""
    return await asyncio.to_thread(_check_folders, home)


def _check_folders(home: HomeReader) -> list[Finding]:
    library = TaskLibrary(home.home, product_layer("bubbot", "en", str(home.zone)))
    try:
        findings, names = [], library.list_names()
    except ConfigError as error:
        if not os.access(home.home, os.R_OK | os.X_OK):
            return []  # the check of the home reports it
        cause = f"No task can run: {error}."
        return [Finding("tasks.broken", "warning", cause, f"ls -ld {shlex.quote(str(library.folder))}")]
    for name in names:
        problems = _find_problems(library, name)
        if problems:
            more = f" Further problems: {len(problems) - 1}." if len(problems) > 1 else ""
            cause = (
                f"The task {name} cannot run. {printable(str(problems[0]))}{more} bubbot task check {name} lists all."
            )
            fix = edit_command(_find_file(library.folder / name, problems[0]))
            findings.append(Finding("tasks.broken", "warning", cause, fix))
    if names and not findings:
        findings.append(Finding("tasks.folders", "ok", f"Tasks that can run: {', '.join(names)}."))
    return findings


def _find_problems(library: TaskLibrary, name: str) -> list[Problem]:
    """Return what keeps a task from running."""
    try:
        definition: TaskDefinition = library.load(name)
    except DefinitionInvalid as error:
        return list(error.problems)
    except ConfigError as error:  # its folder went meanwhile
        return [Problem(SCHEMA_FILE, str(error))]
    return [problem for problem in library.check(definition, Role.OWNER) if not problem.is_warning]


def _find_file(folder: Path, problem: Problem) -> Path:
    """Return the file in which a problem is: a path of the schema names none."""
    file = problem.where.partition(":")[0]
    if file == f"{folder.parent.name}/{CONFIG_FILE}":
        return folder.parent / CONFIG_FILE
    return folder / (file if (folder / file).is_file() else SCHEMA_FILE)


async def check_runs(home: HomeReader) -> list[Finding]:
    """Report the runs that stand still, and those that wait for an answer."""
    try:
        async with home.open_tape(TASKS_TAPE) as tape:
            state = await read_projection(TASKS_PROJECTION, tape)
    except (StoreError, TapeCorrupt):
        return []  # the check of the database reports it
    runs = list(state.runs.values())
    findings = []
    if blocked := [run for run in runs if run.status == "blocked"]:
        cause = (
            f"Runs of tasks that go on only if somebody resumes them: {_name_runs(blocked)}. The command resumes the "
            f"first one; bubbot task cancel {blocked[0].run} ends it."
        )
        findings.append(Finding("tasks.blocked", "warning", cause, f"bubbot task resume {blocked[0].run}"))
    if asking := [run for run in runs if not run.has_ended and list_waiting(run)]:
        question = next(iter(list_waiting(asking[0]).values()))
        cause = (
            f"Runs of tasks that wait for an answer: {_name_runs(asking)}. The command shows the question of the first "
            f"one; bubbot approvals approve {question} and bubbot approvals deny {question} answer it."
        )
        findings.append(Finding("tasks.waiting", "warning", cause, f"bubbot approvals show {question}"))
    return findings


def _name_runs(runs: Sequence[RunState]) -> str:
    names = [f"{run.run} ({printable(run.queued.fact.task)} in {printable(run.session)})" for run in runs]
    rest = len(names) - MAX_NAMED_RUNS
    return ", ".join(names[:MAX_NAMED_RUNS]) + (f" and {rest} more" if rest > 0 else "")


CHECKS = (
    Check("the tasks", check_tasks, needs_settings=False),
    Check("the runs of tasks", check_runs, reads_tapes=True, needs_settings=False),
)
