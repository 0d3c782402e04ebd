"""A check that fails is a finding like another, and the checks after it are made all the same."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator

from bubbot.ops.doctor.finding import Finding, quoted


def guarded(name: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """What the check finds; its failure is the last thing it found."""
    try:
        yield from check()
    except Exception as error:  # noqa: BLE001 - whatever it is, the rest is looked at
        yield failed(name, error)


def failed(name: str, error: BaseException) -> Finding:
    """The finding for a check that could not be made. The text of an error may be anything, so that it is cut."""
    said = " ".join(str(error).split())[:300]
    cause = (
        f"The check of {name} failed, so that nothing is known of it: {type(error).__name__}: {said or 'no reason'}."
    )
    fix = f"{quoted(sys.executable)} -m pip install --upgrade bubbot"
    if isinstance(error, PermissionError):
        fix = "sudo bubbot doctor"
    return Finding("doctor.failed", "problem", cause, fix)
