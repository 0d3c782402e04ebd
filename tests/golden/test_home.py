"""A home that the product recorded on 2026-11-29 and that was killed then: later versions open it and go on with it."""

from __future__ import annotations

import asyncio
import json
import re
import tarfile
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bubbot.home import Home
from bubbot.stores.sqlite.store import open_readonly
from bubbot.tape.entry import TapeEntry, encode
from bubbot.tape.projection import read_projection
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, SteppingClock
from tests.e2e import inside
from tests.golden.recording import PROJECTIONS, read_tapes
from tests.golden.scenario import MEMBER, OWNER
from tests.golden.stage import Stage

ARCHIVE = Path(__file__).parents[1] / "data" / "homes" / "2026-11-29" / "home.tar.xz"
HELD = (
    "tape/archived", "tape/erased", "blob/removed", "correction", "inbox/changed", "agent/started", "agent/ended", "memory.daily",
    "memory.long_term", "schedule/added", "topics/bound", "file/changed", "attachment/failed", "access/linked",
    "approval.granted", "approval.opened", "turn/joined", "provenance/vouched",
)  # fmt: skip
"""Some of the events that the home is to hold."""


RENEWED_TOOLS = {"tape_search"}
"""The tools whose arguments changed since: their requests differ in nothing else."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    options: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.4 has it
    with tarfile.open(ARCHIVE) as packed:
        packed.extractall(folder, **options)
    return folder


async def read_home(home: Path) -> tuple[Mapping[str, Sequence[TapeEntry]], int]:
    """Return all entries by tape, and the number of open forks."""
    store = await open_readonly(Home(home).database)
    try:
        tapes = await read_tapes(store)
        return tapes, sum([len(await store.forks(name)) for name in tapes])
    finally:
        await store.aclose()


def test_all_its_tapes_are_verified(home: Path) -> None:
    done = inside.run(home, "tape", "verify")
    assert done.returncode == 0, done.stdout + done.stderr


async def test_it_holds_an_open_fork_a_pending_intent_and_what_else_a_home_has(home: Path) -> None:
    tapes, forks = await read_home(home)
    names = {entry.name for entries in tapes.values() for entry in entries}
    assert [name for name in HELD if name not in names] == []
    assert forks == 1
    outbox = tapes["bubbot/outbox/dc"]
    ended = {entry.data["intent"] for entry in outbox if entry.name in ("outbox/receipt", "outbox/ended")}
    assert len([entry for entry in outbox if entry.name == "outbox/intent" and entry.id not in ended]) == 1
    kinds = {kind for kind in ("memory/user/", "memory/workspace") if any(kind in name for name in tapes)}
    assert len(kinds) == 2
    assert "notes.txt" in "".join(encode(entry.payload) for entry in tapes["bubbot/inbox/tg"])


async def test_each_state_from_its_checkpoint_is_that_from_the_beginning(home: Path) -> None:
    store = await open_readonly(Home(home).database)
    try:
        tapes = await read_tapes(store)
        seen = set()
        for projection in PROJECTIONS:
            for name in filter(projection.reads, tapes):
                entries = (await store.fetch([TapeQuery(name)]))[0]
                checkpoint = [entry for entry in entries if entry.name == projection.checkpoint_name][-1]
                if checkpoint.data["version"] == projection.version:
                    saved, cited = checkpoint.data["state"], set(projection.cited_ids(checkpoint.data["state"]))
                    decoded = projection.decode(saved, [entry for entry in entries if entry.id in cited])
                    assert encode(projection.encode(decoded)) == encode(saved), f"{projection.name} {name}"
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


@pytest.mark.parametrize("session", [OWNER, MEMBER, "dc:15"])
def test_its_recorded_requests_are_built_again_without_a_difference(home: Path, session: str) -> None:
    done = inside.run(home, "replay", session, "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    steps = json.loads(done.stdout)["steps"]
    assert steps
    assert [step["entry"] for step in steps if step["recorded"] != "equal" or set(step["differs"]) - {"tools"}] == []
    changed = {step["first"].partition('"name":"')[2].partition('"')[0] for step in steps if step["differs"]}
    assert changed == RENEWED_TOOLS


def test_the_doctor_finds_what_the_kill_left_open(home: Path) -> None:
    done = inside.run(home, "doctor", "--offline")
    assert done.returncode == 0, done.stdout + done.stderr
    assert b"turn.stuck" in done.stdout
    assert b"delivery.stuck" in done.stdout


async def test_a_start_merges_the_fork_answers_and_delivers(home: Path) -> None:
    tapes, _ = await read_home(home)
    newest = max(entry.date for entries in tapes.values() for entry in entries)
    stage = Stage(home, as_found=True, lives=1)
    stage.clock.moment = datetime.fromisoformat(newest) + timedelta(minutes=1)
    sent: list[str] = []

    async def note(channel: str, _part: object) -> None:
        sent.append(channel)

    stage.before_sending = note
    async with asyncio.timeout(60), stage.life():
        assert sent.count("dc") == 1
        assert sent.count("tg") >= 1
        grants = await stage.say(OWNER, ",approvals")
        assert re.search(r"shell\.run", grants), grants
        card = stage.find(r"\b[2-9A-HJ-NP-Z]{5}\b")
        await stage.say(OWNER, f",deny {card}")
    now, forks = await read_home(home)
    assert forks == 0
    new = [entry.name for name, entries in now.items() for entry in entries[len(tapes.get(name, ())) :]]
    assert {"turn/interrupted", "inbox/interrupted", "outbox/receipt", "inbox/done", "approval.decided"} <= set(new)
    assert (await asyncio.to_thread(inside.run, home, "tape", "verify")).returncode == 0
