"""Linked accounts: a code from one, typed on the other, confirmed on the first; nothing else links, and no role travels."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import pytest

from bubbot.errors import ConfigError
from bubbot.features.access.commands import access_tools
from bubbot.features.access.links import AccountLinks
from bubbot.features.access.service import (
    AccessService,
)
from bubbot.features.access.state import ACCESS_PROJECTION
from bubbot.ports.access import ListedPeople
from bubbot.ports.channel import Outbound, Role
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import TapeEntry, freeze
from bubbot.tape.fact import Cited
from bubbot.tape.projection import ProjectionRunner, read_projection
from bubbot.tape.service import TapeService
from bubbot.texts import Texts
from bubbot.texts.catalogue import list_languages
from tests.callers import by, refused, run
from tests.doubles import CountingIds, SteppingClock
from tests.turns import CHANNEL, Bench, Options, Played, running, says

ANN, BOB, EVE = (CHANNEL, "1"), (CHANNEL, "2"), ("other", "3")
MINUTES = timedelta(minutes=1)


class Codes:
    """Random bytes that give each code its own letters."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self, size: int) -> bytes:
        self.number += 1
        return bytes([self.number % 32]) * size


@pytest.fixture
def tape(memory_store: InMemoryStore, clock: SteppingClock) -> TapeService:
    return TapeService(memory_store, "bubbot/access", now=clock, new_id=CountingIds())


@pytest.fixture
def runner() -> ProjectionRunner:
    return ProjectionRunner()


@pytest.fixture
def access(tape: TapeService, clock: SteppingClock, runner: ProjectionRunner) -> AccessService:
    listed = ListedPeople(frozenset({"1"}), frozenset(), frozenset({"2"}))
    configured = {CHANNEL: listed, "other": ListedPeople()}
    return AccessService(tape, now=clock, random=Codes(), configured=configured, projections=runner)


@pytest.fixture
def links(tape: TapeService, runner: ProjectionRunner) -> AccountLinks:
    return AccountLinks(tape, runner)


class Asked:
    """Keeps the questions to the first account, and stores the fact as the outbox does."""

    def __init__(self, tape: TapeService) -> None:
        self.codes: list[Cited[Any]] = []
        self._tape = tape

    async def __call__(self, code: Cited[Any], fact: TapeEntry) -> None:
        self.codes.append(code)
        await self._tape.append([fact])


@pytest.fixture
def ask(tape: TapeService) -> Asked:
    return Asked(tape)


async def link(access: AccessService, ask: Asked, first: tuple[str, str], second: tuple[str, str]) -> None:
    code = await access.create_link_code(first, f"{first[0]}:{first[1]}")
    assert isinstance(await access.claim_link(code, second, ask), Cited)
    assert await access.confirm_link(first) == second


