"""The changelog: its form, and that it knows the version."""

from __future__ import annotations

import re
from pathlib import Path

from bubbot import __version__

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
GROUPS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
SECTIONS = re.findall(r"^## (.*)$", TEXT, re.MULTILINE)
RELEASES = SECTIONS[1:]


def _number(section: str) -> tuple[int, ...]:
    found = re.match(r"\[(\d+)\.(\d+)\.(\d+)\]", section)
    assert found, f"{section} is no release"
    return tuple(map(int, found.groups()))


def test_it_has_the_form_of_keep_a_changelog() -> None:
    assert TEXT.startswith("# Changelog\n")
    assert SECTIONS[0] == "[Unreleased]"
    assert [section for section in RELEASES if not re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", section)] == []
    assert sorted(RELEASES, key=_number, reverse=True) == RELEASES


def test_changes_are_grouped_by_what_they_mean_for_people() -> None:
    for section in TEXT.split("\n## ")[1:]:
        groups = re.findall(r"^### (.*)$", section, re.MULTILINE)
        assert groups == [group for group in GROUPS if group in groups], "unknown, doubled or out of order"
        assert [part for part in section.split("\n### ")[1:] if "\n- " not in part] == [], "a group without an item"


def test_the_newest_release_is_the_version_of_the_package() -> None:
    if RELEASES:
        assert RELEASES[0].startswith(f"[{__version__}]")


def test_the_version_is_written_in_two_places_that_agree() -> None:
    assert f'\nversion = "{__version__}"\n' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
