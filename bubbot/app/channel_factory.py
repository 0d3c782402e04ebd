"""Build a channel and everything behind it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import tzinfo
from typing import Any

from msgspec import Struct, field, structs

from bubbot import plugins
from bubbot.app.events import OWN_REFERENCES
from bubbot.errors import BubbotError, ConfigError
from bubbot.gateway.channel_runtime import ChannelPolicy, ChannelRuntime, make_channel_runtime
from bubbot.gateway.facts import HomeRestored
from bubbot.gateway.files import outgoing_blob_reader
from bubbot.gateway.inbox import Inbox, inbox_tape
from bubbot.gateway.outbox import Outbox, outbox_tape
from bubbot.home import Home
from bubbot.middleware import AroundDelivery
from bubbot.ports.channel import BackfillCursor, Channel, ChannelOptions, CommandInfo
from bubbot.ports.lease import SessionLease
from bubbot.ports.session_names import first_session
from bubbot.ports.store import no_wait_for_room
from bubbot.ports.workers import SharedTurns
from bubbot.settings.channels import ChannelSettings
from bubbot.tape.entry import timestamp
from bubbot.tape.fact import Cited
from bubbot.tape.handle import Clock
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.references import ReferenceRegistry
from bubbot.tape.service import NewId, TapeService, session_tape
from bubbot.tape.store import TapeStore

log = logging.getLogger(__name__)


async def _leave_to_others(work: Coroutine[Any, Any, None]) -> None:
    """Run the background work of a channel. If the store fails it, what is open waits for a process that can do it."""
    try:
        await work
    except BubbotError as error:
        log.warning("delivery broken off, it is tried again: %s", error, extra={"action": "deliver.broken_off"})


class Deps(Struct, frozen=True):
    """The clock and the ids of a bot."""

    now: Clock
    new_id: NewId


class ChannelFactory(Struct, frozen=True):
    """Builds the channels of a bot.

    Attributes:
        store: holds the channels' tapes.
        wrap: wraps each adapter.
        group: runs the channels' background tasks.
        workspace: the label of the home in the store.
        commands: returns the commands that people may type.
        zone: the time zone of the deployment.
        restore_fact: the backup from which the home was restored, while it is in quarantine; else None.
        wait_for_room: waits while the disk is full.
        around_delivery: wraps the sending of each part of a message.
        projections: the projections of this process.
        references: the declared references of entries.
        leases: the leases of this process; None if nothing is sent.
        shared: the turns that other processes run, too; None: this one runs all.
    """

    store: TapeStore
    home: Home
    wrap: Callable[[Channel], Channel]
    group: asyncio.TaskGroup
    workspace: str
    commands: Callable[[], Sequence[CommandInfo]]
    deps: Deps
    zone: tzinfo
    restore_fact: Cited[HomeRestored] | None = None
    wait_for_room: Callable[[], Awaitable[None]] = no_wait_for_room
    around_delivery: Sequence[AroundDelivery] = ()
    projections: ProjectionRunner = field(default_factory=ProjectionRunner)
    references: ReferenceRegistry = OWN_REFERENCES
    leases: SessionLease | None = None
    shared: SharedTurns | None = None

    def open_tape(self, tape: str) -> TapeService:
        """Return a tape that belongs to no session."""
        return TapeService(
            self.store, tape, now=self.deps.now, new_id=self.deps.new_id, session="", references=self.references
        )

    async def first_session(self, session: str) -> str:
        return await first_session(self.store, session)

    def build_adapter(
        self,
        name: str,
        table: Mapping[str, Any],
        people: Callable[[], tuple[str, ...]] = tuple,
        *,
        overhears: bool = False,
    ) -> Channel:
        """Build the adapter of a channel.

        Args:
            table: its settings; the adapter gets those that are not common to all channels.
            people: returns the ids of people who may speak.
            overhears: see `ChannelOptions`.
        """
        settings = {key: value for key, value in table.items() if key not in ChannelSettings.model_fields}
        inbox = Inbox(self.open_tape(inbox_tape(name)), self.deps.new_id)

        async def cursor() -> BackfillCursor:
            return structs.replace(await inbox.read_cursor(), allowed_ids=people())

        options = ChannelOptions(
            name,
            self.home.path,
            lambda: timestamp(self.deps.now()),
            self.deps.new_id,
            settings,
            self.blob_reader(name),
            cursor,
            self.commands,
            overhears,
            self.zone,
        )
        try:
            make = plugins.load("bubbot.channels", str(table.get("kind", name)))
        except ConfigError as error:
            raise ConfigError(f"[channels.{name}] kind: {error}") from error
        channel: Channel = make(options)
        return channel

    def blob_reader(self, name: str) -> Callable[[str], Awaitable[bytes]]:
        """Return the function that reads the files to send on this channel."""
        outbox = Outbox(self.open_tape(outbox_tape(name)), self.projections)
        return outgoing_blob_reader(self.store, outbox, lambda session: session_tape(self.workspace, session))

    def _create_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self.group.create_task(work if self.shared is None else _leave_to_others(work))

    async def build_runtime(self, channel: Channel, policy: ChannelPolicy, *, hold: bool = False) -> ChannelRuntime:
        """Build the runtime of a channel; `hold` withholds its answers."""
        wrapped = self.wrap(channel)
        inbox = Inbox(self.open_tape(inbox_tape(wrapped.name)), self.deps.new_id, self.projections)
        outbox = Outbox(self.open_tape(outbox_tape(wrapped.name)), self.projections, self.leases)
        return await make_channel_runtime(
            wrapped,
            inbox,
            outbox,
            policy,
            now=self.deps.now,
            create_task=self._create_task,
            hold=hold,
            wait_for_room=self.wait_for_room,
            around_delivery=self.around_delivery,
            read_on=self.projections.read_on if self.projections.is_shared else None,
            shared=self.shared,
        )
