"""Accepting: check who may speak, append to the channel's inbox durably, and only then run the turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, tzinfo
from types import MappingProxyType
from typing import TypeAlias, TypeVar

from bubbot.concurrency import run_uninterrupted
from bubbot.gateway.activity import ActivityTracker
from bubbot.gateway.admission import (
    STRANGER_REASON,
    AdmissionPolicy,
    Decision,
    Ignore,
    OfferPairing,
    RecordOnly,
    Respond,
)
from bubbot.gateway.groups import GroupNotices
from bubbot.gateway.health.formatter import describe_activity
from bubbot.gateway.inbox import Inbox, refused_entry
from bubbot.gateway.limits import Limit, PersonLimiter
from bubbot.gateway.migrations import ChatMigrations
from bubbot.gateway.outbox import Outbox
from bubbot.gateway.presses import (
    FoundButton,
    PressRefusal,
    find_button,
    press_inbound,
    pressed_part,
    refuse_press,
)
from bubbot.gateway.requests import AccessRequests, NotifyOwner
from bubbot.gateway.strangers import StrangerCounter
from bubbot.ports.access import CodeReminder, KnowsPeople
from bubbot.ports.channel import (
    HUMAN_ORIGIN,
    BotAdded,
    ButtonPress,
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
from bubbot.ports.health import HealthReport, report_nothing
from bubbot.ports.inbox import done_entry
from bubbot.ports.outbox import OutboxMessage, intent_entry
from bubbot.ports.text import format_bytes
from bubbot.ports.turn import AcceptedInbound, TapeChange, TurnResult
from bubbot.records import dataclass
from bubbot.runtime.app import AppRuntime
from bubbot.runtime.router import holds_command, is_overtaking
from bubbot.runtime.session import SessionChannel
from bubbot.tape.entry import TapeEntry
from bubbot.texts import Texts

log = logging.getLogger(__name__)

QUEUE_LIMIT = 64
"""Accepted inbounds of one channel that may wait for their turns; a pipe that writes faster has to wait."""
STOP = ",stop"


DecidePress: TypeAlias = Callable[[Inbound, Mapping[str, Sequence[TapeEntry]]], Awaitable[str | None]]
"""Decide at once what a pressed button asks, and store these facts of the press with the decision.

