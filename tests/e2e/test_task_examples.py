"""The worked examples of tasks, copied into a home as a person would, with the scripted model of each."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bubbot.features.files.settings import FileSettings
from bubbot.features.web.commands import web_tools
from bubbot.features.web.reading import PageReader
from bubbot.models.scripted import ScriptedModel
from bubbot.tape.entry import JsonObject
from tests.docs.pages import ROOT, blocks
from tests.e2e import forked
from tests.e2e.bot import environment, run
from tests.family import OWNER, Family, family
from tests.tasks import write_task
from tests.web_servers import Site, client, serving

EXAMPLES = ROOT / "examples" / "tasks"
NAMES = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
FILES = "[tools.files]\nenabled = true\n"
CONTACTS = "name,last\nAda,2025\nBob,2017\nEve,2024\n"
SITE = "news.example.org"
CONFIRMED = "gate confirm was confirmed before"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with the examples, on which the bot has run once."""
    path = tmp_path / "home"
    path.mkdir()
    (path / "config.toml").write_text(FILES, encoding="utf-8")
    for name in NAMES:
        shutil.copytree(EXAMPLES / name, path / "tasks" / name)
    assert run(path, "ask", "hello").returncode == 0
    return path


def type_task(home: Path, script: str, *arguments: str) -> tuple[int, str]:
    """Run `bubbot task ARGUMENTS` with a script; return the exit code and what it prints."""
    done = run(home, "task", *arguments, env={"BUBBOT_MODEL__SCRIPT": str(EXAMPLES / script)})
    assert done.stderr == b"", done.stderr.decode()
    return done.returncode, done.stdout.decode()


def find_files(home: Path, name: str) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in home.rglob(name) if "tasks" not in path.parts]


def save_contacts(home: Path) -> None:
    line = f',file.write path=contacts.csv content="{CONTACTS}"'
    assert run(home, "ask", "--session", "tasks", line).returncode == 0


def read_facts(home: Path, name: str) -> list[dict[str, Any]]:
    shown = run(home, "tape", "show", "stdin:tasks", "--json").stdout.decode().splitlines()
    payloads = [json.loads(line)["payload"] for line in shown]
    return [payload["data"] for payload in payloads if payload.get("name") == name]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_wrong_with_an_example(home: Path, name: str) -> None:
    done = run(home, "task", "check", name)
    assert done.returncode == 0
    assert re.fullmatch(rf"{name} can run: \d steps, \d rules\.\n", done.stdout.decode())


