"""Memory out of files: our own export by its parts, any other page whole, a nanobot's folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbot.cli.commands import Shell
from bubbot.errors import ConfigError
from bubbot.features.memory.files import parse_memory, read_memory
from bubbot.features.memory.views import DailyNote, MemorySnapshot, format_memory_page
from bubbot.features.memory.zone import MemoryZone
from bubbot.tape.service import TapeService
from tests.doubles import SteppingClock

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
texts = st.lists(lines, max_size=4).map("\n".join).map(lambda text: text.strip("\n") if text.strip() else "")
days = st.sampled_from(["2026-11-19", "2026-11-20", "2026-11-21"])


@given(texts, st.dictionaries(days, texts.filter(bool), max_size=3), st.integers(1, 99))
def test_what_was_exported_is_read(long_term: str, notes: dict[str, str], version: int) -> None:
    dailies = tuple(DailyNote(day, notes[day]) for day in sorted(notes))
    memory = MemorySnapshot(version, long_term, dailies=dailies, seal_id=1)
    assert parse_memory(format_memory_page(memory)).has_same_content(memory)


def test_notes_within_the_long_term_text_stay_there() -> None:
    """They came back as a daily note, which retention deletes."""
    memory = MemorySnapshot(1, "# About me\n\n## Notes\n\n### 2026-01-01\n\nMarried.")
    assert parse_memory(format_memory_page(memory)).has_same_content(memory)


def test_an_export_of_the_version_before_is_read() -> None:
    page = "# Memory, version 3\n\n## Long-term memory\n\nLikes tea.\n\n## Notes\n\n### 2026-11-21\n\nSun.\n"
    assert parse_memory(page).has_same_content(
        MemorySnapshot(3, "Likes tea.", dailies=(DailyNote("2026-11-21", "Sun."),))
    )


def test_headings_within_the_texts_stay_in_them() -> None:
    long_term = "# About\n\n## Notes\n\nnone\n\n## Long-term memory\n\nmore"
    notes = (DailyNote("2026-11-20", "### 2026-11-25\nsoon\n\n## Notes"), DailyNote("2026-11-21", "### Plans\nx"))
    memory = MemorySnapshot(1, long_term, dailies=notes)
    assert parse_memory(format_memory_page(memory)).has_same_content(memory)


def test_any_other_page_is_long_term_memory_as_it_is() -> None:
    for page in ("Just text.", "# Memory of Ada\n\n## Notes\n\n### 2026-11-21\n\nx", "# Memory\n\nMy own.\n\n- a"):
        memory = parse_memory(f"{page}\n")
        assert (memory.long_term, memory.dailies) == (page, ())


def test_an_export_of_nothing_is_nothing() -> None:
    assert parse_memory(format_memory_page(MemorySnapshot())).is_empty


def test_a_folder_takes_notes_by_their_names_and_lists_the_rest(tmp_path: Path) -> None:
    for name, text in (
        ("2026-11-21.md", "\r\nSun.\r\n"),
        ("2026-13-01.md", "no day"),
        ("20261121.md", "x"),
        ("a.txt", ""),
    ):
        (tmp_path / name).write_bytes(text.encode())
    (tmp_path / "2026-11-20.md").mkdir()
    found = read_memory(tmp_path, Shell())
    assert found.memory.dailies == (DailyNote("2026-11-21", "Sun."),)
    assert found.left_out == ("2026-11-20.md", "2026-13-01.md", "20261121.md", "a.txt")


def test_the_folder_of_a_bot_is_read_by_its_memory_unless_it_has_one_itself(tmp_path: Path) -> None:
    inner = tmp_path / "memory"
    inner.mkdir()
    (inner / "MEMORY.md").write_text("Inner.\n")
    assert read_memory(tmp_path, Shell()).memory == MemorySnapshot(long_term="Inner.")
    (tmp_path / "MEMORY.md").write_text("\nOuter.\n")
    found = read_memory(tmp_path, Shell())
    assert (found.memory, found.left_out) == (MemorySnapshot(long_term="Outer."), ("memory",))
    assert read_memory(inner / "MEMORY.md", Shell()).memory == MemorySnapshot(long_term="Inner.")


def test_a_file_that_is_no_text_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "MEMORY.md").write_bytes(b"ok\n\xff")
    with pytest.raises(ConfigError, match=r"MEMORY\.md, line 2 is not UTF-8"):
        read_memory(tmp_path, Shell())


async def test_what_is_adopted_is_one_new_version_and_the_old_one_comes_back(tape: TapeService) -> None:
    zone = MemoryZone(tape, now=SteppingClock(), zone=SteppingClock()().tzinfo or pytest.fail("no zone"))
    await zone.save_long_term("Old.")
    await zone.append_daily("Note.", "2026-11-19")
    before = await zone.read()
    head = await tape.head()
    await zone.import_snapshot(
        MemorySnapshot(long_term="\nNew.\n", dailies=(DailyNote("2026-11-20", "Rain."), DailyNote("2026-11-18", " ")))
    )
    after = await zone.read()
    assert (after.version, after.long_term) == (before.version + 1, "New.")
    assert [(note.date, note.content) for note in after.dailies] == [("2026-11-20", "Rain.")]
    assert after.dailies[0].updated_at
    await zone.import_snapshot(after)
    assert await tape.head() == head + 4
    await zone.restore(before.version)
    assert (await zone.read()).has_same_content(before)
