"""The page about upgrades: its new names are there, its old ones are gone, and its settings are those that are renamed."""

from __future__ import annotations

import re

import pytest

from bubbot.settings.renamed import RENAMED_KEYS
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "howto" / "upgrade.md").read_text(encoding="utf-8")
SOURCE = "\n".join(
    file.read_text(encoding="utf-8") for folder in ("bubbot", "channels") for file in (ROOT / folder).rglob("*.py")
)


def rows(heading: str) -> list[tuple[str, ...]]:
    """The rows of the tables with this head."""
    table = PAGE.partition(f"\n| {heading} |")[2].partition("\n\n")[0].split("\n")[2:]
    assert table
    return [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in table if row]


def test_the_renamed_settings_are_on_the_page() -> None:
    found = {(old.strip("`"), new.strip("`")) for _, old, new in rows("section | old | new")}
    assert found == {pair for keys in RENAMED_KEYS.values() for pair in keys.items()}


@pytest.mark.parametrize(("old", "new"), rows("old module | new module"))
def test_a_new_module_is_there_and_the_old_one_is_gone(old: str, new: str) -> None:
    def exists(name: str) -> bool:
        path = ROOT.joinpath(*name.strip("`").split("."))
        return path.with_suffix(".py").exists() or (path / "__init__.py").exists()

    assert exists(new)
    assert not exists(old) or f"{new.strip('`')}".startswith(f"{old.strip('`')}.")  # a package with that module in it


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("old", "new"), rows("old name | new name"))
def test_a_new_name_is_a_class_and_the_old_one_is_gone(old: str, new: str) -> None:
    assert re.search(rf"^class {new.strip('`')}\b", SOURCE, re.MULTILINE)
    if " of " not in old:  # else another class keeps the name
        assert not re.search(rf"^class {old.strip('`')}\b", SOURCE, re.MULTILINE)


@pytest.mark.parametrize(("old", "new"), rows("old member | new member"))
def test_new_members_are_there(old: str, new: str) -> None:
    names = [name for cell in re.findall(r"`([^`]+)`", new) for name in re.findall(r"\w+", cell)]
    assert old
    assert [name for name in names if not re.search(rf"\b{name}\b", SOURCE)] == []