Return what the person who pressed is told if it does not count, empty if it does, and None if the button is a command like
any other: its turn has to run.
"""


async def decide_nothing(inbound: Inbound, facts: Mapping[str, Sequence[TapeEntry]]) -> str | None:  # noqa: ARG001 - see `DecidePress`
    """Return None: each button is a command."""
    return None


SpeakerT = TypeVar("SpeakerT", Inbound, ButtonPress)
EventT = TypeVar("EventT", bound=Inbound | Edit | Deletion | Reaction | BotAdded | ButtonPress | StopRequest)


@dataclass(frozen=True, slots=True)
class GatePolicy:
    """The rules and services of a channel's gate.

    Attributes:
        admission: who may speak; None: whoever can write here is the owner.
        access: gives strangers pairing codes; None: there are none.
        queue_limit: inbounds that may wait before the channel has to; None: no limit, as what waits is durable.
        migrations: the chats that moved.
        texts: the bot's own sentences.
        activity: what turns are doing; None: not tracked.
        report: the health of the whole bot.
        limiter: limits what each person may send; None: no limits.
        strangers: counts the ignored messages of strangers; None: nobody counts them.
        zone: the time zone of the deployment.
        notify_owner: asks an owner about groups, and about strangers who got a code; None: nobody does.
        decide_press: decides about presses that need no turn.
    """

    admission: AdmissionPolicy | None = None
    access: KnowsPeople | None = None
    queue_limit: int | None = QUEUE_LIMIT
    migrations: ChatMigrations = field(default_factory=ChatMigrations)
    texts: Texts = field(default_factory=Texts)
    activity: ActivityTracker | None = None
    report: HealthReport = report_nothing
    limiter: PersonLimiter | None = None
    strangers: StrangerCounter | None = None
    zone: tzinfo = UTC
    notify_owner: NotifyOwner | None = None
    decide_press: DecidePress = decide_nothing


class InboundGate:
    """Takes the events of a channel.

    Args:
        link: the channel's connection to its sessions.
        inbox: the channel's inbox.
        outbox: the channel's outbox.
        runtime: runs the turns.
        notify: sends a notice that the outbox does not hold.
        deliver: sends a message of the outbox.
        policy: None: the owner writes here, without limits.
    """

    def __init__(
        self,
        link: SessionChannel,
        inbox: Inbox,
        outbox: Outbox,
        runtime: AppRuntime,
        *,
        notify: Callable[[Outbound], Awaitable[None]],
        deliver: Callable[[OutboxMessage], Awaitable[None]],
        policy: GatePolicy | None = None,
    ) -> None:
        self._rules = policy or GatePolicy()
        self._texts = self._rules.texts
        self._link = link
        self._inbox = inbox
        self._outbox = outbox
        self._runtime = runtime
        self._tell = notify
        self._deliver = deliver
        self._slots = asyncio.Semaphore(self._rules.queue_limit) if self._rules.queue_limit else None
        self._drop_notified: set[str] = set()
        notify_owner = self._rules.notify_owner
        self._groups = GroupNotices(inbox, notify_owner) if notify_owner is not None else None
        access = self._rules.access
        self._requests = AccessRequests(inbox, access, self._texts, notify_owner) if access is not None else None

    async def receive(self, event: ChannelEvent) -> bool | str | None:
        """Return when the event is durable or discarded; what it returns says whether an answer follows (see `Receive`)."""
        match event:
            case StopRequest():
                self._runtime.stop(self._in_home_chat(event).session)
            case UnparsedUpdate():
                record = self._storable(event)
                if record is None:
                    return None
                await self._inbox.store_unparsed(record)
                if self._rules.admission is None:
                    notice = self._texts.say("unparsed", reason=event.reason)
                    await self._tell(Outbound(event.channel, event.chat, notice))
                else:  # no notice to the sender, who may be a stranger
                    log.warning(
                        "unparseable update stored: %s",
                        event.reason,
                        extra={"action": "receive.unparsed", "channel": event.channel},
                    )
            case BotAdded():
                await run_uninterrupted(self._handle_added(event))
            case ChatMigration():
                await self._inbox.record_migration(event)
            case Inbound():
                if event.origin != HUMAN_ORIGIN or event.press is not None:
                    # No channel receives a firing, and the gate alone knows what was pressed.
                    event = replace(event, origin=HUMAN_ORIGIN, press=None)
                return await self._handle_inbound(await self._with_language(self._in_home_chat(event)))
            case ButtonPress():
                return await self._handle_press(await self._with_language(self._in_home_chat(event)))
            case _:
                await self._handle_change(self._in_home_chat(event))
        return None

    async def accept(
        self,
        inbound: Inbound,
        extra_entries: Mapping[str, Sequence[TapeEntry]] = MappingProxyType({}),
        *,
        is_own: bool = False,
    ) -> asyncio.Future[TurnResult] | None:
        """Make an inbound durable and queue its turn; None if it was accepted before.

        Args:
            inbound: the inbound.
            extra_entries: see `Inbox.accept`.
            is_own: the bot makes it: it takes no place among what waits. A turn that makes one would else wait for itself.
        """
        if is_own:
            inbound = await self._with_language(inbound)
        slots = None if is_own else self._slots
        if slots is not None:
            await slots.acquire()
        # Half of it would leave a durable inbound that nobody continues, and its repeat would count as a duplicate.
        return await run_uninterrupted(self._accept(inbound, extra_entries, slots))

    async def ask(self, inbound: Inbound) -> asyncio.Future[TurnResult] | None:
        """Accept an inbound of a client that waits for its result; None if it was accepted before.

        A command that overtakes the running turn is answered at once, and its result names no turn.
        """
        # A client is no source of turns, and no button.
        inbound = self._in_home_chat(replace(inbound, origin=HUMAN_ORIGIN, press=None))
        running, waiting = self._runtime.session_activity(inbound.session)
        if not (running or waiting) or not is_overtaking(inbound):
            return await self.accept(inbound)
        text = await run_uninterrupted(self._overtake(inbound, running=running, waiting=waiting))
        return None if text is None else _settled_result(text)

    def resume(self, accepted: AcceptedInbound) -> asyncio.Future[TurnResult]:
        """Queue an inbound that an earlier process accepted."""
        return self._runtime.submit(accepted)

    def resume_change(self, change: TapeChange) -> None:
        """Queue a change that an earlier process noted."""
        self._runtime.submit_change(change)

    async def _accept(
        self, inbound: Inbound, also: Mapping[str, Sequence[TapeEntry]], slots: asyncio.Semaphore | None
    ) -> asyncio.Future[TurnResult] | None:
        def release_slot(_: object = None) -> None:
            if slots is not None:
                slots.release()

        try:
            accepted = await self._inbox.accept(inbound, also)
        except BaseException:
            release_slot()
            raise
        if accepted is None:
            release_slot()
            return None
        running, waiting = self._runtime.session_activity(inbound.session)
        is_behind = (running or waiting) and is_overtaking(inbound) and not self._runtime.is_too_old(inbound)
        if is_behind:  # what came just before it has been queued meanwhile
            release_slot()
            return _settled_result(await self._answer_at_once(accepted, running=running, waiting=waiting))
        result = self._runtime.submit(accepted)
        result.add_done_callback(release_slot)
        await self._inbox.write_checkpoint()
        return result

    async def _handle_inbound(self, inbound: Inbound) -> bool | None:
        match self._decide(inbound):
            case Ignore(reason=reason, is_call=is_call):
                if reason == STRANGER_REASON:
                    self._count_stranger()
                if is_call and self._groups is not None:
                    await run_uninterrupted(self._groups.on_call(inbound))
                return False  # leave no trace: what strangers say, and what is not for the bot, is private
            case OfferPairing():
                return await self._pair(inbound)
            case RecordOnly():
                if self._exceeded(inbound) is None:
                    await run_uninterrupted(self._note(self._without_excess(inbound)))
                return None
            case Respond():
                if (limit := self._exceeded(inbound)) is not None:
                    return await self._skip(inbound, limit)
                allowed = self._without_excess(inbound)
                if allowed != inbound:
                    await self._notify(inbound, "bytes")
                return await self._handle_addressed(allowed)

    def _exceeded(self, event: Inbound | Edit | Reaction) -> Limit | None:
        limiter = self._rules.limiter
        return limiter.exceeded(event) if limiter else None

    def _without_excess(self, inbound: Inbound) -> Inbound:
        limiter = self._rules.limiter
        return limiter.without_excess(inbound) if limiter else inbound

    async def _skip(self, inbound: Inbound, limit: Limit) -> bool | None:
        """Discard a message over a limit before anything is written; a stop still counts."""
        if inbound.text.strip() == STOP:
            self._runtime.stop(inbound.session)
            return None
        return await self._notify(inbound, limit)

    async def _notify(self, inbound: Inbound, limit: Limit) -> bool:
        """Tell the sender of a limit, at most once in an hour; return true if the sender was told."""
        limiter = self._rules.limiter
        if limiter is None or not limiter.should_notify(inbound, limit):
            return False
        limits, say = limiter.limits, self._texts_for(inbound.sender).say
        match limit:
            case "minute":
                notice = say("skipped_minute", number=limits.messages_per_minute)
            case "hour":
                notice = say("skipped_hour", number=limits.messages_per_hour)
            case "bytes":
                notice = say("skipped_bytes", size=format_bytes(limits.bytes_per_day))
        log.warning(
            "sender over a limit, message discarded: %s", limit,
            extra={"action": "receive.over_limit", "channel": inbound.channel, "sender": inbound.sender.id},
        )  # fmt: skip
        await self._tell(Outbound(inbound.channel, inbound.chat, notice, inbound.thread, inbound.message))
        return True

    async def _handle_addressed(self, inbound: Inbound) -> bool | None:
        """Queue a message to the bot from somebody who may speak, or answer it out of turn."""
        running, waiting = self._runtime.session_activity(inbound.session)
        if not running:
            self._drop_notified.discard(inbound.session)
        if (running or waiting) and not self._runtime.is_too_old(inbound):
            if is_overtaking(inbound):
                text = await run_uninterrupted(self._overtake(inbound, running=running, waiting=waiting))
                return False if text is None else bool(text) or None
            if running and self._link.queue_policy.busy == "drop" and not holds_command(inbound):
                return await run_uninterrupted(self._drop(inbound))
        result = await self.accept(inbound)
        if result is None:
            return False
        # A stop that came just after what it stops is done already, and says nothing.
        is_over = result.done() and not result.cancelled() and result.exception() is None
        return None if is_over and result.result().status == "silent" else True

    def _decide(self, inbound: Inbound) -> Decision:
        return self._rules.admission.decide(inbound) if self._rules.admission else Respond(Role.OWNER)

    async def _pair(self, inbound: Inbound) -> bool:
        """Give a stranger a code, or remind the stranger of it; the message waits with its sender, without a code nothing is kept."""
        access = self._rules.access
        code = await access.create_code(inbound.sender, inbound.channel, inbound.chat) if access else None
        if code and self._requests is not None:
            is_asked = await run_uninterrupted(self._requests.keep(inbound))
            sentence = "pairing_asked" if is_asked else "pairing" if self._has_owner() else "pairing_owner"
            notice = self._texts_for(inbound.sender).say(sentence, code=code)
            await self._tell(Outbound(inbound.channel, inbound.chat, notice, inbound.thread, inbound.message))
        elif access is None or not await run_uninterrupted(self._remind(access, inbound)):
            self._count_stranger()
        return False  # there is nothing else to say

    def _has_owner(self) -> bool:
        access, name = self._rules.access, self._link.name
        return access is not None and any(
            access.role(name, person) is Role.OWNER for person in access.list_people(name)
        )

    async def _remind(self, access: KnowsPeople, inbound: Inbound) -> bool:
        """Tell a stranger once until when the code works; the fact and the notice are stored together."""
        messages: list[OutboxMessage] = []

        async def send(reminder: CodeReminder) -> None:
            moments = (reminder.sent_at, reminder.expires_at, reminder.renewable_at)
            sent, until, again = (f"{moment.astimezone(self._rules.zone):%H:%M}" for moment in moments)
            text = self._texts_for(inbound.sender).say("pairing_reminder", sent=sent, until=until, again=again)
            parts = self._link.split(Outbound(inbound.channel, inbound.chat, text, inbound.thread, inbound.message))
            also = {
                reminder.tape: [reminder.fact],
                self._inbox.tape_of(inbound.session): [refused_entry(inbound.external_id)],
            }
            key = f"{inbound.channel}:{reminder.fact.key}"
            messages.append(await self._outbox.enqueue(inbound.session, key, tuple(parts), also))

        is_due = await access.remind(inbound.sender, inbound.channel, send)
        if is_due and self._requests is not None:  # the process may have ended after it gave the code
            await self._requests.keep(inbound, is_first=True)
        for message in messages:
            await self._deliver(message)
        return is_due

    async def admit(self, person: str | None = None) -> None:
        """Tell people who may speak by now, one or all, that they were let in, and answer the messages that waited."""
        if self._requests is None:
            return
        for inbound in await self._requests.find_admitted(person):
            if not await self._inbox.has_fact(inbound.session, inbound.external_id):
                await run_uninterrupted(self._admit(self._requests, inbound))

    async def _admit(self, requests: AccessRequests, inbound: Inbound) -> None:
        notice = requests.welcome(inbound, self._link.split)
        if await self.accept(inbound, {self._outbox.tape_of(inbound.session): [notice]}, is_own=True) is None:
            return  # another way of letting the person in was faster
        if notice.key and (message := await self._outbox.find_intent(notice.key)) is not None:
            await self._deliver(message)

    async def _handle_added(self, event: BotAdded) -> None:
        """Greet the group if an owner added the bot, and ask an owner who may speak there if nobody decided yet."""
        admission, added = self._rules.admission, self._in_home_chat(event)
        await self._greet_group(event)
        if admission is None or self._groups is None or added.chat != event.chat or admission.is_open(added):
            return
        audience = admission.audience(added)
        if audience != "known":
            await self._groups.on_added(added, is_again=audience == "nobody")

    async def _greet_group(self, event: BotAdded) -> None:
        """Say in a group how to let it speak, if an owner added the bot; the fact and the message are stored together."""
        admission, added = self._rules.admission, self._in_home_chat(event)
        probe = Inbound(event.channel, "", event.chat, event.sender, "", event.time, direct=False)
        if admission is None or admission.role(probe) is not Role.OWNER or added.chat != event.chat:
            return  # a stranger's group learns nothing, and one that moved knows already
        sentence = "group_added_open" if admission.is_open(event) else "group_added"
        text = self._texts_for(event.sender).say(sentence, group=event.chat, channel=event.channel)
        key, session = f"added:{event.external_id}", added.session
        parts = tuple(self._link.split(Outbound(added.channel, added.chat, text, added.thread)))
        intent = intent_entry(session, key, parts)
        if await self._inbox.record_added(added, {self._outbox.tape_of(session): [intent]}):
            await self._deliver(await self._outbox.enqueue(session, key, parts, {}))

    def _count_stranger(self) -> None:
        if self._rules.strangers is not None:
            self._rules.strangers.add()

    async def _handle_press(self, press: ButtonPress) -> str | None:
        """Queue the command of a pressed button, or return why nothing happens, for the person who pressed."""
        probe = Inbound(
            press.channel, press.external_id, press.chat, press.sender, "", press.time, press.thread,
            direct=press.direct, space=press.space,
        )  # fmt: skip
        decision = self._decide(probe)
        if decision == Ignore("ignored"):
            return None
        if not isinstance(decision, Respond):  # a stranger, who learns nothing about the button and leaves no trace
            self._count_stranger()
            return self._texts_for(press.sender).say("press_foreign")
        if self._exceeded(probe) is not None:  # before anything is written
            return self._texts_for(press.sender).say("press_later")
        found = await find_button(self._outbox, press)
        reason = refuse_press(press, found, decision.role)
        if reason is not None or found is None:
            return await self._refuse_press(press, reason or "forged")
        return await run_uninterrupted(self._accept_press(press, found))

    async def _accept_press(self, press: ButtonPress, found: FoundButton) -> str | None:
        """Store a press and what it decides in one transaction; or with the change of its message, and queue its command."""
        inbound = press_inbound(press, found)
        if await self._inbox.find_press(found.button_set.key, inbound.session) is not None:
            return await self._refuse_repeated(press, inbound)
        reason = await self._rules.decide_press(inbound, self._inbox.pressed_entries(inbound))
        if reason is not None:
            is_second = reason and await self._inbox.find_press(found.button_set.key, inbound.session) is not None
            return await self._refuse_repeated(press, inbound) if is_second else reason or None
        cause = f"pressed:{found.button_set.key}"
        edit = intent_entry(inbound.session, cause, (pressed_part(press, found, self._link.split),))
        if await self.accept(inbound, {self._outbox.tape_of(inbound.session): [edit]}) is None:
            return await self._refuse_repeated(press, inbound)
        if edit.key and (message := await self._outbox.find_intent(edit.key)) is not None:
            await self._deliver(message)
        return None

    async def _refuse_repeated(self, press: ButtonPress, inbound: Inbound) -> str | None:
        """Say nothing to a press that came before, and refuse one of a button set that was pressed before."""
        first = await self._inbox.find_press(inbound.press.buttons, inbound.session) if inbound.press else None
        is_repeat = first is not None and first.id == press.external_id
        return None if is_repeat else await self._refuse_press(press, "taken")

    async def _refuse_press(self, press: ButtonPress, reason: PressRefusal) -> str:
        await self._inbox.record_press_refused(press, reason)
        say = self._texts_for(press.sender).say
        match reason:
            case "foreign":
                return say("press_foreign")
            case "taken":
                return say("press_taken")
            case "expired" | "forged":
                return say("press_expired")

    async def _note(self, event: Inbound | Edit | Deletion | Reaction) -> None:
        """Record an event that changes the session's tape without a turn."""
        change = await self._inbox.record_change(event)
        if change:
            self._runtime.submit_change(change)
            await self._inbox.write_checkpoint()

    async def _handle_change(self, event: Edit | Deletion | Reaction) -> None:
        """Record a change of a message that is known here, if the sender may speak."""
        if isinstance(event, (Edit, Reaction)) and not self._may_speak(event):
            return
        is_known = await self._runtime.has_message(event.channel, event.session, event.message)
        is_known = is_known or (isinstance(event, Reaction) and await self._outbox.has_receipt(event.message))
        if is_known and (isinstance(event, Deletion) or self._exceeded(event) is None):
            await run_uninterrupted(self._note(event))

    def _storable(self, event: UnparsedUpdate) -> UnparsedUpdate | None:
        """Return what to keep of an unparsed update.

        All of it if its sender may speak, nothing of a stranger's; if the sender is unknown, the reason and the length.
        """
        admission = self._rules.admission
        if admission is None:
            return event
        if not event.sender:
            return replace(event, raw=b"", reason=f"{event.reason} ({len(event.raw)} bytes of an unknown sender)")
        probe = Inbound(event.channel, "", event.chat, Sender(event.sender), "", "", direct=False)
        return None if admission.role(probe) is Role.STRANGER else event

    def _may_speak(self, event: Edit | Reaction) -> bool:
        admission = self._rules.admission
        if admission is None:
            return True
        probe = Inbound(
            event.channel, "", event.chat, event.sender, "", event.time, event.thread, direct=False, space=event.space
        )
        return admission.role(probe) is not Role.STRANGER

    async def _overtake(self, inbound: Inbound, *, running: bool, waiting: int) -> str | None:
        """Run a stop or a status command at once; it is done in the transaction that stores its answer.

        Return the answer, which may be empty; None if the command was accepted before.
        """
        accepted = await self._inbox.accept(inbound)
        return None if accepted is None else await self._answer_at_once(accepted, running=running, waiting=waiting)

    async def _answer_at_once(self, accepted: AcceptedInbound, *, running: bool, waiting: int) -> str:
        if accepted.inbound.text.strip() == STOP:
            say = self._texts_for(accepted.inbound.sender).say
            text = "" if self._runtime.stop(accepted.inbound.session) else say("nothing_to_stop")
        else:
            text = await self._status(accepted.inbound, running=running, waiting=waiting)
        await self._settle(accepted, "overtook", text)
        return text

    async def _status(self, inbound: Inbound, *, running: bool, waiting: int) -> str:
        """Describe the session's work, and, to those who may know, the health of the whole bot."""
        texts, activity = self._texts_for(inbound.sender), self._rules.activity
        say = texts.say
        activity_text = describe_activity(texts, activity.get(inbound.session) if activity else None)
        if not running:
            session_line = say("about_to_answer", count=waiting)
        elif waiting:
            session_line = say("answering", doing=activity_text, count=waiting)
        else:
            session_line = say("answering_alone", doing=activity_text)
        report = await self._rules.report(self._link.role(inbound), direct=inbound.direct, texts=texts)
        return "\n".join([session_line, *report])

    async def _drop(self, inbound: Inbound) -> bool | None:
        """Accept a message without a turn, as the channel drops those that come during one; say so once a turn."""
        accepted = await self._inbox.accept(inbound)
        if accepted is None:
            return False
        text = "" if inbound.session in self._drop_notified else self._texts_for(inbound.sender).say("dropped")
        self._drop_notified.add(inbound.session)
        return await self._settle(accepted, "dropped", text)

    async def _settle(self, accepted: AcceptedInbound, outcome: str, text: str) -> bool | None:
        """Mark the inbound as done without a turn and send `text`, if any; return true if there is any."""
        inbound, fact = accepted.inbound, done_entry([accepted.id], outcome=outcome)
        if not text:
            await self._inbox.append(fact, session=inbound.session)
            return None
        replied_to = inbound.message or inbound.external_id  # a terminal's messages have no id of the platform
        outbound = Outbound(inbound.channel, inbound.chat, text, inbound.thread, replied_to)
        key, parts = f"{outcome}:{accepted.id}", tuple(self._link.split(outbound))
        also = {self._inbox.tape_of(inbound.session): [fact]}
        await self._deliver(await self._outbox.enqueue(inbound.session, key, parts, also, inbound=accepted.id))
        return True

    def _texts_for(self, person: Sender) -> Texts:
        """Return the bot's own sentences in the language of a person."""
        return self._texts.in_language(person.language)

    async def _with_language(self, event: SpeakerT) -> SpeakerT:
        """Return the event with the language that the person had last, if the platform does not tell it this time."""
        if event.sender.language or self._rules.admission is None:  # without admission the owner alone writes here
            return event
        language = await self._inbox.languages.find(event.sender.id)
        return replace(event, sender=replace(event.sender, language=language)) if language else event

    def _in_home_chat(self, event: EventT) -> EventT:
        """Return the event in the chat in which its session began."""
        home = self._rules.migrations.home(event.chat)
        return event if home == event.chat else replace(event, chat=home)


def _settled_result(text: str) -> asyncio.Future[TurnResult]:
    """Return the result of a command that was answered without a turn."""
    result: asyncio.Future[TurnResult] = asyncio.get_running_loop().create_future()
    result.set_result(TurnResult("", "answered" if text else "silent", text))
    return result
