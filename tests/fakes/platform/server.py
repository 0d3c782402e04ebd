"""A platform on loopback, for tests: what the servers of all platforms have in common. It knows nothing of bubbot."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from aiohttp import web

from tests.fakes.platform import transcript
from tests.fakes.platform.faults import Fault
from tests.fakes.platform.http import Call, Front
from tests.fakes.platform.rooms import Room
from tests.fakes.platform.world import World

W = TypeVar("W", bound=World[Any])
C = TypeVar("C", bound=Call)


class PlatformServer(ABC, Generic[W, C]):
    """The platform: `async with Server() as server`. `log` has every request, `faults` what goes wrong with them."""

    bot: Any
    """The first bot, with its `user` and `token`."""

    def __init__(self, world: W, front: Front[C]) -> None:
        self.world = world
        self.log = front.log
        self.faults = front.faults
        self.port = 0
        self._closing = front.closing
        self._spell = front.faults.spell
        self._runner = web.AppRunner(front.app(), handler_cancellation=True, shutdown_timeout=0.2, access_log=None)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        await self.disconnect()
        await self._runner.cleanup()

    @abstractmethod
    async def disconnect(self) -> None:
        """End what outlives a request."""

    @abstractmethod
    def table(self) -> dict[str, Any]:
        """Return the keys of a channel that say where its platform is."""

    @abstractmethod
    def person(self, name: str) -> tuple[int, Room[Any]]:
        """Add a person; return their id and their chat with the bot."""

    # What goes wrong

    def fail(self, route: str, fault: Fault, *, times: int = 1, skip: int = 0) -> None:
        """Let the next `times` requests of a route fail after `skip` good ones; see `Faults.add`."""
        self.faults.add(route, fault, times=times, skip=skip)

    # What was done

    def calls(self, route: str) -> list[C]:
        """Return the requests of a route, oldest first."""
        return [call for call in self.log if self._spell(call.route) == self._spell(route)]

    def transcript(self, *, times: bool = True) -> str:
        """Return what people in each chat saw."""
        return transcript.transcript(self.world, times=times)

    async def until(self, true: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait until something holds; `AssertionError` with the transcript and the last calls after the seconds."""
        end = asyncio.get_running_loop().time() + seconds
        while not true():
            left = end - asyncio.get_running_loop().time()
            if left <= 0:
                last = "\n".join(str(call) for call in self.log[-10:])
                raise AssertionError(f"not within {seconds} s\n{self.transcript()}\nlast calls:\n{last}")
            self.world.changed.clear()
            try:
                await asyncio.wait_for(self.world.changed.wait(), min(left, 0.05))
            except TimeoutError:
                continue  # what is waited for may change elsewhere, in a file or a process
