"""Groups about which an owner decides, and strangers of whom an owner is asked."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from bubbot.features.access.commands import access_tools
from bubbot.features.access.service import AccessService
from bubbot.gateway.admission import AdmissionPolicy, AdmissionSettings, Ignore, Respond
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.access import ListedPeople
from bubbot.ports.channel import Inbound, Role, Sender
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import event
from bubbot.tape.service import TapeService
from tests.callers import by, refused, run
from tests.doubles import CountingIds, CountingSalt, SteppingClock
from tests.turns import Options, running

GROUP = "-1001"
PEOPLE = {"chat": ListedPeople(frozenset({"1"}), frozenset({"2"}), frozenset({"3"}), frozenset({"-7"}))}


class Home:
    """A service over a store that outlives it, and a clock."""

    def __init__(self) -> None:
        self.store = InMemoryStore()
        self.clock = SteppingClock()
        self.was_asked = True

    def open(self) -> AccessService:
        return AccessService(
            self.tape, now=self.clock, random=CountingSalt(), configured=PEOPLE, is_group=self.is_group
        )

    @property
    def tape(self) -> TapeService:
        return TapeService(self.store, "bubbot/access", now=self.clock, new_id=CountingIds())

    async def is_group(self, channel: str, number: str) -> bool:
        return (channel, number) == ("chat", "555")

    async def ask(self, request: Any) -> bool:
        if self.was_asked:
            await self.tape.append([request.fact])
        return self.was_asked

    async def request(self, access: AccessService, person: str = "9") -> bool:
        return await access.request(Sender(person, "Eve"), "chat", person, self.ask)


async def test_a_decision_about_a_group_is_a_fact_that_a_later_process_knows() -> None:
    home = Home()
    access = home.open()
    await run(access.set_audience, by("chat:1", "Family"), GROUP, "everybody", "chat")
    again = await run(access.set_audience, by("terminal"), GROUP, "everybody", "chat")
    assert not again.changed
    decided = access.list_groups()[0].fact
    assert (decided.by, decided.title) == ("chat:1", "Family")
    await run(access.set_audience, by("terminal"), GROUP, "nobody", "chat")
    later = home.open()
    await later.load()
    assert (later.audience("chat", GROUP), later.audience("other", GROUP)) == ("nobody", None)
    assert [(one.fact.title, one.fact.audience) for one in later.list_groups()] == [("Family", "nobody")]
    facts = [each.data["audience"] for each in await later.list_history(by("terminal"))]
    assert facts == ["nobody", "everybody"]


@pytest.mark.parametrize("giver", ["chat:2", "chat:3", "chat:9", "other:1"])
async def test_only_owners_decide_about_groups(giver: str) -> None:
    access = Home().open()
    with refused():
        await run(access.set_audience, by(giver), GROUP, "everybody", "chat")
    assert access.audience("chat", GROUP) is None


async def test_a_group_of_the_configuration_stays_open() -> None:
    access = Home().open()
    with refused(r"\[channels.chat\] lets everybody in -7 speak"):
        await run(access.set_audience, by("terminal"), "-7", "known", "chat")


@pytest.mark.parametrize("number", ["-1001", "555", "777"])
async def test_the_id_of_a_group_is_granted_no_role(number: str) -> None:
    access = Home().open()
    await run(access.set_audience, by("terminal"), "777", "known", "chat")
    with refused(f"access group chat {number} everybody"):
        await run(access.grant, by("terminal"), number, "chat", "member")
    assert access.role("chat", number) is Role.STRANGER


async def test_an_owner_is_asked_about_a_stranger_once_a_day() -> None:
    home = Home()
    access = home.open()
    assert await home.request(access)
    assert not await home.request(access)
    assert await home.request(access, "8")
    assert not await home.request(home.open())  # a later process
    home.clock.advance(timedelta(days=1))
    assert await home.request(access)
    assert not await home.request(access, "3")  # may speak already


async def test_of_a_stranger_whom_an_owner_declined_nobody_is_asked_for_a_day() -> None:
    home = Home()
    access = home.open()
    code = await access.create_code(Sender("9", "Eve"), "chat", "9")
    assert await home.request(access)
    home.clock.advance(timedelta(hours=20))
    await run(access.decline, by("chat:1"), "9", "chat")
    await run(access.decline, by("chat:1"), "9", "chat")
    home.clock.advance(timedelta(hours=5))
    assert not await home.request(access)
    home.clock.advance(timedelta(hours=20))
    assert await home.request(access)
    assert code is not None
    with refused():
        await run(access.decline, by("chat:1"), "3", "chat")
    with refused():
        await run(access.decline, by("chat:3"), "9", "chat")


async def test_without_a_chat_of_an_owner_the_question_waits() -> None:
    home = Home()
    home.was_asked = False
    access = home.open()
    assert not await home.request(access)
    home.was_asked = True
    assert await home.request(access)


async def test_a_declined_code_lets_nobody_in() -> None:
    home = Home()
    access = home.open()
    code = await access.create_code(Sender("9", "Eve"), "chat", "9")
    await run(access.decline, by("chat:1"), "9", "chat")
    with refused():
        await run(access.approve, by("terminal"), str(code), "member")


async def test_a_grant_without_the_code_has_the_name_of_the_person() -> None:
    home = Home()
    access = home.open()
    await access.create_code(Sender("9", "Eve"), "chat", "9")
    assert (await run(access.grant, by("chat:1"), "9", "chat", "member")).name == "Eve"


async def test_who_may_speak_follows_the_decision_about_the_chat_before_that_about_its_server() -> None:
    access = Home().open()
    policy = AdmissionPolicy(AdmissionSettings(owners=frozenset({"1"})), access.role, lambda: 0.0, access.audience)
    policy.current_chat = {"-5": "-1005"}.get  # type: ignore[assignment]

    def decide(sender: str, chat: str = "60", space: str = "50") -> object:
        return policy.decide(Inbound("chat", "m", chat, Sender(sender), "bot?", "", direct=False, space=space))

    assert decide("9") == Ignore("stranger", is_call=True)
    await run(access.set_audience, by("terminal"), "50", "everybody", "chat")
    assert (decide("9"), decide("1")) == (Respond(Role.MEMBER), Respond(Role.OWNER))
    await run(access.set_audience, by("terminal"), "60", "known", "chat")
    assert (decide("9"), decide("9", "61")) == (Ignore("stranger", is_call=True), Respond(Role.MEMBER))
    await run(access.set_audience, by("terminal"), "60", "nobody", "chat")
    assert (decide("9"), decide("1")) == (Ignore("ignored"), Ignore("ignored"))
    await run(
        access.set_audience, by("terminal"), "-1005", "everybody", "chat"
    )  # the id that the group has since it moved
    assert decide("9", "-5", "") == Respond(Role.MEMBER)
    direct = policy.decide(Inbound("chat", "m", "50", Sender("9"), "bot?", "", space="50"))
    assert not isinstance(direct, Respond)  # nobody gets into direct chats by that


async def test_an_audience_of_a_later_version_lets_nobody_in() -> None:
    home = Home()
    await run(home.open().set_audience, by("terminal"), GROUP, "everybody", "chat")
    data = {"channel": "chat", "group": GROUP, "audience": "friends", "by": "terminal"}
    await home.tape.append([event("access/group", data)])
    later = home.open()
    await later.load()
    assert later.audience("chat", GROUP) is None


@pytest.mark.parametrize("typed", [",access.group", ",access.group -1001", ",access.group who=known"])
async def test_a_group_or_an_audience_alone_changes_nothing_and_lists_what_was_decided(typed: str) -> None:
    home = Home()
    access = home.open()
    await run(access.set_audience, by("terminal", "Family"), GROUP, "everybody", "chat")
    tools = access_tools(lambda: access, ...)  # type: ignore[arg-type]
    async with running(home.store, ScriptedModel(), Options(tools=tools, role=Role.OWNER)) as bench:
        answer = (await bench.say(typed)).text
    assert answer.startswith("Family (chat:-1001): everybody\n,access.group GROUP everybody lets")
    assert access.audience("chat", GROUP) == "everybody"


async def test_a_line_of_the_history_says_who_and_how() -> None:
    access = Home().open()
    code = await access.create_code(Sender("9", "Eve"), "chat", "9")
    await run(access.approve, by("terminal"), code, "member")
    _, granted = await run(access.list_history, by("terminal"), 2)
    assert re.fullmatch(
        r"#2 2026-11-21T20:21:\d\d granted: chat 9 member by terminal \(code\) Eve", granted.describe(by("terminal"))
    )
