"""The process is killed between the files of a skill, its folder and its fact: a half copy is never a skill, and a second try ends it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar

import pytest

from bubbot.features.skills.facts import SKILLS_TAPE
from bubbot.features.skills.folder import read_folder
from bubbot.features.skills.library import UNFINISHED
from bubbot.gateway.inbox import inbox_tape
from bubbot.home import Home
from tests.e2e.kill_harness import KILLED, Bench, damage
from tests.skills import write_skill

SIDES = ("before", "after")
ADDED = (
    *(
        f"{place}:{side}#{number}"
        for place, numbers in (("name", 4), ("folder", 1), ("append-skills", 1))
        for side in SIDES
        for number in range(1, numbers + 1)
    ),
)
PROPOSED = (
    *(f"{place}:{side}" for place in ("name", "folder", "append-skills") for side in SIDES),
    *(f"{place}:{side}#{number}" for place in ("merge", "open-fork") for side in SIDES for number in (1, 2)),
)
SAMPLE = ("name:after#2", "folder:before#1", "folder:after#1", "append-skills:after#1")
SAMPLE_PROPOSED = ("folder:before", "folder:after", "append-skills:after", "merge:before#2")


class SkillHome(Bench):
    """A home that gets a skill."""

    CHILD: ClassVar[str] = "tests.e2e.skills_child:run"

    @property
    def facts(self) -> list[str]:
        """The names of the skills that were accepted."""
        if not Home(self.home).database.exists():
            return []
        return [entry.data["name"] for entry in self.entries(SKILLS_TAPE, "skills/installed")]

    def find_faults(self, source: Path | None) -> list[str]:
        """What is half: a folder with the name of a skill that is not whole, or a fact without its folder."""
        root = self.home / "skills"
        standing = [path for path in root.iterdir() if not path.name.startswith(UNFINISHED)] if root.exists() else []
        whole = read_folder(source).digest if source else ""
        faults = [f"{path} is half" for path in standing if source and read_folder(path).digest != whole]
        names = [path.name for path in standing]
        faults += [f"{name} is accepted and not there" for name in self.facts if name not in names]
        faults += [] if len(set(self.facts)) == len(self.facts) else ["a fact is doubled"]
        return faults


def add(folder: Path, point: str) -> None:
    """Add a skill, killed at a point, and again."""
    home = SkillHome(folder / "home")
    source = write_skill(folder, files={"a.md": "a" * 10, "scripts/b.py": "b", "c.md": "c"})
    for each in (point, ""):
        code = home.run([f"add {source}"], each)
        assert code == (KILLED if each else 0), (home.home / "errors").read_text()
        assert home.find_faults(source) == [], point
    assert home.facts == ["pdf-forms"]
    assert asyncio.run(damage(home.home)) == []
    assert [path.name for path in (home.home / "skills").iterdir()] == ["pdf-forms"]


@pytest.mark.parametrize(
    "point", [point if point in SAMPLE else pytest.param(point, marks=pytest.mark.proof) for point in ADDED]
)
def test_a_kill_while_a_skill_is_added_leaves_no_half_one(tmp_path: Path, point: str) -> None:
    add(tmp_path, point)


@pytest.mark.parametrize(
    "point",
    [point if point in SAMPLE_PROPOSED else pytest.param(point, marks=pytest.mark.proof) for point in PROPOSED],
)
def test_a_kill_while_a_proposed_skill_is_written_leaves_one_or_none(tmp_path: Path, point: str) -> None:
    home = SkillHome(tmp_path / "home")
    killed = False
    for each in (point, "", ""):
        told = len(home.entries(inbox_tape("stdin"), "inbox/received")) if Home(home.home).database.exists() else 0
        lines = ["remember how", "yes"][min(told, 2) :]
        code = home.run(lines, each)
        assert code in (0, KILLED), (home.home / "errors").read_text()
        killed |= code == KILLED
        assert home.find_faults(None) == []
    assert killed, "the point was not reached"
    assert home.facts == ["greet"], (home.home / "printed").read_text()
    assert asyncio.run(damage(home.home)) == []
