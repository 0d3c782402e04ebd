"""Packages that extend a bot: a feature, installed by pip, a context strategy and a store, used from `bubbot chat`."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.e2e.bot import entries, run, said, sentence
from tests.e2e.daemon import running
from tests.e2e.test_control import until
from tests.e2e.test_status import Door
from tests.installed import installed

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_feature"
STRATEGY = """
from bubbot.runtime.context.selectors import select_messages
from bubbot.runtime.context.strategy import ContextStrategy, ModelContext

def newest(source):
    return ModelContext(select_messages(source.entries, source.style)[-1:])

STRATEGY = ContextStrategy("newest", newest, version=7)
"""
BRIEF = """
from bubbot.runtime.context.selectors import ContextMessage, select_messages
from bubbot.runtime.context.strategy import ContextStrategy, ModelContext
from bubbot.tape.events import ContextPrepared

async def prepare(ports, source):
    {prepare}

def show(source):
    newest = select_messages(source.entries, source.style)[-1:]
    prepared = source.find_prepared("brief")
    if not prepared:
        return ModelContext(newest)
    return ModelContext((ContextMessage({{"role": "assistant", "content": prepared[-1].data["text"]}}, ()), *newest))

STRATEGY = ContextStrategy("brief", show, prepare=prepare)
"""
ASKS = """
    said = " ".join(entry.payload["content"] for entry in source.answered)
    text = await ports.ask_model([{"role": "user", "content": "condense " + said}], "condense")
    return [ContextPrepared(data={"text": text})]
"""
STORE = """
from copied_inmemory import InMemoryStore

class CopiedStore(InMemoryStore):
    pass

async def open_store(options):
    print(f"[opened at {options.address}]")
    return CopiedStore()
"""
PLANTS = """
from contextlib import asynccontextmanager

from bubbot.feature import Feature, FeatureFactory, Lifecycle
from bubbot.ports.checks import Check, Finding
from bubbot.ports.health import FeatureHealth, HealthRow, MetricSample, MetricSpec
from bubbot.arguments.fields import NoArguments
from bubbot.tool import tool
from bubbot.tape.entry import event

TAPE, WATERED = "plants/garden", MetricSpec("bubbot_plants_watered", "How often plants were watered.", "counter")

def report(count):
    row = HealthRow("plants", (f"watered {count} times",))
    return FeatureHealth(name="plants", rows=(row,), data={"watered": count}, samples=(MetricSample(WATERED.name, count),))

async def read_health(home, context):
    async with home.open_tape(TAPE) as tape:
        return report(await tape.head())

async def check_soil(home):
    async with home.open_tape(TAPE) as tape:
        count = await tape.head()
    return [Finding("plants.wet", "warning", f"The soil is wet after {count} times.", "sleep 1")] if count > 1 else []

async def check_pots(home):
    raise RuntimeError("no pots")

def build(kernel, settings):
    tape, counts = kernel.open_tape(TAPE), []

    @asynccontextmanager
    async def lifespan():
        counts[:] = [await tape.head()]
        yield

    @tool("plants.water", commands=("water",))
    async def water(turn, args: NoArguments) -> str:
        "Water the plants."
        await tape.append([event("plants/watered", {})])
        counts[0] += 1
        return "done"

    return Feature(
        name="plants",
        tools=[water],
        lifecycle=Lifecycle(lifespan=lifespan),
        metrics=[WATERED],
        health=lambda context: report(counts[0]),
    )

CHECKS = (Check("the soil", check_soil, reads_tapes=True), Check("the pots", check_pots))
FACTORY = FeatureFactory("plants", build, health=read_health, checks=CHECKS)
"""

BROKEN = """
import asyncio
from bubbot.feature import Feature, FeatureFactory, Lifecycle
from bubbot.ports.settings import SettingsSection
from bubbot.arguments.fields import NoArguments
from bubbot.tool import tool

class OddSettings(SettingsSection):
    days: int = 1

@tool("odd.ping", commands=("ping",))
async def ping(turn, args: NoArguments) -> str:
    "Say pong."
    return "pong"

async def fail(*args):
    raise ValueError("boom")

LIFECYCLE = Lifecycle(background={"work": fail}, prepare=fail)

