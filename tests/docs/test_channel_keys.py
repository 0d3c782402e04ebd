"""The reference has every key of every adapter, with its type, default and meaning, and no other."""

from __future__ import annotations

import json
import re

import pytest

from channels.discord.settings import DISCORD_KEYS
from channels.platform.keys import SettingKey
from channels.telegram.settings import TELEGRAM_KEYS
from tests.docs.pages import ROOT

REFERENCE = (ROOT / "docs" / "reference" / "config.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("adapter", "keys"),
    [("discord", DISCORD_KEYS), ("telegram", TELEGRAM_KEYS)],
)
def test_the_keys_of_an_adapter_are_in_the_reference(adapter: str, keys: tuple[SettingKey, ...]) -> None:
    _, heading, section = REFERENCE.partition(f"\n## [channels.{adapter}]\n")
    assert heading
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*) \|$", section.partition("\n## ")[0], re.MULTILINE)
    shown = [
        (key.name, key.type, "not set" if key.default is None else f"`{json.dumps(key.default)}`", key.description)
        for key in keys
    ]
    assert rows == shown
