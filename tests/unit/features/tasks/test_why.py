"""`,why` of a task: for which run a node worked, what it was shown, part by part, and what of it was cut."""

from __future__ import annotations

import json
import re
from pathlib import Path

from bubbot.models.scripted import ScriptedModel
from tests.e2e import inside
from tests.family import OWNER, family
from tests.task_runs import ANSWERS, begin_digest, write_digest
from tests.tasks import TaskBench, model_of, tasks, write_task
from tests.trace.home import apart


async def test_the_answer_of_a_run_names_the_run_and_the_parts_that_its_node_was_shown(tmp_path: Path) -> None:
    write_digest(tmp_path)
    async with family(tmp_path, ScriptedModel(ANSWERS), agents={}) as bot:
        bench = TaskBench(bot)
        run = await begin_digest(bench, "the school board")
        await bench.answer()
        told = "\n".join(await bench.say(",why"))
        entries = {entry.id: entry for entry in await bot.entries(OWNER)}
        assert "task:post: step 1" in told
        assert f"for the task run {run}, shown in parts: schema (entry " in told
        named = {
            name: int(number) for name, number in re.findall(r"([\w ]+) \(entry (\d+)\)", told.split("parts: ")[1])
        }
        assert {"config", "description", "harness", "artifact of ok", "artifact of sum", "prompt"} <= {
            name.strip() for name in named
        }
        for name, number in named.items():
            assert entries[number].meta["part"] == name.strip()


async def test_the_turn_of_a_node_says_what_was_cut_and_each_attempt_has_its_own_line(tmp_path: Path) -> None:
    write_digest(tmp_path)
    async with family(tmp_path, ScriptedModel(ANSWERS), agents={}) as bot:
        bench = TaskBench(bot)
        await begin_digest(bench, "the school board")
        entries = await bot.entries(OWNER)
        cut = next(entry for entry in entries if "cut" in entry.meta)
        told = "\n".join(await bench.say(f",why {cut.meta['turn']}"))
        assert f"{cut.meta['part']} (entry {cut.id}, cut: it had {cut.meta['cut']} characters)" in told
        first = next(
            entry for entry in entries if entry.meta.get("part") == "prompt" and "SEARCH" in entry.payload["content"]
        )
        both = "\n".join(await bench.say(f",why {first.meta['turn']}"))
        steps = re.findall(r"^task:(\w+): step \d", both, re.MULTILINE)  # a quick next node may share the turn
        assert steps.count("search") == 2
        assert both.count("shown in parts") == len(set(steps)) >= 2
        assert f"prompt (entry {first.id})" in both


async def test_an_answer_after_a_question_is_explained_by_the_node_that_wrote_it(tmp_path: Path) -> None:
    """The turn that ends the run asks no model: the answer is a copy of the artifact."""
    schema = '[nodes.write]\nprompt = "WRITE it"\n[nodes.ok]\nafter = ["write"]\nconfirm = "Good?"\n'
    write_task(tmp_path, "letter", f'result = "write"\n{schema}')
    async with tasks(tmp_path, model_of(write="Dear all")) as bench:
        await bench.say(",task.run letter")
        assert await bench.answer() != []
        told = "\n".join(await bench.say(",why"))
        made = next(entry for entry in await bench.bot.entries(OWNER) if entry.name == "task/artifact")
        assert "(task:write), whose steps these are" in told
        assert f"for the task run {bench.run.run}, shown in parts:" in told
        (copy,) = [entry for entry in await bench.bot.entries(OWNER) if "source" in entry.meta]
        assert (copy.payload["content"], copy.meta["source"][1]) == ("Dear all", made.id)


def test_json_has_the_parts(tmp_path: Path) -> None:
    """As a shell prints it."""

    async def run() -> None:
        write_task(tmp_path, "letter", '[nodes.write]\nprompt = "WRITE it"\n')
        async with tasks(tmp_path, model_of(write="Dear all")) as bench:
            await bench.say(",task.run letter all=of them")

    apart(run())
    done = inside.run(tmp_path, "why", f"tg:{OWNER}", "--json")
    (step,) = json.loads(done.stdout)["steps"]
    assert [part["name"] for part in step["parts"]][-1] == "prompt"
    assert {part["full_chars"] for part in step["parts"]} == {0}
