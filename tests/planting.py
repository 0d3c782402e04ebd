"""Planted faults: which findings of the doctor a test brings about, and that it really does."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from bubbot.app.feature_settings import feature_settings
from bubbot.app.own_features import find_part
from bubbot.app.settings import load
from bubbot.home import Home
from bubbot.ops.doctor.checkup import run_checks
from bubbot.ports.checks import Check, Finding, HomeReader
from bubbot.stores.sqlite.store import SqliteStore, open_store
from bubbot.tape.service import TapeService
from tests.doubles import START, CountingSalt
from tests.e2e import forked

Test = TypeVar("Test", bound=Callable[..., Any])
_LOOK_SECONDS = 0.2
_UNREAD: Any = None
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


def examine(home: Home, *areas: str, now: datetime = START, deep: bool = False, online: bool = False) -> list[Finding]:
    """Run the doctor; return its findings of these areas, such as `home.` or `disk.local`, or all if none is named."""
    findings = run_checks(home, None, now=now, deep=deep, online=online).findings
    return [one for one in findings if one.id.startswith(areas or "")]


def table(**values: object) -> str:
    """Return the lines of a table of the configuration: what is written so as JSON is TOML, too."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def look(feature: str, home: Home) -> list[Finding]:
    """What the checks of a feature find that read settings and no tape."""
    section = feature_settings(feature, load(home=home.path))
    return asyncio.run(_run_checks(feature, HomeReader(home.path, home.config, section, _UNREAD, _UNREAD, _UNREAD)))


async def look_at_tape(feature: str, tape: TapeService, settings: Any = None) -> list[Finding]:
    """What the checks of a feature find that read tapes, of which this is the only one."""
    utc = ZoneInfo("UTC")
    reader = HomeReader(Path(), Path("config.toml"), settings, _UNREAD, utc, lambda _: nullcontext(tape))
    return await _run_checks(feature, reader, of_tapes=True)


async def _run_checks(feature: str, reader: HomeReader, *, of_tapes: bool = False) -> list[Finding]:
    checks: Sequence[Check] = find_part(feature, "checks", "CHECKS")
    return [finding for check in checks if check.reads_tapes is of_tapes for finding in await check.run(reader)]


def level(findings: Iterable[Finding], wanted: str) -> str:
    """The level of one finding, which is among them."""
    return found(findings)[wanted].level


def write(home: Home, work: Callable[[SqliteStore], Awaitable[None]]) -> None:
    """Let somebody write to the home, and close it."""

    async def inside() -> None:
        store = await open_store(home.database, salt=CountingSalt(), now=lambda: START)
        await work(store)
        await store.aclose()

    asyncio.run(inside())


def mend(
    check: Callable[[], Iterable[Finding]],
    wanted: str,
    folder: Path,
    *,
    data: str = "",
    text: str = "",
    env: Mapping[str, str] | None = None,
) -> None:
    """Run the printed command of a finding as a person would, and see that the finding is gone.

    `data` is what is typed, and `text` what the editor leaves in the file. `sudo` is there and does nothing more.
    """
    fix = found(check())[wanted].fix
    _run(fix, folder, data=data, text=text, env=env)
    _gone(check, wanted, fix)


def mend_running(check: Callable[[], Iterable[Finding]], wanted: str, folder: Path, *, seconds: float = 60) -> None:
    """Run the printed command, which goes on until it is stopped, as long as the finding is there."""
    fix = found(check())[wanted].fix
    with (
        (folder / "printed").open("wb") as printed,
        subprocess.Popen(
            ["sh", "-c", fix],
            env=_environment(folder, forks=False),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            start_new_session=True,
        ) as process,
    ):
        try:
            looks = int(seconds / _LOOK_SECONDS)
            while looks and process.poll() is None and wanted in {one.id for one in check()}:
                looks -= 1
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_SECONDS)
            assert process.poll() is None, f"{fix} ended by itself: {(folder / 'printed').read_text()}"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
    _gone(check, wanted, fix)


