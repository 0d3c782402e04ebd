"""One channel at run time: its adapter and everything behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from bubbot.access import AccessService
from bubbot.gateway.activity import ActivityTracker
from bubbot.gateway.admission import AdmissionPolicy
from bubbot.gateway.inbound import QUEUE_LIMIT, GatePolicy, InboundGate
from bubbot.gateway.limits import ONE_DAY, PersonLimiter, PersonLimits
from bubbot.gateway.live import LiveAnswers
from bubbot.gateway.migrations import ChatMigrations
from bubbot.gateway.outbound import Deliverer, RetryPolicy, Spawn, always_room, parts_of
from bubbot.inbox import Inbox
from bubbot.outbox import Outbox
from bubbot.ports.channel import (
    Channel,
    ChannelEvent,
    FetchesAttachments,
    Inbound,
    Role,
    ShowsPreviews,
    SupportsClose,
    SupportsEditing,
    SupportsTyping,
)
from bubbot.ports.turn import AcceptedInbound, TapeChange, TurnResult
from bubbot.runtime.app import AppRuntime
from bubbot.runtime.intake import no_fetch
from bubbot.runtime.link import SessionChannel
from bubbot.runtime.queue import QueuePolicy
from bubbot.runtime.recovery import RecoveryResult
from bubbot.runtime.report import HealthReport, no_report
from bubbot.tape.handle import Clock
from bubbot.texts import Texts
from bubbot.views.outbox import OutboxMessage


@dataclass(frozen=True, slots=True)
class ChannelPolicy:
    """The policy of a deployment for one channel.

    Attributes:
        waiting: how messages wait for their turns.
        patience: how deliveries are retried.
        admission: who may speak; None: whoever can write here is the owner.
        access: gives strangers pairing codes; None: there are none.
        room: see `GatePolicy`.
        per_chat: turns of one chat at once.
        live: show answers while they are written.
        queued: deliver answers in the background.
        one_lane: see `Deliverer`.
        limits: what each person may send.
    """

    waiting: QueuePolicy = QueuePolicy()  # noqa: RUF009 - frozen
    patience: RetryPolicy = RetryPolicy()  # noqa: RUF009 - frozen
    admission: AdmissionPolicy | None = None
    access: AccessService | None = None
    room: int | None = QUEUE_LIMIT
    per_chat: int = 2
    live: bool = True
    queued: bool = False
    one_lane: bool = False
    limits: PersonLimits = PersonLimits()  # noqa: RUF009 - frozen


@dataclass
class ChannelRuntime:
    """A channel with its inbox, outbox, gate and deliverer.

    Attributes:
        previews: shows turns while they run; None if the channel cannot.
        held: merged messages that nobody delivers yet; None if they are delivered.
        over: true after `cancel`; what is still to be said is durable, and left to the runtime that replaces this one.
    """

    channel: Channel
    inbox: Inbox
    outbox: Outbox
    link: SessionChannel
    deliverer: Deliverer
    rules: ChannelPolicy
    moves: ChatMigrations
    limiter: PersonLimiter
    previews: ShowsPreviews | None = None
    held: list[OutboxMessage] | None = None
    gate: InboundGate = field(init=False)
    over: bool = False

    def open_gate(
        self,
        runtime: AppRuntime,
        texts: Texts,
        *,
        activity: ActivityTracker | None = None,
        report: HealthReport = no_report,
    ) -> None:
        """Put a gate, which speaks with these texts, between channel and runtime."""
        rules = GatePolicy(
            self.rules.admission,
            self.rules.access,
            self.rules.room,
            self.moves,
            texts,
            activity,
            report,
            self.limiter if self.rules.admission else None,
        )
        self.gate = InboundGate(
            self.link, self.inbox, self.outbox, runtime, tell=self.deliverer.tell, deliver=self.deliver, rules=rules
        )

    def renew(self, rules: ChannelPolicy) -> None:
        """Apply another policy, except to delivering and showing, which keep the first. Open the gate again then."""
        if rules.admission is not None:
            rules.admission.where = self.moves.now
        self.rules = rules
        self.limiter.limits = rules.limits
        self.link = replace(
            self.link, role=_role(rules.admission), rules=rules.waiting, chat_limit=ChatLimits(rules.per_chat).of
        )

    async def receive(self, event: ChannelEvent) -> bool | None:
        """Pass an event of the channel to the current gate."""
        return await self.gate.receive(event)

    async def deliver(self, intent: OutboxMessage) -> None:
        """Hold, queue or send a merged message, as the policy says."""
        if self.over:
            return
        if self.held is not None:
            self.held.append(intent)
        elif self.rules.queued:
            self.deliverer.queue(intent)
        else:
            await self.deliverer.deliver(intent)

    def take_up(self, recovered: RecoveryResult, session: str | None = None) -> list[asyncio.Future[TurnResult]]:
        """Queue what an earlier process left open on this channel, of one session or of all."""
        pending: list[AcceptedInbound | TapeChange] = [*recovered.open, *recovered.changes]
        results = []
        for item in sorted(pending, key=lambda item: item.id):  # messages and changes, in the order they came
            event = item.inbound if isinstance(item, AcceptedInbound) else item.event
            if event.channel != self.channel.name or session not in (None, event.session):
                continue
            if isinstance(item, AcceptedInbound):
                results.append(self.gate.resume(item))
            else:
                self.gate.resume_change(item)
        if session is None and isinstance(self.previews, LiveAnswers):
            self.previews.close_left(
                {accepted.id for accepted in recovered.open if accepted.inbound.channel == self.channel.name}
            )
        return results

    def cancel(self) -> None:
        """Stop delivering and showing in the background; undelivered messages stay open for the next start."""
        self.over = True
        self.deliverer.cancel()
        if isinstance(self.previews, LiveAnswers):
            self.previews.cancel()

    async def aclose(self) -> None:
        """Release what the channel holds."""
        if isinstance(self.channel, SupportsClose):
            await self.channel.aclose()


async def make_line(
    channel: Channel,
    inbox: Inbox,
    outbox: Outbox,
    rules: ChannelPolicy,
    *,
    now: Clock,
    spawn: Spawn,
    hold: bool = False,
    has_room: Callable[[], Awaitable[None]] = always_room,
) -> ChannelRuntime:
    """Build a channel runtime without its gate, which needs the app runtime. The inbox tells which chats have moved.

    Args:
        channel: the adapter.
        inbox: the channel's inbox.
        outbox: the channel's outbox.
        rules: the policy.
        now: the clock.
        spawn: runs work in the background.
        hold: keep answers in `ChannelRuntime.held` instead of delivering them.
        has_room: see `Deliverer`.
    """
    moves = ChatMigrations(await inbox.moves())
    if rules.admission is not None:
        rules.admission.where = moves.now
    previews: ShowsPreviews | None = channel if isinstance(channel, ShowsPreviews) else None
    live: LiveAnswers | None = None
    if previews is None and isinstance(channel, (SupportsTyping, SupportsEditing)):
        abandoned = await outbox.unanswered_live() if isinstance(channel, SupportsEditing) else ()
        previews = live = LiveAnswers(
            channel, outbox, spawn=spawn, where=moves.now, live=rules.live, left=abandoned, has_room=has_room
        )
    deliverer = Deliverer(
        channel,
        outbox,
        rules.patience,
        now=now,
        spawn=spawn,
        where=moves.now,
        settled=live.settled if live else None,
        one_lane=rules.one_lane,
        has_room=has_room,
    )
    if live is not None:
        live.behind = deliverer.owes
    link = SessionChannel(
        channel.name,
        inbox.name,
        outbox.name,
        partial(parts_of, channel),
        _role(rules.admission),
        rules.waiting,
        ChatLimits(rules.per_chat).of,
        channel.fetch if isinstance(channel, FetchesAttachments) else no_fetch,
    )
    limiter = PersonLimiter(rules.limits, now)
    if rules.limits != PersonLimits():
        limiter.load(await inbox.recent(now() - ONE_DAY))
    return ChannelRuntime(
        channel, inbox, outbox, link, deliverer, rules, moves, limiter, previews, [] if hold else None
    )


def _role(admission: AdmissionPolicy | None) -> Callable[[Inbound], Role]:
    return admission.role if admission else lambda _: Role.OWNER


class ChatLimits:
    """Limit the turns that one chat may have at once, over all its threads."""

    def __init__(self, at_once: int) -> None:
        self._max_turns = at_once
        self._chats: dict[str, tuple[asyncio.Semaphore, int]] = {}

    def of(self, session: str) -> AbstractAsyncContextManager[None]:
        """Return a context that holds one of the turns of the session's chat."""
        return self._hold_slot(":".join(session.split(":", 2)[:2]))

    @asynccontextmanager
    async def _hold_slot(self, chat: str) -> AsyncIterator[None]:
        slots, users = self._chats.get(chat, (asyncio.Semaphore(self._max_turns), 0))
        self._chats[chat] = (slots, users + 1)
        try:
            async with slots:
                yield
        finally:
            users = self._chats[chat][1] - 1
            if users:
                self._chats[chat] = (slots, users)
            else:
                del self._chats[chat]
