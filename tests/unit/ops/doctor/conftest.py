"""What the tests of the doctor share."""

from __future__ import annotations

from functools import cache

import pytest

from bubbot.ops.doctor.conflicts import check_conflicts
from bubbot.ops.doctor.versions import check_libraries
from bubbot.ports.checks import Finding


@cache
def _library_findings() -> tuple[Finding, ...]:
    return tuple(check_libraries())


@cache
def _conflict_findings() -> tuple[Finding, ...]:
    return tuple(check_conflicts())


@pytest.fixture
def no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the installed packages once: they have tests of their own and take long."""
    monkeypatch.setattr("bubbot.ops.doctor.checkup.check_libraries", _library_findings)
    monkeypatch.setattr("bubbot.ops.doctor.checkup.check_conflicts", _conflict_findings)


@pytest.fixture
def no_plugins(no_packages: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the checks of plugins, too: they take the most time by far."""
    monkeypatch.setattr("bubbot.ops.doctor.checkup.check_plugins", lambda _: ())


@pytest.fixture
def no_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask no programs of systemd, which takes half of the time that is left."""
    for module in ("credentials", "service", "system"):
        monkeypatch.setattr(f"bubbot.ops.doctor.{module}.read_output", lambda _words: None)
