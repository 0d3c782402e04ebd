"""What a service keeps from turn to turn answers as the store would."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from bubbot.errors import AnchorNotFound
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape import entry as make
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import IdRanges, OpeningAnchor, TapeQuery, WholeTape, Window, ZoneSlice
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, SteppingClock

KINDS = ("anchor", "event")
MEMORY = ("memory/open", "memory.long_term", "memory/seal")
QUERIES = (
    TapeQuery("tape", kinds=("event",), names=("loop.step",), newest=True, limit=1),
    TapeQuery("tape", kinds=("event",), names=("loop.step",), newest=True, limit=3),
    TapeQuery("tape", kinds=("event",), names=("loop.step",), limit=2),
    TapeQuery("tape", kinds=("event", "message"), names=("switched",)),
    TapeQuery("tape", kinds=("anchor",), names=("aside",), newest=True),
    TapeQuery("tape", ZoneSlice("memory/open", "memory/seal"), KINDS, MEMORY, missing="empty"),
    TapeQuery("tape", ZoneSlice("memory/open", "memory/seal"), ("event",), MEMORY, missing="empty"),
    TapeQuery("tape", Window(), kinds=("event",), names=("loop.step",), missing="empty"),
    TapeQuery("tape", Window(), missing="empty"),
    TapeQuery("tape", OpeningAnchor(), missing="empty"),
    TapeQuery("tape", IdRanges(((4, None),))),
    TapeQuery("tape", IdRanges(((5, 6), (3, 3)))),
    TapeQuery("tape", IdRanges(())),
)
ENTRIES: tuple[tuple[TapeEntry, ...], ...] = (
    (make.message("user", "hello"),),
    (make.event("loop.step", {"step": 1}),),
    (make.event("switched", {"model": "other"}),),
    (anchor("aside", {}, window=False),),
    (anchor("phase/next", {}),),
    (anchor("memory/open", {}, window=False), make.event("memory.long_term", {"content": "x"}), anchor("memory/seal", {}, window=False)),
    (anchor("memory/open", {}, window=False),),
    (anchor("memory/seal", {}, window=False),),
    (anchor("phase/next", {}, recalls=((5, 6), (3, 5), (9, 9))),),
    (anchor("phase/next", {}, recalls=((1, 2),)), make.message("user", "hello")),
)  # fmt: skip
TURNS = st.lists(st.lists(st.sampled_from(ENTRIES), max_size=4), min_size=1, max_size=6)


class Counting(InMemoryStore):
    """Counts the queries that reach it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[TapeQuery] = []

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        self.asked += queries
        return await super().fetch(queries)


def service(store: InMemoryStore) -> TapeService:
    return TapeService(store, "tape", now=SteppingClock(), new_id=CountingIds())


async def answers(fork_or_store: object, queries: Sequence[TapeQuery]) -> list[object]:
    found: list[object] = []
    for query in queries:
        try:
            found += await fork_or_store.fetch([query])  # type: ignore[attr-defined]
        except AnchorNotFound:
            found.append("no anchor")
    return found


@given(turns=TURNS)
async def test_turn_after_turn_a_fork_reads_what_the_store_would_find(
    turns: list[list[tuple[TapeEntry, ...]]],
) -> None:
    store = Counting()
    tape = service(store)
    await tape.ensure_bootstrap_anchor()
    for turn in turns:
        fork = await tape.open_fork()
        assert await answers(fork, QUERIES) == await answers(store, QUERIES)
        assert await answers(fork, QUERIES) == await answers(store, QUERIES)
        for entries in turn:
            await fork.append(entries)
            await answers(fork, QUERIES)
        await fork.merge()


async def test_what_every_step_asks_again_is_asked_of_the_store_once() -> None:
    store = Counting()
    tape = service(store)
    await tape.ensure_bootstrap_anchor()
    await tape.append(ENTRIES[5])
    step = QUERIES[0]
    for _ in range(3):
        fork = await tape.open_fork()
        for _ in range(3):
            await answers(fork, (step, QUERIES[5]))
        await fork.append([make.event("loop.step", {"step": 1}), make.message("user", "hello")])
        await fork.merge()
    assert sum(query.part == WholeTape() and query.names == step.names for query in store.asked) == 1
    assert sum(isinstance(query.part, ZoneSlice) for query in store.asked) == 1


async def test_an_append_past_the_forks_is_seen() -> None:
    store = Counting()
    tape = service(store)
    await tape.ensure_bootstrap_anchor()
    await answers(await tape.open_fork(), QUERIES[:1])
    await service(store).append([make.event("loop.step", {"step": 7})])
    fork = await tape.open_fork()
    assert (await fork.fetch(QUERIES[:1]))[0][0].payload["data"]["step"] == 7
