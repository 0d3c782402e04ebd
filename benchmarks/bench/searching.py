"""Searching one tape: the search of bubbot beside a scan by LIKE and a comparison with every text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rapidfuzz import fuzz, process

from benchmarks.bench import tapes, words
from benchmarks.bench.baselines import RawSqlite
from benchmarks.bench.filling import filled
from benchmarks.bench.measure import Figures, Row
from benchmarks.bench.plan import Plan
from benchmarks.bench.talk import Talk, talking
from benchmarks.search.corpus import CORPORA
from benchmarks.search.measure import run
from bubbot.features.search.view import SearchResult, SearchView

SORTS = (
    "a frequent word",
    "a rare word",
    "a part of a word",
    "two Chinese characters",
    "two misspelt words",
    "nothing",
)
LONG = 100_000
"""Entries from which a scan takes seconds: it is timed twice, and once beyond it."""
SHORTEST = 10_000
"""Entries from which the corpora are searched."""
PATIENCE = 10.0
"""Seconds of one search at most: what took so long on a shorter tape that it would take longer here is left out."""
SPELLING = "two misspelt words"


def queries() -> Mapping[str, str]:
    """What is looked for, by its sort."""
    known = words.Words().known
    frequent, rare = known[40], known[15_000]
    return {
        SORTS[0]: frequent,
        SORTS[1]: rare,
        SORTS[2]: rare[1:-1],
        SORTS[3]: "篱笆",
        SORTS[4]: f"{_misspelt(known[300])} {_misspelt(known[420])}",
        SORTS[5]: "xylophonequartz",
    }


def _misspelt(word: str) -> str:
    """Two letters in the middle change places."""
    at = len(word) // 2
    return f"{word[: at - 1]}{word[at]}{word[at - 1]}{word[at + 1 :]}"


@dataclass
class Searches:
    """A tape that is searched, and its baselines."""

    size: int
    talk: Talk
    raw: RawSqlite
    rows: dict[str, Row]
    sorts: Mapping[str, str]

    async def round(self, times: int) -> None:
        """Every sort once round."""
        tape, name = self.talk.tape(), tapes.name(0)
        texts = self.raw.texts(name)
        for sort, text in self.sorts.items():

            async def search(text: str = text) -> SearchResult:
                return await tape.read(SearchView(text))

            await self.rows[sort].take(times, search)
            scan = _compare(texts, text) if sort == SPELLING else _like(self.raw, name, text)
            self.rows[f"{sort}, plain"].take_plain(times, scan)


def _like(raw: RawSqlite, name: str, text: str) -> Callable[[], object]:
    return lambda: raw.like(name, text)


def _compare(texts: list[str], text: str) -> Callable[[], object]:
    return lambda: process.extract(text, texts, scorer=fuzz.partial_ratio, limit=20)


async def searching(plan: Plan, built: dict[int, Path], folder: Path) -> Figures:
    """By size: every sort with its baseline under the same name and `, plain`; and what the indexes came to."""
    made: Figures = {}
    indexes: Figures = {}
    sorts, before = queries(), 0
    for size in plan.sizes:
        if before:
            known = made[str(before)]
            sorts = {sort: text for sort, text in sorts.items() if known[sort]["p50"] * size / before < 1000 * PATIENCE}
        before = size
        home = tapes.copied(built[size], folder / f"search-{size}")
        with_index(home)
        indexes[str(size)] = await filled(home)
        raw = RawSqlite(home / "bubbot.db")
        try:
            async with talking(home) as talk:
                one = Searches(size, talk, raw, defaultdict(Row), sorts)
                rounds, times = (plan.searches, 2) if size < LONG else (min(plan.searches, 2), 1)
                for _ in range(rounds if size <= LONG else 1):
                    await one.round(times)
                made[str(size)] = {name: row.figures() for name, row in one.rows.items()}
        finally:
            raw.close()
    return {"sizes": made, "indexes": indexes}


def with_index(home: Path) -> None:
    """Switches the index of a home on."""
    config = home / "config.toml"
    config.write_text(config.read_text().replace("index = false", "index = true"))


async def found(plan: Plan) -> Figures:
    """What the benchmark of searches says: how much is found, by class, in each corpus and size."""
    rows = [
        replace(row, name=f"{size:,} {row.name}")
        for size in plan.sizes
        if size >= SHORTEST
        for corpus in CORPORA
        for row in await run(size, corpus, queries=plan.queries)
    ]
    return {"rows": [asdict(row) for row in rows]}
