"""Memory out of files: our own export by its parts, any other page whole, a nanobot's folder."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbot.errors import ConfigError
from bubbot.features.memory.zone import MemoryZone
from bubbot.tape.service import TapeService
from tests.callers import read_shell
from tests.doubles import SteppingClock
from tests.unit.features.memory.test_views import memory_of, notes

HEADINGS = (
    "# Memory",
    "## Notes",
    "## Long-term memory",
    "### 2026-11-20",
    "### 2026-11-19",
    "\\## Notes",
    "\\\\### 2026-11-20",
    "## Notes ",
    "Nothing is remembered.",
)
lines = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=20) | st.sampled_from(HEADINGS)
words = st.lists(lines, max_size=4).map("\n".join).map(lambda text: text.strip("\n") if text.strip() else "")
days = st.sampled_from(["2026-11-19", "2026-11-20", "2026-11-21"])


def read(path: Path) -> Any:
    """What a shell takes of a file or a folder: the long-term text, the notes by day, and the names it left out."""
    return read_shell("memory import", "default", path=str(path))


def read_page(folder: Path, page: str) -> tuple[str, dict[str, str]]:
    (folder / "page.md").write_text(page, encoding="utf-8", newline="")
    found = read(folder / "page.md")
    return found.long_term, dict(found.notes)


def assert_it_comes_back(folder: Path, long: str, days: Mapping[str, str]) -> None:
    """What is exported is read as it was."""

    async def export() -> str:
        return await (await memory_of(*notes(*sorted(days.items()), long=long))).export()

    page = asyncio.run(export())
    if long or days:
        assert read_page(folder, page) == (long, days)
    else:
        with pytest.raises(ConfigError, match="holds no memory"):
            read_page(folder, page)


@given(words, st.dictionaries(days, words.filter(bool), max_size=3))
def test_what_was_exported_is_read(tmp_path_factory: pytest.TempPathFactory, long: str, notes: dict[str, str]) -> None:
    assert_it_comes_back(tmp_path_factory.getbasetemp(), long, notes)


@pytest.mark.parametrize(
    ("long", "days"),
    [
        ("# About me\n\n## Notes\n\n### 2026-01-01\n\nMarried.", {}),  # it came back as a note, which retention deletes
        (
            "# About\n\n## Notes\n\nnone\n\n## Long-term memory\n\nmore",
            {"2026-11-20": "### 2026-11-25\nsoon\n\n## Notes", "2026-11-21": "### Plans\nx"},
        ),
        ("", {}),
    ],
)
def test_headings_within_the_texts_stay_in_them(tmp_path: Path, long: str, days: dict[str, str]) -> None:
    assert_it_comes_back(tmp_path, long, days)


def test_an_export_of_the_version_before_is_read(tmp_path: Path) -> None:
    page = "# Memory, version 3\n\n## Long-term memory\n\nLikes tea.\n\n## Notes\n\n### 2026-11-21\n\nSun.\n"
    assert read_page(tmp_path, page) == ("Likes tea.", {"2026-11-21": "Sun."})


def test_any_other_page_is_long_term_memory_as_it_is(tmp_path: Path) -> None:
    for page in ("Just text.", "# Memory of Ada\n\n## Notes\n\n### 2026-11-21\n\nx", "# Memory\n\nMy own.\n\n- a"):
        assert read_page(tmp_path, f"{page}\n") == (page, {})


def test_a_folder_takes_notes_by_their_names_and_lists_the_rest(tmp_path: Path) -> None:
    for name, text in (
        ("2026-11-21.md", "\r\nSun.\r\n"),
        ("2026-13-01.md", "no day"),
        ("20261121.md", "x"),
        ("a.txt", ""),
    ):
        (tmp_path / name).write_bytes(text.encode())
    (tmp_path / "2026-11-20.md").mkdir()
    found = read(tmp_path)
    assert found.notes == (("2026-11-21", "Sun."),)
    assert found.left_out == ("2026-11-20.md", "2026-13-01.md", "20261121.md", "a.txt")


def test_the_folder_of_a_bot_is_read_by_its_memory_unless_it_has_one_itself(tmp_path: Path) -> None:
    inner = tmp_path / "memory"
    inner.mkdir()
    (inner / "MEMORY.md").write_text("Inner.\n")
    assert read(tmp_path).long_term == "Inner."
    (tmp_path / "MEMORY.md").write_text("\nOuter.\n")
    found = read(tmp_path)
    assert (found.long_term, found.left_out) == ("Outer.", ("memory",))
    assert read(inner / "MEMORY.md").long_term == "Inner."


def test_a_file_that_is_no_text_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "MEMORY.md").write_bytes(b"ok\n\xff")
    with pytest.raises(ConfigError, match=r"MEMORY\.md, line 2 is not UTF-8"):
        read(tmp_path)


async def test_what_is_adopted_is_one_new_version_and_the_old_one_comes_back(tape: TapeService) -> None:
    zone = MemoryZone(tape, now=SteppingClock(), zone=UTC)
    await zone.save_long_term("Old.")
    await zone.append_daily("Note.", "2026-11-19")
    before, head = await zone.read(), await tape.head()
    new = await (await memory_of(*notes(("2026-11-20", "Rain."), ("2026-11-18", " "), long="\nNew.\n"))).read()
    await zone.import_snapshot(new)
    after = await zone.read()
    assert (after.version, after.long_term) == (before.version + 1, "New.")
    assert [(note.date, note.content) for note in after.dailies] == [("2026-11-20", "Rain.")]
    await zone.import_snapshot(after)
    assert await tape.head() == head + 4
    await zone.restore(before.version)
    assert (await zone.read()).has_same_content(before)
