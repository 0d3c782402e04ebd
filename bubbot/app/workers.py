"""The turns of a store that several processes share: who gets the job of a chat takes it up, runs its turns and delivers.

A chat's job is worked on in rounds: look for open inbounds, changes, forks and messages, begin what is new, and wait until all of it
has ended or there is more. What comes after the last look makes another job, since each job is made in the transaction of its work.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from msgspec import Struct

from bubbot.errors import BubbotError
from bubbot.gateway.channel_runtime import ChannelRuntime
from bubbot.middleware import AroundDelivery, AroundTool, CallNext, PartDelivery, ToolInvocation
from bubbot.ports.channel import Channel, Inbound, Receipt, SupportsWebhook
from bubbot.ports.outbox import OutboxMessage, buttons_key, intent_key
from bubbot.ports.turn import AcceptedInbound, Status, TapeChange, TurnResult
from bubbot.ports.workers import ChatJob, ChatJobs, SharesTurns, WorkerOptions
from bubbot.runtime.app import AppRuntime
from bubbot.stores.lease import InProcessLease
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import session_tape
from bubbot.tape.shards import chat_digest, chat_of
from bubbot.tape.store import TapeStore
from bubbot.tool import ToolOutput

log = logging.getLogger(__name__)

RESULT_POLL_SECONDS = 0.25
"""Seconds between two looks for the result of a turn that another process may run."""
IDLE_POLL_SECONDS = 0.05
MAX_ENTRIES_READ = 500
"""Newest entries of a tape to search for those of a turn."""


@dataclass
class ChatWork:
    """The chat of a job, while this process works on it.

    Attributes:
        news: set if there may be more work.
        sessions: the sessions that were taken up.
        inbounds: the inbounds and changes that were begun.
        messages: the messages whose delivery was begun, each (channel, id).
        places: the chats of channels that get messages.
    """

    job: ChatJob
    news: asyncio.Event = field(default_factory=asyncio.Event)
    sessions: dict[str, None] = field(default_factory=dict)
    inbounds: set[int] = field(default_factory=set)
    messages: set[tuple[str, int]] = field(default_factory=set)
    places: dict[tuple[str, str], None] = field(default_factory=dict)


class NewWork(Struct, frozen=True):
    """What is open in a chat.

    Attributes:
        messages: those that wait to be delivered, by channel.
        items: inbounds and changes, in order of arrival.
    """

    messages: Mapping[str, Sequence[OutboxMessage]]
    items: Sequence[AcceptedInbound | TapeChange]

    def sessions(self) -> list[str]:
        """List the sessions that it is about."""
        found = [message.session for messages in self.messages.values() for message in messages]
        found += [
            item.inbound.session if isinstance(item, AcceptedInbound) else item.event.session for item in self.items
        ]
        return list(dict.fromkeys(found))


class ChatWorkers:
    """See `SharedTurns`. It also does the work of this process's jobs.

    Attributes:
        jobs: those of the store.
        drained: set if somebody wants this process to end in order.
        standing_by: the channels on which another process receives.
    """

    def __init__(
        self,
        shares: SharesTurns,
        store: TapeStore,
        channel_runtimes: Mapping[str, ChannelRuntime],
        workspace: str,
        *,
        local_channel: str,
        home: str,
        places: int,
        lease_seconds: float,
    ) -> None:
        """Take part in the work of a store.

        Args:
            channel_runtimes: the current channels, by name.
            local_channel: the channel of terminals at this process.
            home, places, lease_seconds: see `WorkerOptions`.
        """
        self._shares = shares
        self._store = store
        self._channels = channel_runtimes
        self._workspace = workspace
        self._lease_seconds = lease_seconds
        self._runtime: AppRuntime | None = None
        self._leases: InProcessLease | None = None
        self.drained = asyncio.Event()
        self.standing_by: set[str] = set()
        self._work: dict[str, ChatWork] = {}
        self._held: Counter[str] = Counter()
        self._expected: dict[tuple[str, int], tuple[AcceptedInbound, asyncio.Future[TurnResult]]] = {}
        self.jobs: ChatJobs = shares.open_jobs(
            WorkerOptions(
                run=self._run_job,
                on_work=self._on_work,
                on_lost=self._on_lost,
                on_drain=self.drained.set,
                list_channels=lambda: tuple(channel_runtimes),
                local_channels=(local_channel,),
                home=home,
                places=places,
                lease_seconds=lease_seconds,
            )
        )

    def begin(self, runtime: AppRuntime, leases: InProcessLease) -> None:
        """Take the runtime of this process's turns, and their leases. No job is taken before that."""
        self._runtime, self._leases = runtime, leases

    # What those see who accept messages

    def expect(self, accepted: AcceptedInbound) -> asyncio.Future[TurnResult]:
        result: asyncio.Future[TurnResult] = asyncio.get_running_loop().create_future()
        session = accepted.inbound.session
        if self.jobs.is_local(session):  # nobody waits for the others
            key = session, accepted.id
            self._expected[key] = accepted, result
            result.add_done_callback(lambda _: self._expected.pop(key, None))
        return result

    async def has_open_message(self, session: str, message: str) -> bool:
        channel = self._channels.get(session.partition(":")[0])
        found = await channel.inbox.open_of(chat_of(session)) if channel else ()
        events = [each.inbound if isinstance(each, AcceptedInbound) else each.event for each in found]
        return any(isinstance(event, Inbound) and event.message == message for event in events)

    @asynccontextmanager
    async def hold(self, session: str) -> AsyncIterator[None]:
        async with self.jobs.hold(chat_of(session)):
            self._held[session] += 1
            try:
                await self._take_lease(session)
                yield
            finally:
                self._held -= Counter([session])

    async def wait_idle(self, session: str) -> None:
        while not await self.jobs.list_idle([chat_of(session)]):  # noqa: ASYNC110 - another process may work
            await asyncio.sleep(IDLE_POLL_SECONDS)

    def may_take(self, session: str) -> bool:
        """Return true if this process works on the chat of a session, and no other one does."""
        return chat_digest(chat_of(session)) in self._work or session in self._held

    def takes(self, channel: str, session: str, message: int) -> bool:
        work = self._work.get(chat_digest(chat_of(session)))
        if work is None or (channel, message) in work.messages:
            return False
        work.messages.add((channel, message))
        self._note_place(work, channel, session)
        return True

    # What keeps a process from acting that others have replaced

    def around_delivery(self) -> AroundDelivery:
        """Return the innermost middleware of deliveries."""

        async def confirm(delivery: PartDelivery, call_next: CallNext[PartDelivery, Receipt]) -> Receipt:
            await self.jobs.confirm()
            return await call_next(delivery)

        return confirm

    def around_tool(self) -> AroundTool:
        """Return the innermost middleware of tools."""

        async def confirm(call: ToolInvocation, call_next: CallNext[ToolInvocation, ToolOutput]) -> ToolOutput:
            await self.jobs.confirm()
            return await call_next(call)

        return confirm

    # The work

    async def run(self) -> None:
        """Take jobs until `stop`; the caller keeps it running."""
        tasks = [asyncio.ensure_future(self._sweep()), asyncio.ensure_future(self._watch_results())]
        try:
            await self.jobs.run()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def receive(self, channel: Channel, run: Callable[[], Awaitable[None]]) -> None:
        """Receive on a channel. One process at a time polls a platform; webhooks and terminals are served by every process."""
        if self.jobs.is_local(channel.name) or isinstance(channel, SupportsWebhook):
            await run()
            return

        async def receive() -> None:
            self.standing_by.discard(channel.name)
            try:
                await run()
            finally:
                self.standing_by.add(channel.name)

        self.standing_by.add(channel.name)
        try:
            await self._shares.keep(f"receiving on {channel.name}", receive)
        finally:
            self.standing_by.discard(channel.name)

    def stop(self) -> None:
        """Take no further job."""
        self.jobs.stop()

    async def resume(self, session: str) -> int:
        """Let somebody look for what a chat still needs, such as messages that nobody could be shown.

        Return the number of inbounds that wait or are being answered.
        """
        channel, chat = self._channels.get(session.partition(":")[0]), chat_of(session)
        await self.jobs.wake([chat], is_resumed=True)
        return len(await channel.inbox.open_of(chat)) if channel else 0

    async def _run_job(self, job: ChatJob) -> None:
        assert self._runtime is not None
        work = ChatWork(job)
        digest = chat_digest(job.chat)
        self._work[digest] = work
        try:
            is_first = is_idle = True
            while not self._runtime.is_paused and self._work.get(digest) is work:
                work.news.clear()
                if not await self._begin_new(work, is_first=is_first) and is_idle:
                    break
                is_first, is_idle = False, await self._wait(work)
            if self._runtime.is_paused and self._work.get(digest) is work:
                await self._wait(work, for_news=False)
                if await self._has_open_work(job.chat):
                    await self.jobs.wake([job.chat], is_resumed=True)
        except BubbotError:
            await self._end(work)  # the job may not end before what runs for its other threads
            raise
        finally:
            if self._work.get(digest) is work:
                del self._work[digest]

    async def _begin_new(self, work: ChatWork, *, is_first: bool) -> bool:
        """Begin what is not begun yet; return true if there was anything."""
        assert self._runtime is not None
        runtime, chat = self._runtime, work.job.chat
        is_new = False
        if is_first:
            for forked in await self._store.forked_sessions():
                if forked.session and chat_of(forked.session) == chat:
                    await self._take_up(work, forked.session)
                    runtime.take_up(forked.session)
                    is_new = True
        found = await self._find_new(work)
        # Who had a session before may have written until it was taken up.
        while any([await self._take_up(work, session) for session in found.sessions()]):
            found = await self._find_new(work)
        for name, messages in found.messages.items():
            if (channel := self._channels.get(name)) is None:  # gone by a reload
                continue
            places: set[tuple[str, str]] = set()
            for message in messages:
                place = message.parts[0].chat, message.session
                work.messages.add((name, message.id))
                work.places[name, message.parts[0].chat] = None
                channel.deliverer.enqueue(message, resumed=work.job.is_resumed, is_first=place not in places)
                places.add(place)
                is_new = True
        own = self._channels.get(chat.partition(":")[0])
        for item in found.items:
            work.inbounds.add(item.id)
            if not isinstance(item, AcceptedInbound):
                runtime.queue_change(item)
            elif own is not None and not runtime.has_inbound(item.inbound.session, item.id):
                self._hand_on(item, await own.gate.take(item))
            is_new = True
        return is_new

    async def _find_new(self, work: ChatWork) -> NewWork:
        """Read what is open in a chat, and was not begun yet."""
        chat, messages = work.job.chat, dict[str, list[OutboxMessage]]()
        for name, channel in list(self._channels.items()):
            pending = await channel.outbox.pending_of(chat)
            messages[name] = [each for each in pending if (name, each.id) not in work.messages]
        own = self._channels.get(chat.partition(":")[0])
        items = await own.inbox.open_of(chat) if own else ()
        return NewWork(messages, [item for item in items if item.id not in work.inbounds])

    async def _has_open_work(self, chat: str) -> bool:
        own = self._channels.get(chat.partition(":")[0])
        if own and await own.inbox.open_of(chat):
            return True
        return any([await channel.outbox.pending_of(chat) for channel in list(self._channels.values())])

    async def _take_up(self, work: ChatWork, session: str) -> bool:
        """Have a session for this job; return true if another process may have had it until now."""
        if session in work.sessions:
            return False
        is_taken = await self._take_lease(session)
        work.sessions[session] = None
        return is_taken

    async def _take_lease(self, session: str) -> bool:
        """Hold the lease of a session; return true if another process may have held it until now.

        If so, drop the session from memory.
        """
        assert self._runtime is not None
        assert self._leases is not None
        lease = self._leases.find(session)
        if lease is not None:
            if await self._shares.newest_epoch(lease.tape) == lease.epoch:
                return False
            self._runtime.forget(session)
        await self._leases.hold(session)
        return True

    async def _wait(self, work: ChatWork, *, for_news: bool = True) -> bool:
        """Wait until all that was begun has ended, or there may be more; return true if it has ended."""
        idle = asyncio.ensure_future(self._wait_idle(work))
        news = asyncio.ensure_future(work.news.wait())
        try:
            await asyncio.wait([idle, news] if for_news else [idle], return_when=asyncio.FIRST_COMPLETED)
            if idle.done():
                idle.result()
            return idle.done()
        finally:
            idle.cancel()
            news.cancel()
            await asyncio.gather(idle, news, return_exceptions=True)

    async def _wait_idle(self, work: ChatWork) -> None:
        assert self._runtime is not None
        for session in list(work.sessions):
            await self._runtime.wait_idle_here(session)
            if (failure := self._runtime.take_failure(session)) is not None:
                raise failure
        work.job.leave_place()
        for name, chat in list(work.places):
            if channel := self._channels.get(name):
                await channel.deliverer.wait_until_delivered(chat)

    async def _end(self, work: ChatWork) -> None:
        """Wait until all that was begun has ended, however."""
        while True:
            try:
                return await self._wait_idle(work)
            except BubbotError as error:
                log.debug("another thread failed, too: %s", error, extra={"action": "worker.failed"})

    def _note_place(self, work: ChatWork, channel: str, session: str) -> None:
        work.places[channel, session.partition(":")[2].partition(":")[0]] = None

    def _on_work(self, digest: str) -> None:
        if work := self._work.get(digest):
            work.news.set()

    async def _on_lost(self) -> None:
        assert self._runtime is not None
        self._work.clear()
        self._held.clear()
        for channel in self._channels.values():
            channel.drop()
        await self._runtime.drop_all()

    # Work without a job

    async def _sweep(self) -> None:
        """Make the jobs that open work lacks: now, and once a lease."""
        await self.jobs.wait_ready()
        while True:
            try:
                await self.wake_idle()
            except BubbotError as error:
                log.warning("look for open work failed: %s", error, extra={"action": "worker.sweep"})
            await asyncio.sleep(self._lease_seconds)

    async def wake_idle(self) -> None:
        """Make the jobs that the open work of this process's channels lacks."""
        chats: dict[str, None] = {}
        for channel in list(self._channels.values()):
            inbounds = [each.inbound.session for each in await channel.inbox.open_inbounds()]
            changes = [each.event.session for each in await channel.inbox.open_changes()]
            messages = [each.session for each in await channel.outbox.settle_pending()]
            chats |= dict.fromkeys(map(chat_of, [*inbounds, *changes, *messages]))
        for forked in await self._store.forked_sessions():
            if forked.tape == session_tape(self._workspace, forked.session):
                chats[chat_of(forked.session)] = None
        here = [chat for chat in chats if chat.partition(":")[0] in self._channels and not self.jobs.is_local(chat)]
        if idle := await self.jobs.list_idle(here):
            await self.jobs.wake(idle, is_resumed=True)

    # Results for those who wait

    def _hand_on(self, accepted: AcceptedInbound, result: asyncio.Future[TurnResult]) -> None:
        """Give a result to who waits for it."""
        expected = self._expected.get((accepted.inbound.session, accepted.id))
        result.add_done_callback(partial(_copy_result, expected[1] if expected else None))

    async def _watch_results(self) -> None:
        """Look for results of turns that other processes ran."""
        while True:
            await asyncio.sleep(RESULT_POLL_SECONDS)
            for (session, number), (_, result) in list(self._expected.items()):
                if chat_digest(chat_of(session)) in self._work or result.done():
                    continue
                with suppress(BubbotError):
                    found = await self._read_result(session, number)
                    if found is not None and not result.done():
                        result.set_result(found)

    async def _read_result(self, session: str, inbound: int) -> TurnResult | None:
        """Return the result of the turn that answered an inbound, from the tapes; None if there is none yet."""
        channel = self._channels.get(session.partition(":")[0])
        outcome = await channel.inbox.find_outcome(session, inbound) if channel else None
        if channel is None or outcome is None:
            return None
        name = session_tape(self._workspace, session)
        entries = (await self._store.fetch([TapeQuery(name, newest=True, limit=MAX_ENTRIES_READ)]))[0]
        merged = tuple(each for each in reversed(entries) if outcome.turn and each.meta.get("turn") == outcome.turn)
        keys = (intent_key(outcome.turn), buttons_key(outcome.turn)) if outcome.turn else ()
        intents = [await channel.outbox.find_intent(key) for key in keys]
        intent = next((each for each in intents if each is not None), None)
        text = "\n\n".join(part.text for part in intent.parts if part.text) if intent else ""
        return TurnResult(outcome.turn, _status_of(outcome.outcome), text, merged)


def _copy_result(target: asyncio.Future[TurnResult] | None, result: asyncio.Future[TurnResult]) -> None:
    if result.cancelled():
        return
    error = result.exception()  # seen, even if nobody waits
    if target is None or target.done() or error is not None:
        return  # another process answers, and its result is found
    target.set_result(result.result())


def _status_of(outcome: str) -> Status:
    statuses: tuple[Status, ...] = ("answered", "silent", "failed", "stopped", "too_old")
    return next((status for status in statuses if status == outcome), "silent")
