"""The trace page of a home over real HTTP, from a thread of its own, for clients that are not asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bubbot.app.trace import admit_people, open_trace, pages_address, trace_tokens
from bubbot.home import Home
from bubbot.ports.channel import Role
from bubbot.server.pages import serve_pages
from bubbot.settings.loader import Settings
from bubbot.settings.sections import TraceSettings
from tests.isolation.world import SETTINGS

WAIT_SECONDS = 60.0
OWNER_NAME = "tg:1"


@dataclass(frozen=True)
class TraceSite:
    """A served trace page: its address, the home whose tokens it accepts, and how many of its pages a walk reads."""

    address: str
    home: Path
    most_pages: int = 600

    def token(self, person: str = OWNER_NAME) -> str:
        """Make a token for somebody."""
        return trace_tokens(Home(self.home)).issue(person, 3_600)

    def link(self, person: str = OWNER_NAME, path: str = "/") -> str:
        """The address with which a browser comes in."""
        return f"{self.address}{path}?token={self.token(person)}"


def role_of(channel: str, number: str) -> Role:
    """The owner of these homes, its members, and strangers."""
    return (
        {"1": Role.OWNER, "5": Role.MEMBER, "7": Role.MEMBER}.get(number, Role.STRANGER)
        if channel == "tg"
        else Role.STRANGER
    )


@contextmanager
def served(home: Path, settings: Settings = SETTINGS, *, serves_auditors: bool = False) -> Iterator[TraceSite]:
    """Serve the page of a home as the daemon does, until the block ends; `serves_auditors`: see `open_trace`."""
    ports: list[int] = []
    errors: list[BaseException] = []
    ready, loop, done = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        async with open_trace(settings, Home(home), serves_auditors=serves_auditors) as trace:
            admit = admit_people(trace_tokens(Home(home)), role_of, trace.auditors)
            async with serve_pages(trace.pages, pages_address(TraceSettings(), port=0), admit) as port:
                ports.append(port)
                ready.set()
                await done.wait()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        except BaseException as error:  # noqa: BLE001 - told by the thread that waits
            errors.append(error)
        finally:
            loop.close()
            ready.set()

    thread = threading.Thread(target=run, name="trace page")
    thread.start()
    try:
        assert ready.wait(WAIT_SECONDS), "the page is not served"
        if errors:
            raise errors[0]
        yield TraceSite(f"http://127.0.0.1:{ports[0]}", home)
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(done.set)
        thread.join(WAIT_SECONDS)
