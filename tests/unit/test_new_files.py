"""New files are whole or not there, and replace nothing."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bubbot.errors import ConfigError
from bubbot.new_files import UNFINISHED, create_file, replace_file

WRITE_FOREVER = """
import sys
from pathlib import Path
from bubbot.new_files import create_file
with create_file(Path(sys.argv[1])) as write:
    while True:
        write(b"line\\n" * 10_000)
        print("wrote", flush=True)
"""


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_a_file_gets_its_name_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with create_file(path) as write:
        write(b"one\n")
        assert not path.exists()
    assert path.read_bytes() == b"one\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert names(tmp_path) == ["a.jsonl"]


def test_a_file_is_on_disk_before_it_gets_its_name_and_then_its_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced = tmp_path / "a", list[tuple[bool, bool]]()
    fsync = os.fsync

    def note(number: int) -> None:
        synced.append((stat.S_ISDIR(os.fstat(number).st_mode), path.exists()))
        fsync(number)

    monkeypatch.setattr(os, "fsync", note)
    with create_file(path) as write:
        write(b"one\n")
    assert synced == [(False, False), (True, True)]


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with create_file(tmp_path / "a") as write:
            write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert names(tmp_path) == []


def test_a_file_that_is_there_or_comes_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "a"

    def write_beside_others() -> None:
        with create_file(path) as write:
            write(b"ours")
            path.write_bytes(b"theirs")

    with pytest.raises(ConfigError, match="already exists"):
        write_beside_others()
    assert path.read_bytes() == b"theirs"
    with pytest.raises(ConfigError, match="already exists"), create_file(path):
        pytest.fail("it must not begin")
    (link := tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="already exists"), create_file(link):
        pytest.fail("it must not begin")
    assert names(tmp_path) == ["a", "link"]


def test_a_kill_leaves_a_file_that_does_not_look_whole_and_the_next_one_takes_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with subprocess.Popen([sys.executable, "-c", WRITE_FOREVER, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert names(tmp_path) == [f"a{UNFINISHED}"]
    with create_file(path) as write:
        write(b"whole")
    assert names(tmp_path) == ["a"]


def test_of_two_that_write_one_file_neither_gives_its_name_to_the_half_of_the_other(tmp_path: Path) -> None:
    path = tmp_path / "a"
    first, second = create_file(path), create_file(path)
    write_first, write_second = first.__enter__(), second.__enter__()
    write_first(b"first")
    write_second(b"sec")
    with pytest.raises(ConfigError, match="already exists"):
        first.__exit__(None, None, None)
    assert not path.exists()
    write_second(b"ond")
    second.__exit__(None, None, None)
    assert path.read_bytes() == b"second"
    assert names(tmp_path) == ["a"]


def test_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"), create_file(tmp_path / ("x" * 300)):
        pytest.fail("it must not begin")


def test_a_file_takes_the_place_of_another_at_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"old")
    (tmp_path / f"keys{UNFINISHED}").write_bytes(b"what a killed process left")
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert names(tmp_path) == ["keys"]


def test_if_the_other_cannot_be_written_the_old_one_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"old")

    def fail(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
