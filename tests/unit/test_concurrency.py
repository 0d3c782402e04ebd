"""Supervision: work that fails is run again, at a bearable pace, until it is refused or cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from bubbot.concurrency import Backoff, run_uninterrupted, supervise, task_group
from bubbot.errors import ChannelRefused, StoreFull

STEADY = Backoff(lambda: 0.5)


class Work:
    """Ends as it is told, one time after another; what is None returns."""

    def __init__(self, *ends: BaseException | None) -> None:
        self.ends = list(ends)
        self.waits: list[float] = []

    async def __call__(self) -> None:
        end = self.ends.pop(0)
        if end is not None:
            raise end

    async def sleep(self, seconds: float) -> None:
        """Notes the wait, and does not wait."""
        self.waits.append(seconds)

    async def run(self, pace: Backoff = STEADY) -> None:
        """Under supervision."""
        async with asyncio.timeout(60):
            await supervise("the work", self, pace, fatal=(ChannelRefused,), sleep=self.sleep)


async def test_work_that_returns_is_not_run_again() -> None:
    work = Work(None, RuntimeError())
    await work.run()
    assert (len(work.ends), work.waits) == (1, [])


async def test_each_failure_waits_twice_as_long_up_to_a_limit() -> None:
    work = Work(*[OSError("down")] * 9, None)
    await work.run()
    assert work.waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


@pytest.mark.parametrize(("chance", "factor"), [(0.0, 0.75), (1.0, 1.25)])
async def test_waits_are_spread(chance: float, factor: float) -> None:
    work = Work(OSError(), None)
    await work.run(Backoff(lambda: chance))
    assert work.waits == [factor]


@pytest.mark.parametrize(("chance", "wait"), [(0.0, 4.0), (1.0, 8.0)])
def test_the_spread_can_be_chosen(chance: float, wait: float) -> None:
    assert Backoff(lambda: chance, 1.0, 10.0, spread=(0.5, 1.0)).delay_seconds(4) == wait


def test_many_failures_are_no_overflow() -> None:
    assert STEADY.delay_seconds(100_000) == 60


async def test_work_that_was_well_for_long_begins_at_the_shortest_wait_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bubbot.concurrency.HEALTHY_AFTER_SECONDS", -1.0)
    work = Work(OSError(), OSError(), OSError(), None)
    await work.run()
    assert work.waits == [1, 1, 1]


@pytest.mark.parametrize(
    "error",
    [
        ChannelRefused("token"),
        ExceptionGroup("many", [OSError(), ChannelRefused("token")]),
        ExceptionGroup("outer", [ExceptionGroup("inner", [ChannelRefused("token")])]),
    ],
)
async def test_a_refusal_ends_it_also_out_of_a_group(error: Exception) -> None:
    work = Work(OSError(), error, None)
    with pytest.raises(ChannelRefused, match="token"):
        await work.run()
    assert len(work.waits) == 1


@pytest.mark.parametrize("error", [ExceptionGroup("many", [OSError()]), asyncio.CancelledError(), KeyError("x")])
async def test_whatever_else_it_raises_it_is_run_again(error: BaseException) -> None:
    work = Work(error, None)
    await work.run()
    assert work.waits == [1]


@pytest.mark.parametrize("where", ["work", "wait"])
async def test_being_cancelled_ends_it(where: str) -> None:
    entered = asyncio.Event()

    async def stand() -> None:
        entered.set()
        await asyncio.Event().wait()

    async def fail() -> None:
        raise OSError("down")

    async def sleep(_: float) -> None:
        await stand()

    work: Callable[[], Awaitable[None]] = stand if where == "work" else fail
    task = asyncio.create_task(supervise("the work", work, STEADY, sleep=sleep))
    async with asyncio.timeout(60):
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_each_failure_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await Work(OSError("down"), ValueError("odd"), None).run()
    assert [record.getMessage() for record in caplog.records] == [
        "the work failed, retrying in 1 seconds: OSError: down",
        "the work failed, retrying in 2 seconds: ValueError: odd",
    ]


@pytest.mark.parametrize("error", [None, OSError("down")])
async def test_work_that_must_not_be_half_done_ends_before_the_cancellation_goes_on(error: Exception | None) -> None:
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), []

    async def work() -> str:
        begun.set()
        await may_end.wait()
        ended.append("work")
        if error is not None:
            raise error
        return "done"

    async def call() -> None:
        try:
            await run_uninterrupted(work())
        finally:
            ended.append("caller")

    caller = asyncio.create_task(call())
    await begun.wait()
    caller.cancel()
    await asyncio.sleep(0)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended == ["work", "caller"]
    if error is None:
        assert await run_uninterrupted(work()) == "done"


FULL = StoreFull("no room")


@pytest.mark.parametrize(
    ("errors", "raised"),
    [
        ([OSError("down")], OSError),
        ([OSError("down"), KeyError("x")], OSError),
        ([KeyError("x"), FULL, ValueError("y")], StoreFull),
        ([ExceptionGroup("inner", [KeyError("x")])], KeyError),
        ([KeyError("x"), ExceptionGroup("inner", [OSError("down"), FULL])], StoreFull),
    ],
)
async def test_a_group_of_tasks_raises_the_error_that_a_person_can_read(
    errors: list[Exception], raised: type[Exception]
) -> None:
    async def fail(error: Exception) -> None:
        raise error

    async def fail_together() -> None:
        async with task_group() as group:
            for error in errors:
                group.create_task(fail(error))

    with pytest.raises(raised) as caught:
        await fail_together()
    assert isinstance(caught.value.__cause__, ExceptionGroup)
