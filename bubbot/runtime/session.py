"""One session: one tape, one turn at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import tzinfo
from functools import partial

import msgspec
from msgspec import Struct, structs

from bubbot.concurrency import is_being_cancelled
from bubbot.errors import (
    BubbotError,
    FeatureFailed,
    LeaseLost,
    ModelCallDenied,
    ModelUnconfigured,
    StoreError,
    TapeCorrupt,
)
from bubbot.formatting import clean
from bubbot.log import bind
from bubbot.middleware import AroundTurn, wrap
from bubbot.ports.agents import Agent, AgentDirectory, OnlyTheBot, writer_of
from bubbot.ports.channel import (
    AGENT_ORIGIN,
    JOB_TASK_ORIGIN,
    TASK_ORIGIN,
    ButtonSet,
    Deletion,
    Inbound,
    MessagePart,
    Outbound,
    OutboundFile,
    PreviewCallback,
    Role,
    TurnFinished,
    TurnStarted,
    ignore_preview,
)
from bubbot.ports.inbox import done_entry
from bubbot.ports.lease import SessionLease
from bubbot.ports.outbox import OutboxMessage, intent_entry, outbox_channel, read_intents
from bubbot.ports.turn import (
    AcceptedInbound,
    Status,
    TapeChange,
    Turn,
    TurnGate,
    TurnOutcome,
    TurnResult,
    TurnSource,
)
from bubbot.runtime.attachments import (
    AttachmentResult,
    Fetch,
    TakesAttachments,
    describe_unfetched,
    list_attachments,
    refuse_fetch,
)
from bubbot.runtime.loop import AgentLoop
from bubbot.runtime.messages import (
    Authors,
    add_notices,
    build_change_entries,
    find_sent,
    gave_up_text,
    message_entries,
    missing_edit_entries,
    too_old_text,
    turn_joined_entry,
    turn_start_entry,
)
from bubbot.runtime.queue import MessageQueue, QueuedMessage, QueuePolicy
from bubbot.runtime.recovery import merge_open_forks
from bubbot.runtime.router import STOP, holds_command, is_overtaking
from bubbot.runtime.turn_limiter import TurnLimiter
from bubbot.tape import entry as make
from bubbot.tape.anchor import SESSION_START, anchor
from bubbot.tape.entry import EMPTY_OBJECT, Kind, TapeEntry, is_for_people
from bubbot.tape.events import STEP_EVENT, TurnEnd
from bubbot.tape.fork import ForkedTape, MergeResult
from bubbot.tape.handle import Clock
from bubbot.tape.provenance import Source, most_foreign, source_of, stamp_of
from bubbot.tape.query import TapeQuery, Window
from bubbot.tape.service import NewId, TapeService
from bubbot.tape.withheld import FOR_PEOPLE_STAMP
from bubbot.texts import COMMAND_PREFIX, DEFECT_IN_ENGLISH, TRACE_DIGITS, Texts

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 2
"""Attempts at one inbound before it ends with a failure message."""


@dataclass(frozen=True, slots=True)
class SessionChannel:
    """A channel as its sessions use it.

    Attributes:
        split: cuts a message into parts that the platform accepts.
        role: returns the sender's role.
        queue_policy: the channel's rules for waiting messages.
        chat_limit: the limit of concurrent turns of a chat.
        fetch: fetches the attachments of a message.
        find_channel: returns another channel by its name; None if it does not run in this process.
        command_prefix: the prefix of commands in its chats.
        inbox_of: returns the inbox tape of a session.
        outbox_of: returns the outbox tape of a session.
        inbound_entry: makes the fact that an inbound was received, for the transaction of a merge.
    """

    name: str
    split: Callable[[Outbound], Sequence[MessagePart]]
    role: Callable[[Inbound], Role]
    queue_policy: QueuePolicy = field(default_factory=QueuePolicy)
    chat_limit: Callable[[str], AbstractAsyncContextManager[object]] = lambda _session: nullcontext()
    fetch: Fetch = refuse_fetch
    find_channel: Callable[[str], SessionChannel | None] = lambda _channel: None
    command_prefix: str = COMMAND_PREFIX
    _: KW_ONLY
    inbox_of: Callable[[str], str]
    outbox_of: Callable[[str], str]
    inbound_entry: Callable[[Inbound], TapeEntry]


async def ignore_notice(_channel: str, _outbound: Outbound) -> None:
    """Send nothing, for bots without notices between turns."""


class SessionDeps(Struct, frozen=True):
    """The dependencies that every session shares.

    Attributes:
        new_id: creates the ids of turns.
        zone: the time zone of chats.
        turn_limiter: limits concurrent turns.
        deliver: gets the channel and each merged outbox message.
        on_preview: gets the previews of a running turn.
        sources: the sources of turns that no person typed, by the origin of their inbounds.
        intake: takes in attachments.
        gate: decides when messages get their turn; None: at once.
        notify: sends a notice to a channel at once, outside any turn.
        around_turn: wraps the answer of a turn, after its fork is opened and before it is merged.
        on_merged: called with the entries of each merge, in order, interrupted turns included.
        agents: knows who answers a message.
    """

    loop: AgentLoop
    now: Clock
    new_id: NewId
    zone: tzinfo
    turn_limiter: TurnLimiter
    leases: SessionLease
    deliver: Callable[[str, OutboxMessage], Awaitable[None]]
    on_preview: PreviewCallback = ignore_preview
    texts: Texts = msgspec.field(default_factory=Texts)
    sources: Mapping[str, TurnSource] = msgspec.field(default_factory=dict)
    intake: TakesAttachments | None = None
    gate: TurnGate | None = None
    notify: Callable[[str, Outbound], Awaitable[None]] = ignore_notice
    around_turn: Sequence[AroundTurn] = ()
    on_merged: Sequence[Callable[[MergeResult], Awaitable[None]]] = ()
    agents: AgentDirectory = msgspec.field(default_factory=OnlyTheBot)


class SessionRuntime:
    """Serialises all work on one session's tape and passes each turn to the `AgentLoop`."""

    def __init__(self, tape: TapeService, channel: SessionChannel, deps: SessionDeps) -> None:
        self._tape = tape
        self._use(channel, deps)
        self._queue = MessageQueue(channel.queue_policy)
        self._current: list[QueuedMessage] = []
        self._attachments: dict[int, AttachmentResult] = {}
        self._intake_task: asyncio.Future[dict[int, AttachmentResult]] | None = None
        self._edit_ids: list[int] = []
        self._current_change: TapeChange | None = None
        self._holders = 0
        self._loop_task: asyncio.Task[TurnOutcome] | None = None
        self._write_lock = asyncio.Lock()
        self._stop_requested = False
        self._is_stopped = False
        self._denial: ModelCallDenied | None = None
        self._wake = asyncio.Event()
        self._paused = False
        self._is_taken_up = False
        self._interrupted: dict[int, str] = {}

    def submit(self, accepted: AcceptedInbound) -> asyncio.Future[TurnResult]:
        """Queue an inbound; the future completes with its turn. The caller ensures that `drain` runs."""
        if self._is_in_task and self._deps.loop.stops_tasks(accepted.inbound):
            self.stop()
        counted = accepted.after_interruption(self._interrupted.get(accepted.id, ""))
        waiting = QueuedMessage(counted, asyncio.get_running_loop().create_future())
        self._queue.add(waiting)
        return waiting.result

    def submit_change(self, change: TapeChange) -> None:
        """Queue a change of an earlier message. The caller ensures that `drain` runs."""
        self._queue.add(change)

    @property
    def is_running(self) -> bool:
        """True if a turn is being opened, is running, or is being merged."""
        return bool(self._current)

    @property
    def is_answering_person(self) -> bool:
        """True if a turn is running that is neither a call between agents nor a step of a task."""
        return any(message.accepted.inbound.origin not in (AGENT_ORIGIN, TASK_ORIGIN) for message in self._current)

    @property
    def _is_in_task(self) -> bool:
        """True if a turn is running with which a task goes on."""
        origins = {message.accepted.inbound.origin for message in self._current}
        return bool(origins) and origins <= {TASK_ORIGIN, JOB_TASK_ORIGIN}

    @property
    def queue_length(self) -> int:
        """The number of messages that wait behind the running turn."""
        return self._queue.message_count

    @property
    def is_idle(self) -> bool:
        """True if the session can be dropped from memory without loss: its tape holds all of its state."""
        return not (self._queue or self._current or self._current_change or self._holders)

    @property
    def cached_entries(self) -> int:
        return self._tape.cached_entries

    def forget_window(self) -> None:
        """Read the window from the tape again."""
        self._tape.forget_window()

    def stop(self) -> bool:
        """Stop the running turn; return true if there was one.

        What the turn did remains on the tape. A turn that is being opened stops as soon as it is open, without waiting
        for files. A `,status` still gets its answer.
        """
        if self._loop_task is not None and not self._is_overtaking():
            self._is_stopped = True
            return self._loop_task.cancel()
        batch = [] if self._is_overtaking() else self._current
        self._stop_requested = bool(batch or self._queue.stoppable_count)
        if self._intake_task is not None:
            self._intake_task.cancel()
        self._wake.set()
        return self._stop_requested

    def _is_overtaking(self) -> bool:
        """Return true if the running turn is for commands that cannot be stopped."""
        return bool(self._current) and all(is_overtaking(message.accepted.inbound) for message in self._current)

    def has_pending(self, message: str) -> bool:
        """Return true if the message with this platform id waits, is being answered or is being written."""
        change = self._current_change.event if self._current_change else None
        is_written = isinstance(change, Inbound) and change.message == message
        is_answered = any(queued.accepted.inbound.message == message for queued in self._current)
        return is_written or is_answered or self._queue.has_message(message)

    def has_inbound(self, inbound_id: int) -> bool:
        """Return true if this inbound waits or is being answered."""
        return self._queue.has_inbound(inbound_id) or any(each.accepted.id == inbound_id for each in self._current)

    def is_too_old(self, inbound: Inbound) -> bool:
        """Return true if an incoming message is too old to be answered."""
        return self._link.queue_policy.is_too_old(inbound, self._deps.now())

    @property
    def running_turn(self) -> asyncio.Task[TurnOutcome] | None:
        """The task of the running turn; None while no turn runs."""
        return self._loop_task

    def _use(self, channel: SessionChannel, deps: SessionDeps) -> None:
        self._link, self._deps = channel, deps
        self._inbox = channel.inbox_of(self._tape.session)
        self._outbox = channel.outbox_of(self._tape.session)
        # In the form for this channel's people.
        self._texts = deps.texts.with_command_prefix(channel.command_prefix)

    def reload(self, channel: SessionChannel | None, deps: SessionDeps) -> None:
        """Use this channel (None: keep it) and these settings; a running turn keeps its loop."""
        self._use(channel or self._link, deps)
        self._queue.policy = self._link.queue_policy

    def pause(self) -> None:
        """Begin no further turn."""
        self._paused = True
        self._wake.set()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[TapeService]:
        """Take up the session and lock its tape: no turn and no change is written within the block."""
        self._holders += 1
        try:
            async with self._write_lock:
                await self._take_up()
                yield self._tape
        finally:
            self._holders -= 1
            self._tape.forget_window()  # the holder may have written to the store directly

    async def _take_up(self) -> None:
        """Get the lease and merge what an earlier holder left open; do it once, before any write.

        Messages read from the inbox before that do not count the interrupted turns.
        """
        if self._is_taken_up:
            return
        self._tape.write_under(await self._deps.leases.hold(self._tape.session))
        for interrupted in await merge_open_forks(self._tape):
            ids = [inbound_id for inbox, inbound_id in interrupted.inbounds if inbox == self._inbox]
            self._interrupted |= dict.fromkeys(ids, interrupted.turn)
            for on_merged in self._deps.on_merged:
                await on_merged(interrupted.merged)
            await self._deliver_staged(interrupted.merged)
        self._queue.count_interrupted(self._interrupted)
        self._is_taken_up = True

    def abandon(self, error: BubbotError) -> None:
        """Drop the waiting messages: whoever takes the session up next answers them."""
        for message in self._queue.take_all():
            message.fail(error)
        self._deps.on_preview(self._tape.session, TurnFinished("failed"))

    async def drain(self) -> None:
        """Take up the session and run turns until nothing waits. Raise `LeaseLost` if another holder takes it up."""
        if not (self._paused or self._is_taken_up):
            async with self._write_lock:
                await self._take_up()
        while self._queue and not self._paused:
            self._wake.clear()
            await self._queue.wait_quiet(self._deps.now)
            if changed := self._queue.take_change():
                self._current_change = changed
                try:
                    async with self._write_lock:
                        await self._apply_change(changed)
                finally:
                    self._current_change = None
                continue
            await self._take_attachments(
                lambda: [a for a in self._queue.peek_batch(self._deps.now()) if not a.attempts]
            )
            self._denial = None
            if (gate := self._deps.gate) is not None:
                self._denial = await gate.wait(self._queue.peek_batch(self._deps.now()), self._wake)
            async with (
                self._link.chat_limit(self._tape.session),
                self._deps.turn_limiter.acquire(self._notify_wait),
                self._write_lock,
            ):
                if not self._paused:
                    try:
                        await self._run_next()
                    finally:
                        self._current = []

    async def _notify_wait(self, before: int) -> None:
        """Tell the next message's chat how many turns are ahead of it."""
        if waiting := self._queue.peek_batch(self._deps.now()):
            inbound = waiting[0].inbound
            text = self._texts.in_language(inbound.sender.language).say("waiting_for_place", count=before)
            out = Outbound(inbound.channel, inbound.chat, text, inbound.thread, inbound.message)
            await self._deps.notify(inbound.channel, out)

    async def _run_next(self) -> None:
        """Run one turn for the next messages of the queue."""
        if withdrawn := self._queue.take_withdrawn():
            await self._withdraw(withdrawn)
            return
        self._current, old = self._queue.take_batch(self._deps.now())
        batch = [message.accepted for message in self._current]
        try:
            result = await self._run_turn(batch, old=old)
        except LeaseLost as error:
            for message in self._current:
                message.fail(error)
            raise
        except FeatureFailed as error:  # the turn's source failed to prepare it
            result = await self._fail_batch(batch, error)
        except BubbotError:
            raise  # the store or the tape failed: nothing can be recorded
        except Exception as error:  # our defect, or an invalid value of an adapter: other sessions continue
            log.exception("turn impossible, ending its messages as failed", extra={"action": "turn.poisoned"})
            result = await self._fail_batch(batch, error)
        if self._stop_requested and not self._is_overtaking() and (calls := self._queue.list_calls()):
            await self._tape.append([], other_tapes={self._inbox: [_calls_ended(calls)]})  # it came within the merge
            self._queue.remove_calls(calls)
        self._stop_requested = self._stop_requested and self._is_overtaking() and bool(self._queue.stoppable_count)
        for message in self._current:
            message.settle(result)

    async def _fail_batch(self, batch: Sequence[AcceptedInbound], error: Exception) -> TurnResult:
        """Fail messages that cannot become a turn, so that no later start tries them again."""
        first = batch[0]
        text = _failure_text(self._texts.in_language(first.inbound.sender.language), error)
        key, notice = _build_failure_message(self._link, self._tape.session, first, text)
        marked_done = done_entry([accepted.id for accepted in batch], outcome="failed")
        if isinstance(error, BubbotError):
            fact = make.error(error.kind, clean(str(error)))
        else:
            fact = make.error("internal", clean(f"{type(error).__name__}: {error}"))
        source = self._deps.sources.get(first.inbound.origin)
        facts = source.failure_entries(first.inbound, text) if source else {}
        await self._tape.append([fact], other_tapes={self._inbox: [marked_done], self._outbox: [notice], **facts})
        for on_merged in self._deps.on_merged if facts else ():
            await on_merged(MergeResult((), {tape: tuple(entries) for tape, entries in facts.items()}))
        self._deps.on_preview(self._tape.session, TurnFinished("failed"))  # else the chat shows it at work for ever
        for message in read_intents((await self._tape.fetch([TapeQuery(self._outbox, keys=(f"{key}:0",))]))[0]):
            await self._deps.deliver(self._link.name, message)
        return TurnResult("", "failed", text)

    async def _withdraw(self, withdrawn: Sequence[tuple[QueuedMessage, TapeChange]]) -> None:
        """Drop messages that were deleted before their turn: do not store or answer them."""
        ids = [item_id for waiting, deletion in withdrawn for item_id in (waiting.accepted.id, deletion.id)]
        await self._tape.append([], other_tapes={self._inbox: [done_entry(ids, outcome="withdrawn")]})
        self._stop_requested = self._stop_requested and bool(self._queue.stoppable_count)
        for waiting, _ in withdrawn:
            self._attachments.pop(waiting.accepted.id, None)
            waiting.settle(TurnResult("", "silent"))

    async def _run_turn(self, batch: Sequence[AcceptedInbound], *, old: bool) -> TurnResult:
        """Run the stages of one turn: open it, answer it or explain why not, merge it."""
        turn = await self._open_turn(batch, old=old)
        first = batch[0]
        if first.inbound.is_of_chat:  # another source may stay silent or answer in another chat
            is_first_attempt = not any(accepted.attempts for accepted in batch)
            self._deps.on_preview(turn.session, TurnStarted(first.id, first.inbound.message, is_first_attempt))
        with bind(turn=turn.id):
            started = asyncio.get_running_loop().time()
            result = await self._merge_turn(turn, await self._run_answer(turn, old=old))
            _log_end(result, asyncio.get_running_loop().time() - started)
            return result

    async def _answer(self, turn: Turn, *, old: bool) -> TurnOutcome:
        """Answer a turn, or explain why it gets no answer."""
        if turn.role is Role.STRANGER:  # the sender lost access after the message was accepted
            return TurnOutcome("silent", "")
        if old:
            return TurnOutcome("too_old", too_old_text(turn.texts, turn.inbounds))
        if self._denial is not None:
            return await _record_denial(turn, self._denial)
        if max([accepted.attempts for accepted in turn.inbounds]) >= MAX_ATTEMPTS:
            notice = gave_up_text(turn.texts, turn.inbounds)
            await turn.tape.append([make.error("interrupted", notice)])
            log.warning("turn given up after repeated interruptions", extra={"action": "turn.failed"})
            return TurnOutcome("failed", turn.texts.add_trace(notice, turn.id))
        if self._stop_requested and not self._is_overtaking():
            return await _record_stop(turn)
        return await self._run_loop(turn)

    async def _run_loop(self, turn: Turn) -> TurnOutcome:
        """Run the loop; return a failure or a stop as an outcome, so that middleware sees it."""
        try:
            return await self._deps.loop.run(turn)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not self._is_stopped:
                raise
            task.uncancel()
            return await _record_stop(turn)
        except (StoreError, LeaseLost):
            raise  # nothing can be recorded; the saved part of the fork is durable
        except Exception as error:  # noqa: BLE001 - not even our own defect may end the session
            return await _record_failure(turn, error)

    async def _take_attachments(self, wanted: Callable[[], Sequence[AcceptedInbound]]) -> None:
        """Take in the attachments of messages that still wait for a turn.

        This happens before the turn begins, so that slow files occupy no place among the turns of other sessions. It
        repeats until `wanted` names no message with missing attachments. A crash loses fetched files; they are fetched
        again.
        """
        while not self._stop_requested and (missing := [a for a in wanted() if self._lacks_attachments(a)]):
            if self._deps.intake is None:
                self._attachments |= describe_unfetched(missing)
                continue
            taken_in = self._deps.intake.take_in(self._tape, self._inbox, missing, self._link.fetch)
            self._intake_task = asyncio.ensure_future(taken_in)
            try:
                self._attachments |= await self._intake_task
            except asyncio.CancelledError:
                self._intake_task.cancel()
                if is_being_cancelled():
                    raise
            finally:
                self._intake_task = None

    def _lacks_attachments(self, accepted: AcceptedInbound) -> bool:
        inbound = accepted.inbound
        if not inbound.attachments and inbound.quote is None:
            return False
        return accepted.id not in self._attachments and not holds_command(inbound) and bool(list_attachments(inbound))

    async def _open_turn(self, batch: Sequence[AcceptedInbound], *, old: bool) -> Turn:
        """Open the fork, durably with the turn and its messages.

        Do not fetch attachments of messages that are too `old`: they get no answer.
        """
        turn_id = self._deps.new_id()
        opening: list[TapeEntry] = []
        with suppress(TapeCorrupt):  # the turn itself reports it
            if not await self._tape.has_window():
                opening.append(anchor(SESSION_START, {"owner": "human"}, meta={"session": self._tape.session}))
        corrections: list[TapeEntry] = []
        cited_ids: list[int] = []
        fresh: list[AcceptedInbound] = []
        authors = await self._find_authors(batch)
        self._edit_ids = []
        for accepted in batch:
            cited = await self._cited_messages(accepted)
            cited_ids += [entry.id for entry in cited]
            if cited:
                corrections += missing_edit_entries(self._inbox, cited[-1], authors, self._take_edits(accepted))
            elif not holds_command(accepted.inbound):
                fresh.append(accepted)
        opening += [turn_start_entry(self._tape.session, self._inbox, batch, cited_ids), *corrections]
        if not old:
            await self._take_attachments(lambda: fresh)
        attachments = {accepted.id: self._attachments.pop(accepted.id, None) for accepted in batch}
        for accepted in fresh:
            edits = self._take_edits(accepted)
            opening += message_entries(self._inbox, accepted, authors, attachments[accepted.id], edits)
        # Entries of commands and jobs get the provenance of the people who typed them. A step adds that of its context.
        source = most_foreign(*[authors.judge_sender(accepted.inbound) for accepted in batch])
        agent = await self._deps.agents.choose(self._tape, [accepted.inbound for accepted in batch])
        fork = await self._tape.open_fork(opening, stamp={"turn": turn_id, **stamp_of(source), **agent.stamp})
        turn = self._make_turn(turn_id, fork, batch, agent)
        turn.message_ids += [*cited_ids, *[entry.id for entry in fork.delta if entry.kind == Kind.MESSAGE]]
        add_notices(turn, batch, attachments)
        return turn

    def _take_edits(self, accepted: AcceptedInbound) -> list[TapeChange]:
        """Take the edits of a message that no model has seen yet; the turn marks them done."""
        edits = self._queue.take_edits(accepted)
        self._edit_ids += [edit.id for edit in edits]
        return edits

    def _make_turn(self, turn_id: str, fork: ForkedTape, batch: Sequence[AcceptedInbound], agent: Agent) -> Turn:
        first = batch[0].inbound
        turn = Turn(
            id=turn_id,
            session=self._tape.session,
            tape=fork,
            sender=first.sender,
            role=self._link.role(first),
            origin=first.origin,
            now=self._deps.now,
            zone=self._deps.zone,
            inbounds=list(batch),
            texts=self._texts.in_language(first.sender.language),
            runner=self._deps.loop.runner,
            agent=agent,
            max_steps=agent.max_steps,
        )
        if first.is_typed:  # people's messages must not join another kind of turn, which may stay silent
            turn.join = self._join_waiting
        elif (source := self._deps.sources.get(first.origin)) is not None:
            source.prepare(turn, first)
        else:
            log.warning("no feature takes care of a turn", extra={"action": "turn.sourceless", "origin": first.origin})
            turn.role = Role.STRANGER
        if agent.tools is not None:
            turn.allowed_tools = agent.tools if turn.allowed_tools is None else agent.tools & turn.allowed_tools
        return turn

    async def _join_waiting(self, turn: Turn) -> None:
        """Take in the messages that may steer the turn; they are durable before the model sees them."""
        now, asked = self._deps.now, turn.inbounds[0].inbound.agents
        await self._take_attachments(
            lambda: [item.accepted for item in self._queue.peek_steering(turn.sender.id, asked, now())]
        )
        joining = self._queue.take_steering(turn.sender.id, asked, now())
        if not joining:
            return
        batch = [item.accepted for item in joining]
        attachments = {accepted.id: self._attachments.pop(accepted.id, None) for accepted in batch}
        self._current += joining
        turn.inbounds = [*turn.inbounds, *batch]
        entries = [turn_joined_entry(self._inbox, batch)]
        authors = await self._find_authors(batch)
        for accepted in batch:
            edits = self._take_edits(accepted)
            entries += message_entries(self._inbox, accepted, authors, attachments[accepted.id], edits)
        stored = await turn.tape.append(entries)
        turn.message_ids += [entry.id for entry in stored if entry.kind == Kind.MESSAGE]
        add_notices(turn, batch, attachments)
        await turn.tape.save()

    async def _find_authors(self, batch: Sequence[AcceptedInbound]) -> Authors:
        """Build the judge of these messages' provenance; a quote of the bot has that of the quoted message."""
        quotes = [accepted.inbound.quote for accepted in batch if accepted.inbound.quote]
        quoted = {quote.message for quote in quotes if quote.own and quote.text and quote.message}
        sent = await find_sent(self._tape, self._outbox, quoted, self._tape.session) if quoted else {}
        sources = {message: source_of(intent) for message, intent in sent.items()}
        writers = {message: writer_of(intent) for message, intent in sent.items()}
        withheld = {message for message, intent in sent.items() if is_for_people(intent.name, intent.meta)}
        withheld |= {quote.message for quote in quotes if not quote.own and self._deps.loop.is_for_people(quote.text)}
        return Authors(self._link.role, sources, writers, frozenset(withheld))

    async def _cited_messages(self, accepted: AcceptedInbound) -> list[TapeEntry]:
        """List the messages that an interrupted attempt left on the tape for this inbound."""
        if not accepted.attempts:
            return []
        query = TapeQuery(self._tape.name, Window(), kinds=(Kind.MESSAGE,), missing="empty")
        wanted = (self._inbox, accepted.id)
        return [entry for entry in await self._fetch_readable(query) or () if entry.meta.get("inbound") == wanted]

    async def _fetch_readable(self, query: TapeQuery) -> tuple[TapeEntry, ...] | None:
        """Fetch the entries of a query; None if the tape is damaged there.

        The turn itself reports the damage, which must not end the session.
        """
        try:
            return (await self._tape.fetch([query]))[0]
        except TapeCorrupt:
            return None

    async def _apply_change(self, changed: TapeChange) -> None:
        """Write the change to the tape and mark it done, in one transaction."""
        with suppress(TapeCorrupt):
            await self._tape.ensure_bootstrap_anchor()
            inbound = changed.event if isinstance(changed.event, Inbound) else None
            authors = await self._find_authors([AcceptedInbound(changed.id, inbound)] if inbound else [])
            entries, outcome = await build_change_entries(self._tape, self._inbox, changed, authors)
            settled = [done_entry([changed.id], outcome=outcome)]
            # Nobody is asked any more about a message that was withdrawn.
            deleted = changed.event.message if isinstance(changed.event, Deletion) else ""
            calls = self._queue.list_calls(deleted) if deleted else []
            settled += [_calls_ended(calls)] if calls else []
            await self._tape.append(entries, other_tapes={self._inbox: settled})
            self._queue.remove_calls(calls)

    async def _run_answer(self, turn: Turn, *, old: bool) -> TurnOutcome:
        """Answer the turn within its middleware; turn every error into a result.

        If the caller is cancelled (the process is ending), the fork stays open and the next start continues it.
        """
        answer = wrap(self._deps.around_turn, partial(self._answer, old=old))
        self._is_stopped = False
        try:
            self._loop_task = asyncio.ensure_future(answer(turn))
            return await self._loop_task
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            return await _record_stop(turn)
        except (StoreError, LeaseLost):
            raise
        except Exception as error:  # noqa: BLE001 - middleware may be third-party code
            return await _record_failure(turn, error)
        finally:
            self._loop_task = None

    async def _merge_turn(self, turn: Turn, result: TurnOutcome) -> TurnResult:
        """Merge the delta, mark its inbounds done and stage the outbox message, in one transaction."""
        fork, first = turn.tape, turn.inbounds[0]
        await fork.append([TurnEnd(result.status).to_entry()])
        ids = [*[accepted.id for accepted in turn.inbounds], *self._edit_ids]
        fork.stage(self._inbox, [done_entry(ids, turn=turn.id, outcome=result.status)])
        calls = self._queue.list_calls() if _ends_calls(turn, result.status) else []
        if calls:
            fork.stage(self._inbox, [_calls_ended(calls)])
        text = "\n\n".join([*turn.notices, *turn.alerts, result.text] if result.text else turn.alerts)
        is_answer = result.status in ("answered", "silent")
        reply = _Reply(
            text, tuple(turn.files) if is_answer else (), first, _offered_buttons(turn) if is_answer else None
        )
        self._stage_reply(turn, reply, result.status)
        if turn.following:
            fork.stage(self._inbox, [self._link.inbound_entry(each) for each in turn.following], if_absent=True)
        merged = await fork.merge(expect_head=True)  # a turn is alone on its tape
        self._queue.remove_calls(calls)
        self._queue_following(turn, merged)
        self._deps.on_preview(turn.session, TurnFinished(result.status))
        for on_merged in self._deps.on_merged:
            await on_merged(merged)
        await self._deliver_staged(merged)
        return TurnResult(turn.id, result.status, text, merged.delta)

    def _queue_following(self, turn: Turn, merged: MergeResult) -> None:
        """Queue the inbounds that were accepted with the merge of their turn, unless they had been accepted before."""
        by_key = {inbound.external_id: inbound for inbound in turn.following}
        for entry in merged.staged.get(self._inbox, ()) if by_key else ():
            if entry.key in by_key and entry.meta.get("turn") == turn.id:
                self.submit(AcceptedInbound(entry.id, by_key[entry.key]))

    async def _deliver_staged(self, merged: MergeResult) -> None:
        """Deliver the merged messages for people: the answer and messages of tools."""
        for tape, entries in merged.staged.items():
            for message in read_intents(entries) if (channel := outbox_channel(tape)) else ():
                await self._deps.deliver(channel, message)

    def _stage_reply(self, turn: Turn, reply: _Reply, status: Status) -> None:
        source, inbound = self._deps.sources.get(turn.origin), reply.accepted.inbound
        if turn.is_typed:
            quoted = inbound.message or inbound.external_id
            chat = inbound.channel, inbound.chat, reply.text, inbound.thread, quoted
            self._stage_message(turn, Outbound(*chat, reply.files, reply.buttons), answered=reply.accepted.id)
            return
        if source is None:
            return
        sourced = source.build_reply(turn, inbound, TurnOutcome(status, reply.text))
        answered = reply.accepted.id if inbound.is_of_chat else 0
        for tape, entries in sourced.entries.items():
            turn.tape.stage(tape, entries)
        if sourced.target is not None:
            out = structs.replace(sourced.target, text=sourced.text, files=reply.files)
            self._stage_message(turn, out, answered=answered)

    def _stage_message(self, turn: Turn, out: Outbound, *, answered: int = 0) -> None:
        """Stage text and files for a chat, possibly of another channel."""
        if not (out.text or out.files):
            return
        channel = self._link
        if out.channel != channel.name:
            found = channel.find_channel(out.channel)
            if found is None:
                return
            channel = found
        if turn.answer_source is not Source.OWN:
            turn.tape.raise_source(turn.answer_source)
        if turn.tape.source is Source.WORLD:
            out = structs.replace(out, has_no_link_previews=True)
        parts = tuple(channel.split(out))
        meta = FOR_PEOPLE_STAMP if turn.answers_people_alone else EMPTY_OBJECT
        intent = intent_entry(turn.session, turn.id, parts, inbound=answered, meta=meta)
        turn.tape.stage(channel.outbox_of(turn.session), [intent])


