"""The checks of features: bubbot's own, and those of installed packages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

from msgspec import structs

from bubbot.app.diagnostics import PACKAGE_TIMEOUT_SECONDS, Diagnostics, list_checks
from bubbot.app.stores import open_home_tape
from bubbot.home import Home
from bubbot.ops.doctor.finding import run_check
from bubbot.ports.checks import Check, Finding, HomeReader
from bubbot.settings.loader import Settings
from bubbot.settings.sections import DEFAULT_STORE
from bubbot.tape.handle import Clock


def check_features(
    home: Home, config: Path, settings: Settings | None, now: Clock, *, of_tapes: bool = False
) -> Iterator[Finding]:
    """Run the checks of features that read tapes, or those that read none. A failed check names its package.

    Args:
        settings: the settings; None if they cannot be loaded.
        of_tapes: run those that read tapes, which the home has then.
    """
    store = settings.store if settings else DEFAULT_STORE
    zone = ZoneInfo(settings.bot.timezone if settings else "UTC")
    reader = HomeReader(home.path, config, None, now, zone, partial(open_home_tape, store, home), has_tapes=of_tapes)
    for diagnostics in list_checks():
        for check in diagnostics.checks:
            if check.reads_tapes != of_tapes or (check.needs_settings and settings is None):
                continue
            run = partial(_run, check, reader, diagnostics, settings)
            if diagnostics.package:
                name = f"{check.name} (the feature {diagnostics.name!r} of the package {diagnostics.package})"
                yield from run_check(name, run, diagnostics.package)
            else:
                yield from run_check(check.name, run)


def _run(check: Check, home: HomeReader, diagnostics: Diagnostics, settings: Settings | None) -> list[Finding]:
    reader = structs.replace(home, settings=diagnostics.pick(settings) if settings else None)

    async def run() -> list[Finding]:
        async with asyncio.timeout(PACKAGE_TIMEOUT_SECONDS if diagnostics.package else None):
            return list(await check.run(reader))

    findings = asyncio.run(run())
    for finding in findings:
        if not isinstance(finding, Finding):
            raise TypeError(f"it returned {type(finding).__name__}, not a Finding")
    return findings
