"""A home that the product recorded on 2026-11-29: later versions open it, verify it and load its states."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from bubbot.home import Home
from bubbot.stores.sqlite.store import open_readonly
from bubbot.tape.entry import encode
from bubbot.tape.projection import read_projection
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, SteppingClock
from tests.e2e import inside
from tests.golden.recording import PROJECTIONS, read_tapes

ARCHIVE = Path(__file__).parents[1] / "data" / "homes" / "2026-11-29" / "home.tar.xz"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    with tarfile.open(ARCHIVE) as packed:
        packed.extractall(folder, filter="data")
    return folder


def test_all_its_tapes_are_verified(home: Path) -> None:
    done = inside.run(home, "tape", "verify")
    assert done.returncode == 0, done.stdout + done.stderr


async def test_each_state_from_its_checkpoint_is_that_from_the_beginning(home: Path) -> None:
    store = await open_readonly(Home(home).database)
    try:
        tapes = await read_tapes(store)
        seen = set()
        for projection in PROJECTIONS:
            for name in filter(projection.reads, tapes):
                entries = (await store.fetch([TapeQuery(name)]))[0]
                assert any(entry.name == projection.checkpoint_name for entry in entries)
                tape = TapeService(store, name, now=SteppingClock(), new_id=CountingIds())
                loaded = await read_projection(projection, tape)
                facts = [entry for entry in entries if projection.selects(entry)]
                folded = projection.apply(projection.initial(), facts)
                assert encode(projection.encode(loaded)) == encode(projection.encode(folded)), (
                    f"{projection.name} {name}"
                )
                seen.add(projection.name)
        assert seen == {each.name for each in PROJECTIONS}
    finally:
        await store.aclose()


@pytest.mark.parametrize("session", ["tg:1", "tg:5"])
def test_its_recorded_requests_are_built_again_without_a_difference(home: Path, session: str) -> None:
    done = inside.run(home, "replay", session, "--json")
    assert done.returncode == 1, done.stderr  # the tools of the recorded bot are not those of this one
    steps = json.loads(done.stdout)["steps"]
    assert steps
    assert [step["entry"] for step in steps if step["recorded"] != "equal"] == []


def test_the_doctor_finds_nothing_wrong(home: Path) -> None:
    done = inside.run(home, "doctor", "--offline")
    assert done.returncode == 0, done.stdout + done.stderr
