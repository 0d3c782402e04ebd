"""One channel at run time: its adapter and everything behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from functools import partial

import msgspec
from msgspec import Struct

from bubbot.gateway.activity import ActivityTracker
from bubbot.gateway.admission import AdmissionPolicy
from bubbot.gateway.inbound import QUEUE_LIMIT, DecidePress, InboundGate
from bubbot.gateway.inbox import Inbox
from bubbot.gateway.inbox_views import inbound_entry, place_of
from bubbot.gateway.limits import ONE_DAY, PersonLimiter, PersonLimits
from bubbot.gateway.live import LiveAnswers
from bubbot.gateway.migrations import ChatMigrations
from bubbot.gateway.outbound import CreateTask, Deliverer, RetryPolicy, split_outbound
from bubbot.gateway.outbox import Outbox
from bubbot.gateway.requests import NotifyOwner
from bubbot.gateway.strangers import StrangerCounter
from bubbot.middleware import AroundDelivery
from bubbot.ports.access import KnowsPeople
from bubbot.ports.channel import (
    Channel,
    ChannelEvent,
    FetchesAttachments,
    HasCommandPrefix,
    Inbound,
    Outbound,
    Role,
    ShowsPreviews,
    SupportsClose,
    SupportsEditing,
    SupportsTyping,
)
from bubbot.ports.health import HealthReport
from bubbot.ports.outbox import OutboxMessage
from bubbot.ports.store import no_wait_for_room
from bubbot.ports.turn import AcceptedInbound, TapeChange, TurnResult
from bubbot.ports.workers import SharedTurns
from bubbot.runtime.app import AppRuntime
from bubbot.runtime.attachments import refuse_fetch
from bubbot.runtime.queue import QueuePolicy
from bubbot.runtime.recovery import OpenWork
from bubbot.runtime.session import SessionChannel
from bubbot.tape.handle import Clock
from bubbot.texts import COMMAND_PREFIX, Texts


class ChannelPolicy(Struct, frozen=True):
    """The policy of a deployment for one channel.

    Attributes:
        queue_policy: how messages wait for their turns.
        retry_policy: how deliveries are retried.
        admission: decides who may speak; None: everyone who can write here is the owner.
        access: gives strangers pairing codes; None: no codes.
        queue_limit: inbounds that may wait before the channel must wait; None: no limit, since waiting inbounds are
            durable.
        max_turns_per_chat: concurrent turns of one chat.
        live: show answers while the model writes them.
        one_lane: see `Deliverer`.
        person_limits: the limits of each person.
    """

    queue_policy: QueuePolicy = msgspec.field(default_factory=QueuePolicy)
    retry_policy: RetryPolicy = msgspec.field(default_factory=RetryPolicy)
    admission: AdmissionPolicy | None = None
    access: KnowsPeople | None = None
    queue_limit: int | None = QUEUE_LIMIT
    max_turns_per_chat: int = 2
    live: bool = True
    deliver_in_background: bool = False
    one_lane: bool = False
    person_limits: PersonLimits = msgspec.field(default_factory=PersonLimits)


@dataclass
class ChannelRuntime:
    """A channel with its inbox, outbox, gate and deliverer.

    Attributes:
        strangers: counts the ignored messages of strangers.
        previews: shows running turns; None if the channel cannot.
        held_messages: merged messages that are not delivered yet; None if messages are delivered at once.
        read_on: folds what other processes wrote, before an event is judged; None with one process.
        shared: says which messages this process delivers; None: all.
        is_cancelled: true after `cancel`; remaining messages are durable, and the runtime that replaces this one
            delivers them.
    """

    channel: Channel
    inbox: Inbox
    outbox: Outbox
    link: SessionChannel
    deliverer: Deliverer
    policy: ChannelPolicy
    migrations: ChatMigrations
    limiter: PersonLimiter
    strangers: StrangerCounter
    previews: ShowsPreviews | None = None
    held_messages: list[OutboxMessage] | None = None
    read_on: Callable[[], Awaitable[None]] | None = None
    shared: SharedTurns | None = None
    gate: InboundGate = field(init=False)
    is_cancelled: bool = False
    _order: asyncio.Lock = field(default_factory=asyncio.Lock)
    _readings: int = 0
    _last_read: int = 0

    def open_gate(
        self,
        runtime: AppRuntime,
        texts: Texts,
        *,
        activity: ActivityTracker | None = None,
        report: HealthReport | None = None,
        zone: tzinfo = UTC,
        notify_owner: NotifyOwner | None = None,
        decide_press: DecidePress | None = None,
    ) -> None:
        """Put a gate that uses these texts between channel and runtime."""
        self.deliverer.find_texts = partial(self.find_texts, texts, "")
        policy = self.policy
        self.gate = InboundGate(
            self.link,
            self.inbox,
            self.outbox,
            runtime,
            notify=self.notify,
            deliver=self.deliver,
            admission=policy.admission,
            access=policy.access,
            queue_limit=policy.queue_limit,
            migrations=self.migrations,
            texts=texts.with_command_prefix(self.link.command_prefix),
            activity=activity,
            report=report,
            limiter=self.limiter if policy.admission else None,
            strangers=self.strangers,
            zone=zone,
            notify_owner=notify_owner,
            decide_press=decide_press,
        )

    async def find_texts(self, texts: Texts, person: str = "", chat: str = "") -> Texts:
        """Return the sentences in the language of a person; without one, of the last writer in the chat."""
        names = [person] if person else []
        language = await self.inbox.languages.find(*names, *([place_of(chat)] if chat else []))
        return texts.with_command_prefix(self.link.command_prefix).in_language(language)

    def apply_policy(self, policy: ChannelPolicy) -> None:
        """Apply another policy, except for deliveries and previews, which keep the first. Open the gate again
        afterwards.
        """
        if policy.admission is not None:
            policy.admission.current_chat = self.migrations.current
        self.policy = policy
        self.limiter.limits = policy.person_limits
        self.link = replace(
            self.link,
            role=_role(policy.admission),
            queue_policy=policy.queue_policy,
            chat_limit=ChatLimits(policy.max_turns_per_chat).acquire,
        )

    async def receive(self, event: ChannelEvent) -> bool | str | None:
        """Pass an event of the channel to the current gate."""
        if self.read_on is not None:
            await self._read_others(self.read_on)
        return await self.gate.receive(event)

    async def _read_others(self, read_on: Callable[[], Awaitable[None]]) -> None:
        """Read on for an event; events that come meanwhile share the next reading, and keep their order."""
        begun = self._readings
        async with self._order:
            if self._last_read > begun:  # it began after this event had come
                return
            self._readings += 1
            number = self._readings
            await read_on()
            self.limiter.load(await self.inbox.read_others())
            self._last_read = number

    async def notify(self, outbound: Outbound) -> None:
        """Send a notice that is not in the outbox; in the background, if answers are delivered so.

        The chat may accept nothing for minutes, and messages of other chats wait for the acceptance of the one that
        caused it.
        """
        if self.policy.deliver_in_background:
            self.deliverer.enqueue_notice(outbound)
        else:
            await self.deliverer.notify(outbound)

    async def deliver(self, message: OutboxMessage) -> None:
        """Hold, queue or send a merged message, as the policy requires."""
        if self.is_cancelled:
            return
        if self.shared is not None and not self.shared.takes(self.channel.name, message.session, message.id):
            return  # whoever has the chat delivers it
        if self.held_messages is not None:
            self.held_messages.append(message)
        elif self.policy.deliver_in_background:
            self.deliverer.enqueue(message)
        else:
            await self.deliverer.deliver(message)

    def resume(self, open_work: OpenWork, session: str | None = None) -> list[asyncio.Future[TurnResult]]:
        """Queue the work that an earlier process left open on this channel, of one session or of all."""
        pending: list[AcceptedInbound | TapeChange] = [*open_work.inbounds, *open_work.changes]
        results = []
        for item in sorted(pending, key=lambda item: item.id):  # messages and changes, in order of arrival
            event = item.inbound if isinstance(item, AcceptedInbound) else item.event
            if event.channel != self.channel.name or session not in (None, event.session):
                continue
            if isinstance(item, AcceptedInbound):
                results.append(self.gate.resume(item))
            else:
                self.gate.resume_change(item)
        if session is None and isinstance(self.previews, LiveAnswers):
            self.previews.close_abandoned({(accepted.inbound.session, accepted.id) for accepted in open_work.inbounds})
        return results

    def cancel(self) -> None:
        """Stop deliveries and previews in the background; undelivered messages stay open for the next start."""
        self.is_cancelled = True
        self.deliverer.cancel()
        if isinstance(self.previews, LiveAnswers):
            self.previews.cancel()

    def drop(self) -> None:
        """Stop what is being delivered and shown: another process goes on with it."""
        self.deliverer.cancel()
        if isinstance(self.previews, LiveAnswers):
            self.previews.drop()

    async def aclose(self) -> None:
        self.strangers.close()
        if isinstance(self.channel, SupportsClose):
            await self.channel.aclose()


async def make_channel_runtime(
    channel: Channel,
    inbox: Inbox,
    outbox: Outbox,
    policy: ChannelPolicy,
    *,
    now: Clock,
    create_task: CreateTask,
    hold: bool = False,
    wait_for_room: Callable[[], Awaitable[None]] = no_wait_for_room,
    around_delivery: Sequence[AroundDelivery] = (),
    read_on: Callable[[], Awaitable[None]] | None = None,
    shared: SharedTurns | None = None,
) -> ChannelRuntime:
    """Build a channel runtime without its gate, which needs the app runtime. Read the moved chats from the inbox.

    Args:
        hold: keep answers in `ChannelRuntime.held_messages` instead of delivering them.
        wait_for_room: see `Deliverer`.
        around_delivery: see `Deliverer`.
        read_on: see `ChannelRuntime`.
        shared: see `ChannelRuntime`.
    """
    moves = await inbox.read_migrations()
    if policy.admission is not None:
        policy.admission.current_chat = moves.current
    previews: ShowsPreviews | None = channel if isinstance(channel, ShowsPreviews) else None
    live: LiveAnswers | None = None
    if previews is None and isinstance(channel, (SupportsTyping, SupportsEditing)):
        abandoned = await outbox.unanswered_live() if isinstance(channel, SupportsEditing) else ()
        previews = live = LiveAnswers(
            channel,
            outbox,
            create_task=create_task,
            current_chat=moves.current,
            live=policy.live,
            abandoned=abandoned,
            wait_for_room=wait_for_room,
        )
    deliverer = Deliverer(
        channel,
        outbox,
        policy.retry_policy,
        now=now,
        create_task=create_task,
        current_chat=moves.current,
        wait_until_settled=live.wait_until_settled if live else None,
        take_unshown=live.take_unshown if live else lambda _session, _inbound: False,
        one_lane=policy.one_lane,
        wait_for_room=wait_for_room,
        around_delivery=around_delivery,
    )
    if live is not None:
        live.has_pending = deliverer.has_pending
    link = SessionChannel(
        channel.name,
        partial(split_outbound, channel),
        _role(policy.admission),
        policy.queue_policy,
        ChatLimits(policy.max_turns_per_chat).acquire,
        channel.fetch if isinstance(channel, FetchesAttachments) else refuse_fetch,
        command_prefix=channel.command_prefix if isinstance(channel, HasCommandPrefix) else COMMAND_PREFIX,
        inbox_of=inbox.tape_of,
        outbox_of=outbox.tape_of,
        inbound_entry=inbound_entry,
    )
    limiter = PersonLimiter(policy.person_limits, now)
    if policy.person_limits != PersonLimits():
        limiter.load(await inbox.recent_messages(now() - ONE_DAY))
        if read_on is not None:
            await inbox.read_others()  # from here on
    strangers = StrangerCounter(channel.name)
    return ChannelRuntime(
        channel,
        inbox,
        outbox,
        link,
        deliverer,
        policy,
        moves,
        limiter,
        strangers,
        previews,
        [] if hold else None,
        read_on,
        shared,
    )


def _role(admission: AdmissionPolicy | None) -> Callable[[Inbound], Role]:
    return admission.role if admission else lambda _: Role.OWNER


class ChatLimits:
    """Limits the concurrent turns of a chat, over all its threads."""

    def __init__(self, max_turns: int) -> None:
        self._max_turns = max_turns
        self._chats: dict[str, _ChatTurns] = {}

    def acquire(self, session: str) -> AbstractAsyncContextManager[None]:
        """Return a context manager that holds one of the turns of the session's chat."""
        chat = ":".join(session.split(":", 2)[:2])
        turns = self._chats.get(chat)
        if turns is None:
            turns = self._chats[chat] = _ChatTurns(self._max_turns, partial(self._chats.pop, chat))
        return turns


class _ChatTurns:
    """The turns of one chat; each block holds one of them, and the last one calls `on_unused`."""

    def __init__(self, max_turns: int, on_unused: Callable[[], object]) -> None:
        self._slots = asyncio.Semaphore(max_turns)
        self._users = 0
        self._on_unused = on_unused

    async def __aenter__(self) -> None:
        self._users += 1
        try:
            await self._slots.acquire()
        except BaseException:
            self._forget_user()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._slots.release()
        self._forget_user()

    def _forget_user(self) -> None:
        self._users -= 1
        if not self._users:
            self._on_unused()
