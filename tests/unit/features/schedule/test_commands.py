"""The commands in a shell: what they answer, and what they write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest

from bubbot.errors import ConfigError
from bubbot.features.schedule.commands import COMMANDS
from bubbot.features.schedule.facts import SCHEDULE_TAPE
from bubbot.shell_command import CommandContext, CommandResult
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.query import TapeQuery
from bubbot.texts import Texts
from tests.schedules import NOON


class Shell:
    """A shell over the tapes of a home, in the language of its bot."""

    def __init__(self, language: str = "en") -> None:
        self.now = NOON
        self._language = language
        self._store = InMemoryStore()
        self._ids: Iterator[int] = count(0xA1B2C3)

    async def run(self, action: str, **arguments: Any) -> CommandResult:
        command = COMMANDS.find(f"schedule {action}")
        assert command is not None
        context = CommandContext(self._store, "home", self._time, self._new_id, texts=Texts(self._language))
        return await command.run(context, command.args(**arguments))

    async def say(self, action: str, **arguments: Any) -> str:
        return (await self.run(action, **arguments)).text

    async def read(self, action: str, **arguments: Any) -> Any:
        """What `--json` prints."""
        return json.loads(json.dumps((await self.run(action, **arguments)).data))

    async def names(self) -> list[str]:
        """The names of all facts."""
        (found,) = await self._store.fetch([TapeQuery(SCHEDULE_TAPE)])
        return [(entry.name or "").removeprefix("schedule/") for entry in found]

    def _time(self) -> datetime:
        return self.now

    def _new_id(self) -> str:
        return f"{next(self._ids):x}"


async def with_job(language: str = "en", **options: Any) -> Shell:
    """A shell in which a job of every hour was added."""
    shell = Shell(language)
    await shell.run("add", **{"session": "test:1", "when": "every hour", "text": "tea", "name": "tea"} | options)
    return shell


async def test_an_answer_says_what_was_understood_and_that_nothing_fires_it() -> None:
    shell = Shell()
    told = await shell.say("add", session="test:1", when="0 9 * * 1-5", text="Stand-up!")
    assert told.splitlines() == [
        "Scheduled Stand-up! (a1b2c3): every weekday at 09:00 (UTC), next Mon 23 Nov 2026.",
        "To change: bubbot schedule edit a1b2c3 --when 'at 10:00am'",
        "`bubbot run` fires jobs; it is not running.",
    ]


async def test_a_shell_speaks_the_language_of_the_bot() -> None:
    shell = await with_job("de")
    assert "löst Aufträge aus" in await shell.say("run", job="tea")
    with pytest.raises(ConfigError, match="bubbot schedule list zeigt alle Aufträge"):
        await shell.run("show", job="coffee")


async def test_programs_get_the_job_as_it_is_after_the_change() -> None:
    shell = await with_job()
    data = await shell.read("edit", job="tea", jitter="5m", runs=0, allow=("web.search",))
    (job,) = data["jobs"]
    assert (job["jitter"], job["most_runs"], job["allow"], data["removed"]) == (300, 0, ["web.search"], [])
    assert await shell.read("remove", job="tea") == {"jobs": [], "removed": [job["id"]]}


async def test_what_is_not_said_of_a_job_stays_and_a_length_of_none_takes_it_away() -> None:
    shell = await with_job(jitter="5m", budget="2m")
    data = await shell.read("edit", job="tea", jitter="none")
    assert [(job["jitter"], job["budget"], job["text"]) for job in data["jobs"]] == [(0, 120, "tea")]


async def test_without_a_job_all_that_wait_for_the_clock_go_on() -> None:
    shell = await with_job()
    assert await shell.read("resume") == {"jobs": [], "removed": []}
    shell.now += timedelta(days=1)
    assert "bubbot schedule resume a1b2c3 lets it go on" in await shell.say("pause", job="tea")
    await shell.run("resume", job="tea")
    shell.now = NOON
    assert (await shell.say("resume")).startswith("1 jobs go on from the present")
    assert await shell.names() == ["added", "paused", "resumed", "clock"]


async def test_the_rules_of_a_chat_are_told_and_only_what_is_said_is_set() -> None:
    shell = Shell()
    assert await shell.read("chat", session="test:1") == {"session": "test:1", "zone": "UTC", "quiet": None}
    assert await shell.names() == []
    data = await shell.read("chat", session="test:1", quiet="22:00-07:00")
    assert data == {"session": "test:1", "zone": "UTC", "quiet": [1320, 420]}
    assert await shell.names() == ["chat"]


@pytest.mark.parametrize(
    ("action", "arguments", "told"),
    [
        ("add", {"session": "test:1", "when": "at 18:00"}, "in one way: --prompt, --command or --text"),
        ("add", {"session": "nowhere", "when": "at 18:00", "text": "x"}, "nowhere"),
        ("show", {"job": "coffee"}, "there is no job 'coffee'; bubbot schedule list shows all jobs"),
        ("next", {"when": "at 18:00", "count": 101}, "--count is 101, but must be a number from 1 to 100"),
        ("next", {"when": "21.30"}, "You can write:\n21:30"),
    ],
)
async def test_what_is_refused_is_told_in_the_words_of_a_shell(
    action: str, arguments: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        await Shell().run(action, **arguments)
    assert told in str(refused.value)
