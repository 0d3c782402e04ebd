"""What `make dist` builds: the same bytes each time, everything in it, and an installation by each way."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from packaging.requirements import Requirement

from bubbot import __version__
from tests.docs.pages import ROOT

CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("BUBBOT_", "SOURCE_DATE", "XDG_"))}


def build(folder: Path, root: Path = ROOT, **env: str) -> dict[str, str]:
    """Build into a folder; give the digest of each file."""
    subprocess.run(
        [sys.executable, root / "requirements" / "dist.py", folder],
        env={**CLEAN, **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=True,
    )
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built folder."""
    build(folder := tmp_path_factory.mktemp("dist"))
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(next(dist.glob("*.whl")))


@pytest.mark.proof
def test_two_builds_give_the_same_bytes_from_any_place_under_any_mask(dist: Path, tmp_path: Path) -> None:
    clone = tmp_path / "elsewhere"
    os.umask(mask := os.umask(0o077))
    try:
        os.umask(0o077)
        shutil.copytree(
            ROOT,
            clone,
            ignore=shutil.ignore_patterns(".venv*", "__pycache__", ".*_cache", ".hypothesis"),
        )
        again = build(tmp_path / "again", clone, TZ="Asia/Tokyo", LC_ALL="C")
    finally:
        os.umask(mask)
    assert again == {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in dist.iterdir()}


@pytest.mark.proof
def test_the_sdist_builds_the_same_wheel(dist: Path, tmp_path: Path) -> None:
    packed = next(dist.glob("*.tar.gz"))
    shutil.unpack_archive(packed, tmp_path)
    with tarfile.open(packed) as archive:
        date = str(archive.getmembers()[0].mtime)
    source = next(tmp_path.iterdir())
    code = "from setuptools import build_meta; build_meta.build_wheel('.')"
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=source,
        env={**CLEAN, "SOURCE_DATE_EPOCH": date, "PYTHONHASHSEED": "0"},
        capture_output=True,
        check=True,
    )
    assert next(source.glob("*.whl")).read_bytes() == next(dist.glob("*.whl")).read_bytes()


def test_the_wheel_has_everything_that_is_no_module(wheel: zipfile.ZipFile) -> None:
    names = {re.sub(r"^[^/]+\.data/(data/)?", "", name) for name in wheel.namelist()}
    assert {
        "scripts/bubbot",
        "share/man/man1/bubbot.1",
        "bubbot/sandbox/requirements.txt",
        "bubbot/features/usage/requirements.txt",
        "bubbot/features/otel/requirements.txt",
        "bubbot/models/embeddings/requirements.txt",
        "bubbot/features/web/requirements.txt",
        "bubbot/models/local/requirements.txt",
        "bubbot/ops/onboarding/config.example.toml",
        "bubbot/ops/service/units/bubbot.service",
    } <= names
    modules = {
        file.relative_to(ROOT).as_posix() for top in ("bubbot", "channels") for file in (ROOT / top).rglob("*.py")
    }
    assert modules <= names
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {
        "bubbot",
        "channels",
        "scripts",
        "share",
    }


