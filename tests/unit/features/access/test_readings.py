"""Grants to read: which chat may look into another one, given and taken back by owners alone."""

from __future__ import annotations

import pytest

from bubbot.features.access.service import AccessService
from bubbot.features.access.state import ACCESS_PROJECTION
from bubbot.ports.access import ListedPeople
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.service import TapeService
from tests.callers import by, refused, run
from tests.doubles import CountingIds, CountingSalt, SteppingClock

OWNER = "telegram:1"
SOURCE, READER = "telegram:7", "telegram:8"


def opened(store: InMemoryStore) -> AccessService:
    tape = TapeService(store, "bubbot/access", now=SteppingClock(), new_id=CountingIds())
    people = {"telegram": ListedPeople(owners=frozenset({"1"}), admins=frozenset({"2"}))}
    return AccessService(tape, now=SteppingClock(), random=CountingSalt(), configured=people)


@pytest.fixture
def access(memory_store: InMemoryStore) -> AccessService:
    return opened(memory_store)


async def test_a_grant_lets_one_chat_read_one_other_until_it_is_taken_back(access: AccessService) -> None:
    granted = await run(access.grant_reading, by(OWNER), SOURCE, READER)
    other = await run(access.grant_reading, by("terminal"), SOURCE, "telegram:9")
    assert (granted.source, granted.reader, granted.changed) == (SOURCE, READER, True)
    rows = await access.list_readings(by(OWNER))
    assert [(row.source, row.reader, row.by) for row in rows] == [
        (SOURCE, READER, OWNER),
        (SOURCE, "telegram:9", "terminal"),
    ]
    assert access.may_read(READER, SOURCE)
    assert not access.may_read(SOURCE, READER)
    await run(access.revoke_reading, by(OWNER), SOURCE, READER)
    assert not access.may_read(READER, SOURCE)
    assert [row.reader for row in await access.list_readings(by(OWNER))] == [other.reader]
    with refused("telegram:8 has no grant to read telegram:7"):
        await run(access.revoke_reading, by(OWNER), SOURCE, READER)


async def test_a_grant_twice_is_one_fact(memory_store: InMemoryStore, access: AccessService) -> None:
    assert (await run(access.grant_reading, by(OWNER), SOURCE, READER)).changed
    assert not (await run(access.grant_reading, by("terminal"), SOURCE, READER)).changed
    assert await memory_store.head("bubbot/access") == 1


async def test_it_holds_after_a_restart_and_from_a_checkpoint(
    memory_store: InMemoryStore, access: AccessService
) -> None:
    await run(access.grant_reading, by(OWNER), SOURCE, READER)
    later = opened(memory_store)
    await run(later.revoke_reading, by(OWNER), SOURCE, READER)  # reads the tape first
    assert await later.list_readings(by(OWNER)) == []
    state = ACCESS_PROJECTION.encode(access.state)
    tape = TapeService(memory_store, "bubbot/access", now=SteppingClock(), new_id=CountingIds())
    cited = [await tape.entry(number) for number in ACCESS_PROJECTION.cited_ids(state)]
    assert ACCESS_PROJECTION.decode(state, cited).readings == access.state.readings


@pytest.mark.parametrize("giver", ["telegram:2", "telegram:42"])
async def test_only_an_owner_grants_and_takes_back(access: AccessService, giver: str) -> None:
    await run(access.grant_reading, by(OWNER), SOURCE, READER)
    with refused():
        await run(access.grant_reading, by(giver), SOURCE, "telegram:9")
    with refused():
        await run(access.revoke_reading, by(giver), SOURCE, READER)
    assert [(each.source, each.reader) for each in await access.list_readings(by(OWNER))] == [(SOURCE, READER)]


@pytest.mark.parametrize(
    ("source", "reader"), [(SOURCE, SOURCE), ("bubbot/budget", READER), (SOURCE, "bubbot/budget"), ("", READER)]
)
async def test_what_is_no_other_chat_is_refused(access: AccessService, source: str, reader: str) -> None:
    with refused():
        await run(access.grant_reading, by(OWNER), source, reader)
    assert await access.list_readings(by(OWNER)) == []
