"""What one person may do on a channel, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bubbot.command import Caller
from bubbot.errors import CommandRefused
from bubbot.features.access.commands import access_tools
from bubbot.features.access.service import AccessService
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.access import ListedPeople
from bubbot.ports.channel import Role, Sender
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.service import TapeService
from bubbot.texts import Texts
from tests.callers import by, refused, run
from tests.doubles import CountingIds, CountingSalt, SteppingClock
from tests.turns import Options, running

OWNER = by("test:1")
PEOPLE = {
    "test": ListedPeople(owners=frozenset({"1"}), admins=frozenset({"2"}), members=frozenset({"2", "3"})),
    "other": ListedPeople(),
}

TOLD = {
    "en": """\
3 is admin on test:
member by the configuration: [channels.test] members
admin by a grant of test:1 (command) on {day}
auditor of test:7, granted by test:1 on {day}""",
    "de": """\
3 ist Admin auf test:
Mitglied durch die Konfiguration: [channels.test] members
Admin durch eine Erlaubnis von test:1 (command) am {day}
Prüfer von test:7, erlaubt von test:1 am {day}""",
    "zh": """\
3 在 test 上是管理员：
成员，由配置决定：[channels.test] members
管理员，由 test:1（command）于 {day} 授权
test:7 的审计员，由 test:1 于 {day} 授权""",
}


@pytest.fixture
def access(memory_store: InMemoryStore) -> AccessService:
    tape = TapeService(memory_store, "bubbot/access", now=SteppingClock(), new_id=CountingIds())
    return AccessService(tape, now=SteppingClock(), random=CountingSalt(), configured=PEOPLE)


async def test_each_reason_is_told_and_the_highest_counts(access: AccessService) -> None:
    await run(access.grant, OWNER, "3", "test", "admin")
    found = await run(access.find_role, OWNER, "3", "test")
    assert found.role == "admin"
    assert [(each.source, each.role, each.by, each.method) for each in found.reasons] == [
        ("config", "member", "", ""),
        ("grant", "admin", "test:1", "command"),
    ]
    assert found.reasons[1].granted == access.state.grants.find(("test", "3")).date  # type: ignore[union-attr]


async def test_a_grant_below_the_configuration_is_told_and_changes_nothing(access: AccessService) -> None:
    await run(access.grant, OWNER, "1", "test", "member")
    found = await run(access.find_role, OWNER, "1", "test")
    assert (found.role, [each.role for each in found.reasons]) == ("owner", ["owner", "member"])


async def test_a_person_of_another_channel_is_a_stranger(access: AccessService) -> None:
    await run(access.grant_audit, OWNER, "test:3", "test:7")
    found = await run(access.find_role, OWNER, "3", "other")
    assert (found.role, found.reasons, found.audits) == ("stranger", (), ())


async def test_one_who_waits_is_told_with_the_name_and_a_revoked_one_is_a_stranger(access: AccessService) -> None:
    code = await access.create_code(Sender("42", "Ann"), "test", "42")
    waiting = await run(access.find_role, OWNER, "42", "test")
    assert (waiting.role, waiting.name) == ("stranger", "Ann")
    await run(access.approve, OWNER, str(code))
    assert (await run(access.find_role, OWNER, "42", "test")).reasons[0].method == "code"
    await run(access.revoke, OWNER, "42", "test")
    assert (await run(access.find_role, OWNER, "42", "test")).reasons == ()


async def test_an_auditor_has_no_role_by_it(access: AccessService) -> None:
    for auditor, session in (("test:42", "test:8"), ("test:42", "test:7"), ("test:43", "test:7"), ("anna", "test:7")):
        await run(access.grant_audit, OWNER, auditor, session)
    found = await run(access.find_role, OWNER, "42", "test")
    assert found.role == "stranger"
    assert [(each.session, each.by) for each in found.audits] == [("test:7", "test:1"), ("test:8", "test:1")]


async def test_a_channel_that_is_not_configured_is_refused_unless_something_was_granted_there(
    access: AccessService,
) -> None:
    await run(access.grant, OWNER, "42", "other", "member")
    access.configured = {"test": PEOPLE["test"]}
    with refused("'other' is not a configured channel"):
        await run(access.find_role, OWNER, "43", "other")
    found = await run(access.find_role, OWNER, "42", "other")
    assert [each.variant for each in found.reasons] == ["unused"]
    assert found.describe(OWNER).endswith(", but no such channel is configured")


async def test_what_is_not_a_numeric_id_is_refused(access: AccessService) -> None:
    with refused("'ann' is not a numeric id"):
        await run(access.find_role, OWNER, "ann", "test")


async def test_looking_writes_nothing(memory_store: InMemoryStore, access: AccessService) -> None:
    await run(access.grant, OWNER, "42", "test")
    before = await memory_store.head("bubbot/access")
    for number in ("1", "42", "43"):
        await run(access.find_role, OWNER, number, "test")
    assert await memory_store.head("bubbot/access") == before


@pytest.mark.parametrize(
    ("caller", "code"),
    [
        (replace(OWNER, role=Role.MEMBER), "not_allowed"),
        (replace(OWNER, role=Role.ADMIN, is_direct=False), "only_direct"),
    ],
)
async def test_members_and_groups_are_not_told(access: AccessService, caller: Caller, code: str) -> None:
    with pytest.raises(CommandRefused) as caught:
        await run(access.find_role, caller, "1", "test")
    assert caught.value.code == code


@pytest.mark.parametrize("language", TOLD)
async def test_it_is_told_in_the_language_of_the_caller(access: AccessService, language: str) -> None:
    await run(access.grant, OWNER, "3", "test", "admin")
    await run(access.grant_audit, OWNER, "test:3", "test:7")
    found = await run(access.find_role, OWNER, "3", "test")
    day = found.audits[0].granted[:10]
    assert found.describe(replace(OWNER, texts=Texts().in_language(language))) == TOLD[language].format(day=day)


async def test_an_admin_asks_in_a_direct_chat(memory_store: InMemoryStore, access: AccessService) -> None:
    tools = access_tools(lambda: access, ...)  # type: ignore[arg-type]
    await run(access.grant, OWNER, "42", "other", "member")
    async with running(memory_store, ScriptedModel(), Options(tools=tools, role=Role.ADMIN)) as bench:
        said = (await bench.say(",access.role 1")).text
        assert said == "1 is owner on test:\nowner by the configuration: [channels.test] owners"
        said = (await bench.say(",access.role 42 channel=other")).text
        assert said.startswith("42 is member on other:\nmember by a grant of test:1 (command) on ")
        assert (await bench.say(",access.role 42")).text.startswith("42 is a stranger on test: ")
        assert "id is missing" in (await bench.say(",access.role")).text
        assert "direct chat" in (await bench.say(",access.role 1", direct=False)).text


async def test_a_member_does_not_ask_in_a_chat(memory_store: InMemoryStore, access: AccessService) -> None:
    tools = access_tools(lambda: access, ...)  # type: ignore[arg-type]
    async with running(memory_store, ScriptedModel(), Options(tools=tools, role=Role.MEMBER)) as bench:
        assert "is for the admin; you are a member here" in (await bench.say(",access.role 1")).text
