"""Accepting: who may speak, a durable append to the channel's inbox, and only then the turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from bubbot.access import Access
from bubbot.channel import (
    ChannelEvent,
    Deletion,
    Edit,
    Inbound,
    Moved,
    Outbound,
    Reaction,
    Role,
    Stop,
    Unparsed,
)
from bubbot.gateway.activity import Activity
from bubbot.gateway.admission import Admission, Decision, Listen, Pair, Silence, Speak
from bubbot.gateway.health_words import doing_words
from bubbot.gateway.moves import Moves
from bubbot.inbox import Inbox, done
from bubbot.outbox import Outbox
from bubbot.runtime.app import AppRuntime
from bubbot.runtime.link import ChannelLink
from bubbot.runtime.report import Report, no_report
from bubbot.runtime.router import is_command
from bubbot.supervise import whole
from bubbot.tape.entry import TapeEntry
from bubbot.texts import Texts
from bubbot.turn import Accepted, Changed, TurnResult
from bubbot.views.outbox import Intent

log = logging.getLogger(__name__)

QUEUE_LIMIT = 64
"""Accepted inbounds of one channel that may wait for their turns; a pipe that writes faster is made to wait."""
OVERTAKING = (",stop", ",status")
"""Commands that do not wait for the turn under way."""

Given = TypeVar("Given")
Placed = TypeVar("Placed", bound=Inbound | Edit | Deletion | Reaction | Stop)


@dataclass(frozen=True, slots=True)
class GateRules:
    """What a channel's gate goes by. Without `admission` whoever can write here is the owner.

    `room`: inbounds that may wait before the channel is made to wait, None for no limit; what waits is durable.
    `texts`: the bot's own sentences; `activity`: what turns are doing; `report`: how the whole bot is.
    """

    admission: Admission | None = None
    access: Access | None = None
    room: int | None = QUEUE_LIMIT
    moves: Moves = field(default_factory=Moves)
    texts: Texts = Texts()  # noqa: RUF009 - frozen
    activity: Activity | None = None
    report: Report = no_report


class InboundGate:
    """What a channel calls `receive` on. `tell` says something nothing is owed for, `deliver` what is on the outbox."""

    def __init__(
        self,
        link: ChannelLink,
        inbox: Inbox,
        outbox: Outbox,
        runtime: AppRuntime,
        *,
        tell: Callable[[Outbound], Awaitable[None]],
        deliver: Callable[[Intent], Awaitable[None]],
        rules: GateRules | None = None,
    ) -> None:
        self._rules = rules or GateRules()
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
            case Stop():
                self._runtime.stop(self._homed(event).session)
            case Unparsed():
                await self._inbox.set_aside(event)
                if self._rules.admission is None:
                    told = self._texts.say("unparsed", reason=event.reason)
                    await self._tell(Outbound(event.channel, event.chat, told))
                else:  # who sent it is not told: whether they may speak cannot be read either
                    log.warning(
                        "what cannot be read was set aside: %s",
                        event.reason,
                        extra={"action": "receive.unparsed", "channel": event.channel},
                    )
            case Moved():
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

    def resume(self, accepted: Accepted) -> asyncio.Future[TurnResult]:
        """Queues an inbound that an earlier process accepted."""
        return self._runtime.submit(accepted)

    def resume_change(self, changed: Changed) -> None:
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
            case Silence():
                return False  # without a trace: what strangers say, and what is not for the bot, is nobody's business
            case Pair():
                return await self._pair(inbound)
            case Listen():
                await whole(self._note(inbound))
                return None
            case Speak():
                return await self._spoken(inbound)

    async def _spoken(self, inbound: Inbound) -> bool | None:
        """Takes up what somebody who may speak says to the bot."""
        running, waiting = self._runtime.busy(inbound.session)
        if not running:
            self._told_dropped.discard(inbound.session)
        if (running or waiting) and not self._runtime.too_old(inbound):
            if inbound.text.strip() in OVERTAKING:
                return await whole(self._overtake(inbound, running=running, waiting=waiting))
            if running and self._link.rules.busy == "drop" and not is_command(inbound.text):
                return await whole(self._drop(inbound))
        return await self.accept(inbound) is not None

    def _decide(self, inbound: Inbound) -> Decision:
        return self._rules.admission.decide(inbound) if self._rules.admission else Speak(Role.OWNER)

    async def _pair(self, inbound: Inbound) -> bool:
        """A stranger gets a code, where one may be given; what was said is not kept."""
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
        if known or (isinstance(event, Reaction) and await self._outbox.knows(event.message)):
            await whole(self._note(event))

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
        if inbound.text.strip() == ",stop":
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

    async def _settle(self, accepted: Accepted, outcome: str, text: str) -> bool | None:
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