def _log_end(result: TurnResult, seconds: float) -> None:
    """Log one line about a recorded turn, without words of people or models."""
    steps = [entry.payload["data"] for entry in result.merged_entries if entry.name == STEP_EVENT]
    usages = [attempt["usage"] for step in steps for attempt in step.get("attempts", ()) if attempt.get("usage")]
    costs = [step["cost"] for step in steps if "cost" in step]
    log.info(
        "turn ended",
        extra={
            "action": "turn.end",
            "outcome": result.status,
            "ms": round(seconds * 1000),
            "tokens": sum(usage["input_tokens"] + usage["output_tokens"] for usage in usages),
            "cost_usd": "unknown" if None in costs else round(sum(costs), 6),
            "trace": result.turn_id[:TRACE_DIGITS],
        },
    )
    if result.status == "too_old":
        log.warning(
            "messages too old to be answered: if the bot was not away, the clock of this machine is wrong",
            extra={"action": "turn.too_old"},
        )


def _calls_ended(calls: Sequence[QueuedMessage]) -> TapeEntry:
    """Make the fact that nobody answers these calls of agents any more."""
    return done_entry([call.accepted.id for call in calls], outcome="withdrawn")


def _ends_calls(turn: Turn, status: Status) -> bool:
    """Return true if a turn ends the waiting calls between agents: by a stop, a reset, or a typed command that opened a window."""
    if status == "stopped" or turn.tape.is_reset:
        return True
    commands = [accepted.inbound for accepted in turn.inbounds if holds_command(accepted.inbound)]
    if not (turn.is_typed and commands):
        return False
    return any(each.text.strip() == STOP for each in commands) or any(
        entry.opens_window and entry.name != SESSION_START for entry in turn.tape.delta
    )


