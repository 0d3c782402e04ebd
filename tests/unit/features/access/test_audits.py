"""Auditors: who may look at which tapes, and that looking is no right to speak."""

from __future__ import annotations

import pytest

from bubbot.features.access.audits import AuditorDirectory
from bubbot.features.access.commands import access_tools
from bubbot.features.access.service import AccessService
from bubbot.features.access.state import ACCESS_PROJECTION
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.access import ListedPeople
from bubbot.ports.channel import Role
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.fact import Current
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.service import TapeService
from tests.callers import by, refused, run
from tests.doubles import CountingIds, CountingSalt, SteppingClock
from tests.turns import Options, running

OWNER_ID, MEMBER_ID = "1", "2"


def access_tape(store: InMemoryStore) -> TapeService:
    return TapeService(store, "bubbot/access", now=SteppingClock(), new_id=CountingIds())


@pytest.fixture
def access(memory_store: InMemoryStore) -> AccessService:
    people = {"telegram": ListedPeople(owners=frozenset({OWNER_ID}), members=frozenset({MEMBER_ID}))}
    return AccessService(access_tape(memory_store), now=SteppingClock(), random=CountingSalt(), configured=people)


async def test_an_auditor_sees_what_was_granted_and_a_revocation_holds_for_the_next_page(
    memory_store: InMemoryStore, access: AccessService
) -> None:
    directory = AuditorDirectory(access_tape(memory_store))
    assert (await directory.find_viewer("anna")).sessions == frozenset()
    await run(access.grant_audit, by("terminal"), "anna", "telegram:7")
    await run(access.grant_audit, by("terminal"), "anna", "telegram:8")
    await run(access.grant_audit, by(f"telegram:{OWNER_ID}"), "telegram:42", "telegram:9")
    assert (await directory.find_viewer("anna")).sessions == frozenset({"telegram:7", "telegram:8"})
    assert (await directory.find_viewer("telegram:42")).sessions == frozenset({"telegram:9"})
    await run(access.revoke_audit, by("terminal"), "anna", "telegram:8")
    assert (await directory.find_viewer("anna")).sessions == frozenset({"telegram:7"})
    assert [(each.auditor, each.session) for each in await access.list_audits(by("terminal"))] == [
        ("anna", "telegram:7"),
        ("telegram:42", "telegram:9"),
    ]


async def test_an_auditor_may_not_speak_and_a_member_stays_one(access: AccessService) -> None:
    await run(access.grant_audit, by("terminal"), "telegram:42", "telegram:7")
    await run(access.grant_audit, by("terminal"), f"telegram:{MEMBER_ID}", "telegram:7")
    assert access.role("telegram", "42") is Role.STRANGER
    assert access.role("telegram", MEMBER_ID) is Role.MEMBER
    assert not access.may_read("telegram:42", "telegram:7")


async def test_revoking_a_person_ends_the_audits_too(access: AccessService) -> None:
    await run(access.grant_audit, by("terminal"), "telegram:42", "telegram:7")
    await run(access.revoke, by("terminal"), "42", "telegram")
    assert await access.list_audits(by("terminal")) == []


@pytest.mark.parametrize("giver", [f"telegram:{MEMBER_ID}", "telegram:42"])
async def test_only_an_owner_grants_and_revokes(access: AccessService, giver: str) -> None:
    await run(access.grant_audit, by("terminal"), "telegram:42", "telegram:7")
    with refused():
        await run(access.grant_audit, by(giver), "telegram:42", "telegram:8")
    with refused():
        await run(access.revoke_audit, by(giver), "telegram:42", "telegram:7")
    assert [each.session for each in await access.list_audits(by("terminal"))] == ["telegram:7"]


@pytest.mark.parametrize(
    ("auditor", "session"),
    [
        ("Anna B", "telegram:7"),
        ("", "telegram:7"),
        ("discord:1", "telegram:7"),
        ("telegram:@ann", "telegram:7"),
        ("anna", "bubbot/budget"),
        ("anna", ""),
    ],
)
async def test_what_is_no_auditor_or_no_session_is_refused(access: AccessService, auditor: str, session: str) -> None:
    with refused():
        await run(access.grant_audit, by("terminal"), auditor, session)
    assert await access.list_audits(by("terminal")) == []


async def test_a_grant_twice_is_one_fact_and_nothing_to_revoke_is_an_error(
    memory_store: InMemoryStore, access: AccessService
) -> None:
    await run(access.grant_audit, by("terminal"), "anna", "work")
    await run(access.grant_audit, by("terminal"), "anna", "stdin:work")
    later = AccessService(  # has not read the tape yet
        access_tape(memory_store), now=SteppingClock(), random=CountingSalt(), configured=access.configured
    )
    await run(later.grant_audit, by("terminal"), "anna", "stdin:work")
    assert await memory_store.head("bubbot/access") == 1
    with refused("anna may not see telegram:7"):
        await run(access.revoke_audit, by("terminal"), "anna", "telegram:7")


async def test_a_checkpoint_holds_the_audits(memory_store: InMemoryStore, access: AccessService) -> None:
    await run(access.grant_audit, by("terminal"), "anna", "telegram:7")
    state = access.state
    stored = ACCESS_PROJECTION.encode(state)
    cited = [await access_tape(memory_store).entry(number) for number in ACCESS_PROJECTION.cited_ids(stored)]
    assert ACCESS_PROJECTION.decode(stored, cited).audits == state.audits
    older = {key: value for key, value in stored.items() if key != "audits"}
    assert ACCESS_PROJECTION.decode(older, []).audits == Current()


async def test_an_owner_grants_in_a_direct_chat_and_nobody_else_does(
    memory_store: InMemoryStore, access: AccessService
) -> None:
    access.configured = {"test": ListedPeople(owners=frozenset({"1"}))}
    tools = access_tools(lambda: access, ...)  # type: ignore[arg-type]
    async with running(memory_store, ScriptedModel(), Options(tools=tools, role=Role.OWNER)) as bench:
        granted = (await bench.say(",audit anna of telegram:7")).text
        assert "anna can see the tape of telegram:7" in granted
        assert (await bench.say(",audits")).text == "anna may see telegram:7"
        assert "may no longer see" in (await bench.say(",audit.revoke anna of telegram:7")).text
        assert (await bench.say(",audits")).text.startswith("No auditor may see a chat")


async def test_an_admin_grants_nothing(memory_store: InMemoryStore, access: AccessService) -> None:
    tools = access_tools(lambda: access, ...)  # type: ignore[arg-type]
    async with running(memory_store, ScriptedModel(), Options(tools=tools, role=Role.ADMIN)) as bench:
        assert "is for the owner" in (await bench.say(",audit anna of telegram:7")).text
        assert await access.list_audits(by("terminal")) == []


async def test_the_directory_and_the_service_share_one_state_in_a_daemon(
    memory_store: InMemoryStore,
) -> None:
    projections, tape = ProjectionRunner(), access_tape(memory_store)
    access = AccessService(tape, now=SteppingClock(), random=CountingSalt(), projections=projections)
    directory = AuditorDirectory(tape, projections)
    await run(access.grant_audit, by("terminal"), "anna", "telegram:7")
    assert (await directory.find_viewer("anna")).may_see("telegram:7")
