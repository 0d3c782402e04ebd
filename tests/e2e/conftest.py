"""What the tests of whole processes share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.effect_server import EffectServer, effect_server


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home that is not there yet."""
    return tmp_path / "home"


@pytest.fixture
def service(home: Path) -> Iterator[EffectServer]:
    """What the tools of `approval_daemon` act on; its address is in the home."""
    with effect_server() as found:
        home.mkdir(exist_ok=True)
        (home / "service").write_text(found.address)
        yield found
