"""Packages that extend a bot: a feature, a context strategy and a store, installed by pip and used from `bubbot chat`."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from bubbot.stores import inmemory
from tests.e2e.bot import entries, run, said, sentence
from tests.e2e.daemon import running

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_feature"
PROJECT = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
[project]
name = "bubbot-{module}"
version = "1.0"
[project.entry-points."{group}"]
{name} = "{module}:{member}"
[tool.setuptools]
py-modules = {modules}
"""
STRATEGY = """
from bubbot.runtime.context.selectors import select_messages
from bubbot.runtime.context.view import ContextStrategy, ModelContext

def newest(source):
    return ModelContext(select_messages(source.entries, source.style)[-1:])

STRATEGY = ContextStrategy("newest", newest, version=7)
"""
STORE = """
from copied_inmemory import InMemoryStore

class CopiedStore(InMemoryStore):
    pass

async def open_store(options):
    print(f"[opened at {options.address}]")
    return CopiedStore()
"""


def installed(folder: Path, source: Path) -> Mapping[str, str]:
    """The environment of a program that finds the distribution beside what is installed here."""
    target = folder / "target"
    pip = [sys.executable, "-m", "pip", "--isolated", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
    done = subprocess.run([*pip, *options, str(source)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return {"PYTHONPATH": str(target)}


def package(folder: Path, group: str, name: str, member: str, **modules: str) -> Mapping[str, str]:
    """Writes a distribution whose first module offers an entry point, and installs it."""
    source = folder / "source"
    source.mkdir()
    for module, text in modules.items():
        (source / f"{module}.py").write_text(text)
    project = PROJECT.format(
        group=group, name=name, member=member, module=next(iter(modules)), modules=json.dumps(list(modules))
    )
    (source / "pyproject.toml").write_text(project)
    return installed(folder, source)


@pytest.fixture(scope="module")
def shopping(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    folder = tmp_path_factory.mktemp("feature")
    return installed(folder, shutil.copytree(EXAMPLE, folder / "source"))  # a build leaves its own files there


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder


class TestFeature:
    def test_its_commands_tools_view_and_prompt_are_in_the_chat(self, home: Path, shopping: Mapping[str, str]) -> None:
        lines = (",help", ",buy milk", ',buy "dark bread"', ",bought milk", ",shopping", "hello", ",why yes")
        answers = said(home, *lines, env=shopping)
        assert any(line.startswith(",buy ") for line in answers)
        assert "dark bread" in answers
        request = json.loads(next(line for line in answers if line.startswith("{")))
        assert "<shopping>dark bread</shopping>" in request["messages"][0]["content"]
        assert "shopping_add" in {item["function"]["name"] for item in request["tools"]}
        assert said(home, ",shopping", env=shopping) == ["dark bread"]

    def test_its_setting_comes_from_file_and_environment_and_is_checked(
        self, home: Path, shopping: Mapping[str, str]
    ) -> None:
        (home / "config.toml").write_text("[shopping]\nmax_items = 1\n")
        assert said(home, ",buy milk", ",buy jam", env=shopping)[-1] == "the list is full: 1 items are on it"
        more = {**shopping, "BUBBOT_SHOPPING__MAX_ITEMS": "2"}
        assert said(home, ",buy jam", env=more) == ["jam is on the list."]
        wrong = run(home, "chat", env={**shopping, "BUBBOT_SHOPPING__MAX_ITEMS": "none"})
        assert sentence(wrong).endswith("[shopping] max_items is 'none', but must be a whole number from 1.")
        (home / "config.toml").write_text("[shoping]\nmax_items = 1\n")
        assert "[shoping] is not a section; did you mean 'shopping'" in sentence(run(home, "chat", env=shopping))

    async def test_a_daemon_has_it_too(self, home: Path, shopping: Mapping[str, str]) -> None:
        (home / "config.toml").write_text("[shopping]\nmax_items = 1\n")
        async with running(home, env=shopping):
            answers = await asyncio.to_thread(said, home, ",buy milk", ",buy jam", ",shopping", env=shopping)
        assert answers == ["milk is on the list.", "the list is full: 1 items are on it", "milk"]

    def test_its_command_is_one_of_the_shell_and_of_chats(self, home: Path, shopping: Mapping[str, str]) -> None:
        top = run(home, "--help", env=shopping).stdout.decode()
        assert "  shopping  A shopping list for each conversation, as a feature of bubbot.\n" in top
        helped = run(home, "shopping", "put", "--help", env=shopping).stdout.decode()
        assert "usage: bubbot shopping put [-h]" in helped
        assert "  --session SESSION  the conversation (default: default)\n" in helped
        done = run(home, "shopping", "put", "milk, jam", "--session", "work", env=shopping)
        assert (done.returncode, done.stdout) == (0, b"milk, jam\n"), done.stderr
        assert said(home, ",put tea,milk", ",shopping", env=shopping) == ["tea, milk", "tea", "milk"]
        full = {**shopping, "BUBBOT_SHOPPING__MAX_ITEMS": "2"}
        done = run(home, "shopping", "put", "rice", env=full)
        assert (done.returncode, sentence(done)) == (2, "bubbot: the list is full: it takes 2 items")
        assert said(home, ",put rice", env=full) == ["the list is full: it takes 2 items"]
        [refused] = said(home, ",put rice session=work", env=shopping)
        assert refused == "in a chat this command works on the chat itself; the shell reaches the others"
        assert run(home, "shopping", env=shopping).returncode == 2
        assert "did you mean 'shopping'?" in run(home, "shoping", env=shopping).stderr.decode()
        assert run(home, "shopping", "put", "rice").returncode == 2, "not installed"

    async def test_its_command_takes_effect_in_the_running_bot(self, home: Path, shopping: Mapping[str, str]) -> None:
        (home / "config.toml").write_text("[shopping]\nmax_items = 2\n")
        async with running(home, env=shopping) as daemon, asyncio.timeout(60):
            while "action=run.started" not in daemon.errors:  # noqa: ASYNC110 - another process has no event
                await asyncio.sleep(0.02)
            first = await asyncio.to_thread(said, home, ",buy milk", env=shopping)
            done = await asyncio.to_thread(run, home, "shopping", "put", "jam", env=shopping)
            assert (done.returncode, done.stdout) == (0, b"milk, jam\n"), done.stderr
            answers = await asyncio.to_thread(said, home, ",shopping", ",put tea", env=shopping)
            more = {**shopping, "BUBBOT_SHOPPING__MAX_ITEMS": "9"}
            refused = await asyncio.to_thread(run, home, "shopping", "put", "tea", env=more)
        assert first == ["milk is on the list."]
        assert answers == ["milk", "jam", "the list is full: it takes 2 items"]
        assert sentence(refused) == "bubbot: the list is full: it takes 2 items", "the bot's own settings hold"

    def test_its_own_test_passes_where_it_is_installed(self, tmp_path: Path, shopping: Mapping[str, str]) -> None:
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:simcord", "--rootdir", str(tmp_path)]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, str(EXAMPLE / "test_shopping.py")],
            env=dict(shopping),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def test_the_worked_example_is_short(self) -> None:
        files = [path for path in EXAMPLE.iterdir() if path.is_file()]
        assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) <= 150

    def test_a_broken_one_is_named_and_left_out(self, home: Path, tmp_path: Path) -> None:
        broken = package(tmp_path, "bubbot.features", "broken", "FACTORY", broken_feature="raise RuntimeError('no')")
        (home / "config.toml").write_text("[broken]\nkey = 1\n")
        done = run(home, "chat", lines=["hello"], env=broken)
        assert done.stdout.decode().splitlines() == ["You said: hello"]
        assert "plugin left out: The plugin 'broken' of bubbot.features" in done.stderr.decode()


class TestCommands:
    def test_a_broken_package_is_named_and_hurts_no_other_command(self, home: Path, tmp_path: Path) -> None:
        broken = package(tmp_path, "bubbot.commands", "broken", "COMMANDS", broken_commands="raise RuntimeError('no')")
        done = run(home, "broken", env=broken)
        assert done.returncode == 2
        assert "The plugin 'broken' of bubbot.commands (broken_commands:COMMANDS, from the package bubbot-broken" in (
            sentence(done)
        )
        assert "  broken " in run(home, "--help", env=broken).stdout.decode()
        assert run(home, "schedule", "list", env=broken).returncode == 0
        assert said(home, "hello", env=broken) == ["You said: hello"]
        assert "plugin.broken" in run(home, "doctor", "--offline", env=broken).stdout.decode()

    def test_one_with_a_name_of_ours_is_refused(self, home: Path, tmp_path: Path) -> None:
        clash = package(tmp_path, "bubbot.commands", "schedule", "COMMANDS", clash_commands="raise RuntimeError('no')")
        done = run(home, "schedule", "list", env=clash)
        assert (done.returncode, done.stderr) == (0, b"")
        assert run(home, "--help", env=clash).stdout.decode().count("  schedule ") == 1
        checkup = run(home, "doctor", "--offline", env=clash).stdout.decode()
        assert "The plugin 'schedule' of bubbot.commands has a name that bubbot uses itself." in checkup


class TestContextStrategy:
    def test_it_builds_requests_that_are_rebuilt_while_it_is_installed(self, home: Path, tmp_path: Path) -> None:
        newest = package(tmp_path, "bubbot.context", "newest", "STRATEGY", newest_context=STRATEGY)
        chosen = {**newest, "BUBBOT_CONTEXT__SELECTOR": "newest"}
        answers = said(home, "one", "two", ",why yes", env=chosen)
        request = json.loads(next(line for line in answers if line.startswith("{")))
        assert len(request["messages"]) == 2, "the system prompt and one message"
        assert "equal to the recorded one" in answers[-1]
        steps = [entry for entry in entries(home) if "loop.step" in str(entry["payload"])]
        assert '"selector": "newest"' in json.dumps(steps[-1])
        assert '"strategy_version": 7' in json.dumps(steps[-1])
        [told] = said(home, ",why yes")
        assert told.startswith("The request was built by the context strategy 'newest' (version 7), which cannot be")
        typo = run(home, "chat", env={**newest, "BUBBOT_CONTEXT__SELECTOR": "newst"})
        assert "did you mean 'newest'?" in sentence(typo)
        assert "must be one of auto, window" in sentence(run(home, "chat", env={"BUBBOT_CONTEXT__SELECTOR": "newest"}))


class TestStore:
    def test_a_copy_of_the_store_in_memory_holds_the_tapes(self, home: Path, tmp_path: Path) -> None:
        copied = Path(inmemory.__file__).read_text(encoding="utf-8")
        memory = package(tmp_path, "bubbot.stores", "copied", "open_store", copied_store=STORE, copied_inmemory=copied)
        chosen = {**memory, "BUBBOT_STORE__KIND": "copied", "BUBBOT_STORE__ADDRESS": "here"}
        answers = said(home, "hello", ",search hello", ",status", env=chosen)
        assert "[opened at here]" in answers
        assert "You said: hello" in answers
        assert not list(home.glob("*.db*")), "nothing is in SQLite"
        lacks = run(home, "tape", "verify", env=chosen)
        assert sentence(lacks) == "bubbot: This store (CopiedStore) keeps no hashes that could be checked."
        backup = run(home, "backup", env=chosen)
        assert "the tapes of this home are in the store 'copied'" in sentence(backup)
        checkup = run(home, "doctor", "--offline", env=chosen).stdout.decode()
        assert "store.ok" in checkup
        unknown = run(home, "chat", env={**memory, "BUBBOT_STORE__KIND": "copyed"})
        assert "No plugin 'copyed' in bubbot.stores: did you mean 'copied'?" in sentence(unknown)
