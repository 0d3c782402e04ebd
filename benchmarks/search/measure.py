"""The measuring: a tape of passages, an index over it, and queries whose answers are known."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from rapidfuzz import fuzz, process

from benchmarks.search.asked import CLASSES, FIRST, Asked, Words, asked, held_out, holds, nowhere
from benchmarks.search.corpus import CORPORA
from bubbot.features.search.view import SearchResult, SearchView
from bubbot.stores.sqlite.indexer import Indexer
from bubbot.stores.sqlite.store import SqliteStore, open_store
from bubbot.tape.entry import message
from bubbot.tape.query import fold_text
from bubbot.tape.service import TapeService
from bubbot.tape.store import Batch

TAPE = "passages"
FEW = 5
"""Queries of what is slow."""
MOST_WAITING = 100_000
WAITED_FOR = ("phrase of two words", "2 Chinese characters", "2 words, 1 edit each", "1 word, 2 edits")
_BATCH = 500
_DATE = "2026-11-21T12:00:00.000000+00:00"


def _now() -> datetime:
    return datetime.fromisoformat(_DATE)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: which part was found as it should be, and milliseconds; `cpu`: the
    middle of processor time. `note` says the rest."""

    name: str
    found: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    cpu: float | None = None
    note: str = ""


async def run(entries: int, corpus: str, *, seed: int = 1, queries: int = 200, folder: Path | None = None) -> list[Row]:
    """Measures on a tape of so many entries, made anew unless `folder` holds it."""
    words = Words.of(CORPORA[corpus](entries, seed))
    absent, left_out = held_out(words, queries, 1, seed)
    with tempfile.TemporaryDirectory() as made:
        home = folder or Path(made)
        home.mkdir(parents=True, exist_ok=True)
        store = await open_store(home / "bubbot.db", salt=os.urandom, now=_now)
        try:
            rows = [await _written(store, words.passages, left_out)]
            tape = TapeService(store, TAPE, now=_now, new_id=str)
            if not (await store.index_state() or len(words.passages) > MOST_WAITING):
                rows += [await _waiting(tape, name, asked(words, CLASSES[name], FEW, seed)) for name in WAITED_FOR]
            rows += await _filled(store)
            for name, maker in CLASSES.items():
                some = [one for one in asked(words, maker, queries, seed) if one.place not in left_out]
                rows += [await _class(tape, name, words, some)] if some else []
            for count, name in ((1, "a made-up word"), (2, "two made-up words")):
                rows.append(await _nothing(tape, name, nowhere(words, queries, count, seed)))
            rows += [await _nothing(tape, "a real word that is nowhere", absent)] if absent else []
            rows += _plainly(home / "bubbot.db", words, seed)
        finally:
            await store.aclose()
    return [replace(row, name=f"{corpus}: {row.name}") for row in rows]


async def _written(store: SqliteStore, texts: Sequence[str], left_out: set[int]) -> Row:
    """The passages as messages, those left out as something else; entry N is passage N - 1."""
    began, have = time.perf_counter(), await store.head(TAPE)
    for start in range(have, len(texts), _BATCH):
        part = enumerate(texts[start : start + _BATCH], start)
        said = [message("user", "-" if place in left_out else text) for place, text in part]
        await store.append([Batch(TAPE, tuple(entry.with_meta({}, _DATE) for entry in said))])
    took = time.perf_counter() - began
    return Row("write", note=f"{len(texts) - have} entries, {(len(texts) - have) / max(took, 0.001):.0f} a second")


async def _filled(store: SqliteStore) -> list[Row]:
    filler = Indexer(store)
    before = await store.index_state()
    began = time.perf_counter()
    try:
        await filler.fill()
    finally:
        await filler.aclose()
    took, state = time.perf_counter() - began, await store.index_state()
    if state is None:
        raise RuntimeError("there is no index")
    done = state.position - (before.position if before else 0)
    ratio = state.bytes / max(1, state.texts)
    return [
        Row("fill", note=f"{done} entries, {done / took:.0f} a second"),
        Row("size", note=f"index {state.bytes / 1e6:.0f} MB, texts {state.texts / 1e6:.0f} MB: {ratio:.2f}"),
    ]


