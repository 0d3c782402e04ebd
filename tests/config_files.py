"""A `config.toml` of a test, and what is said of one that is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubbot.app.settings import load
from bubbot.errors import ConfigError

CANARY = "sk-canary-7f3a91"
"""A secret that may appear nowhere."""


def written(home: Path, text: str | bytes) -> Path:
    """Write the file."""
    path = home / "config.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refused(home: Path, text: str | bytes = "") -> str:
    """Return the sentence that refuses the settings; it has no cause that could print a secret."""
    if text:
        written(home, text)
    with pytest.raises(ConfigError) as raised:
        load(home=home)
    assert raised.value.__cause__ is None
    return str(raised.value)
