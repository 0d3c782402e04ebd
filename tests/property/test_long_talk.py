"""What each strategy keeps within a model's reach over a long talk; see `tests.long_talk`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bubbot.app.search import open_indexing
from bubbot.features.search.settings import SearchSettings
from bubbot.models.embeddings.index import EmbeddingIndex
from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.store import TapeStore
from tests.long_talk import RECALLING, RuleModel, TalkCase, TalkReport, long_talk, recalling_by_meaning
from tests.summarising import summary_case

CASES = (
    TalkCase("window", least=0.0, most=0.0, overflows=True),  # so that a probe can fail
    TalkCase("compact", least=0.0, most=0.0),
)
"""The strategies, and the share of the probes that is answered with them."""
TURNS, FACTS = 200, 12
PROOF_TURNS, PROOF_FACTS = 10_000, 200
EACH = pytest.mark.parametrize("case", CASES, ids=lambda case: case.selector)


async def check(store: TapeStore, case: TalkCase, turns: int, facts: int) -> TalkReport:
    report = await long_talk(store, case, turns, facts=facts)
    assert report.faults == []
    assert report.unexplained == []
    assert report.asked == facts
    assert case.least <= report.share <= case.most
    assert (report.overflows > 0) == case.overflows
    return report


@EACH
async def test_requests_of_a_long_talk_are_valid_and_answer_what_the_strategy_keeps(
    memory_store: InMemoryStore, case: TalkCase
) -> None:
    report = await check(memory_store, case, TURNS, FACTS)
    assert report.breaks["cut"] + report.breaks["window"] > 1, "the talk was too short"
    assert report.breaks["day"] > 0
    assert report.breaks["memory"] > 0


@pytest.mark.proof
async def test_a_model_with_room_for_the_whole_talk_answers_every_probe(memory_store: InMemoryStore) -> None:
    case = TalkCase("window", least=1.0, make_model=lambda: RuleModel(200_000))
    report = await check(memory_store, case, TURNS, FACTS)
    assert (report.share, report.meant) == (1.0, report.meant_asked)
    assert report.meant_asked > 0


@pytest.mark.proof
@EACH
async def test_a_talk_of_ten_thousand_turns(sqlite_store: SqliteStore, case: TalkCase) -> None:
    await check(sqlite_store, case, PROOF_TURNS, PROOF_FACTS)


# Without a search index each word is looked for in the whole tape, so that the talk's cost grows with its square.
@pytest.mark.proof
@pytest.mark.parametrize(("turns", "facts"), [(90, 5), pytest.param(300, 20, marks=pytest.mark.proof)])
async def test_retrieval_brings_early_facts_back(memory_store: InMemoryStore, turns: int, facts: int) -> None:
    await check(memory_store, TalkCase("retrieval", least=0.95, strategies=RECALLING), turns, facts)


@pytest.mark.proof
async def test_with_embeddings_probes_that_share_only_the_meaning_are_answered_too(
    sqlite_store: SqliteStore, tmp_path: Path
) -> None:
    index = EmbeddingIndex(tmp_path / "passages.db")
    by_words = await check(sqlite_store, TalkCase("retrieval", least=0.95, strategies=RECALLING), 120, 6)
    strategies, features = recalling_by_meaning(index)
    case = TalkCase("retrieval", least=0.95, strategies=strategies, features=features)
    by_meaning = await check(InMemoryStore(), case, 120, 6)
    await index.aclose()
    assert (by_meaning.meant, by_meaning.meant_asked) == (5, 5)
    assert by_words.meant <= 1, "one may lie beside what was found"


@pytest.mark.proof
async def test_retrieval_over_ten_thousand_turns(sqlite_store: SqliteStore) -> None:
    async with asyncio.TaskGroup() as group, open_indexing(sqlite_store, SearchSettings(), group):
        await check(sqlite_store, TalkCase("retrieval", least=0.95, strategies=RECALLING), PROOF_TURNS, PROOF_FACTS)


async def test_summaries_keep_early_facts_within_reach_and_cost_a_small_share(memory_store: InMemoryStore) -> None:
    report = await check(memory_store, summary_case(least=0.95), TURNS, FACTS)
    assert report.breaks["window"] > 10, "few summaries were written"
    assert 0 < report.own_bytes / report.bytes_read < 0.1


@pytest.mark.proof
async def test_summaries_over_ten_thousand_turns(sqlite_store: SqliteStore) -> None:
    # A summary has 1,500 tokens at most, whatever the window: it can name about a hundred facts, not two hundred.
    report = await check(sqlite_store, summary_case(least=0.95, size=16_000), PROOF_TURNS, PROOF_FACTS // 4)
    assert 0 < report.own_bytes / report.bytes_read < 0.1
