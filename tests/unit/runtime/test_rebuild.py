"""Rebuilding recorded requests: what is read for it, and those that earlier versions recorded."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

from bubbot.app.events import OWN_REFERENCES
from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.ports.model import ModelRequest
from bubbot.runtime.compose import parse_tools, rebuild_request
from bubbot.runtime.context.view import ContextView
from bubbot.stores.sqlite.connections import open_reader
from bubbot.stores.sqlite.rows import find_entries
from bubbot.stores.sqlite.store import SqliteStore, open_store
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import JsonObject, event, message
from bubbot.tape.query import TapeQuery, evaluate
from bubbot.tape.references import entries_as_of
from bubbot.tape.service import TapeService
from bubbot.tape.store import Batch, TapeStore
from tests.doubles import CountingIds, CountingSalt, SteppingClock
from tests.tapes import whole

DATABASES = Path(__file__).parents[2] / "data" / "databases"
WINDOW = 50


def service(store: TapeStore, name: str) -> TapeService:
    return TapeService(store, name, now=SteppingClock(), new_id=CountingIds())


async def rebuild_from_all(store: TapeStore, tape: str, step: JsonObject) -> ModelRequest:
    """Rebuild a request from every entry of the tape, which is what the recorded state means."""
    entries = await whole(store, tape)
    then = [entry for low, high in step.get("as_of", ((1, step["head"]),)) for entry in entries[low - 1 : high]]
    before = entries_as_of(tape, then, OWN_REFERENCES)
    view = ContextView.from_json(step["view"], OWN_STRATEGIES)
    context = view.fold([evaluate(before, query) for query in view.queries(tape)])
    system, tools = [(await store.get_blob(tape, step[name])).decode() for name in ("system", "tools")]
    return ModelRequest(system, context.messages, parse_tools(tools), step["parameters"], context.texts)


@pytest.mark.law("T8")
@pytest.mark.parametrize(("database", "equal"), [("version-1.db", 0), ("version-2.db", 0), ("version-3.db", 5)])
async def test_the_requests_of_earlier_versions_are_rebuilt_as_from_the_whole_tape(
    tmp_path: Path, database: str, equal: int
) -> None:
    shutil.copy(DATABASES / database, tmp_path / "bubbot.db")
    store = await open_store(tmp_path / "bubbot.db", salt=CountingSalt(), now=SteppingClock())
    seen = matching = 0
    try:
        for tape in [tape.name for tape in await store.tapes()]:
            for entry in await whole(store, tape):
                if entry.name != "loop.step" or entry.erased:
                    continue
                step = entry.payload["data"]
                request = await rebuild_request(step, service(store, tape), strategies=OWN_STRATEGIES)
                assert request.as_bytes() == (await rebuild_from_all(store, tape, step)).as_bytes()
                if step["view"].get("version", 1) != 1:  # later ones differ in what is forged or refused only
                    assert request.digest() == step["request"]
                    matching += 1
                seen += 1
    finally:
        await store.aclose()
    assert seen >= 4
    assert matching == equal


async def write_windows(store: SqliteStore, windows: int) -> JsonObject:
    """Write a tape of so many windows of 50 entries, and one of a fork that was rebased; return its step."""
    texts = {"system": b"You are a bot.", "tools": b"[]"}
    blobs = {name: await store.put_blob("chat", text) for name, text in texts.items()}

    said = [message("user", f"word {place}") for place in range(WINDOW - 1)]
    half = Batch("chat", (anchor("phase"), *said) * (windows // 2))

    await store.append([half])
    fork = await service(store, "chat").open_fork()
    opened = await fork.handoff("mine", {"parents": [1]}, recalls=[(2, 3)])
    await fork.append([message("user", "the question")])
    head = await fork.head()
    view = ContextView(ends_with_user=True)
    context = await fork.read(view)
    request = ModelRequest(texts["system"].decode(), context.messages, (), {}, context.texts)
    facts = {"view": view.as_json(), "as_of": [[1, head]], "head": head, "parameters": {}, **blobs}
    await fork.append([event("loop.step", {**facts, "request": request.digest()})])
    await store.append([half])
    merged = (await fork.merge()).delta
    assert merged[0].id > opened.id
    step: JsonObject = merged[-1].payload["data"]
    return step


async def steps_of(conn: aiosqlite.Connection, queries: Sequence[TapeQuery]) -> int:
    """Count the steps of SQLite's virtual machine, in hundreds."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    await conn.set_progress_handler(count, 100)
    for query in queries:
        await find_entries(conn, query)
    await conn.set_progress_handler(count, 0)
    return counted


@pytest.mark.law("T8", "T13")
@pytest.mark.parametrize("windows", [80, pytest.param(400, marks=pytest.mark.proof)])
async def test_a_rebuilt_request_reads_its_window_and_not_the_whole_tape(
    sqlite_store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: int
) -> None:
    step = await write_windows(sqlite_store, windows)
    assert await sqlite_store.head("chat") > windows * WINDOW
    assert len(step["as_of"]) == 2, "the fork was rebased"
    asked: list[TapeQuery] = []
    found = 0
    fetch = sqlite_store.fetch

    async def noted(queries: Sequence[TapeQuery]) -> Any:
        nonlocal found
        asked.extend(queries)
        answers = await fetch(queries)
        found += sum(map(len, answers))
        return answers

    monkeypatch.setattr(sqlite_store, "fetch", noted)
    request = await rebuild_request(step, service(sqlite_store, "chat"), strategies=OWN_STRATEGIES)
    monkeypatch.undo()
    assert request.digest() == step["request"]
    assert [part["content"] for part in request.messages if "word" in str(part["content"])] != []
    assert 0 < found <= 2 * WINDOW
    async with aiosqlite.Connection(partial(open_reader, tmp_path / "bubbot.db"), 64) as conn:
        assert await steps_of(conn, asked) < await steps_of(conn, [TapeQuery("chat")]) * 2 / windows
        earlier = await service(sqlite_store, "chat").as_of(((1, 1010),))
        assert (await earlier.head(), len(await earlier.from_last_anchor())) == (1010, 9)
        long_ago = [TapeQuery("chat", query.part, as_of=1010) for query in ContextView().queries("chat")]
        assert await steps_of(conn, long_ago) < await steps_of(conn, [TapeQuery("chat")]) * 2 / windows
