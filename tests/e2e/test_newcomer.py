"""From an installed clone to a bot with people, a group and a backup, with nothing but what the pages say to type."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from bubbot.models.local import model as local
from tests.docs.pages import ROOT
from tests.e2e.newcomer import ASK_TOKEN, NOT_WALKED, SECONDS_PER_KEY, walk_all
from tests.e2e.terminal import CTRL_C, ENTER, Terminal

PAGE = (
    (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8").partition("## To Telegram")[2].partition("\n## ")[0]
)
TYPED = "".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)).splitlines()
"""What the page says to type, a command a line."""
MAX_KEYS = {
    "install to the first answer": 8,
    "Telegram as owner": 300,
    "a second person": 20,
    "a group": 60,
    "backup, restore, talking again": 220,
}
"""Keys that each way takes at most; 300 are 90 seconds."""


async def test_a_newcomer_gets_an_answer_and_a_bot_set_up_for_telegram_with_few_keys(tmp_path: Path) -> None:
    someone = await walk_all(tmp_path, "scripted", ("You said: hello", "You said: "), talks=False)
    keys = {walk.name: walk.keys for walk in someone.walks}
    assert [*keys] == [*MAX_KEYS][:2]
    assert {name: count for name, count in keys.items() if count > MAX_KEYS[name]} == {}
    first, telegram = (walk.commands for walk in someone.walks)
    assert first == []
    assert telegram == [line for line in TYPED if line not in NOT_WALKED][: len(telegram)]
    assert telegram == ["bubbot init"]


@pytest.mark.proof
async def test_a_newcomer_gets_there_with_few_keys_and_the_commands_of_the_pages(tmp_path: Path) -> None:
    someone = await walk_all(tmp_path, "scripted", ("You said: hello", "You said: "))
    keys = {walk.name: walk.keys for walk in someone.walks}
    assert {name: count for name, count in keys.items() if count > MAX_KEYS[name]} == {}
    assert [*keys] == [*MAX_KEYS]
    assert MAX_KEYS["Telegram as owner"] * SECONDS_PER_KEY <= 90
    first, telegram, person, group, moved = (
        [re.sub(r"[A-Z0-9]{8}", "CODE", text) for text in walk.commands] for walk in someone.walks
    )
    assert telegram == [line for line in TYPED if line not in NOT_WALKED]
    assert first == person == group == []
    assert moved == [
        "bubbot backup ~/copy",
        "bubbot --home ~/new restore ~/copy",
        "bubbot --home ~/new init",
        "bubbot --home ~/new restore --release",
        "bubbot --home ~/new run",
    ]


@pytest.mark.proof
@pytest.mark.skipif(not local.is_available(), reason="the demonstration model is not installed")
async def test_the_same_with_the_demonstration_model_that_a_newcomer_has(tmp_path: Path) -> None:
    await walk_all(tmp_path, "local", ("", r"^(?!I do not know you yet)"))


async def test_ctrl_c_at_a_question_leaves_everything_as_it_was_and_the_terminal_as_it_was(tmp_path: Path) -> None:
    home = tmp_path / "home"

    def interrupted() -> str:
        with Terminal(home, "init", "--model", "scripted", first="Name of the bot [bubbot]: ") as init:
            for _ in range(3):
                init.type(ENTER)
            init.expect(ASK_TOKEN)
            init.type("4242:SECRET")
            init.type(CTRL_C)
            init.expect("Nothing was changed.")
            assert init.ended() == 130
            assert init.left_as_found()
            return init.sent

    assert "SECRET" not in await asyncio.to_thread(interrupted)
    assert not await asyncio.to_thread(home.exists)