class TestLinking:
    async def test_only_the_confirmation_links_and_no_role_travels(
        self, access: AccessService, ask: Asked, tape: TapeService
    ) -> None:
        code = await access.create_link_code(ANN, "test:1")
        assert access.state.linked_accounts(BOB) == (BOB,)
        claimed = await access.claim_link(code.lower(), BOB, ask)
        assert isinstance(claimed, Cited)
        assert [each.fact.account for each in ask.codes] == [ANN]
        assert access.state.linked_accounts(BOB) == (BOB,)
        assert await access.confirm_link(ANN) == BOB
        assert access.state.linked_accounts(BOB) == access.state.linked_accounts(ANN) == (ANN, BOB)
        assert (access.role(*ANN), access.role(*BOB)) == (Role.OWNER, Role.MEMBER)
        assert code not in str(await tape.read(_Whole()))

    async def test_it_holds_after_a_restart_and_from_a_checkpoint(
        self, access: AccessService, ask: Asked, tape: TapeService
    ) -> None:
        await link(access, ask, ANN, BOB)
        await link(access, ask, BOB, EVE)
        await access.unlink(EVE)
        code = await access.create_link_code(EVE, "other:3")
        await access.claim_link(code, ANN, ask)
        links = AccountLinks(tape, ProjectionRunner())
        assert await links.linked_accounts(BOB) == (ANN, BOB)
        assert await links.former_accounts(EVE) == (ANN, BOB)
        state = await read_projection(ACCESS_PROJECTION, tape)
        entries = await tape.read(_Whole())
        stored = cast("Mapping[str, Any]", freeze(cast("Any", ACCESS_PROJECTION.encode(state)), "state"))
        cited = [entry for entry in entries if entry.id in set(ACCESS_PROJECTION.cited_ids(stored))]
        assert ACCESS_PROJECTION.decode(stored, cited) == state

    async def test_after_a_restart_a_claim_can_be_declined_and_then_not_confirmed(
        self, access: AccessService, ask: Asked, tape: TapeService, clock: SteppingClock
    ) -> None:
        code = await access.create_link_code(ANN, "test:1")
        await access.claim_link(code, BOB, ask)
        later = AccessService(tape, now=clock, random=Codes(), configured=access.configured)
        assert await later.decline_link(ANN) == BOB
        assert await later.confirm_link(ANN) == "none"
        assert later.state.linked_accounts(BOB) == (BOB,)

    async def test_three_accounts_become_one_person_and_one_may_leave(self, access: AccessService, ask: Asked) -> None:
        await link(access, ask, ANN, BOB)
        await link(access, ask, EVE, BOB)
        assert access.state.linked_accounts(ANN) == (EVE, ANN, BOB)
        assert await access.unlink(EVE) == (ANN, BOB)
        assert access.state.linked_accounts(EVE) == (EVE,)
        assert access.state.linked_accounts(ANN) == (ANN, BOB)
        assert access.state.former_accounts(ANN) == (EVE,)
        assert await access.unlink(ANN) == (BOB,)
        assert await access.unlink(BOB) == "alone"

    async def test_revoking_access_unlinks(self, access: AccessService, ask: Asked) -> None:
        await run(access.grant, by("terminal"), EVE[1], EVE[0], "member")
        await link(access, ask, ANN, EVE)
        await run(access.revoke, by("terminal"), EVE[1], EVE[0])
        assert access.state.linked_accounts(ANN) == (ANN,)

    async def test_what_an_account_has_claimed_before_it_was_unlinked_cannot_be_confirmed(
        self, access: AccessService, ask: Asked
    ) -> None:
        await link(access, ask, EVE, BOB)
        await access.claim_link(await access.create_link_code(ANN, "test:1"), BOB, ask)
        await access.unlink(BOB)
        assert await access.confirm_link(ANN) == "none"

    async def test_a_code_works_once_for_one_account_within_its_time(
        self, access: AccessService, ask: Asked, clock: SteppingClock
    ) -> None:
        code = await access.create_link_code(ANN, "test:1")
        assert await access.claim_link(code, ANN, ask) == "own"
        assert await access.claim_link("xyz", BOB, ask) == "malformed"
        assert isinstance(await access.claim_link(code, BOB, ask), Cited)
        assert isinstance(await access.claim_link(code, BOB, ask), Cited)
        assert len(ask.codes) == 1
        assert await access.claim_link(code, EVE, ask) == "used"
        assert await access.confirm_link(BOB) == "none"
        assert await access.decline_link(ANN) == BOB
        assert await access.claim_link(code, BOB, ask) == "expired"
        assert await access.confirm_link(ANN) == "none"
        late = await access.create_link_code(ANN, "test:1")
        await access.claim_link(late, BOB, ask)
        clock.advance(20 * MINUTES)
        assert await access.confirm_link(ANN) == "none"
        assert await access.claim_link(late, BOB, ask) == "expired"
        assert access.state.linked_accounts(ANN) == (ANN,)

    async def test_a_newer_code_replaces_the_older_one(self, access: AccessService, ask: Asked) -> None:
        first = await access.create_link_code(ANN, "test:1")
        await access.create_link_code(ANN, "test:1")
        assert await access.claim_link(first, BOB, ask) == "expired"

    async def test_who_is_linked_already_is_told(self, access: AccessService, ask: Asked) -> None:
        await link(access, ask, ANN, BOB)
        code = await access.create_link_code(ANN, "test:1")
        assert await access.claim_link(code, BOB, ask) == "linked"

    async def test_wrong_codes_and_codes_have_a_limit(
        self, access: AccessService, ask: Asked, clock: SteppingClock
    ) -> None:
        code = await access.create_link_code(ANN, "test:1")
        for _ in range(10):
            assert await access.claim_link("ZZZZZZZZ", BOB, ask) == "unknown"
        assert await access.claim_link(code, BOB, ask) == "wrong"
        given = [await access.create_link_code(ANN, "test:1") for _ in range(5)]
        assert given[-1] == "often"
        clock.advance(61 * MINUTES)
        assert len(await access.create_link_code(ANN, "test:1")) == 8

    async def test_a_person_has_a_limited_number_of_accounts(self, access: AccessService, ask: Asked) -> None:
        for number in range(7):
            await link(access, ask, ("other", str(100 + number)), ANN)
        assert await access.create_link_code(ANN, "test:1") == "many"
        code = await access.create_link_code(BOB, "test:2")
        assert await access.claim_link(code, ANN, ask) == "many"

    async def test_a_question_that_cannot_be_sent_claims_nothing(
        self, access: AccessService, tape: TapeService
    ) -> None:
        async def fail(_code: Cited[Any], _fact: TapeEntry) -> None:
            raise ConfigError("down")

        code = await access.create_link_code(ANN, "test:1")
        with refused():
            await access.claim_link(code, BOB, fail)
        assert await access.confirm_link(ANN) == "none"
        assert isinstance(await access.claim_link(code, BOB, Asked(tape)), Cited)


