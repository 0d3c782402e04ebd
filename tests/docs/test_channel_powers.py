"""The page on channels has every power of the port, and says truly which adapter has it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
from msgspec import structs

from bubbot.ports import channel
from bubbot.ports.channel import ChannelOptions, capabilities
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "concepts" / "channels.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "howto" / "add-a-channel.md").read_text(encoding="utf-8")
RECIPE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
CLASSES = {
    "Telegram": ("channels.telegram.channel", "TelegramWebhookChannel"),
    "Discord": ("channels.discord.channel", "DiscordChannel"),
    "stdin": ("channels.terminal.stdin", "StdinChannel"),
    "terminal": ("channels.terminal.channel", "TerminalChannel"),
    "remote terminal": ("bubbot.server.remote", "RemoteChannel"),
}


def _table() -> dict[str, dict[str, str]]:
    section = PAGE.partition("\n## What a channel may add\n")[2].partition("\n## ")[0]
    head, _, *rows = re.findall(r"^\| (.*) \|$|^(\|---.*)$", section, re.MULTILINE)
    names = head[0].split(" | ")
    cells = [row[0].split(" | ") for row in rows]
    return {one[0].strip("`"): dict(zip(names, one, strict=True)) for one in cells}


def _members(protocol: type) -> set[str]:
    named = {name for name in vars(protocol) if not name.startswith("_")}
    return named | set(getattr(protocol, "__annotations__", {}))


POWERS: Mapping[str, Any] = {
    name: one
    for name, one in vars(capabilities).items()
    if isinstance(one, type) and getattr(one, "_is_protocol", False)
}


def test_every_power_has_a_row() -> None:
    assert set(_table()) == {name for name, one in POWERS.items() if one.__module__ == capabilities.__name__}


@pytest.mark.parametrize("adapter", CLASSES)
def test_the_powers_of_an_adapter_are_those_it_has(adapter: str) -> None:
    module, name = CLASSES[adapter]
    if find_spec(module) is None:
        pytest.skip(f"there is no {module} yet")
    kind = getattr(import_module(module), name)
    has = {power: all(hasattr(kind, one) for one in _members(POWERS[power])) for power in _table()}
    said = {power: row[adapter] != "-" for power, row in _table().items()}
    assert has == said


@pytest.mark.parametrize("text", [PAGE, GUIDE, RECIPE, channel.__doc__], ids=["page", "guide", "recipe", "port"])
def test_what_an_adapter_may_import_is_what_ours_import(text: str) -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "channels").rglob("*.py")]
    imported = {
        name for source in sources for name in re.findall(r"^ *from (bubbot[.\w]*) import", source, re.MULTILINE)
    }
    assert {name for name in imported - {"bubbot.ports.channel"} if f"`{name}`" not in text} == set()


def test_the_options_in_the_guide_exist() -> None:
    assert set(re.findall(r"`(?:await )?options\.(\w+)", GUIDE)) <= {one.name for one in structs.fields(ChannelOptions)}
