"""One process of a simulated bot: the real gateway, runtime, outbox and approvals over a store that outlives it.

Whatever leaves the process, to the store, the platform or the outside, takes a moment before and a moment after it
happens. The process can end in both; from then on nothing of it reaches the outside any more.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from msgspec import structs

from bubbot.app.events import OWN_REFERENCES
from bubbot.errors import DeliveryFailed
from bubbot.feature import Kernel
from bubbot.features.approvals.feature import ApprovalsFeature
from bubbot.features.approvals.settings import ApprovalSettings
from bubbot.gateway.channel_runtime import ChannelPolicy
from bubbot.gateway.directory import ChannelDirectory
from bubbot.ports.channel import ChannelEvent, MessagePart, Outbound, Receipt, Receive
from bubbot.ports.model import ModelReply, ModelRequest, TextDelta, ToolCall, Usage
from bubbot.ports.turn import Turn
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import TapeEntry
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tape.store import Batch, ForkedSession, ForkRecord, ResetBatch
from bubbot.texts import Texts
from bubbot.tool import CallPlan, GrantKind, GrantTarget, Tool, Toolbox, tool
from tests.approving import POSTS, PostArgs
from tests.doubles import CountingIds, SteppingClock
from tests.kernels import make_kernel
from tests.simulation.platform import TOKEN, Platform
from tests.turns import CHANNEL, Bench, KeptChannel, Options, Replying, running

T = TypeVar("T")
CUT = "\n---\n"
"""Where an answer is cut into parts."""


class Outside:
    """What lies between a process and everything else.

    Attributes:
        is_alive: false once the process was killed: nothing passes any more.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.is_alive = True

    def check(self) -> None:
        """End the caller if its process was killed."""
        if not self.is_alive:
            raise asyncio.CancelledError

    async def reach(self, act: Callable[[], T], seconds: float = 0.0) -> T:
        """Do something outside, with a moment before and a moment after it."""
        await self.pause(seconds)
        try:
            return act()
        finally:
            await self.pause(seconds)

    async def pause(self, seconds: float = 0.0) -> None:
        """Let others go first."""
        self.check()
        await asyncio.sleep(self.rng.random() * seconds if seconds else 0)
        self.check()


