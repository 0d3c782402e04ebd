"""The folder of a skill: no link is followed, nothing endless is read, and the digest is that of `sha256sum`."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Thread

import pytest

from bubbot.errors import ConfigError
from bubbot.features.skills import folder as folders
from bubbot.features.skills import library as libraries
from bubbot.features.skills.folder import list_folders, read_file, read_folder, read_stamp
from bubbot.features.skills.library import SkillLibrary
from bubbot.new_files import create_folder
from tests.skills import write_skill


def test_the_digest_is_that_which_sha256sum_computes(tmp_path: Path) -> None:
    path = write_skill(tmp_path, files={"b.md": "b", "scripts/a.py": "a", "Z.txt": "z", "é.md": "e"})
    command = r"find . -type f | sed 's|^\./||' | LC_ALL=C sort | xargs -d '\n' sha256sum | sha256sum"
    done = subprocess.run(["sh", "-c", command], cwd=path, capture_output=True, check=True, text=True)
    assert read_folder(path).digest == f"sha256:{done.stdout.split()[0]}"


@pytest.mark.parametrize("name", ["ref.md", "ref"])
def test_a_link_is_refused_wherever_it_leads(tmp_path: Path, name: str) -> None:
    path = write_skill(tmp_path)
    (path / name).symlink_to("/etc/passwd" if name.endswith(".md") else tmp_path)
    with pytest.raises(ConfigError, match=f"has a link, {name}: a skill has files and folders only"):
        read_folder(path)


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(write_skill(tmp_path))
    with pytest.raises(ConfigError, match="is a link, or no folder"):
        read_folder(tmp_path / "linked")
    assert list_folders(tmp_path) == [tmp_path / "pdf-forms"]


def test_pipes_sockets_and_devices_are_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = write_skill(tmp_path)
    os.mkfifo(path / "pipe")
    with pytest.raises(ConfigError, match="a device, a pipe or a socket, pipe"):
        read_folder(path)
    (path / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"{os.path.relpath(path)}/s")
        with pytest.raises(ConfigError, match="a device, a pipe or a socket, s"):
            read_folder(path)


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[2J", "a\u202eb", "a\\b", os.fsdecode(b"a\xff"), "a\u200b"])
def test_a_name_that_a_terminal_would_not_show_as_it_is_is_refused(tmp_path: Path, name: str) -> None:
    path = write_skill(tmp_path)
    (path / name).write_text("x")
    with pytest.raises(ConfigError, match="rename it") as caught:
        read_folder(path)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("limit", "value", "said"),
    [
        ("MAX_FILES", 3, "more than 3 files"),
        ("MAX_FOLDERS", 1, "1 folders"),
        ("MAX_DEPTH", 2, "deeper than 2"),
        ("MAX_FILE_BYTES", 200, "more than 200 bytes"),
        ("MAX_BYTES", 300, "more than 300 bytes"),
    ],
)
def test_what_is_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, said: str
) -> None:
    path = write_skill(tmp_path, files={"a/b/c.md": "x" * 250, "a/d.md": "y" * 150, "e.md": ""})
    read_folder(path)
    monkeypatch.setattr(folders, limit, value)
    with pytest.raises(ConfigError, match=said):
        read_folder(path)


def test_a_folder_without_a_skill_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no SKILL\.md: name the folder of a skill"):
        read_folder(tmp_path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_folder(tmp_path / "none")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="it is a link, or no folder"):
        read_folder(tmp_path / "file")


def test_a_change_of_the_same_size_and_time_changes_the_stamp(tmp_path: Path) -> None:
    path = write_skill(tmp_path, files={"a.md": "one"})
    before, stamp = (path / "a.md").stat(), read_stamp(path)
    (path / "a.md").write_text("two")
    os.utime(path / "a.md", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read_stamp(path) != stamp


def test_files_are_read_again_only_if_they_seem_to_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "SETTLING_SECONDS", 0.0)
    path, library = write_skill(tmp_path / "home" / "skills"), SkillLibrary(tmp_path / "home")
    time.sleep(0.05)  # more than a tick of the clock of a file system
    first = library.look(path)
    with monkeypatch.context() as patched:
        patched.setattr("bubbot.features.skills.library.read_folder", None)
        assert library.look(path) is first
    (path / "SKILL.md").touch()
    again = library.look(path)
    assert again is not first
    assert again.digest == first.digest


def test_a_change_within_a_tick_of_the_clock_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, library = write_skill(tmp_path / "home" / "skills", files={"a.md": "one"}), SkillLibrary(tmp_path / "home")
    stamp = read_stamp(path)
    for module in (folders, libraries):
        monkeypatch.setattr(module, "read_stamp", lambda _: stamp)
    first = library.look(path)
    (path / "a.md").write_text("two")
    assert library.look(path).digest != first.digest


def test_a_folder_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_skill(tmp_path, files={"a.md": "one"})
    read = folders._read_file

    def read_and_change(*arguments: object) -> bytes:
        (path / "a.md").write_text("other")
        return read(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(folders, "_read_file", read_and_change)
    with pytest.raises(ConfigError, match="was changed while it was read"):
        read_folder(path)


def test_a_folder_that_becomes_a_link_while_it_is_read_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_skill(tmp_path, files={"ref/a.md": "one"})
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.md").write_text("secret")
    opened = os.open

    def open_swapped(name: str | Path, flags: int, *rest: int, dir_fd: int | None = None) -> int:
        if name == "ref" and not (path / "ref").is_symlink():
            (path / "ref").rename(tmp_path / "away")
            (path / "ref").symlink_to(tmp_path / "elsewhere")
        return opened(name, flags, *rest, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", open_swapped)
    with pytest.raises(ConfigError, match="it is a link, or no folder"):
        read_file(path, "ref/a.md")


def test_the_first_of_two_with_one_name_counts(tmp_path: Path) -> None:
    home, root = tmp_path / "home", tmp_path / "root"
    write_skill(root)
    library = SkillLibrary(home, [str(root)])
    assert library.find_all() == {"pdf-forms": root / "pdf-forms"}
    write_skill(home / "skills")
    assert library.find_all() == {"pdf-forms": home / "skills" / "pdf-forms"}
    assert library.find("pdf-forms") == home / "skills" / "pdf-forms"
    assert library.find("../skills/pdf-forms") is None


def test_an_odd_folder_is_named_and_the_others_count(tmp_path: Path) -> None:
    root = tmp_path / "home" / "skills"
    write_skill(root)
    write_skill(root, "PDF Forms")
    (root / "file").write_text("x")
    (root / "empty").mkdir()
    library = SkillLibrary(tmp_path / "home")
    assert list(library.find_all()) == ["PDF Forms", "pdf-forms"]
    with pytest.raises(ConfigError, match="is no name of a skill: rename it"):
        library.look(root / "PDF Forms")


class _Killed(BaseException):
    """The process is killed here."""


def test_a_removal_that_is_killed_leaves_nothing_that_stands_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, source = SkillLibrary(tmp_path / "home"), read_folder(write_skill(tmp_path, files={"a.md": "a"}))
    (tmp_path / "home").mkdir()
    folder = library.copy(source, "pdf-forms")

    def remove_half(path: object, *_: object, **__: object) -> None:
        next(Path(str(path)).rglob("SKILL.md")).unlink()
        raise _Killed

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", remove_half)
        with pytest.raises(_Killed):
            library.remove(folder)
    assert library.find("pdf-forms") is None
    assert read_folder(library.copy(source, "pdf-forms")).digest == source.digest
    assert [each.name for each in library.own_root.iterdir()] == ["pdf-forms"]
    assert library.remove(folder)
    assert not library.remove(folder)
    assert [*library.own_root.iterdir()] == []


def test_two_skills_that_are_copied_at_once_are_both_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, write = SkillLibrary(tmp_path / "home"), create_folder
    (tmp_path / "home").mkdir()
    first, second = (read_folder(write_skill(tmp_path, name)) for name in ("first", "second"))
    other = Thread(target=library.copy, args=(second, "second"))

    def write_slowly(path: Path, contents: Mapping[str, bytes]) -> None:
        if path.name == "first":
            other.start()
            other.join(0.3)
        write(path, contents)

    monkeypatch.setattr("bubbot.features.skills.library.create_folder", write_slowly)
    library.copy(first, "first")
    other.join()
    assert sorted(library.find_all()) == ["first", "second"]
