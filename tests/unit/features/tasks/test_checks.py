"""What the doctor finds of tasks and of their runs."""

from __future__ import annotations

import asyncio
import os
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bubbot.features.tasks.checks import check_runs, check_tasks
from bubbot.features.tasks.facts import TASKS_TAPE, NodeChanged, RunChanged
from bubbot.features.tasks.health import MAX_SHOWN_RUNS, read_health
from bubbot.home import Home
from bubbot.ports.checks import Finding, HomeReader
from bubbot.ports.health import HealthContext
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.service import TapeService
from bubbot.texts import Texts
from tests.doubles import CountingIds, SteppingClock
from tests.planting import found, look, mend, mends, plants
from tests.tasks import write_task
from tests.unit.features.tasks.test_forgetting import node, queued

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)


def reader(home: Path, *facts: Any) -> HomeReader:
    tape = TapeService(InMemoryStore(), TASKS_TAPE, now=SteppingClock(), new_id=CountingIds())

    class Opened(nullcontext[TapeService]):
        async def __aenter__(self) -> TapeService:
            await tape.append([fact.to_entry() for fact in facts])
            return tape

    return HomeReader(home, home / "config.toml", None, lambda: AT, ZoneInfo("UTC"), lambda _: Opened(tape))


async def find(check: Any, home: HomeReader) -> list[Finding]:
    findings = list(await check(home))
    found(findings)
    return findings


@plants("tasks.broken")
@pytest.mark.parametrize(
    ("schema", "harness", "config", "told", "file"),
    [
        ('[nodes.a]\nafter = ["b"]\nprompt = "x"\n', "", "", "nodes.a.after", "task.toml"),
        ("nodes = ", "", "", "task.toml:1", "task.toml"),
        (
            '[nodes.a]\nprompt = "x"\n',
            "  Scenario: s\n    When pigs fly\n",
            "",
            "rules.feature:3",
            "scripts/rules.feature",
        ),
        ('[nodes.a]\nprompt = "x"\n', "", "x = = 3", "config.toml:1", "config.toml"),
    ],
)
async def test_a_task_that_cannot_run_is_a_warning_that_opens_its_file(
    tmp_path: Path, schema: str, harness: str, config: str, told: str, file: str
) -> None:
    write_task(tmp_path, "digest", schema, harness, config)
    (finding,) = await find(check_tasks, reader(tmp_path))
    assert (finding.id, finding.level) == ("tasks.broken", "warning")
    assert told in finding.cause
    assert finding.fix.endswith(f"/tasks/digest/{file}")


@mends("tasks.broken")
def test_the_printed_command_opens_the_file_that_is_wrong(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    write_task(home.path, "digest", "nodes = ")
    mend(lambda: look("tasks", home), "tasks.broken", tmp_path, text='[nodes.a]\nprompt = "x"\n')


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_named_and_a_home_that_may_not_is_of_another_check(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "tasks"
    folder.mkdir(mode=0)
    (finding,) = asyncio.run(find(check_tasks, reader(tmp_path)))
    assert str(folder) in finding.cause
    tmp_path.chmod(0)
    try:
        assert asyncio.run(find(check_tasks, reader(tmp_path))) == []
    finally:
        tmp_path.chmod(0o700)


@plants("tasks.folders")
async def test_tasks_that_can_run_are_named_and_a_home_without_tasks_says_nothing(tmp_path: Path) -> None:
    assert await find(check_tasks, reader(tmp_path)) == []
    write_task(tmp_path, "digest", '[nodes.a]\nprompt = "for {bot.name}"\ntools = ["web.*"]\n')
    (finding,) = await find(check_tasks, reader(tmp_path))
    assert (finding.level, finding.cause) == ("ok", "Tasks that can run: digest.")


async def test_a_broken_config_of_the_home_is_found_at_each_task(tmp_path: Path) -> None:
    write_task(tmp_path, "digest", '[nodes.a]\nprompt = "x"\n')
    (tmp_path / "tasks" / "config.toml").write_text("x = = 3")
    (finding,) = await find(check_tasks, reader(tmp_path))
    assert finding.fix.endswith("/tasks/config.toml")


@plants("tasks.blocked", "tasks.waiting")
async def test_blocked_runs_and_questions_are_warnings_with_the_command_that_goes_on(tmp_path: Path) -> None:
    home = reader(
        tmp_path,
        queued("BLOCK"),
        RunChanged(run="BLOCK", status="blocked", reason="task_stopped"),
        queued("ASKED"),
        NodeChanged(run="ASKED", node="a", status="waiting", attempt=1, approval="7KQ2M", until="2030-01-01T00:00:00Z"),
        RunChanged(run="ASKED", status="waiting"),
        queued("PAUSE"),
        node("PAUSE", "a", "waiting", until="2030-01-01T00:00:00Z"),
        queued("ENDED"),
        NodeChanged(run="ENDED", node="a", status="waiting", attempt=1, approval="AAAAA"),
        RunChanged(run="ENDED", status="cancelled"),
    )
    blocked, waiting = await find(check_runs, home)
    assert (blocked.id, blocked.fix) == ("tasks.blocked", "bubbot task resume BLOCK")
    assert (waiting.id, waiting.fix) == ("tasks.waiting", "bubbot approvals show 7KQ2M")
    assert "ASKED (digest in tg:-8)" in waiting.cause
    assert {blocked.level, waiting.level} == {"warning"}
    assert not [name for name in ("PAUSE", "ENDED") if name in blocked.cause + waiting.cause]


async def test_the_health_names_open_runs_those_that_stand_still_first(tmp_path: Path) -> None:
    runs = [
        fact for n in range(MAX_SHOWN_RUNS + 1) for fact in (queued(f"R{n}"), RunChanged(run=f"R{n}", status="running"))
    ]
    ended = [queued("ENDED"), RunChanged(run="ENDED", status="succeeded")]
    home = reader(tmp_path, queued("STILL"), RunChanged(run="STILL", status="blocked"), *runs, *ended)
    context = HealthContext(Texts(), AT.isoformat(), "UTC", chats={"tg:-8": "Family"})
    health = await read_health(home, context)
    assert [run["run"] for run in health.data["task_runs"]] == [
        "STILL",
        *(f"R{n}" for n in range(MAX_SHOWN_RUNS, -1, -1)),
    ]
    (row,) = health.rows
    assert row.lines[0].startswith("‖ STILL (digest in Family): blocked, 0 of 2")
    assert (len(row.lines), row.lines[-1]) == (MAX_SHOWN_RUNS + 1, "and 2 more")
    assert (await read_health(reader(tmp_path), context)).rows == ()
