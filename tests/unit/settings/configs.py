"""What the tests of the settings share: a configuration is written, and what is said where it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubbot.errors import ConfigError
from bubbot.settings.loader import load

CANARY = "sk-canary-7f3a91"


def written(home: Path, text: str | bytes) -> Path:
    path = home / "config.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refused(home: Path, text: str | bytes = "") -> str:
    if text:
        written(home, text)
    with pytest.raises(ConfigError) as raised:
        load(home=home)
    assert raised.value.__cause__ is None
    return str(raised.value)
