"""A whole bot in which nothing is left to chance: clock, ids, codes, platforms and model are given.

Only public seams are used (the daemon, its channels, its tapes), so that a new shape of a feature changes nothing here.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from hashlib import shake_256
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bubbot.app.bot import PortWrappers
from bubbot.app.channel_factory import ChannelFactory
from bubbot.app.daemon import Daemon, open_daemon
from bubbot.arguments.fields import Args
from bubbot.errors import DeliveryFailed
from bubbot.home import Home
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Inbound, MessagePart, Outbound, Receipt, Receive, Sender
from bubbot.ports.turn import Turn
from bubbot.settings.loader import ModelSettings, Settings
from bubbot.tape.entry import Kind, timestamp
from bubbot.tape.query import TapeQuery
from bubbot.tool import Tool, tool
from tests.approving import acting_tools
from tests.doubles import FixedClock
from tests.made_settings import make_settings

WAIT = 60.0
GROUP = "-100"
PEOPLE: Mapping[str, str] = {"1": "Ada", "2": "Bob", "3": "Cy", "7": "Robo"}
"""The owner, an admin and a member on both platforms, and a bot that may speak; everybody else is a stranger."""
BOT = "7"
NO_LEAVE = "-666"
"""A group that the bot cannot leave."""
LISTED = {"owners": ["1"], "admins": ["2"], "members": ["3"]}
QUICK = {"debounce": 0, "live": False, "messages_per_minute": 0, "messages_per_hour": 0}
CHANNELS: Mapping[str, Mapping[str, Any]] = {
    "discord": {"kind": "kept", "groups": [GROUP], "bots": [BOT], **LISTED, **QUICK},
    "telegram": {"kind": "kept", **LISTED, **QUICK},
}
PREFIXES: Mapping[str, str] = {"discord": ",", "telegram": "/"}
CODE = re.compile(r"\b[2-9A-HJ-NP-Z]{8}\b")
CARD = re.compile(r"`[,/]approve (\w{5})`")


def _calls(name: str, **arguments: Any) -> list[dict[str, Any]]:
    return [{"calls": [{"name": name, "arguments": arguments}]}, {"text": "(the model has asked)"}]


SCRIPT: Mapping[str, Any] = {
    "rules": [
        {
            "when": r"^(\[.*?\] )?(.{0,20}\(#\d+\): )?post to (bob|eve)",
            "steps": _calls("post_send", to="bob", text="hi"),
        },
        {"when": "ring the bell", "steps": _calls("bell_ring", times=2)},
        {"when": "run make", "steps": _calls("sandbox_run", command="make")},
        {"when": "clear it all", "steps": _calls("memory_clear", confirm=True)},
        {"when": "forget the nuts", "steps": _calls("memory_forget", text="nuts")},
        {"when": "keep tea only", "steps": _calls("memory_save", content="Likes tea.", scope="user")},
        {"when": "bring version 1 back", "steps": _calls("memory_restore", version=1)},
        {"when": "note the rent", "steps": _calls("memory_daily", content="Paid the rent.")},
    ],
    "default": [{"text": "(the model answers)"}],
}


class RingArgs(Args, frozen=True):
    """The arguments of `bell.ring`."""

    times: int


@tool("bell.ring")
async def ring_bell(turn: Turn, args: RingArgs) -> str:
    """Ring a bell. It declares no effect, so a grant names its exact arguments."""
    return "ding " * args.times


class FixedRandom:
    """Bytes in place of `os.urandom`. Each size has its own sequence: who draws ids does not change the codes."""

    def __init__(self) -> None:
        self._numbers: dict[int, Iterator[int]] = {}

    def __call__(self, size: int) -> bytes:
        number = next(self._numbers.setdefault(size, count(1)))
        return shake_256(f"{size}:{number}".encode()).digest(size)


@contextmanager
def fixed_world() -> Iterator[FixedClock]:
    """Give this process a clock and random bytes that are the same in every run."""
    clock = FixedClock()
    with patch("bubbot.app.tapes.datetime", clock), patch.object(os, "urandom", FixedRandom()):
        yield clock


class ShownPlatform:
    """A platform that keeps what people read, as text, with the buttons below it."""

    def __init__(self, name: str, said: list[tuple[str, str]]) -> None:
        self.name = name
        self.command_prefix = PREFIXES[name]
        self._said = said
        self._numbers = count(1)

    async def run(self, receive: Receive) -> None:
        """Receive nothing by itself."""
        await asyncio.Event().wait()

    def parts(self, outbound: Outbound) -> Sequence[MessagePart]:
        """Return one part with everything."""
        part = MessagePart(
            outbound.chat, outbound.text, outbound.thread, buttons=outbound.buttons, edits=outbound.edits
        )
        return [part]

    async def send(self, part: MessagePart) -> Receipt:
        """Show a new message."""
        self._show("", part)
        return Receipt(f"p{next(self._numbers)}")

    async def edit(self, message: str, part: MessagePart) -> None:
        """Show a changed message."""
        self._show(f"edited {message}: ", part)

    async def leave(self, group: str) -> None:
        """Leave a group, unless it is `NO_LEAVE`."""
        if group == NO_LEAVE:
            raise DeliveryFailed("the platform refuses", permanent=True)
        self._said.append((f"{self.name}:{group}", "(the bot has left)"))

    def _show(self, mark: str, part: MessagePart) -> None:
        buttons = part.buttons.buttons if part.buttons else ()
        labels = "".join(f"\n[{button.label}]" for button in buttons)
        chat = ":".join(filter(None, (self.name, part.chat, part.thread)))
        self._said.append((chat, f"{mark}{part.text}{labels}"))


class GoldenStage:
    """The bot, and people who write to it.

    Attributes:
        daemon: the bot.
        settings: its settings.
        clock: its clock, a minute further at each line.
    """

    def __init__(self, daemon: Daemon, settings: Settings, clock: FixedClock, said: list[tuple[str, str]]) -> None:
        self.daemon, self.settings, self.clock = daemon, settings, clock
        self._said = said
        self._numbers = count(1)
        self._codes: dict[str, str] = {}
        self._cards: list[str] = []
        self._seen: dict[str, int] = {}

    async def say(
        self, text: str, *, channel: str = "discord", sender: str = "1", group: bool = False, language: str = "en"
    ) -> Mapping[str, Any]:
        """Let somebody write; return the command as it is stored, and what people read after it.

        `{code44}` stands for the last code in the chat of 44, `{card}` for the last card, `{card-1}` for the one before.
        """
        self.clock.advance(minutes=1)
        chat = GROUP if group else sender
        for name, value in self.names.items():
            text = text.replace(f"{{{name}}}", value)
        number = f"m{next(self._numbers)}"
        inbound = Inbound(
            channel,
            number,
            chat,
            Sender(sender, PEOPLE.get(sender, f"Guest {sender}"), bot=sender == BOT, language=language),
            text,
            timestamp(self.clock.moment),
            message=number,
            direct=not group,
        )
        self._said.clear()
        await self.daemon.bot.channel_runtimes[channel].gate.receive(inbound)
        await self.quiet()
        for session, answer in self._said:
            if found := CODE.findall(answer):
                self._codes[session.partition(":")[2]] = found[-1]
            self._cards += [card for card in CARD.findall(answer) if card not in self._cards]
        self._said.sort(key=lambda item: item[0])  # each chat has its own deliverer
        commands = await self._new_commands(inbound.session)
        return {
            **({"command": commands} if commands else {}),
            "said": [f"{chat}> {self._mask(answer)}" for chat, answer in self._said],
        }

    @property
    def names(self) -> Mapping[str, str]:
        """The codes and cards that people have read, by the names that stand for them."""
        cards = {f"card-{number}" if number else "card": card for number, card in enumerate(reversed(self._cards))}
        return {**{f"code{whose}": code for whose, code in self._codes.items()}, **cards}

    async def quiet(self) -> None:
        """Return when no turn runs and nothing is delivered."""
        async with asyncio.timeout(WAIT):
            for _ in range(3):  # an answer may start a turn elsewhere
                await self.daemon.bot.runtime.wait_idle()
                for runtime in self.daemon.bot.channel_runtimes.values():
                    await runtime.deliverer.wait_until_idle()

    async def events(self, session: str, *names: str) -> list[Mapping[str, Any]]:
        """Return the data of the events of these names on the tape of a session."""
        tape = self.daemon.bot.tape(session)
        (entries,) = await tape.fetch([TapeQuery(tape.name, kinds=(Kind.EVENT,), names=names)])
        return [entry.payload["data"] for entry in entries if not entry.erased]

    def _mask(self, text: str) -> str:
        """Take the folder of the home out of a text, and what follows from it in the names of tapes."""
        bot = self.daemon.bot
        workspace = bot.tape("discord:1").name.partition("__")[0]
        return text.replace(str(bot.channel_factory.home.path), "<home>").replace(workspace, "<workspace>")

    async def _new_commands(self, session: str) -> list[Mapping[str, Any]]:
        found = await self.events(session, "command")
        new = found[self._seen.get(session, 0) :]
        self._seen[session] = len(found)
        return [
            {
                name: self._mask(value) if isinstance(value, str) else value
                for name, value in data.items()
                if name != "elapsed_ms"
            }
            for data in new
        ]


@asynccontextmanager
async def golden_stage(
    home: Path,
    clock: FixedClock,
    *,
    tools: Sequence[Tool] = (),
    running: Any = None,
    sections: Sequence[Any] = (),
) -> AsyncIterator[GoldenStage]:
    """Open the bot in a home, in `fixed_world`.

    Args:
        home: the folder.
        clock: the clock of `fixed_world`.
        tools: further tools.
        running: see `open_daemon`.
        sections: sections of features in the settings.
    """
    said = list[tuple[str, str]]()
    channels = {name: ShownPlatform(name, said) for name in CHANNELS}
    chosen = make_settings(
        *sections,
        model=ModelSettings(name="scripted"),
        channels={name: dict(table) for name, table in CHANNELS.items()},
    )
    wrappers = PortWrappers(
        model=lambda _: ScriptedModel(SCRIPT, keep_requests=False),
        tools=[*acting_tools(lambda _name, _text: None), ring_bell, *tools],
    )
    with patch.object(ChannelFactory, "build_adapter", lambda _, name, *_rest, **_more: channels[name]):
        async with open_daemon(chosen, Home(home), wrappers=wrappers, running=running) as daemon:
            await daemon.bot.recover_all()
            stage = GoldenStage(daemon, chosen, clock, said)
            await stage.quiet()
            yield stage
            await stage.quiet()
