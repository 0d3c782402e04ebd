"""Accepting: check who may speak, append durably to the channel's inbox, and only then run the turn.

Each kind of event has one path, a method `_on_…` that names its stages in order. Its result tells the channel if an
answer follows (see `Receive`). All accepted messages pass `accept`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import tzinfo
from types import MappingProxyType
from typing import TypeAlias, TypeVar

from msgspec import structs

from bubbot.concurrency import run_uninterrupted, uninterrupted
from bubbot.formatting import format_bytes
from bubbot.gateway.activity import ActivityTracker
from bubbot.gateway.admission import (
    STRANGER_REASON,
    AdmissionPolicy,
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
from bubbot.ports.health import HealthReport
from bubbot.ports.inbox import done_entry
from bubbot.ports.outbox import OutboxMessage, intent_entry
from bubbot.ports.turn import AcceptedInbound, TapeChange, TurnResult
from bubbot.runtime.app import AppRuntime
from bubbot.runtime.router import STOP, holds_command, is_overtaking
from bubbot.runtime.session import SessionChannel
from bubbot.tape.entry import TapeEntry
from bubbot.texts import Texts

log = logging.getLogger(__name__)

QUEUE_LIMIT = 64
"""Accepted inbounds of one channel that may wait for their turns; a pipe that writes faster must wait."""

DecidePress: TypeAlias = Callable[[Inbound, Mapping[str, Sequence[TapeEntry]]], Awaitable[str | None]]
"""Decide a pressed button at once, and store these facts of the press with the decision.

