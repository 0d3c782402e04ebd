"""The programs of skills in real sandboxes: their folder can be read there and nothing of it written, and no other skill is there."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bubbot.features.shell.service import ShellService
from bubbot.features.shell.settings import ShellSettings
from bubbot.features.skills.feature import SkillsFeature
from bubbot.features.skills.settings import SkillsSettings
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.service import TapeService
from tests.callers import by, run
from tests.doubles import CountingIds, SteppingClock
from tests.kernels import make_kernel
from tests.made_settings import make_settings
from tests.sandboxes import require
from tests.skills import write_skill


@pytest.mark.parametrize("name", ["bwrap", "landlock"])
async def test_a_program_reads_its_skill_and_changes_nothing_of_it(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, memory_store: InMemoryStore
) -> None:
    require(name, request)
    home = tmp_path / "home"
    home.mkdir()
    kernel = make_kernel(
        home=home,
        open_tape=lambda name: TapeService(memory_store, name, now=SteppingClock(), new_id=CountingIds(), session=""),
    )
    skills = SkillsFeature(kernel, make_settings(SkillsSettings(enabled=True)), can_run=lambda _: True)
    service = skills._find_service()
    script = "echo filled; cat $1/data.txt; echo x > $1/data.txt; touch $1/new; ls $2"
    for each in ("pdf-forms", "letters"):
        await run(
            service.add,
            by("terminal"),
            str(write_skill(tmp_path, each, files={"fill.sh": script, "data.txt": "data\n"})),
        )
    own, other = home / "skills" / "pdf-forms", home / "skills" / "letters"
    shell = ShellService(
        ShellSettings.model_validate({"enabled": True, "sandbox": name}), home, time.monotonic, skills.list_programs
    )
    done = await shell.run("test:home", ["sh", str(own / "fill.sh"), str(own), "/nowhere"])
    assert "filled\ndata\n" in done.output, done.output
    assert sorted(path.name for path in own.iterdir()) == ["SKILL.md", "data.txt", "fill.sh"]
    assert (own / "data.txt").read_text() == "data\n"
    hidden = await shell.run("test:home", ["ls", str(home / "skills")])
    assert "letters" not in hidden.output or hidden.end.status != 0
    assert hidden.end.status != 0, "no skill is named, and none is there"
    assert list(await skills.list_programs([f"cd {own}; ls"])) == [str(own)]
    assert await skills.list_programs([f"{own}-2/run.sh", "ls"]) == {}
    (own / "fill.sh").write_text("echo changed")
    changed = await shell.run("test:home", ["sh", str(own / "fill.sh")])
    assert changed.end.status != 0
    assert "changed" not in changed.output
    assert "fill.sh" in (await shell.run("test:home", ["ls", str(other)])).output
