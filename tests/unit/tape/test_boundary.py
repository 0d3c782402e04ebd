"""What a viewer sees through the boundary of reading."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing

import pytest

from bubbot.app.events import OWN_REFERENCES
from bubbot.errors import AccessError, StoreUnavailable
from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.sqlite.connections import open_reader
from bubbot.stores.sqlite.store import SqliteStore, open_readonly
from bubbot.tape.boundary import OWNER, SharedTape, TapeBoundary, Viewer
from bubbot.tape.entry import TapeEntry, event
from bubbot.tape.query import IdRanges, NotIndexed, TapeQuery
from bubbot.tape.service import session_tape
from bubbot.tape.store import Batch, ForkRecord, ResetBatch, TapeStore
from tests.tapes import note, texts

SHARED_PAGE_ENTRIES = 500


WORK, PRIVATE = session_tape("home", "telegram:1"), session_tape("home", "telegram:2")
OUTBOX = SharedTape("bubbot/outbox/")
JOBS = SharedTape("bubbot/schedule", "job", ("schedule/added",))
AUDITOR = Viewer("anna", frozenset({"telegram:1"}))


def bounded(store: TapeStore, viewer: Viewer = AUDITOR) -> TapeBoundary:
    return TapeBoundary(store, viewer, workspace="home", references=OWN_REFERENCES, shared=(OUTBOX, JOBS))


def intent(session: str, text: str) -> TapeEntry:
    return event("outbox/intent", {"session": session, "turn": "t", "parts": [{"chat": "1", "text": text}]})


@pytest.fixture
async def store(memory_store: InMemoryStore) -> InMemoryStore:
    await memory_store.append([Batch(WORK, (note("granted"),)), Batch(PRIVATE, (note("private"),))])
    facts = [
        *(intent("telegram:1", "one"), intent("telegram:2", "two")),
        *(event("outbox/receipt", {"intent": number, "part": 0, "external_id": str(number)}) for number in (1, 2)),
        event("outbox/checkpoint", {"version": 1, "after": 1, "state": {"open": [{"id": 1, "sent": []}]}}),
    ]
    await memory_store.append([Batch("bubbot/outbox/telegram", tuple(facts))])
    return memory_store


async def test_an_auditor_reads_the_granted_tape_and_no_other(store: InMemoryStore) -> None:
    boundary = bounded(store)
    assert await texts(boundary, WORK) == ["granted"]
    assert (await boundary.open_session("telegram:1").entry(1)).payload["content"] == "granted"


async def test_a_tape_that_is_not_granted_and_one_that_does_not_exist_are_refused_alike(store: InMemoryStore) -> None:
    boundary = bounded(store)
    for name in (PRIVATE, "missing", "bubbot/access", "bubbot/memory/workspace", "bubbot/outbox"):
        for read in _reads(boundary, name):
            with pytest.raises(AccessError, match="anna may not see the tape"):
                await read()


def _reads(boundary: TapeBoundary, name: str) -> Sequence[Callable[[], Awaitable[object]]]:
    return (
        lambda: boundary.fetch([TapeQuery(name)]),
        lambda: boundary.fetch([TapeQuery(WORK), TapeQuery(name)]),
        lambda: boundary.head(name),
        lambda: boundary.get_blob(name, "0" * 64),
    )


async def test_a_reset_does_not_end_an_audit(store: InMemoryStore) -> None:
    await store.reset(WORK, ResetBatch(f"{WORK}@2026"), [event("tape/archived", {"archive": f"{WORK}@2026"})])
    boundary = bounded(store)
    assert [tape.name for tape in await boundary.tapes()] == sorted([WORK, f"{WORK}@2026"])
    assert (await texts(boundary, f"{WORK}@2026"))[0] == "granted"


async def test_facts_about_other_sessions_are_left_out_of_a_shared_tape(store: InMemoryStore) -> None:
    found = (await bounded(store).fetch([TapeQuery("bubbot/outbox/telegram")]))[0]
    assert [entry.id for entry in found] == [1, 3]  # the delivery and its receipt, and never a checkpoint
    everything = (await bounded(store, OWNER).fetch([TapeQuery("bubbot/outbox/telegram")]))[0]
    assert [entry.id for entry in everything] == [1, 2, 3, 4, 5]


async def test_facts_of_a_shared_tape_follow_the_session_of_their_subject(memory_store: InMemoryStore) -> None:
    facts = [
        event("schedule/added", {"job": "a", "session": "telegram:1", "text": "water"}),
        event("schedule/added", {"job": "b", "session": "telegram:2", "text": "secret"}),
        *(event("schedule/ran", {"job": job, "mark": "m", "turn": "t", "status": "ok"}) for job in ("a", "b", "c")),
        event("schedule/added", {"job": "a", "session": "telegram:2", "text": "moved"}),
    ]
    await memory_store.append([Batch("bubbot/schedule", tuple(facts[:5]))])
    query = TapeQuery("bubbot/schedule")
    assert [entry.id for entry in (await bounded(memory_store).fetch([query]))[0]] == [1, 3]
    await memory_store.append([Batch("bubbot/schedule", (facts[5],))])  # a job that two chats had belongs to both
    assert [entry.id for entry in (await bounded(memory_store).fetch([query]))[0]] == [1]


async def test_a_limit_counts_what_the_viewer_may_see(memory_store: InMemoryStore) -> None:
    # The first of a page and the last before it, forwards and backwards.
    mine = (1, SHARED_PAGE_ENTRIES + 1, SHARED_PAGE_ENTRIES + 19, 2 * SHARED_PAGE_ENTRIES + 1)
    count = 2 * SHARED_PAGE_ENTRIES + 20
    facts = [intent("telegram:1" if number in mine else "telegram:2", str(number)) for number in range(1, count)]
    await memory_store.append([Batch("bubbot/outbox/telegram", tuple(facts))])
    boundary = bounded(memory_store)

    async def ids(**fields: object) -> list[int]:
        return [entry.id for entry in (await boundary.fetch([TapeQuery("bubbot/outbox/telegram", **fields)]))[0]]  # type: ignore[arg-type]

    assert await ids() == [*mine]
    assert await ids(limit=2) == [*mine[:2]]
    assert await ids(newest=True, limit=3) == [mine[3], mine[2], mine[1]]
    assert await ids(part=IdRanges(((2, mine[3] - 1),)), newest=True) == [mine[2], mine[1]]
    assert await ids(part=IdRanges(((2, SHARED_PAGE_ENTRIES + 1),))) == [mine[1]], "a page, and nothing is left"
    assert await ids(part=NotIndexed(), limit=2) == [*mine[:2]]
    assert await ids(text=str(mine[1]), limit=5) == [mine[1]]


async def test_a_fork_shows_nothing_for_other_tapes(store: InMemoryStore) -> None:
    staged = (Batch(WORK, (note("running"),)), Batch("bubbot/memory/user", (note("private"),)))
    await store.open_fork(ForkRecord("one", WORK, 1, staged))
    await store.open_fork(ForkRecord("two", PRIVATE, 1, (Batch(PRIVATE, (note("private"),)),)))
    boundary = bounded(store)
    assert [(fork.id, len(fork.staged)) for fork in await boundary.forks()] == [("one", 1)]
    assert [fork.tape for fork in await boundary.forked_sessions()] == [WORK]
    assert await boundary.forks(PRIVATE) == []


WRITES: dict[str, Callable[[TapeStore], Awaitable[object]]] = {
    "append": lambda store: store.append([Batch(WORK, (note("x"),))]),
    "append_deferred": lambda store: store.append_deferred([Batch(WORK, (note("x"),))]),
    "put_blob": lambda store: store.put_blob(WORK, b"x"),
    "open_fork": lambda store: store.open_fork(ForkRecord("f", WORK, 0, ())),
    "extend_fork": lambda store: store.extend_fork("f", ()),
    "merge_fork": lambda store: store.merge_fork("f", ()),
    "drop_fork": lambda store: store.drop_fork("f"),
    "raise_epoch": lambda store: store.raise_epoch(WORK),
    "reset": lambda store: store.reset(WORK, ResetBatch("a"), ()),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("viewer", [OWNER, AUDITOR], ids=["owner", "auditor"])
async def test_nobody_writes_through_the_boundary(memory_store: InMemoryStore, viewer: Viewer, name: str) -> None:
    with pytest.raises(AccessError, match="nothing is written"):
        await WRITES[name](bounded(memory_store, viewer))


def test_the_boundary_has_each_method_of_a_store_and_no_more() -> None:
    ours = {name for name in vars(TapeBoundary) if not name.startswith("_")}
    port = {name for kind in TapeStore.__mro__ for name in vars(kind) if not name.startswith("_")}
    assert port - ours == set()
    assert {*WRITES} <= ours
    assert ours - port == {"may_read", "open_tape", "open_session", "list_blobs"}


async def test_the_database_refuses_what_gets_past_the_boundary(sqlite_store: SqliteStore) -> None:
    await sqlite_store.append([Batch(WORK, (note("x"),))])
    reader = await open_readonly(sqlite_store.path)
    try:
        for write in WRITES.values():
            with pytest.raises(StoreUnavailable):
                await write(reader)
    finally:
        await reader.aclose()
    with closing(open_reader(sqlite_store.path)) as conn:
        for _ in range(2):
            with pytest.raises(sqlite3.OperationalError, match="readonly database"):
                conn.execute("INSERT INTO tapes (name) VALUES ('forged')")
            conn.execute("PRAGMA query_only = OFF")  # then the mode of the file still refuses
    assert [tape.name for tape in await sqlite_store.tapes()] == [WORK]


async def test_a_fact_that_names_others_is_seen_with_all_of_them(memory_store: InMemoryStore) -> None:
    facts = [intent("telegram:1", "mine"), intent("telegram:2", "theirs")]
    facts += [event("turn/start", {"messages": ids}) for ids in ([1], [1, 2], [2], [1, 3], [4], [99], [], [True])]
    facts += [event("outbox/forgotten", {}), note("no fact")]
    await memory_store.append([Batch("bubbot/outbox/telegram", tuple(facts))])
    query = TapeQuery("bubbot/outbox/telegram")
    assert [entry.id for entry in (await bounded(memory_store).fetch([query]))[0]] == [1, 3, 6]


async def test_a_fact_is_followed_to_its_session_over_three_others(memory_store: InMemoryStore) -> None:
    facts = [intent("telegram:1", "mine"), *(event("turn/start", {"messages": [number]}) for number in range(1, 6))]
    await memory_store.append([Batch("bubbot/outbox/telegram", tuple(facts))])
    query = TapeQuery("bubbot/outbox/telegram")
    assert [entry.id for entry in (await bounded(memory_store).fetch([query]))[0]] == [1, 2, 3, 4]


async def test_a_fact_without_a_subject_is_not_seen(memory_store: InMemoryStore) -> None:
    added = event("schedule/added", {"job": "a", "session": "telegram:1", "text": "water"})
    await memory_store.append(
        [Batch("bubbot/schedule", (added, event("schedule/note", {}), event("schedule/ran", {})))]
    )
    assert [entry.id for entry in (await bounded(memory_store).fetch([TapeQuery("bubbot/schedule")]))[0]] == [1]
