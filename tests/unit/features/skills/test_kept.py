"""Facts about skills through erasure, backup, restore and `verify`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bubbot.features.skills.facts import SKILLS_TAPE
from bubbot.tape.query import TapeQuery
from tests.e2e import inside
from tests.skills import shell, skill_bench, switch_on, write_skill
from tests.turns import Played, calls, says

SECRET = "the hedgehog's password"


def bubbot(home: Path, *words: str) -> str:
    """Run a command while no bot runs; it has to end well."""
    done = inside.run(home, *words)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


async def test_an_erased_chat_takes_the_fact_of_the_skill_that_it_proposed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    propose = calls("skill_propose", name="greet", description=f"Say {SECRET}.", body=f"Say {SECRET}.")
    async with skill_bench(home, Played(propose, says("asked"), says("written"))) as bench:
        await bench.add(write_skill(tmp_path))
        await bench.say("remember how", session="other")
        await bench.say(f",approve {bench.card}", session="other")
        assert [fact["name"] for fact in await bench.skill_facts()] == ["pdf-forms", "greet"]
        await bench.say(",reset erase", session="other")
        assert [fact["name"] for fact in await bench.skill_facts()] == ["pdf-forms"]
        rows = {row.name: row.status for row in await bench.service.list_rows()}
        assert rows == {"greet": "new", "pdf-forms": "on"}
        await bench.say(",skills.remove greet")
        assert not (home / "skills" / "greet").exists()
        entries = (await bench.app.store.fetch([TapeQuery(SKILLS_TAPE)]))[0]
        assert SECRET not in str([entry.payload for entry in entries])
    switch_on(home)
    assert "0 altered, 0 missing" in await asyncio.to_thread(bubbot, home, "tape", "verify")
    database = (home / "bubbot.db").read_bytes() + b"".join(path.read_bytes() for path in home.glob("bubbot.db-*"))
    assert SECRET.encode() not in database


async def test_the_chat_of_a_skill_that_an_owner_accepted_may_go(tmp_path: Path) -> None:
    async with skill_bench(tmp_path / "home", Played(says("hello")), folders=[tmp_path / "root"]) as bench:
        write_skill(tmp_path / "root")
        await bench.say(",skills.accept pdf-forms")
        await bench.say(",reset erase")
        assert "pdf-forms  on" in (await bench.say(",skills")).text


def test_a_restored_home_knows_its_skills_and_has_them_off_until_they_are_there_as_they_were(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    switch_on(home)
    shell(home, "add", write_skill(tmp_path, files={"a.md": "one\n"}), "--mine")
    bubbot(home, "backup", str(tmp_path / "backup"))
    bubbot(other, "restore", str(tmp_path / "backup"))
    bubbot(other, "restore", "--release")
    assert "off, missing" in shell(other, "list")
    (other / "skills").mkdir()
    (home / "skills" / "pdf-forms").rename(other / "skills" / "pdf-forms")
    assert "pdf-forms  on" in shell(other, "list")
    (other / "skills" / "pdf-forms" / "a.md").write_text("two\n")
    assert "-one\n+two" in shell(other, "show", "pdf-forms"), "what was accepted is in the backup"
    assert "0 altered, 0 missing" in bubbot(other, "tape", "verify")
