"""A channel from a distribution of its own: installed, found by its entry point, talked with, and killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bubbot.gateway.inbox import inbox_tape
from bubbot.gateway.outbox import outbox_tape
from tests.e2e.bot import run, sentence
from tests.e2e.daemon import WAIT, Daemon, running, started
from tests.e2e.kill_harness import GAVE_UP, damage, entries_of

SOURCE = Path(__file__).parents[2] / "examples" / "own_channel"
SCRIPT = {
    "rules": [
        {"when": "think", "steps": [{"text": "answer to <{text}>", "delay": 0.03}]},
        {"when": "ponder", "steps": [{"text": "answer to <{text}>", "delay": 600}]},
    ],
    "default": [{"text": "answer to <{text}>"}],
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of a program that finds the distribution beside what is installed here."""
    folder = tmp_path_factory.mktemp("own_channel")
    copy = shutil.copytree(SOURCE, folder / "source")  # a build leaves its own files beside the source
    pip = [sys.executable, "-m", "pip", "--isolated", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(folder / "target")]
    done = subprocess.run([*pip, *options, str(copy)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return {"PYTHONPATH": str(folder / "target")}


class Box:
    """A letterbox, and the person who uses it: whoever runs the test."""

    def __init__(self, folder: Path, **keys: Any) -> None:
        self.home, self.path = folder / "home", folder / "letters"
        self.said: list[str] = []
        self.home.mkdir()
        (self.home / "script.json").write_text(json.dumps(SCRIPT))
        table = {"kind": "letterbox", "path": str(self.path), "interval": 0.01, "owners": [os.getuid()]}
        table |= {"debounce": 0, **keys}
        lines = ["[model]", 'name = "scripted"', f"script = {json.dumps(str(self.home / 'script.json'))}"]
        lines += ["[channels.letters]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
        (self.home / "config.toml").write_text("\n".join(lines) + "\n")
        for name in ("tmp", "new", "cur"):
            (self.path / name).mkdir(parents=True)

    def put(self, data: bytes, name: str) -> None:
        """Puts a file into the box."""
        (self.path / "tmp" / name).write_bytes(data)
        (self.path / "tmp" / name).rename(self.path / "new" / name)

    def say(self, text: str) -> None:
        """Says something."""
        self.said.append(text)
        self.put(text.encode(), f"{len(self.said)}.txt")

    def answers(self) -> list[str]:
        """What the bot has said, oldest first."""
        out = self.path / "out" / str(os.getuid())
        files = [file for name in ("new", "cur") for file in (out / name).glob("*.md*")]
        return [file.read_text() for file in sorted(files, key=lambda one: one.stat().st_mtime_ns)]

    def waiting(self) -> list[str]:
        """The files that nobody has taken."""
        return sorted(file.name for file in (self.path / "new").iterdir())

    def read(self) -> None:
        """The person reads the answers and puts them away, as one does in a Maildir."""
        out = self.path / "out" / str(os.getuid())
        for file in (out / "new").glob("*"):
            file.rename(out / "cur" / f"{file.name}:2,S")

    async def faults(self) -> list[str]:
        """What is lost, doubled or damaged; empty where the promises were kept."""
        seen = Counter(self.answers())
        given_up = sum(count for text, count in seen.items() if GAVE_UP.fullmatch(text))
        counts = {text: seen[f"answer to <{text}>"] for text in self.said}
        faults = [f"{text} was answered {count} times" for text, count in counts.items() if count > 1]
        if sum(not count for count in counts.values()) != given_up or seen.total() != len(self.said):
            faults.append(f"{len(self.said)} were said; {given_up} given up, answers {seen}")
        inbox, outbox = (
            await entries_of(self.home, inbox_tape("letters")),
            await entries_of(self.home, outbox_tape("letters")),
        )
        facts = Counter(entry.name for entry in (*inbox, *outbox))
        wanted = dict.fromkeys(("inbox/received", "outbox/intent", "outbox/receipt"), len(self.said))
        faults += [f"{facts[name]} times {name}" for name, count in wanted.items() if facts[name] != count]
        return faults + await damage(self.home)


async def until(done: Callable[[], object], daemon: Daemon, pause: float = 0.005) -> None:
    """Waits for a condition, looking each time after a pause."""
    try:
        async with asyncio.timeout(WAIT):
            while not done():  # noqa: ASYNC110 - files tell nobody that they are there
                await asyncio.sleep(pause)
    except TimeoutError:
        pytest.fail(f"it took longer than {WAIT:g} seconds; the bot says:\n{daemon.errors}")


@pytest.mark.proof
async def test_an_installed_channel_is_talked_with_and_stops_cleanly(
    tmp_path: Path, installed: Mapping[str, str]
) -> None:
    box = Box(tmp_path)
    async with running(box.home, env=installed) as daemon:
        box.say("good morning")
        await until(box.answers, daemon)
        box.put(b"caf\xe9", "odd.txt")
        box.say("and on")
        await until(lambda: len(box.answers()) == 2, daemon)
        assert box.answers() == ["answer to <good morning>", "answer to <and on>"]
        await until(lambda: not box.waiting(), daemon)
    assert await box.faults() == []
    odd = [
        entry.payload["data"]
        for entry in await entries_of(box.home, inbox_tape("letters"))
        if entry.name == "inbox/unparsed"
    ]
    assert [one["reason"] for one in odd] == [
        "a file is no message: it is not valid UTF-8 (byte 4) (4 bytes of an unknown sender)"
    ]
    assert "Traceback" not in daemon.errors
    assert daemon.errors.count("action=receive.unparsed") == 1, "the operator is told"


def _starts(box: Box) -> int:
    errors = box.home / "errors"
    return errors.read_text().count("action=run.started") if errors.exists() else 0


async def _killed(box: Box, chance: random.Random, env: Mapping[str, str], *, at_once: bool) -> None:
    """Says a few things to a bot, and kills it when it has taken or answered some of them: a moment later, or `at_once`,
    which is before it can have noted that it has."""
    before = _starts(box)
    daemon = await started(box.home, env=env)
    await until(lambda: _starts(box) > before, daemon)
    waited, answered = len(box.waiting()), len(box.answers())
    for _ in range(few := chance.randint(2, 4)):
        box.say(f"{chance.choice(('say', 'think'))} {len(box.said)}")
    goal = chance.randint(1, few)
    if chance.random() < 0.5:
        await until(lambda: waited + few - len(box.waiting()) >= goal, daemon, 0)
    else:
        await until(lambda: len(box.answers()) - answered >= goal, daemon, 0)
    if not at_once:
        await asyncio.sleep(chance.random() * 0.03)
    await daemon.kill()
    if chance.random() < 0.5:
        box.read()


@pytest.mark.proof
@pytest.mark.parametrize("kills", [6, pytest.param(40, marks=pytest.mark.proof)])
async def test_a_kill_at_any_instant_loses_and_doubles_nothing(
    tmp_path: Path, installed: Mapping[str, str], kills: int
) -> None:
    box = Box(tmp_path, messages_per_minute=0)  # forty lives say more in a minute than one person may
    chance = random.Random(kills)
    for number in range(kills):
        await _killed(box, chance, installed, at_once=number % 4 != 3)
    async with running(box.home, env=installed) as daemon:
        await until(lambda: len(box.answers()) >= len(box.said) and not box.waiting(), daemon)
        box.say("the last one")
        await until(lambda: "answer to <the last one>" in box.answers(), daemon)
    assert await box.faults() == []


def _turns_begun(home: Path) -> int:
    """The highest epoch of a turn whose call of the model is recorded: each life of a bot takes the next."""
    with closing(sqlite3.connect(f"file:{home / 'bubbot.db'}?mode=ro", uri=True)) as database:
        (epoch,) = database.execute("SELECT max(epoch) FROM forks JOIN fork_batches USING (fork)").fetchone()
        return epoch or 0


@pytest.mark.proof
async def test_a_turn_that_ends_two_bots_is_given_up_with_one_sentence(
    tmp_path: Path, installed: Mapping[str, str]
) -> None:
    box = Box(tmp_path)
    box.say("ponder")
    for life in (1, 2):
        daemon = await started(box.home, env=installed)
        await until(lambda: _starts(box) == life, daemon)  # noqa: B023 - it is called before the next life
        await until(lambda: _turns_begun(box.home) == life, daemon)  # noqa: B023
        await daemon.kill()
    async with running(box.home, env=installed) as daemon:
        await until(box.answers, daemon)
        box.say("the last one")
        await until(lambda: "answer to <the last one>" in box.answers(), daemon)
    assert [bool(GAVE_UP.fullmatch(text)) for text in box.answers()] == [True, False]
    assert await box.faults() == []


@pytest.mark.proof
def test_a_setting_that_cannot_be_is_one_sentence(tmp_path: Path, installed: Mapping[str, str]) -> None:
    box = Box(tmp_path, intervall=3)
    done = run(box.home, "run", env=installed)
    assert done.returncode == 2
    assert sentence(done) == (
        "bubbot: [channels.letters] intervall is not a key of a letterbox: there are path and interval."
    )


def test_without_its_distribution_the_kind_is_unknown(tmp_path: Path) -> None:
    done = run(Box(tmp_path).home, "run")
    assert done.returncode == 2
    assert "[channels.letters] kind: No plugin 'letterbox' in bubbot.channels: there are:" in sentence(done)
