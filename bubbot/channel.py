"""The channel port: where messages come from and go to.

An adapter lives in `channels/` (or in another distribution) and is loaded through the entry-point group
`bubbot.channels`, whose objects are factories `(ChannelOptions) -> Channel`. It may import this module and
`bubbot.errors`, nothing else of bubbot.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable


class Role(StrEnum):
    """What a sender may do, least first; compare with `at_least`."""

    STRANGER = "stranger"
    MEMBER = "member"
    ADMIN = "admin"
    OWNER = "owner"

    def at_least(self, other: Role) -> bool:
        """Whether this role includes the other one."""
        order = list(Role)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True)
class Sender:
    """Who wrote a message: the platform's numeric id as text, and the name it shows, which proves nothing."""

    id: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that came with a message: the adapter's own reference to it, fetched after acceptance."""

    reference: str
    name: str = ""
    media_type: str = ""
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Inbound:
    """A normalised message in.

    `channel` is the configured instance's name; `external_id` is unique on it and the same when the platform
    delivers the message again; `time` is ISO 8601 in UTC; `reply_to` is the external id of the message quoted.
    """

    channel: str
    external_id: str
    chat: str
    sender: Sender
    text: str
    time: str
    thread: str = ""
    reply_to: str = ""
    attachments: tuple[Attachment, ...] = ()

    @property
    def session(self) -> str:
        """The session id, `channel:chat` or `channel:chat:thread`."""
        return ":".join(part for part in (self.channel, self.chat, self.thread) if part)


@dataclass(frozen=True, slots=True)
class Unparsed:
    """Something the adapter received and could not read; its bytes are kept as a fact."""

    channel: str
    external_id: str
    chat: str
    raw: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Somebody wants the running turn of a session to end. It overtakes what waits and is not itself kept."""

    channel: str
    chat: str
    thread: str = ""

    @property
    def session(self) -> str:
        """The session id."""
        return ":".join(part for part in (self.channel, self.chat, self.thread) if part)


ChannelEvent: TypeAlias = Inbound | Unparsed | Stop


@dataclass(frozen=True, slots=True)
class Outbound:
    """An intended message out, whole."""

    channel: str
    chat: str
    text: str
    thread: str = ""
    reply_to: str = ""

    @property
    def session(self) -> str:
        """The session id it belongs to."""
        return ":".join(part for part in (self.channel, self.chat, self.thread) if part)


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of an outbound that fits the platform; stored with the intent, so that a restart sends the same."""

    chat: str
    text: str
    thread: str = ""
    reply_to: str = ""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The platform's id of a delivered part; empty where it has none."""

    external_id: str = ""


Receive: TypeAlias = Callable[[ChannelEvent], Awaitable[None]]
"""Returns when the event is durable; only then may it be acknowledged to the platform. A `Stop` is carried out at once."""


class Channel(Protocol):
    """An adapter. One instance serves one configured table of `[channels]`."""

    @property
    def name(self) -> str:
        """The configured instance's name, the first part of its session ids."""
        ...

    async def run(self, receive: Receive) -> None:
        """Receives until cancelled; a channel that ends by itself (a pipe) returns at its end."""
        ...

    def parts(self, outbound: Outbound) -> Sequence[Part]:
        """Cuts an outbound into what the platform takes; nothing of the text is lost. Pure."""
        ...

    async def send(self, part: Part) -> Receipt:
        """Sends one part. Raises `DeliveryFailed`, `permanent` where another try is useless."""
        ...


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A turn has begun to work."""


@dataclass(frozen=True, slots=True)
class TextShown:
    """A piece of the model's text, as people may see it; the pieces of a step add up to its text."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool runs now; `arguments` are shortened."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """A tool is done. `size`: characters of its result; `spilled`: it was too long and is kept aside whole."""

    name: str
    ok: bool
    size: int
    spilled: bool


@dataclass(frozen=True, slots=True)
class StepEnded:
    """A model call is over; `calls` tool calls come next, or, where there are none, the end of the turn."""

    step: int
    calls: int


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A turn is recorded: `answered`, `silent`, `failed` or `stopped`. What it says comes by `send`, right after."""

    status: str


Preview: TypeAlias = TurnStarted | TextShown | ToolStarted | ToolEnded | StepEnded | TurnEnded
"""What a running turn shows while it works. Never a fact: `send` delivers the final text whatever became of these."""


@runtime_checkable
class Previews(Protocol):
    """A channel that shows turns while they run. An optional power beside `Channel`."""

    def preview(self, session: str, event: Preview) -> None:
        """Takes note of the event and returns at once: it is called in the middle of the turn."""
        ...


@dataclass(frozen=True, slots=True)
class CommandInfo:
    """A comma command as people type it, for completion: its name, what it does, and the names of its arguments."""

    name: str
    summary: str = ""
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChannelOptions:
    """What an adapter's factory is given. `now` gives the time as ISO 8601 in UTC, `new_id` fresh random ids."""

    name: str
    home: Path
    now: Callable[[], str]
    new_id: Callable[[], str]
    settings: Mapping[str, Any] = field(default_factory=dict)
