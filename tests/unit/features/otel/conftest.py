"""Nobody waits for further turns here."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bubbot.features.otel.exporter.GATHER_SECONDS", 0.0)
