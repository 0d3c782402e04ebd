"""The matrix of rights: each cell is what the bot decides, and changes with it."""

from __future__ import annotations

from typing import Any

import pytest

from bubbot.features.access.results import AccessRight
from bubbot.features.access.service import AccessService
from bubbot.ports.access import ListedPeople
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import event
from bubbot.tape.service import TapeService
from bubbot.tape.store import Batch
from tests.callers import by, run
from tests.doubles import CountingIds, CountingSalt, SteppingClock

OWNER, MEMBER, GUEST = "1", "2", "9"
DIRECT, OTHERS, GROUP, QUIET = "telegram:2", "telegram:1", "telegram:-5", "telegram:-6"


def received(session: str, sender: str, *, direct: bool) -> Any:
    data = {"session": session, "channel": "telegram", "sender": {"id": sender, "name": "x"}, "direct": direct}
    return event("inbox/received", data)


@pytest.fixture
async def access(memory_store: InMemoryStore) -> AccessService:
    messages = [
        received(DIRECT, MEMBER, direct=True),
        received(OTHERS, OWNER, direct=True),
        received(GROUP, MEMBER, direct=False),
        received(QUIET, OWNER, direct=False),
    ]
    await memory_store.append([Batch("bubbot/inbox/telegram", tuple(messages))])
    tape = TapeService(memory_store, "bubbot/access", now=SteppingClock(), new_id=CountingIds())
    people = {"telegram": ListedPeople(owners=frozenset({OWNER}), members=frozenset({MEMBER}))}
    return AccessService(tape, now=SteppingClock(), random=CountingSalt(), configured=people)


async def rights(access: AccessService) -> dict[tuple[str, str], str]:
    """Return the first letters of what each person may do in each chat."""
    found: list[AccessRight] = await access.list_rights(by("terminal"))
    return {(each.person, each.session): "".join(name[0] for name in each.rights) for each in found}


async def test_a_person_speaks_in_the_own_chat_and_in_groups_and_an_owner_looks_everywhere(
    access: AccessService,
) -> None:
    assert await rights(access) == {
        ("telegram:1", OTHERS): "rwma",
        ("telegram:1", DIRECT): "ma",
        ("telegram:1", GROUP): "rwma",
        ("telegram:1", QUIET): "rwma",
        ("telegram:2", DIRECT): "rwm",
        ("telegram:2", GROUP): "rwm",
        ("telegram:2", QUIET): "rwm",
    }


async def test_each_decision_changes_its_cells_only(access: AccessService) -> None:
    before = await rights(access)
    await run(access.set_audience, by("terminal"), "-6", "nobody", "telegram")
    closed = await rights(access)
    assert {key: value for key, value in before.items() if closed.get(key) != value} == {
        ("telegram:1", QUIET): "rwma",
        ("telegram:2", QUIET): "rwm",
    }
    assert closed["telegram:1", QUIET] == "ma"
    await run(access.grant_reading, by("terminal"), OTHERS, DIRECT)
    reading = await rights(access)
    assert reading == {**closed, ("telegram:2", OTHERS): "r"}
    (through,) = [each.through for each in await access.list_rights(by("terminal")) if each.through]
    assert through == (DIRECT,)
    await run(access.grant_audit, by("terminal"), "anna", GROUP)
    await run(access.grant_audit, by("terminal"), f"telegram:{MEMBER}", OTHERS)
    audits = await rights(access)
    assert audits == {**reading, ("anna", GROUP): "a", ("telegram:2", OTHERS): "ra"}
    await run(access.grant, by("terminal"), GUEST, "telegram", "member")
    assert await rights(access) == {**audits, ("telegram:9", GROUP): "rwm"}
    await run(access.revoke, by("terminal"), GUEST, "telegram")
    await run(access.revoke_audit, by("terminal"), "anna", GROUP)
    await run(access.revoke_reading, by("terminal"), OTHERS, DIRECT)
    assert await rights(access) == {**closed, ("telegram:2", OTHERS): "a"}


async def test_everybody_in_an_open_group_needs_no_row_and_a_known_person_keeps_one(access: AccessService) -> None:
    await run(access.set_audience, by("terminal"), "-6", "everybody", "telegram")
    await run(access.grant_audit, by("terminal"), f"telegram:{GUEST}", DIRECT)
    found = await rights(access)
    assert found["telegram:9", QUIET] == "rwm", "the bot would answer anybody there"
    assert found["telegram:9", DIRECT] == "a"
    assert ("telegram:9", GROUP) not in found
