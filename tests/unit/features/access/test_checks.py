"""Doctor findings of access. Each is planted."""

from __future__ import annotations

import asyncio

from bubbot.features.access.service import AccessService
from bubbot.ports.access import ListedPeople
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.service import TapeService
from tests.callers import by, run
from tests.doubles import CountingIds, CountingSalt, SteppingClock
from tests.planting import found, look_at_tape, plants


@plants("access.audits")
def test_auditors_are_named(memory_store: InMemoryStore) -> None:
    tape = TapeService(memory_store, "bubbot/access", now=SteppingClock(), new_id=CountingIds())
    assert asyncio.run(look_at_tape("access", tape)) == []

    async def grant() -> None:
        access = AccessService(tape, now=SteppingClock(), random=CountingSalt())
        for session in ("telegram:7", "telegram:8"):
            await run(access.grant_audit, by("terminal"), "anna", session)

    asyncio.run(grant())
    assert "anna (2)" in found(asyncio.run(look_at_tape("access", tape)))["access.audits"].cause


@plants("access.groups")
def test_groups_that_were_opened_are_named(memory_store: InMemoryStore) -> None:
    tape = TapeService(memory_store, "bubbot/access", now=SteppingClock(), new_id=CountingIds())
    assert asyncio.run(look_at_tape("access", tape)) == []

    async def decide() -> None:
        access = AccessService(
            tape, now=SteppingClock(), random=CountingSalt(), configured={"telegram": ListedPeople()}
        )
        await run(access.set_audience, by("terminal", "Family"), "-1001", "everybody", "telegram")
        await run(access.set_audience, by("terminal"), "-1002", "known", "telegram")

    asyncio.run(decide())
    assert "telegram -1001 Family." in found(asyncio.run(look_at_tape("access", tape)))["access.groups"].cause
