"""The channel port: where messages come from and go to.

An adapter lives in `channels/` (or in another distribution) and is loaded through the entry-point group
`bubbot.channels`, whose objects are factories `(ChannelOptions) -> Channel`. It may import this module and
`bubbot.errors`, nothing else of bubbot.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from bubbot.errors import DeliveryFailed


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


class _Placed:
    """What has a place in a chat."""

    __slots__ = ()
    channel: str
    chat: str
    thread: str

    @property
    def session(self) -> str:
        """The session id, `channel:chat` or `channel:chat:thread`."""
        return ":".join(part for part in (self.channel, self.chat, self.thread) if part)


@dataclass(frozen=True, slots=True)
class Sender:
    """Who wrote a message: the platform's numeric id as text, and the name it shows, which proves nothing.

    `bot`: the platform says that it is a bot.
    """

    id: str
    name: str = ""
    bot: bool = False


AttachmentKind: TypeAlias = Literal["image", "audio", "voice", "video", "file"]


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that came with a message: the adapter's own reference to it, fetched after acceptance.

    `size` in bytes as the platform states it. `note` is what it says in words (a sticker's emoji, say).
    """

    reference: str
    name: str = ""
    media_type: str = ""
    size: int | None = None
    kind: AttachmentKind = "file"
    note: str = ""


@dataclass(frozen=True, slots=True)
class Quote:
    """The message that a message replies to, as far as the platform shows it. `own`: the bot itself wrote it."""

    message: str
    sender: Sender
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    own: bool = False


@dataclass(frozen=True, slots=True)
class Inbound(_Placed):
    """A normalised message in.

    `channel` is the configured instance's name; `external_id` is unique on it and the same when the platform
    delivers the message again; `time` is ISO 8601 in UTC, when it was sent. `message` is the platform's id of the
    message within its chat, which replies, edits and reactions name; `reply_to` is that of the message quoted.
    `direct`: a chat with one person. `addressed`: the platform shows that the bot is meant (direct, a mention, a
    reply to it). Messages of one `group` (an album) belong together.
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
    message: str = ""
    direct: bool = True
    addressed: bool = True
    quote: Quote | None = None
    group: str = ""


@dataclass(frozen=True, slots=True)
class Edit(_Placed):
    """A message that its sender changed; `text` is the new one, whole. `external_id` is that of the change."""

    channel: str
    external_id: str
    chat: str
    message: str
    sender: Sender
    text: str
    time: str
    thread: str = ""


@dataclass(frozen=True, slots=True)
class Deletion(_Placed):
    """A message that was deleted on the platform."""

    channel: str
    external_id: str
    chat: str
    message: str
    time: str
    thread: str = ""


@dataclass(frozen=True, slots=True)
class Reaction(_Placed):
    """What somebody now shows on a message; no `emojis`: what was shown is taken back."""

    channel: str
    external_id: str
    chat: str
    message: str
    sender: Sender
    emojis: tuple[str, ...]
    time: str
    thread: str = ""


@dataclass(frozen=True, slots=True)
class Moved:
    """A chat that the platform goes on with under another id (a group that became a supergroup)."""

    channel: str
    external_id: str
    chat: str
    to: str
    time: str


@dataclass(frozen=True, slots=True)
class Unparsed:
    """Something the adapter received and could not read; its bytes are kept as a fact."""

    channel: str
    external_id: str
    chat: str
    raw: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Stop(_Placed):
    """Somebody wants the running turn of a session to end. It overtakes what waits and is not itself kept."""

    channel: str
    chat: str
    thread: str = ""


ChannelEvent: TypeAlias = Inbound | Edit | Deletion | Reaction | Moved | Unparsed | Stop


@dataclass(frozen=True, slots=True)
class File:
    """A file to send: its text, or the digest of a stored blob."""

    name: str
    media_type: str = "text/plain"
    text: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Outbound(_Placed):
    """An intended message out, whole. `text` is Markdown (CommonMark, with tables); `reply_to` a message id."""

    channel: str
    chat: str
    text: str
    thread: str = ""
    reply_to: str = ""
    files: tuple[File, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of an outbound that fits the platform; stored with the intent, so that a restart sends the same.

    `text` is what people read; `markup` is the adapter's own plain JSON about how it looks (entities, say).
    """

    chat: str
    text: str
    thread: str = ""
    reply_to: str = ""
    markup: Mapping[str, Any] = field(default_factory=dict)
    file: File | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """The platform's id of a delivered part, within its chat; empty where it has none."""

    external_id: str = ""


