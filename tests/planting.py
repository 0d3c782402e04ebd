"""Planted faults: which findings of the doctor a test brings about, and that it really does."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, TypeVar

from bubbot.doctor.finding import Finding

Test = TypeVar("Test", bound=Callable[..., Any])
_seen: ContextVar[set[str] | None] = ContextVar("seen", default=None)


def found(findings: Iterable[Finding]) -> dict[str, Finding]:
    """The findings by id. Each has a cause, and one command where, and only where, something is wrong."""
    made = list(findings)
    for one in made:
        assert (one.fix == "") == (one.level == "ok"), f"{one.id}: what is wrong has a command, and nothing else has"
        assert one.cause.strip()
        assert "\n" not in one.fix + one.cause
    if (seen := _seen.get()) is not None:
        seen.update(one.id for one in made)
    return {one.id: one for one in made}


def level(findings: Iterable[Finding], wanted: str) -> str:
    """The level of one finding, which is among them."""
    return found(findings)[wanted].level


def plants(*ids: str) -> Callable[[Test], Test]:
    """Says that a test brings about these findings; it fails where `found` did not see each of them."""

    def wrap(test: Test) -> Test:
        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def later(*args: Any, **kwargs: Any) -> None:
                token = _seen.set(set())
                try:
                    await test(*args, **kwargs)
                    _check(ids)
                finally:
                    _seen.reset(token)

            return later  # type: ignore[return-value]

        @functools.wraps(test)
        def now(*args: Any, **kwargs: Any) -> None:
            token = _seen.set(set())
            try:
                test(*args, **kwargs)
                _check(ids)
            finally:
                _seen.reset(token)

        return now  # type: ignore[return-value]

    return wrap


def _check(ids: tuple[str, ...]) -> None:
    missing = set(ids) - (_seen.get() or set())
    assert not missing, f"the test says that it plants {sorted(missing)}, and nobody found that"
