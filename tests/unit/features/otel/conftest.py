"""Nobody waits for further turns here."""

from __future__ import annotations

import pytest

from bubbot.features.otel import exporter


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "GATHER_SECONDS", 0.0)
