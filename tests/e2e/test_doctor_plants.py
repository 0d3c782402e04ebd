"""What the real doctor says of planted faults: the rows of tests/data/doctor_plants.toml."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.bot import run

ROWS: dict[str, dict[str, Any]] = tomllib.loads(
    (Path(__file__).parents[1] / "data" / "doctor_plants.toml").read_text(encoding="utf-8")
)


def _plant(home: Path, row: dict[str, Any]) -> None:
    home.mkdir(mode=0o700)
    for name, text in {"config.toml": row["config"], **row.get("files", {})}.items():
        file = home / name
        file.parent.mkdir(mode=0o700, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(0o600)
    for words in row.get("commands", []):
        assert run(home, *words).returncode == 0
    for name in row.get("removed", []):
        (home / name).unlink()
    for name, mode in row.get("modes", {}).items():
        (home / name).chmod(int(mode, 8))


@pytest.mark.parametrize("name", ROWS)
def test_the_doctor_finds_what_is_planted_and_says_what_to_do(name: str, tmp_path: Path) -> None:
    row, home = ROWS[name], tmp_path / "home"
    _plant(home, row)
    done = run(home, "doctor", "--offline", "--json", env=row.get("env"))
    findings = json.loads(done.stdout)["findings"]
    wanted = [finding["id"] for finding in row["found"]]
    found = [
        {key: finding[key].replace(str(home), "{home}") for key in ("id", "level", "cause", "fix")}
        for finding in findings
        if finding["level"] != "ok" and finding["id"] in wanted
    ]
    assert found == row["found"]
    assert done.returncode == row["code"]


def test_a_home_without_a_fault_has_no_problem(tmp_path: Path) -> None:
    home = tmp_path / "home"
    _plant(home, {"config": '[model]\nname = "scripted"\n'})
    assert run(home, "doctor", "--offline").returncode == 0
