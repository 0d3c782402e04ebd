"""Backoff, supervised work, and work that cancellation does not interrupt."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from msgspec import Struct

from bubbot.errors import BubbotError

log = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")

HEALTHY_AFTER_SECONDS = 300.0
"""Seconds of running after which a failure counts as the first one again, with the shortest wait."""


class Backoff(Struct, frozen=True):
    """The waits between tries, which double with each failure.

    Attributes:
        jitter: random numbers from 0 to 1, so that many tasks do not try again at the same instant.
        first_seconds: the wait after the first failure.
        max_seconds: the limit of the doubling; the jitter comes on top.
        spread: factors of a wait at the random numbers 0 and 1.
    """

    jitter: Callable[[], float]
    first_seconds: float = 1.0
    max_seconds: float = 60.0
    spread: tuple[float, float] = (0.75, 1.25)

    def delay_seconds(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row."""
        doublings = min(max(failures, 1) - 1, 30)  # the power must not overflow
        lowest, highest = self.spread
        return min(self.max_seconds, self.first_seconds * 2.0**doublings) * (
            lowest + (highest - lowest) * self.jitter()
        )


async def supervise(
    name: str,
    work: Callable[[], Awaitable[None]],
    backoff: Backoff,
    *,
    fatal: tuple[type[Exception], ...] = (),
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Run `work` until it returns, and restart it when it fails.

    Log each failure once, with the seconds until the next try. A `CancelledError` without a cancellation counts as a failure.

    Args:
        work: called again for each try.
        backoff: the waits between tries.
        fatal: errors to raise instead of restarting, also from within a group.
    """
    loop, failures = asyncio.get_running_loop(), 0
    while True:
        began = loop.time()
        try:
            await work()
            return
        except (Exception, asyncio.CancelledError) as error:  # any failure: the other tasks go on, this one is retried
            if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
                raise
            if (fatal_error := _find_fatal(error, fatal)) is not None:
                raise fatal_error from error.__cause__
            failures = 1 if loop.time() - began > HEALTHY_AFTER_SECONDS else failures + 1
            wait = backoff.delay_seconds(failures)
            log.warning(
                "%s failed, retrying in %.0f seconds: %s: %s",
                name,
                wait,
                type(error).__name__,
                error,
                extra={"action": "supervise.failed", "work": name},
            )
            log.debug("traceback", exc_info=True, extra={"action": "supervise.failed"})
        await sleep(wait)


async def run_uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to completion even if the caller is cancelled; then raise the cancellation.

    Use it for work that must not be half done.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise


def uninterrupted(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Make an async function run to completion even if its caller is cancelled; see `run_uninterrupted`."""

    @wraps(method)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return await run_uninterrupted(method(*args, **kwargs))

    return run


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """Open a task group that raises the first error itself instead of an `ExceptionGroup`."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        raise _root_error(errors) from errors


def _root_error(error: BaseException) -> BaseException:
    """Return the first `BubbotError` of a group, else its first error."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [_root_error(inner) for inner in error.exceptions]
    return next((leaf for leaf in leaves if isinstance(leaf, BubbotError)), leaves[0])


def is_being_cancelled() -> bool:
    """Return true if the running task itself is cancelled: a `CancelledError` may also come from an awaited one."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _find_fatal(error: BaseException, fatal: tuple[type[Exception], ...]) -> Exception | None:
    """Return the error, or the first one within its group, that is fatal."""
    if isinstance(error, BaseExceptionGroup):
        return next(
            (fatal_error for inner in error.exceptions if (fatal_error := _find_fatal(inner, fatal)) is not None), None
        )
    return error if isinstance(error, fatal) else None
