"""Where the control socket is, and in whose folder."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest

from bubbot.errors import ConfigError
from bubbot.server.address import socket_path

PATH_LIMIT = 107


NOBODY = 65534


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short name."""
    path = Path(tempfile.mkdtemp())
    yield path
    rmtree(path)


def test_it_is_in_the_users_own_folder_and_each_home_has_one(short: Path) -> None:
    one, other = (socket_path(short / name, short, Path("/nowhere")) for name in ("a", "b"))
    assert one.parent == other.parent == short / "bubbot"
    assert one != other
    assert stat.S_IMODE(one.parent.stat().st_mode) == 0o700
    (short / "link").symlink_to(short / "a")
    (short / "a").mkdir()
    assert socket_path(short / "link", short, Path("/nowhere")) == one


@pytest.mark.parametrize("runtime", ["", "missing", "open", "x" * 80])
def test_without_such_a_folder_it_is_in_one_of_ours_for_this_user(short: Path, runtime: str) -> None:
    (short / "open").mkdir()
    (short / "open").chmod(0o755)
    (short / ("x" * 80)).mkdir(mode=0o700)
    found = socket_path(short / "home", short / runtime if runtime else None, short)
    assert found.parent == short / f"bubbot-{os.getuid()}"
    assert stat.S_IMODE(found.parent.stat().st_mode) == 0o700
    assert len(os.fsencode(found)) <= PATH_LIMIT


def test_a_folder_that_somebody_else_could_have_made_is_refused(short: Path) -> None:
    ours = short / f"bubbot-{os.getuid()}"
    ours.symlink_to(short)
    with pytest.raises(ConfigError, match="is a link: remove"):
        socket_path(short / "home", None, short)
    ours.unlink()
    ours.mkdir()
    ours.chmod(0o750)
    with pytest.raises(ConfigError, match=r"0750.*chmod 700 it"):
        socket_path(short / "home", None, short)
    ours.rmdir()
    ours.write_text("")
    with pytest.raises(ConfigError, match=r"cannot be made \(File exists\)"):
        socket_path(short / "home", None, short)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder that is somebody else's")
def test_somebody_elses_folder_is_refused(short: Path) -> None:
    ours = short / f"bubbot-{os.getuid()}"
    ours.mkdir(mode=0o700)
    os.chown(ours, NOBODY, NOBODY)
    with pytest.raises(ConfigError, match=f"belongs to uid {NOBODY}, and this is uid"):
        socket_path(short / "home", None, short)


def test_a_path_that_no_socket_can_have_is_told(short: Path) -> None:
    deep = short / ("x" * 90)
    deep.mkdir()
    with pytest.raises(ConfigError, match="longer than 107 bytes"):
        socket_path(short / "home", None, deep)
    with pytest.raises(ConfigError, match="cannot be made"):
        socket_path(short / "home", None, short / "missing")


def test_what_others_put_in_its_way_is_gone_around(short: Path) -> None:
    home = short / "home"
    home.mkdir(mode=0o700)
    (short / f"bubbot-{os.getuid()}").symlink_to(short)
    found = socket_path(home, None, short)
    assert found.parent == home / "run"
    (short / "bubbot").write_text("")
    short.chmod(0o700)
    assert socket_path(home, short, short) == found
    (home / "run").chmod(0o755)
    with pytest.raises(ConfigError, match=r"bubbot, cannot be made \(File exists\)"):  # the first of the three
        socket_path(home, short, short)
