"""Doctor findings of the machine: versions, limits, disk, clock, service. Each fault is planted."""

from __future__ import annotations

import csv
import os
import re
import resource
import sys
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from bubbot.home import Home
from bubbot.ops.doctor.conflicts import check_conflicts
from bubbot.ops.doctor.versions import check_libraries
from bubbot.ops.service.render import read_unit, render_unit
from bubbot.ports.checks import Finding
from tests.installed import installed
from tests.planting import examine, found, level, plants

pytestmark = pytest.mark.usefixtures("no_plugins")

Programs = Callable[..., None]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """Puts programs of these names, as shell scripts, in front of all others; those of systemd are gone."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")

    def put(**scripts: str) -> None:
        for name, script in scripts.items():
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)

    put(systemctl="exit 1", timedatectl="exit 1", loginctl="exit 1")
    return put


class TestVersions:
    @plants("python.old", "python.ok")
    def test_an_old_python(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        assert level(examine(home), "python.ok") == "ok"
        monkeypatch.setattr("bubbot.ops.doctor.system.OLDEST_PYTHON", (3, 99))
        assert level(examine(home), "python.old") == "problem"

    @plants("sqlite.wal_reset")
    def test_a_sqlite_with_the_bug_is_told_and_no_fault(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        for version in ((3, 7, 0), (3, 40, 1), (3, 51, 2)):
            monkeypatch.setattr("sqlite3.sqlite_version_info", version)
            assert "so the bug cannot occur" in found(examine(home))["sqlite.wal_reset"].cause

    @plants("sqlite.ok")
    def test_a_sqlite_without_it(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        for version in ((3, 6, 23), (3, 51, 3), (3, 53, 0)):
            monkeypatch.setattr("sqlite3.sqlite_version_info", version)
            assert list(found(examine(home, "sqlite."))) == ["sqlite.ok"]

    @plants("library.untested", "library.ok")
    def test_a_library_that_bubbot_was_not_tested_with(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert list(found(check_libraries())) == ["library.ok"]
        for number, version in enumerate(("2.6.4", "2.7.0", "2.8.0", "3.0")):
            with monkeypatch.context() as here:
                installed(tmp_path / str(number), "discord.py", version)
                here.syspath_prepend(tmp_path / str(number))
                finding = found(check_libraries())["library.untested"]
            assert finding.level == "warning"
            assert finding.fix.endswith("-m pip install 'discord.py>=2.7.1,<2.8'")
            assert version in finding.cause

    @plants("package.conflict")
    def test_another_package_with_a_top_level_channels(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert list(check_conflicts()) == []
        installed(tmp_path, "Channels", "4.3")
        (tmp_path / "Channels-4.3.dist-info" / "top_level.txt").write_text("channels\n")
        monkeypatch.syspath_prepend(tmp_path)
        finding = found(check_conflicts())["package.conflict"]
        assert finding.level == "problem"
        assert finding.fix.endswith("-m pip uninstall --yes channels")

    @pytest.mark.parametrize(
        ("record", "is_conflict"),
        [
            ("other/x.py,,\nchannels/layers.py,,\n", True),
            ('"channels/a, b.py",,\n', True),
            ("channels.py,,\n", True),
            ("other/channels/x.py,,\nchannels_redis/x.py,,\n", False),
        ],
    )
    def test_a_package_that_only_lists_its_files(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: str, is_conflict: bool
    ) -> None:
        installed(tmp_path, "Channels", "4.3")
        (tmp_path / "Channels-4.3.dist-info" / "RECORD").write_text(record)
        for name, *_ in csv.reader(record.splitlines()):
            # litellm brings another finder of packages, for the whole process, which leaves out the files that are missing.
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        # Alone: `packages_distributions` makes a path of each file of all other packages. They are read in the test above.
        monkeypatch.setattr(sys, "path", [str(tmp_path)])
        assert ("package.conflict" in found(check_conflicts())) is is_conflict
        assert ("Channels" in packages_distributions().get("channels", ())) is is_conflict

    def test_a_file_that_is_no_module_hides_none(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Since Python 3.12 `packages_distributions` counts every file."""
        installed(tmp_path, "Channels", "4.3")
        (tmp_path / "Channels-4.3.dist-info" / "RECORD").write_text("other/x.py,,\nchannels/readme.txt,,\n")
        monkeypatch.setattr(sys, "path", [str(tmp_path)])
        assert list(check_conflicts()) == []

    def test_a_version_that_is_none_is_untested_and_a_later_patch_is_not(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number, (version, is_tested) in enumerate(
            (("strange", False), ("2.8.0rc1", False), ("2.7.2rc1", True), ("2.7.99", True))
        ):
            with monkeypatch.context() as here:
                installed(tmp_path / str(number), "discord.py", version)
                here.syspath_prepend(tmp_path / str(number))
                assert ("library.untested" not in found(check_libraries())) is is_tested, version

    @pytest.mark.parametrize("name", ["pytest", "mypy", "xllamacpp"])
    def test_what_only_an_extra_needs_is_not_compared(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        installed(tmp_path, name, "0.0.1")
        monkeypatch.syspath_prepend(tmp_path)
        assert list(found(check_libraries())) == ["library.ok"]

    @pytest.mark.parametrize(
        ("name", "wanted"),
        [("litellm", "'litellm[mcp]=="), ("python_telegram_bot", "'python-telegram-bot[socks]>=")],
    )
    def test_the_fix_keeps_the_extras_of_a_library(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, wanted: str
    ) -> None:
        installed(tmp_path, name, "0.0.1")
        monkeypatch.syspath_prepend(tmp_path)
        assert wanted in found(check_libraries())["library.untested"].fix

    def test_one_library_has_one_version(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("bubbot.ops.doctor.versions.requires", lambda _: ["packaging>=1"])
        cause = found(check_libraries())["library.ok"].cause
        assert cause == "1 library has a version that bubbot was tested with."


class TestLimits:
    @plants("limits.files", "limits.ok")
    def test_few_open_files(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
            assert "512" in found(examine(home))["limits.files"].cause
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for limit, number in ((1024, "1024"), (resource.RLIM_INFINITY, "Any number of")):
            monkeypatch.setattr("resource.getrlimit", lambda _, limit=limit: (limit, limit))
            assert found(examine(home))["limits.ok"].cause == f"{number} files may be open at once."

    @pytest.fixture
    def scarce(self, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
        """What the doctor says of the memory for a model; the system tells it by two files of the test."""
        monkeypatch.setattr("bubbot.ops.doctor.limits.MEMINFO_PATH", tmp_path / "meminfo")
        monkeypatch.setattr("bubbot.ops.doctor.limits.CONTROL_GROUP", tmp_path / "group")

        def check(name: str = "anthropic/claude-sonnet-4-5", via: str = "auto") -> str:
            home.config.write_text(f'[model]\nname = "{name}"\nvia = "{via}"\n')
            return "".join(one.cause for one in examine(home, "limits.memory", "doctor."))

        return check

    @plants("limits.memory")
    def test_little_memory_is_told_where_a_model_needs_it(
        self, scarce: Callable[..., str], home: Home, tmp_path: Path
    ) -> None:
        memory, group = tmp_path / "meminfo", tmp_path / "group"
        memory.write_text("MemTotal: 9 kB\nMemAvailable:     100000 kB\n")
        assert not scarce("openai/gpt-4o")
        assert not scarce("scripted")
        assert scarce("openai/gpt-4o", "litellm")
        assert "102.4 MB" in scarce()
        assert level(examine(home), "limits.memory") == "warning"
        memory.write_text("MemAvailable:     9000000 kB\n")
        assert not scarce()
        group.mkdir()
        (group / "memory.current").write_text("300000000\n")
        (group / "memory.stat").write_text("anon 1\ninactive_file 50000000\n")
        for limit, is_scarce in (("400000000\n", True), ("900000000\n", False), ("max\n", False)):
            (group / "memory.max").write_text(limit)
            assert bool(scarce()) is is_scarce

    def test_a_system_that_tells_nothing_is_not_judged(self, scarce: Callable[..., str], tmp_path: Path) -> None:
        memory = tmp_path / "meminfo"
        assert not scarce()
        memory.write_text("MemAvailable:\n\nnonsense")
        assert not scarce()
        memory.unlink()
        memory.mkdir()
        assert not scarce()


class TestDisk:
    @pytest.fixture
    def room(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Finding]]:
        """What the doctor says of a disk with so many free bytes and files."""

        def check(left: int, files: int = 10**9, entries: int = 10**6) -> list[Finding]:
            stats = os.statvfs_result((4096, 1, left, left, left, files, entries, entries, 0, 255))
            monkeypatch.setattr("os.statvfs", lambda _: stats)
            return examine(home, "disk.ok", "disk.scarce", "disk.files")

        return check

    @plants("disk.ok", "disk.scarce")
    def test_little_room_is_a_warning_and_almost_none_a_problem(self, room: Callable[..., list[Finding]]) -> None:
        assert level(room(2 * 10**9), "disk.ok") == "ok"
        assert level(room(5 * 10**8), "disk.scarce") == "warning"
        assert level(room(10**6), "disk.scarce") == "problem"

    @plants("disk.files")
    def test_no_more_files_though_there_is_room(self, room: Callable[..., list[Finding]]) -> None:
        assert level(room(10**10, entries=1000), "disk.files") == "warning"
        assert level(room(10**10, entries=5), "disk.files") == "problem"
        # Some file systems count no entries at all.
        assert level(room(10**10, files=0, entries=0), "disk.ok") == "ok"

    @plants("disk.network", "disk.memory", "disk.local")
    def test_the_kind_of_file_system(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        home, mounts = Home(tmp_path / "with a space" / "home"), tmp_path / "mounts"
        monkeypatch.setattr("bubbot.ops.doctor.disk.MOUNTS_PATH", mounts)
        kinds = ("disk.network", "disk.memory", "disk.local")
        home.path.mkdir(parents=True)
        shown = str(home.path.parent).replace(" ", "\\040")
        for kind, wanted in (
            ("nfs4", "disk.network"), ("cifs", "disk.network"), ("fuse.sshfs", "disk.network"),
            ("tmpfs", "disk.memory"), ("ext4", "disk.local"),
        ):  # fmt: skip
            mounts.write_text(f"/dev/a / xfs rw 0 0\nbox:/x {shown} {kind} rw 0 0\nbox:/y {shown}-other nfs rw 0 0\n")
            told = found(examine(home, *kinds))
            assert list(told) == [wanted]
            assert kind in told[wanted].cause
        mounts.write_text(f"box:/x {shown} nfs rw 0 0\n/dev/b {shown} ext4 rw 0 0\n")  # the last one hides the first
        assert list(found(examine(home, *kinds))) == ["disk.local"]
        mounts.unlink()
        assert not examine(home, *kinds)

    def test_the_disk_of_a_home_to_come_is_read_without_a_fault(self, tmp_path: Path) -> None:
        assert len(examine(Home(tmp_path / "not" / "yet"), "disk.")) == 2


class TestClock:
    @plants("clock.unset", "clock.set")
    def test_a_time_service_that_is_off_or_out_of_reach(self, programs: Programs, home: Home) -> None:
        programs(timedatectl="echo NTP=yes; echo NTPSynchronized=yes")
        assert list(found(examine(home, "clock.set", "clock.unset"))) == ["clock.set"]
        programs(timedatectl="echo NTP=no; echo NTPSynchronized=no")
        assert "switched off" in found(examine(home, "clock.set", "clock.unset"))["clock.unset"].cause
        programs(timedatectl="echo NTP=yes; echo NTPSynchronized=no")
        assert "not reached" in found(examine(home, "clock.set", "clock.unset"))["clock.unset"].cause

    def test_a_system_that_does_not_tell_is_not_judged(self, programs: Programs, home: Home) -> None:
        assert not found(examine(home, "clock.set", "clock.unset"))
        programs(timedatectl="echo nonsense")
        assert not found(examine(home, "clock.set", "clock.unset"))

    def test_a_program_that_hangs_is_given_up(
        self, programs: Programs, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("bubbot.ops.doctor.tools.TOOL_TIMEOUT_SECONDS", 0.1)
        programs(timedatectl="exec sleep 30")
        assert not found(examine(home, "clock.set", "clock.unset"))


UNIT = {
    "LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "no",
    "WatchdogUSec": "1min", "FragmentPath": "/etc/systemd/system/bubbot.service", "Environment": "",
}  # fmt: skip


class TestService:
    def state(self, programs: Programs, scope: str = "--system", linger: str = "yes", **changes: str) -> None:
        """A systemd that has the unit in one scope and does not know it in the other."""
        lines = "".join(f"{name}={value}\n" for name, value in (UNIT | changes).items())
        programs(
            systemctl=f"[ \"$1\" = {scope} ] || {{ echo LoadState=not-found; exit 0; }}\ncat <<'END'\n{lines}END",
            loginctl=f"echo Linger={linger}",
        )

    def test_without_systemd_nothing_is_said(self, programs: Programs, tmp_path: Path) -> None:
        assert not found(examine(Home(tmp_path), "service."))

    @plants("service.absent", "service.ok")
    def test_one_that_is_well_and_none(self, programs: Programs, tmp_path: Path) -> None:
        programs(systemctl="echo LoadState=not-found")
        assert list(found(examine(Home(tmp_path), "service."))) == ["service.absent"]
        for scope in ("--system", "--user"):
            self.state(programs, scope, ExecStart=f"{{ argv[]=python -m bubbot --home {tmp_path} run ; }}")
            assert list(found(examine(Home(tmp_path), "service."))) == ["service.ok"]

    @plants("service.failed", "service.disabled", "service.changed", "service.unwatched")
    def test_one_that_would_not_start_or_go_on(self, programs: Programs, tmp_path: Path) -> None:
        for changes, wanted, how in (
            ({"ActiveState": "failed"}, "service.failed", "problem"),
            ({"UnitFileState": "disabled"}, "service.disabled", "warning"),
            ({"NeedDaemonReload": "yes"}, "service.changed", "warning"),
            ({"WatchdogUSec": "0"}, "service.unwatched", "warning"),
            ({"WatchdogUSec": "infinity"}, "service.unwatched", "warning"),
        ):
            self.state(programs, **changes)
            told = found(examine(Home(tmp_path), "service."))
            assert list(told) == [wanted]
            assert told[wanted].level == how
            assert told[wanted].fix.startswith("sudo systemctl ")

    @plants("service.differs")
    @pytest.mark.parametrize("scope", ["--user", "--system"])
    def test_one_whose_file_is_of_another_version(self, programs: Programs, tmp_path: Path, scope: str) -> None:
        home, file = Home(tmp_path / "home"), tmp_path / "bubbot.service"
        name = "bubbot-user.service" if scope == "--user" else "bubbot.service"
        start = f"{{ path=/x ; argv[]=/x -P -m bubbot --home {home.path} run ; }}"
        self.state(programs, scope, FragmentPath=str(file), ExecStart=start)
        text = render_unit(name, python=Path(sys.executable), home=home.path, config=None)
        for fine in (text, read_unit(name)):
            file.write_text(fine)
            assert list(found(examine(home, "service."))) == ["service.ok"]
        file.write_text(text.replace("WatchdogSec=60", "WatchdogSec=90"))
        told = found(examine(home, "service."))["service.differs"]
        assert told.level == "warning"
        assert re.fullmatch(rf"(sudo )?(/\S+/)?bubbot service install {scope} --home {home.path}", told.fix)
        file.unlink()
        assert list(found(examine(home, "service."))) == ["service.ok"]

    @plants("service.other_home")
    def test_one_of_another_home(self, programs: Programs, tmp_path: Path) -> None:
        other = tmp_path / "other"
        for changes in (
            {"ExecStart": f"{{ path=/x ; argv[]=/x -P -m bubbot --home {other} run ; ignore_errors=no }}"},
            {"Environment": f"LANG=C BUBBOT_HOME={other}"},
        ):
            self.state(programs, **changes)
            finding = found(examine(Home(tmp_path), "service."))["service.other_home"]
            assert finding.fix == f"bubbot doctor --home {other}"
        (tmp_path / "link").symlink_to(tmp_path)
        self.state(programs, Environment=f"BUBBOT_HOME={tmp_path / 'link'}")
        assert list(found(examine(Home(tmp_path), "service."))) == ["service.ok"]

    @plants("service.no_linger")
    def test_one_that_ends_with_the_login(self, programs: Programs, tmp_path: Path) -> None:
        self.state(programs, "--user", linger="no")
        assert found(examine(Home(tmp_path), "service."))["service.no_linger"].fix == "loginctl enable-linger"
        self.state(programs, "--system", linger="no")
        assert list(found(examine(Home(tmp_path), "service."))) == ["service.ok"]
