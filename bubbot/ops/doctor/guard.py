"""Failing checks: a failure becomes a finding, and the next checks run anyway."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator

from bubbot.ops.doctor.finding import Finding, shell_quote, sudo_bubbot


def run_check(name: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Run a check and yield its findings; if it fails, the last one is the failure."""
    try:
        yield from check()
    except Exception as error:  # noqa: BLE001 - the other checks run anyway
        yield failure_finding(name, error)


def failure_finding(name: str, error: BaseException) -> Finding:
    """Make the finding for a failed check; the error's text may be long, so cut it."""
    reason = " ".join(str(error).split())[:300]
    cause = (
        f"The check of {name} failed, so that nothing is known of it: {type(error).__name__}: {reason or 'no reason'}."
    )
    fix = f"{shell_quote(sys.executable)} -m pip install --upgrade bubbot"
    if isinstance(error, PermissionError):
        fix = sudo_bubbot("doctor")
    return Finding("doctor.failed", "problem", cause, fix)
