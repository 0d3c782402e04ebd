"""One session: one tape, one turn at a time."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import tzinfo

from bubbot.channel import Outbound, Part, Role, Sender, TurnEnded, TurnStarted
from bubbot.errors import BubbotError, ModelUnconfigured, StoreError, TapeCorrupt
from bubbot.inbox import done
from bubbot.log import bind
from bubbot.memory import MemoryZone
from bubbot.outbox import intent
from bubbot.runtime.calls import clean
from bubbot.runtime.loop import AgentLoop, LoopResult
from bubbot.runtime.preview import Show, show_nothing
from bubbot.runtime.router import is_command
from bubbot.tape import entry as make
from bubbot.tape.anchor import SESSION_START, anchor
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.fork import ForkedTape
from bubbot.tape.handle import Clock
from bubbot.tape.query import Opening, TapeQuery, Window
from bubbot.tape.service import NewId, TapeService
from bubbot.texts import GAVE_UP, STOPPED, failed
from bubbot.turn import Accepted, Turn, TurnResult
from bubbot.views.outbox import Intent, intent_from

log = logging.getLogger(__name__)

ATTEMPTS = 2
"""Turns begun for one inbound before it ends with an honest failure."""


@dataclass(frozen=True, slots=True)
class ChannelLink:
    """What a session knows of its channel: the tapes beside it, how it cuts a message, and who may do what."""

    name: str
    inbox: str
    outbox: str
    parts: Callable[[Outbound], Sequence[Part]]
    role: Callable[[Sender], Role]


@dataclass(frozen=True, slots=True)
class SessionDeps:
    """What every session shares. `deliver` is told of each merged intent, `show` of what a turn shows meanwhile."""

    loop: AgentLoop
    now: Clock
    new_id: NewId
    zone: tzinfo
    retention_days: int
    limit: asyncio.Semaphore
    deliver: Callable[[str, Intent], Awaitable[None]]
    show: Show = show_nothing


@dataclass
class _Waiting:
    accepted: Accepted
    result: asyncio.Future[TurnResult] = field(repr=False)


class SessionRuntime:
    """Serialises everything that happens on one session's tape."""

    def __init__(self, tape: TapeService, link: ChannelLink, deps: SessionDeps) -> None:
        self._tape = tape
        self._link = link
        self._deps = deps
        self._waiting: deque[_Waiting] = deque()
        self._running: asyncio.Task[LoopResult] | None = None
        self._stop_asked = False
        self._started = False

    def submit(self, accepted: Accepted) -> asyncio.Future[TurnResult]:
        """Queues an inbound; the future ends with its turn. The caller sees to it that `drain` runs."""
        waiting = _Waiting(accepted, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        return waiting.result

    def stop(self) -> bool:
        """Stops the turn under way, if there is one; what it did stays a fact. One that is just being opened is
        stopped as soon as it is open."""
        if self._running is not None:
            return self._running.cancel()
        self._stop_asked = bool(self._waiting)
        return self._stop_asked

    async def drain(self) -> None:
        """Runs turns until nothing waits."""
        while self._waiting:
            waiting = self._waiting[0]
            async with self._deps.limit:
                result = await self._turn([waiting.accepted])
            self._waiting.popleft()
            self._stop_asked = False
            if not waiting.result.done():
                waiting.result.set_result(result)

    async def _turn(self, batch: Sequence[Accepted]) -> TurnResult:
        turn = await self._begin(batch)
        self._deps.show(turn.session, TurnStarted())
        with bind(session=turn.session, turn=turn.id):
            if max(one.attempts for one in batch) >= ATTEMPTS:
                await turn.tape.append([make.error("interrupted", GAVE_UP)])
                result = LoopResult("failed", GAVE_UP)
            else:
                result = await self._bounded(turn)
            return await self._merge(turn, result)

    async def _begin(self, batch: Sequence[Accepted]) -> Turn:
        """Opens the fork; when this returns, the turn and its messages are durable."""
        turn_id = self._deps.new_id()
        first = batch[0].inbound
        opening: list[TapeEntry] = []
        if await self._readable(TapeQuery(self._tape.name, Opening(), missing="empty")) == ():
            opening.append(anchor(SESSION_START, {"owner": "human"}, meta={"session": self._tape.session}))
        start = {
            "attempt": max(one.attempts for one in batch) + 1,
            "session": self._tape.session,
            "inbounds": [[self._link.inbox, one.id] for one in batch],
        }
        opening.append(make.event("turn/start", start))
        known: list[int] = []
        for accepted in batch:
            cited = await self._cited(accepted)
            known += cited
            if not cited and not is_command(accepted.inbound.text):
                opening.append(self._message(accepted))
        fork = await self._tape.open_fork(opening, stamp={"turn": turn_id})
        fresh = [entry.id for entry in fork.delta if entry.kind == Kind.MESSAGE]
        await self._start_memory(fork)
        return Turn(
            id=turn_id,
            session=self._tape.session,
            tape=fork,
            sender=first.sender,
            role=self._link.role(first.sender),
            now=self._deps.now,
            zone=self._deps.zone,
            inbounds=batch,
            message_ids=[*known, *fresh],
        )

    def _message(self, accepted: Accepted) -> TapeEntry:
        inbound = accepted.inbound
        return make.message(
            "user",
            clean(inbound.text) or " ",
            inbound=[self._link.inbox, accepted.id],
            origin="human",
            sender={"id": inbound.sender.id, "name": inbound.sender.name},
        )

    async def _cited(self, accepted: Accepted) -> list[int]:
        """The messages an interrupted attempt has left on the tape for this inbound."""
        if not accepted.attempts:
            return []
        query = TapeQuery(self._tape.name, Window(), kinds=(Kind.MESSAGE,), missing="empty")
        wanted = (self._link.inbox, accepted.id)
        return [entry.id for entry in await self._readable(query) or () if entry.meta.get("inbound") == wanted]

    async def _readable(self, query: TapeQuery) -> tuple[TapeEntry, ...] | None:
        """What a query finds; None where the tape cannot be read there. The turn itself will say so: a damaged
        entry must not end the session."""
        try:
            return (await self._tape.fetch([query]))[0]
        except TapeCorrupt:
            return None

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
        if self._stop_asked:
            self._running.cancel()
        try:
            return await self._running
        except asyncio.CancelledError:
            if _being_cancelled():
                raise
            await turn.tape.append([make.error("stopped", STOPPED)])
            return LoopResult("stopped", STOPPED)
        except StoreError:
            raise  # nothing can be recorded; the fork is durable as far as it got
        except BubbotError as error:
            await turn.tape.append([make.error(error.kind, clean(str(error)))])
            unasked = isinstance(error, ModelUnconfigured)
            return LoopResult("failed", str(error) if unasked else failed(str(error)))
        except Exception as error:  # a defect of ours must not end the session
            log.exception("a turn failed", extra={"action": "turn.failed"})
            await turn.tape.append([make.error("internal", clean(f"{type(error).__name__}: {error}"))])
            return LoopResult("failed", failed(f"something went wrong inside me ({type(error).__name__})"))
        finally:
            self._running = None

    async def _merge(self, turn: Turn, result: LoopResult) -> TurnResult:
        """One transaction: the delta, these inbounds done, the intended message."""
        fork, inbound = turn.tape, turn.inbounds[0].inbound
        await fork.append([make.event("turn/end", {"status": result.status})])
        ids = [one.id for one in turn.inbounds]
        fork.stage(self._link.inbox, [done(ids, turn=turn.id, outcome=result.status)])
        if result.text:
            out = Outbound(inbound.channel, inbound.chat, result.text, inbound.thread, inbound.external_id)
            parts = tuple(self._link.parts(out))
            fork.stage(self._link.outbox, [intent(self._tape.session, turn.id, parts)])
        merged = await fork.merge()
        self._deps.show(turn.session, TurnEnded(result.status))
        for entry in merged.staged.get(self._link.outbox, ()):
            await self._deps.deliver(self._link.name, intent_from(entry.id, entry.payload["data"]))
        return TurnResult(turn.id, result.status, result.text, merged.delta)


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
