"""The measuring: a tape of passages, an index over it, and queries whose answers are known."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from benchmarks.search.asked import CLASSES, FIRST, Asked, Words, asked, holds, nowhere
from benchmarks.search.corpus import CORPORA
from bubbot.features.search.view import SearchResult, SearchView
from bubbot.stores.sqlite.index.fill import BATCH_ENTRIES, IndexWriter
from bubbot.stores.sqlite.store import SqliteStore, open_store
from bubbot.tape.entry import message
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tape.store import Batch

TAPE = "passages"
WAITING = 100_000
"""The most entries that wait for the index when it is behind."""
FEW = 5
"""Queries of each class while it is behind."""
MADE_UP_SORTS = ("a made-up word", "two made-up words")
MADE_UP, SEEDS = 1_000, 5
"""Made-up words of each sort at least, and of how many seeds."""
_BATCH = 500
_DATE = "2026-11-21T12:00:00.000000+00:00"


def _now() -> datetime:
    return datetime.fromisoformat(_DATE)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: which part was found as it should be, which part of the passages themselves was shown, which part of
    made-up words found something, and milliseconds: the middle and the 95th percentile of processor time, and the middle
    by the clock. `waiting`: that many entries were not indexed yet. `note` says the rest. `entries`: of the tape."""

    name: str
    found: float | None = None
    shown: float | None = None
    wrong: float | None = None
    waiting: int = 0
    cpu: float | None = None
    cpu95: float | None = None
    wall: float | None = None
    note: str = ""
    entries: int = 0


async def run(entries: int, corpus: str, *, seed: int = 1, queries: int = 200, folder: Path | None = None) -> list[Row]:
    """Measures on a tape of so many entries, made anew unless `folder` holds it."""
    with tempfile.TemporaryDirectory() as made:
        home = folder or Path(made)
        home.mkdir(parents=True, exist_ok=True)
        store = await open_store(home / "bubbot.db", salt=os.urandom, now=_now)
        try:
            tape = TapeService(store, TAPE, now=_now, new_id=str)
            rows = []
            if not await store.head(TAPE):
                rows.append(await _write(store, CORPORA[corpus](entries, seed)))
            passages = await _read(tape)  # what a machine has as documentation changes
            words = Words.of(passages)
            rows += await _fill(store, WAITING)
            if waiting := await _behind(store):
                for name, maker in CLASSES.items():
                    some = asked(words, maker, FEW, seed)
                    rows += [await _waiting(tape, name, some, waiting)] if some else []
            rows += await _fill(store, 0)
            for name, maker in CLASSES.items():
                some = asked(words, maker, queries, seed)
                rows += [await _class(tape, name, words, some)] if some else []
            for count, name in enumerate(MADE_UP_SORTS, 1):
                each = max(queries, MADE_UP // SEEDS)
                some = [one for more in range(SEEDS) for one in nowhere(words, each, count, seed + more)]
                rows.append(await _nothing(tape, name, some))
        finally:
            await store.aclose()
    return [replace(row, name=f"{corpus}: {row.name}", entries=entries) for row in rows]


async def _read(tape: TapeService) -> list[str]:
    """The passages that stand on a tape."""
    return [str(entry.payload["content"]) for (entries,) in [await tape.fetch([TapeQuery(TAPE)])] for entry in entries]


async def _write(store: SqliteStore, texts: Sequence[str]) -> Row:
    """The passages as messages; entry N is passage N - 1."""
    began = time.perf_counter()
    for start in range(0, len(texts), _BATCH):
        said = [message("user", text).with_meta({}, _DATE) for text in texts[start : start + _BATCH]]
        await store.append([Batch(TAPE, tuple(said))])
    took = time.perf_counter() - began
    return Row("write", note=f"{len(texts)} entries, {len(texts) / max(took, 0.001):.0f} a second")


async def _fill(store: SqliteStore, leave: int) -> list[Row]:
    """Fills the index until so many entries wait."""
    missing, done = await _behind(store) - leave, 0
    if missing <= 0:
        return []
    filler = IndexWriter(store.path)
    began, worked = time.perf_counter(), time.process_time()
    while done < missing and (indexed := await filler.step(min(BATCH_ENTRIES, missing - done))):
        done += indexed
    while await filler.tidy():
        pass
    await filler.aclose()
    took, worked, state = time.perf_counter() - began, time.process_time() - worked, await store.index_state()
    if state is None:
        raise RuntimeError("there is no index")
    ratio = state.bytes / max(1, state.texts)
    return [
        Row("fill", note=f"{done} entries, {done / took:.0f} a second, {1e6 * worked / done:.0f} us of processor each"),
        Row("size", note=f"index {state.bytes / 1e6:.0f} MB, texts {state.texts / 1e6:.0f} MB: {ratio:.2f}"),
    ]


async def _behind(store: SqliteStore) -> int:
    """The number of entries that are not indexed."""
    state = await store.index_state()
    return state.behind if state is not None else await store.count_entries()


async def _waiting(tape: TapeService, name: str, some: list[Asked], waiting: int) -> Row:
    """Searches while so much is not indexed yet: it is read."""
    times = _Times()
    for one in some:
        await times.ask(tape, one.text)
    return replace(times.row(f"{name}, {waiting:,} not indexed yet", f"{len(some)} queries"), waiting=waiting)


async def _class(tape: TapeService, name: str, words: Words, some: list[Asked]) -> Row:
    found, shown, meant, times, missed = 0, 0, 0, _Times(), []
    for one in some:
        result = await times.ask(tape, one.text)
        places = {hit.id - 1 for hit in result.hits}
        ok = words.is_found(one, places, result.exact)
        found += ok
        shown += one.place in places
        meant += any(holds(words.passages[place], one.meant) for place in places)
        if not ok:
            missed.append(f"{one.text} for {' '.join(one.meant)}")
    note = f"{len(some)} queries; {100 * meant / len(some):.1f}% show what was meant" + (
        f"; missed: {'; '.join(missed[:3])}" if missed else ""
    )
    return replace(times.row(name, note), found=found / len(some), shown=shown / len(some))


async def _nothing(tape: TapeService, name: str, some: list[Asked]) -> Row:
    times, shown = _Times(), []
    for one in some:
        result = await times.ask(tape, one.text)
        if any(not hit.exact for hit in result.hits):  # as a part of a longer word it is somewhere
            shown.append(f"{one.text} in {result.hits[-1].snippet[:50]!r}")
    return replace(
        times.row(name, f"{len(some)} queries; {'; '.join(shown[:3])}"), wrong=len(shown) / max(1, len(some))
    )


@dataclass
class _Times:
    """Milliseconds by the clock, and of processor time of all threads: other programs slow the former."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    async def ask(self, tape: TapeService, text: str) -> SearchResult:
        """Search once."""
        wall, cpu = time.perf_counter(), time.process_time()
        result = await tape.read(SearchView(text, limit=FIRST))
        self.wall.append(1000 * (time.perf_counter() - wall))
        self.cpu.append(1000 * (time.process_time() - cpu))
        return result

    def row(self, name: str, note: str) -> Row:
        """The figures of all searches."""

        def at(some: list[float], part: float) -> float:
            ordered = sorted(some) or [0.0]
            return ordered[min(len(ordered) - 1, int(part * len(ordered)))]

        return Row(name, cpu=at(self.cpu, 0.5), cpu95=at(self.cpu, 0.95), wall=at(self.wall, 0.5), note=note)
