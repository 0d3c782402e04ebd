"""What a recorded run stored: the payload texts of its events, and the checkpoints of its projections."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bubbot.app.events import OWN_REFERENCES
from bubbot.features.access.state import ACCESS_PROJECTION
from bubbot.features.approvals.state import APPROVALS_PROJECTION
from bubbot.features.budget.state import BUDGET_PROJECTION, RATES_PROJECTION
from bubbot.features.schedule.state import SCHEDULE_PROJECTION
from bubbot.gateway.inbox_views import INBOX_PROJECTION, MIGRATIONS_PROJECTION
from bubbot.gateway.outbox_views import OUTBOX_PROJECTION
from bubbot.home import Home
from bubbot.stores.sqlite.store import open_store
from bubbot.tape.entry import Kind, TapeEntry, encode
from bubbot.tape.handle import Clock
from bubbot.tape.projection import ProjectedTape, Projection
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from tests.doubles import CountingIds, CountingSalt
from tests.golden import scenario
from tests.golden.stage import Stage

DATA = Path(__file__).parents[1] / "data" / "golden"
PROJECTIONS: Sequence[Projection[Any]] = (
    ACCESS_PROJECTION,
    APPROVALS_PROJECTION,
    BUDGET_PROJECTION,
    RATES_PROJECTION,
    SCHEDULE_PROJECTION,
    INBOX_PROJECTION,
    MIGRATIONS_PROJECTION,
    OUTBOX_PROJECTION,
)
"""All projections with checkpoints: that of the shared memory has none, they would hold words of people."""
DECLARED = (*OWN_REFERENCES.events,)
"""The names of all events of the product."""
CHECKPOINTS = [projection.checkpoint_name for projection in PROJECTIONS]
"""Events that are recorded as checkpoints: how many a run writes, and where, is nobody's promise."""
ELAPSED = re.compile(r'"((?:elapsed|first_text|started)_ms)":\d+')
"""What no fixed clock decides."""
HASH = re.compile(r'("sha256":"|"head":"\d+:)[0-9a-f]{64}"')
"""Hashes over that."""
RESTORED = re.compile(r'("head":"|"intents":|"inbounds":)\d+')
"""How much was stored, or open, when a home was backed up."""


@dataclass(frozen=True)
class Recording:
    """What a run stored.

    Attributes:
        events: payload texts, by the name of the event.
        checkpoints: payload texts, by the name of the projection and the tape.
        encoded: the states of the same checkpoints, read and written again.
    """

    events: Mapping[str, Sequence[str]]
    checkpoints: Mapping[str, str]
    encoded: Mapping[str, str]


async def record(folder: Path) -> Recording:
    """Let everything happen in a new home in this folder, and return what was stored."""
    home = folder / "home"
    home.mkdir()
    stage = Stage(home)
    await scenario.run(stage)
    return await write_checkpoints(stage)


async def write_checkpoints(stage: Stage) -> Recording:
    """Write a checkpoint of each projection in the home of a stage without a bot, and return all that is stored there."""
    with stage.fixed():
        store = await open_store(Home(stage.home).database, salt=CountingSalt(), now=stage.clock)
        try:
            return await _read_recording(store, stage.clock)
        finally:
            await store.aclose()


async def _read_recording(store: TapeStore, now: Clock) -> Recording:
    events = find_events(await read_tapes(store))
    checkpoints: dict[str, str] = {}
    encoded: dict[str, str] = {}
    for projection in PROJECTIONS:
        for name in sorted(tape.name for tape in await store.tapes()):
            if projection.reads(name):
                tape = TapeService(store, name, now=now, new_id=CountingIds(), references=OWN_REFERENCES)
                await ProjectedTape(projection, tape).write_checkpoint(force=True)
                query = TapeQuery(name, kinds=(Kind.EVENT,), names=(projection.checkpoint_name,), newest=True, limit=1)
                ((entry,),) = await store.fetch([query])
                data = entry.payload["data"]
                key = f"{projection.name} {name}"
                checkpoints[key] = encode(entry.payload)
                cited = set(projection.cited_ids(data["state"]))
                (entries,) = await store.fetch([TapeQuery(name)])
                state = projection.decode(data["state"], [each for each in entries if each.id in cited])
                again = {"name": entry.name, "data": {**data, "state": projection.encode(state)}}
                encoded[key] = encode(again)
    return Recording(events, checkpoints, encoded)


def load_expected() -> Recording:
    """Return what was recorded, with the changes that `changes.toml` lists."""
    events = json.loads((DATA / "events.json").read_text())["events"]
    checkpoints = json.loads((DATA / "checkpoints.json").read_text())
    for change in tomllib.loads((DATA / "changes.toml").read_text()).get("change", ()):
        assert change["reason"].strip(), f"the change of {change['name']} has no reason"
        kind = checkpoints if change["name"] in checkpoints else events
        kind[change["name"]] = change["value"]
    events = {name: [_fix(text) for text in texts] for name, texts in events.items()}
    return Recording(events, checkpoints, checkpoints)


def list_unrecorded() -> Mapping[str, str]:
    """Return why some events are not recorded, by their names."""
    reasons: Mapping[str, str] = json.loads((DATA / "events.json").read_text())["unrecorded"]
    return reasons


def write(recording: Recording, unrecorded: Mapping[str, str]) -> None:
    """Keep a recording as what is expected."""
    DATA.mkdir(parents=True, exist_ok=True)
    names = [name for name in DECLARED if name not in recording.events and name not in CHECKPOINTS]
    missing = {name: unrecorded.get(name, "") for name in names}  # write a reason for each new one
    _write_json("events.json", {"unrecorded": missing, "events": recording.events})
    _write_json("checkpoints.json", recording.checkpoints)


def _write_json(name: str, value: object) -> None:
    (DATA / name).write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")


async def read_tapes(store: TapeStore) -> Mapping[str, Sequence[TapeEntry]]:
    """Return all entries of a store, by tape."""
    names = sorted(tape.name for tape in await store.tapes())
    return {name: (await store.fetch([TapeQuery(name)]))[0] for name in names}


def find_events(tapes: Mapping[str, Sequence[TapeEntry]]) -> dict[str, list[str]]:
    """Return the payload texts of the events, by their names: of each shape the first one.

    The shape of a payload is the order of its keys, and the kinds of its values.
    """
    found: dict[str, dict[str, str]] = {}
    for entries in tapes.values():
        for entry in entries:
            if entry.kind == Kind.EVENT and entry.name and not entry.erased and entry.name not in CHECKPOINTS:
                shape = " ".join(_shape(json.loads(encode(entry.payload))))
                found.setdefault(entry.name, {}).setdefault(shape, _fix(encode(entry.payload)))
    return {name: list(texts.values()) for name, texts in sorted(found.items())}


def _fix(text: str) -> str:
    """Take out what the time that really passes decides: durations, hashes, and how far a restored home had come."""
    return RESTORED.sub(r"\g<1>0", HASH.sub(r'\g<1>0"', ELAPSED.sub(r'"\1":0', text)))


def _shape(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        yield f"{path}:object"
        for key, item in value.items():
            yield from _shape(item, f"{path}.{key}")
    elif isinstance(value, list):
        yield f"{path}:list"
        for item in value[:1]:
            yield from _shape(item, f"{path}[]")
    else:
        yield f"{path}:{type(value).__name__}"
