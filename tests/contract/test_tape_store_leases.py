"""What every tape store promises about leases: an older epoch writes nothing."""

from __future__ import annotations

import pytest
from msgspec import structs

from bubbot.errors import LeaseLost
from bubbot.tape.entry import event
from bubbot.tape.store import Batch, ForkedSession, ForkRecord, Lease, ResetBatch, TapeStore
from tests.tapes import notes, texts, whole


def under(epoch: int, batch: Batch) -> Batch:
    """The batch, written under a lease of the tape `tape`."""
    return structs.replace(batch, lease=Lease("tape", epoch))


async def test_the_epochs_of_a_tape_begin_with_one_and_rise(store: TapeStore) -> None:
    assert [await store.raise_epoch(tape) for tape in ("tape", "tape", "other", "tape")] == [1, 2, 1, 3]
    assert await store.tapes() == []


async def test_an_append_under_an_older_epoch_is_refused_on_all_its_tapes(store: TapeStore) -> None:
    first, second = await store.raise_epoch("tape"), await store.raise_epoch("tape")
    await store.append([under(second, notes("a"))])
    for append in (store.append, store.append_deferred):
        with pytest.raises(LeaseLost):
            await append([notes("b", tape="other"), under(first, notes("c"))])
    assert (await texts(store), [tape.name for tape in await store.tapes()]) == (["a"], ["tape"])


async def test_a_fact_on_another_tape_may_depend_on_the_lease(store: TapeStore) -> None:
    first = await store.raise_epoch("tape")
    await store.append([under(first, notes("a", tape="outbox"))])
    await store.raise_epoch("tape")
    with pytest.raises(LeaseLost):
        await store.append([under(first, notes("b", tape="outbox"))])
    assert await store.head("outbox") == 1


async def test_what_nobody_holds_is_written_without_a_lease(store: TapeStore) -> None:
    await store.raise_epoch("tape")
    await store.append([notes("a")])
    assert await texts(store) == ["a"]


async def test_an_older_holder_opens_extends_and_merges_no_fork(store: TapeStore) -> None:
    first = await store.raise_epoch("tape")
    mine = ForkRecord("f", "tape", 0, (under(first, notes("a")),), session="test:home", epoch=first)
    await store.open_fork(mine)
    await store.raise_epoch("tape")
    before = await store.forks()
    with pytest.raises(LeaseLost):
        await store.open_fork(structs.replace(mine, id="g"))
    with pytest.raises(LeaseLost):
        await store.extend_fork("f", [under(first, notes("b"))])
    with pytest.raises(LeaseLost):
        await store.merge_fork("f", [under(first, notes("a"))])
    assert (await store.forks(), await whole(store)) == (before, ())


async def test_the_lease_is_lost_also_when_the_newer_holder_has_closed_the_fork(store: TapeStore) -> None:
    first = await store.raise_epoch("tape")
    await store.open_fork(ForkRecord("f", "tape", 0, (under(first, notes("a")),), epoch=first))
    second = await store.raise_epoch("tape")
    await store.merge_fork("f", [under(second, notes("a"))])
    with pytest.raises(LeaseLost):
        await store.extend_fork("f", [under(first, notes("b"))])
    with pytest.raises(LeaseLost):
        await store.merge_fork("f", [under(first, notes("a"))])
    assert await texts(store) == ["a"]


async def test_a_reset_tape_keeps_its_epoch(store: TapeStore) -> None:
    await store.append([notes("a")])
    first = await store.raise_epoch("tape")
    await store.reset("tape", ResetBatch("tape@old"), [event("session/start", {})])
    await store.raise_epoch("tape")
    with pytest.raises(LeaseLost):
        await store.append([under(first, notes("b"))])


async def test_forks_name_their_session_and_its_epoch(store: TapeStore) -> None:
    records = [
        ForkRecord("f", "tape", 0, (notes("a"),), session="test:home", epoch=3),
        ForkRecord("g", "tape", 0, (notes("b"),), session="test:home", epoch=3),
        ForkRecord("h", "other", 0, (notes("c", tape="other"),)),
    ]
    for record in records:
        await store.open_fork(record, expect_head=False)
    assert await store.forks() == records
    assert await store.forks("tape") == records[:2]
    assert await store.forks("elsewhere") == []
    assert await store.forked_sessions() == [ForkedSession("other", ""), ForkedSession("tape", "test:home")]