def mend_in_shell(
    finding: Finding,
    folder: Path,
    *,
    data: str = "",
    env: Mapping[str, str] | None = None,
    options: str = "--offline",
) -> None:
    """Run a command that holds for the shell it is typed into, and the doctor in the same shell."""
    _doctor_says_no_more(f"{finding.fix} && bubbot doctor {options} --json", finding.id, folder, data=data, env=env)


def mend_by_doctor(finding: Finding, folder: Path, *, env: Mapping[str, str] | None = None) -> None:
    """Run a command that is the doctor itself, called otherwise: it does not say the same again."""
    assert "bubbot doctor" in finding.fix
    _doctor_says_no_more(f"{finding.fix} --offline --json", finding.id, folder, env=env)


def _doctor_says_no_more(
    command: str, wanted: str, folder: Path, *, data: str = "", env: Mapping[str, str] | None = None
) -> None:
    printed = _run(command, folder, data=data, env=env, codes=(0, 1))  # 1: it has other things to say
    left = [one for one in json.loads(printed)["findings"] if one["id"] == wanted]
    assert not left, f"{command} ran, and still: {left[0]['cause']}"
    note_mended(wanted)


def _run(
    command: str,
    folder: Path,
    *,
    data: str = "",
    text: str = "",
    env: Mapping[str, str] | None = None,
    codes: tuple[int, ...] = (0,),
) -> str:
    (folder / "text").write_text(text)
    done = subprocess.run(
        ["sh", "-c", command],
        input=data,
        env=_environment(folder) | dict(env or {}),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in codes, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def _environment(folder: Path, *, forks: bool = True) -> dict[str, str]:
    """The variables of a person who has `bubbot`, an editor and `sudo`. A fork takes no signals to its group."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    scripts = {
        # The path of a `bubbot` is checked where it is printed; what runs is the one of this environment.
        "sudo": 'if [ "$1" = -u ]; then shift 2; fi\ncase "$1" in */bin/bubbot) shift; exec bubbot "$@";; esac\nexec "$@"',
        "edited": f'cat {shlex.quote(str(folder / "text"))} > "$1"',
    }
    for name, script in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    if not (programs / "systemctl").exists():
        (programs / "systemctl").write_text("#!/bin/sh\nexit 0\n")
        (programs / "systemctl").chmod(0o755)
    if forks and forked.ANEW not in os.environ:
        forked.put_command(programs)
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "EDITOR": str(programs / "edited")}


def _gone(check: Callable[[], Iterable[Finding]], wanted: str, fix: str) -> None:
    left = [one for one in check() if one.id == wanted]
    assert not left, f"{fix} ran, and still: {left[0].cause}"
    note_mended(wanted)


def note_mended(wanted: str) -> None:
    """Remember that the command of a finding was run, and that the finding is gone."""
    if (ran := _mended.get()) is not None:
        ran.add(wanted)


def mends(*ids: str) -> Callable[[Test], Test]:
    """Says that a test runs the commands of these findings; it fails if `mend` did not see each of them."""

    def check(ran: set[str]) -> None:
        missing = set(ids) - ran
        assert not missing, f"the test says that it mends {sorted(missing)}, and no command was run"

    def wrap(test: Test) -> Test:
        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def later(*args: Any, **kwargs: Any) -> None:
                with _collected() as ran:
                    await test(*args, **kwargs)
                    check(ran)

            return later  # type: ignore[return-value]

        @functools.wraps(test)
        def now(*args: Any, **kwargs: Any) -> None:
            with _collected() as ran:
                test(*args, **kwargs)
                check(ran)

        return now  # type: ignore[return-value]

    return wrap


@contextmanager
def _collected() -> Iterator[set[str]]:
    ran: set[str] = set()
    token = _mended.set(ran)
    try:
        yield ran
    finally:
        _mended.reset(token)


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
