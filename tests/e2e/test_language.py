"""The command line speaks the language of the bot; before there is a configuration, that of the shell."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from tests.e2e import bot
from tests.e2e.daemon import configured, running
from tests.fakes.botapi.server import Server

ENGLISH = re.compile(
    r"(?<![-\w])(?:the|of|is|and|this|with|for|to|that|it|are|not|your|or|from|which)\b", re.IGNORECASE
)
"""Words of nearly every English sentence, which German does not have."""


def english_lines(text: str) -> list[str]:
    """List the lines with English words, without commands in backquotes and paths."""
    return [line for line in text.splitlines() if ENGLISH.search(re.sub(r"`[^`]*`|/\S+", "", line))]


def printed(home: Path, *arguments: str, code: int = 0, lines: str = "", **env: str) -> str:
    done = bot.run(home, *arguments, lines=lines, env={"PATH": "/nowhere", **env})
    assert done.returncode == code, (done.stdout + done.stderr).decode()
    return done.stdout.decode()


@pytest.mark.parametrize(
    ("locale", "tag", "first"), [("zh_CN.UTF-8", "zh", "现在为您"), ("de_AT", "de", "Das richtet")]
)
def test_init_asks_in_the_language_of_the_shell_and_sets_it(home: Path, locale: str, tag: str, first: str) -> None:
    told = printed(home, "init", "--model", "scripted", lines="\n" * 5, LC_ALL="", LC_MESSAGES=locale, LANG="C.UTF-8")
    assert told.startswith(first)
    assert english_lines(told) == []
    assert f'language = "{tag}"' in (home / "config.toml").read_text()


def test_the_language_that_was_chosen_is_spoken_from_then_on(home: Path) -> None:
    told = printed(home, "init", "--model", "scripted", lines="\nde\nMars\n\n\n\n", LC_ALL="C.UTF-8")
    before, _, after = told.partition("3  中文\n")
    assert before.startswith("This sets up the bot")
    assert english_lines(after) == []
    assert "'Mars' ist keine Zeitzone" in after
    assert printed(home, "init", lines="", LC_ALL="zh_CN.UTF-8", code=1).startswith("Das richtet")


@pytest.mark.parametrize(
    ("tag", "first"), [("de", "Für diesen Ordner läuft kein Bot"), ("zh", "这个主目录没有机器人在运行")]
)
def test_status_speaks_the_language_of_the_bot_and_its_json_english(home: Path, tag: str, first: str) -> None:
    home.mkdir()
    (home / "config.toml").write_text(f'[bot]\nlanguage = "{tag}"\n')
    told = printed(home, "status", code=1)
    assert told.startswith(first)
    assert english_lines(told) == []
    verdict = "No bot runs for this home; this is what its database says."
    assert json.loads(printed(home, "status", "--json", code=1))["verdict"] == verdict


async def test_a_running_bot_reports_in_the_language_that_the_shell_asks_for(home: Path) -> None:
    async with Server(limits=None) as server:
        configured(home, server)
        async with running(home) as daemon:
            await daemon.quiet(server)
            told = await asyncio.to_thread(printed, home, "status", BUBBOT_BOT__LANGUAGE="zh")
            assert told.startswith("准备就绪：启动后还没有回合。")
            assert english_lines(told) == []
            report = json.loads(await asyncio.to_thread(printed, home, "status", "--json", BUBBOT_BOT__LANGUAGE="zh"))
            assert report["verdict"] == "Ready: no turn since the start."


@pytest.mark.parametrize(("tag", "usage"), [("de", "Aufruf: "), ("zh", "用法：")])
def test_help_speaks_the_language_of_the_bot(home: Path, tag: str, usage: str) -> None:
    home.mkdir()
    (home / "config.toml").write_text(f'[bot]\nlanguage = "{tag}"\n')
    for words in ([], ["schedule", "add", "-h"], ["help", "tape", "gc"]):
        told = printed(home, *words, LC_ALL="C.UTF-8")
        assert told.startswith(usage)
        assert english_lines(told) == []


def test_help_of_another_home_is_in_its_language_and_without_one_in_that_of_the_shell(home: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text('[bot]\nlanguage = "de"\n')
    place = f"--home={home}"
    for words in ([place, "status", "--help"], ["status", "-h", place], [place, "help", "status"]):
        assert printed(home, *words, BUBBOT_HOME=str(home / "none")).startswith("Aufruf: ")
    assert printed(home, "--help", BUBBOT_HOME=str(home / "none"), LANG="zh_TW.UTF-8").startswith("用法：")
    (home / "config.toml").write_text("language = [")
    assert printed(home, "--help", LC_ALL="de_DE").startswith("Aufruf: ")
    assert printed(home, "--help", LC_ALL="de_DE", BUBBOT_BOT__LANGUAGE="en").startswith("usage: ")
