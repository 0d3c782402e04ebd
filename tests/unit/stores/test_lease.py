"""The leases of one process: taken up once, and again after they were given back."""

from __future__ import annotations

import asyncio

import pytest

from bubbot.errors import LeaseLost
from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.lease import InProcessLease
from bubbot.tape.store import Lease, TapeStore


def tape_of(session: str) -> str:
    return f"tape of {session}"


async def test_whoever_asks_at_the_same_time_gets_the_same_lease(store: TapeStore) -> None:
    leases = InProcessLease(store, tape_of)
    held = await asyncio.gather(*(leases.hold("a") for _ in range(3)), leases.hold("b"))
    assert held == [Lease("tape of a", 1)] * 3 + [Lease("tape of b", 1)]
    assert await leases.hold("a") == held[0]


async def test_a_lease_that_was_given_back_is_taken_up_again(memory_store: InMemoryStore) -> None:
    leases = InProcessLease(memory_store, tape_of)
    await leases.hold("a")
    leases.release("a")
    leases.release("a")
    assert (await leases.hold("a")).epoch == 2


async def test_two_processes_raise_the_epoch_of_each_other(memory_store: InMemoryStore) -> None:
    first, second = InProcessLease(memory_store, tape_of), InProcessLease(memory_store, tape_of)
    assert [(await leases.hold("a")).epoch for leases in (first, second, first)] == [1, 2, 1]


async def test_a_session_that_another_process_works_on_is_not_taken_up(memory_store: InMemoryStore) -> None:
    leases = InProcessLease(memory_store, tape_of, {"mine"}.__contains__)
    assert (await leases.hold("mine")).epoch == 1
    with pytest.raises(LeaseLost, match="another process has the session theirs"):
        await leases.hold("theirs")
    assert await memory_store.raise_epoch("tape of theirs") == 1
    assert (leases.find("mine"), leases.find("theirs")) == (Lease("tape of mine", 1), None)
