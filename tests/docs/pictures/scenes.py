"""What each picture shows, played with the real program; `make pictures` draws them all."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.approving import CARD
from tests.docs.pages import ROOT
from tests.docs.pictures.drawing import Bubble, draw_chat, draw_moving_chat, draw_recording, draw_screen
from tests.docs.pictures.recording import Recording
from tests.docs.pictures.samples import new_home, replace_varying
from tests.e2e import on_discord
from tests.e2e.approval_stage import Stage, make_equal, staged
from tests.e2e.bot import run
from tests.e2e.daemon import configured, running
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server as TelegramServer
from tests.fakes.botapi.world import User
from tests.fakes.discordapi.rooms import Room
from tests.fakes.discordapi.server import Server as DiscordServer
from tests.fakes.effect_server import effect_server
from tests.task_runs import ANSWERS, write_digest

FOLDER = ROOT / "docs" / "pictures"
_COMMANDS = Path(sys.executable).parent
_QUESTION = "What is the capital of France?"
_SCRIPT = {
    "rules": [
        {"when": "roses", "steps": [{"text": "In late winter, before the buds open."}]},
        {"when": "capital", "steps": [{"text": "The capital of France is Paris."}]},
    ],
    "default": [{"text": "Good morning! How can I help?"}],
}
_SHOWN_CODE = "7KQ2M9XB"
_SHOWN_CARD = "7KQ2M"


@contextmanager
def _recording(home: Path, rows: int, environment: Mapping[str, str] | None = None) -> Iterator[Recording]:
    recording = Recording(home, rows=rows, environment=environment)
    try:
        yield recording
    finally:
        recording.stop()


def _ask(recording: Recording, line: str, answer: str) -> None:
    """Type a line and wait for its answer and the next prompt."""
    recording.type(line)
    recording.expect(f"> {re.escape(line)} *$")
    recording.keep(0.8)
    recording.type("\r")
    recording.expect(rf"(?s){re.escape(line)}\s.*{answer}(?!.*Ctrl-C stops).*\n>\s*$")
    recording.keep(2.5)


def draw_session() -> str:
    """Install, chat and get an answer from the demonstration model. The downloads are left out."""
    command = "make chat"
    with new_home() as home:
        environment = home.parent / "venv"
        environment.mkdir()
        for part in ("bin", "lib", "pyvenv.cfg"):
            (environment / part).symlink_to(Path(sys.prefix) / part)
        flags = f"--no-print-directory VENV={environment} PIP=:"
        with _recording(home, 22, {"MAKEFLAGS": flags}) as recording:
            for end in range(len(command) + 1):
                recording.show_prompt(command[:end])
            recording.start(command)
            recording.expect("Installing")
            recording.expect(r"\n>\s*$")
            recording.keep(2.5)
            _ask(recording, _QUESTION, "Paris")
            _ask(recording, ",remember Ada likes green tea.", "Saved")
            recording.type(",quit\r")
            recording.wait()
            recording.keep(4.0)
            return draw_recording(recording.frames, "bubbot (the downloads are left out)")


def draw_terminal_chat() -> str:
    """A chat with commands that need no model."""
    with new_home() as home, _recording(home, 40) as recording:
        recording.start(f"{_COMMANDS}/bubbot chat", shown="bubbot chat")
        recording.expect(r"\n>\s*$")
        _ask(recording, _QUESTION, "Paris")
        _ask(recording, ",remember Ada likes green tea.", "Saved")
        _ask(recording, ",tape.search gren tea limit=1", "Found")
        _ask(recording, ",why", "turn ")
        recording.type(",quit\r")
        recording.wait()
        return draw_screen(recording.screen(), "bubbot chat")


async def draw_status() -> str:
    """The state of a bot that runs on Telegram."""
    with new_home() as home:
        async with TelegramServer(limits=None) as server:
            ada = server.user("Ada", username="ada")
            configured(home, server, _SCRIPT, owners=[ada.id])
            async with running(home):
                room = server.private(ada)
                room.say("When do I cut roses?")
                await server.until(lambda: _bot_texts(room))
                return await asyncio.to_thread(_command_screen, home, "status")


def draw_doctor() -> str:
    """The doctor, on a home with two mistakes in it."""
    with new_home() as home:
        home.chmod(0o755)
        (home / "config.toml").write_text('[model]\nname = "scripted"\n\n[bot]\ntimezome = "Europe/Berlin"\n')
        return _command_screen(home, "doctor")


_VIEW = """
[memory]
view = "home"

