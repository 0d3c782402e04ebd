"""A backup in the middle of traffic, restored elsewhere while the first bot went on: nothing is said twice."""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from tests.e2e import forked
from tests.e2e.bot import entries, run, sentence
from tests.e2e.daemon import Daemon, configure, running
from tests.e2e.key_server import KEY, key_server
from tests.e2e.kill_talk import BARE
from tests.e2e.platforms import OnDiscord, OnTelegram, Platform, counted
from tests.fakes.botapi.server import Server as BotApi
from tests.fakes.discordapi.server import Server as DiscordApi

PACE = 3.0 if forked.ANEW in os.environ else 1.2
"""Seconds a word of the slow answer takes: the backup, a process that takes a moment to start, must not come too late."""
SCRIPT = {"rules": [{"when": "slow", "steps": [{"pace": PACE, "text": "Slowly: {text}"}]}]}
LATER = {"Slowly: a slow one", "You said: after the backup", "⏰ tea"}
HELD = "quarantine: no channel is started"
HELD_STATUS = "Not answering: in quarantine, with no channel. `bubbot restore --release`, and then a new start"


@pytest.fixture
async def platforms() -> AsyncIterator[list[Platform]]:
    async with DiscordApi(limits=None) as discord, BotApi(limits=None, conflict_pause=0.1, longest_poll=0.3) as server:
        yield [OnDiscord(discord), OnTelegram(server)]


def fine(home: Path, *arguments: str) -> str:
    """What a command prints that goes well."""
    done = run(home, *arguments)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


async def until(true: Callable[[], object]) -> None:
    """Waits for what no server hears of."""
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110 - what a process of its own does
            await asyncio.sleep(0.05)


def names(home: Path, tape: str) -> Counter[str]:
    """How often each event is on a tape."""
    return Counter(str(one["payload"]["name"]) for one in entries(home, tape, "--kinds", "event"))  # type: ignore[index]


def transcripts(platforms: list[Platform]) -> list[int]:
    """How many requests each server has had: a bot that is not connected makes none."""
    return [len(one.server.log) for one in platforms]


async def heard(home: Path, platforms: list[Platform], count: int) -> None:
    """Waits until so many messages are accepted on each platform."""
    for one in platforms:
        async with asyncio.timeout(20):
            while (await asyncio.to_thread(names, home, f"bubbot/inbox/{one.name}"))["inbox/received"] < count:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def first_life(home: Path, platforms: list[Platform], people: dict[str, str], backup: Path) -> None:
    """Talk, a backup while turns run, an answer is undelivered and a reminder is set; then more talk."""
    async with running(home):
        for one in platforms:
            one.say(people[one.name], "hello")
        for one in platforms:
            await one.until(lambda one=one: one.answers(people[one.name]) == ["You said: hello"], 60)  # type: ignore[misc]
            one.say(people[one.name], ",remind in 4s: tea")
        await heard(home, platforms, 2)
        for one in platforms:
            one.say(people[one.name], "a slow one")
        await heard(home, platforms, 3)
        for one in platforms:  # shown by the bot that goes on, which will finish it
            await one.until(lambda one=one: any(text.endswith("…") for text in one.answers(people[one.name])), 60)  # type: ignore[misc]
        await asyncio.to_thread(fine, home, "backup", str(backup))
        for one in platforms:
            one.say(people[one.name], "after the backup")
        for one in platforms:
            await one.until(lambda one=one: {*one.answers(people[one.name])} >= LATER, 60)  # type: ignore[misc]
            await one.quiet()


