"""What the tests of settings share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_settings_from_outside(no_settings_from_outside: None) -> None:
    """Every test here reads settings."""
