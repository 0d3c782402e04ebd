"""What each picture shows, played with the real program; `make pictures` draws them all."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.docs.pages import ROOT
from tests.docs.pictures.drawing import Bubble, draw_chat, draw_recording, draw_screen
from tests.docs.pictures.recording import Recording
from tests.docs.pictures.samples import new_home
from tests.e2e import on_discord
from tests.e2e.bot import run
from tests.e2e.daemon import configured, running
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server as TelegramServer
from tests.fakes.discordapi.rooms import Room
from tests.fakes.discordapi.server import Server as DiscordServer

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


async def draw_telegram() -> str:
    """A private chat on Telegram: a code, and an answer."""
    with new_home() as home:
        async with TelegramServer(limits=None) as server:
            ada = server.user("Ada", username="ada")
            configured(home, server, _SCRIPT)
            async with running(home):
                room = server.private(ada)
                for number, line in enumerate(("hello", "Good morning", "When do I cut roses?"), 1):
                    room.say(line)
                    await server.until(lambda number=number: len(_bot_texts(room)) == number)  # type: ignore[misc]
                    if number == 1:
                        await _let_in(home, _bot_texts(room)[0])
            bubbles = [_telegram_bubble(one) for one in room.chat.messages.values() if "text" in one]
    return draw_chat(
        bubbles,
        title="Telegram",
        source="Drawn from what the test server for Telegram received; the answers are scripted.",
        color="#d9f4c7",
    )


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


def _discord_bubble(server: DiscordServer, room: Room, number: int) -> Bubble:
    message = room.messages[number]
    text = message.content.replace(server.bot.mention, f"@{server.bot.name}")
    return Bubble(message.author.name(), text, message.author.id == server.bot.id)


def _with_sample_code(text: str) -> str:
    found = re.search(r"approve (\w{8})", text)
    return text.replace(found[1], _SHOWN_CODE) if found else text


Draw = Callable[[], Any]
SCENES: dict[str, Draw] = {
    "session": draw_session,
    "chat": draw_terminal_chat,
    "status": draw_status,
    "doctor": draw_doctor,
    "telegram": draw_telegram,
    "discord": draw_discord,
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
