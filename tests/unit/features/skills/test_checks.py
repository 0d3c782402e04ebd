"""Doctor findings of skills. Each is planted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bubbot.home import Home
from tests.planting import examine, found, look, mend, mends, plants
from tests.skills import shell, switch_on, write_skill

ON = '[skills]\nenabled = true\n[model]\nname = "scripted"\n'


def check(home: Home) -> dict[str, Any]:
    """What is found of skills."""
    return found(examine(home, "skills."))


def test_nothing_is_said_of_what_is_off(home: Home, tmp_path: Path) -> None:
    switch_on(home.path)
    shell(home.path, "add", write_skill(tmp_path))
    home.config.write_text('[model]\nname = "scripted"\n')
    assert check(home) == {}


@plants("skills.ok", "skills.new", "skills.changed", "skills.missing", "skills.unusable")
@mends("skills.missing")
def test_skills_that_are_off(home: Home, tmp_path: Path) -> None:
    switch_on(home.path)
    for name in ("changed", "missing", "unusable", "on"):
        shell(home.path, "add", write_skill(tmp_path / "source", name))
    folder = home.path / "skills"
    (folder / "changed" / "SKILL.md").write_text("---\nname: changed\ndescription: d\n---\nother")
    (folder / "missing").rename(tmp_path / "away")
    (folder / "unusable" / "link").symlink_to("SKILL.md")
    write_skill(folder, "new")
    findings = check(home)
    assert findings["skills.ok"].cause == "Models can use 1 skills of 5."
    assert findings["skills.new"].fix == "bubbot skills show new"
    assert "SKILL.md changed" in findings["skills.changed"].cause
    assert findings["skills.changed"].fix == "bubbot skills show changed"
    assert "has a link, link" in findings["skills.unusable"].cause
    assert findings["skills.unusable"].fix == f"bubbot skills check {folder / 'unusable'}"
    mend(lambda: examine(home, "skills."), "skills.missing", tmp_path, env={"BUBBOT_HOME": str(home.path)})


@plants("skills.folders", "skills.no_folder")
@mends("skills.folders", "skills.no_folder")
def test_folders_that_cannot_be_used(home: Home, tmp_path: Path) -> None:
    for folder, finding in ((tmp_path / "none", "skills.no_folder"), (home.path / "sessions", "skills.folders")):
        switch_on(home.path, folder)
        mend(lambda: look("skills", home), finding, tmp_path, text=ON)
