"""Grants to read: which chat may look into another one, given and taken back by owners alone."""

from __future__ import annotations

import pytest

from bubbot.errors import AccessError, ConfigError
from bubbot.features.access.service import ACCESS_TAPE, TERMINAL, AccessService
from bubbot.features.access.state import ACCESS_PROJECTION
from bubbot.ports.access import ListedPeople
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, CountingSalt, SteppingClock

OWNER = "telegram:1"
SOURCE, READER = "telegram:7", "telegram:8"


def opened(store: InMemoryStore) -> AccessService:
    tape = TapeService(store, ACCESS_TAPE, now=SteppingClock(), new_id=CountingIds())
    people = {"telegram": ListedPeople(owners=frozenset({"1"}), admins=frozenset({"2"}))}
    return AccessService(tape, now=SteppingClock(), random=CountingSalt(), configured=people)


@pytest.fixture
def access(memory_store: InMemoryStore) -> AccessService:
    return opened(memory_store)


async def test_a_grant_lets_one_chat_read_one_other_until_it_is_taken_back(access: AccessService) -> None:
    granted = await access.grant_reading(SOURCE, READER, OWNER)
    other = await access.grant_reading(SOURCE, "telegram:9", TERMINAL)
    assert (granted.source, granted.reader, granted.giver) == (SOURCE, READER, OWNER)
    assert access.list_readings() == (granted, other)
    assert access.may_read(READER, SOURCE)
    assert not access.may_read(SOURCE, READER)
    await access.revoke_reading(SOURCE, READER, OWNER)
    assert not access.may_read(READER, SOURCE)
    assert access.list_readings() == (other,)
    with pytest.raises(AccessError, match="telegram:8 has no grant to read telegram:7"):
        await access.revoke_reading(SOURCE, READER, OWNER)


async def test_a_grant_twice_is_one_fact(memory_store: InMemoryStore, access: AccessService) -> None:
    first = await access.grant_reading(SOURCE, READER, OWNER)
    assert await access.grant_reading(SOURCE, READER, TERMINAL) == first
    assert await memory_store.head(ACCESS_TAPE) == 1


async def test_it_holds_after_a_restart_and_from_a_checkpoint(
    memory_store: InMemoryStore, access: AccessService
) -> None:
    granted = await access.grant_reading(SOURCE, READER, OWNER)
    later = opened(memory_store)
    await later.revoke_reading(SOURCE, READER, OWNER)  # reads the tape first
    assert later.list_readings() == ()
    state = ACCESS_PROJECTION.encode(access.state)
    tape = TapeService(memory_store, ACCESS_TAPE, now=SteppingClock(), new_id=CountingIds())
    cited = [await tape.entry(number) for number in ACCESS_PROJECTION.cited_ids(state)]
    assert ACCESS_PROJECTION.decode(state, cited).readings == {(SOURCE, READER): granted}


@pytest.mark.parametrize("giver", ["telegram:2", "telegram:42"])
async def test_only_an_owner_grants_and_takes_back(access: AccessService, giver: str) -> None:
    await access.grant_reading(SOURCE, READER, OWNER)
    with pytest.raises(AccessError):
        await access.grant_reading(SOURCE, "telegram:9", giver)
    with pytest.raises(AccessError):
        await access.revoke_reading(SOURCE, READER, giver)
    assert [(each.source, each.reader) for each in access.list_readings()] == [(SOURCE, READER)]


@pytest.mark.parametrize(
    ("source", "reader"), [(SOURCE, SOURCE), ("bubbot/budget", READER), (SOURCE, "bubbot/budget"), ("", READER)]
)
async def test_what_is_no_other_chat_is_refused(access: AccessService, source: str, reader: str) -> None:
    with pytest.raises(ConfigError):
        await access.grant_reading(source, reader, OWNER)
    assert access.list_readings() == ()