async def _record_stop(turn: Turn) -> TurnOutcome:
    """Record the stop on the turn's tape and build the text for people."""
    stopped = turn.texts.say("stopped_anew" if turn.tape.is_reset else "stopped")
    await turn.tape.append([make.error("stopped", stopped)])
    return TurnOutcome("stopped", stopped)


async def _record_failure(turn: Turn, error: Exception) -> TurnOutcome:
    """Record the error on the turn's tape and build the text for people."""
    if isinstance(error, ModelCallDenied):
        return await _record_denial(turn, error)
    if isinstance(error, BubbotError):
        await turn.tape.append([make.error(error.kind, clean(str(error)))])
        log.warning("turn failed: %s", error, extra={"action": "turn.failed", "kind": error.kind})
    else:
        log.error("turn failed", exc_info=error, extra={"action": "turn.failed"})
        await turn.tape.append([make.error("internal", clean(f"{type(error).__name__}: {error}"))])
    return TurnOutcome("failed", _failure_text(turn.texts, error, turn.id))


def _failure_text(texts: Texts, error: Exception, turn: str = "") -> str:
    """Build the text for people; `turn` is the id of the failed turn, if any."""
    try:
        if isinstance(error, ModelUnconfigured):
            return texts.add_trace(str(error), turn)
        if isinstance(error, BubbotError):
            return clean(texts.format_failure(error, turn))
        text = texts.say("failed", reason=texts.say("defect", name=type(error).__name__))
        return texts.add_trace(text, turn) if turn else text
    except Exception:  # an unreadable sentence must not end the bot as well
        log.exception("sentences not readable, using English", extra={"action": "texts.failed"})
        return DEFECT_IN_ENGLISH.format(name=type(error).__name__)


