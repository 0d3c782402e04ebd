"""The port itself, and the options of an adapter's factory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct, field

from bubbot.errors import DeliveryFailed
from bubbot.ports.channel.events import ChannelEvent
from bubbot.ports.channel.sending import MessagePart, Outbound, Receipt
from bubbot.ports.settings import AdapterSettings

Receive: TypeAlias = Callable[[ChannelEvent], Awaitable[bool | str | None]]
"""Accept an event: it returns when the event is durable; only then may the adapter acknowledge it to the platform.

A `StopRequest` takes effect at once. The result is true if the event will get an answer, false for a repeat or an event
that is not for the bot, None if it was accepted and an answer may follow. A text is the short answer to a `ButtonPress`
that does nothing, only for the person who pressed; if the platform requires an answer to each press, answer without
text in all other cases."""


class Channel(Protocol):
    """An adapter. One instance serves one configured table of `[channels]`."""

    @property
    def name(self) -> str:
        """The configured instance's name, the first part of its session ids."""

    async def run(self, receive: Receive) -> None:
        """Receive until cancelled; a channel that ends by itself (a pipe) returns at its end.

        `send` must work before, during and after. If the platform refuses a bot that it accepted before, keep trying
        and report that by `ReportsHealth`. After any other error `run` is called again.

        Raises:
            ChannelRefused: the platform refuses the bot at its start and only the operator can help (a wrong token).
        """

    def parts(self, outbound: Outbound) -> Sequence[MessagePart]:
        """Split an outbound into parts that fit the platform, without losing text. It must be pure."""

    async def send(self, part: MessagePart) -> Receipt:
        """Send one part. Raise `DeliveryFailed`, `permanent` if another try is useless."""


TERMINAL_CHANNEL = "stdin"
"""The channel of terminals and pipes, and of programs that talk with the bot."""


class CommandInfo(Struct, frozen=True, forbid_unknown_fields=True):
    """A comma command as people type it, for menus and completion.

    Attributes:
        summary: its meaning in the language of the bot.
        arguments: the names of its arguments.
        in_menu: a menu of commands offers it.
        is_shared: menus of groups offer it, too.
        translations: its meaning, by language.
        further_names: other names that people may type; they are not offered.
    """

    name: str
    summary: str = ""
    arguments: tuple[str, ...] = ()
    in_menu: bool = False
    is_shared: bool = True
    translations: Mapping[str, str] = {}
    further_names: tuple[str, ...] = ()

    @property
    def slash_names(self) -> tuple[str, ...]:
        """Its names on platforms with their own commands, without dots: `memory_save`. Offer the first one."""
        return tuple(dict.fromkeys(name.replace(".", "_") for name in (self.name, *self.further_names)))


async def refuse_blob(digest: str) -> bytes:
    """Raise `DeliveryFailed`; the default of `ChannelOptions.read_blob`, for channels that never send a stored file."""
    raise DeliveryFailed(f"the file {digest[:12]} is not stored here", permanent=True)


class BackfillCursor(Struct, frozen=True):
    """The durable state of a channel, for platforms that store messages but do not redeliver them.

    On these the adapter fetches the messages it missed.

    Attributes:
        newest_ids: the platform's id of the message accepted last, by chat and thread.
        last_message_at: the sending time of the newest one, or the first start of the channel, ISO 8601 in UTC.
            Messages that are not for the bot do not change it.
        allowed_ids: numeric ids of people who may speak with the bot.
        handled_until: another bot with this account handled all messages sent before this time; empty if there was
            none.
    """

    newest_ids: Mapping[tuple[str, str], str] = field(default_factory=dict)
    last_message_at: str = ""
    allowed_ids: tuple[str, ...] = ()
    handled_until: str = ""


async def empty_cursor() -> BackfillCursor:
    """Return an empty cursor; the default of `ChannelOptions.load_cursor`, for a channel without a past."""
    return BackfillCursor()


def no_commands() -> Sequence[CommandInfo]:
    """Return nothing; the default of `ChannelOptions.list_commands`, for channels without a menu."""
    return ()


class ChannelOptions(Struct, frozen=True):
    """The options of an adapter's factory.

    Attributes:
        name: the configured instance's name.
        now: returns the time as ISO 8601 in UTC.
        new_id: returns a new random id.
        settings: only the adapter's own keys of `[channels.<name>]`, so that an unknown key is a mistake; values from
            the environment are text.
        read_blob: reads a stored file by its digest, for an `OutboundFile`.
        load_cursor: reads the durable state of this channel.
        list_commands: lists the comma commands, for a menu; call it after `run` has begun, and see `HasCommandMenu`.
        overhears: the channel also needs messages that are not for the bot: some chats are in `respond_to_all` or
            `record_only`.
        zone: the time zone of the deployment, for times that a platform sends as numbers.
    """

    name: str
    home: Path
    now: Callable[[], str]
    new_id: Callable[[], str]
    settings: Mapping[str, Any] = field(default_factory=dict)
    read_blob: Callable[[str], Awaitable[bytes]] = refuse_blob
    load_cursor: Callable[[], Awaitable[BackfillCursor]] = empty_cursor
    list_commands: Callable[[], Sequence[CommandInfo]] = no_commands
    overhears: bool = False
    zone: tzinfo = UTC


S = TypeVar("S", bound=AdapterSettings)
C = TypeVar("C", bound=Channel)


@dataclass(frozen=True)  # a generic class with slots cannot be made by `Name[T](…)`
class ChannelAdapter(Generic[S, C]):
    """A factory of channels that declares its settings, for the entry-point group `bubbot.channels`.

    Attributes:
        settings: the model of the adapter's own keys; the reference and `bubbot doctor` read it.
        build: creates the channel with validated settings.
    """

    settings: type[S]
    build: Callable[[ChannelOptions, S], C]

    def __call__(self, options: ChannelOptions) -> C:
        """Validate the settings and create the channel. Raise `ConfigError`."""
        return self.build(options, self.settings.read(options.name, options.settings))


def session_folder(home: Path, session: str) -> Path:
    """Return the folder for an adapter's files of a session. Erasing the session removes it (see `TurnFinished`)."""
    safe = "".join(char if char.isascii() and char.isalnum() else "_" for char in session)[:40]
    return home / "sessions" / f"{safe}-{sha256(session.encode()).hexdigest()[:16]}"


def workspace_folder(home: Path, session: str) -> Path:
    """Return the folder for files that tools create in a session; it is removed with the session's other files."""
    return (session_folder(home, session) / "workspace").absolute()