async def test_a_restored_bot_says_nothing_twice(tmp_path: Path, platforms: list[Platform]) -> None:
    home, other, backup = tmp_path / "home", tmp_path / "other", tmp_path / "backup"
    people = {one.name: one.person("Ada") for one in platforms}
    tables = {one.name: {**one.table(), "debounce": 0.05, "owners": [people[one.name]]} for one in platforms}
    configure(home, tables, SCRIPT)
    await first_life(home, platforms, people, backup)
    before = {one.name: counted(one, people[one.name]) for one in platforms}
    requests = transcripts(platforms)

    assert "in quarantine" in fine(other, "restore", str(backup))
    async with running(other) as daemon:
        await until(lambda: "run.started" in daemon.errors)
        assert HELD in daemon.errors
        asked = run(other, "ask", "are you there?")
        assert asked.stdout == b"You said: are you there?\n"
        assert "restored from backup" in asked.stderr.decode()
        held = run(other, "status")
        assert (held.returncode, held.stdout.decode().splitlines()[0]) == (1, f"{HELD_STATUS}, end that.")
        assert "bot: bubbot" in (told := fine(other, "ask", ",status"))
        assert "quarantine: restored from backup, made" in told
        told = fine(other, "restore", "--release")
        assert re.search("ended without an answer: [2-4] messages", told)  # with the reminders, where those came early
        assert "has to be restarted" in told
        assert fine(other, "ask", "and now?") == "You said: and now?\n"
    assert transcripts(platforms) == requests
    assert {one.name: counted(one, people[one.name]) for one in platforms} == before

    await second_life(other, platforms, people)
    for one in platforms:
        assert counted(one, people[one.name]) == before[one.name] + Counter(["You said: something new"])
        assert names(other, f"bubbot/inbox/{one.name}")["inbox/began"] == 2
    assert names(other, "bubbot/schedule")["schedule/over"] == 2
    assert sentence(run(other, "restore", "--release")).endswith("there is nothing to release")


async def second_life(home: Path, platforms: list[Platform], people: dict[str, str]) -> Daemon:
    """The released bot has its channels again; whatever it does unasked it does before it is spoken to."""
    async with running(home) as daemon:
        for one in platforms:
            await one.quiet()
        for one in platforms:
            one.say(people[one.name], "something new")
        for one in platforms:
            await one.until(lambda one=one: "You said: something new" in one.answers(people[one.name]), 60)  # type: ignore[misc]
        for one in platforms:
            await one.quiet()
    assert HELD not in daemon.errors.rpartition("run.started")[2]
    return daemon


@pytest.mark.proof
async def test_a_bot_released_to_deliver_does_what_was_left_open(tmp_path: Path) -> None:
    home, other, backup = tmp_path / "home", tmp_path / "other", tmp_path / "backup"
    async with BotApi(limits=None, conflict_pause=0.1, longest_poll=0.3) as server:
        telegram = OnTelegram(server)
        ada = telegram.person("Ada")
        configure(home, {"telegram": {**telegram.table(), "debounce": 0.05, "owners": [ada]}}, SCRIPT)
        async with running(home) as daemon:
            await telegram.quiet()
            telegram.say(ada, "a slow one")
            await heard(home, [telegram], 1)
            fine(home, "backup", str(backup))
            await daemon.kill()
        fine(other, "restore", str(backup))
        fine(other, "restore", "--release", "--deliver")

        def answered() -> list[str]:
            """Return what was said but for the preview of a killed bot, which came after the backup."""
            return [text for text in telegram.answers(ada) if text != BARE]

        async with running(other):
            await telegram.until(lambda: answered() == ["Slowly: a slow one"], 60)
            await telegram.quiet()
        assert answered() == ["Slowly: a slow one"]


RECOMMENDED = """
[model]
name = "scripted"
script = "script.json"
api_key_file = "secrets/model-api-key"
[channels.telegram]
token_file = "secrets/telegram-token"
owners = [{owner}]
groups = [-100777]
debounce = 0.05
base_url = "{base}"
base_file_url = "{file}"
"""
"""As `bubbot init` writes it: secrets in files of their own."""


def recommended(home: Path, server: BotApi, owner: str) -> None:
    """A home whose secrets are in files, none of which a backup copies."""
    (home / "secrets").mkdir(parents=True)
    text = RECOMMENDED.format(owner=owner, base=server.base_url, file=server.base_file_url)
    (home / "config.toml").write_text(text)
    (home / "script.json").write_text("{}")
    (home / "secrets" / "model-api-key").write_text("sk-of-the-model\n")
    (home / "secrets" / "telegram-token").write_text(f"{server.bot.token}\n")


def contents(files: list[str]) -> list[str]:
    """What is in these files."""
    return [Path(file).read_text().strip() for file in files]