Return the text for the person if the press does not count, an empty text if it does, and None if the button is a command like
any other: its turn has to run.
"""


SpeakerT = TypeVar("SpeakerT", Inbound, ButtonPress)
EventT = TypeVar("EventT", bound=Inbound | Edit | Deletion | Reaction | BotAdded | ButtonPress | StopRequest)


class InboundGate:
    """Takes the events of a channel.

    Args:
        notify: sends a notice without the outbox.
        deliver: sends a message from the outbox.
        admission: decides who may speak; None: everyone who can write here is the owner.
        access: gives strangers pairing codes; None: no codes.
        queue_limit: see `ChannelPolicy`.
        migrations: the chats that moved.
        texts: the bot's own sentences.
        activity: the activity of turns; None: not tracked.
        report: reports the health of the whole bot; None: do not report it.
        limiter: the limits of each person; None: no limits.
        strangers: counts the ignored messages of strangers.
        zone: the time zone of the deployment.
        notify_owner: asks an owner about groups and about strangers with a code; None: do not ask.
        decide_press: decides presses that need no turn; None: all need one.
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
        admission: AdmissionPolicy | None,
        access: KnowsPeople | None,
        queue_limit: int | None,
        migrations: ChatMigrations,
        texts: Texts,
        activity: ActivityTracker | None,
        report: HealthReport | None,
        limiter: PersonLimiter | None,
        strangers: StrangerCounter,
        zone: tzinfo,
        notify_owner: NotifyOwner | None,
        decide_press: DecidePress | None,
    ) -> None:
        self._link = link
        self._inbox = inbox
        self._outbox = outbox
        self._runtime = runtime
        self._tell = notify
        self._deliver = deliver
        self._admission = admission
        self._access = access
        self._migrations = migrations
        self._texts = texts
        self._activity = activity
        self._report = report
        self._limiter = limiter
        self._strangers = strangers
        self._zone = zone
        self._decide_press = decide_press
        self._slots = asyncio.Semaphore(queue_limit) if queue_limit else None
        self._drop_notified: set[str] = set()
        self._groups = GroupNotices(inbox, notify_owner) if notify_owner is not None else None
        self._requests = AccessRequests(inbox, access, self._texts_for, notify_owner) if access is not None else None

    async def receive(self, event: ChannelEvent) -> bool | str | None:
        """Process an event; return once it is durable or discarded."""
        match event:
            case Inbound():
                return await self._on_message(event)
            case ButtonPress():
                return await self._on_press(event)
            case Edit() | Deletion() | Reaction():
                await self._on_change(event)
            case BotAdded():
                await self._on_added(event)
            case ChatMigration():
                await self._inbox.record_migration(event)
            case UnparsedUpdate():
                await self._on_unparsed(event)
            case StopRequest():
                self._runtime.stop(self._in_home_chat(event).session)
        return None

    async def _on_message(self, inbound: Inbound) -> bool | None:
        """Process a message: admit its sender, count it, then record it, answer it out of turn or queue it."""
        if inbound.origin != HUMAN_ORIGIN or inbound.press is not None:
            # A channel cannot deliver a firing, and only the gate knows which button was pressed.
            inbound = structs.replace(inbound, origin=HUMAN_ORIGIN, press=None)
        inbound = await self._address(self._in_home_chat(await self._with_language(inbound)))
        decision = self._admission.decide(inbound) if self._admission is not None else Respond(Role.OWNER)
        if isinstance(decision, Ignore | OfferPairing):
            await self._turn_away(inbound, decision)
            return False
        excess, complete = None, inbound
        if self._limiter is not None and (excess := self._limiter.exceeded(inbound)) is None:
            inbound = self._limiter.without_excess(complete)
        if isinstance(decision, RecordOnly):
            if excess is None:
                await self._record_change(inbound)
            return None
        if excess is not None:  # nothing is written yet
            return await self._discard(inbound, excess)
        if inbound != complete:
            await self._notify_excess(complete, "bytes")
        if self._link.queue_policy.busy == "drop" and self._is_dropped(inbound):
            return await self._drop(inbound)
        result = await self.accept(inbound)
        if result is None:
            return False
        # A stop that came after the end of its turn is done already and says nothing.
        is_over = result.done() and not result.cancelled() and result.exception() is None
        return None if is_over and result.result().status == "silent" else True

    async def _turn_away(self, inbound: Inbound, decision: Ignore | OfferPairing) -> None:
        """Offer a stranger a code or leave no trace: words of strangers, and words not for the bot, are private.

        A message that was taken before comes again, for example if its sender was forgotten: that is no new call.
        """
        is_answered = isinstance(decision, OfferPairing) or decision.is_call
        if is_answered and await self._inbox.has_fact(inbound.session, inbound.external_id):
            return
        if isinstance(decision, OfferPairing):
            await self._pair(inbound)
            return
        if decision.reason == STRANGER_REASON:
            self._strangers.add()
        if decision.is_call and self._groups is not None:
            await run_uninterrupted(self._groups.on_call(inbound))

    async def _discard(self, inbound: Inbound, limit: Limit) -> bool | None:
        """Discard a message over a limit, but obey a stop."""
        if inbound.text.strip() == STOP:
            self._runtime.stop(inbound.session)
            return None
        return await self._notify_excess(inbound, limit)

    async def _notify_excess(self, inbound: Inbound, limit: Limit) -> bool:
        """Notify the sender about a limit, at most once an hour; return true if notified."""
        limiter = self._limiter
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

    def _is_dropped(self, inbound: Inbound) -> bool:
        """Return true if the message comes during a turn for a person, so that a channel with `drop` drops it."""
        is_running = self._runtime.is_answering_person(inbound.session)
        if not is_running:
            self._drop_notified.discard(inbound.session)
        return is_running and not (holds_command(inbound) or self._runtime.is_too_old(inbound))

    @uninterrupted
    async def _drop(self, inbound: Inbound) -> bool | None:
        """Accept a message without a turn, because it came during one; notify the chat once a turn."""
        accepted = await self._inbox.accept(inbound)
        if accepted is None:
            return False
        text = "" if inbound.session in self._drop_notified else self._texts_for(inbound.sender).say("dropped")
        self._drop_notified.add(inbound.session)
        await self._settle(accepted, "dropped", text)
        return True if text else None

    async def _pair(self, inbound: Inbound) -> None:
        """Give a stranger a code or remind the stranger of it. Store the message only if there is a code."""
        access = self._access
        code = await access.create_code(inbound.sender, inbound.channel, inbound.chat) if access else None
        if code and access is not None and self._requests is not None:
            is_asked = await run_uninterrupted(self._requests.keep(inbound))
            roles = (access.role(self._link.name, person) for person in access.list_people(self._link.name))
            sentence = "pairing_asked" if is_asked else "pairing" if Role.OWNER in roles else "pairing_owner"
            notice = self._texts_for(inbound.sender).say(sentence, code=code)
            await self._tell(Outbound(inbound.channel, inbound.chat, notice, inbound.thread, inbound.message))
        elif access is None or not await self._remind(access, inbound):
            self._strangers.add()

    @uninterrupted
    async def _remind(self, access: KnowsPeople, inbound: Inbound) -> bool:
        """Tell a stranger once until when the code is valid; store the fact and the notice in one transaction."""
        messages: list[OutboxMessage] = []

        async def send(reminder: CodeReminder) -> None:
            moments = (reminder.sent_at, reminder.expires_at, reminder.renewable_at)
            sent, until, again = (f"{moment.astimezone(self._zone):%H:%M}" for moment in moments)
            text = self._texts_for(inbound.sender).say("pairing_reminder", sent=sent, until=until, again=again)
            parts = self._link.split(Outbound(inbound.channel, inbound.chat, text, inbound.thread, inbound.message))
            also = {
                reminder.tape: [reminder.fact],
                self._inbox.tape_of(inbound.session): [refused_entry(inbound.external_id)],
            }
            key = f"{inbound.channel}:{reminder.fact.key}"
            messages.append(await self._outbox.enqueue(inbound.session, key, tuple(parts), also))

        is_due = await access.remind(inbound.sender, inbound.channel, send)
        if is_due and self._requests is not None:  # the process may have ended right after it gave the code
            await self._requests.keep(inbound, is_first=True)
        for message in messages:
            await self._deliver(message)
        return is_due

    async def _on_press(self, press: ButtonPress) -> str | None:
        """Queue the command of a pressed button, or return the reason for the person why nothing happens."""
        press = self._in_home_chat(await self._with_language(press))
        say, probe = self._texts_for(press.sender).say, _probe(press, direct=press.direct)
        decision = self._admission.decide(probe) if self._admission is not None else Respond(Role.OWNER)
        if decision == Ignore("ignored"):
            return None
        if not isinstance(decision, Respond):  # a stranger learns nothing about the button and leaves no trace
            self._strangers.add()
            return say("press_foreign")
        if self._limiter is not None and self._limiter.exceeded(probe) is not None:  # before anything is written
            return say("press_later")
        found = await find_button(self._outbox, press)
        reason = refuse_press(press, found, decision.role)
        if reason is not None or found is None:
            return await self._refuse_press(press, reason or "forged")
        return await self._accept_press(press, found)

    @uninterrupted
    async def _accept_press(self, press: ButtonPress, found: FoundButton) -> str | None:
        """Store a press and its decision in one transaction; or store it with the change of its message and queue its
        command.
        """
        inbound, key = press_inbound(press, found), found.button_set.key
        if await self._inbox.find_press(key, inbound.session) is not None:
            return await self._refuse_repeated(press, key)
        decide = self._decide_press
        reason = await decide(inbound, self._inbox.pressed_entries(inbound)) if decide else None
        if reason is not None:
            is_second = reason and await self._inbox.find_press(key, inbound.session) is not None
            return await self._refuse_repeated(press, key) if is_second else reason or None
        edit = intent_entry(inbound.session, f"pressed:{key}", (pressed_part(press, found, self._link.split),))
        if await self.accept(inbound, {self._outbox.tape_of(inbound.session): [edit]}) is None:
            return await self._refuse_repeated(press, key)
        await self._deliver_intent(edit)
        return None

    async def _refuse_repeated(self, press: ButtonPress, buttons: str) -> str | None:
        """Ignore a redelivered press; refuse another press of a button set that was pressed before."""
        first = await self._inbox.find_press(buttons, press.session)
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

    async def _on_change(self, change: Edit | Deletion | Reaction) -> None:
        """Record a change of a known message, if the sender may speak."""
        change, author = self._in_home_chat(change), None if isinstance(change, Deletion) else change
        if author is not None and self._admission is not None and self._admission.role(_probe(author)) is Role.STRANGER:
            return
        is_known = await self._runtime.has_message(change.channel, change.session, change.message)
        if not is_known:
            is_to_ours = isinstance(change, Reaction) and await self._outbox.may_have_sent(
                change.session, change.message
            )
            if not is_to_ours:
                return
        if author is not None and self._limiter is not None and self._limiter.exceeded(author) is not None:
            return
        await self._record_change(change)

    @uninterrupted
    async def _record_change(self, event: Inbound | Edit | Deletion | Reaction) -> None:
        """Record an event that changes the session's tape without a turn."""
        change = await self._inbox.record_change(event)
        if change:
            self._runtime.submit_change(change)
            await self._inbox.write_checkpoint()

    @uninterrupted
    async def _on_added(self, added: BotAdded) -> None:
        """Greet the group if an owner added the bot; ask an owner who may speak there unless it is decided."""
        admission = self._admission
        if admission is None or self._in_home_chat(added) != added:  # a moved group was greeted already
            return
        if admission.role(_probe(added)) is Role.OWNER:  # a stranger's group learns nothing
            sentence = "group_added_open" if admission.is_open(added) else "group_added"
            text = self._texts_for(added.sender).say(sentence, group=added.chat, channel=added.channel)
            key, session = f"added:{added.external_id}", added.session
            parts = tuple(self._link.split(Outbound(added.channel, added.chat, text, added.thread)))
            intent = intent_entry(session, key, parts)
            # Store the fact and the message in one transaction.
            if await self._inbox.record_added(added, {self._outbox.tape_of(session): [intent]}):
                await self._deliver(await self._outbox.enqueue(session, key, parts, {}))
        if self._groups is None or admission.is_open(added):
            return
        audience = admission.audience(added)
        if audience != "known":
            await self._groups.on_added(added, is_again=audience == "nobody")

    async def _on_unparsed(self, event: UnparsedUpdate) -> None:
        """Store an update that could not be parsed.

        Store all of it if its sender may speak, nothing if the sender is a stranger, and only the reason and the length
        if the sender is unknown.
        """
        if self._admission is None:
            await self._inbox.store_unparsed(event)
            await self._tell(Outbound(event.channel, event.chat, self._texts.say("unparsed", reason=event.reason)))
            return
        if not event.sender:
            event = structs.replace(
                event, raw=b"", reason=f"{event.reason} ({len(event.raw)} bytes of an unknown sender)"
            )
        else:
            probe = Inbound(event.channel, "", event.chat, Sender(event.sender), "", "", direct=False)
            if self._admission.role(probe) is Role.STRANGER:
                return
        await self._inbox.store_unparsed(event)
        log.warning(  # no notice to the sender, who may be a stranger
            "unparseable update stored: %s",
            event.reason,
            extra={"action": "receive.unparsed", "channel": event.channel},
        )

    async def admit(self, person: str | None = None) -> None:
        """Notify people who may speak by now (one or all) and answer their waiting messages."""
        if self._requests is None:
            return
        for inbound in await self._requests.find_admitted(person):
            if not await self._inbox.has_fact(inbound.session, inbound.external_id):
                await self._admit(self._requests, inbound)

    @uninterrupted
    async def _admit(self, requests: AccessRequests, inbound: Inbound) -> None:
        notice = requests.welcome(inbound, self._link.split)
        if await self.accept(inbound, {self._outbox.tape_of(inbound.session): [notice]}, is_own=True) is not None:
            await self._deliver_intent(notice)  # otherwise another way of admitting the person was faster

    async def ask(self, inbound: Inbound) -> asyncio.Future[TurnResult] | None:
        """Accept an inbound of a client that waits for its result; see `accept`. Clients cannot set an origin or press
        buttons.
        """
        inbound = structs.replace(inbound, origin=HUMAN_ORIGIN, press=None)
        return await self.accept(await self._address(self._in_home_chat(inbound)))

    async def accept(
        self,
        inbound: Inbound,
        extra_entries: Mapping[str, Sequence[TapeEntry]] = MappingProxyType({}),
        *,
        is_own: bool = False,
    ) -> asyncio.Future[TurnResult] | None:
        """Make an inbound durable and queue its turn; None if it was accepted before.

        A command that overtakes the running turn is answered at once; its result names no turn.

        Args:
            extra_entries: see `Inbox.accept`.
            is_own: the bot itself makes it, so it takes no place in the queue. Otherwise a turn that makes one could
                wait for itself.
        """
        if is_own:
            inbound = await self._with_language(inbound)
        # If processes share the turns, the one that has the chat answers: see `take`.
        may_overtake = is_overtaking(inbound) and not self._runtime.is_shared
        overtaken = self._find_overtaken(inbound) if may_overtake else None
        slots = None if is_own or overtaken else self._slots
        if slots is not None:
            await slots.acquire()
        # Half of it would leave a durable inbound that nobody continues, since its redelivery counts as a duplicate.
        return await self._accept(inbound, extra_entries, slots, overtaken)

    @uninterrupted
    async def _accept(
        self,
        inbound: Inbound,
        also: Mapping[str, Sequence[TapeEntry]],
        slots: asyncio.Semaphore | None,
        overtaken: tuple[bool, int] | None,
    ) -> asyncio.Future[TurnResult] | None:
        result = None
        try:
            accepted = await self._inbox.accept(inbound, also)
            if accepted is None:
                return None
            if is_overtaking(inbound) and not self._runtime.is_shared:  # earlier messages were queued meanwhile
                overtaken = self._find_overtaken(inbound) or overtaken
            if overtaken is not None:
                return _settled_result(await self._answer_at_once(accepted, *overtaken))
            result = self._runtime.submit(accepted)
        finally:
            if slots is not None and result is None:
                slots.release()
        if slots is not None:
            release = slots.release
            result.add_done_callback(lambda _: release())
        await self._inbox.write_checkpoint()
        return result

    def resume(self, accepted: AcceptedInbound) -> asyncio.Future[TurnResult]:
        """Queue an inbound that an earlier process accepted."""
        return self._runtime.queue(accepted)

    async def take(self, accepted: AcceptedInbound) -> asyncio.Future[TurnResult]:
        """Queue an inbound that any process accepted, or answer it at once if it overtakes the running turn."""
        inbound = accepted.inbound
        overtaken = self._find_overtaken(inbound) if is_overtaking(inbound) else None
        if overtaken is None:
            return self._runtime.queue(accepted)
        return _settled_result(await self._answer_at_once(accepted, *overtaken))

    def resume_change(self, change: TapeChange) -> None:
        """Queue a change that an earlier process recorded."""
        self._runtime.queue_change(change)

    def _find_overtaken(self, inbound: Inbound) -> tuple[bool, int] | None:
        """Return the `AppRuntime.session_activity` that a stop or a status overtakes; None if the session is idle."""
        running, waiting = self._runtime.session_activity(inbound.session)
        return (running, waiting) if (running or waiting) and not self._runtime.is_too_old(inbound) else None

    async def _answer_at_once(self, accepted: AcceptedInbound, running: bool, waiting: int) -> str:  # noqa: FBT001 - see `_find_overtaken`
        """Run a stop or a status command; the transaction that stores its answer (may be empty) marks it done."""
        inbound = accepted.inbound
        texts = self._texts_for(inbound.sender)
        if inbound.text.strip() == STOP:
            text = "" if self._runtime.stop(inbound.session) else texts.say("NothingToStop")
        else:
            doing = describe_activity(texts, self._activity.get(inbound.session) if self._activity else None)
            if not running:
                line = texts.say("about_to_answer", count=waiting)
            elif waiting:
                line = texts.say("answering", doing=doing, count=waiting)
            else:
                line = texts.say("answering_alone", doing=doing)
            # People who may know it get the health of the whole bot.
            role = self._link.role(inbound)
            report = await self._report(role, direct=inbound.direct, texts=texts) if self._report else ()
            text = "\n".join([line, *report])
        await self._settle(accepted, "overtook", text)
        return text

    async def _settle(self, accepted: AcceptedInbound, outcome: str, text: str) -> None:
        """Mark the inbound as done without a turn and send `text`, if any."""
        inbound, fact = accepted.inbound, done_entry([accepted.id], outcome=outcome)
        if not text:
            await self._inbox.append(fact, session=inbound.session)
            return
        replied_to = inbound.message or inbound.external_id  # a terminal's messages have no platform id
        outbound = Outbound(inbound.channel, inbound.chat, text, inbound.thread, replied_to)
        key, parts = f"{outcome}:{accepted.id}", tuple(self._link.split(outbound))
        also = {self._inbox.tape_of(inbound.session): [fact]}
        await self._deliver(await self._outbox.enqueue(inbound.session, key, parts, also, inbound=accepted.id))

    async def _deliver_intent(self, intent: TapeEntry) -> None:
        if intent.key and (message := await self._outbox.find_intent(intent.key)) is not None:
            await self._deliver(message)

    def _texts_for(self, person: Sender) -> Texts:
        """Return the bot's own sentences in the language of a person."""
        return self._texts.in_language(person.language)

    async def _with_language(self, event: SpeakerT) -> SpeakerT:
        """Return the event with the person's last known language if the platform does not name one."""
        if event.sender.language or self._admission is None:  # without admission only the owner writes here
            return event
        language = await self._inbox.languages.find(event.sender.id)
        return structs.replace(event, sender=structs.replace(event.sender, language=language)) if language else event

    async def _address(self, inbound: Inbound) -> Inbound:
        """Return a message with the agents that it asks. No channel and no client says that."""
        agents, quote, writer = self._runtime.deps.agents, inbound.quote, None
        if agents.has_agents and quote is not None and quote.own and quote.message:
            writer = await self._outbox.find_writer(inbound.session, quote.message)
        return agents.address(structs.replace(inbound, agents=(), call=None), writer)

    def _in_home_chat(self, event: EventT) -> EventT:
        """Return the event with the chat id with which its session began."""
        home = self._migrations.home(event.chat)
        return event if home == event.chat else structs.replace(event, chat=home)


def _probe(event: ButtonPress | Edit | Reaction | BotAdded, *, direct: bool = False) -> Inbound:
    """Make an empty message from the person behind an event, to determine the role."""
    return Inbound(
        event.channel, event.external_id, event.chat, event.sender, "", event.time, event.thread,
        direct=direct, space=event.space,
    )  # fmt: skip


def _settled_result(text: str) -> asyncio.Future[TurnResult]:
    """Return the result of a command that was answered without a turn."""
    result: asyncio.Future[TurnResult] = asyncio.get_running_loop().create_future()
    result.set_result(TurnResult("", "answered" if text else "silent", text))
    return result
