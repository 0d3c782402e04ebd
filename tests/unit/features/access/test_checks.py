"""Doctor findings of access. Each is planted."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from bubbot.features.access.arguments import AudienceArgs, AuditArgs
from bubbot.features.access.checks import check_audits, check_groups
from bubbot.features.access.service import AccessService
from bubbot.ports.access import ListedPeople
from bubbot.ports.checks import HomeReader
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.service import TapeService
from tests.callers import by
from tests.doubles import CountingIds, CountingSalt, SteppingClock
from tests.planting import found, plants

UNUSED: Any = None


@plants("access.audits")
def test_auditors_are_named(memory_store: InMemoryStore) -> None:
    tape = TapeService(memory_store, "bubbot/access", now=SteppingClock(), new_id=CountingIds())
    home = HomeReader(Path(), Path(), None, UNUSED, UNUSED, lambda _: nullcontext(tape))
    assert asyncio.run(check_audits(home)) == []

    async def grant() -> None:
        access = AccessService(tape, now=SteppingClock(), random=CountingSalt())
        for session in ("telegram:7", "telegram:8"):
            await access.grant_audit(by("terminal"), AuditArgs("anna", session))

    asyncio.run(grant())
    assert "anna (2)" in found(asyncio.run(check_audits(home)))["access.audits"].cause


@plants("access.groups")
def test_groups_that_were_opened_are_named(memory_store: InMemoryStore) -> None:
    tape = TapeService(memory_store, "bubbot/access", now=SteppingClock(), new_id=CountingIds())
    home = HomeReader(Path(), Path(), None, UNUSED, UNUSED, lambda _: nullcontext(tape))
    assert asyncio.run(check_groups(home)) == []

    async def decide() -> None:
        access = AccessService(
            tape, now=SteppingClock(), random=CountingSalt(), configured={"telegram": ListedPeople()}
        )
        await access.set_audience(by("terminal", "Family"), AudienceArgs("-1001", "everybody", "telegram"))
        await access.set_audience(by("terminal"), AudienceArgs("-1002", "known", "telegram"))

    asyncio.run(decide())
    assert "telegram -1001 Family." in found(asyncio.run(check_groups(home)))["access.groups"].cause
