"""Work on a copy of the tapes: it reads all there is, and writes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from bubbot.errors import EntryNotFound, TapeConflict
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.blobs import blob_digest
from bubbot.tape.discard import DiscardingStore
from bubbot.tape.entry import event
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tape.store import ForkRecord, ResetBatch
from tests.doubles import CountingIds, SteppingClock
from tests.tapes import notes, texts


@pytest.fixture
async def original(sharded_store: InMemoryStore) -> InMemoryStore:
    await sharded_store.append([notes("a", "b")])
    await sharded_store.put_blob("tape", b"stored before")
    return sharded_store


async def test_it_reads_what_the_original_has(original: InMemoryStore) -> None:
    copy, query = DiscardingStore(original), TapeQuery("tape")
    assert copy.tape_shards == original.tape_shards == 8
    assert await copy.fetch([query, query]) == await original.fetch([query, query])
    assert (await copy.head("tape"), await copy.tapes()) == (2, await original.tapes())
    assert await copy.get_blob("tape", blob_digest(b"stored before")) == b"stored before"


@pytest.mark.law("T13")
async def test_forks_of_forks_are_merged_and_nothing_reaches_the_original(original: InMemoryStore) -> None:
    copy = DiscardingStore(original)
    tape = TapeService(copy, "tape", now=SteppingClock(), new_id=CountingIds())
    turn = await tape.open_fork([event("note", {})])
    child = await turn.fork([event("task", {})])
    digest = await child.put_blob(b"written by the child")
    await child.merge()
    assert [entry.name for entry in (await turn.fetch([TapeQuery("tape")]))[0]][2:] == ["note", "task"]
    assert await turn.get_blob(digest) == b"written by the child"
    assert (await copy.forks(), await copy.forked_sessions()) == ([], [])
    with pytest.raises(TapeConflict, match="a copy of the tapes"):
        await turn.merge()
    await turn.discard()
    assert await texts(original) == ["a", "b"]
    assert await original.forks() == []


async def test_what_a_fork_wrote_is_forgotten_with_it(original: InMemoryStore) -> None:
    copy = DiscardingStore(original)
    digest = await copy.put_blob("tape", b"new")
    assert digest == blob_digest(b"new")
    await copy.drop_fork("f1/inner")
    assert await copy.get_blob("tape", digest) == b"new"
    await copy.drop_fork("f1")
    with pytest.raises(EntryNotFound):
        await copy.get_blob("tape", digest)


@pytest.mark.parametrize(
    "write",
    [
        lambda copy: copy.append([notes("c")]),
        lambda copy: copy.append_deferred([notes("c")]),
        lambda copy: copy.raise_epoch("tape"),
        lambda copy: copy.reset("tape", ResetBatch("tape@old"), []),
        lambda copy: copy.merge_fork("f1", [notes("c")]),
    ],
    ids=["append", "deferred", "epoch", "reset", "merge"],
)
async def test_it_refuses_to_write(
    original: InMemoryStore, write: Callable[[DiscardingStore], Awaitable[object]]
) -> None:
    copy = DiscardingStore(original)
    await copy.open_fork(ForkRecord("f1", "tape", 2, ()))
    with pytest.raises(TapeConflict, match="a copy of the tapes"):
        await write(copy)
    await copy.aclose()
    assert await texts(original) == ["a", "b"]
