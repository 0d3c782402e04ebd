"""Files below a root: nothing outside is reached, and a change is whole or did not happen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bubbot.errors import CommandRefused
from bubbot.features.files.folder import (
    SearchLimits,
    folder_size,
    list_folder,
    read_file,
    replace_file,
    search_files,
)
from bubbot.features.files.roots import FilePath, FileRoot

LIMIT = 1_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a file, a folder with another one, and beside it a secret."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.txt").write_text("the canary")
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (root / "a.txt").write_text("one\ntwo\n")
    (root / "inner" / "b.md").write_text("Two and THREE\n")
    return root


def at(root: Path, path: str) -> FilePath:
    return FilePath(FileRoot(root), tuple(part for part in path.split("/") if part))


def problem(root: Path, path: str) -> str:
    with pytest.raises(CommandRefused) as raised:
        read_file(at(root, path), LIMIT)
    return raised.value.code


class TestReading:
    def test_it_reads_a_file_and_knows_a_missing_one(self, root: Path) -> None:
        assert read_file(at(root, "a.txt"), LIMIT) == b"one\ntwo\n"
        assert read_file(at(root, "nothing.txt"), LIMIT) is None
        assert read_file(at(root, "nothing/at/all.txt"), LIMIT) is None

    def test_a_link_is_not_followed_wherever_it_stands(self, root: Path) -> None:
        (root / "file-link").symlink_to(root.parent / "secret" / "key.txt")
        (root / "folder-link").symlink_to(root.parent / "secret")
        (root / "inner-link").symlink_to("inner")
        assert problem(root, "file-link") == "file_is_link"
        assert problem(root, "folder-link/key.txt") == "file_not_folder"
        assert problem(root, "inner-link/b.md") == "file_not_folder"

    def test_what_is_no_file_is_refused_at_once(self, root: Path) -> None:
        os.mkfifo(root / "pipe")
        assert problem(root, "pipe") == "file_not_regular"
        assert problem(root, "inner") == "file_is_folder"
        assert problem(root, "a.txt/deeper") == "file_not_folder"
        assert problem(root, "") == "file_is_folder"
        assert problem(root, "x" * 300) == "file_system_error"

    def test_a_large_file_is_refused_and_not_read_to_its_end(self, root: Path) -> None:
        with (root / "huge").open("wb") as huge:
            huge.truncate(1 << 40)
        assert problem(root, "huge") == "file_too_long"

    def test_a_file_as_large_as_the_limit_is_read_and_one_byte_more_is_not(self, root: Path) -> None:
        (root / "full").write_bytes(b"x" * LIMIT)
        (root / "over").write_bytes(b"x" * (LIMIT + 1))
        assert read_file(at(root, "full"), LIMIT) == b"x" * LIMIT
        with pytest.raises(CommandRefused) as raised:
            read_file(at(root, "over"), LIMIT)
        assert (raised.value.code, raised.value.values["reason"]) == ("file_too_long", str(LIMIT + 1))


class TestReplacing:
    def test_it_makes_the_folders_and_the_file(self, root: Path) -> None:
        replace_file(at(root, "x/y/c.txt"), b"new", None, LIMIT)
        assert (root / "x" / "y" / "c.txt").read_bytes() == b"new"

    def test_it_keeps_the_rights_of_a_file(self, root: Path) -> None:
        (root / "a.txt").chmod(0o600)
        replace_file(at(root, "a.txt"), b"new", b"one\ntwo\n", LIMIT)
        assert (root / "a.txt").stat().st_mode & 0o777 == 0o600

    def test_it_removes_a_file(self, root: Path) -> None:
        replace_file(at(root, "a.txt"), None, b"one\ntwo\n", LIMIT)
        assert not (root / "a.txt").exists()

    @pytest.mark.parametrize("before", [None, b"other"])
    def test_a_file_that_is_not_as_expected_stays(self, root: Path, before: bytes | None) -> None:
        with pytest.raises(CommandRefused, match="file_changed_meanwhile"):
            replace_file(at(root, "a.txt"), b"new", before, LIMIT)
        assert (root / "a.txt").read_bytes() == b"one\ntwo\n"

    def test_it_changes_nothing_behind_a_link(self, root: Path) -> None:
        (root / "folder-link").symlink_to(root.parent / "secret")
        with pytest.raises(CommandRefused):
            replace_file(at(root, "folder-link/new.txt"), b"new", None, LIMIT)
        assert sorted(item.name for item in (root.parent / "secret").iterdir()) == ["key.txt"]

    def test_another_name_of_a_file_outside_keeps_its_content(self, root: Path) -> None:
        outside = root.parent / "secret" / "key.txt"
        (root / "hard").hardlink_to(outside)
        replace_file(at(root, "hard"), b"new", b"the canary", LIMIT)
        assert outside.read_text() == "the canary"

    def test_what_a_killed_process_left_is_hidden_and_goes_with_the_next_change(self, root: Path) -> None:
        replace_file(at(root, "c.txt"), b"1", None, LIMIT)
        names = []
        real = os.rename

        def die(source: str, target: str, **folders: int) -> None:
            names.append(source)
            raise KeyboardInterrupt

        os.rename = die  # type: ignore[assignment]
        try:
            with pytest.raises(KeyboardInterrupt):
                replace_file(at(root, "c.txt"), b"2", b"1", LIMIT)
        finally:
            os.rename = real
        (root / names[0]).write_text("half")
        assert names[0].startswith(".bubbot-")
        assert names[0] not in [item.path for item in list_folder(at(root, ""), "", 1, 100)[0]]
        replace_file(at(root, "c.txt"), b"2", b"1", LIMIT)
        assert sorted(item.name for item in root.iterdir()) == ["a.txt", "c.txt", "inner"]


class TestFolders:
    def test_it_lists_by_depth_and_pattern(self, root: Path) -> None:
        (root / "link").symlink_to("/")
        items, has_more = list_folder(at(root, ""), "", 1, 100)
        assert [(item.path, item.kind, item.size) for item in items] == [
            ("a.txt", "file", 8),
            ("inner", "folder", 0),
            ("link", "link", 0),
        ]
        assert [item.path for item in list_folder(at(root, ""), "*.md", 5, 100)[0]] == ["inner/b.md"]
        assert (len(list_folder(at(root, ""), "", 5, 2)[0]), has_more) == (2, False)

    def test_it_finds_text_in_any_case_and_not_behind_links(self, root: Path) -> None:
        (root / "link").symlink_to(root.parent / "secret")
        (root / "binary").write_bytes(b"two \xff")
        found, is_cut = search_files(at(root, ""), "TWO", "", SearchLimits())
        assert [(line.path, line.number, line.line) for line in found] == [
            ("a.txt", 2, "two"),
            ("inner/b.md", 1, "Two and THREE"),
        ]
        assert search_files(at(root, ""), "canary", "", SearchLimits()) == ([], False)
        assert not is_cut

    def test_a_search_ends_at_its_limits_and_says_so(self, root: Path) -> None:
        (root / "many.txt").write_text("two\n" * 50)
        assert search_files(at(root, ""), "two", "many.txt", SearchLimits(lines=10))[1]
        assert search_files(at(root, ""), "two", "", SearchLimits(files=1))[1]
        assert not search_files(at(root, ""), "two", "many.txt", SearchLimits(files=1, bytes=200, file_bytes=200))[1]
        assert search_files(at(root, ""), "two", "", SearchLimits(bytes=20))[1]
        assert search_files(at(root, ""), "two", "*.none", SearchLimits(walked=2)) == ([], True)
        assert list_folder(at(root, ""), "*.none", 5, 10, walked=2) == ([], True)

    def test_the_size_counts_every_file(self, root: Path) -> None:
        assert folder_size(at(root, "")) == 8 + 14
        assert folder_size(at(root, "missing")) == 0
