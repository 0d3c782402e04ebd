"""The adapters of Telegram and Discord, as they are, over platforms in this process: what they post is what people read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Protocol
from unittest.mock import patch

from telegram import InputFile

from bubbot import plugins
from bubbot.errors import FetchFailed
from bubbot.ports.channel import Attachment, ChannelAdapter, ChannelOptions, Preview, Receive
from channels.discord.api import DiscordApi, DiscordApiTiming, FileUpload
from channels.discord.channel import DiscordChannel
from channels.discord.retry import DiscordReceiveTiming
from channels.discord.settings import DiscordSettings
from channels.telegram.api import TelegramApi, TelegramApiTiming
from channels.telegram.channel import TelegramChannel
from channels.telegram.settings import TelegramSettings

EDIT_SECONDS = 0.001
"""Seconds between two changes of a live answer."""


@dataclass(frozen=True)
class Post:
    """What people read: a message of the bot, or a change of one.

    Attributes:
        session: the chat or the thread in which the platform shows it, under its newest name.
        text: the text or the caption.
        message: its id, unique over both platforms.
        rest: everything else that comes with it: addresses, the names and the bytes of files.
        labels: those of its buttons.
        buttons: their ids.
        reply_to: the message above which it stands, whose words the platform repeats.
        is_edit: it changes what was there.
    """

    session: str
    text: str
    message: str
    rest: str = ""
    labels: Sequence[str] = ()
    buttons: Sequence[str] = ()
    reply_to: str = ""
    is_edit: bool = False


class People(Protocol):
    """Who sees what the platforms show."""

    def read(self, post: Post) -> None:
        """Read a message."""

    def notice_typing(self, session: str) -> None:
        """See that the bot is typing."""

    def watch(self, session: str, event: Preview) -> None:
        """See what a turn does meanwhile."""

    def download(self, reference: str) -> bytes:
        """Return a file that somebody uploaded."""


class WatchedTelegram(TelegramChannel):
    """Telegram, which receives nothing by itself."""

    def __init__(self, options: ChannelOptions, settings: TelegramSettings, people: People) -> None:
        super().__init__(options, settings, TelegramApiTiming())
        self._people = people

    async def run(self, receive: Receive) -> None:
        """See `Channel`."""
        await asyncio.Event().wait()

    @property
    def edit_interval(self) -> float:
        """See `SupportsEditing`."""
        return EDIT_SECONDS

    async def fetch(self, attachment: Attachment, limit: int) -> bytes:
        """See `FetchesAttachments`."""
        return _download(self._people, attachment, limit)


class WatchedDiscord(DiscordChannel):
    """Discord, which receives nothing by itself, and shows turns while they run as a terminal does. See `ShowsPreviews`."""

    def __init__(self, options: ChannelOptions, settings: DiscordSettings, people: People) -> None:
        super().__init__(options, settings, DiscordApiTiming(), DiscordReceiveTiming())
        self._people = people

    async def run(self, receive: Receive) -> None:
        """See `Channel`."""
        await asyncio.Event().wait()

    @property
    def edit_interval(self) -> float:
        """See `SupportsEditing`."""
        return EDIT_SECONDS

    async def fetch(self, attachment: Attachment, limit: int) -> bytes:
        """See `FetchesAttachments`."""
        return _download(self._people, attachment, limit)

    def preview(self, session: str, event: Preview) -> None:
        """See `ShowsPreviews`."""
        self._people.watch(session, event)


@dataclass
class Platforms:
    """Telegram as the channel `tg`, Discord as `dc`.

    Attributes:
        people: see what is posted.
        sessions: by the id of a channel of Discord, its session.
    """

    people: People
    sessions: Mapping[str, str]
    _numbers: Iterator[int] = field(default_factory=lambda: count(1_000_001))
    _shown_in: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def serve(self) -> Iterator[None]:
        """Give the bot these adapters, and take what they post, until the block ends."""
        people, load = self.people, plugins.load
        adapters: Mapping[str, Callable[[ChannelOptions], object]] = {
            "telegram": ChannelAdapter(TelegramSettings, lambda options, own: WatchedTelegram(options, own, people)),
            "discord": ChannelAdapter(DiscordSettings, lambda options, own: WatchedDiscord(options, own, people)),
        }

        def find(group: str, name: str) -> Any:
            return adapters[name] if group == "bubbot.channels" and name in adapters else load(group, name)

        with ExitStack() as stack:
            stack.enter_context(patch.object(plugins, "load", find))
            stack.enter_context(patch.object(TelegramApi, "call", self._call_telegram))
            stack.enter_context(patch.object(DiscordApi, "call", self._call_discord))
            yield

    async def _call_telegram(
        self, method: str, parameters: Mapping[str, Any] | None = None, *, upload: bool = False
    ) -> Any:
        """See `TelegramApi.call`."""
        await asyncio.sleep(0)
        values = dict(parameters or {})
        thread = str(values.get("message_thread_id", ""))
        session = ":".join(part for part in ("tg", str(values.get("chat_id", "")), thread) if part)
        if method == "sendChatAction":
            return self.people.notice_typing(session)
        if not method.startswith(("send", "editMessage")):
            return True
        keys = [key for row in values.get("reply_markup", {}).get("inline_keyboard", ()) for key in row]
        files = [value for value in values.values() if isinstance(value, InputFile)]
        assert upload == bool(files)
        number = str(values["message_id"]) if "message_id" in values else str(next(self._numbers))
        self._show(
            Post(
                session,
                str(values.get("text", values.get("caption", ""))),
                number,
                f"{values.get('entities')} {values.get('caption_entities')} {[_file_text(file) for file in files]}",
                [key["text"] for key in keys],
                [key["callback_data"] for key in keys],
                str(values.get("reply_parameters", {}).get("message_id", "")),
                method.startswith("edit"),
            )
        )
        return {"message_id": int(number)}

    async def _call_discord(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: Mapping[str, str | int] | None = None,
        files: Sequence[FileUpload] = (),
        timeout: float | None = None,
    ) -> Any:
        """See `DiscordApi.call`."""
        await asyncio.sleep(0)
        parts = path.strip("/").split("/")
        if method == "GET" or parts[0] != "channels":
            return {"id": "999"} if path == "/users/@me" else []
        session = self.sessions.get(parts[1], f"dc:{parts[1]}")
        if parts[-1] == "typing":
            return self.people.notice_typing(session)
        keys = [key for row in json.get("components", ()) for key in row["components"]]
        number = parts[3] if len(parts) > 3 else str(next(self._numbers))
        self._show(
            Post(
                session,
                json["content"],
                number,
                f"{json.get('attachments')} {[file.content.decode(errors='replace') for file in files]}",
                [key["label"] for key in keys],
                [key["custom_id"] for key in keys],
                json.get("message_reference", {}).get("message_id", ""),
                method == "PATCH",
            )
        )
        return {"id": number}

    def _show(self, post: Post) -> None:
        """Show a message where it stands, which a change of one does not say on Telegram."""
        session = self._shown_in.setdefault(post.message, post.session)
        self.people.read(replace(post, session=session))


def _file_text(file: InputFile) -> str:
    content = file.input_file_content
    return f"{file.filename} {content.decode(errors='replace') if isinstance(content, bytes) else content}"


def _download(people: People, attachment: Attachment, limit: int) -> bytes:
    data = people.download(attachment.reference)
    if len(data) > limit:
        raise FetchFailed(f"it has more than {limit} bytes")
    return data
