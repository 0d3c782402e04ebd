"""What a channel may be able to do beside receiving and sending: optional, each a protocol of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from bubbot.ports.channel.events import Attachment
from bubbot.ports.channel.previews import Preview
from bubbot.ports.channel.sending import MessagePart


@runtime_checkable
class SupportsClose(Protocol):
    """A channel that holds connections. An optional power, as all that follow."""

    async def aclose(self) -> None:
        """Frees them; called once, after `run` has ended and nothing is sent any more."""


@runtime_checkable
class SupportsTyping(Protocol):
    """A channel that can show that the bot is at work."""

    async def typing(self, chat: str, thread: str) -> None:
        """Shows it for a few seconds; called again every four. May raise `DeliveryFailed`, which costs nothing."""


@runtime_checkable
class SupportsEditing(Protocol):
    """A channel whose messages can be changed after they were sent: what live answers need."""

    @property
    def edit_interval(self) -> float:
        """Seconds between two changes of one message that the platform takes without complaint; 0: no live answers."""

    async def edit(self, message: str, part: MessagePart) -> None:
        """Changes the message with this id into the part. A change that changes nothing is a success.

        Raises `DeliveryFailed`, `permanent` where the message is gone or cannot be changed.
        """


@runtime_checkable
class FetchesAttachments(Protocol):
    """A channel that can fetch attachments."""

    async def fetch(self, attachment: Attachment, limit: int) -> bytes:
        """The bytes of an attachment. Raises `FetchFailed`, also where it is larger than `limit` bytes."""


@runtime_checkable
class SupportsWebhook(Protocol):
    """A channel that is called by its platform over HTTP, at `path` (such as `/telegram`)."""

    path: str

    async def handle(self, headers: Mapping[str, str], body: bytes) -> int:
        """Takes one call and returns the HTTP status of the answer; header names are in lower case."""


@runtime_checkable
class WebhookVerifier(Protocol):
    """A `SupportsWebhook` that can tell by the headers alone whether its platform calls. An optional power beside it."""

    def verify(self, headers: Mapping[str, str]) -> bool:
        """Return true if the call carries the secret. Asked before the body is read; header names are in lower case."""


@runtime_checkable
class ShowsPreviews(Protocol):
    """A channel that shows turns while they run. An optional power beside `Channel`."""

    def preview(self, session: str, event: Preview) -> None:
        """Takes note of the event and returns at once: it is called in the middle of the turn."""


@runtime_checkable
class AcknowledgesInteractions(Protocol):
    """A channel that shows at once that an answer to a message is on its way, where the platform asks for that."""

    async def dismiss(self, chat: str, thread: str, message: str) -> None:
        """Takes that away: nothing will be said to the message with this id, or it was said in its stead.

        Where nothing is shown, nothing happens. May raise `DeliveryFailed`, which costs nothing.
        """


@runtime_checkable
class FindsMessages(Protocol):
    """A channel that can look for what the bot said."""

    async def find(self, part: MessagePart, since: str) -> Sequence[str]:
        """The ids of the bot's own messages that may be this part, oldest first, sent from `since` (ISO 8601) on or
        shortly before it. Asked before a part is sent that may have been sent already, and for the first text of a live
        answer of which no id is known. A channel without this power begins its live answers as a bare `…`.

        Raises `DeliveryFailed`, `permanent` where looking is useless; the part is then sent all the same.
        """


@dataclass(frozen=True, slots=True)
class ChannelHealth:
    """How a channel's connection is. `ready`: it receives now; `heard`: when the platform last gave a sign of life,
    ISO 8601 in UTC, empty for never; `note`: what is wrong, in a few English words for the operator."""

    ready: bool
    heard: str = ""
    note: str = ""


@runtime_checkable
class ReportsHealth(Protocol):
    """A channel that can tell how its connection is: to be connected is not to be heard."""

    def health(self) -> ChannelHealth:
        """As of now; asks nobody."""


@dataclass(frozen=True, slots=True)
class BotIdentity:
    """Who the bot is on its platform: its id and its name there; `remarks`: how the account is set up where that keeps
    the bot from hearing or saying something, each a whole English sentence that says what to do about it; `date`: the
    platform's own time, ISO 8601 in UTC, empty where it does not tell."""

    id: str
    name: str
    remarks: tuple[str, ...] = ()
    date: str = field(default="", compare=False)


@runtime_checkable
class VerifiesCredentials(Protocol):
    """A channel that can tell who the bot is there without receiving anything: what `init` and `doctor` ask."""

    async def introduce(self) -> BotIdentity:
        """Asks the platform once, within a few seconds; `run` is not called then, `aclose` is.

        Raises `ChannelRefused` where the platform does not take the token, `ChannelError` where it is not reached.
        """
