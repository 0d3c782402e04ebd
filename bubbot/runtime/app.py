"""The application runtime: every session of a process, each with its own actor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from bubbot.errors import ConfigError
from bubbot.runtime.session import ChannelLink, SessionDeps, SessionRuntime
from bubbot.tape.service import TapeService
from bubbot.turn import Accepted, TurnResult


class AppRuntime:
    """Gives each inbound to its session. `group` owns the sessions' tasks; `tape` makes a session's tape service."""

    def __init__(
        self,
        links: Mapping[str, ChannelLink],
        deps: SessionDeps,
        tape: Callable[[str], TapeService],
        group: asyncio.TaskGroup,
    ) -> None:
        self._links = links
        self._deps = deps
        self._tape = tape
        self._group = group
        self._sessions: dict[str, SessionRuntime] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def submit(self, accepted: Accepted) -> asyncio.Future[TurnResult]:
        """Queues an accepted inbound in its session. The future ends with the turn that answers it."""
        session_id = accepted.inbound.session
        session = self._sessions.get(session_id)
        if session is None:
            link = self._links.get(accepted.inbound.channel)
            if link is None:
                raise ConfigError(f"no channel {accepted.inbound.channel} runs here")
            session = self._sessions[session_id] = SessionRuntime(self._tape(session_id), link, self._deps)
        result = session.submit(accepted)
        running = self._tasks.get(session_id)
        if running is None or running.done():
            draining = session.drain()
            try:
                self._tasks[session_id] = self._group.create_task(draining)
            except RuntimeError:  # everything is ending; the next start takes the inbound up
                draining.close()
                raise
        return result

    def stop(self, session_id: str) -> bool:
        """Stops the running turn of a session; says whether there was one."""
        session = self._sessions.get(session_id)
        return session is not None and session.stop()

    async def idle(self) -> None:
        """Returns when no session has anything to do."""
        while running := [task for task in self._tasks.values() if not task.done()]:
            await asyncio.wait(running)