def test_a_run_begins_a_home_in_which_no_bot_ever_ran(tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder = home / "tasks" / "hello"
    folder.mkdir(parents=True)
    (folder / "task.toml").write_text('[nodes.hello]\nprompt = "Say hello."\n', encoding="utf-8")
    done = run(home, "task", "run", "hello")
    assert (done.returncode, done.stderr) == (0, b"")
    assert "Say hello." in done.stdout.decode()


def test_a_release_is_published_after_a_yes_and_not_before(home: Path) -> None:
    code, shown = type_task(home, "release.json", "run", "release", "It speaks Chinese.")
    assert (code, find_files(home, "NOTES.md")) == (0, [])
    found = re.search(r"\((\w+)\): waiting\n.*waits for the answer to (\w+),", shown, re.DOTALL)
    assert found
    assert run(home, "approvals", "approve", found[2]).returncode == 0
    assert find_files(home, "NOTES.md") == []

    code, shown = type_task(home, "release.json", "resume", found[1])

    assert (code, find_files(home, "NOTES.md")) == (0, ["# Version 1.0.0\n\n- It speaks Chinese.\n"])
    assert shown.startswith("Version 1.0.0 is published, with its notes in NOTES.md.\n")
    assert re.search(rf"✓ {CONFIRMED} \(scripts/publishing.feature:5\), see #\d+\n", shown)


def test_a_release_that_a_person_denies_writes_nothing(home: Path) -> None:
    _, shown = type_task(home, "release.json", "run", "release")
    found = re.search(r"\((\w+)\): waiting\n.*waits for the answer to (\w+),", shown, re.DOTALL)
    assert found
    run(home, "approvals", "deny", found[2])
    code, shown = type_task(home, "release.json", "resume", found[1])
    assert (code, find_files(home, "NOTES.md")) == (1, [])
    assert "✗ A person confirms: The answer was no.\n· Publish\n" in shown


def test_a_forbidden_delete_is_refused_before_it_happens_and_the_cleanup_ends_well(home: Path) -> None:
    save_contacts(home)
    code, shown = type_task(home, "cleanup.json", "run", "cleanup")
    assert (code, find_files(home, "contacts.csv")) == (0, [CONTACTS.replace("2017", "2017 old")])
    assert shown.startswith("One contact is marked as old, and none is gone.\n")
    assert "Rules: 6 kept, 0 broken.\n" in shown
    (refused,) = read_facts(home, "task/refused")
    assert (refused["tool"], refused["texts"]) == ("file.edit", ['its new does not equal ""'])


def test_a_cleanup_with_a_duty_left_does_not_end_as_succeeded(home: Path) -> None:
    save_contacts(home)
    code, shown = type_task(home, "cleanup-duty-left.json", "run", "cleanup")
    assert code == 1
    assert "✓ Report\nEverything was done, but not all that the rules ask for.\nRules: 5 kept, 1 broken.\n" in shown
    assert re.search(r"✗ tool file.read is called \(scripts/looks-again.feature:5\), see #\d+", shown)


def test_a_part_that_runs_again_has_the_artifacts_of_before_but_not_the_yes(home: Path) -> None:
    """The rule about the tests is met by the artifact that was kept; the one about the gate is not."""
    _, shown = type_task(home, "release.json", "run", "release")
    found = re.search(r"\((\w+)\): waiting\n.*waits for the answer to (\w+),", shown, re.DOTALL)
    assert found
    run(home, "approvals", "approve", found[2])
    type_task(home, "release.json", "resume", found[1])

    code, shown = type_task(home, "release.json", "rerun", found[1], "--from", "publish")

    assert code == 1
    *_, refused = read_facts(home, "task/refused")
    assert refused["texts"] == [CONFIRMED]
    _, shown = type_task(home, "release.json", "rerun", found[1], "--from", "confirm")
    assert "? A person confirms: waits for the answer" in shown


def test_the_lines_of_the_page_about_the_examples_run(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "examples"
    (home / "tasks").mkdir(parents=True)
    shutil.copytree(EXAMPLES, folder)
    forked.put_command(tmp_path)
    given = environment(home)
    given["PATH"] = f"{tmp_path}:{given['PATH']}"
    text = "\n".join(
        ["set -eu", "bubbot ask hello", *(b.text for b in blocks(EXAMPLES / "README.md") if b.language == "sh")]
    )
    (tmp_path / "lines").write_text(text, encoding="utf-8")
    ran = subprocess.run(
        ["sh", tmp_path / "lines"], cwd=folder, env=given, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "task.gate" in ran.stdout
    assert "One contact is marked as old, and none is gone." in ran.stdout


def test_a_task_that_the_bot_wrote_is_kept_after_the_yes_to_the_draft_that_was_asked_for(tmp_path: Path) -> None:
    home, script = tmp_path / "home", tmp_path / "script.json"
    assert run(home, "ask", "hello").returncode == 0
    written = json.dumps({"files": {"task.toml": '[nodes.hello]\nprompt = "Say hello."\n'}})
    script.write_text(json.dumps({"default": [{"text": written}]}), encoding="utf-8")
    drafts = [
        json.loads(
            run(home, "task", "new", "hello", "Say hello.", "--json", env={"BUBBOT_MODEL__SCRIPT": str(script)}).stdout
        )
        for _ in range(2)
    ]
    assert run(home, "task", "check", "hello").returncode != 0
    run(home, "approvals", "approve", drafts[0]["question"])
    run(home, "chat", "--session", "tasks")
    assert (home / "tasks" / "hello" / "task.toml").read_text(
        encoding="utf-8"
    ) == '[nodes.hello]\nprompt = "Say hello."\n'


def test_a_model_that_writes_no_task_is_an_error_in_a_shell(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert run(home, "ask", "hello").returncode == 0
    done = run(home, "task", "new", "hello", "Say hello.")
    assert done.returncode == 1
    assert b"the model wrote nothing that can run" in done.stdout + done.stderr


# The digest reads a page, which is on the loopback address here.


async def show_page(_request: web.Request) -> web.Response:
    return web.Response(text="The bridge is open again.")


def copy_digest(home: Path, site: Site) -> ScriptedModel:
    """Copy the example with the address of a server here in place of the page; return its model."""
    here = site.url("", SITE)
    shutil.copytree(EXAMPLES / "digest", home / "tasks" / "digest")
    config = home / "tasks" / "digest" / "config.toml"
    config.write_text(config.read_text(encoding="utf-8").replace(f"https://{SITE}", here), encoding="utf-8")
    script = (EXAMPLES / "digest.json").read_text(encoding="utf-8").replace(f"https://{SITE}", here)
    return ScriptedModel(json.loads(script))


async def test_a_digest_reads_the_site_that_it_is_allowed_and_posts_in_its_chat(tmp_path: Path) -> None:
    async with serving(show_page) as site:
        model = copy_digest(tmp_path, site)
        tools = web_tools(client(), PageReader(), [])
        async with family(tmp_path, model, agents={}, tools=tools) as bench:
            *_, posted = await bench.say(",task.run digest", OWNER, OWNER)
            assert posted.startswith("You can cross the river again.\n- The bridge is open again: ")
            assert len(site.requests) == 1


async def run_by_job(bench: Family, task: str, allow: str = "") -> JsonObject:
    """Add a job that runs a task, let its time come, and return the fact that a run began."""
    line = f',schedule.add when="every monday at 8:00" command=",task.run {task}"'
    await bench.say(f'{line} allow="{allow}"' if allow else line, OWNER, OWNER)
    (job,) = [fact["job"] for fact in await bench.facts("schedule/added", "bubbot/schedule")]
    await bench.say(f",schedule.run {job}", OWNER, OWNER)
    await bench.fire(job)
    (queued,) = await bench.facts("task/queued", "bubbot/tasks")
    return queued


async def test_a_job_runs_a_task_whose_question_a_person_answers_later(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "release", tmp_path / "tasks" / "release")
    model = ScriptedModel(json.loads((EXAMPLES / "release.json").read_text(encoding="utf-8")))
    async with family(tmp_path, model, FileSettings(enabled=True), agents={}) as bench:
        queued = await run_by_job(bench, "release")
        assert (queued["task"], queued["has_person"]) == ("release", False)
        question = next(found[1] for text in bench.channel.texts if (found := re.search(r"Question (\w+)", text)))
        assert find_files(tmp_path, "NOTES.md") == []
        *_, posted = await bench.say(f",approve {question}", OWNER, OWNER)
        assert posted == "Version 1.0.0 is published, with its notes in NOTES.md."
        assert find_files(tmp_path, "NOTES.md") != []


async def test_a_job_runs_the_digest_and_reads_the_site_that_the_task_allows(tmp_path: Path) -> None:
    async with serving(show_page) as site:
        model = copy_digest(tmp_path, site)
        tools = web_tools(client(), PageReader(), [])
        async with family(tmp_path, model, agents={}, tools=tools) as bench:
            await run_by_job(bench, "digest")
            assert len(site.requests) == 1
            assert bench.channel.texts[-1].startswith("You can cross the river again.\n- The bridge is open again: ")


def forget_the_site(home: Path) -> None:
    """Take out of the task what its step may read."""
    schema = home / "tasks" / "digest" / "task.toml"
    lines = schema.read_text(encoding="utf-8").splitlines(keepends=True)
    schema.write_text("".join(line for line in lines if not line.startswith("allow")), encoding="utf-8")


async def test_a_job_runs_the_digest_with_what_it_was_allowed_itself(tmp_path: Path) -> None:
    async with serving(show_page) as site:
        model = copy_digest(tmp_path, site)
        forget_the_site(tmp_path)
        tools = web_tools(client(), PageReader(), [])
        async with family(tmp_path, model, agents={}, tools=tools) as bench:
            await run_by_job(bench, "digest", allow=f"web.fetch:{SITE}")
            assert len(site.requests) == 1


async def test_without_a_permission_of_task_or_job_no_page_is_read(tmp_path: Path) -> None:
    async with serving(show_page) as site:
        model = copy_digest(tmp_path, site)
        forget_the_site(tmp_path)
        tools = web_tools(client(), PageReader(), [])
        async with family(tmp_path, model, agents={}, tools=tools) as bench:
            queued = await run_by_job(bench, "digest")
            assert site.requests == []
            assert bench.channel.texts[-1].startswith(f"Task {queued['run']}: failed.")
            (broken,) = [fact for fact in await bench.facts("task/verdict", OWNER) if fact["status"] == "violated"]
            assert broken["text"] == "tool web.fetch succeeds"


def test_a_shell_waits_for_the_next_attempt_at_a_step(home: Path) -> None:
    schema = '[nodes.a]\nprompt = "x"\nartifact = { type = "integer" }\nrepairs = 0\nretries = 1\nbackoff = 1\n'
    write_task(home, "flaky", schema)
    done = run(home, "task", "run", "flaky", "--json")
    assert json.loads(done.stdout)["status"] == "failed"
    assert done.returncode == 1
    shown = json.loads(run(home, "task", "status", json.loads(done.stdout)["run"], "--json").stdout)
    assert shown["runs"][0]["nodes"][0]["attempt"] == 2
