"""Tests of the settings see none from outside."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("BUBBOT_") or name == "CREDENTIALS_DIRECTORY":
            monkeypatch.delenv(name)
