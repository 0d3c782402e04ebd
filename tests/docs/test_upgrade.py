"""The page about upgrades: its new names are there, its old ones are gone, and its settings are those that are renamed."""

from __future__ import annotations

import re

import pytest

from bubbot.app.own_features import settings_schema
from bubbot.settings.renamed import CHANNEL_KEYS
from tests.docs.pages import ROOT, read_source

PAGE = (ROOT / "docs" / "howto" / "upgrade.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[tuple[str, ...]]:
    """The rows of the tables with this head."""
    table = PAGE.partition(f"\n| {heading} |")[2].partition("\n\n")[0].split("\n")[2:]
    assert table
    return [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in table if row]


def test_the_renamed_settings_are_on_the_page() -> None:
    found = {(old.strip("`"), new.strip("`")) for _, old, new in rows("section | old | new")}
    assert found == {pair for keys in (*settings_schema().renamed_keys.values(), CHANNEL_KEYS) for pair in keys.items()}


@pytest.mark.parametrize(("old", "new"), rows("old module | new module"))
def test_a_new_module_is_there_and_the_old_one_is_gone(old: str, new: str) -> None:
    def exists(name: str) -> bool:
        path = ROOT.joinpath(*name.strip("`").split("."))
        return path.with_suffix(".py").exists() or (path / "__init__.py").exists()

    assert exists(new)
    assert not exists(old) or f"{new.strip('`')}".startswith(f"{old.strip('`')}.")  # a package with that module in it


def test_a_new_name_is_a_class_and_the_old_one_is_gone() -> None:
    classes = set(re.findall(r"^class (\w+)", read_source(), re.MULTILINE))
    names = [(old.strip("`"), new.strip("`")) for old, new in rows("old name | new name")]
    assert [new for _, new in names if new not in classes] == []
    assert [old for old, _ in names if old in classes and " of " not in old] == []  # else another class keeps the name


def test_new_members_are_there() -> None:
    members = rows("old member | new member")
    cells = [cell for _, new in members for cell in re.findall(r"`([^`]+)`", new)]
    words = set(re.findall(r"\w+", read_source()))
    assert all(old for old, _ in members)
    assert [name for cell in cells for name in re.findall(r"\w+", cell) if name not in words] == []
