"""An event loop whose time passes only while there is nothing to do, and then at once: waits cost nothing, and what
happens first does not depend on the machine."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

Given = ParamSpec("Given")
THREAD_SECONDS = 10.0
"""Seconds after which a thread counts as one that waits for the loop."""
ROUNDS_AT_ONE_TIME = 5_000
"""Rounds of the loop without a wait, after which a test counts as one that never ends."""


class _Selector(selectors.DefaultSelector):
    """Never sleeps while a time is waited for; says how long that would have been."""

    def __init__(self) -> None:
        super().__init__()
        self.slept = 0.0
        self.threads = 0
        """Functions that run in threads of the loop; time stands still meanwhile."""
        self._rounds = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """See `BaseSelector.select`. Raise `RuntimeError` if something is to be done at once for ever."""
        self._rounds = self._rounds + 1 if timeout == 0 else 0
        if self._rounds > ROUNDS_AT_ONE_TIME:
            self._rounds = 0  # the tasks are cancelled in the same loop
            raise RuntimeError("the time of the loop stands still: something is done again and again")
        found = super().select(None if timeout is None else 0)
        if not found and timeout is not None and timeout > 0 and self.threads:
            found = super().select(THREAD_SECONDS)
        if not found and timeout is not None and timeout > 0:
            self.slept += timeout
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module. Threads that the loop does not start, such as those of SQLite, do not hold its time."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Seconds since the loop was made, as its tasks see them."""
        return self._virtual.slept

    def run_in_executor(  # type: ignore[override]  # the types of the function are of no interest here
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run a function in a thread; no time passes until it has ended."""
        future = super().run_in_executor(executor, func, *args)
        self._virtual.threads += 1
        future.add_done_callback(self._ended)
        return future

    def _ended(self, _future: asyncio.Future[Any]) -> None:
        self._virtual.threads -= 1

    async def shutdown_default_executor(self, _seconds: float | None = None) -> None:
        """Waits for threads as long as they take: from Python 3.12 on there is a limit, which would be over at once."""
        await super().shutdown_default_executor()


def virtual(test: Callable[Given, Coroutine[Any, Any, None]]) -> Callable[Given, None]:
    """Runs an asynchronous test on a loop of its own whose waits cost nothing."""

    @wraps(test)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run
