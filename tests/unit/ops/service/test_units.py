"""The units: what is shipped is what is installed, systemd understands it, and it forbids what it says."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bubbot.app.settings import load
from bubbot.errors import ConfigError
from bubbot.ops.service.render import read_unit, render_unit
from bubbot.ops.service.report import ServiceTiming
from bubbot.settings.loader import Settings
from tests.docs.pages import ROOT

EXIT_DAMAGED = 5
EXIT_REFUSED = 6
EXIT_USAGE = 2


FOLDER = ROOT / "bubbot" / "ops" / "service" / "units"
NAMES = sorted(path.name for path in FOLDER.iterdir())
SERVICES = [name for name in NAMES if name.endswith(".service")]
MOST = {
    "bubbot.service": 1.5,
    "bubbot@.service": 1.5,
    "bubbot-backup.service": 1.0,
    "bubbot-user.service": 6.5,
    "bubbot-backup-user.service": 6.0,
}
"""The exposure that systemd-analyze may find, from 0 to 10."""
ANALYZE = shutil.which("systemd-analyze")
needs_analyze = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
PYTHON = Path("/usr/bin/env")
"""Something that is there and can be run: systemd looks whether it is."""


def analyze(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    assert ANALYZE
    return subprocess.run(
        [ANALYZE, *words], cwd=folder, capture_output=True, text=True, timeout=30, check=False, env={"LC_ALL": "C"}
    )


def test_the_units_to_copy_by_hand_are_those_that_are_installed() -> None:
    folder = ROOT / "systemd"
    assert {path.name: path.read_text() for path in folder.iterdir()} == {name: read_unit(name) for name in NAMES}


def test_the_units_are_part_of_the_package() -> None:
    assert '"ops/service/units/*"' in (ROOT / "pyproject.toml").read_text()


@needs_analyze
def test_systemd_has_nothing_to_say_against_the_units(tmp_path: Path) -> None:
    home = tmp_path / "h o'me%h"
    for name in NAMES:
        if not name.endswith(".sysusers"):
            (tmp_path / name).write_text(render_unit(name, python=PYTHON, home=home, config=home / "a.toml"))
    units = [f"./{name}" for name in NAMES if name.endswith((".service", ".timer"))]
    done = analyze("verify", *units, folder=tmp_path)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")


@needs_analyze
def test_the_check_of_the_units_sees_mistakes(tmp_path: Path) -> None:
    (tmp_path / "bubbot.service").write_text(
        read_unit("bubbot.service").replace("NoNewPrivileges=yes", "NoPrivileges=yes")
    )
    assert "'NoPrivileges'" in analyze("verify", "./bubbot.service", folder=tmp_path).stderr


@needs_analyze
@pytest.mark.parametrize("name", SERVICES)
def test_a_unit_leaves_no_more_open_than_was_measured(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(read_unit(name))
    limit = str(int(MOST[name] * 10))
    done = analyze("security", "--offline=true", f"--threshold={limit}", "--no-pager", f"./{name}", folder=tmp_path)
    assert done.returncode == 0, done.stdout.splitlines()[-1]
    found = re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found
    assert MOST[name] - 0.9 < float(found[1]), "the limit is no limit any more: lower it"


@needs_analyze
@pytest.mark.parametrize("name", ["a b", "100%", "%h", "$HOME", "${HOME}", "a;b", "#a", "ü", "{a}", "*?", "-a"])
def test_systemd_reads_a_path_as_it_was_meant(tmp_path: Path, name: str) -> None:
    (tmp_path / "bubbot.service").write_text(
        render_unit("bubbot-user.service", python=Path("/nowhere", name, "x y"), home=tmp_path, config=None)
    )
    # It names the program it cannot find, as it has read it.
    assert f" /nowhere/{name}/x y is not executable" in analyze("verify", "./bubbot.service", folder=tmp_path).stderr


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/a/b.c-d_e@f", "/a/b.c-d_e@f"),
        ("/a b/it's", '"/a b/it\'s"'),
        ('/a"b/%h', '"/a\\"b/%%h"'),
    ],
)
def test_a_word_of_a_command_is_quoted_where_it_has_to_be(path: str, word: str) -> None:
    unit = render_unit("bubbot-user.service", python=PYTHON, home=Path(path), config=None)
    assert f"--home {word} run\n" in unit


@pytest.mark.parametrize("name", ["a\nExecStartPre=/bin/sh", "a\x1b", "a\\b", "a\udcff", "a "])
def test_a_path_that_systemd_cannot_be_told_of_is_refused(name: str) -> None:
    for paths in ({"python": Path("/a") / name, "home": Path("/h")}, {"python": PYTHON, "home": Path("/h") / name}):
        with pytest.raises(ConfigError, match="systemd cannot be told of the path"):
            render_unit("bubbot.service", **paths, config=None)


def test_quotes_are_refused_where_systemd_has_no_way_to_write_them() -> None:
    with pytest.raises(ConfigError, match="no program with a quote"):
        render_unit("bubbot-user.service", python=Path("/it's"), home=Path("/h"), config=None)
    with pytest.raises(ConfigError, match="both kinds of quotes"):
        render_unit("bubbot.service", python=PYTHON, home=Path('/it\'s "me"'), config=None)


def test_another_home_is_made_writable_instead_of_the_one_of_the_system() -> None:
    text = render_unit("bubbot.service", python=PYTHON, home=Path("/srv/my bot"), config=Path("/etc/bubbot.toml"))
    assert 'ReadWritePaths="/srv/my bot"\n' in text
    assert "WorkingDirectory=/srv/my bot\n" in text
    assert "StateDirectory" not in text
    assert (
        'ExecStart=:/usr/bin/env -X faulthandler -P -m bubbot --home "/srv/my bot" --config /etc/bubbot.toml run\n'
        in text
    )
    assert "ReadWritePaths" not in read_unit("bubbot.service")


def test_what_is_started_again_is_what_may_come_right_by_itself() -> None:
    for name in ("bubbot.service", "bubbot-user.service"):
        assert f"\nRestartPreventExitStatus={EXIT_USAGE} {EXIT_DAMAGED} {EXIT_REFUSED}\n" in read_unit(name)


@pytest.mark.parametrize("name", ["bubbot.service", "bubbot-user.service"])
def test_the_limits_of_the_unit_leave_the_bot_its_own(name: str) -> None:
    times, text = ServiceTiming(), read_unit(name)
    assert "\nTimeoutStartSec=5min\n" in text
    assert times.start_timeout < 5 * 60
    assert "\nTimeoutStopSec=60\n" in text
    # The first request for more comes at once, and each is longer than the pause to the next.
    assert 2 * times.extension_interval <= times.extension < 60
    assert "\nType=notify\nNotifyAccess=main\n" in text


@pytest.mark.parametrize("name", ["bubbot.service", "bubbot-user.service"])
def test_a_reload_signals_the_bot_with_no_other_program_than_the_shell(name: str) -> None:
    (line,) = re.findall(r"^ExecReload=:(.+)$", read_unit(name), re.MULTILINE)
    command = shlex.split(line)
    assert command[:2] == ["/bin/sh", "-c"]
    assert "/" not in command[2], "below it only what the shell has itself"
    code = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP]); print(flush=True); "
    code += "signal.sigwait([signal.SIGHUP])"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as bot:
        assert bot.stdout
        bot.stdout.readline()
        environment = {"MAINPID": str(bot.pid), "PATH": "/nowhere"}
        subprocess.run(command, env=environment, check=True, timeout=30)
        assert bot.wait(timeout=30) == 0, "it got the signal, and was not ended by it"


TENANTS_OWN = {
    "Description", "ExecStart", "User", "Group", "StateDirectory", "RuntimeDirectory", "Environment", "WorkingDirectory",
    "LoadCredential", "TemporaryFileSystem", "BindPaths",
}  # fmt: skip


def keys_of(name: str) -> dict[str, list[str]]:
    """Return what a unit says, by key."""
    found: dict[str, list[str]] = {}
    for line in read_unit(name).splitlines():
        if line and line[0] not in "#[":
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def test_a_tenant_has_its_own_user_home_socket_and_secrets_and_else_the_service_of_the_system() -> None:
    tenant, single = keys_of("bubbot@.service"), keys_of("bubbot.service")
    assert {key for key in tenant | single if tenant.get(key) != single.get(key)} == TENANTS_OWN
    for key in TENANTS_OWN - {"TemporaryFileSystem"}:
        assert all("%i" in value for value in tenant[key]), key
    assert tenant["User"] == tenant["Group"] == tenant["StateDirectory"] == ["bubbot-%i"]
    home = f"/var/lib/{tenant['StateDirectory'][0]}"
    assert tenant["BindPaths"] == tenant["WorkingDirectory"] == [home]
    assert f"--home {home} run" in tenant["ExecStart"][0]
    assert tenant["TemporaryFileSystem"] == ["/var/lib:ro"], "homes of other tenants are not there"
    assert tenant["StateDirectoryMode"] == ["0700"]


def test_the_credentials_of_the_unit_are_names_that_settings_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = re.findall(r"^LoadCredential=([^:\n]+):(.*)$", read_unit("bubbot.service"), re.MULTILINE)
    assert lines
    for name, source in lines:
        # A name and no path: systemd looks in its store, and goes on where there is nothing.
        assert source == f"bubbot.{name}"
        (tmp_path / name).write_text(f"secret of {name}\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    settings = load(home=tmp_path / "home")
    assert isinstance(settings, Settings)
    assert set(settings.secrets()) == {f"secret of {name}" for name, _ in lines}
