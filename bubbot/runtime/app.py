"""The application runtime: every session of a process, each with its own actor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bubbot.errors import ConfigError
from bubbot.log import bind
from bubbot.ports.channel import Inbound
from bubbot.ports.turn import AcceptedInbound, TapeChange, TurnResult
from bubbot.runtime.changes import message_id
from bubbot.runtime.link import SessionChannel, SessionDeps
from bubbot.runtime.session import SessionRuntime
from bubbot.tape.service import TapeService

KEPT_IDLE = 256
"""Sessions that are remembered at most while nothing happens in them; what is forgotten is read again."""
KEPT_ENTRIES = 50_000
"""Entries of their windows that are kept with them at most, about 105 MB; a session at work keeps its own."""


@dataclass(frozen=True, slots=True)
class RuntimeLoad:
    """What a bot has to do: messages that wait for a turn, turns under way, and sessions that are remembered."""

    waiting: int = 0
    running: int = 0
    sessions: int = 0


class AppRuntime:
    """Gives each inbound to its session. `group` owns the sessions' tasks; `tape` makes a session's tape service."""

    def __init__(
        self,
        links: Mapping[str, SessionChannel],
        deps: SessionDeps,
        tape: Callable[[str], TapeService],
        group: asyncio.TaskGroup,
    ) -> None:
        self._links = dict(links)
        self._deps = deps
        self._tape = tape
        self._group = group
        self._sessions: dict[str, SessionRuntime] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._paused = False

    def renew(self, links: Mapping[str, SessionChannel], deps: SessionDeps) -> None:
        """Other channels and other settings: what is under way ends as it began, what comes next goes by these."""
        self._links, self._deps = dict(links), deps
        for name, session in self._sessions.items():
            session.renew(self._links.get(name.partition(":")[0]), deps)

    async def leave(self, channel: str, patience: float) -> None:
        """Ends the sessions of a channel: no further turn begins there, and one that takes longer than `patience`
        seconds is cut off. What is open is durable, and goes on when the channel is back."""
        self._links.pop(channel, None)  # a firing that is just being accepted begins no session any more
        own = {name for name in self._sessions if name.partition(":")[0] == channel}
        for name in own:
            self._sessions[name].pause()
        tasks = [task for name, task in self._tasks.items() if name in own and not task.done()]
        if tasks and (late := (await asyncio.wait(tasks, timeout=patience))[1]):
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for name in own:
            self._sessions.pop(name, None)

    async def turns_ended(self) -> None:
        """Returns when every turn that is under way now has ended."""
        running = [session.under_way for session in self._sessions.values()]
        await asyncio.gather(*(asyncio.wait([one]) for one in running if one is not None))

    def submit(self, accepted: AcceptedInbound) -> asyncio.Future[TurnResult]:
        """Queues an accepted inbound in its session. The future ends with the turn that answers it."""
        inbound = accepted.inbound
        result = self._session(inbound.channel, inbound.session).submit(accepted)
        self._run(inbound.session)
        return result

    def change(self, changed: TapeChange) -> None:
        """Queues a change of an earlier message in its session."""
        event = changed.event
        self._session(event.channel, event.session).change(changed)
        self._run(event.session)

    async def knows(self, channel: str, session_id: str, message: str) -> bool:
        """Whether the session has the message with this id of the platform: on its tape, or waiting."""
        if channel not in self._links:
            return False
        session = self._sessions.get(session_id)
        if session is not None and session.awaits(message):
            return True
        return await message_id(self._tape(session_id), message) is not None

    def too_old(self, inbound: Inbound) -> bool:
        """Whether a message that comes now is too old to be answered."""
        return self._session(inbound.channel, inbound.session).too_old(inbound)

    def stop(self, session_id: str) -> bool:
        """Stops the running turn of a session; says whether there was one."""
        session = self._sessions.get(session_id)
        return session is not None and session.stop()

    def busy(self, session_id: str) -> tuple[bool, int]:
        """Whether a turn of this session is under way, and how many messages wait behind it."""
        session = self._sessions.get(session_id)
        return (session.running, session.waiting) if session else (False, 0)

    def load(self) -> RuntimeLoad:
        """What there is to do, over all sessions."""
        sessions = self._sessions.values()
        return RuntimeLoad(sum(one.waiting for one in sessions), sum(one.running for one in sessions), len(sessions))

    @asynccontextmanager
    async def exclusive(self, session_id: str) -> AsyncIterator[None]:
        """No turn of the session is under way until the block ends, and none begins."""
        channel = session_id.partition(":")[0]
        if channel not in self._links:  # nothing of it runs here
            yield
            return
        async with self._session(channel, session_id).exclusive():
            yield

    async def session_idle(self, session_id: str) -> None:
        """Returns when the session has nothing to do."""
        while (task := self._tasks.get(session_id)) is not None and not task.done():
            await asyncio.wait([task])

    async def idle(self) -> None:
        """Returns when no session has anything to do."""
        while running := [task for task in self._tasks.values() if not task.done()]:
            await asyncio.wait(running)

    def pause(self) -> None:
        """No further turn begins; those under way go on. What waits is taken up by the next start."""
        self._paused = True
        for session in self._sessions.values():
            session.pause()

    async def cancel(self) -> None:
        """Cuts off what runs; it is durable, and the next start goes on with it."""
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
        self._sessions[session_id] = session  # the newest stands at the end
        return session

    def _run(self, session_id: str) -> None:
        """Sees to it that what waits in the session is worked on."""
        running = self._tasks.get(session_id)
        if self._paused or (running is not None and not running.done()):
            return
        draining = self._drain(session_id)
        try:
            task = self._tasks[session_id] = self._group.create_task(draining)
            task.add_done_callback(lambda ended: self._rest(session_id, ended))
        except RuntimeError:  # everything is ending; the next start takes the inbound up
            draining.close()
            raise

    async def _drain(self, session_id: str) -> None:
        with bind(session=session_id):  # also where no turn is under way yet
            await self._sessions[session_id].drain()

    def _rest(self, session_id: str, ended: asyncio.Task[None]) -> None:
        """A session has nothing to do any more: those that have been idle longest are forgotten."""
        if self._tasks.get(session_id) is ended:
            del self._tasks[session_id]
        surplus, entries = len(self._sessions) - KEPT_IDLE, self._kept() - KEPT_ENTRIES
        for one in list(self._sessions):
            if surplus <= 0 and entries <= 0:
                return
            if one not in self._tasks and self._sessions[one].idle:
                entries -= self._sessions.pop(one).kept
                surplus -= 1

    def _kept(self) -> int:
        return sum(session.kept for session in self._sessions.values())
