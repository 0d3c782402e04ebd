"""From an installed clone to a first answer in Telegram, with nothing but what the quickstart says to type."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from bubbot.models import local
from tests.botapi.gatherings import Gathering
from tests.botapi.server import Server
from tests.e2e.terminal import CTRL_C, ENTER, Terminal

PER_KEY = 0.3
"""Seconds a newcomer takes for a key."""
GOAL = 180.0
"""Seconds the way may take, typing and waiting, beyond the download."""
ASK_TOKEN = "Telegram: the token that @BotFather gave you; Enter for none (it is not shown): "
PASTED = 2
"""Keys it takes to paste something."""


@dataclass
class Newcomer:
    """Somebody at a keyboard: `keys` pressed so far, `waited` for the machine, and the commands that were typed."""

    keys: int = 0
    waited: float = 0.0
    commands: list[tuple[str, float]] = field(default_factory=list)

    def wait(self, what: Callable[[], object]) -> object:
        begun = time.monotonic()
        found = what()
        self.waited += time.monotonic() - begun
        return found

    def types(self, terminal: Terminal, text: str, *, pasted: bool = False) -> None:
        self.keys += (PASTED if pasted else len(text)) + 1
        terminal.type(text + ENTER)

    @property
    def seconds(self) -> float:
        """What the whole way takes, typing and waiting."""
        return self.keys * PER_KEY + self.waited


def from_nothing_to_an_answer(home: Path, server: Server, room: Gathering, *, scripted: bool) -> Newcomer:
    """Walks the way of the quickstart, in terminals; `scripted`: what answers is not the model that was chosen."""
    someone = Newcomer()
    env = {"BUBBOT_CHANNELS__TELEGRAM__BASE_URL": server.base_url}
    env["BUBBOT_MODEL__NAME"] = "scripted" if scripted else "local"

    def command(text: str, first: str) -> Terminal:
        someone.keys += len(text) + 1
        begun = someone.waited
        terminal = Terminal(home, *text.split()[1:], first=first, **env)
        someone.wait(terminal.__enter__)
        someone.commands.append((text, someone.waited - begun))
        return terminal

    def ended(terminal: Terminal, code: int = 0) -> None:
        assert someone.wait(terminal.ended) == code, terminal.sent
        terminal.__exit__(None, None, None)

    def bot_says(pattern: str) -> re.Match[str]:
        """Waits until the bot has said something of this form in the chat."""
        deadline = time.monotonic() + 60
        while True:
            for one in [*room.chat.messages.values()]:
                if one.get("from", {}).get("is_bot") and (found := re.search(pattern, str(one.get("text", "")))):
                    return found
            assert time.monotonic() < deadline, pattern
            time.sleep(0.02)

    init = command("bubbot init", "Name of the bot [bubbot]: ")
    someone.types(init, "Ada's bot")
    init.expect("Language of its own sentences: en or zh [en]: ")
    someone.types(init, "")
    init.expect("Time zone [")
    someone.types(init, "Europe/Berlin")
    init.expect("Number [1]: ")
    someone.types(init, "1" if local.available() else "3")
    init.expect(ASK_TOKEN)
    someone.types(init, server.bot.token, pasted=True)
    someone.wait(lambda: init.expect(f"This is @bubbot_bot (id {server.bot.user.id})."))
    init.expect("Enter if you do not know it: ")
    someone.types(init, "")
    init.expect("Discord: ")
    someone.types(init, "")
    told = init.expect("access approve CODE --role owner")
    assert "write anything to @bubbot_bot on Telegram" in " ".join(told.split())
    ended(init)
    assert server.bot.token not in init.sent

    run = command("bubbot run", "telegram.ready")
    someone.keys += len("hello") + 1
    room.say("hello")
    code = someone.wait(lambda: bot_says(r"bubbot access approve (\w+)"))
    assert isinstance(code, re.Match)
    approve = command(f"bubbot access approve {code[1]} --role owner", "is now owner on telegram")
    ended(approve)
    someone.keys += len("Who are you?") + 1
    room.say("Who are you?")
    someone.wait(lambda: bot_says("You said: Who are you" if scripted else r"^(?!I do not know you yet)"))
    run.type(CTRL_C)
    assert run.ended() == 0, run.sent
    run.__exit__(None, None, None)
    return someone


async def walked(home: Path, *, scripted: bool) -> Newcomer:
    async with Server(limits=None, longest_poll=1.0) as server:
        room = server.private(server.user("Ada", username="ada"))
        return await asyncio.to_thread(partial(from_nothing_to_an_answer, home, server, room, scripted=scripted))


async def test_a_newcomer_has_an_answer_in_telegram_within_three_minutes(tmp_path: Path) -> None:
    someone = await walked(tmp_path / "home", scripted=True)
    assert [text.split()[1] for text, _ in someone.commands] == ["init", "run", "access"]
    assert someone.seconds < GOAL, someone
    print(someone, someone.seconds)


@pytest.mark.proof
@pytest.mark.skipif(not local.available(), reason="the demonstration model is not installed")
async def test_the_same_with_the_demonstration_model_that_a_newcomer_has(tmp_path: Path) -> None:
    someone = await walked(tmp_path / "home", scripted=False)
    assert someone.seconds < GOAL, someone
    print(someone, someone.seconds)


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