class _Whole:
    """Everything on a tape."""

    heavy = False

    def queries(self, tape: str) -> Any:
        from bubbot.tape.query import TapeQuery

        return (TapeQuery(tape),)

    def fold(self, answers: Any) -> Any:
        return answers[0]


@asynccontextmanager
async def chatting(
    store: InMemoryStore, access: AccessService, links: AccountLinks, language: str = "en"
) -> AsyncIterator[Bench]:
    """A bot whose people may link their accounts."""
    benches: list[Bench] = []

    async def send(session: str, key: str, out: Outbound, facts: Mapping[str, Sequence[TapeEntry]]) -> None:
        line = benches[0].line
        assert out.buttons is not None
        assert [button.command for button in out.buttons.buttons] == [",link yes", ",link no"]
        assert out.buttons.person == "1"
        await line.deliver(await line.outbox.enqueue(session, key, tuple(line.link.split(out)), facts))

    tools = access_tools(lambda: access, send)
    options = Options(tools=tools, texts=Texts(language), role=Role.MEMBER, accounts=links)
    async with running(store, Played(says("ok")), options) as bench:
        benches.append(bench)
        yield bench


class TestCommands:
    async def test_two_chats_link_and_share_memory_then_part(
        self, memory_store: InMemoryStore, access: AccessService, links: AccountLinks
    ) -> None:
        async with chatting(memory_store, access, links) as bench:
            await bench.say(",memory.save scope=user Likes tea.", chat="one")
            code = (await bench.say(",link", chat="one")).text.split("Your code is ")[1][:8]
            told = await bench.say(f",link {code}", chat="two", sender="2")
            assert (
                told.text == "I have asked 1 (test) to confirm. Once that account says yes, both share your own memory."
            )
            question = next(part for part in bench.channel.sent if "has typed the code" in part.text)
            assert question.chat == "one"
            assert "The account 2 (test) (Ann) has typed" in question.text
            assert "has typed the code" in (await bench.say(",link", chat="one")).text
            assert "no account waits" in (await bench.say(",link yes", chat="two", sender="2")).text
            await bench.say("hello", chat="two", sender="2")
            assert "Likes tea." not in bench.requests[-1].system
            assert "Linked with 2 (test)." in (await bench.say(",link YES", chat="one")).text
            await bench.say("hello", chat="two", sender="2")
            assert "Likes tea." in bench.requests[-1].system
            assert (
                "stays with the account that was linked first"
                in (await bench.say(",unlink", chat="two", sender="2")).text
            )
            await bench.say("hello", chat="two", sender="2")
            assert "Likes tea." not in bench.requests[-1].system
            assert "is not linked" in (await bench.say(",unlink", chat="two", sender="2")).text

    async def test_never_in_groups_and_never_by_a_model(
        self, memory_store: InMemoryStore, access: AccessService, links: AccountLinks
    ) -> None:
        async with chatting(memory_store, access, links) as bench:
            for line in (",link", ",link ABCDEFGH", ",link yes", ",unlink"):
                assert "direct chat" in (await bench.say(line, chat="-9", direct=False)).text
            await bench.say("hello")
            assert not [tool.name for tool in bench.requests[-1].tools if "link" in tool.name]
            assert access.state.link_codes == ()

    async def test_a_no_is_told_and_links_nothing(
        self, memory_store: InMemoryStore, access: AccessService, links: AccountLinks
    ) -> None:
        async with chatting(memory_store, access, links, "zh") as bench:
            code = (await bench.say(",link", chat="one")).text.split("代码是 ")[1][:8]
            await bench.say(f",link {code}", chat="two", sender="2")
            assert (await bench.say(",link no", chat="one")).text.startswith("已拒绝")
            assert access.state.persons == ()


@pytest.mark.parametrize("language", list_languages("bubbot.texts"))
def test_every_refusal_has_a_sentence(language: str) -> None:
    texts = Texts(language)
    for reason in (
        "malformed",
        "unknown",
        "used",
        "expired",
        "own",
        "linked",
        "many",
        "wrong",
        "often",
        "none",
        "alone",
        "bot",
    ):
        assert texts.say(f"link_{reason}")
