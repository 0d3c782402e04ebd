"""Accepting: who may speak, a durable append to the channel's inbox, and only then the turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from bubbot.access import AccessService
from bubbot.concurrency import whole
from bubbot.gateway.activity import ActivityTracker
from bubbot.gateway.admission import AdmissionPolicy, Decision, Ignore, OfferPairing, RecordOnly, Respond
from bubbot.gateway.health.formatter import doing_words, size_words
from bubbot.gateway.limits import Limit, PersonLimiter
from bubbot.gateway.migrations import ChatMigrations
from bubbot.inbox import Inbox, done
from bubbot.outbox import Outbox
from bubbot.ports.channel import (
    ChannelEvent,
    ChatMigration,
    Deletion,
    Edit,
    Inbound,
    Outbound,
    Reaction,
    Role,
    Sender,
    StopRequest,
    UnparsedUpdate,
)
from bubbot.ports.turn import AcceptedInbound, TapeChange, TurnResult
from bubbot.runtime.app import AppRuntime
from bubbot.runtime.link import SessionChannel
from bubbot.runtime.report import HealthReport, no_report
from bubbot.runtime.router import is_command, is_overtaking
from bubbot.tape.entry import TapeEntry
from bubbot.texts import Texts
from bubbot.views.outbox import OutboxMessage

log = logging.getLogger(__name__)

QUEUE_LIMIT = 64
"""Accepted inbounds of one channel that may wait for their turns; a pipe that writes faster is made to wait."""
STOP = ",stop"


Given = TypeVar("Given")
Placed = TypeVar("Placed", bound=Inbound | Edit | Deletion | Reaction | StopRequest)


@dataclass(frozen=True, slots=True)
class GatePolicy:
    """What a channel's gate goes by. Without `admission` whoever can write here is the owner.

    `room`: inbounds that may wait before the channel is made to wait, None for no limit; what waits is durable.
    `texts`: the bot's own sentences; `activity`: what turns are doing; `report`: how the whole bot is; `limiter`: what
    each person may send.
    """

    admission: AdmissionPolicy | None = None
    access: AccessService | None = None
    room: int | None = QUEUE_LIMIT
    moves: ChatMigrations = field(default_factory=ChatMigrations)
    texts: Texts = Texts()  # noqa: RUF009 - frozen
    activity: ActivityTracker | None = None
    report: HealthReport = no_report
    limiter: PersonLimiter | None = None


class InboundGate:
    """What a channel calls `receive` on. `tell` says something nothing is owed for, `deliver` what is on the outbox."""

    def __init__(
        self,
        link: SessionChannel,
        inbox: Inbox,
        outbox: Outbox,
        runtime: AppRuntime,
        *,
        tell: Callable[[Outbound], Awaitable[None]],
        deliver: Callable[[OutboxMessage], Awaitable[None]],
        rules: GatePolicy | None = None,
    ) -> None:
        self._rules = rules or GatePolicy()
        self._texts = self._rules.texts
        self._link = link
        self._inbox = inbox
        self._outbox = outbox
        self._runtime = runtime
        self._tell = tell
        self._deliver = deliver
        self._room = asyncio.Semaphore(self._rules.room) if self._rules.room else None
        self._told_dropped: set[str] = set()

    async def receive(self, event: ChannelEvent) -> bool | None:
        """Returns when the event is durable, or is nothing to keep; whether something will be said (see `Receive`)."""
        match event:
            case StopRequest():
                self._runtime.stop(self._homed(event).session)
            case UnparsedUpdate():
                kept = self._kept_of(event)
                if kept is None:
                    return None
                await self._inbox.set_aside(kept)
                if self._rules.admission is None:
                    told = self._texts.say("unparsed", reason=event.reason)
                    await self._tell(Outbound(event.channel, event.chat, told))
                else:  # who sent it is not told: whether they may speak cannot be read either
                    log.warning(
                        "what cannot be read was set aside: %s",
                        event.reason,
                        extra={"action": "receive.unparsed", "channel": event.channel},
                    )
            case ChatMigration():
                await self._inbox.moved(event)
                self._rules.moves.add(event.chat, event.to)
            case Inbound():
                return await self._said(self._homed(replace(event, origin="human")))  # no channel receives a firing
            case _:
                await self._changed(self._homed(event))
        return None

    async def accept(
        self, inbound: Inbound, also: Mapping[str, Sequence[TapeEntry]] = MappingProxyType({})
    ) -> asyncio.Future[TurnResult] | None:
        """Makes an inbound durable and queues its turn; None where it had been accepted before. `also`: see
        `Inbox.accept`."""
        if self._room is not None:
            await self._room.acquire()
        # Half of it would leave something durable that nobody goes on with, and its repeat would count as known.
        return await whole(self._accept(inbound, also))

    def resume(self, accepted: AcceptedInbound) -> asyncio.Future[TurnResult]:
        """Queues an inbound that an earlier process accepted."""
        return self._runtime.submit(accepted)

    def resume_change(self, changed: TapeChange) -> None:
        """Queues a change that an earlier process noted."""
        self._runtime.change(changed)

    async def _accept(
        self, inbound: Inbound, also: Mapping[str, Sequence[TapeEntry]]
    ) -> asyncio.Future[TurnResult] | None:
        try:
            accepted = await self._inbox.accept(inbound, also)
        except BaseException:
            self._leave()
            raise
        if accepted is None:
            self._leave()
            return None
        result = self._runtime.submit(accepted)
        result.add_done_callback(self._leave)
        await self._inbox.mark()
        return result

    def _leave(self, _: object = None) -> None:
        if self._room is not None:
            self._room.release()

    async def _said(self, inbound: Inbound) -> bool | None:
        match self._decide(inbound):
            case Ignore():
                return False  # without a trace: what strangers say, and what is not for the bot, is nobody's business
            case OfferPairing():
                return await self._pair(inbound)
            case RecordOnly():
                if self._exceeded(inbound) is None:
                    await whole(self._note(self._without_excess(inbound)))
                return None
            case Respond():
                if (limit := self._exceeded(inbound)) is not None:
                    return await self._skip(inbound, limit)
                taken = self._without_excess(inbound)
                if taken != inbound:
                    await self._notify(inbound, "bytes")
                return await self._spoken(taken)

    def _exceeded(self, event: Inbound | Edit | Reaction) -> Limit | None:
        limiter = self._rules.limiter
        return limiter.exceeded(event) if limiter else None

    def _without_excess(self, inbound: Inbound) -> Inbound:
        limiter = self._rules.limiter
        return limiter.without_excess(inbound) if limiter else inbound

    async def _skip(self, inbound: Inbound, limit: Limit) -> bool | None:
        """Leave a message of somebody who sends too many, before anything is written; a stop counts all the same."""
        if inbound.text.strip() == STOP:
            self._runtime.stop(inbound.session)
            return None
        return await self._notify(inbound, limit)

    async def _notify(self, inbound: Inbound, limit: Limit) -> bool:
        """Tell the sender of a limit, once in an hour; return whether that was done."""
        limiter = self._rules.limiter
        if limiter is None or not limiter.should_notify(inbound, limit):
            return False
        limits, say = limiter.limits, self._texts.say
        match limit:
            case "minute":
                told = say("skipped_minute", number=limits.messages_per_minute)
            case "hour":
                told = say("skipped_hour", number=limits.messages_per_hour)
            case "bytes":
                told = say("skipped_bytes", size=size_words(limits.bytes_per_day))
        log.warning(
            "a person is over a limit, and more of theirs is left: %s", limit,
            extra={"action": "receive.over_limit", "channel": inbound.channel, "sender": inbound.sender.id},
        )  # fmt: skip
        await self._tell(Outbound(inbound.channel, inbound.chat, told, inbound.thread, inbound.message))
        return True

    async def _spoken(self, inbound: Inbound) -> bool | None:
        """Takes up what somebody who may speak says to the bot."""
        running, waiting = self._runtime.busy(inbound.session)
        if not running:
            self._told_dropped.discard(inbound.session)
        if (running or waiting) and not self._runtime.too_old(inbound):
            if is_overtaking(inbound.text):
                return await whole(self._overtake(inbound, running=running, waiting=waiting))
            if running and self._link.rules.busy == "drop" and not is_command(inbound.text):
                return await whole(self._drop(inbound))
        return await self.accept(inbound) is not None

    def _decide(self, inbound: Inbound) -> Decision:
        return self._rules.admission.decide(inbound) if self._rules.admission else Respond(Role.OWNER)

    async def _pair(self, inbound: Inbound) -> bool:
        """Give a stranger a code, if one may be given; what was said is not kept, and without a code nothing is."""
        access = self._rules.access
        code = await access.pair(inbound.sender, inbound.channel, inbound.chat) if access else None
        if code:
            told = self._texts.say("pairing", code=code)
            await self._tell(Outbound(inbound.channel, inbound.chat, told, inbound.thread, inbound.message))
            await self._inbox.refuse(inbound.external_id)
        return False  # the code was all there is to say

    async def _note(self, event: Inbound | Edit | Deletion | Reaction) -> None:
        """Keeps what changes the session's tape without a turn."""
        changed = await self._inbox.note(event)
        if changed:
            self._runtime.change(changed)
            await self._inbox.mark()

    async def _changed(self, event: Edit | Deletion | Reaction) -> None:
        """A change counts where it is one of something known here, by somebody who may speak."""
        if isinstance(event, (Edit, Reaction)) and not self._may_speak(event):
            return
        known = await self._runtime.knows(event.channel, event.session, event.message)
        known = known or (isinstance(event, Reaction) and await self._outbox.knows(event.message))
        if known and (isinstance(event, Deletion) or self._exceeded(event) is None):
            await whole(self._note(event))

    def _kept_of(self, event: UnparsedUpdate) -> UnparsedUpdate | None:
        """What is kept of something that cannot be read: all of it if its sender may speak, nothing of a stranger's, and
        if nobody can say who sent it, why it could not be read and how long it was."""
        admission = self._rules.admission
        if admission is None:
            return event
        if not event.sender:
            return replace(event, raw=b"", reason=f"{event.reason} ({len(event.raw)} bytes of an unknown sender)")
        asked = Inbound(event.channel, "", event.chat, Sender(event.sender), "", "", direct=False)
        return None if admission.role(asked) is Role.STRANGER else event

    def _may_speak(self, event: Edit | Reaction) -> bool:
        admission = self._rules.admission
        if admission is None:
            return True
        asked = Inbound(
            event.channel, "", event.chat, event.sender, "", event.time, event.thread, direct=False, space=event.space
        )
        return admission.role(asked) is not Role.STRANGER

    async def _overtake(self, inbound: Inbound, *, running: bool, waiting: int) -> bool | None:
        """A stop or a question for the status: carried out at once, and done in the transaction that answers it."""
        accepted = await self._inbox.accept(inbound)
        if accepted is None:
            return False
        if inbound.text.strip() == STOP:
            text = "" if self._runtime.stop(inbound.session) else self._texts.say("nothing_to_stop")
        else:
            text = await self._status(accepted.inbound, running=running, waiting=waiting)
        return await self._settle(accepted, "overtook", text)

    async def _status(self, inbound: Inbound, *, running: bool, waiting: int) -> str:
        """What is under way here, and, for those who may know, how the whole bot is."""
        say, activity = self._texts.say, self._rules.activity
        doing = doing_words(self._texts, activity.of(inbound.session) if activity else None)
        if not running:
            here = say("about_to_answer", count=waiting)
        elif waiting:
            here = say("answering", doing=doing, count=waiting)
        else:
            here = say("answering_alone", doing=doing)
        return "\n".join([here, *await self._rules.report(self._link.role(inbound), direct=inbound.direct)])

    async def _drop(self, inbound: Inbound) -> bool | None:
        """Not taken up, as the channel is set; said once for each turn that is in the way."""
        accepted = await self._inbox.accept(inbound)
        if accepted is None:
            return False
        text = "" if inbound.session in self._told_dropped else self._texts.say("dropped")
        self._told_dropped.add(inbound.session)
        return await self._settle(accepted, "dropped", text)

    async def _settle(self, accepted: AcceptedInbound, outcome: str, text: str) -> bool | None:
        """The inbound is done, and answered where there is something to say, without a turn; whether there is."""
        inbound, fact = accepted.inbound, done([accepted.id], outcome=outcome)
        if not text:
            await self._inbox.append(fact)
            return None
        out = Outbound(inbound.channel, inbound.chat, text, inbound.thread, inbound.message)
        key, parts = f"{outcome}:{accepted.id}", tuple(self._link.parts(out))
        await self._deliver(await self._outbox.say(inbound.session, key, parts, {self._inbox.name: [fact]}))
        return True

    def _homed(self, event: Placed) -> Placed:
        """The event in the chat where its session began."""
        home = self._rules.moves.home(event.chat)
        return event if home == event.chat else replace(event, chat=home)
