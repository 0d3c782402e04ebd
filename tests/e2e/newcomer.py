"""Somebody who meets bubbot for the first time: what they type, and how long the machine lets them wait.

`python -m benchmarks.newcomer` prints the table; tests/e2e/test_newcomer.py holds keys and commands.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bubbot.models.local import model as local
from tests.e2e.terminal import CTRL_C, CTRL_D, ENTER, Terminal
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server
from tests.fakes.botapi.world import User

SECONDS_PER_KEY = 0.3
"""Seconds a newcomer takes for a key."""
PASTE_KEYS = 2
"""Keys it takes to paste something."""
NOT_WALKED = ("make chat", ". .venv/bin/activate")
"""Commands of the quickstart that are done already where a test runs: to install, and, in each terminal, to find `bubbot`."""
ASK_TOKEN = "Telegram: the token"


@dataclass
class Walk:
    """One way to something: `keys` pressed, `waited` seconds for the machine, `commands` of the shell."""

    name: str
    keys: int = 0
    waited: float = 0.0
    commands: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """What all of it takes, typing and waiting."""
        return self.keys * SECONDS_PER_KEY + self.waited


@dataclass
class Newcomer:
    """Ada at a keyboard, before her bot and a chat with it; `walks` are those that she has begun."""

    home: Path
    server: Server
    room: Gathering
    env: dict[str, str]
    walks: list[Walk] = field(default_factory=list)

    @property
    def walk(self) -> Walk:
        """The way she is on."""
        return self.walks[-1]

    def begin(self, name: str) -> None:
        """Begin another way."""
        self.walks.append(Walk(name))

    def type_before(self, *lines: str) -> None:
        """Count lines that are typed where no test runs."""
        self.walk.keys += sum(len(line) + 1 for line in lines)

    @contextmanager
    def run(self, command: str, first: str, *, is_typed: bool = True) -> Iterator[Terminal]:
        """Type a command in its own terminal, wait until `first` is shown, and for the end after the block."""
        if is_typed:
            self.walk.keys += len(command) + 1
            self.walk.commands.append(command)
        words = command.replace("~", str(self.home.parent)).split()[1:]
        begun = time.monotonic()
        with Terminal(self.home, *words, first=first, script=None, **self.env) as terminal:
            self.walk.waited += time.monotonic() - begun
            yield terminal
            begun = time.monotonic()
            assert terminal.ended() == 0, terminal.sent
            self.walk.waited += time.monotonic() - begun

    def answer(self, terminal: Terminal, question: str, text: str, *, is_pasted: bool = False) -> None:
        """Wait for a question and type the answer."""
        begun = time.monotonic()
        terminal.expect(question)
        self.walk.waited += time.monotonic() - begun
        self.walk.keys += (PASTE_KEYS if is_pasted else len(text)) + 1
        terminal.type(text + ENTER)

    def write(self, text: str, answer: str, room: Gathering | None = None, by: User | None = None) -> re.Match[str]:
        """Write to the bot, here or in another chat, and wait for a new message of the bot in this form."""
        place = room or self.room
        before = {*place.chat.messages}
        self.walk.keys += len(text) + 1
        place.say(text, by)
        return self.wait_for(answer, place, before)

    def press(self, label: str) -> None:
        """Wait for a button in the own chat and press it, which counts as a key."""
        begun = time.monotonic()
        self.walk.keys += 1
        while time.monotonic() < begun + 60:
            for number, one in [*self.room.chat.messages.items()]:
                rows = one.get("reply_markup", {}).get("inline_keyboard", [])
                for button in (button for row in rows for button in row if button["text"] == label):
                    self.room.press(number, button["callback_data"])
                    self.walk.waited += time.monotonic() - begun
                    return
            time.sleep(0.02)
        raise AssertionError(f"there is no button {label}")

    def wait_for(self, answer: str, room: Gathering, before: set[int]) -> re.Match[str]:
        """Wait for a message of the bot in this form that was not there before."""
        begun = time.monotonic()
        while time.monotonic() < begun + 60:
            for number, one in [*room.chat.messages.items()]:
                if number in before or not one.get("from", {}).get("is_bot"):
                    continue
                if found := re.search(answer, str(one.get("text", ""))):
                    self.walk.waited += time.monotonic() - begun
                    return found
            time.sleep(0.02)
        raise AssertionError(f"the bot has not said {answer}")


def get_first_answer(someone: Newcomer, answer: str) -> None:
    """Talk in the chat that `make chat` opens."""
    someone.begin("install to the first answer")
    with someone.run("bubbot chat", "> ", is_typed=False) as chat:
        someone.walk.keys += len("hello") + 1
        begun = time.monotonic()
        chat.type("hello" + ENTER)
        chat.expect(answer)
        someone.walk.waited += time.monotonic() - begun
        chat.type(CTRL_D)


def set_up(someone: Newcomer) -> None:
    """Answer the questions of `bubbot init`, with Enter where there is nothing to say."""
    someone.begin("Telegram as owner")
    someone.type_before(",quit", NOT_WALKED[1], NOT_WALKED[1])
    with someone.run("bubbot init", "Enter takes what stands in [brackets]") as init:
        someone.answer(init, "Name of the bot [bubbot]: ", "Ada's bot")
        someone.answer(init, "Number [1]: ", "")
        someone.answer(init, "Time zone [", "Europe/Berlin")
        someone.answer(init, "Number [1]: ", "1" if local.is_available() else "later")
        someone.answer(init, ASK_TOKEN, someone.server.bot.token, is_pasted=True)
        init.expect(f"This is @bubbot_bot (id {someone.server.bot.user.id}).")
        someone.answer(init, "Enter if you do not know it: ", "")
        someone.answer(init, "Discord: ", "")
        someone.answer(init, "Say something to it, or no [Hello!]: ", "no")
        shown = init.expect("access approve CODE --role owner")
        assert "send any message to @bubbot_bot on Telegram" in " ".join(shown.split())
    assert someone.server.bot.token not in init.sent


def talk(someone: Newcomer, answer: str) -> None:
    """Run the bot, become its owner, let in a second person from the chat, and then everybody in a group."""
    bob, eve = someone.server.user("Bob", username="bob"), someone.server.user("Eve")
    ada = someone.room.chat.person
    assert ada is not None
    with someone.run("bubbot run", "telegram.ready") as running:
        code = someone.write("hello", r"bubbot access approve (\w+)")[1]
        with someone.run(f"bubbot access approve {code} --role owner", "Let ") as approval:
            someone.answer(approval, "[y/N] ", "y")
            approval.expect("is now owner on telegram")
        someone.write("Who are you?", answer)

        someone.begin("a second person")
        his = someone.server.private(bob)
        someone.write("Who are you?", r"code is \w{8}", his)
        before = {*his.chat.messages}
        someone.press("Let in")
        someone.wait_for(answer, his, before)

        someone.begin("a group")
        family = someone.server.supergroup("Family", [ada, bob, eve], bots=[])
        family.join(someone.server.bot.user, ada)
        someone.write("@bubbot_bot Who are you?", answer, family, bob)
        before = {*family.chat.messages}
        family.say("@bubbot_bot And me?", eve)
        someone.press("Everybody may talk")
        someone.wait_for("to me now", someone.room, set())
        someone.write("@bubbot_bot And me now?", answer, family, eve)
        running.type(CTRL_C)


def move(someone: Newcomer, answer: str) -> None:
    """Back up, restore into another home, and talk with the bot from there."""
    someone.begin("backup, restore, talking again")
    with someone.run("bubbot backup ~/copy", "checked"):
        pass
    with someone.run("bubbot --home ~/new restore ~/copy", "restore --release"):
        pass
    with someone.run("bubbot --home ~/new init", "Enter takes what stands in [brackets]") as init:
        someone.answer(init, "Name of the bot [", "")
        someone.answer(init, "Number [1]: ", "")
        someone.answer(init, "Time zone [", "")
        someone.answer(init, "Number [1]: ", "")
        someone.answer(init, ASK_TOKEN, someone.server.bot.token, is_pasted=True)
        someone.answer(init, "Enter if you do not know it: ", "")
        someone.answer(init, "Discord: ", "")
        someone.answer(init, "Say something to it, or no [Hello!]: ", "no")
    with someone.run("bubbot --home ~/new restore --release", "Released."):
        pass
    with someone.run("bubbot --home ~/new run", "telegram.ready") as running:
        someone.write("Are you still there?", answer)
        running.type(CTRL_C)


async def walk_all(folder: Path, model: str, answers: tuple[str, str], *, talks: bool = True) -> Newcomer:
    """Walk all ways, one after the other.

    Args:
        folder: where the homes and the backup go.
        model: the one that answers.
        answers: the form of its answers, in the terminal as text, in Telegram as an expression.
        talks: go on after the bot is set up: on Telegram, with other people, and in another home.
    """
    in_terminal, in_telegram = answers
    async with Server(limits=None, longest_poll=1.0) as server:
        room = server.private(server.user("Ada", username="ada"))
        env = {"BUBBOT_CHANNELS__TELEGRAM__BASE_URL": server.base_url, "BUBBOT_MODEL__NAME": model}
        someone = Newcomer(folder / "home", server, room, env)

        def walk() -> None:
            get_first_answer(someone, in_terminal)
            set_up(someone)
            if talks:
                talk(someone, in_telegram)
                move(someone, in_telegram)

        await asyncio.to_thread(walk)
    return someone
