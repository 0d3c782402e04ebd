"""The eight libraries that bubbot is built on: each is a dependency, and does its work in the product."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
USES = {
    "python-telegram-bot": ("telegram", "channels/telegram"),
    "discord.py": ("discord", "channels/discord"),
    "litellm": ("litellm", "bubbot/models/litellm"),
    "apscheduler": ("apscheduler", "bubbot/features/schedule"),
    "aiosqlite": ("aiosqlite", "bubbot/stores/sqlite"),
    "rapidfuzz": ("rapidfuzz", "bubbot"),
    "pydantic-settings": ("pydantic_settings", "bubbot/settings"),
    "pytest-asyncio": ("pytest_asyncio", "tests"),
}
"""Each library: the name of its package, and where it does its work."""


@pytest.mark.parametrize("library", USES)
def test_it_is_a_dependency_and_does_its_work(library: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [*project["dependencies"], *(each for extra in project["optional-dependencies"].values() for each in extra)]
    assert library in {re.split(r"[\[<>=~!; ]", each.lower(), maxsplit=1)[0] for each in named}
    package, folder = USES[library]
    pattern = re.compile(rf"^\s*(from|import) {package}\b", re.MULTILINE)
    assert any(pattern.search(file.read_text(encoding="utf-8")) for file in (ROOT / folder).rglob("*.py"))
