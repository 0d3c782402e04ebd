"""From an installed clone to a first answer in Telegram, with nothing but what the quickstart says to type."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bubbot.models.local import model as local
from tests.docs.pages import ROOT
from tests.e2e.terminal import CTRL_C, ENTER, Terminal
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server

PER_KEY = 0.3
"""Seconds a newcomer takes for a key."""
GOAL = 180.0
"""Seconds the way may take, typing and waiting, beyond the download."""
ASK_TOKEN = "Telegram: the token that @BotFather gave you; Enter for none (it is not shown): "
PAGE = (
    (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8").partition("## To Telegram")[2].partition("\n## ")[0]
)
TYPED = "".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)).splitlines()
"""What the page says to type, a command a line."""
NOT_WALKED = ("make chat", ". .venv/bin/activate")
"""Commands of the page that are done already where a test runs: to install, and, in two terminals, to find `bubbot`."""
PASTED = 2
"""Keys it takes to paste something."""


@dataclass
class Newcomer:
    """Somebody at a keyboard, before a bot and a chat with it: `keys` pressed, `waited` seconds for the machine."""

    home: Path
    server: Server
    room: Gathering
    env: dict[str, str]
    keys: int = 0
    waited: float = 0.0
    commands: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """What the whole way takes, typing and waiting."""
        return self.keys * PER_KEY + self.waited

    @contextmanager
    def runs(self, command: str, first: str) -> Iterator[Terminal]:
        """Types a command in a terminal of its own, and waits until `first` is shown, and for its end."""
        self.keys += len(command) + 1
        self.commands.append(command)
        begun = time.monotonic()
        with Terminal(self.home, *command.split()[1:], first=first, script=None, **self.env) as terminal:
            self.waited += time.monotonic() - begun
            yield terminal
            begun = time.monotonic()
            assert terminal.ended() == 0, terminal.sent
            self.waited += time.monotonic() - begun

    def answers(self, terminal: Terminal, question: str, text: str, *, pasted: bool = False) -> None:
        """Waits for the question and types an answer."""
        begun = time.monotonic()
        terminal.expect(question)
        self.waited += time.monotonic() - begun
        self.keys += (PASTED if pasted else len(text)) + 1
        terminal.type(text + ENTER)

    def writes(self, text: str, answer: str) -> re.Match[str]:
        """Writes to the bot, and waits until it has said something of this form."""
        self.keys += len(text) + 1
        self.room.say(text)
        begun = time.monotonic()
        while time.monotonic() < begun + 60:
            for one in [*self.room.chat.messages.values()]:
                if one.get("from", {}).get("is_bot") and (found := re.search(answer, str(one.get("text", "")))):
                    self.waited += time.monotonic() - begun
                    return found
            time.sleep(0.02)
        raise AssertionError(f"the bot has not said {answer}")

    def sets_up(self) -> None:
        """Answers the questions, with Enter where there is nothing to be said."""
        with self.runs("bubbot init", "Enter takes what stands in [brackets]") as init:
            self.answers(init, "Name of the bot [bubbot]: ", "Ada's bot")
            self.answers(init, "Number [1]: ", "")
            self.answers(init, "Time zone [", "Europe/Berlin")
            self.answers(init, "Number [1]: ", "1" if local.is_available() else "later")
            self.answers(init, ASK_TOKEN, self.server.bot.token, pasted=True)
            init.expect(f"This is @bubbot_bot (id {self.server.bot.user.id}).")
            self.answers(init, "Enter if you do not know it: ", "")
            self.answers(init, "Discord: ", "")
            self.answers(init, "Say something to it, or no [Hello!]: ", "no")
            told = init.expect("access approve CODE --role owner")
            assert "send any message to @bubbot_bot on Telegram" in " ".join(told.split())
        assert self.server.bot.token not in init.sent

    def talks(self, answer: str) -> None:
        """Runs the bot, is let in, and gets an answer."""
        with self.runs("bubbot run", "telegram.ready") as running:
            code = self.writes("hello", r"bubbot access approve (\w+)")[1]
            with self.runs(f"bubbot access approve {code} --role owner", "Let ") as approval:
                self.answers(approval, "[y/N] ", "y")
                approval.expect("is now owner on telegram")
            self.writes("Who are you?", answer)
            running.type(CTRL_C)


async def walked(home: Path, model: str, answer: str) -> Newcomer:
    """The way of the quickstart to an answer of this form; `model` is the one that answers."""
    async with Server(limits=None, longest_poll=1.0) as server:
        room = server.private(server.user("Ada", username="ada"))
        env = {"BUBBOT_CHANNELS__TELEGRAM__BASE_URL": server.base_url, "BUBBOT_MODEL__NAME": model}
        done_before = sum(len(line) + 1 for line in (*NOT_WALKED, ",quit", NOT_WALKED[-1]))
        someone = Newcomer(home, server, room, env, keys=done_before)
        await asyncio.to_thread(someone.sets_up)
        await asyncio.to_thread(someone.talks, answer)
    return someone


async def test_a_newcomer_has_an_answer_in_telegram_within_three_minutes(tmp_path: Path) -> None:
    someone = await walked(tmp_path / "home", "scripted", "You said: Who are you")
    walked_so = [re.sub(r"[A-Z0-9]{8}", "CODE", text) for text in someone.commands]
    assert walked_so == [line for line in TYPED if line not in NOT_WALKED]
    assert someone.seconds < GOAL, someone


@pytest.mark.proof
@pytest.mark.skipif(not local.is_available(), reason="the demonstration model is not installed")
async def test_the_same_with_the_demonstration_model_that_a_newcomer_has(tmp_path: Path) -> None:
    someone = await walked(tmp_path / "home", "local", r"^(?!I do not know you yet)")
    assert someone.seconds < GOAL, someone


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
