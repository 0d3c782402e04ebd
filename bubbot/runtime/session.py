"""One session: one tape, one turn at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from bubbot.errors import BubbotError, ModelCallDenied, StoreError, TapeCorrupt
from bubbot.inbox import done
from bubbot.log import bind
from bubbot.memory import MemoryZone
from bubbot.ports.channel import Inbound, Role, TurnFinished, TurnStarted
from bubbot.ports.turn import SCHEDULED, AcceptedInbound, TapeChange, Turn, TurnResult
from bubbot.runtime.boundary import failure
from bubbot.runtime.calls import clean
from bubbot.runtime.changes import change_entries
from bubbot.runtime.intake import AttachmentResult, attachments_of
from bubbot.runtime.link import SessionChannel, SessionDeps
from bubbot.runtime.loop import LoopResult
from bubbot.runtime.metering import not_asked
from bubbot.runtime.opening import edits_since, message_entries, notices_of, too_old_text, turn_joined, turn_start
from bubbot.runtime.queue import MessageQueue, QueuedMessage
from bubbot.runtime.replies import Reply, poisoned, stage_said
from bubbot.runtime.router import is_command, is_overtaking
from bubbot.schedule.changes import SCHEDULE_TAPE
from bubbot.tape import entry as make
from bubbot.tape.anchor import SESSION_START, anchor
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.fork import ForkedTape
from bubbot.tape.query import TapeQuery, Window
from bubbot.tape.service import TapeService
from bubbot.views.outbox import intent_from

log = logging.getLogger(__name__)

ATTEMPTS = 2
"""Turns begun for one inbound before it ends with an honest failure."""


class SessionRuntime:
    """Serialises everything that happens on one session's tape."""

    def __init__(self, tape: TapeService, link: SessionChannel, deps: SessionDeps) -> None:
        self._tape = tape
        self._link = link
        self._deps = deps
        self._line = MessageQueue(link.rules)
        self._batch: list[QueuedMessage] = []
        self._taken: dict[int, AttachmentResult] = {}
        self._taking: asyncio.Future[dict[int, AttachmentResult]] | None = None
        self._edits: list[int] = []
        self._applying: TapeChange | None = None
        self._held = 0
        self._running: asyncio.Task[LoopResult] | None = None
        self._writing = asyncio.Lock()
        self._stop_asked = False
        self._refused: ModelCallDenied | None = None
        self._woken = asyncio.Event()
        self._paused = False
        self._started = False

    def submit(self, accepted: AcceptedInbound) -> asyncio.Future[TurnResult]:
        """Queues an inbound; the future ends with its turn. The caller sees to it that `drain` runs."""
        waiting = QueuedMessage(accepted, asyncio.get_running_loop().create_future())
        self._line.add(waiting)
        return waiting.result

    def change(self, changed: TapeChange) -> None:
        """Queues a change of an earlier message. The caller sees to it that `drain` runs."""
        self._line.add(changed)

    @property
    def running(self) -> bool:
        """Whether a turn is under way."""
        return bool(self._batch)

    @property
    def waiting(self) -> int:
        """How many messages wait behind the turn under way."""
        return self._line.messages

    @property
    def idle(self) -> bool:
        """Whether nothing is lost when the session is forgotten: all there is to know of it is on its tape."""
        return not (self._line or self._batch or self._applying or self._held)

    @property
    def kept(self) -> int:
        """Entries of its tape that are kept in memory."""
        return self._tape.kept

    def stop(self) -> bool:
        """Stops the turn under way, if there is one; what it did stays a fact. One that is just being opened is
        stopped as soon as it is open, and waits for no files. A `,status` is answered all the same."""
        if self._running is not None and not self._is_overtaking():
            return self._running.cancel()
        batch = [] if self._is_overtaking() else self._batch
        self._stop_asked = bool(batch or self._line.stoppable)
        if self._taking is not None:
            self._taking.cancel()
        self._woken.set()
        return self._stop_asked

    def _is_overtaking(self) -> bool:
        """Return true if the turn under way is for commands that nothing stops."""
        return bool(self._batch) and all(is_overtaking(one.accepted.inbound.text) for one in self._batch)

    def awaits(self, message: str) -> bool:
        """Whether the message with this id of the platform is on its way to the tape: it waits, is being answered, or
        is being written."""
        applying = self._applying.event if self._applying else None
        written = isinstance(applying, Inbound) and applying.message == message
        answered = any(one.accepted.inbound.message == message for one in self._batch)
        return written or answered or self._line.holds(message)

    def too_old(self, inbound: Inbound) -> bool:
        """Whether a message that comes now is too old to be answered."""
        return self._link.rules.too_old(inbound, self._deps.now())

    @property
    def under_way(self) -> asyncio.Task[LoopResult] | None:
        """The turn that runs now."""
        return self._running

    def renew(self, link: SessionChannel | None, deps: SessionDeps) -> None:
        """Goes by these from now on; a turn under way ends in the loop it began in. None: the link stays."""
        self._link, self._deps = link or self._link, deps
        self._line.rules = self._link.rules

    def pause(self) -> None:
        """No further turn begins."""
        self._paused = True
        self._woken.set()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[TapeService]:
        """The tape; no turn and no change is written to it within the block."""
        self._held += 1
        try:
            async with self._writing:
                yield self._tape
        finally:
            self._held -= 1
            self._tape.forget_window()  # it may have been written past this object

    async def drain(self) -> None:
        """Runs turns until nothing waits."""
        while self._line and not self._paused:
            self._woken.clear()
            await self._line.quiet(self._deps.now)
            if changed := self._line.change():
                self._applying = changed
                async with self._writing:
                    await self._apply(changed)
                self._applying = None
                continue
            await self._take(lambda: [one for one in self._line.ahead(self._deps.now()) if not one.attempts])
            self._refused = await self._deps.pace.wait(self._line.ahead(self._deps.now()), self._woken)
            crowded = self._deps.pace.crowded(lambda: self._line.ahead(self._deps.now()))
            async with self._link.chat_limit(self._tape.session), self._deps.places.place(crowded), self._writing:
                if not self._paused:
                    await self._next()

    async def _next(self) -> None:
        """One turn, for what it takes from the line."""
        if gone := self._line.withdrawn():
            await self._withdraw(gone)
            return
        self._batch, old = self._line.batch(self._deps.now())
        batch = [one.accepted for one in self._batch]
        try:
            result = await self._turn(batch, old=old)
        except BubbotError:
            raise  # the store or the tape itself: nothing can be recorded
        except Exception as error:  # a defect of ours, or an adapter's value that nothing takes: the others go on
            log.exception("messages could not be taken up", extra={"action": "turn.poisoned"})
            result = await self._poisoned(batch, error)
        self._stop_asked = self._stop_asked and self._is_overtaking() and bool(self._line.stoppable)
        for one in self._batch:
            one.settle(result)
        self._batch = []

    async def _poisoned(self, batch: Sequence[AcceptedInbound], error: Exception) -> TurnResult:
        """Messages that no turn can be made of end with a failure, so that no later start meets them again."""
        first, texts = batch[0], self._deps.texts
        text = texts.say("failed", reason=texts.say("defect", name=type(error).__name__))
        key, told = poisoned(self._link, self._tape.session, first, text)
        ended = done([one.id for one in batch], outcome="failed")
        fact = make.error("internal", clean(f"{type(error).__name__}: {error}"))
        failed = firings.poisoned(first.inbound, text) if (firings := self._deps.firings) else ()
        also = {self._link.inbox: [ended], self._link.outbox: [told], **({SCHEDULE_TAPE: failed} if failed else {})}
        await self._tape.append([fact], also=also)
        if firings and failed:
            firings.take(failed)
        self._deps.show(self._tape.session, TurnFinished("failed"))  # else it is shown at work for ever
        for entry in (await self._tape.fetch([TapeQuery(self._link.outbox, keys=(f"{key}:0",))]))[0]:
            await self._deps.deliver(self._link.name, intent_from(entry))
        return TurnResult("", "failed", text)

    async def _withdraw(self, gone: Sequence[tuple[QueuedMessage, TapeChange]]) -> None:
        """Messages that were deleted before their turn are neither kept on the session's tape nor answered."""
        ids = [item_id for waiting, deletion in gone for item_id in (waiting.accepted.id, deletion.id)]
        await self._tape.append([], also={self._link.inbox: [done(ids, outcome="withdrawn")]})
        self._stop_asked = self._stop_asked and bool(self._line.stoppable)
        for waiting, _ in gone:
            self._taken.pop(waiting.accepted.id, None)
            waiting.settle(TurnResult("", "silent"))

    async def _turn(self, batch: Sequence[AcceptedInbound], *, old: bool) -> TurnResult:
        turn = await self._begin(batch, old=old)
        first = batch[0]
        if turn.origin != SCHEDULED:  # whether there will be anything to say, and where, is not known yet
            self._deps.show(turn.session, TurnStarted(first.id, first.inbound.message))
        with bind(session=turn.session, turn=turn.id):
            if turn.role is Role.STRANGER:  # since the message was accepted, its sender has lost the right to speak
                result = LoopResult("silent", "")
            elif old:
                result = LoopResult("too_old", too_old_text(turn.texts, batch))
            elif self._refused is not None:
                result = LoopResult("failed", await not_asked(turn, self._refused))
            elif max(one.attempts for one in batch) >= ATTEMPTS:
                gave_up = turn.texts.say("gave_up")
                await turn.tape.append([make.error("interrupted", gave_up)])
                log.warning("a turn was given up", extra={"action": "turn.failed"})
                result = LoopResult("failed", turn.texts.traced(gave_up, turn.id))
            else:
                result = await self._bounded(turn)
            return await self._merge(turn, result)

    async def _take(self, wanted: Callable[[], Sequence[AcceptedInbound]]) -> None:
        """Takes in the attachments of messages that are still on their way to a turn, until `wanted` names none that
        is missing. Before the turn begins: slow files hold no place among the turns of others. What a crash cuts off
        is fetched again."""
        while not self._stop_asked and (missing := [one for one in wanted() if self._untaken(one)]):
            taking = self._deps.intake.take(self._tape, self._link.inbox, missing, self._link.fetch)
            self._taking = asyncio.ensure_future(taking)
            try:
                self._taken |= await self._taking
            except asyncio.CancelledError:
                self._taking.cancel()
                if _being_cancelled():
                    raise
            finally:
                self._taking = None

    def _untaken(self, accepted: AcceptedInbound) -> bool:
        inbound = accepted.inbound
        return accepted.id not in self._taken and not is_command(inbound.text) and bool(attachments_of(inbound))

    async def _begin(self, batch: Sequence[AcceptedInbound], *, old: bool) -> Turn:
        """Opens the fork; when this returns, the turn and its messages are durable.

        What came with messages that are too `old` is not fetched: nobody will answer them.
        """
        turn_id = self._deps.new_id()
        opening: list[TapeEntry] = []
        with suppress(TapeCorrupt):  # the turn itself will say so
            if not await self._tape.has_window():
                opening.append(anchor(SESSION_START, {"owner": "human"}, meta={"session": self._tape.session}))
        corrections: list[TapeEntry] = []
        known: list[int] = []
        fresh: list[AcceptedInbound] = []
        self._edits = []
        for accepted in batch:
            cited = await self._cited(accepted)
            known += [entry.id for entry in cited]
            if cited:
                corrections += edits_since(self._link.inbox, cited[-1], self._edits_of(accepted))
            elif not is_command(accepted.inbound.text):
                fresh.append(accepted)
        opening += [turn_start(self._tape.session, self._link.inbox, batch, known), *corrections]
        if not old:
            await self._take(lambda: fresh)
        taken = {one.id: self._taken.pop(one.id, None) for one in batch}
        for one in fresh:
            opening += message_entries(self._link.inbox, one, taken[one.id], self._edits_of(one))
        fork = await self._tape.open_fork(opening, stamp={"turn": turn_id})
        await self._start_memory(fork)
        turn = self._made(turn_id, fork, batch)
        turn.message_ids += [*known, *(entry.id for entry in fork.delta if entry.kind == Kind.MESSAGE)]
        turn.notices += notices_of(taken)
        return turn

    def _edits_of(self, accepted: AcceptedInbound) -> list[TapeChange]:
        """The edits of a message that came before it was put before the model; done with the turn."""
        edits = self._line.edits_of(accepted)
        self._edits += [one.id for one in edits]
        return edits

    def _made(self, turn_id: str, fork: ForkedTape, batch: Sequence[AcceptedInbound]) -> Turn:
        first = batch[0].inbound
        turn = Turn(
            id=turn_id,
            session=self._tape.session,
            tape=fork,
            sender=first.sender,
            role=self._link.role(first),
            now=self._deps.now,
            zone=self._deps.zone,
            inbounds=list(batch),
            texts=self._deps.texts,
        )
        if first.origin != SCHEDULED:  # what a person says is not answered by a job, which may say nothing
            turn.join = lambda: self._join(turn)
        elif self._deps.firings is not None:
            self._deps.firings.prepare(turn, first)
        return turn

    async def _join(self, turn: Turn) -> None:
        """Takes in what may steer the turn, durable before the model is shown it."""
        now = self._deps.now
        await self._take(lambda: [one.accepted for one in self._line.joining(turn.sender.id, now())])
        joining = self._line.steering(turn.sender.id, now())
        if not joining:
            return
        batch = [one.accepted for one in joining]
        taken = {one.id: self._taken.pop(one.id, None) for one in batch}
        self._batch += joining
        turn.inbounds = [*turn.inbounds, *batch]
        entries = [turn_joined(self._link.inbox, batch)]
        for one in batch:
            entries += message_entries(self._link.inbox, one, taken[one.id], self._edits_of(one))
        stored = await turn.tape.append(entries)
        turn.message_ids += [entry.id for entry in stored if entry.kind == Kind.MESSAGE]
        turn.notices += notices_of(taken)
        await turn.tape.save()

    async def _cited(self, accepted: AcceptedInbound) -> list[TapeEntry]:
        """The messages an interrupted attempt has left on the tape for this inbound."""
        if not accepted.attempts:
            return []
        query = TapeQuery(self._tape.name, Window(), kinds=(Kind.MESSAGE,), missing="empty")
        wanted = (self._link.inbox, accepted.id)
        return [entry for entry in await self._readable(query) or () if entry.meta.get("inbound") == wanted]

    async def _readable(self, query: TapeQuery) -> tuple[TapeEntry, ...] | None:
        """What a query finds; None where the tape cannot be read there. The turn itself will say so: a damaged
        entry must not end the session."""
        try:
            return (await self._tape.fetch([query]))[0]
        except TapeCorrupt:
            return None

    async def _apply(self, changed: TapeChange) -> None:
        """The change becomes a fact of the tape, and is done, in one transaction."""
        with suppress(TapeCorrupt):
            await self._tape.ensure_bootstrap_anchor()
            entries, outcome = await change_entries(self._tape, self._link.inbox, changed)
            await self._tape.append(entries, also={self._link.inbox: [done([changed.id], outcome=outcome)]})

    async def _start_memory(self, fork: ForkedTape) -> None:
        """Once for each start of a session: the zone exists and holds nothing past retention."""
        if self._started:
            return
        self._started = True
        memory = MemoryZone(fork, now=self._deps.now, zone=self._deps.zone, retention_days=self._deps.retention_days)
        with suppress(TapeCorrupt):
            await memory.ensure()
            await memory.prune()

    async def _bounded(self, turn: Turn) -> LoopResult:
        """The turn boundary: whatever happens in a turn ends in a result.

        Cancelled from outside (the process is ending), the fork stays open and the next start takes it up.
        """
        self._running = asyncio.ensure_future(self._deps.loop.run(turn))
        if self._stop_asked and not self._is_overtaking():
            self._running.cancel()
        try:
            return await self._running
        except asyncio.CancelledError:
            if _being_cancelled():
                raise
            stopped = turn.texts.say("stopped")
            await turn.tape.append([make.error("stopped", stopped)])
            return LoopResult("stopped", stopped)
        except StoreError:
            raise  # nothing can be recorded; the fork is durable as far as it got
        except Exception as error:  # noqa: BLE001 - also a defect of ours must not end the session
            return await failure(turn, error)
        finally:
            self._running = None

    async def _merge(self, turn: Turn, result: LoopResult) -> TurnResult:
        """One transaction: the delta, these inbounds done, the intended message."""
        fork, first = turn.tape, turn.inbounds[0]
        await fork.append([make.event("turn/end", {"status": result.status})])
        ids = [*(one.id for one in turn.inbounds), *self._edits]
        fork.stage(self._link.inbox, [done(ids, turn=turn.id, outcome=result.status)])
        text = "\n\n".join([*turn.notices, result.text]) if result.text else ""
        said = Reply(text, tuple(turn.files) if result.status in ("answered", "silent") else (), first)
        link = stage_said(turn, self._link, said, result.status, self._deps.firings)
        merged = await fork.merge()
        self._deps.show(turn.session, TurnFinished(result.status))
        if self._deps.firings is not None:
            await self._deps.firings.merged(merged)
        for entry in merged.staged.get(link.outbox, ()):
            await self._deps.deliver(link.name, intent_from(entry))
        return TurnResult(turn.id, result.status, text, merged.delta)


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
