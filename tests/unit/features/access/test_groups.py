"""Groups about which an owner decides, and strangers of whom an owner is asked."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bubbot.errors import AccessError, ConfigError
from bubbot.features.access.service import ACCESS_TAPE, REQUEST_INTERVAL, AccessService
from bubbot.features.access.state import ACCESS_PROJECTION, REQUESTED
from bubbot.features.access.state import GROUP as GROUP_DECIDED
from bubbot.gateway.admission import AdmissionPolicy, AdmissionSettings, Ignore, Respond
from bubbot.ports.access import AccessRequest, ListedPeople
from bubbot.ports.channel import Inbound, Role, Sender
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import event
from bubbot.tape.projection import read_projection
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, CountingSalt, SteppingClock

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
        return TapeService(self.store, ACCESS_TAPE, now=self.clock, new_id=CountingIds())

    async def is_group(self, channel: str, number: str) -> bool:
        return (channel, number) == ("chat", "555")

    async def ask(self, request: AccessRequest) -> bool:
        if self.was_asked:
            await self.tape.append([request.fact])
        return self.was_asked

    async def request(self, access: AccessService, person: str = "9") -> bool:
        return await access.request(Sender(person, "Eve"), "chat", person, self.ask)


async def test_a_decision_about_a_group_is_a_fact_that_a_later_process_knows() -> None:
    home = Home()
    access = home.open()
    await access.set_audience("chat", GROUP, "everybody", "chat:1", title="Family")
    again = await access.set_audience("chat", GROUP, "everybody", "terminal")
    assert (again.giver, again.title) == ("chat:1", "Family")
    await access.set_audience("chat", GROUP, "nobody", "terminal")
    later = home.open()
    await later.load()
    assert (later.audience("chat", GROUP), later.audience("other", GROUP)) == ("nobody", None)
    assert [(one.title, one.audience) for one in later.list_groups()] == [("Family", "nobody")]
    facts = [entry.data["audience"] for entry in await later.read_history()]
    assert facts == ["nobody", "everybody"]


@pytest.mark.parametrize("giver", ["chat:2", "chat:3", "chat:9", "other:1"])
async def test_only_owners_decide_about_groups(giver: str) -> None:
    access = Home().open()
    with pytest.raises(AccessError):
        await access.set_audience("chat", GROUP, "everybody", giver)
    assert access.audience("chat", GROUP) is None


async def test_a_group_of_the_configuration_stays_open() -> None:
    access = Home().open()
    with pytest.raises(ConfigError, match=r"\[channels.chat\] lets everybody in -7 speak"):
        await access.set_audience("chat", "-7", "known", "terminal")


@pytest.mark.parametrize("number", ["-1001", "555", "777"])
async def test_the_id_of_a_group_is_granted_no_role(number: str) -> None:
    access = Home().open()
    await access.set_audience("chat", "777", "known", "terminal")
    with pytest.raises(ConfigError, match=f"access group chat {number} everybody"):
        await access.grant("chat", number, Role.MEMBER, "terminal")
    assert access.role("chat", number) is Role.STRANGER


async def test_an_owner_is_asked_about_a_stranger_once_a_day() -> None:
    home = Home()
    access = home.open()
    assert await home.request(access)
    assert not await home.request(access)
    assert await home.request(access, "8")
    assert not await home.request(home.open())  # a later process
    home.clock.advance(REQUEST_INTERVAL)
    assert await home.request(access)
    assert not await home.request(access, "3")  # may speak already


async def test_of_a_stranger_whom_an_owner_declined_nobody_is_asked_for_a_day() -> None:
    home = Home()
    access = home.open()
    code = await access.create_code(Sender("9", "Eve"), "chat", "9")
    assert await home.request(access)
    home.clock.advance(timedelta(hours=20))
    await access.decline("chat", "9", "chat:1")
    await access.decline("chat", "9", "chat:1")
    home.clock.advance(timedelta(hours=5))
    assert not await home.request(access)
    home.clock.advance(timedelta(hours=20))
    assert await home.request(access)
    assert code is not None
    with pytest.raises(AccessError):
        await access.decline("chat", "3", "chat:1")
    with pytest.raises(AccessError):
        await access.decline("chat", "9", "chat:3")


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
    await access.decline("chat", "9", "chat:1")
    with pytest.raises(AccessError):
        await access.approve(str(code), Role.MEMBER, "terminal")


async def test_a_grant_without_the_code_has_the_name_of_the_person() -> None:
    home = Home()
    access = home.open()
    await access.create_code(Sender("9", "Eve"), "chat", "9")
    assert (await access.grant("chat", "9", Role.MEMBER, "chat:1")).name == "Eve"


async def test_a_checkpoint_keeps_groups_and_questions() -> None:
    home = Home()
    access = home.open()
    await access.set_audience("chat", GROUP, "everybody", "terminal", title="Family")
    await home.request(access)
    state = await read_projection(ACCESS_PROJECTION, home.tape)
    cited = {entry.id: entry for entry in await access.read_history()}
    encoded = ACCESS_PROJECTION.encode(state)
    decoded = ACCESS_PROJECTION.decode(encoded, [cited[number] for number in ACCESS_PROJECTION.cited_ids(encoded)])
    assert (decoded.groups, [one.name for one in decoded.requests]) == (state.groups, [REQUESTED])
    older = {key: value for key, value in encoded.items() if key not in ("groups", "requests")}
    assert (
        ACCESS_PROJECTION.decode(older, [cited[number] for number in ACCESS_PROJECTION.cited_ids(older)]).groups == {}
    )


async def test_who_may_speak_follows_the_decision_about_the_chat_before_that_about_its_server() -> None:
    access = Home().open()
    policy = AdmissionPolicy(AdmissionSettings(owners=frozenset({"1"})), access.role, lambda: 0.0, access.audience)
    policy.current_chat = {"-5": "-1005"}.get  # type: ignore[assignment]

    def decide(sender: str, chat: str = "60", space: str = "50") -> object:
        return policy.decide(Inbound("chat", "m", chat, Sender(sender), "bot?", "", direct=False, space=space))

    assert decide("9") == Ignore("stranger", is_call=True)
    await access.set_audience("chat", "50", "everybody", "terminal")
    assert (decide("9"), decide("1")) == (Respond(Role.MEMBER), Respond(Role.OWNER))
    await access.set_audience("chat", "60", "known", "terminal")
    assert (decide("9"), decide("9", "61")) == (Ignore("stranger", is_call=True), Respond(Role.MEMBER))
    await access.set_audience("chat", "60", "nobody", "terminal")
    assert (decide("9"), decide("1")) == (Ignore("ignored"), Ignore("ignored"))
    await access.set_audience("chat", "-1005", "everybody", "terminal")  # the id that the group has since it moved
    assert decide("9", "-5", "") == Respond(Role.MEMBER)
    direct = policy.decide(Inbound("chat", "m", "50", Sender("9"), "bot?", "", space="50"))
    assert not isinstance(direct, Respond)  # nobody gets into direct chats by that


async def test_an_audience_of_a_later_version_lets_nobody_in() -> None:
    home = Home()
    await home.open().set_audience("chat", GROUP, "everybody", "terminal")
    data = {"channel": "chat", "group": GROUP, "audience": "friends", "by": "terminal"}
    await home.tape.append([event(GROUP_DECIDED, data)])
    later = home.open()
    await later.load()
    assert later.audience("chat", GROUP) is None
