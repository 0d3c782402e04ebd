"""The channels of a daemon: one that fails stops no other, and the end is orderly whatever they do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from bubbot.concurrency import Backoff
from bubbot.errors import ChannelRefused
from bubbot.gateway.manager import ChannelManager, ShutdownTimeouts
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Receive
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.store import TapeStore
from tests.gateways import Stage, rules
from tests.turns import Bench, Options, Played, running
from tests.virtual import virtual

GRACE = ShutdownTimeouts(turns=30.0, deliveries=10.0)
Run = Callable[[Receive], Awaitable[None]]


class Driven(Stage):
    """A channel that receives as it is told."""

    def __init__(self, run: Run | None = None, close: BaseException | None = None) -> None:
        super().__init__()
        self._run = run
        self._close = close
        self.runs = 0
        self.closed = False

    async def run(self, receive: Receive) -> None:
        """See `Channel.run`."""
        self.runs += 1
        await (self._run(receive) if self._run else asyncio.Event().wait())

    async def aclose(self) -> None:
        """See `SupportsClose`."""
        if self._close is not None:
            raise self._close
        self.closed = True


def raising(error: BaseException) -> Run:
    async def run(_: Receive) -> None:
        raise error

    return run


@asynccontextmanager
async def managed(
    *channels: Driven, store: TapeStore | None = None, model: ScriptedModel | None = None
) -> AsyncIterator[tuple[ChannelManager, Bench]]:
    """The first channel has a bot behind it; the others share its gate, which they hardly use."""
    async with running(
        store or InMemoryStore(), model or ScriptedModel(), Options(rules=rules()), channel=channels[0]
    ) as bench:
        lines = {"0": bench.line}
        async with asyncio.TaskGroup() as group:
            for number, channel in enumerate(channels[1:], 1):
                async with running(InMemoryStore(), ScriptedModel(), Options(rules=rules()), channel=channel) as other:
                    lines[str(number)] = other.line
            manager = ChannelManager(lines, bench.app, Backoff(lambda: 0.5))
            manager.start(group.create_task)
            yield manager, bench


@virtual
async def test_one_that_fails_for_ever_stops_no_other() -> None:
    bad = Driven(raising(OSError("down")))
    async with managed(Driven(), bad) as (manager, bench):
        await asyncio.sleep(500)
        assert bad.runs > 5
        assert (await bench.say("hello")).status == "answered"
        assert manager.states == {"0": "running", "1": "running"}
        await manager.stop(GRACE)


@pytest.mark.parametrize("error", [ChannelRefused("token"), ExceptionGroup("many", [ChannelRefused("token")])])
def test_one_that_is_refused_is_named_once_and_the_others_go_on(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    @virtual
    async def test() -> None:
        bad = Driven(raising(error))
        async with managed(Driven(), bad) as (manager, bench):
            await asyncio.sleep(500)
            assert (bad.runs, manager.states["1"], manager.refusals) == (1, "refused", {"1": "token"})
            assert (await bench.say("hello")).status == "answered"
            await manager.stop(GRACE)

    with caplog.at_level(logging.ERROR):
        test()
    assert [record.getMessage() for record in caplog.records] == ["channel 1 refused, stopping it: token"]


@virtual
async def test_waiting_ends_when_no_channel_receives_any_more() -> None:
    async def ends(_: Receive) -> None:
        await asyncio.sleep(3)

    async with managed(Driven(ends), Driven(raising(ChannelRefused("token")))) as (manager, _):
        async with asyncio.timeout(60):
            await manager.wait_until_refused(excluding="")
        assert manager.states == {"0": "ended", "1": "refused"}
        await manager.stop(GRACE)


@virtual
async def test_the_end_lets_a_turn_finish_and_its_answer_go_out() -> None:
    channel = Driven()
    async with managed(channel, model=Played({"text": "done", "delay": 20})) as (manager, bench):
        await bench.post("hello")
        waits = await bench.post("behind it")
        await asyncio.sleep(1)
        await manager.stop(GRACE)
        assert channel.texts == ["done"]
        assert channel.closed
        assert not waits.done()
        assert [one.inbound.text for one in await bench.inbox.open_inbounds()] == ["behind it"]


@virtual
async def test_a_turn_past_the_grace_is_cut_off_and_nothing_goes_on_showing_it() -> None:
    store, channel = InMemoryStore(), Driven()
    loop = asyncio.get_running_loop()
    async with managed(channel, store=store, model=Played({"text": "never", "delay": 10_000})) as (manager, bench):
        await bench.post("hello")
        await asyncio.sleep(1)
        began = loop.time()
        await manager.stop(GRACE)
        assert loop.time() - began < 45
        shown = len(channel.shown)
        await asyncio.sleep(20_000)  # the model would have answered
        assert (len(channel.shown), channel.texts) == (shown, [])
        assert len(await store.forks()) == 1
    async with running(store, ScriptedModel(), Options(rules=rules()), life="second") as bench:
        assert [one.text for one in await bench.resume()] == ["You said: hello"]


@virtual
async def test_an_answer_that_cannot_go_out_does_not_hold_the_end() -> None:
    channel = Driven()
    channel.hang = {"send"}
    async with managed(channel) as (manager, bench):
        await bench.gate.receive(bench.inbound("hello"))
        await bench.app.wait_idle()
        async with asyncio.timeout(60):
            await manager.stop(GRACE)
        assert len(await bench.outbox.pending()) == 1


@pytest.mark.parametrize("error", [OSError("x"), RuntimeError("a defect"), TimeoutError()])
def test_one_that_does_not_close_keeps_no_other_open(error: Exception) -> None:
    @virtual
    async def test() -> None:
        good = Driven()
        async with managed(Driven(close=error), good) as (manager, _):
            await manager.stop(GRACE)
            assert good.closed

    test()


@virtual
async def test_one_that_does_not_stop_receiving_does_not_hold_the_end() -> None:
    async def stubborn(_: Receive) -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    let_go, good = asyncio.Event(), Driven()
    async with managed(good, Driven(stubborn)) as (manager, _):
        await asyncio.sleep(1)
        async with asyncio.timeout(100):
            await manager.stop(GRACE)
        assert good.closed
        let_go.set()


@virtual
async def test_a_channel_that_is_taken_away_ends_receiving_before_it_closes() -> None:
    closed_at_the_end: list[bool] = []

    async def slow_end(_: Receive) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(5)
            closed_at_the_end.append(channel.closed)

    channel = Driven(slow_end)
    async with managed(Driven(), channel) as (manager, _):
        await asyncio.sleep(1)
        await manager.stop_channel("1", 10)
        assert (closed_at_the_end, channel.closed, manager.states) == ([False], True, {"0": "running", "1": "ended"})
        await manager.stop(GRACE)


@virtual
async def test_channels_that_are_replaced_are_not_over_until_that_is_done() -> None:
    async with managed(Driven(raising(ChannelRefused("token")))) as (manager, _):
        waiting = asyncio.create_task(manager.wait_until_refused(excluding=""))
        with manager.replacing():
            await asyncio.sleep(10)
            assert not waiting.done()
        async with asyncio.timeout(60):
            await waiting
        await manager.stop(GRACE)
