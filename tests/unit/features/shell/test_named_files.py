"""The files that a command names: their digests change with what they hold, and nothing outside of the workspace is read."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from bubbot.features.shell.named_files import digest_named_files


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.sh").write_text("one")
    (folder / "sub" / "b.py").write_text("two")
    (folder / "with space").write_text("three")
    (tmp_path / "secret").write_text("four")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "inner").symlink_to(folder / "a.sh")
    os.mkfifo(folder / "pipe")
    return folder


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (["sh", "a.sh"], {"a.sh": "one"}),
        (["sh", "-c", "cat a.sh|python3 'sub/b.py' >out; x=./a.sh"], {"a.sh": "one", "sub/b.py": "two"}),
        (["cat", "with space"], {"with space": "three"}),
        (["cat", "inner"], {"a.sh": "one"}),
        (["cat", "../secret", "link", "pipe", "sub", "none", "", "a\0b", "x" * 5000], {}),
        (["sub/../a.sh"], {"a.sh": "one"}),
    ],
)
def test_files_are_found_in_all_words_and_only_in_the_workspace(
    workspace: Path, command: list[str], found: dict[str, str]
) -> None:
    assert digest_named_files(workspace, command) == {name: digest(text) for name, text in found.items()}


def test_a_path_from_the_root_counts_if_it_is_in_the_workspace(workspace: Path) -> None:
    command = [str(workspace / "a.sh"), str(workspace.parent / "secret")]
    assert digest_named_files(workspace, command) == {"a.sh": digest("one")}


def test_of_many_words_the_first_are_looked_at(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bubbot.features.shell.named_files.MAX_WORDS", 2)
    assert list(digest_named_files(workspace, ["none", "a.sh", "sub/b.py"])) == ["a.sh"]


def test_of_a_large_file_size_and_time_are_taken(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bubbot.features.shell.named_files.MAX_HASHED_BYTES", 3)
    (workspace / "large").write_text("four")
    changed = (workspace / "large").stat().st_mtime_ns
    assert digest_named_files(workspace, ["a.sh", "large"]) == {"a.sh": digest("one"), "large": f"4 {changed}"}


def test_a_name_that_cannot_be_printed_is_quoted(workspace: Path) -> None:
    (workspace / "a\x1bb").write_text("five")
    assert digest_named_files(workspace, ["a\x1bb"]) == {repr("a\x1bb"): digest("five")}