def build(kernel, settings):
    if settings.days == 3:
        raise KeyError("three")
    return Feature(name="odd", tools=[ping], prompt=[fail], on_merged=[fail], lifecycle=LIFECYCLE)

FACTORY = FeatureFactory("odd", build, OddSettings)
"""

OLDER = """
from pydantic import BaseModel, Field
from bubbot.feature import Feature, FeatureFactory
from bubbot.tool import tool

class RollArgs(BaseModel):
    sides: int = Field(default=6, description="how many sides")

@tool("dice.roll")
async def roll(turn, args: RollArgs) -> str:
    "Roll a dice."
    return "4"

FACTORY = FeatureFactory("dice", lambda kernel, settings: Feature(name="dice", tools=[roll]))
"""


def package(folder: Path, group: str, name: str, member: str, **modules: str) -> Mapping[str, str]:
    """The environment of a program that finds a distribution whose first module offers an entry point.

    It lies there as pip would leave it; the example is what pip builds and installs.
    """
    first = next(iter(modules))
    installed(folder, f"bubbot-{first}", "1.0", f"[{group}]\n{name} = {first}:{member}\n")
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)
    return {"PYTHONPATH": str(folder)}


@pytest.fixture(scope="module")
def shopping(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of a program that finds the example beside what is installed here."""
    folder = tmp_path_factory.mktemp("feature")
    source, target = shutil.copytree(EXAMPLE, folder / "source"), folder / "target"  # a build leaves its own files
    pip = [sys.executable, "-m", "pip", "--isolated", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
    done = subprocess.run([*pip, *options, str(source)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return {"PYTHONPATH": str(target)}


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    return package(tmp_path_factory.mktemp("odd"), "bubbot.features", "odd", "FACTORY", odd_feature=BROKEN)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder


class TestFeature:
    def test_its_commands_tools_view_and_prompt_are_in_the_chat(self, home: Path, shopping: Mapping[str, str]) -> None:
        lines = (",help all", ",buy milk", ',buy "dark bread"', ",bought milk", ",shopping", "hello", ",why yes")
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
        line = "Installed packages: shopping A shopping list for each conversation, as a feature of bubbot."
        assert line in " ".join(top.split())
        helped = run(home, "shopping", "put", "--help", env=shopping).stdout.decode()
        assert "usage: bubbot shopping put [OPTIONS]" in helped
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

    async def test_its_health_metric_and_checks_are_with_those_of_the_bot(self, home: Path, tmp_path: Path) -> None:
        plants = package(tmp_path, "bubbot.features", "plants", "FACTORY", garden=PLANTS)
        watched = {**plants, "BUBBOT_HEALTH__PORT": "0", "BUBBOT_LOG__FORMAT": "json"}

        def status() -> tuple[str, int]:
            text = run(home, "status", env=plants).stdout.decode()
            return text, json.loads(run(home, "status", "--json", env=plants).stdout)["watered"]

        assert status()[1] == 0, "there is no database yet"
        async with running(home, env=watched) as daemon, asyncio.timeout(60):
            while "run.started" not in daemon.errors:  # noqa: ASYNC110 - another process has no event
                await asyncio.sleep(0.02)
            await asyncio.to_thread(said, home, ",water", ",water", env=plants)
            assert "plants: watered 2 times" in await asyncio.to_thread(said, home, ",status", env=plants)
            text, count = await asyncio.to_thread(status)
            assert ("bot     " in text, "plants          watered 2 times\n" in text, count) == (True, True, 2)
            assert (await Door(daemon).numbers())["bubbot_plants_watered_total{}"] == 2
        text, count = status()
        assert ("bot     " in text, "plants          watered 2 times\n" in text, count) == (False, True, 2)
        done = run(home, "doctor", "--offline", "--json", env=plants)
        findings = {one["id"]: one for one in json.loads(done.stdout)["findings"]}
        assert (done.returncode, findings["plants.wet"]["level"], findings["plants.wet"]["fix"]) == (
            1,
            "warning",
            "sleep 1",
        )
        failed = findings["doctor.failed"]
        assert failed["cause"] == (
            "The check of the pots (the feature 'plants' of the package bubbot-garden) failed, so its result is unknown: "
            "RuntimeError: no pots."
        )
        assert failed["fix"].endswith("-m pip install --upgrade bubbot-garden")
        assert {"config.ok", "plugin.ok"} <= findings.keys()

    @pytest.mark.proof
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
        assert "feature broken left out: The plugin 'broken' of bubbot.features" in done.stderr.decode()

    def test_a_tool_whose_arguments_are_a_pydantic_model_is_named_with_the_fix(
        self, home: Path, tmp_path: Path
    ) -> None:
        older = package(tmp_path, "bubbot.features", "dice", "FACTORY", dice_feature=OLDER)
        done = run(home, "chat", lines=["hello"], env=older)
        assert done.stdout.decode().splitlines() == ["You said: hello"]
        told = " ".join(done.stderr.decode().split())
        assert "feature dice left out" in told
        refused = "the tool dice.roll takes dice_feature.RollArgs, which is no class of arguments"
        assert f"{refused}: derive it from bubbot.arguments.fields.Args" in told


class TestBrokenFeature:
    """As a user meets them: chat, daemon, status, doctor, reload. `tests/unit/app/test_guard.py` has every hook."""

    def test_hooks_that_fail_cost_no_answer_in_the_chat(self, home: Path, odd: Mapping[str, str]) -> None:
        done = run(home, "chat", lines=["hello", ",ping"], env=odd)
        assert done.stdout.decode().splitlines() == ["You said: hello", "pong"]
        assert "feature odd failed: prompt: ValueError: boom" in done.stderr.decode()

    def test_one_that_cannot_be_built_is_left_out(self, home: Path, odd: Mapping[str, str]) -> None:
        done = run(home, "chat", lines=["hello", ",ping", ",status"], env={**odd, "BUBBOT_ODD__DAYS": "3"})
        told = done.stdout.decode()
        assert "You said: hello" in told
        assert "no command ,ping" in told
        assert "features: odd is left out: KeyError: 'three'" in told

    async def test_a_daemon_goes_on_and_status_and_doctor_name_it(self, home: Path, odd: Mapping[str, str]) -> None:
        (home / "config.toml").write_text("[odd]\ndays = 1\n")
        async with running(home, env=odd):
            await asyncio.to_thread(until, (home / "daemon.lock").exists)
            answers = await asyncio.to_thread(said, home, "hello", ",ping", env=odd)
            assert answers == ["You said: hello", "pong"]
            status = await asyncio.to_thread(run, home, "status", env=odd)
            assert "odd failed at " in status.stdout.decode()
            checkup = await asyncio.to_thread(run, home, "doctor", "--offline", env=odd)
            assert "The installed feature odd has failed in the running bot:" in checkup.stdout.decode()
            (home / "config.toml").write_text("[odd]\ndays = 2\n[memory]\nrecent_days = 3\n")
            reload = await asyncio.to_thread(run, home, "reload", env=odd)
            assert "The feature 'odd' cannot take its settings: prepare: ValueError: boom" in reload.stderr.decode()
            (home / "config.toml").write_text("[odd]\ndays = 1\n[memory]\nrecent_days = 3\n")
            reload = await asyncio.to_thread(run, home, "reload", env=odd)
            assert reload.returncode == 0, reload.stderr
            assert await asyncio.to_thread(said, home, "and now", env=odd) == ["You said: and now"]

    def test_the_section_of_one_that_was_uninstalled_is_named_and_passed_over(self, home: Path) -> None:
        (home / "config.toml").write_text("[weather]\ndays = 1\n")
        done = run(home, "chat", lines=["hello"])
        assert done.stdout.decode().splitlines() == ["You said: hello"]
        assert "[weather] belongs to no installed feature, and is not read." in done.stderr.decode()
        checkup = run(home, "doctor", "--offline").stdout.decode()
        assert "[weather] belongs to no installed feature, and is not read." in checkup


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
        assert run(home, "--help", env=clash).stdout.decode().count("\n  schedule ") == 1
        checkup = run(home, "doctor", "--offline", env=clash).stdout.decode()
        assert "The plugin 'schedule' of bubbot.commands has a name that bubbot uses itself." in checkup


class TestContextStrategy:
    def test_it_builds_requests_that_are_rebuilt_while_it_is_installed(self, home: Path, tmp_path: Path) -> None:
        newest = package(tmp_path / "package", "bubbot.context", "newest", "STRATEGY", newest_context=STRATEGY)
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


class TestPreparingStrategy:
    """A strategy that asks the model, from a package, in a real home."""

    def installed(self, folder: Path, prepare: str) -> Mapping[str, str]:
        source = BRIEF.format(prepare=prepare.strip())
        brief = package(folder, "bubbot.context", "brief", "STRATEGY", brief_context=source)
        return {**brief, "BUBBOT_CONTEXT__SELECTOR": "brief", "BUBBOT_CONTEXT__TIMEOUT": "5"}

    def test_its_requests_are_built_again_without_its_ports(self, home: Path, tmp_path: Path) -> None:
        answers = said(home, "hello", env=self.installed(tmp_path / "one", ASKS))
        assert answers == ["You said: hello"]
        steps = [entry for entry in entries(home) if "loop.step" in str(entry["payload"])]
        assert [entry["payload"]["data"].get("purpose") for entry in steps] == ["brief/condense", None]  # type: ignore[index]
        assert '"text": "You said: condense hello"' in json.dumps(entries(home))
        without = self.installed(tmp_path / "two", "raise AssertionError")
        told = said(home, ",why yes", env=without)
        request = json.loads(next(line for line in told if line.startswith("{")))
        assert "You said: condense hello" in str(request["messages"])
        assert "equal to the recorded one" in told[-1]
        usage = json.loads(run(home, "usage", "--json").stdout)
        assert usage["total"]["calls"] == 2
        replayed = run(home, "replay", "default", env=without)
        assert replayed.returncode == 0, replayed.stdout.decode()
        again = run(home, "replay", "default", "-m", "scripted", env=without)
        assert again.returncode == 0, "not even to run the turns again"
        assert b"AssertionError" not in replayed.stderr + again.stderr

    @pytest.mark.parametrize(
        ("prepare", "problem"),
        [
            ("import asyncio; await asyncio.Event().wait()", "prepare: it took longer than 0.2 seconds"),
            ("raise RuntimeError('boom')", "prepare: RuntimeError: boom"),
            ("return {'a': 1}", "prepare: TypeError: it returned a dict"),
            ("await ports.read_granted('telegram:42')", "prepare: stdin:default may not read telegram:42"),
        ],
        ids=["hangs", "raises", "garbage", "not granted"],
    )
    def test_one_that_fails_is_named_and_the_answer_comes(
        self, home: Path, tmp_path: Path, prepare: str, problem: str
    ) -> None:
        env = {**self.installed(tmp_path, prepare), "BUBBOT_CONTEXT__TIMEOUT": "0.2"}
        done = run(home, "chat", lines=("one", "two", ",why"), env=env)
        assert b"Traceback" not in done.stdout + done.stderr
        answers = done.stdout.decode().splitlines()
        assert answers[:2] == ["You said: one", "You said: two"]
        line = next(line for line in answers if "the context strategy brief failed, so window built" in line)
        assert problem in line
        assert problem in done.stderr.decode(), "the log names it, too"

    def test_one_over_budget_gives_way_to_the_answer_or_to_the_notice(self, home: Path, tmp_path: Path) -> None:
        (home / "config.toml").write_text("[budget]\ntokens_day = 200\n")
        chosen = self.installed(tmp_path, ASKS)
        assert said(home, "one", env=chosen) == ["You said: one"], "its answer was let over the limit"
        told, *why = said(home, "two", ",why", env=chosen)
        assert "budget" in told
        assert any("context strategy brief failed" in line for line in why)


class TestStore:
    def test_a_copy_of_the_store_in_memory_holds_the_tapes(self, home: Path, tmp_path: Path) -> None:
        copied = (ROOT / "bubbot" / "stores" / "inmemory.py").read_text(encoding="utf-8")
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
        checkup = run(home, "doctor", "--offline", "--all", env=chosen).stdout.decode()
        assert "store.ok" in checkup
        unknown = run(home, "chat", env={**memory, "BUBBOT_STORE__KIND": "copyed"})
        assert "No plugin 'copyed' in bubbot.stores: did you mean 'copied'?" in sentence(unknown)
