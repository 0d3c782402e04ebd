"""A window that was never cut may be as long as the tape: a turn reads what it has room for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.features.strategies.recall import make_retrieval
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.model import ModelRequest, ModelTraits, TokenCount
from bubbot.runtime.compose import ContextPolicy
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, message
from bubbot.tape.query import TapeQuery
from bubbot.tape.store import Batch
from tests.summarising import summarising
from tests.turns import HOME, Bench, Options, assert_rebuilt, running

LENGTH = 6_000
"""Entries of the tape."""
CACHED, SHORT, PAGE = 400, 200, 100
"""A twentieth and less of the real limits, so that the tape can be as short."""
MOST = LENGTH // 4
"""Entries that a turn may read."""
DATE = "2026-11-20T10:00:00.000000+00:00"
ROOM = ModelTraits(context_tokens=6_000)


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bubbot.tape.service.WINDOW_CACHE_ENTRIES", CACHED)
    monkeypatch.setattr("bubbot.tape.window.WINDOW_CACHE_ENTRIES", CACHED)
    monkeypatch.setattr("bubbot.runtime.compose.SHORT_WINDOW", SHORT)
    monkeypatch.setattr("bubbot.runtime.compose.PAGE_ENTRIES", PAGE)
    monkeypatch.setattr("bubbot.features.strategies.summaries.PAGE_ENTRIES", PAGE)


class ReadEntries:
    """Counts the entries that a store reads."""

    def __init__(self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        fetch = store.fetch

        async def counted(queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
            answers = await fetch(queries)
            self.count += sum(map(len, answers))
            return answers

        monkeypatch.setattr(store, "fetch", counted)

    def take(self) -> int:
        """Return the count, and begin again."""
        count, self.count = self.count, 0
        return count


@pytest.fixture
async def long_store(sqlite_store: SqliteStore) -> SqliteStore:
    """With a tape as an import leaves it: messages, and no cut."""
    said = [message("user" if place % 2 else "assistant", f"message {place}") for place in range(2, LENGTH)]
    entries = [anchor("session/start", {"owner": "human"}), *said]
    await sqlite_store.append([Batch(HOME, tuple([replace(entry, date=DATE) for entry in entries]))])
    return sqlite_store


@pytest.fixture
def read(long_store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> ReadEntries:
    return ReadEntries(long_store, monkeypatch)


class CountingModel(ScriptedModel):
    """Counts a token for four bytes."""

    async def count(self, request: ModelRequest) -> TokenCount:
        """See `CountsTokens.count`."""
        return TokenCount(len(request.as_bytes()) // 4, "fours")


def recalling() -> Options:
    strategies = OWN_STRATEGIES.replace_own(make_retrieval(lambda _: 300))
    return Options(compose=ContextPolicy("retrieval", strategies=strategies))


@pytest.fixture(params=["compact", "counted", "summary", "retrieval"])
async def bench(request: pytest.FixtureRequest, long_store: SqliteStore) -> AsyncIterator[Bench]:
    made = {
        "compact": lambda: running(long_store, ScriptedModel(traits=ROOM)),
        "counted": lambda: running(long_store, CountingModel(traits=ROOM)),
        "summary": lambda: summarising(long_store, ScriptedModel(traits=ROOM)),
        "retrieval": lambda: running(long_store, ScriptedModel(traits=ROOM), recalling()),
    }
    async with made[request.param]() as bench:
        yield bench


async def test_a_turn_reads_what_it_has_room_for(bench: Bench, read: ReadEntries) -> None:
    await bench.say("hello")
    assert read.take() < MOST


@pytest.mark.parametrize("bench", ["compact", "counted", "retrieval"], indirect=True)
async def test_what_it_left_out_is_recorded_and_stays_so(bench: Bench, read: ReadEntries) -> None:
    await bench.say("hello")
    (cut,) = await bench.events("context/cut")
    read.take()
    await bench.say("and now?")
    assert read.take() < PAGE
    assert (cut["left_out"][0][0], cut["from"]) == (2, cut["left_out"][-1][1] + 1)
    earlier, later = (request.texts for request in bench.requests[:2])
    assert later[: len(earlier)] == earlier


@pytest.mark.parametrize("bench", ["compact", "counted", "retrieval"], indirect=True)
async def test_its_request_is_built_again_by_reading_as_little(bench: Bench, read: ReadEntries) -> None:
    await bench.say("hello")
    await bench.say("and now?")
    steps = len(bench.requests)
    await bench.entries()
    read.take()
    await assert_rebuilt(bench)
    assert read.take() - 2 * LENGTH < steps * MOST


async def test_what_people_said_while_nobody_asked_is_not_read_either(
    long_store: SqliteStore, read: ReadEntries
) -> None:
    async with running(long_store, ScriptedModel(traits=ROOM)) as bench:
        await bench.say("hello")
        (cut,) = await bench.events("context/cut")
        heard = [message("user", f"heard {place}", group=True) for place in range(LENGTH // 2)]
        await bench.tape().append(heard)
        read.take()
        await bench.say("what did I miss?")
        assert read.take() < MOST
        *_, newest = await bench.events("context/cut")
        assert newest["since"] == cut["since"]
        assert (newest["left_out"][0][0], newest["from"] > LENGTH) == (2, True)
        await assert_rebuilt(bench)


async def test_a_package_that_names_no_floor_gets_all_of_the_window(long_store: SqliteStore, read: ReadEntries) -> None:
    own = tuple(replace(each, find_floor=lambda *_: None) for each in OWN_STRATEGIES.own)
    policy = ContextPolicy("compact", strategies=structs.replace(OWN_STRATEGIES, own=own))
    async with running(long_store, ScriptedModel(traits=ROOM), Options(compose=policy)) as bench:
        await bench.say("hello")
        assert read.take() > LENGTH
