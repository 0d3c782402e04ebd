"""Optional capabilities of a channel, one protocol each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from msgspec import Struct

from bubbot.ports.channel.events import Attachment
from bubbot.ports.channel.previews import Preview
from bubbot.ports.channel.sending import MessagePart


@runtime_checkable
class SupportsClose(Protocol):
    """A channel that holds connections."""

    async def aclose(self) -> None:
        """Close the connections. Called once, after `run` and the last `send` have ended."""


@runtime_checkable
class SupportsTyping(Protocol):
    """A channel that can show a typing indicator."""

    async def typing(self, chat: str, thread: str) -> None:
        """Show the indicator for a few seconds; the caller repeats this every four. A `DeliveryFailed` is harmless."""


@runtime_checkable
class HasCommandPrefix(Protocol):
    """A channel of a platform whose commands do not begin with a comma. It passes on commands in the comma form."""

    @property
    def command_prefix(self) -> str:
        """The prefix of commands on the platform, such as `/`."""


@runtime_checkable
class HasCommandMenu(Protocol):
    """A channel whose platform stores the commands, for example for a menu."""

    async def update_commands(self) -> None:
        """Read `list_commands` again: the commands have changed while `run` is running. A failure is only logged."""


@runtime_checkable
class SupportsEditing(Protocol):
    """A channel that can edit sent messages, as live answers require."""

    @property
    def edit_interval(self) -> float:
        """Seconds that the platform requires between two edits of one message; 0: no live answers."""

    async def edit(self, message: str, part: MessagePart) -> None:
        """Replace the message with this id by the part. An edit that changes nothing is a success.

        Raises:
            DeliveryFailed: the edit failed; `permanent` if the message is gone or cannot be edited.
        """


@runtime_checkable
class LeavesGroups(Protocol):
    """A channel whose bot can leave a group, or the space of a group."""

    async def leave(self, group: str) -> None:
        """Leave a group. Raise `DeliveryFailed` if the platform refuses."""


@runtime_checkable
class FetchesAttachments(Protocol):
    """A channel that can fetch attachments."""

    async def fetch(self, attachment: Attachment, limit: int) -> bytes:
        """Fetch the bytes of an attachment. Raise `FetchFailed`, also if it is larger than `limit` bytes."""


@runtime_checkable
class SupportsWebhook(Protocol):
    """A channel whose platform calls it over HTTP, at `path` (such as `/telegram`)."""

    path: str

    async def handle(self, headers: Mapping[str, str], body: bytes) -> int:
        """Handle one call and return the HTTP status of the response; header names are in lower case."""


@runtime_checkable
class WebhookVerifier(Protocol):
    """A `SupportsWebhook` that recognizes its platform's calls by the headers alone."""

    def verify(self, headers: Mapping[str, str]) -> bool:
        """Return true if the call has the secret. Called before the body is read; header names are in lower case."""


@runtime_checkable
class ShowsPreviews(Protocol):
    """A channel that shows running turns."""

    def preview(self, session: str, event: Preview) -> None:
        """Note the event and return at once: this is called during the turn."""


@runtime_checkable
class AcknowledgesInteractions(Protocol):
    """A channel that announces each answer at once, because its platform requires that."""

    async def dismiss(self, chat: str, thread: str, message: str) -> None:
        """Remove the announcement: the message with this id gets no answer, or its answer was sent elsewhere.

        Do nothing if there is none. A `DeliveryFailed` is harmless.
        """


@runtime_checkable
class FindsMessages(Protocol):
    """A channel that can search for messages of the bot."""

    async def find(self, part: MessagePart, since: str) -> Sequence[str]:
        """Find the ids of the bot's own messages that may be this part, oldest first.

        The search begins shortly before `since` (ISO 8601). Called before sending a part that may have been sent
        already, and for the first text of a live answer whose id is unknown. A channel without this capability begins
        its live answers as a bare `…`.

        Raises:
            DeliveryFailed: the search failed; if `permanent`, searching is useless and the part is sent anyway.
        """


@runtime_checkable
class MarksRepeats(Protocol):
    """A channel that can mark a part as possibly sent twice.

    Platforms that deduplicate by `MessagePart.key` do not need it.
    """

    def mark_repeat(self, part: MessagePart, sentence: str) -> MessagePart:
        """Return the part with this sentence below it; the part itself if both together exceed the platform's limit.

        Called for a part that may have arrived before.
        """


class ChannelHealth(Struct, frozen=True):
    """The state of a channel's connection.

    Attributes:
        is_ready: the channel receives now.
        last_seen_at: the platform's last sign of life, ISO 8601 in UTC; empty for never.
        note: the problem, in a few English words for the operator; empty if none.
        account: the bot's name there, as people write it, such as `@bubbot_bot`; empty while unknown.
    """

    is_ready: bool
    last_seen_at: str = ""
    note: str = ""
    account: str = ""

    @property
    def is_connected(self) -> bool:
        """True if the platform has accepted the bot; the first messages may still be on their way."""
        return self.is_ready or bool(self.account)


@runtime_checkable
class ReportsHealth(Protocol):
    """A channel that reports its health: a connection does not prove that messages arrive."""

    def health(self) -> ChannelHealth:
        """Return the current state without asking the platform."""


@dataclass(frozen=True, slots=True)
class BotIdentity:
    """The bot's account on its platform.

    Attributes:
        warnings: account settings that keep the bot from receiving or sending something; each is an English sentence
            that names the fix.
        server_date: the platform's own time, ISO 8601 in UTC; empty if unknown.
    """

    id: str
    name: str
    warnings: tuple[str, ...] = ()
    server_date: str = field(default="", compare=False)


@runtime_checkable
class VerifiesCredentials(Protocol):
    """A channel that can look up the bot's account without receiving anything, for `init` and `doctor`."""

    async def verify_token(self) -> BotIdentity:
        """Ask the platform once, within a few seconds. The caller then calls `aclose`, but never `run`.

        Raises:
            ChannelRefused: the platform rejects the token.
            ChannelError: the platform cannot be reached.
        """
