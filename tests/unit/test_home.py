"""The home folder and the writer's lock, with real second processes."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree

import pytest

from bubbot.errors import ConfigError, HomeLocked
from bubbot.home import Home, WriterLock

NOBODY = 65534
ROOT = Path(__file__).parents[2]
HOLD = """
import sys
from pathlib import Path
from bubbot.home import Home, WriterLock
with WriterLock(Home(Path(sys.argv[1]))):
    print("held", flush=True)
    sys.stdin.read()
"""
ENSURE = """
import os, sys
from pathlib import Path
from bubbot.errors import ConfigError
from bubbot.home import Home, WriterLock
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    Home(Path(sys.argv[1])).ensure()
    with WriterLock(Home(Path(sys.argv[1]))):
        pass
except ConfigError as error:
    print(error)
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.ensure()
    return made


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user can reach; pytest's own are closed to others."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    rmtree(path)


@contextmanager
def holder(home: Home) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until its stdin closes."""
    command = [sys.executable, "-c", HOLD, str(home.path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def as_nobody(path: Path) -> str:
    command = [sys.executable, "-c", ENSURE, str(path)]
    # The modules are read before the user changes; PYTHONPATH would not be readable for it.
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert done.stderr == ""
    return done.stdout.strip()


class TestEnsure:
    def test_makes_the_folder_for_its_owner_alone(self, tmp_path: Path) -> None:
        made = Home(tmp_path / "a" / "b" / "home")
        made.ensure()
        assert stat.S_IMODE(made.path.stat().st_mode) == 0o700
        assert list(made.path.iterdir()) == []
        made.ensure()

    def test_leaves_the_mode_of_a_folder_that_is_there(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o750)
        Home(tmp_path).ensure()
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o750

    def test_names_its_files(self, tmp_path: Path) -> None:
        made = Home(tmp_path / "nothing")
        assert [made.database.name, made.lock_file.name, made.config.name] == [
            "bubbot.db",
            "daemon.lock",
            "config.toml",
        ]
        assert not made.path.exists()

    def test_a_file_in_its_place(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        for path in (tmp_path / "file", tmp_path / "file" / "home", tmp_path / "file" / "a" / "home"):
            with pytest.raises(ConfigError, match="file is a file, not a folder: move it away, or name another"):
                Home(path).ensure()

    def test_a_broken_link_in_its_place(self, tmp_path: Path) -> None:
        (tmp_path / "home").symlink_to("gone")
        with pytest.raises(ConfigError, match="home is a broken link"):
            Home(tmp_path / "home").ensure()

    @pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
    def test_a_name_that_cannot_be(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(ConfigError, match="cannot be used"):
            Home(tmp_path / name).ensure()

    @pytest.mark.parametrize(
        ("number", "told"), [(errno.EROFS, "on a read-only disk"), (errno.ENOSPC, "a disk without room")]
    )
    def test_a_disk_that_takes_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, told: str
    ) -> None:
        def refuse(**_: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
        with pytest.raises(ConfigError, match=told):
            Home(tmp_path).ensure()

    @pytest.mark.skipif(not Path("/proc/version").exists(), reason="has no file system that refuses root")
    def test_a_disk_that_refuses_even_root(self) -> None:
        with pytest.raises(ConfigError, match="The home /proc/bubbot cannot be used"):
            Home(Path("/proc/bubbot")).ensure()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
class TestAnotherUser:
    def test_a_home_that_is_not_ours(self, public: Path) -> None:
        (public / "home").mkdir(mode=0o755)
        told = as_nobody(public / "home")
        assert told.startswith(f"The home {public / 'home'} cannot be written by uid {NOBODY}")
        assert f"({public / 'home'} belongs to uid 0, mode 0755)" in told
        assert "(chown), or name another folder with --home or BUBBOT_HOME." in told

    def test_a_home_that_cannot_be_made(self, public: Path) -> None:
        assert f"({public} belongs to uid 0, mode 0755)" in as_nobody(public / "a" / "home")

    def test_a_home_that_cannot_be_seen(self, public: Path) -> None:
        (public / "closed" / "home").mkdir(parents=True)
        (public / "closed").chmod(0o700)
        assert f"({public / 'closed'} belongs to uid 0, mode 0700)" in as_nobody(public / "closed" / "home")

    def test_a_lock_file_that_is_not_ours(self, public: Path) -> None:
        (public / "daemon.lock").touch(mode=0o600)
        os.chown(public, NOBODY, NOBODY)
        told = as_nobody(public)
        assert told.startswith(f"{public / 'daemon.lock'} cannot be opened for writing (Permission denied)")
        assert "belongs to uid 0, mode 0600" in told

    def test_a_home_in_a_folder_of_this_user_is_created(self, public: Path) -> None:
        os.chown(public, NOBODY, NOBODY)
        assert as_nobody(public / "home") == ""
        assert (public / "home").stat().st_uid == NOBODY


class TestLock:
    def test_names_its_holder_while_it_is_held(self, home: Home) -> None:
        with WriterLock(home):
            assert json.loads(home.lock_file.read_text()) == {"pid": os.getpid(), "address": None}
            assert home.holder_pid() == os.getpid()
            assert stat.S_IMODE(home.lock_file.stat().st_mode) == 0o600
        assert home.lock_file.read_bytes() == b""
        assert home.holder_pid() is None

    def test_one_process_at_a_time(self, home: Home) -> None:
        with holder(home) as process:
            for _ in range(2):
                with pytest.raises(HomeLocked) as raised, WriterLock(home):
                    pass
                told = str(raised.value)
                assert told.startswith(f"Process {process.pid} is writing to the home {home.path}")
                assert "commands that only read still work" in told
                assert f"(kill {process.pid})" in told
            process.communicate(timeout=10)
        with WriterLock(home):
            pass

    def test_twice_in_one_process(self, home: Home) -> None:
        with WriterLock(home), pytest.raises(HomeLocked, match=str(os.getpid())), WriterLock(home):
            pass

    def test_is_free_after_a_kill(self, home: Home) -> None:
        with holder(home) as process:
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=10)
        assert home.holder_pid() == process.pid  # what the file says is out of date, and decides nothing
        with WriterLock(home):
            assert home.holder_pid() == os.getpid()

    def test_is_free_after_an_error(self, home: Home) -> None:
        with pytest.raises(ValueError, match="x"), WriterLock(home):
            raise ValueError("x")
        with WriterLock(home):
            pass

    @pytest.mark.parametrize(
        "content",
        [b"", b"\xff\xfe", b"{", b"[]", b'{"pid": "x"}', b'{"pid": true}', b'{"pid": -5}', b"[" * 100_000, b"{}"],
    )
    def test_a_garbled_file_still_locks(self, home: Home, content: bytes) -> None:
        with holder(home) as process:
            home.lock_file.write_bytes(content)
            with pytest.raises(HomeLocked, match=r"^Another process is writing .* stop that process"), WriterLock(home):
                pass
            process.communicate(timeout=10)
        home.lock_file.write_bytes(content)
        with WriterLock(home):
            assert home.holder_pid() == os.getpid()

    def test_the_file_is_never_replaced(self, home: Home) -> None:
        with WriterLock(home):
            before = home.lock_file.stat().st_ino
        with WriterLock(home):
            assert home.lock_file.stat().st_ino == before

    def test_is_not_handed_to_children(self, home: Home) -> None:
        with WriterLock(home):
            # close_fds=False: it is the descriptor itself that must close.
            command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False)
            assert child.stdout is not None
            child.stdout.readline()
        with WriterLock(home):
            pass
        child.communicate(timeout=10)

    def test_a_link_in_its_place(self, home: Home) -> None:
        home.lock_file.symlink_to(home.database)
        with pytest.raises(ConfigError, match="is a symbolic link"), WriterLock(home):
            pass
        assert not home.database.exists()

    def test_a_folder_in_its_place(self, home: Home) -> None:
        home.lock_file.mkdir()
        with pytest.raises(ConfigError, match="cannot be opened for writing"), WriterLock(home):
            pass

    def test_a_home_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="No such file"), WriterLock(Home(tmp_path / "gone")):
            pass


class TestNames:
    @pytest.mark.parametrize("way", ["named", "below", "link"])
    def test_a_home_that_is_not_utf_8_is_told_in_one_sentence(self, public: Path, way: str) -> None:
        odd = public / os.fsdecode(b"h\xff")
        odd.mkdir()
        (public / "link").symlink_to(odd)
        path = {"named": odd, "below": odd / "inner", "link": public / "link"}[way]
        with pytest.raises(
            ConfigError, match=r"h\\xff.* has a name that is not UTF-8: rename the folder, or name another"
        ):
            Home(path)

    def test_a_home_below_a_working_folder_that_is_not_utf_8(
        self, public: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        odd = public / os.fsdecode(b"h\xff")
        odd.mkdir()
        monkeypatch.chdir(odd)
        with pytest.raises(ConfigError, match="not UTF-8"):
            Home(Path("home"))

    def test_any_other_script_is_fine(self, public: Path) -> None:
        Home(public / "家 é").ensure()


def test_a_second_writer_is_refused_though_the_lock_file_was_removed(home: Home) -> None:
    with WriterLock(home):
        home.lock_file.unlink()
        with pytest.raises(HomeLocked, match=r"daemon\.lock was removed"), WriterLock(home):
            pass
    with WriterLock(home):
        pass


def test_a_full_disk_keeps_nobody_from_the_lock(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with WriterLock(home), pytest.raises(HomeLocked), WriterLock(home):
        pass


@pytest.mark.parametrize(
    ("files", "is_lost"),
    [
        ({}, False),
        ({"daemon.lock": ""}, False),
        ({"bubbot.db": "content"}, False),
        ({"bubbot.db": "content", "bubbot.db-wal": "", "had-database": ""}, False),
        ({"bubbot.db": "", "bubbot.db-journal": "killed while it was made"}, False),
        ({"bubbot.db-wal": ""}, False),  # as a reader leaves it
        ({"had-database": ""}, True),
        ({"bubbot.db": "", "had-database": ""}, True),
        ({"bubbot.db-wal": "of a version that left no mark"}, True),
    ],
)
def test_a_database_is_lost_if_there_was_one_and_there_is_none(
    home: Home, files: Mapping[str, str], is_lost: bool
) -> None:
    home.ensure()
    for name, content in files.items():
        (home.path / name).write_text(content)
    assert home.has_lost_database is is_lost


def test_what_is_no_file_is_no_lost_database(home: Home) -> None:
    home.ensure()
    home.mark_database()
    os.mkfifo(home.database)
    assert not home.has_lost_database


def test_the_mark_names_the_newest_entry_and_is_whole_at_any_time(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.ensure()
    home.mark_database()
    assert home.read_marked_entry() is None
    home.mark_database(f"46:{'ab' * 32}")
    assert home.read_marked_entry() == (46, "ab" * 32)
    home.mark_database()
    assert home.read_marked_entry() == (46, "ab" * 32), "a start forgets nothing"
    assert home.database_mark.read_text().startswith("This home has a database, bubbot.db.")
    assert [path.name for path in home.path.iterdir()] == ["had-database"]

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    home.mark_database(f"47:{'cd' * 32}")
    assert home.read_marked_entry() == (46, "ab" * 32)
