"""The names of a home that a shell offers on Tab: sessions, tapes and jobs.

They are read without settings and without the bot; unreadable sources offer nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from bubbot.cli.tree import unmark
from bubbot.errors import BubbotError
from bubbot.settings.environment import default_home
from bubbot.stores.sqlite.lookup import list_events, list_tape_names

KINDS: Mapping[str, str] = {
    "session": "session", "--session": "session", "--to": "chat", "--chat": "chat", "tape": "tape", "job": "job",
    "file": "file", "path": "file", "target": "file", "backup": "file",
}  # fmt: skip
"""The kinds of values by the name of the argument or option."""
SESSION_KINDS: Mapping[str, str] = {"schedule": "chat", "ask": "terminal", "chat": "terminal"}
"""Commands whose sessions include their channel, or are only those of the terminal."""
TERMINAL_PREFIX = "stdin:"
"""The channel that may be left out of session names."""
SCHEDULE_TAPE = "bubbot/schedule"
"""The tape of schedules; importing the feature would take too long."""
MAX_VALUES = 1000
"""The most names to offer."""


def find_kind(command_name: str, argument: str) -> str:
    """Return the kind of an argument's values, by its typed name; empty if there is nothing to offer.

    Kinds are `session`, `chat` (a session with its channel), `terminal` (one of `bubbot chat`), `tape`, `job` and `file`.
    """
    kind = KINDS.get(argument, "")
    return SESSION_KINDS.get(command_name.partition(" ")[0], kind) if kind == "session" else kind


def complete_value(kind: str, ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the names of a kind from the home that the command line names."""
    word = unmark(incomplete)
    kind = "chat" if kind == "session" and word.startswith(TERMINAL_PREFIX) else kind
    with suppress(BubbotError, sqlite3.Error, OSError, ValueError):
        home = ctx.obj.home or default_home()
        names = dict.fromkeys(_list_values(kind, home / "bubbot.db"))
        values = [name for name in names if name.isprintable() and name.startswith(word)]
        return [CompletionItem(value) for value in values[:MAX_VALUES]]
    return []


def _list_values(kind: str, database: Path) -> Iterator[str]:
    if not database.is_file():
        return
    if kind == "job":
        yield from _list_jobs(
            list_events(database, SCHEDULE_TAPE, ("schedule/added", "schedule/changed", "schedule/removed"))
        )
        return
    for tape in list_tape_names(database):
        if tape.session and not tape.is_archive:
            name = tape.session.removeprefix(TERMINAL_PREFIX)
            is_short = kind == "terminal" or (kind != "chat" and ":" not in name)
            if kind != "terminal" or name != tape.session:
                yield name if is_short else tape.session
        elif kind == "tape":
            yield tape.name


def _list_jobs(events: Iterable[tuple[str, dict[str, object]]]) -> Iterator[str]:
    """Yield the names and ids of existing jobs; the name first, since people know it."""
    names: dict[str, str] = {}
    for event, data in events:
        job = str(data.get("job", ""))
        if event == "schedule/removed":
            names.pop(job, None)
        elif job:
            names[job] = str(data.get("name") or "")
    for job, name in names.items():
        if name:
            yield name
        yield job