async def _waiting(tape: TapeService, name: str, some: list[Asked]) -> Row:
    """Searches while nothing is indexed yet: all of it is read."""
    times = _Times()
    for one in some:
        await times.ask(tape, one.text)
    return _row(f"{name}, nothing indexed yet", None, times, f"{len(some)} queries")


async def _class(tape: TapeService, name: str, words: Words, some: list[Asked]) -> Row:
    found, shown, times, missed = 0, 0, _Times(), []
    for one in some:
        result = await times.ask(tape, one.text)
        places = {hit.id - 1 for hit in result.hits}
        shown += any(holds(words.passages[place], one.meant) for place in places)
        ok = words.is_found(one, places, result.exact)
        found += ok
        if not ok:
            missed.append(f"{one.text} for {' '.join(one.meant)}")
    note = f"{len(some)} queries; {100 * shown / len(some):.1f}% show what was meant" + (
        f"; missed: {'; '.join(missed[:3])}" if missed else ""
    )
    return _row(name, found / len(some), times, note)


async def _nothing(tape: TapeService, name: str, some: list[Asked]) -> Row:
    false, times, shown = 0, _Times(), []
    for one in some:
        result = await times.ask(tape, one.text)
        if any(not hit.exact for hit in result.hits):  # as a part of a longer word it is somewhere
            false += 1
            shown.append(f"{one.text} in {result.hits[-1].snippet[:50]!r}")
    return _row(
        name,
        None,
        times,
        f"{len(some)} queries; {100 * false / max(1, len(some)):.1f}% found something: {'; '.join(shown[:2])}",
    )


def _plainly(database: Path, words: Words, seed: int) -> list[Row]:
    """The same asked in the plain ways: reading every text, and comparing with every text."""
    phrases = asked(words, CLASSES["phrase of two words"], FEW, seed)
    typed = asked(words, CLASSES["2 words, 1 edit each"], FEW, seed)
    likes, brute, found = _Times(), _Times(), 0
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as conn:
        for one in phrases:
            began = time.perf_counter()
            conn.execute(
                "SELECT id FROM entries WHERE payload LIKE ? ORDER BY seq DESC LIMIT 20", (f"%{one.text}%",)
            ).fetchall()
            likes.wall.append(1000 * (time.perf_counter() - began))
    folded = [fold_text(text) for text in words.passages]
    for one in typed:
        began = time.perf_counter()
        best = process.extract(one.text, folded, scorer=fuzz.partial_ratio, limit=FIRST)
        brute.wall.append(1000 * (time.perf_counter() - began))
        found += one.place in {place for _, _, place in best}
    return [
        _row("a phrase by LIKE", None, likes, f"{FEW} queries"),
        _row("2 words, 1 edit each, by partial_ratio over all", found / FEW, brute, f"{FEW} queries, texts in memory"),
    ]


@dataclass
class _Times:
    """Milliseconds by the clock, and of processor time of all threads: other programs slow the former."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    async def ask(self, tape: TapeService, text: str) -> SearchResult:
        wall, cpu = time.perf_counter(), time.process_time()
        result = await tape.read(SearchView(text, limit=FIRST))
        self.wall.append(1000 * (time.perf_counter() - wall))
        self.cpu.append(1000 * (time.process_time() - cpu))
        return result


def _row(name: str, found: float | None, times: _Times, note: str) -> Row:
    def at(some: list[float], part: float) -> float:
        ordered = sorted(some) or [0.0]
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))]

    return Row(name, found, at(times.wall, 0.5), at(times.wall, 0.95), at(times.wall, 0.99), at(times.cpu, 0.5), note)
