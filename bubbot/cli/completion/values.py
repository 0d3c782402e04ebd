"""`bubbot __complete KIND WORD...`: prints the names of this home that a shell offers, a line each.

A shell runs it at each Tab, so it loads neither settings nor the bot, and says nothing if it finds nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from bubbot.cli.output import show
from bubbot.errors import BubbotError
from bubbot.settings.environment import default_home
from bubbot.stores.sqlite.lookup import list_events, list_tape_names

TERMINAL_PREFIX = "stdin:"
"""The channel of sessions that may be named without it."""
SCHEDULE_TAPE = "bubbot/schedule"
"""That of the schedules; the feature itself takes too long to import."""
MAX_VALUES = 1000
"""The longest list that helps anybody."""


def print_values(words: Sequence[str]) -> int:
    """Print the names of a kind: `session`, `chat` (a session with its channel), `terminal` (one of `bubbot chat`), `tape`
    or `job`.

    Args:
        words: the kind, the word to complete, and the command line so far, which may have a `--home`.
    """
    kind, word, *line = (*words, "", "")
    with suppress(BubbotError, sqlite3.Error, OSError, ValueError):
        home = _find_home(line)
        values = _list_values(
            "chat" if kind == "session" and word.startswith(TERMINAL_PREFIX) else kind, home / "bubbot.db"
        )
        lines = [value for value in dict.fromkeys(values) if value.isprintable() and value.startswith(word)]
        show("".join(f"{line}\n" for line in lines[:MAX_VALUES]), end="", flush=True, wraps=False)
    return 0


def _find_home(line: Sequence[str]) -> Path:
    home = ""
    for word, value in zip(line, (*line[1:], ""), strict=True):
        if word == "--home":
            home = value
        elif word.startswith("--home="):
            home = word.removeprefix("--home=")
    return Path(home.strip("'\"")).expanduser() if home else default_home()


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
    """Yield the names and ids of jobs that were not removed; the name first, which people know."""
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
