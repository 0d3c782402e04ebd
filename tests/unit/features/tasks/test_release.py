"""A home restored from a backup goes on with no run of before: the original bot did."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bubbot.features.tasks.facts import TASKS_TAPE
from bubbot.models.scripted import ScriptedModel
from tests.e2e import inside
from tests.family import family
from tests.task_runs import ANSWERS, begin_digest, write_digest
from tests.tasks import TaskBench


async def bubbot(home: Path, *arguments: str) -> None:
    done = await asyncio.to_thread(inside.run, home, *arguments)
    assert done.returncode == 0, done.stderr.decode()


async def test_the_release_cancels_open_runs_and_leaves_those_that_ended(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_digest(home)
    async with family(home, ScriptedModel(ANSWERS), agents={}) as bot:
        bench = TaskBench(bot)
        done = await begin_digest(bench, "the school board")
        await bench.answer()
        waiting = await begin_digest(bench, "the harvest")
    await bubbot(home, "backup", str(tmp_path / "copy"))
    await bubbot(tmp_path / "new", "restore", str(tmp_path / "copy"))
    await bubbot(tmp_path / "new", "restore", "--release")
    async with family(tmp_path / "new", ScriptedModel(ANSWERS), agents={}) as bot:
        bench = TaskBench(bot)
        runs = bench.runs.state.runs
        assert (runs[waiting].status, runs[waiting].reason) == ("cancelled", "task_restored")
        ended = [fact["run"] for fact in await bot.facts("task/run", TASKS_TAPE) if fact["status"] == "cancelled"]
        assert (runs[done].status, ended) == ("succeeded", [waiting])
        assert "restored from a backup" in "\n".join(await bench.say(f",task.status {waiting}"))
        assert bot.model.requests == []


async def test_a_release_that_delivers_keeps_the_runs(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_digest(home)
    async with family(home, ScriptedModel(ANSWERS), agents={}) as bot:
        waiting = await begin_digest(TaskBench(bot), "the harvest")
    await bubbot(home, "backup", str(tmp_path / "copy"))
    await bubbot(tmp_path / "new", "restore", str(tmp_path / "copy"))
    await bubbot(tmp_path / "new", "restore", "--release", "--deliver")
    async with family(tmp_path / "new", ScriptedModel(ANSWERS), agents={}) as bot:
        assert TaskBench(bot).runs.state.runs[waiting].status == "waiting"