async def _record_denial(turn: Turn, error: ModelCallDenied) -> TurnOutcome:
    """Record that a budget or a rate limit ended the turn."""
    await turn.tape.append([make.error(error.kind, clean(str(error)))])
    log.info("turn refused: %s", error, extra={"action": "turn.refused", "kind": error.kind})
    return TurnOutcome("failed", turn.texts.format_commands(error.notice))


class _Reply(Struct, frozen=True):
    """A text with files and buttons; `accepted` is the first answered inbound."""

    text: str
    files: tuple[OutboundFile, ...]
    accepted: AcceptedInbound
    buttons: ButtonSet | None = None


def _offered_buttons(turn: Turn) -> ButtonSet | None:
    """Return the buttons for the turn's person if exactly one tool offers some."""
    offers = [buttons for buttons in turn.buttons if buttons]
    return ButtonSet(offers[0], person=turn.sender.id) if len(offers) == 1 and turn.sender.id else None


def _build_failure_message(
    channel: SessionChannel, session: str, first: AcceptedInbound, text: str
) -> tuple[str, TapeEntry]:
    """Build the key and the entry of the failure message for inbounds that cannot become a turn."""
    key, inbound = f"poisoned:{first.id}", first.inbound
    quoted = inbound.message or (inbound.external_id if inbound.is_typed else "")
    out = Outbound(inbound.channel, inbound.chat, text, inbound.thread, quoted)
    return key, intent_entry(session, key, tuple(channel.split(out)), inbound=first.id)
