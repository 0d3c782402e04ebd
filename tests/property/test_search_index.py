"""Whatever the index covers, what is found is what reading everything finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbot.features.search.view import SearchView
from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.postgres import reading
from bubbot.stores.rows import from_row
from bubbot.stores.sqlite.indexer import Indexer
from bubbot.tape.entry import TapeEntry, event, message, tool_call, tool_result
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges, Ranked, TapeQuery, evaluate
from bubbot.tape.service import TapeService
from bubbot.tape.store import Batch, ResetBatch
from bubbot.tape.words import fold_text
from tests.doubles import CountingIds, SteppingClock
from tests.postgres_server import PostgresServer, copied_database
from tests.property.bench import Bench, ServerBench, server_bench
from tests.property.bench import bench as open_bench
from tests.property.strategies import exactly
from tests.tapes import whole

PARTS = (
    "base", "database", "databases", "run", "running", "data", "migration", "mig", "the", "a", "x1", "2026", "snake_case_name", "camelCase",
    "数据库迁移", "数据", "库", "データベース", "이전을", "café", "cafe", "STRASSE", "straße", "ﬁne", "①②", "e\u0301a", "\u0301", "🎉", "👍🏽", "→", "§",
    "w" * 39, "w" * 40 + "end", "v" * 45, "चाय", "ไทย", '"', "\\", "\n", "-", "’", "_", "\x00", "\ue000t1", "user",
)  # fmt: skip
GLUE = ("", " ", "", ", ", "\n", "-")

texts = st.lists(st.tuples(st.sampled_from(PARTS), st.sampled_from(GLUE)), min_size=1, max_size=6).map(
    lambda some: "".join(part + glue for part, glue in some)
)


@st.composite
def entries(draw: st.DrawFn) -> TapeEntry:
    text = draw(texts)
    match draw(st.integers(0, 5)):
        case 0:
            return message("user", text, sender={"id": "7", "name": draw(texts)}, turn="database")
        case 1 | 2:
            return message("user", text)
        case 3:
            return event(draw(st.sampled_from(["note", "correction", "loop.step"])), {"corrects": 1, "content": text})
        case 4:
            name = draw(st.sampled_from(["tape_search", "web"]))
            return tool_call([{"id": "c", "type": "function", "function": {"name": name, "arguments": text}}])
        case _:
            return tool_result([{"tool_call_id": "c", "content": text}])


@st.composite
def asked(draw: st.DrawFn, written: Sequence[TapeEntry]) -> str:
    """A part of a text that is there, or a text that may be."""
    if not written or draw(st.integers(0, 3)) == 0:
        return draw(texts)
    text = fold_text(draw(st.sampled_from(written)).all_text())
    start = draw(st.integers(0, max(0, len(text) - 1)))
    return text[start : start + draw(st.integers(1, 14))]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with open_bench(tmp_path_factory.mktemp("index") / "bubbot.db") as opened:
        yield opened


@pytest.fixture(scope="module")
def filler(bench: Bench) -> Iterator[Indexer]:
    made = Indexer(bench.store)
    bench.store.indexer = made
    yield made
    bench.run(made.aclose())


async def exact(tape: TapeHandle, text: str) -> list[object]:
    result = await tape.read(SearchView(text, limit=100))
    return [hit for hit in result.hits if hit.exact]


@pytest.mark.law("T8", "T9")
@settings(max_examples=max(20, settings().max_examples * 2 // 3))
@given(data=st.data())
def test_an_index_filled_to_anywhere_changes_no_answer(bench: Bench, filler: Indexer, data: st.DataObject) -> None:
    written = data.draw(st.lists(entries(), max_size=12))
    overlay = data.draw(st.lists(entries(), max_size=3))
    indexed = data.draw(st.integers(0, 2 * len(written) + 4))
    erased = (
        data.draw(st.sets(st.integers(1, max(1, len(written))), max_size=2))
        if data.draw(st.integers(0, 4)) == 0
        else set()
    )
    needles = data.draw(st.lists(asked(written), min_size=1, max_size=6))

    async def check(name: str, eraser: str) -> None:
        await filler.fill()
        for start in range(0, len(written), 5):  # another tape in between
            part = tuple(written[start : start + 5])
            await bench.store.append([Batch(name, part), Batch(f"{name}b", part[:2])])
        await filler.step(indexed)
        if erased:
            ids = tuple(one for one in erased if one <= len(written))
            await bench.store.reset(
                eraser, ResetBatch(f"{eraser}@old", erase=True, erase_also=((name, ids),)), [event("tape/erased")]
            )
            await filler.step(indexed)
        tape = TapeService(bench.store, name, now=SteppingClock(), new_id=lambda: name, session=name)
        plain_store = InMemoryStore()
        plain = TapeService(plain_store, name, now=SteppingClock(), new_id=CountingIds())
        kept = await whole(bench.store, name)
        await plain_store.append([Batch(name, tuple(kept))]) if not erased else None
        async with tape.fork_tape(merge_back=False) as fork:
            await fork.append(overlay)
            both = [*kept, *fork.delta]
            for query in [one for needle in needles for one in queries(name, needle)]:
                assert exactly((await bench.store.fetch([query]))[0]) == exactly(evaluate(kept, query)), query
                assert exactly((await fork.fetch([query]))[0]) == exactly(evaluate(both, query)), query
            if not erased:
                for needle in needles:
                    assert await exact(tape, needle) == await exact(plain, needle)

    bench.run(check(bench.fresh(), bench.fresh()))


def queries(tape: str, text: str) -> list[TapeQuery]:
    query = TapeQuery(tape, searchable_text=text)
    return [
        query,
        replace(query, newest=True, limit=3),
        replace(query, newest=True, limit=2, as_of=6),
        replace(query, limit=2),
        replace(query, newest=True, kinds=("message", "event")),
        replace(query, kinds=("tool_result",), newest=True, limit=1),
        TapeQuery(tape, text=text, newest=True, limit=4),
        TapeQuery(tape, similar_text=text, newest=True),
        TapeQuery(tape, phrase_text=text, newest=True),
        TapeQuery(tape, phrase_text=text, newest=True, limit=2, sender="database"),
        TapeQuery(tape, words_text=text, newest=True, limit=3),
        TapeQuery(tape, IdRanges(((2, 4), (6, None))), words_text=text, newest=True),
        TapeQuery(tape, IdRanges(((1, 3), (5, 6))), searchable_text=text, newest=True, limit=2),
    ]


def test_there_is_an_index_that_is_asked(bench: Bench, filler: Indexer, tmp_path: Path) -> None:
    """So that the test above tests something."""

    async def check() -> None:
        await bench.store.append([Batch("plain", (message("user", "the volcano"),))])
        await filler.fill()
        found = await bench.store.index_state()
        assert found is not None
        assert (found.fresh, found.behind) == (True, 0)
        assert found.position > 0

    bench.run(check())


@pytest.fixture(scope="module")
def server(postgres_server: PostgresServer) -> Iterator[ServerBench]:
    with copied_database(postgres_server) as address, server_bench(address) as opened:
        yield opened


@pytest.mark.law("T8", "T9")
@settings(max_examples=max(20, settings().max_examples * 2 // 3))
@given(data=st.data())
def test_the_words_on_a_server_change_no_answer(server: ServerBench, data: st.DataObject) -> None:
    written = data.draw(st.lists(entries(), max_size=12))
    needles = data.draw(st.lists(asked(written), min_size=1, max_size=6))
    erased = data.draw(st.sets(st.integers(1, max(1, len(written))), max_size=2)) if data.draw(st.booleans()) else set()

    async def check(name: str, eraser: str) -> None:
        await server.store.append([Batch(name, tuple(written)), Batch(f"{name}b", tuple(written[:2]))])
        if erased:
            ids = tuple(one for one in erased if one <= len(written))
            reach = ResetBatch(f"{eraser}@old", erase=True, erase_also=((name, ids),))
            await server.store.reset(eraser, reach, [event("tape/erased")])
        kept = await whole(server.store, name)
        for needle in needles:
            for query in queries(name, needle):
                assert exactly((await server.store.fetch([query]))[0]) == exactly(evaluate(kept, query)), query
            ranked = TapeQuery(name, Ranked(needle))
            found, wanted = (await server.store.fetch([ranked]))[0], evaluate(kept, ranked)
            assert {entry.id for entry in found} == {entry.id for entry in wanted}, needle

    server.run(check(server.fresh(), server.fresh()))


def test_a_server_reads_few_entries_for_a_word(server: ServerBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above tests an index."""
    read: list[int] = []

    def noted(tape: str, row: tuple[object, ...]) -> TapeEntry:
        read.append(1)
        return from_row(tape, row)

    async def check(name: str) -> None:
        await server.store.append(
            [Batch(name, tuple(message("user", f"number {number} of the hills") for number in range(600)))]
        )
        await server.store.append(
            [Batch(name, (message("user", "the volcanoes erupted"),)), Batch("b", (message("user", "volcano"),))]
        )
        monkeypatch.setattr(reading, "from_row", noted)
        for query in (
            TapeQuery(name, words_text="erupts volcano"),
            TapeQuery(name, phrase_text="volcanoes erupted"),
            TapeQuery(name, searchable_text="canoes er"),
            TapeQuery(name, Ranked("a volcano on the hills")),
        ):
            assert [entry.id for entry in (await server.store.fetch([query]))[0]] == [601], query
        assert len(read) == 4

    server.run(check(server.fresh()))
