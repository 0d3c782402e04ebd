"""Planted faults: which findings of the doctor a test brings about, and that it really does."""

from __future__ import annotations

import functools
import inspect
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from bubbot.doctor.finding import Finding

Test = TypeVar("Test", bound=Callable[..., Any])
_seen: ContextVar[set[str] | None] = ContextVar("seen", default=None)
_mended: ContextVar[set[str] | None] = ContextVar("mended", default=None)


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


def mend(check: Callable[[], Iterable[Finding]], wanted: str, folder: Path, *, data: str = "", text: str = "") -> None:
    """Run the printed command of a finding as a person would, and see that the finding is gone.

    `data` is what is typed, and `text` what the editor leaves in the file. `sudo` is there and does nothing more.
    """
    finding = found(check())[wanted]
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    (folder / "text").write_text(text)
    scripts = {"sudo": 'exec "$@"', "edited": f'cat {shlex.quote(str(folder / "text"))} > "$1"', "systemctl": "exit 0"}
    for name, script in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "EDITOR": str(programs / "edited")}
    done = subprocess.run(
        ["sh", "-c", finding.fix],
        input=data,
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{finding.fix}: {done.stdout}{done.stderr}"
    left = [one for one in check() if one.id == wanted]
    assert not left, f"{finding.fix} ran, and still: {left[0].cause}"
    if (ran := _mended.get()) is not None:
        ran.add(wanted)


def mends(*ids: str) -> Callable[[Test], Test]:
    """Says that a test runs the commands of these findings; it fails if `mend` did not see each of them."""

    def wrap(test: Test) -> Test:
        @functools.wraps(test)
        def now(*args: Any, **kwargs: Any) -> None:
            token = _mended.set(set())
            try:
                test(*args, **kwargs)
                missing = set(ids) - (_mended.get() or set())
                assert not missing, f"the test says that it mends {sorted(missing)}, and no command was run"
            finally:
                _mended.reset(token)

        return now  # type: ignore[return-value]

    return wrap


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