Receive: TypeAlias = Callable[[ChannelEvent], Awaitable[None]]
"""Returns when the event is durable; only then may it be acknowledged to the platform. A `Stop` is carried out at once."""


class Channel(Protocol):
    """An adapter. One instance serves one configured table of `[channels]`."""

    @property
    def name(self) -> str:
        """The configured instance's name, the first part of its session ids."""

    async def run(self, receive: Receive) -> None:
        """Receives until cancelled; a channel that ends by itself (a pipe) returns at its end.

        Raises `ChannelRefused` where only the operator can help (a refused token, a second poller). Whatever else
        it raises is a failure after which it is run again. `send` works before, during and after.
        """

    def parts(self, outbound: Outbound) -> Sequence[Part]:
        """Cuts an outbound into what the platform takes; nothing of the text is lost. Pure."""

    async def send(self, part: Part) -> Receipt:
        """Sends one part. Raises `DeliveryFailed`, `permanent` where another try is useless."""


@runtime_checkable
class Closes(Protocol):
    """A channel that holds connections. An optional power, as all that follow."""

    async def aclose(self) -> None:
        """Frees them; called once, after `run` has ended and nothing is sent any more."""


@runtime_checkable
class Typing(Protocol):
    """A channel that can show that the bot is at work."""

    async def typing(self, chat: str, thread: str) -> None:
        """Shows it for a few seconds; called again every four. May raise `DeliveryFailed`, which costs nothing."""


@runtime_checkable
class Editing(Protocol):
    """A channel whose messages can be changed after they were sent: what live answers need."""

    @property
    def edit_interval(self) -> float:
        """Seconds between two changes of one message that the platform takes without complaint; 0: no live answers."""

    async def edit(self, message: str, part: Part) -> None:
        """Changes the message with this id into the part. A change that changes nothing is a success.

        Raises `DeliveryFailed`, `permanent` where the message is gone or cannot be changed.
        """


@runtime_checkable
class Fetches(Protocol):
    """A channel that can fetch attachments."""

    async def fetch(self, attachment: Attachment, limit: int) -> bytes:
        """The bytes of an attachment. Raises `FetchFailed`, also where it is larger than `limit` bytes."""


@runtime_checkable
class Webhook(Protocol):
    """A channel that is called by its platform over HTTP, at `path` (such as `/telegram`)."""

    path: str

    async def handle(self, headers: Mapping[str, str], body: bytes) -> int:
        """Takes one call and returns the HTTP status of the answer; header names are in lower case."""


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A turn has begun to work. `inbound`: the id of its first inbound; `message`: the platform's id of that."""

    inbound: int = 0
    message: str = ""


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
class ChannelOptions:
    """What an adapter's factory is given. `now` gives the time as ISO 8601 in UTC, `new_id` fresh random ids.

    `blob` reads a stored file by its digest, for a `File` to send.
    """

    name: str
    home: Path
    now: Callable[[], str]
    new_id: Callable[[], str]
    settings: Mapping[str, Any] = field(default_factory=dict)
    blob: Callable[[str], Awaitable[bytes]] = no_blob


def kept_aside(home: Path, session: str) -> Path:
    """The folder for an adapter's files of a session, if any. Erasing the session removes it (look at `TurnEnded`)."""
    safe = "".join(char if char.isascii() and char.isalnum() else "_" for char in session)[:40]
    return home / "sessions" / f"{safe}-{sha256(session.encode()).hexdigest()[:16]}"
