"""Checks of installed features: they run with their own settings, and one that fails names its package."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubbot.home import Home
from bubbot.stores.sqlite.store import SqliteStore
from tests.doubles import START
from tests.installed import installed
from tests.planting import examine, write
from tests.tapes import batch, note

pytestmark = pytest.mark.usefixtures("no_plugins", "no_systemd")
FEATURE = """
import asyncio
import sys
from pydantic import Field
from bubbot.feature import Feature, FeatureFactory
from bubbot.ports.checks import Check, Finding
from bubbot.ports.settings import SettingsSection

class PotSettings(SettingsSection):
    depth: int = Field(default=5, description="How deep.")

async def check_depth(home):
    return [Finding("pots.depth", "ok", f"{home.settings.depth} {home.home.name} {home.config.name} {home.now():%Y}")]

async def check_tapes(home):
    async with home.open_tape("pots/log") as tape:
        return [Finding("pots.tape", "ok", f"{await tape.head()} {home.settings is None}")]

async def check_exit(home):
    sys.exit(3)

async def check_odd(home):
    return ["fine"]

async def check_slow(home):
    await asyncio.Event().wait()

CHECKS = [
    Check("the depth", check_depth),
    Check("the exit", check_exit),
    Check("the odd", check_odd),
    Check("the slow", check_slow),
    Check("the tapes", check_tapes, reads_tapes=True, needs_settings=False),
]
FACTORY = FeatureFactory("pots", lambda kernel, settings: Feature(name="pots"), PotSettings, checks=CHECKS)
"""


async def write_note(store: SqliteStore) -> None:
    await store.append([batch(note("a"))])


@pytest.fixture
def pots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "packages"
    installed(folder, "bubbot-pots", "1.0", "[bubbot.features]\npots = own_pots:FACTORY\n")
    (folder / "own_pots.py").write_text(FEATURE)
    monkeypatch.syspath_prepend(folder)


@pytest.mark.usefixtures("pots")
def test_those_without_tapes_run_once_the_settings_are_loaded(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bubbot.ops.doctor.features.PACKAGE_TIMEOUT_SECONDS", 0.2)
    home.config.write_text("[pots]\ndepth = 7\n")
    (made,) = examine(home, "pots.")  # and no `pots.tape`: there is no entry yet
    assert (made.id, made.cause) == ("pots.depth", f"7 home config.toml {START:%Y}")
    home.config.write_text("[pots]\ndeep = 7\n")
    assert examine(home, "pots.") == []


@pytest.mark.usefixtures("pots")
@pytest.mark.parametrize("config", ["", "[bot]\nnmae = 1\n"])
def test_those_of_tapes_open_them_to_read(home: Home, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bubbot.ops.doctor.features.PACKAGE_TIMEOUT_SECONDS", 0.2)
    home.config.write_text(config)
    write(home, write_note)
    (finding,) = examine(home, "pots.tape")
    assert finding.cause == f"0 {config != ''}"


@pytest.mark.usefixtures("pots")
def test_one_that_fails_is_a_finding_that_names_its_package(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bubbot.ops.doctor.features.PACKAGE_TIMEOUT_SECONDS", 0.01)
    made = examine(home, "pots.", "doctor.")
    assert [one.id for one in made] == ["pots.depth", *["doctor.failed"] * 3]
    reasons = [one.cause.rpartition("unknown: ")[2] for one in made[1:]]
    assert reasons == ["SystemExit: 3.", "TypeError: it returned str, not a Finding.", "TimeoutError: no reason."]
    for one in made[1:]:
        assert "(the feature 'pots' of the package bubbot-pots) failed" in one.cause
        assert one.fix.endswith("-m pip install --upgrade bubbot-pots")
