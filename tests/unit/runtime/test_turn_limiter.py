"""Places for turns: in order, and who waits for long is told so once."""

from __future__ import annotations

import asyncio

import pytest

from bubbot.errors import BubbotError
from bubbot.runtime.turn_limiter import TurnLimiter
from tests.virtual import virtual


async def unheard(_: int) -> None:
    """Nobody listens."""


class Asking:
    """Somebody who wants a place; `told` is what they were told."""

    def __init__(self, places: TurnLimiter, order: list[str], name: str, seconds: float = 1.0) -> None:
        self.told: list[int] = []
        self._places, self._order, self._name, self._seconds = places, order, name, seconds
        self.task = asyncio.create_task(self._ask())

    async def _ask(self) -> None:
        async with self._places.acquire(self._tell):
            self._order.append(self._name)
            await asyncio.sleep(self._seconds)

    async def _tell(self, before: int) -> None:
        self.told.append(before)


@virtual
async def test_whoever_came_first_is_served_first() -> None:
    places, order = TurnLimiter(2), list[str]()
    asking = [Asking(places, order, str(number)) for number in range(9)]
    await asyncio.gather(*(one.task for one in asking))
    assert order == [str(number) for number in range(9)]
    assert asyncio.get_running_loop().time() == pytest.approx(5)


@virtual
async def test_nobody_who_comes_later_gets_the_place_that_was_handed_over() -> None:
    places, order = TurnLimiter(1), list[str]()
    first, second = Asking(places, order, "first"), Asking(places, order, "second")
    await first.task
    late = Asking(places, order, "late")
    await asyncio.gather(second.task, late.task)
    assert order == ["first", "second", "late"]


@virtual
async def test_who_waits_for_long_is_told_once_how_many_are_before() -> None:
    places, order = TurnLimiter(1, quiet_wait=5), list[str]()
    asking = [Asking(places, order, str(number), 4) for number in range(5)]
    await asyncio.gather(*(one.task for one in asking))
    assert [one.told for one in asking] == [[], [], [0], [1], [2]]


@virtual
async def test_who_leaves_the_line_takes_no_place_with_them() -> None:
    places, order = TurnLimiter(1), list[str]()
    first, gone, last = (Asking(places, order, name) for name in ("first", "gone", "last"))
    await asyncio.sleep(0.5)
    gone.task.cancel()
    await asyncio.wait([gone.task])
    await asyncio.gather(first.task, last.task)
    assert order == ["first", "last"]
    assert places.waiting_turns == 0
    async with asyncio.timeout(1), places.acquire(unheard):
        pass


@virtual
async def test_a_place_that_comes_to_somebody_who_leaves_is_passed_on() -> None:
    places, order = TurnLimiter(1), list[str]()
    first, gone, last = (Asking(places, order, name) for name in ("first", "gone", "last"))
    await first.task  # the place is on its way to the second
    gone.task.cancel()
    await asyncio.gather(gone.task, return_exceptions=True)
    async with asyncio.timeout(5):
        await last.task
    assert "last" in order


@virtual
async def test_a_chat_that_is_slow_to_take_the_notice_keeps_nobody_waiting() -> None:
    places, order = TurnLimiter(1, quiet_wait=1), list[str]()
    first = Asking(places, order, "first", 2)
    given_up = asyncio.Event()

    async def slow(_: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()

    await asyncio.sleep(0)
    async with asyncio.timeout(3), places.acquire(slow):
        assert given_up.is_set()
    await first.task


@pytest.mark.parametrize(("error", "is_defect"), [(BubbotError("no"), False), (ZeroDivisionError("no"), True)])
@virtual
async def test_a_notice_that_fails_is_logged_and_the_turn_gets_its_place(
    caplog: pytest.LogCaptureFixture, error: Exception, is_defect: bool
) -> None:
    places, order = TurnLimiter(1, quiet_wait=1), list[str]()
    first = Asking(places, order, "first", 2)

    async def broken(_: int) -> None:
        raise error

    await asyncio.sleep(0)
    async with asyncio.timeout(3), places.acquire(broken):
        pass
    assert f"notice not delivered: {type(error).__name__}: no" in caplog.text
    assert ("Traceback" in caplog.text) is is_defect
    await first.task
    async with asyncio.timeout(1), places.acquire(unheard):
        pass
