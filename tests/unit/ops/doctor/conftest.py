"""What the tests of the doctor share."""

from __future__ import annotations

import pytest


@pytest.fixture
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the checks of plugins, which have tests of their own and take the most time by far."""
    monkeypatch.setattr("bubbot.ops.doctor.checkup.check_plugins", lambda _: ())