[memory.views.home]
nodes = ["zone chat", "topic Cake", "tape family weight=2 max_age_days=30"]
max_tokens = 1000
"""


def draw_memory_view() -> str:
    """A memory view of three nodes: notes, a topic, and what was said in another chat, by grant."""
    with new_home() as home:
        (home / "script.json").write_text(json.dumps(_SCRIPT))
        (home / "config.toml").write_text(f'[model]\nname = "scripted"\nscript = "{home / "script.json"}"\n{_VIEW}')
        spoken = (
            ("family", "Grandma comes on Friday."),
            ("family", "She does not eat nuts."),
            ("default", ",remember Ada likes green tea."),
            ("default", ",topic Cake"),
            ("default", "With cherries, please."),
            ("default", ",topic off"),
        )
        for session, text in spoken:
            done = run(home, "ask", "--session", session, text)
            assert done.returncode == 0, done.stderr
        done = run(home, "access", "grant-reading", "stdin:family", "stdin:default")
        assert done.returncode == 0, done.stderr
        return _command_screen(home, "memory why default")


def _command_screen(home: Path, command: str) -> str:
    with _recording(home, 60) as recording:
        recording.run(f"{_COMMANDS}/bubbot {command}", shown=f"bubbot {command}")
        return draw_screen(recording.screen(), f"bubbot {command}")


def _bot_texts(room: Gathering) -> list[str]:
    return [str(one["text"]) for one in room.chat.messages.values() if one.get("from", {}).get("is_bot")]


async def _let_in(home: Path, text: str) -> None:
    """Make the sender of the code in the text an owner."""
    code = re.search(r"approve (\w{8})", text)
    assert code, text
    done = await asyncio.to_thread(run, home, "access", "approve", code[1], "--role", "owner", "--yes")
    assert done.returncode == 0, done.stderr


_HERO = {
    "rules": [
        {"when": r"Approval \w+: allowed", "steps": [{"text": "Bob has the list: milk, bread, tea."}]},
        {
            "when": "remind me",
            "steps": [
                {
                    "calls": [
                        {"name": "schedule_add", "arguments": {"when": "tomorrow at 9:00", "text": "Water the roses"}}
                    ]
                },
                {"text": "I will remind you tomorrow at 9:00."},
            ],
        },
        {
            "when": "the list",
            "steps": [
                {"calls": [{"name": "post_send", "arguments": {"to": "bob", "text": "milk, bread, tea"}}]},
                {"text": "It waits for your yes."},
            ],
        },
    ],
    "default": [{"text": "Good morning!"}],
}


async def draw_hero() -> str:
    """A reminder in free words, a card, a kill -9, a press while the bot is dead, the answer, and why."""
    with new_home() as home, effect_server() as service:
        (home / "service").write_text(service.address)
        async with staged("telegram", home) as stage:
            (home / "script.json").write_text(json.dumps(_HERO))
            play = _Play(stage.alone, home)
            async with stage.bot() as daemon:
                await play.ask("remind me tomorrow at 9 to water the roses", stage, "I will remind you", 2.5)
                await play.ask("Send Bob the list: milk, bread, tea", stage, "It waits for your yes", 3.0)
                await stage.quiet(daemon)
                await daemon.kill()
            play.note("$ kill -9 4242", 2.0)
            stage.press(stage.alone, "Ada", await stage.card(stage.alone), "Once")
            play.note("Ada presses [Once], and nobody is there", 2.0)
            play.note("$ bubbot run", 1.5)
            async with stage.bot():
                await stage.until_said(stage.alone, "Bob has the list")
                assert list(service.done.values()) == [1]
                play.keep(3.0)
                await play.ask("/why", stage, "turn ", 5.0)
    return draw_moving_chat(
        play.frames,
        title="Telegram",
        source="What the test server for Telegram received. Scripted answers, a real kill -9.",
        color="#d9f4c7",
        height=720,
    )


async def draw_card() -> str:
    """A card that asks, and the same card after somebody has pressed a button."""
    with new_home() as home, effect_server() as service:
        (home / "service").write_text(service.address)
        async with staged("telegram", home) as stage:
            (home / "script.json").write_text(json.dumps(_HERO))
            play = _Play(stage.alone, home)
            async with stage.bot():
                await play.ask("Send Bob the list: milk, bread, tea", stage, "It waits for your yes", 1.0)
                play.note("Ada presses [Once]", 1.0)
                stage.press(stage.alone, "Ada", await stage.card(stage.alone), "Once")
                await stage.until_said(stage.alone, "Bob has the list")
                await stage.until_said(stage.alone, "allowed it once")
                play.keep(1.0)
    (_, asked), *_, (_, done) = play.frames
    after = [bubble for bubble in done if bubble not in asked]
    return draw_chat(
        [*asked, *sorted(after, key=lambda bubble: bool(bubble.author))],
        title="Telegram",
        source="What the test server for Telegram received. The answers are scripted.",
        color="#d9f4c7",
    )


async def draw_init() -> str:
    """The questions that set up a bot."""
    async with TelegramServer(limits=None) as server:
        return await asyncio.to_thread(_answer_init, server)


def _answer_init(server: TelegramServer) -> str:
    answers = (
        ("Name of the bot", "Rosi"),
        ("Number", ""),
        ("Time zone \\[", "Europe/Berlin"),
        ("Number", "1"),
        ("BotFather gave you", server.bot.token),
        ("not know it", ""),
        ("application; Enter for none", ""),
        ("Say something to it", "no"),
    )
    with new_home() as home:
        environment = {"BUBBOT_CHANNELS__TELEGRAM__BASE_URL": server.base_url}
        with _recording(home, 60, environment) as recording:
            recording.start(f"{_COMMANDS}/bubbot init --service none", shown="bubbot init")
            for question, answer in answers:
                recording.expect(rf"{question}[^\n]*: *$")
                recording.type(f"{answer}\r")
            recording.wait()
            return draw_screen(recording.screen(), "bubbot init")


async def draw_usage() -> str:
    """What answers cost, by model and by person."""
    with new_home() as home:
        async with TelegramServer(limits=None) as server:
            people = [server.user("Ada", username="ada"), server.user("Bob", username="bob")]
            configured(home, server, _SCRIPT, owners=[each.id for each in people])
            with (home / "config.toml").open("a") as config:
                config.write("[budget]\nday = 0.01\n[budget.models.scripted]\ninput_price = 0.0\noutput_price = 60.0\n")
            async with running(home):
                for person, lines in zip(people, (("roses?", "capital?"), ("roses?",)), strict=True):
                    room = server.private(person)
                    for number, line in enumerate(lines, 1):
                        room.say(line)
                        await server.until(lambda room=room, number=number: len(_bot_texts(room)) == number)  # type: ignore[misc]
                return await asyncio.to_thread(_command_screen, home, "usage")


_FAMILY = {
    "rules": [
        {
            "when": "for dinner",
            "steps": [{"text": "Tomato soup, in an hour. @theo, what can the children do until then?"}],
        },
        {"when": "you, theo", "steps": [{"text": "The sums on page 12. I look at them afterwards."}]},
        {"when": "12 times 12", "steps": [{"text": "What is 12 times 10, and what is missing then?"}]},
    ]
}
_AGENTS = '[agents.lia]\ntitle = "Lia"\nabout = "cooking"\n[agents.theo]\ntitle = "Theo"\nabout = "homework"\n'


async def draw_agents() -> str:
    """A chat with a cook, who asks a teacher."""
    with new_home() as home:
        async with TelegramServer(limits=None) as server:
            ada = server.user("Ada", username="ada")
            configured(home, server, _FAMILY, owners=[ada.id])
            with (home / "config.toml").open("a") as config:
                config.write(_AGENTS)
            async with running(home):
                room = server.private(ada)
                for line, answers in (("Lia, what is for dinner?", 2), ("Theo, what is 12 times 12?", 3)):
                    room.say(line)
                    await server.until(lambda answers=answers: len(_bot_texts(room)) == answers)  # type: ignore[misc]
                bubbles = [_telegram_bubble(message) for message in room.chat.messages.values()]
    return draw_chat(
        bubbles,
        title="Telegram",
        source="What the test server for Telegram received. The answers are scripted.",
        color="#d9f4c7",
    )


_SHOWN_RUN = "K3Q7M"


async def draw_task() -> str:
    """A run of a task: how far it is, its question with the answer, and its result."""
    with new_home() as home:
        write_digest(home)
        async with TelegramServer(limits=None) as server:
            ada = server.user("Ada", username="ada")
            configured(home, server, dict(ANSWERS), owners=[ada.id])
            async with running(home):
                room = server.private(ada)
                room.say(",task.run digest The school board")
                await server.until(lambda: any("Publish 3?" in text for text in _bot_texts(room)))
                await server.until(lambda: any("waits for the answer" in text for text in _bot_texts(room)))
                bubbles = [_telegram_bubble(message) for message in room.chat.messages.values()]
                asked = next(each for each in room.chat.messages.values() if "Publish 3?" in each.get("text", ""))
                (key, *_), *_ = asked["reply_markup"]["inline_keyboard"]
                room.press(asked["message_id"], key["callback_data"], ada)
                await server.until(lambda: "Posted" in _bot_texts(room)[-1])
                bubbles += [Bubble("", f"Ada presses [{key['text']}]", is_bot=True)]
                bubbles += [_telegram_bubble([*room.chat.messages.values()][-1])]
    (run_name,) = set(re.findall(r"(?<=Digest \()\w{5}(?=\))", "\n".join(bubble.text for bubble in bubbles)))
    card = re.search(r"Question (\w{5})", asked["text"])
    assert card
    shown = [
        replace(each, text=replace_varying(each.text, home).replace(run_name, _SHOWN_RUN).replace(card[1], _SHOWN_CARD))
        for each in bubbles
    ]
    return draw_chat(
        shown,
        title="Telegram",
        source="What the test server for Telegram received. The answers are scripted.",
        color="#d9f4c7",
    )


class _Play:
    """A chat as it grows, with notes of what happened to the bot between its messages."""

    def __init__(self, room: Gathering, home: Path) -> None:
        self._room = room
        self._home = home
        self._notes: list[tuple[int, str]] = []
        self.frames: list[tuple[float, list[Bubble]]] = []

    async def ask(self, line: str, stage: Stage, answer: str, seconds: float) -> None:
        """Say a line, and wait for its answer."""
        stage.say(self._room, "Ada", line)
        if self.frames:
            self.keep(1.0)
        await stage.until_said(self._room, answer)
        self.keep(seconds)

    def note(self, text: str, seconds: float) -> None:
        """Note what happened."""
        self._notes.append((len(self._messages()), text))
        self.keep(seconds)

    def keep(self, seconds: float) -> None:
        """Keep the chat as it stands, to be shown this long."""
        bubbles: list[Bubble] = []
        messages = self._messages()
        for number in range(len(messages) + 1):
            bubbles += [Bubble("", text, is_bot=True) for place, text in self._notes if place == number]
            bubbles += [_telegram_bubble(message) for message in messages[number : number + 1]]
        cards = [found for one in bubbles for found in CARD.findall(one.text)]
        for place, bubble in enumerate(bubbles):
            text = re.sub("|".join(cards) or r"\Z\A", _SHOWN_CARD, replace_varying(bubble.text, self._home))
            bubbles[place] = replace(bubble, text=make_equal(text))
        self.frames.append((seconds, bubbles))

    def _messages(self) -> list[dict[str, Any]]:
        return [one for one in self._room.chat.messages.values() if "text" in one]


def _telegram_bubble(message: dict[str, Any]) -> Bubble:
    author = message["from"]
    keyboard = message.get("reply_markup", {}).get("inline_keyboard", [])
    return Bubble(
        author["first_name"],
        _with_sample_code(message["text"]),
        bool(author.get("is_bot")),
        quoted=message.get("reply_to_message", {}).get("text", "")[:60],
        buttons=tuple(button["text"] for row in keyboard for button in row),
    )


_TOPICS = {
    "rules": [
        {
            "when": "(?s)Friday at nine.*When do we leave",
            "steps": [{"text": "On Friday at nine: Bob said so in Family."}],
        },
        {"when": "(?s)Hotel Luna.*Where do we sleep", "steps": [{"text": "In the Hotel Luna."}]},
        {"when": "Where do we sleep", "steps": [{"text": "Nobody said that here."}]},
    ],
    "default": [{"text": "Noted."}],
}


async def draw_topics() -> str:
    """A topic of a group that goes on in a private chat by grant, until the grant is taken back.

    The rules of the script look for the words of the group in what the model was shown.
    """
    with new_home() as home:
        async with TelegramServer(limits=None) as server:
            ada, bob = server.user("Ada"), server.user("Bob")
            family, alone = server.group("Family", [ada, bob]), server.private(ada)
            configured(home, server, _TOPICS, owners=[ada.id], members=[bob.id])
            here, there = f"telegram:{alone.chat.id}", f"telegram:{family.chat.id}"
            bubbles: list[Bubble] = []

            async def play(room: Gathering, person: User, line: str) -> None:
                seen, answers = set(room.chat.messages), len(_bot_texts(room))
                room.say(line, person)
                await server.until(lambda: len(_bot_texts(room)) > answers)
                new = [message for number, message in room.chat.messages.items() if number not in seen]
                bubbles.extend(replace(_telegram_bubble(message), quoted="") for message in new)

            def note(text: str) -> None:
                bubbles.append(Bubble("", text, is_bot=True))

            async with running(home):
                await server.until(lambda: bool(_bot_texts(family)))  # it greets
                note("in the group Family")
                await play(family, ada, f"/topic@{server.bot.user.username} Trip to Rome")
                await play(family, bob, f"@{server.bot.user.username} We leave on Friday at nine.")
                note("in Ada's private chat")
                for line in (
                    f"/grant {there} to {here}", f"/topic Trip to Rome source={there}", "When do we leave?",
                    f"/grant_revoke {there} to {here}",
                ):  # fmt: skip
                    await play(alone, ada, line)
                note("in the group Family")
                await play(family, bob, f"@{server.bot.user.username} We sleep in the Hotel Luna.")
                note("in Ada's private chat")
                await play(alone, ada, "Where do we sleep?")
    return draw_chat(
        [replace(bubble, text=replace_varying(bubble.text, home)) for bubble in bubbles],
        title="Telegram",
        source="What the test server received; the script answers by what the model saw.",
        color="#d9f4c7",
    )


async def draw_discord() -> str:
    """A channel of a server on Discord: mentions and answers."""
    with new_home() as home:
        async with DiscordServer() as server:
            ada = server.user("Ada")
            room = server.guild("Garden", ada).text("general")
            on_discord.configured(home, server, _SCRIPT, owners=[str(ada.id)])
            async with on_discord.connected(home, server):
                for number, line in enumerate(("good morning", "when do I cut roses?"), 1):
                    room.say(ada, f"{server.bot.mention} {line}")
                    await server.until(lambda number=number: len(on_discord.texts(server, room)) == number)  # type: ignore[misc]
            bubbles = [_discord_bubble(server, room, number) for number in range(len(room.messages))]
    return draw_chat(
        bubbles,
        title="Discord  #general",
        source="Drawn from what the test server for Discord received; the answers are scripted.",
        color="#dfe3ff",
    )


async def draw_forgotten() -> str:
    """A person who asks to be forgotten, the yes, and what an owner hears of it."""
    with new_home() as home:
        async with TelegramServer(limits=None, conflict_pause=0.1) as server:
            ada, bob = server.user("Ada"), server.user("Bob")
            keys = {"owners": [ada.id], "members": [bob.id], "debounce": 0, "live": False}
            configured(home, server, _SCRIPT, **keys)
            async with running(home) as daemon:
                alone, hers = server.private(bob), server.private(ada)

                async def say(room: Gathering, text: str, answer: str) -> None:
                    room.say(text)
                    await server.until(lambda: any(answer in each for each in _bot_texts(room)))

                await say(hers, "Bob wants to know when to cut roses", "In late winter")
                await say(alone, "When do I cut roses?", "In late winter")
                await say(alone, "/forget_me", "I know")
                asked = next(one for one in alone.chat.messages.values() if "reply_markup" in one)
                bubbles = [_telegram_bubble(one) for one in alone.chat.messages.values() if "text" in one]
                ((key,),) = asked["reply_markup"]["inline_keyboard"]
                alone.press(asked["message_id"], key["callback_data"], bob)
                await server.until(lambda: "You are forgotten" in _bot_texts(alone)[-1])
                bubbles += [Bubble("", f"Bob presses [{key['text']}]", is_bot=True)]
                bubbles += [_telegram_bubble([*alone.chat.messages.values()][-1])]
                await server.until(lambda: "action=run.again" in daemon.errors)
                await server.until(lambda: "asked to be forgotten" in _bot_texts(hers)[-1])
                bubbles += [Bubble("", "The bot starts again. In the chat of the owner:", is_bot=True)]
                bubbles += [_telegram_bubble([*hers.chat.messages.values()][-1])]
    return draw_chat(
        bubbles,
        title="Telegram",
        source="What the test server for Telegram received. The answers are scripted.",
        color="#d9f4c7",
    )


def _discord_bubble(server: DiscordServer, room: Room, number: int) -> Bubble:
    message = room.messages[number]
    text = message.content.replace(server.bot.mention, f"@{server.bot.name}")
    return Bubble(message.author.name(), text, message.author.id == server.bot.id)


def _with_sample_code(text: str) -> str:
    found = re.search(r"approve (\w{8})", text)
    return text.replace(found[1], _SHOWN_CODE) if found else text


Draw = Callable[[], Any]
SCENES: dict[str, Draw] = {
    "hero": draw_hero,
    "card": draw_card,
    "init": draw_init,
    "usage": draw_usage,
    "session": draw_session,
    "chat": draw_terminal_chat,
    "status": draw_status,
    "doctor": draw_doctor,
    "discord": draw_discord,
    "agents": draw_agents,
    "memory-view": draw_memory_view,
    "task": draw_task,
    "topics": draw_topics,
    "forgotten": draw_forgotten,
}
"""Functions, some of them coroutine functions, that draw a picture each, by the name of the picture's file."""


async def draw(name: str) -> str:
    """Draw a picture."""
    scene = SCENES[name]
    if asyncio.iscoroutinefunction(scene):
        return str(await scene())
    return str(await asyncio.to_thread(scene))


def file_of(name: str) -> Path:
    """Return where a picture is kept."""
    return FOLDER / f"{name}.svg"
