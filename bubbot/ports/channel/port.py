"""The port itself, and what an adapter's factory is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from bubbot.errors import DeliveryFailed
from bubbot.ports.channel.events import ChannelEvent
from bubbot.ports.channel.sending import MessagePart, Outbound, Receipt

Receive: TypeAlias = Callable[[ChannelEvent], Awaitable[bool | None]]
"""Returns when the event is durable; only then may it be acknowledged to the platform. A `Stop` is carried out at once.

What it returns: whether something will be said to the event. False: it is a repeat, or nothing that is for the bot.
None: it was taken, and it is not known here that something will be said."""


class Channel(Protocol):
    """An adapter. One instance serves one configured table of `[channels]`."""

    @property
    def name(self) -> str:
        """The configured instance's name, the first part of its session ids."""

    async def run(self, receive: Receive) -> None:
        """Receives until cancelled; a channel that ends by itself (a pipe) returns at its end.

        Raises `ChannelRefused` if the platform refuses the bot at its start and only the operator can help (a wrong
        token). One that the platform took before goes on trying and shows it in `ReportsHealth`. Whatever else it raises is
        a failure after which it is run again. `send` works before, during and after.
        """

    def parts(self, outbound: Outbound) -> Sequence[MessagePart]:
        """Cuts an outbound into what the platform takes; nothing of the text is lost. Pure."""

    async def send(self, part: MessagePart) -> Receipt:
        """Sends one part. Raises `DeliveryFailed`, `permanent` where another try is useless."""


@dataclass(frozen=True, slots=True)
class CommandInfo:
    """A comma command as people type it, for completion: its name, what it does, and the names of its arguments."""

    name: str
    summary: str = ""
    arguments: tuple[str, ...] = ()


async def no_blob(digest: str) -> bytes:
    """For channels that never send a stored file."""
    raise DeliveryFailed(f"the file {digest[:12]} is not kept here", permanent=True)


@dataclass(frozen=True, slots=True)
class BackfillCursor:
    """What is durable of a channel, for platforms that keep messages and do not deliver them again: there the adapter
    asks for what it missed.

    `newest`: the platform's id of the message that was accepted last, by chat and thread. `heard`: when the newest of
    them all was sent, or the channel first began, ISO 8601 in UTC; what is not for the bot leaves no trace here.
    `people`: the numeric ids of those who may speak with the bot. `since`: what was sent before, another bot with this
    account has seen to; empty where there was none.
    """

    newest: Mapping[tuple[str, str], str] = field(default_factory=dict)
    heard: str = ""
    people: tuple[str, ...] = ()
    since: str = ""


async def nothing_known() -> BackfillCursor:
    """For channels that begin anew."""
    return BackfillCursor()


def no_commands() -> Sequence[CommandInfo]:
    """For channels that offer no menu."""
    return ()


@dataclass(frozen=True, slots=True)
class ChannelOptions:
    """What an adapter's factory is given. `now` gives the time as ISO 8601 in UTC, `new_id` fresh random ids.

    `settings`: the adapter's own keys of `[channels.<name>]` and nothing else, so that one it does not know is a mistake;
    values that come from the environment are text. `blob` reads a stored file by its digest, for a `OutboundFile` to send;
    `known` what is durable of this channel; `commands` the comma commands there are, for a menu, asked once `run` began;
    `overhears`: what is not said to the bot matters, too, since some of its chats are in `always` or `listen`.
    """

    name: str
    home: Path
    now: Callable[[], str]
    new_id: Callable[[], str]
    settings: Mapping[str, Any] = field(default_factory=dict)
    blob: Callable[[str], Awaitable[bytes]] = no_blob
    known: Callable[[], Awaitable[BackfillCursor]] = nothing_known
    commands: Callable[[], Sequence[CommandInfo]] = no_commands
    overhears: bool = False


def kept_aside(home: Path, session: str) -> Path:
    """The folder for an adapter's files of a session, if any. Erasing the session removes it (look at `TurnFinished`)."""
    safe = "".join(char if char.isascii() and char.isalnum() else "_" for char in session)[:40]
    return home / "sessions" / f"{safe}-{sha256(session.encode()).hexdigest()[:16]}"
