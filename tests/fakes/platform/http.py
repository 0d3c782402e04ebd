"""The HTTP side: every request is logged, carried out and answered, or meets the fault that a test planned for it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from aiohttp import web

from tests.fakes.platform.faults import Cut, Effect, Fault, Faults, Slow, Wedge


@dataclass(slots=True)
class Call:
    """One request: when it came, what it asked, what it was told. `status` 0 means that no answer was given."""

    time: float
    route: str
    files: dict[str, int] = field(default_factory=dict, kw_only=True)
    status: int = field(default=0, kw_only=True)
    result: object = field(default=None, kw_only=True)
    fault: Fault | None = field(default=None, kw_only=True)


C = TypeVar("C", bound=Call)


class Front(ABC, Generic[C]):
    """Answer requests over HTTP. Every effect happens between two waits: a request has it whole or not at all.

    Args:
        changed: set whenever a request came or was answered.
        spell: makes the spellings of a route equal.
    """

    def __init__(self, changed: asyncio.Event, spell: Callable[[str], str]) -> None:
        self.changed = changed
        self.log: list[C] = []
        self.faults = Faults(spell)
        self.closing = asyncio.Event()

    @abstractmethod
    def app(self) -> web.Application:
        """Build the application for aiohttp."""

    def record(self, call: C) -> None:
        """Log a request that came, with the fault that is planned for it."""
        self.log.append(call)
        call.fault = self.faults.take(call.route)
        self.changed.set()

    async def respond(
        self, request: web.Request, call: C, carry_out: Callable[[], web.Response | Awaitable[web.Response]]
    ) -> web.StreamResponse:
        """Carry out a recorded request and answer it, as far as its fault lets it."""
        if failed := await self.fail(request, call, "before"):
            return failed
        result = carry_out()
        response = result if isinstance(result, web.Response) else await result
        self.changed.set()
        if failed := await self.fail(request, call, "after"):
            return failed
        if isinstance(call.fault, Slow):
            await asyncio.sleep(call.fault.seconds)
        if isinstance(call.fault, Cut):
            return await _half(request, response)
        call.status = response.status
        self.changed.set()
        return response

    async def fail(self, request: web.Request, call: C, when: Effect) -> web.Response | None:
        """Return what a fault puts in the place of the answer at this moment; None if nothing."""
        fault = call.fault
        if fault is None or getattr(fault, "effect", "") != when:
            return None
        if isinstance(fault, Wedge):
            await self.closing.wait()  # ends with the server, or when the client has gone
        if response := fault.response():
            call.status = response.status
            return response
        if request.transport is not None:
            request.transport.abort()
        return web.Response()


async def _half(request: web.Request, whole: web.Response) -> web.StreamResponse:
    """Promise the whole body and end the connection in its middle."""
    body = whole.body if isinstance(whole.body, bytes) else b"null"
    response = web.StreamResponse(headers={"Content-Length": str(len(body)), "Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response