@pytest.mark.proof
async def test_a_home_restored_without_its_secrets_can_be_read_talked_with_and_given_them_again(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    async with BotApi(limits=None, conflict_pause=0.1, longest_poll=0.3) as server:
        telegram = OnTelegram(server)
        ada, bob = telegram.person("Ada"), telegram.person("Bob")
        recommended(home, server, ada)
        fine(home, "ask", "hello")
        fine(home, "access", "grant", "telegram", bob, "member")
        fine(home, "backup", str(tmp_path / "backup"))
        told = await asyncio.to_thread(fine, other, "restore", str(tmp_path / "backup"))
        (other / "script.json").write_text("{}")
        files = [str(other / "secrets" / name) for name in ("model-api-key", "telegram-token")]
        assert re.search(rf"\[model\] api_key, the key of the model \S+: {files[0]}", told)
        assert f"[channels.telegram] token, for the channel telegram on Telegram: {files[1]}" in told
        assert re.search(rf"telegram +{ada} +owner", told)
        assert re.search(rf"telegram +{bob} +member +granted", told)
        assert "[channels.telegram] groups: -100777" in told
        assert f"[channels.telegram] base_url: '{server.base_url}'" in told

        assert run(other, "status").stdout.startswith(b"No bot runs")
        assert "stdin:default" in fine(other, "tape", "list")
        assert fine(other, "ask", "and now?") == "You said: and now?\n"
        async with running(other) as daemon:  # nothing is started in quarantine that needs a secret
            await until(lambda: "run.started" in daemon.errors)
            assert fine(other, "ask", "and now?") == "You said: and now?\n"
        fine(other, "restore", "--release")
        assert all(file in sentence(run(other, "run")) for file in files)

        told = await asyncio.to_thread(fine, other, "init", "--yes")
        assert all(f"{file} cannot be used" in told for file in files)
        lines = ["", "", "", "", server.bot.token, "", "sk-of-the-model", ""]
        done = await asyncio.to_thread(run, other, "init", lines=lines, env={"BUBBOT_MODEL__NAME": ""})
        assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()
        assert all(f"its file {file} cannot be used" in done.stdout.decode() for file in files)
        assert contents(files) == ["sk-of-the-model", server.bot.token]
        await second_life(other, [telegram], {"telegram": ada})


async def test_a_model_whose_key_is_lost_says_where_it_should_be(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text('[model]\nname = "openai/gpt-5"\napi_key_file = "key"\n')
    env = {"BUBBOT_MODEL__NAME": "openai/gpt-5"}
    assert run(home, "ask", ",help", env=env).returncode == 0
    done = run(home, "ask", "hello", env=env)
    assert done.returncode == 1
    assert f"{home / 'key'} cannot be read" in done.stderr.decode()


async def test_a_restored_home_is_asked_for_its_secrets_again(tmp_path: Path) -> None:
    """The walk of somebody who moves a bot: init, backup, restore, status, init, ask."""
    home, other, backup = tmp_path / "home", tmp_path / "other", tmp_path / "backup"
    key = tmp_path / "key"
    key.write_text(KEY)
    async with key_server() as server, BotApi(limits=None) as telegram:
        env = {
            "BUBBOT_MODEL__NAME": "openai/gpt-4.9-turbo",
            "OPENAI_BASE_URL": server.base,
            "BUBBOT_CHANNELS__TELEGRAM__BASE_URL": telegram.base_url,
            "PATH": "/nowhere",
        }

        async def walk(where: Path, *arguments: str, lines: Sequence[str] = (), code: int = 0) -> str:
            done = await asyncio.to_thread(run, where, *arguments, lines=lines, env=env)
            assert done.returncode == code, done.stdout.decode() + done.stderr.decode()
            assert "retry" not in done.stderr.decode()
            return (done.stderr if code and not done.stdout else done.stdout).decode()

        model = ["--model", "openai/gpt-4.9-turbo", "--api-key-file", str(key)]
        await walk(home, "init", "--yes", *model, "--telegram-token", "-", lines=[telegram.bot.token])
        assert await walk(home, "ask", "hello") == "OK\n"
        await walk(home, "backup", str(backup))

        told = await walk(other, "restore", str(backup))
        assert f"`bubbot --home {other} init` asks for these" in told
        assert "[model] api_key, the key of the model openai/gpt-4.9-turbo: " in told
        assert "[channels.telegram] token, for the channel telegram on Telegram: " in told
        assert KEY not in told
        # Commands that only read need no secret.
        assert "restored from backup" in await walk(other, "status", code=1)
        assert "hello" in await walk(other, "tape", "show", "stdin:default")
        calls = len(server.requests)
        assert "model-api-key" in await walk(other, "ask", "hello", code=1)
        assert len(server.requests) == calls

        lines = ["", "", "", "", telegram.bot.token, "", "", KEY]
        told = await walk(other, "init", lines=lines)
        assert "Secrets that are missing" in told
        assert "[model] api_key, the key of the model" in told
        assert await walk(other, "ask", "hello again") == "OK\n"
        assert (other / "secrets" / "telegram-token").read_text() == f"{telegram.bot.token}\n"
        assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
