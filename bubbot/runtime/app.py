"""The application runtime: the sessions of a process, each with its own actor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from bubbot.errors import BubbotError, ConfigError, LeaseLost
from bubbot.log import bind
from bubbot.ports.channel import Inbound
from bubbot.ports.health import RuntimeLoad
from bubbot.ports.requests import WorkerRequests
from bubbot.ports.turn import AcceptedInbound, TapeChange, TurnResult
from bubbot.ports.workers import SharedTurns
from bubbot.runtime.messages import find_message_id
from bubbot.runtime.session import SessionChannel, SessionDeps, SessionRuntime
from bubbot.tape.entry import JsonObject
from bubbot.tape.service import TapeService

log = logging.getLogger(__name__)

MAX_IDLE_SESSIONS = 256
"""Idle sessions to keep in memory; a dropped session is read from its tape again."""
MAX_CACHED_ENTRIES = 50_000
"""Window entries to keep in memory, about 75 MB; a session with a running turn always keeps its own."""
STOP_REQUEST, ACTIVITY_REQUEST = "stop", "activity"
"""The kinds of requests among processes about a session."""
OTHERS_SECONDS = 1.0
"""Seconds in which another process has to say that it has a session."""


class AppRuntime:
    """Routes each inbound to the `SessionRuntime` of its session."""

    def __init__(
        self,
        channels: Mapping[str, SessionChannel],
        deps: SessionDeps,
        open_tape: Callable[[str], TapeService],
        group: asyncio.TaskGroup,
        shared: SharedTurns | None = None,
        *,
        requests: WorkerRequests | None = None,
    ) -> None:
        """Take what sessions need.

        Args:
            shared: whoever gets the job of a chat runs its turns; None: this process runs all.
            requests: asks other processes that have sessions; None if there are none.
        """
        self._shared, self._requests = shared, requests
        self._links = dict(channels)
        self._deps = deps
        self._tape = open_tape
        self._group = group
        self._sessions: dict[str, SessionRuntime] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._cached_entries: dict[str, int] = {}
        self._cached_total = 0
        self._paused = False
        self._failures: dict[str, BubbotError] = {}

    @property
    def deps(self) -> SessionDeps:
        """The dependencies of its sessions since the last reload."""
        return self._deps

    def reload(self, channels: Mapping[str, SessionChannel], deps: SessionDeps) -> None:
        """Replace channels and settings. A running turn keeps the old ones."""
        self._links, self._deps = dict(channels), deps
        for name, session in self._sessions.items():
            session.reload(self._links.get(name.partition(":")[0]), deps)

    async def stop_channel(self, channel: str, timeout: float) -> None:
        """End the sessions of a channel, so that no further turn begins there.

        Cancel a turn that takes longer than `timeout` seconds. An open turn is durable and continues once the channel
        is back.
        """
        self._links.pop(channel, None)  # a firing that is being accepted can no longer begin a session
        names = {name for name in self._sessions if name.partition(":")[0] == channel}
        for name in names:
            self._sessions[name].pause()
        tasks = [task for name, task in self._tasks.items() if name in names and not task.done()]
        if tasks and (late := (await asyncio.wait(tasks, timeout=timeout))[1]):
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for name in names:
            self._forget(name)

    async def wait_turns_ended(self) -> None:
        """Wait until all currently running turns have ended."""
        running = [session.running_turn for session in self._sessions.values()]
        await asyncio.gather(*(asyncio.wait([turn]) for turn in running if turn is not None))

    def submit(self, accepted: AcceptedInbound) -> asyncio.Future[TurnResult]:
        """Queue an accepted inbound in its session; the future completes with the turn that answers it."""
        return self.queue(accepted) if self._shared is None else self._shared.expect(accepted)

    def queue(self, accepted: AcceptedInbound) -> asyncio.Future[TurnResult]:
        """Queue an inbound for this process; see `submit`."""
        inbound = accepted.inbound
        result = self._session(inbound.channel, inbound.session).submit(accepted)
        self._ensure_draining(inbound.session)
        return result

    def take_up(self, session_id: str) -> None:
        """Queue a session that has open forks, even if it has no messages."""
        self._session(session_id.partition(":")[0], session_id)
        self._ensure_draining(session_id)

    def submit_change(self, change: TapeChange) -> None:
        """Queue a change of an earlier message in its session."""
        if self._shared is None:
            self.queue_change(change)

    def queue_change(self, change: TapeChange) -> None:
        """Queue a change for this process."""
        event = change.event
        self._session(event.channel, event.session).submit_change(change)
        self._ensure_draining(event.session)

    async def has_message(self, channel: str, session_id: str, message: str) -> bool:
        """Return true if the message with this platform id is on the session's tape or in its queue."""
        if channel not in self._links:
            return False
        if self._shared is not None and await self._shared.has_open_message(session_id, message):
            return True  # asked first: what is no longer open is on the tape
        session = self._sessions.get(session_id)
        if session is not None and session.has_pending(message):
            return True
        return await find_message_id(self._tape(session_id), message) is not None

    def is_too_old(self, inbound: Inbound) -> bool:
        """Return true if an incoming message is too old to be answered."""
        return self._session(inbound.channel, inbound.session).is_too_old(inbound)

    def stop(self, session_id: str) -> bool:
        """Stop the running turn of a session; return true if there was one."""
        session = self._sessions.get(session_id)
        return session is not None and session.stop()

    async def stop_anywhere(self, session_id: str) -> bool:
        """Stop the running turn of a session, in whatever process it runs; return true if there was one."""
        if (was_running := self.stop(session_id)) or self._requests is None:
            return was_running
        answer = await self._requests.post(session_id, STOP_REQUEST, {}, seconds=OTHERS_SECONDS)
        return answer is not None and answer.get("stopped") is True

    async def find_activity(self, session_id: str) -> tuple[bool, int]:
        """Return `session_activity`, from the process that has the session if this one does nothing for it."""
        here = self.session_activity(session_id)
        if any(here) or self._requests is None:
            return here
        answer = await self._requests.post(session_id, ACTIVITY_REQUEST, {}, seconds=OTHERS_SECONDS)
        return (answer["running"], answer["waiting"]) if answer else here

    async def answer_request(self, session_id: str, kind: str, _data: JsonObject) -> JsonObject | None:
        """Answer another process about a session that has something to do here; see `AnswerRequest`."""
        running, waiting = self.session_activity(session_id)
        if not (running or waiting):
            return None
        if kind == STOP_REQUEST:
            return {"stopped": self.stop(session_id)}
        return {"running": running, "waiting": waiting} if kind == ACTIVITY_REQUEST else None

    def session_activity(self, session_id: str) -> tuple[bool, int]:
        """Return true if a turn of this session is running, and the number of messages that wait behind it."""
        session = self._sessions.get(session_id)
        return (session.is_running, session.queue_length) if session else (False, 0)

    def is_answering_person(self, session_id: str) -> bool:
        """Return true if a turn of this session is running that is neither a call between agents nor a step of a task."""
        session = self._sessions.get(session_id)
        return session is not None and session.is_answering_person

    def measure_load(self) -> RuntimeLoad:
        sessions = self._sessions.values()
        return RuntimeLoad(sum(s.queue_length for s in sessions), sum(s.is_running for s in sessions), len(sessions))

    @asynccontextmanager
    async def exclusive(self, session_id: str) -> AsyncIterator[None]:
        """Take the session's lease and block its turns until the block ends."""
        if self._shared is None:
            async with self.exclusive_here(session_id):
                yield
            return
        async with self._shared.hold(session_id), self.exclusive_here(session_id):
            yield

    @asynccontextmanager
    async def exclusive_here(self, session_id: str) -> AsyncIterator[None]:
        """Block the turns of a session in this process; see `exclusive`."""
        channel = session_id.partition(":")[0]
        if channel not in self._links:  # this process does not run the channel
            yield
            return
        async with self._session(channel, session_id).exclusive():
            yield

    async def wait_session_idle(self, session_id: str) -> None:
        """Wait until the session has nothing to do."""
        if self._shared is not None:
            await self._shared.wait_idle(session_id)
        await self.wait_idle_here(session_id)

    async def wait_idle_here(self, session_id: str) -> None:
        """Wait until this process does nothing for the session."""
        while (task := self._tasks.get(session_id)) is not None and not task.done():
            await asyncio.wait([task])

    async def wait_idle(self) -> None:
        """Wait until no session has anything to do."""
        while running := [task for task in self._tasks.values() if not task.done()]:
            await asyncio.wait(running)

    def forget_windows(self) -> None:
        """Read the windows of all sessions from their tapes again: another process erased entries."""
        for session in self._sessions.values():
            session.forget_window()

    @property
    def is_shared(self) -> bool:
        """True if other processes run turns, too."""
        return self._shared is not None

    @property
    def is_paused(self) -> bool:
        """True after `pause`."""
        return self._paused

    def has_inbound(self, session_id: str, inbound_id: int) -> bool:
        """Return true if an inbound waits or is being answered in this process."""
        session = self._sessions.get(session_id)
        return session is not None and session.has_inbound(inbound_id)

    def forget(self, session_id: str) -> None:
        """Drop a session from memory, and its lease, since another process may have had it meanwhile."""
        self._forget(session_id)

    async def drop_all(self) -> None:
        """Cancel all turns and drop all sessions: other processes go on with them."""
        await self.cancel()
        for name in list(self._sessions):
            self._forget(name)

    def pause(self) -> None:
        """Begin no further turn. Running turns continue; the next start answers the waiting messages."""
        self._paused = True
        for session in self._sessions.values():
            session.pause()

    async def cancel(self) -> None:
        """Cancel all running turns; they are durable, and the next start continues them."""
        tasks = [task for task in self._tasks.values() if not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _session(self, channel: str, session_id: str) -> SessionRuntime:
        session = self._sessions.pop(session_id, None)
        if session is None:
            link = self._links.get(channel)
            if link is None:
                raise ConfigError(f"no channel {channel} runs here")
            session = SessionRuntime(self._tape(session_id), link, self._deps)
            if self._paused:
                session.pause()
        self._sessions[session_id] = session  # the most recently used session stands at the end
        return session

    def _ensure_draining(self, session_id: str) -> None:
        """Ensure that a task works on the session's queue."""
        running = self._tasks.get(session_id)
        if self._paused or (running is not None and not running.done()):
            return
        draining = self._drain(session_id)
        try:
            task = self._tasks[session_id] = self._group.create_task(draining)
            task.add_done_callback(lambda done: self._forget_idle(session_id, done))
        except RuntimeError:  # the process is ending; the next start answers the inbound
            draining.close()
            raise

    async def _drain(self, session_id: str) -> None:
        session = self._sessions[session_id]
        with bind(session=session_id):  # even before a turn begins
            try:
                await session.drain()
            except LeaseLost as error:
                log.warning("session lost to another process: %s", error, extra={"action": "session.lost"})
                session.abandon(error)
                self._forget(session_id)
            except BubbotError as error:
                if self._shared is None:
                    raise  # the store or the tape failed: nothing can be recorded
                session.abandon(error)
                self._forget(session_id)
                self._failures[session_id] = error

    def take_failure(self, session_id: str) -> BubbotError | None:
        """Return, once, what ended the work on a session here, such as a lost server; None for nothing."""
        return self._failures.pop(session_id, None)

    def _forget_idle(self, session_id: str, task: asyncio.Task[None]) -> None:
        """Forget the sessions that have been idle longest; called when this one becomes idle."""
        if self._tasks.get(session_id) is task:
            del self._tasks[session_id]
        session = self._sessions.get(session_id)
        self._count_cached(session_id, session.cached_entries if session else 0)
        if len(self._sessions) <= MAX_IDLE_SESSIONS and self._cached_total <= MAX_CACHED_ENTRIES:
            return
        for idle in list(self._sessions):
            if len(self._sessions) <= MAX_IDLE_SESSIONS and self._cached_total <= MAX_CACHED_ENTRIES:
                return
            if idle not in self._tasks and self._sessions[idle].is_idle:
                self._forget(idle)

    def _forget(self, session_id: str) -> None:
        """Drop a session from memory and release its lease."""
        self._sessions.pop(session_id, None)
        self._count_cached(session_id, 0)
        self._deps.leases.release(session_id)

    def _count_cached(self, session_id: str, entries: int) -> None:
        """Update the count of cached entries. Summing over all sessions would slow down each turn."""
        self._cached_total += entries - self._cached_entries.pop(session_id, 0)
        if entries:
            self._cached_entries[session_id] = entries