def test_the_constraints_are_the_locked_versions(dist: Path) -> None:
    lock = re.findall(
        r"^([\w.-]+==\S+)", (ROOT / "requirements" / "base.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    lines = (dist / "constraints.txt").read_text(encoding="utf-8").splitlines()[1:]
    assert [str(Requirement(line)).partition(";")[0].strip() for line in lines] == lock
    assert all("--hash" not in line for line in lines)


def test_the_requirements_are_the_lock_with_its_hashes(dist: Path) -> None:
    text = (dist / "requirements.txt").read_text(encoding="utf-8")
    assert text == (ROOT / "requirements" / "base.txt").read_text(encoding="utf-8")
    assert "--only-binary :all:" in text.splitlines()
    assert text.count("==") <= text.count("--hash=sha256:")


@pytest.mark.proof
def test_what_the_wheel_installs_runs(dist: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as archive:
        archive.extractall(place)
    environment = {
        **CLEAN,
        "PYTHONPATH": str(place),
        "BUBBOT_HOME": str(tmp_path / "home"),
        "BUBBOT_MODEL__NAME": "scripted",
    }

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "bubbot", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    where = subprocess.run(
        [sys.executable, "-c", "import bubbot; print(bubbot.__file__)"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(place))
    assert run("ask", "hello") == "You said: hello\n"
    assert "complete -F" in run("completion", "bash")
    assert "demonstration model" in run("model", "install", "--dry-run") or "would run" in run(
        "model", "install", "--dry-run"
    )
    assert "ExecStart" in run("service", "install", "--user", "--dry-run")


def make_wheel(folder: Path, name: str, version: str, *metadata: str, file: str = "") -> Path:
    """Make a wheel with one module of its name, and perhaps a further file."""
    path, information = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": "",
        f"{information}/METADATA": "\n".join(
            ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *metadata]
        ),
        f"{information}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if file:
        files[file] = ""
    record = f"{information}/RECORD"
    with zipfile.ZipFile(path, "w") as archive:
        for inner, text in files.items():
            archive.writestr(inner, text)
        archive.writestr(record, "".join(f"{inner},,\n" for inner in [*files, record]))
    return path


class TestInstallScript:
    """`install.sh`, with programs that only print what they are told in the place of uv and pipx."""

    def run(
        self,
        dist: Path,
        folder: Path,
        *arguments: str,
        programs: tuple[str, ...] = (),
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> subprocess.CompletedProcess[str]:
        tools = folder / "tools"
        tools.mkdir(exist_ok=True)
        for name in ("sh", "sed", "cat", "dirname", "basename", "readlink", "mkdir", "ln", "rm"):
            if not (tools / name).exists():
                (tools / name).symlink_to(shutil.which(name) or name)
        for name in ("uv", "pipx"):
            (tools / name).unlink(missing_ok=True)
            if name in programs:
                (tools / name).write_text(
                    f'#!/bin/sh\ncase $1 in tool|environment|list) : ;; esac\necho "{name} $*" >> "$LOG"\n'
                )
                (tools / name).chmod(0o755)
        environment = {"PATH": str(tools), "HOME": str(folder), "LOG": str(folder / "log"), "PYTHON": sys.executable}
        environment.update(env)
        return subprocess.run(
            ["sh", dist / "install.sh", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @pytest.mark.parametrize(
        ("programs", "wanted"),
        [
            (
                ("uv", "pipx"),
                "+ uv tool install --force --python {python} --no-index --no-build --find-links {packages} {wheel}",
            ),
            (
                ("pipx",),
                "+ pipx install --force --python {python} --pip-args=--no-index --find-links '{packages}' {wheel}",
            ),
            ((), "/bubbot-venv/bin/python -m pip install --disable-pip-version-check {checked}"),
        ],
    )
    def test_it_takes_what_is_there_and_a_dry_run_changes_nothing(
        self, dist: Path, tmp_path: Path, programs: tuple[str, ...], wanted: str
    ) -> None:
        done = self.run(dist, tmp_path, "--dry-run", programs=programs)
        assert done.returncode == 0, done.stderr
        packages = tmp_path / ".local" / "share" / "bubbot-packages" / "packages"
        checked = f"--no-deps --require-hashes -r {dist}/requirements.txt"
        named = {"python": sys.executable, "packages": packages, "checked": checked, "wheel": next(dist.glob("*.whl"))}
        assert wanted.format(**named) in done.stdout
        download = f"-m pip download --disable-pip-version-check --no-deps --require-hashes --dest {packages}"
        assert (download in done.stdout) is bool(programs)
        log = (tmp_path / "log").read_text() if (tmp_path / "log").exists() else ""
        assert " install" not in log
        assert {path.name for path in tmp_path.iterdir()} <= {"tools", "log"}

    @pytest.mark.proof
    @pytest.mark.parametrize(
        ("way", "offered"),
        [
            *(("venv", offered) for offered in ("as locked", "with a file more", "as a source")),
            *(("uv", offered) for offered in ("as locked", "with a file more")),
            ("pipx", "with a file more"),
        ],
    )
    def test_only_built_packages_with_their_hashes_are_installed(
        self, dist: Path, tmp_path: Path, way: str, offered: str
    ) -> None:
        """It runs what it prints, with a bubbot that needs one package, from a folder."""
        release, folder = tmp_path / "release", tmp_path / "offered"
        for made in (release, folder):
            made.mkdir()
        shutil.copy(dist / "install.sh", release)
        locked = make_wheel(folder, "helper", "1.0")
        digest = hashlib.sha256(locked.read_bytes()).hexdigest()
        (release / "requirements.txt").write_text(f"--only-binary :all:\nhelper==1.0 --hash=sha256:{digest}\n")
        make_wheel(release, "bubbot", "0.0.2", "Requires-Dist: helper")
        if offered == "with a file more":
            make_wheel(folder, "helper", "1.0", file="planted.py")
        elif offered == "as a source":
            locked.unlink()
            with tarfile.open(folder / "helper-1.0.tar.gz", "w:gz") as archive:
                archive.add(release / "install.sh", "helper-1.0/setup.py")
        env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}
        done = self.run(release, tmp_path, "--with", way, programs=("uv", "pipx"), env=env)
        log = (tmp_path / "log").read_text() if (tmp_path / "log").exists() else ""
        is_installed = bool([*tmp_path.rglob("site-packages/helper.py")]) if way == "venv" else " install " in log
        assert (done.returncode == 0, is_installed) == (offered == "as locked",) * 2, done.stderr
        assert ("Run this script again to upgrade" in done.stdout) is (offered == "as locked")
        assert not (tmp_path / ".local" / "share" / "bubbot-packages").exists()
        assert [*tmp_path.rglob("planted.py")] == []

    @pytest.mark.parametrize(
        ("arguments", "code", "told"),
        [
            (("--with", "uv"), 1, "there is no uv here"),
            (("--with", "conda"), 2, "--with takes uv, pipx or venv"),
            (("--with",), 2, "--with takes uv, pipx or venv"),
            (("--nothing",), 2, "unknown option --nothing"),
        ],
    )
    def test_what_it_cannot_do_is_one_sentence(
        self, dist: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, told: str
    ) -> None:
        done = self.run(dist, tmp_path, *arguments)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1)
        assert told in done.stderr

    def test_without_a_wheel_beside_it(self, dist: Path, tmp_path: Path) -> None:
        shutil.copy(dist / "install.sh", tmp_path)
        done = self.run(tmp_path, tmp_path)
        assert done.returncode == 1
        assert "one bubbot-*.whl beside this file" in done.stderr

    def test_nothing_to_remove_is_no_failure(self, dist: Path, tmp_path: Path) -> None:
        done = self.run(dist, tmp_path, "--uninstall")
        assert (done.returncode, done.stderr) == (0, "")
        assert "nothing to remove" in done.stdout

    def test_a_plain_environment_is_removed_with_its_links_and_nothing_else(self, dist: Path, tmp_path: Path) -> None:
        data, links = tmp_path / ".local" / "share", tmp_path / ".local" / "bin"
        (data / "bubbot-venv" / "bin").mkdir(parents=True)
        (data / "bubbot").mkdir()
        links.mkdir()
        (links / "bubbot").symlink_to(data / "bubbot-venv" / "bin" / "bubbot")
        (links / "other").symlink_to(data / "bubbot")
        assert self.run(dist, tmp_path, "--uninstall").returncode == 0
        assert [path.name for path in data.iterdir()] == ["bubbot"]
        assert [path.name for path in links.iterdir()] == ["other"]

    def test_shellcheck_finds_nothing(self) -> None:
        if shutil.which("shellcheck") is None:
            pytest.skip("there is no shellcheck here")
        done = subprocess.run(
            ["shellcheck", "--shell=sh", ROOT / "install.sh"], capture_output=True, text=True, check=False
        )
        assert done.stdout == ""


@pytest.fixture(scope="module")
def wheels(dist: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels of everything that is installed: that of the variable WHEELS; the proof downloads it."""
    if given := os.environ.get("WHEELS"):
        return Path(given)
    if not request.config.getoption("--proof"):
        pytest.skip("WHEELS names no folder of wheels; the proof downloads one")
    folder = tmp_path_factory.mktemp("wheels")
    local = ROOT / "bubbot" / "models" / "local" / "requirements.txt"
    for locked in (dist / "requirements.txt", local):
        where = ("--dest", folder, "-r", locked)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *where], check=True)
    return folder


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built folder of the version before."""
    clone, folder = tmp_path_factory.mktemp("older") / "clone", tmp_path_factory.mktemp("older-dist")
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(".venv*", "__pycache__"))
    for name in ("pyproject.toml", "bubbot/__init__.py"):
        text = (clone / name).read_text(encoding="utf-8")
        (clone / name).write_text(text.replace(f'version__ = "{__version__}"', 'version__ = "0.0.1"').replace(
            f'version = "{__version__}"', 'version = "0.0.1"'
        ), encoding="utf-8")  # fmt: skip
    build(folder, clone)
    return folder


@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", ["uv", "pipx", "venv"])
def test_installed_from_a_folder_of_wheels_it_answers_is_upgraded_and_is_removed(
    dist: Path, wheels: Path, older: Path, tmp_path: Path, way: str, request: pytest.FixtureRequest
) -> None:
    """Nothing is downloaded; needs the tool on the PATH."""
    if way != "venv" and shutil.which(way) is None:
        missing = pytest.fail if request.config.getoption("--proof") else pytest.skip
        missing(f"there is no {way} here: install it for the proof")
    environment = {
        **CLEAN,
        "HOME": str(tmp_path),
        "PATH": f"{tmp_path}/.local/bin:{CLEAN['PATH']}",
        "PYTHON": sys.executable,
        "UV_PYTHON": sys.executable,
        "PIPX_DEFAULT_PYTHON": sys.executable,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "UV_OFFLINE": "1",
        "UV_FIND_LINKS": str(wheels),
    }

    def run(*command: str | Path, lines: str = "", **env: str) -> str:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**environment, **env},
            input=lines,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    bubbot = tmp_path / ".local" / "bin" / "bubbot"
    run("sh", older / "install.sh", "--with", way)
    assert run(bubbot, "--version") == "bubbot 0.0.1\n"
    assert run(bubbot, "ask", "hello", BUBBOT_MODEL__NAME="scripted") == "You said: hello\n"
    run(bubbot, "model", "install")
    run("sh", dist / "install.sh")  # finds the way again; what was said stays, and the model
    assert run(bubbot, "--version") == f"bubbot {__version__}\n"
    assert "message user: hello" in run(bubbot, "tape", "show", "default", "--kinds", "message")
    assert "is installed" in run(bubbot, "model", "install", "--dry-run")
    assert "Paris" in run(bubbot, "ask", "--session", "other", "What is the capital of France?")
    assert "You said: and now?" in run(bubbot, "chat", lines="and now?\n", BUBBOT_MODEL__NAME="scripted")
    assert f"{tmp_path}/.local/share" in run(bubbot, "service", "install", "--user", "--dry-run")
    run("sh", dist / "install.sh", "--uninstall")
    assert not bubbot.exists()
    assert (tmp_path / ".local" / "share" / "bubbot" / "bubbot.db").exists()
