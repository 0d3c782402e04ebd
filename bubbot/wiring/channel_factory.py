"""Build a channel and everything behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bubbot import plugins
from bubbot.errors import ConfigError
from bubbot.gateway.channel_runtime import ChannelPolicy, ChannelRuntime, make_line
from bubbot.gateway.files import outgoing
from bubbot.gateway.outbound import always_room
from bubbot.home import Home
from bubbot.inbox import Inbox, inbox_tape
from bubbot.outbox import Outbox, outbox_tape
from bubbot.ports.channel import BackfillCursor, Channel, ChannelOptions, CommandInfo
from bubbot.settings.channels import ChannelSettings
from bubbot.tape.entry import timestamp
from bubbot.tape.handle import Clock
from bubbot.tape.service import NewId, TapeService, session_tape
from bubbot.tape.store import TapeStore
from bubbot.views.quarantine import RestoreFact


@dataclass(frozen=True, slots=True)
class Deps:
    """The clock and the ids of a bot."""

    now: Clock
    new_id: NewId


@dataclass(frozen=True, slots=True)
class ChannelFactory:
    """Builds the channels of a bot.

    Attributes:
        store: holds their tapes.
        home: the home of the bot.
        wrap: wraps each adapter.
        group: runs their background tasks.
        workspace: the label of the home in the store.
        commands: returns the commands that people may type.
        given: clock and ids.
        restored: the backup the home was restored from, while it is in quarantine; else None.
        has_room: waits while the disk is full.
    """

    store: TapeStore
    home: Home
    wrap: Callable[[Channel], Channel]
    group: asyncio.TaskGroup
    workspace: str
    commands: Callable[[], Sequence[CommandInfo]]
    given: Deps
    restored: RestoreFact | None = None
    has_room: Callable[[], Awaitable[None]] = always_room

    def service(self, tape: str) -> TapeService:
        """Return a tape that belongs to no session."""
        return TapeService(self.store, tape, now=self.given.now, new_id=self.given.new_id, session="")

    def channel(
        self,
        name: str,
        table: Mapping[str, Any],
        people: Callable[[], tuple[str, ...]] = tuple,
        *,
        overhears: bool = False,
    ) -> Channel:
        """Build the adapter of a channel.

        Args:
            name: that of the channel.
            table: its settings; the adapter gets those that not every channel has.
            people: returns the ids of those who may speak.
            overhears: see `ChannelOptions`.
        """
        settings = {key: value for key, value in table.items() if key not in ChannelSettings.model_fields}
        inbox = Inbox(self.service(inbox_tape(name)), self.given.new_id)

        async def cursor() -> BackfillCursor:
            return replace(await inbox.newest(), people=people())

        options = ChannelOptions(
            name,
            self.home.path,
            lambda: timestamp(self.given.now()),
            self.given.new_id,
            settings,
            self.blob(name),
            cursor,
            self.commands,
            overhears,
        )
        try:
            make = plugins.load("bubbot.channels", str(table.get("kind", name)))
        except ConfigError as error:
            raise ConfigError(f"[channels.{name}] kind: {error}") from error
        channel: Channel = make(options)
        return channel

    def blob(self, name: str) -> Callable[[str], Awaitable[bytes]]:
        """Return a function that reads the files which this channel is to send."""
        outbox = Outbox(self.service(outbox_tape(name)))
        return outgoing(self.store, outbox, lambda session: session_tape(self.workspace, session))

    async def line(self, channel: Channel, rules: ChannelPolicy, *, hold: bool = False) -> ChannelRuntime:
        """Build the runtime of a channel; `hold` keeps its answers back."""
        wrapped = self.wrap(channel)
        inbox = Inbox(self.service(inbox_tape(wrapped.name)), self.given.new_id)
        outbox = Outbox(self.service(outbox_tape(wrapped.name)))
        return await make_line(
            wrapped,
            inbox,
            outbox,
            rules,
            now=self.given.now,
            spawn=self.group.create_task,
            hold=hold,
            has_room=self.has_room,
        )
