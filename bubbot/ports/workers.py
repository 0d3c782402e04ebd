"""Several processes that run the turns of one store: the jobs that say which chats have work, and who does it.

A job is about a chat, not a session: so the threads of a chat are in one process, and what limits and orders the turns and messages
of a chat stays within it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

from msgspec import Struct

from bubbot.ports.turn import AcceptedInbound, TurnResult
from bubbot.tape.store import SharesWriting


class ChatJob(Struct, frozen=True):
    """A chat that this process works on, and no other one.

    Attributes:
        chat: `channel:chat`.
        is_resumed: somebody else may have begun to do its work.
        leave_place: called once no turn of it runs: it no longer counts among the turns that run at once.
    """

    chat: str
    is_resumed: bool
    leave_place: Callable[[], None]


class WorkerOptions(Struct, frozen=True):
    """How a process takes part.

    Attributes:
        run: does the work of a chat, until there is none.
        on_work: called with a digest of each chat that gets more work (see `bubbot.tape.shards.chat_digest`).
        on_drain: called if somebody wants this process to end in order.
        on_lost: called once others may have taken this process's chats over: everything that it does there has to end.
        list_channels: lists the channels that run in this process.
        local_channels: channels whose chats only the process that received their messages can run, while it lives.
        home: tells homes apart; one process at a time has it.
        places: chats whose turns run at once.
        lease_seconds: silence after which others take a process's chats over.
    """

    run: Callable[[ChatJob], Awaitable[None]]
    on_work: Callable[[str], None]
    on_lost: Callable[[], Awaitable[None]]
    on_drain: Callable[[], None]
    list_channels: Callable[[], Collection[str]]
    local_channels: Collection[str]
    home: str
    places: int
    lease_seconds: float


class ChatJobs(Protocol):
    """The jobs of a store, for one process."""

    async def run(self) -> None:
        """Take jobs until `stop`; the caller keeps it running."""
        ...

    def stop(self) -> None:
        """Take no further job; `run` returns once the running ones have ended."""
        ...

    async def wait_ready(self) -> None:
        """Wait until this process is known to the others: what it accepts from now on makes jobs."""
        ...

    async def confirm(self) -> None:
        """Return if this process may still act for its chats; raise `LeaseLost` if others may have taken them over.

        It waits for a server that does not answer.
        """
        ...

    async def wake(self, chats: Sequence[str], *, is_resumed: bool = False) -> None:
        """Make jobs for these chats, unless they wait already. Raise `StoreError`."""
        ...

    async def list_idle(self, chats: Collection[str]) -> list[str]:
        """Return those of these chats that have no job. Raise `StoreError`."""
        ...

    def is_local(self, chat: str) -> bool:
        """Return true if only this process runs a chat, while it lives."""
        ...

    def hold(self, chat: str) -> AbstractAsyncContextManager[None]:
        """Keep everybody from working on a chat during a block; wait for who does. Raise `StoreError`."""
        ...


class Worker(Struct, frozen=True):
    """A process that runs turns.

    Attributes:
        id: its number.
        host: the name of its machine.
        pid: its process there.
        version: of bubbot.
        since: when it began, ISO 8601.
        silent_seconds: since its last sign of life.
        chats: the chats that it works on.
        places: the chats whose turns it runs at once.
        is_ending: it was asked to end.
    """

    id: int
    host: str
    pid: int
    version: str
    since: str
    silent_seconds: float
    chats: int
    places: int
    is_ending: bool


@runtime_checkable
class SharesTurns(SharesWriting, Protocol):
    """A store whose processes share the turns of its sessions."""

    def open_jobs(self, options: WorkerOptions) -> ChatJobs:
        """Return the jobs. Raise nothing: `ChatJobs.run` connects."""
        ...

    async def newest_epoch(self, tape: str) -> int:
        """Return the epoch of the newest lease of a tape; 0 if there was none."""
        ...

    async def list_workers(self) -> tuple[list[Worker], int]:
        """Return the processes that run turns, and how many chats wait for one."""
        ...

    async def drain_worker(self, number: int) -> bool:
        """Let a process end in order; return false if there is none with this number."""
        ...


class SharedTurns(Protocol):
    """Turns that any process may run, as those who accept messages see them."""

    def expect(self, accepted: AcceptedInbound) -> asyncio.Future[TurnResult]:
        """Return the future of an inbound's result. For a channel for whose results nobody waits it stays pending."""
        ...

    async def has_open_message(self, session: str, message: str) -> bool:
        """Return true if the message with this platform id waits or is being answered, in any process."""
        ...

    def hold(self, session: str) -> AbstractAsyncContextManager[None]:
        """Take a session up for a block in which nobody else works on its chat."""
        ...

    async def wait_idle(self, session: str) -> None:
        """Wait until no process works on the chat of a session."""
        ...

    def takes(self, channel: str, session: str, message: int) -> bool:
        """Return true, once, if this process delivers an outbox message now. Otherwise whoever has the chat does it."""
        ...