class Connection:
    """A process's connection to the store. See `TapeStore`.

    Writes are committed one after another, in the order they were asked for, as SQLite's are; reads come in between.
    """

    def __init__(self, store: InMemoryStore, outside: Outside) -> None:
        self._store = store
        self._outside = outside
        self._last: asyncio.Future[Any] | None = None
        self.tape_shards = store.tape_shards

    def _write(self, commit: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        self._outside.check()
        before = self._last

        async def run() -> T:
            if before is not None:
                await asyncio.wait([before])
            await self._outside.pause()
            try:
                return await commit()  # the store never waits: it commits in one step
            finally:
                await self._outside.pause()

        self._last = written = asyncio.ensure_future(run())
        written.add_done_callback(_retrieve)
        return written

    async def _wait(self, written: asyncio.Future[T]) -> T:
        return await asyncio.shield(written)  # a caller that is cancelled does not stop the commit

    async def _read(self, read: Callable[[], Awaitable[T]]) -> T:
        await self._outside.pause()
        found = await read()
        await self._outside.pause()
        return found

    async def append(self, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.append`."""
        return await self._wait(self._write(partial(self._store.append, batches)))

    def append_deferred(self, batches: Sequence[Batch]) -> asyncio.Future[list[tuple[TapeEntry, ...]]]:
        """See `TapeStore.append_deferred`."""
        return self._write(partial(self._store.append, batches))

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.fetch`."""
        return await self._read(partial(self._store.fetch, queries))

    async def head(self, tape: str) -> int:
        """See `TapeStore.head`."""
        return await self._read(partial(self._store.head, tape))

    async def tapes(self) -> list[Any]:
        """See `TapeStore.tapes`."""
        return await self._read(self._store.tapes)

    async def open_fork(self, record: ForkRecord, *, expect_head: bool = True) -> None:
        """See `TapeStore.open_fork`."""
        await self._wait(self._write(partial(self._store.open_fork, record, expect_head=expect_head)))

    async def extend_fork(self, fork: str, staged: Sequence[Batch], reset: ResetBatch | None = None) -> None:
        """See `TapeStore.extend_fork`."""
        await self._wait(self._write(partial(self._store.extend_fork, fork, staged, reset)))

    async def merge_fork(
        self, fork: str, batches: Sequence[Batch], reset: tuple[str, ResetBatch] | None = None
    ) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.merge_fork`."""
        return await self._wait(self._write(partial(self._store.merge_fork, fork, batches, reset)))

    async def drop_fork(self, fork: str) -> None:
        """See `TapeStore.drop_fork`."""
        await self._wait(self._write(partial(self._store.drop_fork, fork)))

    async def forks(self, tape: str | None = None) -> list[ForkRecord]:
        """See `TapeStore.forks`."""
        return await self._read(partial(self._store.forks, tape))

    async def forked_sessions(self) -> list[ForkedSession]:
        """See `TapeStore.forked_sessions`."""
        return await self._read(self._store.forked_sessions)

    async def raise_epoch(self, tape: str) -> int:
        """See `TapeStore.raise_epoch`."""
        return await self._wait(self._write(partial(self._store.raise_epoch, tape)))

    async def reset(self, tape: str, reset_batch: ResetBatch, first: Sequence[TapeEntry]) -> tuple[TapeEntry, ...]:
        """See `TapeStore.reset`."""
        return await self._wait(self._write(partial(self._store.reset, tape, reset_batch, first)))

    async def erase(
        self,
        batches: Sequence[Batch],
        entries: Sequence[tuple[str, tuple[int, ...]]],
        blobs: Sequence[tuple[str, tuple[str, ...]]] = (),
    ) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.erase`."""
        return await self._wait(self._write(partial(self._store.erase, batches, entries, blobs)))

    async def put_blob(self, tape: str, data: bytes) -> str:
        """See `BlobStore.put_blob`."""
        return await self._wait(self._write(partial(self._store.put_blob, tape, data)))

    async def get_blob(self, tape: str, digest: str) -> bytes:
        """See `BlobStore.get_blob`."""
        return await self._read(partial(self._store.get_blob, tape, digest))

    async def aclose(self) -> None:
        """The store outlives the process."""


def _retrieve(written: asyncio.Future[Any]) -> None:
    """An error belongs to whoever waits, if somebody does."""
    if not written.cancelled():
        written.exception()


class Adapter(KeptChannel):
    """The channel of one process: hands updates in, each chat's in order, and acknowledges what is durable.

    The platform delivers some updates twice, also at once; some messages do not go out, or their receipts are lost.
    """

    def __init__(self, platform: Platform, outside: Outside) -> None:
        super().__init__()
        self._platform = platform
        self._outside = outside
        self._arrived: dict[str, asyncio.Event] = {}

    def parts(self, outbound: Outbound) -> Sequence[MessagePart]:
        """See `Channel.parts`."""
        split = super().parts
        pieces = [structs.replace(outbound, text=piece) for piece in outbound.text.split(CUT)]
        first, *rest = [part for piece in pieces for part in split(piece)]
        return [first, *(structs.replace(part, reply_to="") for part in rest)]

    async def run_chats(self, receive: Receive, chats: Sequence[str]) -> None:
        """Receive until cancelled."""
        self._arrived = {chat: asyncio.Event() for chat in chats}
        self._platform.on_update = lambda chat: self._arrived[chat].set()
        async with asyncio.TaskGroup() as group:
            for chat in chats:
                group.create_task(self._run_chat(receive, chat))

    async def _run_chat(self, receive: Receive, chat: str) -> None:
        while True:
            self._arrived[chat].clear()
            while (event := self._platform.next_update(chat)) is not None:
                await self.take(receive, chat, event)
            await self._arrived[chat].wait()

    async def take(self, receive: Receive, chat: str, event: ChannelEvent) -> None:
        """Hand one update in, perhaps twice, and acknowledge it."""
        lot = self._outside.rng.random()
        await self._outside.pause()
        if lot < 0.15:
            await asyncio.gather(receive(event), receive(event))
        else:
            for _ in range(2 if lot < 0.3 else 1):
                await receive(event)
        await self._outside.pause()
        self._platform.acknowledge(chat, event)

    async def send(self, part: MessagePart) -> Receipt:
        """See `Channel.send`."""
        return await self._reach(lambda: self._platform.post(part), may_lose=bool(part.key))

    async def _reach(self, act: Callable[[], T], *, may_lose: bool = True) -> T:
        lot = self._outside.rng.random()
        self._platform.on_moment("send")
        await self._outside.pause(0.5)
        if lot < 0.05 and may_lose:
            raise DeliveryFailed("the platform refuses it for now")
        done = act()
        await self._outside.pause(0.5)
        if lot > 0.95 and may_lose:
            raise DeliveryFailed("no receipt came back", maybe=True)
        return done


class LiveAdapter(Adapter):
    """One that shows answers while they are written."""

    edit_interval = 1.0

    async def edit(self, message: str, part: MessagePart) -> None:
        """See `SupportsEditing`."""
        await self._reach(lambda: self._platform.change(message, part))

    async def typing(self, chat: str, thread: str) -> None:
        """See `SupportsTyping`."""
        await self._outside.pause()


class SearchedAdapter(LiveAdapter):
    """One whose messages can be searched."""

    async def find(self, part: MessagePart, since: str) -> Sequence[str]:
        """See `FindsMessages`."""
        return await self._reach(lambda: self._platform.find(part), may_lose=False)


def make_model(outside: Outside) -> Replying:
    """A slow model. It names what it answers and everything that it was shown, and acts outside if it is asked to."""

    async def stream(request: ModelRequest) -> AsyncIterator[Any]:
        fresh = _unanswered(request)
        await outside.pause(2.0)
        last = request.messages[-1]
        if last["role"] == "user" and "send" in str(last["content"]) and fresh:
            call = ToolCall("c1", "post_send", f'{{"to": "{fresh[-1]}"}}')
            yield ModelReply("", (call,), "stop", Usage(), "slow")
            return
        seen = dict.fromkeys(TOKEN.findall(" ".join(str(message["content"]) for message in request.messages)))
        text = f"answers {' '.join(fresh)}; seen {' '.join(seen)}"
        yield TextDelta(text[:7])
        if outside.rng.random() < 0.3:
            text += f"{CUT}more on {' '.join(fresh)}"
        await outside.pause(2.0)
        yield ModelReply(text, (), "stop", Usage(), "slow")

    return Replying(stream)


def _unanswered(request: ModelRequest) -> list[str]:
    """The marks of the messages that no answer names."""
    marks = {
        role: [token for one in request.messages if one["role"] == role for token in TOKEN.findall(str(one["content"]))]
        for role in ("user", "assistant")
    }
    return [token for token in dict.fromkeys(marks["user"]) if token not in marks["assistant"]]


class Process:
    """A process of the bot; `bench` is there once it has started."""

    def __init__(
        self,
        store: InMemoryStore,
        platform: Platform,
        *,
        clock: SteppingClock,
        policy: ChannelPolicy,
        name: str,
        adapter: Callable[[Platform, Outside], Adapter],
    ) -> None:
        self.outside = Outside(platform.rng)
        self.bench: Bench | None = None
        self._connection = Connection(store, self.outside)
        self._adapter = adapter(platform, self.outside)
        self._platform = platform
        self._clock = clock
        self._policy = policy
        self._name = name

    def kill(self) -> None:
        """Let nothing of it reach the outside any more; the caller cancels its task."""
        self.outside.is_alive = False
        self._platform.on_update = lambda _: None
        if self.bench is not None:
            self.bench.line.cancel()  # its timers belong to no task

    async def run(self, chats: Sequence[str]) -> None:
        """Start, take up what an earlier process left, and receive until cancelled."""
        runtimes: dict[str, Any] = {}
        directory = ChannelDirectory(runtimes, Texts())
        toolbox: list[Toolbox] = []
        approvals = ApprovalsFeature(
            self._kernel(directory), ApprovalSettings(), lambda: tuple(toolbox[0]), lambda _: ()
        )
        feature = approvals.feature()

        options = Options(tools=[self._make_tool()], rules=self._policy, features=[feature], clock=self._clock)
        model = make_model(self.outside)
        async with running(self._connection, model, options, channel=self._adapter, life=self._name) as bench:
            runtimes[CHANNEL] = bench.line
            toolbox.append(bench.toolbox)
            bench.line.open_gate(bench.app, Texts(), decide_press=approvals.decide_press)
            directory.join(bench.line, _ignore_unreachable)
            open_work = await bench.find_open_work()
            assert feature.lifecycle.on_recovered is not None
            await feature.lifecycle.on_recovered()
            await bench.deliverer.resume(queued=True)
            bench.line.resume(open_work)
            for session in open_work.sessions:
                bench.app.take_up(session)
            self.bench = bench
            await self._adapter.run_chats(bench.line.receive, chats)

    def _make_tool(self) -> Tool:
        async def plan(_turn: Turn, args: PostArgs) -> CallPlan:
            return CallPlan(POSTS, f"to {args.to}", GrantTarget(GrantKind.RECIPIENT, args.to))

        @tool("post.send", effect=POSTS, plan=plan)
        async def post_send(turn: Turn, args: PostArgs) -> str:
            """Send something to somebody."""
            self._platform.on_moment("act")
            await self.outside.reach(lambda: self._platform.act(args.to), 1.0)
            return f"sent to {args.to}"

        return post_send

    def _kernel(self, directory: ChannelDirectory) -> Kernel:
        new_id = CountingIds(f"{self._name}-feature")

        def open_tape(name: str) -> TapeService:
            return TapeService(self._connection, name, now=self._clock, new_id=new_id, references=OWN_REFERENCES)

        return make_kernel(
            home=Path("unused"),
            now=self._clock,
            new_id=new_id,
            zone=ZoneInfo("UTC"),
            texts=Texts(),
            projections=ProjectionRunner(),
            open_tape=open_tape,
            role_of=directory.role_of,
            accept=directory.accept,
            send=directory.send,
            notify=directory.notify,
            draft=directory.draft,
            stage=directory.stage,
            find_sent=directory.find_sent,
            find_texts=directory.find_texts,
        )


async def _ignore_unreachable(_channel: str, _chat: str, _reason: str) -> None:
    """No chat of the simulation goes away."""
