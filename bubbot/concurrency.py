"""Long-lived work that is run again when it fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from bubbot.errors import BubbotError

log = logging.getLogger(__name__)

Given = TypeVar("Given")

HEALTHY_AFTER = 300.0
"""Seconds after which a failure is taken for a new one, and the waits begin at the shortest again."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before work is run again: `first` seconds, twice as long each time, `longest` at most.

    `chance` (0 to 1) spreads the waits by a quarter, so that many do not come back at the same instant.
    """

    chance: Callable[[], float]
    first: float = 1.0
    longest: float = 60.0

    def wait(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        return float(min(self.longest, self.first * 2 ** min(failures - 1, 30)) * (0.75 + self.chance() / 2))


async def supervise(
    name: str,
    work: Callable[[], Awaitable[None]],
    pace: Backoff,
    *,
    fatal: tuple[type[Exception], ...] = (),
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Runs `work` until it returns, and again whenever it fails; raises what is `fatal`, also out of a group.

    Each failure is logged once, with the seconds until the next try. Work that says it was cancelled when nobody
    cancelled it has failed.
    """
    loop, failures = asyncio.get_running_loop(), 0
    while True:
        began = loop.time()
        try:
            await work()
            return
        except (Exception, asyncio.CancelledError) as error:  # whatever it is, the others go on and this is tried again
            if isinstance(error, asyncio.CancelledError) and _being_cancelled():
                raise
            if (found := _first(error, fatal)) is not None:
                raise found from error.__cause__
            failures = 1 if loop.time() - began > HEALTHY_AFTER else failures + 1
            wait = pace.wait(failures)
            log.warning(
                "%s failed (%s: %s); again in %.0f seconds",
                name,
                type(error).__name__,
                error,
                wait,
                extra={"action": "supervise.failed", "work": name},
            )
            log.debug("the traceback", exc_info=True, extra={"action": "supervise.failed"})
        await sleep(wait)


async def whole(work: Coroutine[Any, Any, Given]) -> Given:
    """Does the work to its end. A caller that is cancelled meanwhile is held until then: for what is worse half done
    than late."""
    doing = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.gather(doing, return_exceptions=True)
        raise


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """The one task group; an error in it comes out as itself and not as a group of one."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as many:
        raise _first_of_ours(many) from many


def _first_of_ours(error: BaseException) -> BaseException:
    """The first error of a group that is one of ours, else the first one."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [_first_of_ours(inner) for inner in error.exceptions]
    return next((leaf for leaf in leaves if isinstance(leaf, BubbotError)), leaves[0])


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _first(error: BaseException, fatal: tuple[type[Exception], ...]) -> Exception | None:
    """The error, or the first within its group, that is fatal."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for one in error.exceptions if (found := _first(one, fatal)) is not None), None)
    return error if isinstance(error, fatal) else None
