"""Access: who may speak by the facts, and what pairing codes can and cannot do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from hmac import compare_digest
from typing import Any
from unittest.mock import patch

import pytest

from bubbot.errors import StoreFull
from bubbot.features.access.service import (
    AccessService,
)
from bubbot.ports.access import ListedPeople
from bubbot.ports.channel import Role, Sender
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import TapeEntry, encode, timestamp
from bubbot.tape.service import TapeService
from bubbot.tape.store import Batch, TapeStore
from tests.callers import by, refused, run
from tests.doubles import CountingIds, CountingSalt, SteppingClock
from tests.tapes import whole

ANN = Sender("42", "Ann")
LISTED = {
    "chat": ListedPeople(owners=frozenset({"1"}), admins=frozenset({"2"}), members=frozenset({"2", "3"})),
    "other": ListedPeople(),
}


def opened(store: TapeStore, clock: SteppingClock) -> AccessService:
    tape = TapeService(store, "bubbot/access", now=clock, new_id=CountingIds())
    return AccessService(tape, now=clock, random=CountingSalt(), configured=LISTED)


@pytest.fixture
def access(memory_store: InMemoryStore, clock: SteppingClock) -> AccessService:
    return opened(memory_store, clock)


async def code_of(access: AccessService, sender: Sender = ANN, channel: str = "chat") -> str:
    code = await access.create_code(sender, channel, sender.id)
    assert code is not None
    return code


async def names(store: TapeStore) -> list[str | None]:
    return [entry.name for entry in await whole(store, "bubbot/access")]


class TestRoles:
    def test_the_lists_give_roles_the_highest_first_and_nobody_else_has_one(self, access: AccessService) -> None:
        roles = [access.role("chat", one) for one in ("1", "2", "3", "4")]
        assert roles == [Role.OWNER, Role.ADMIN, Role.MEMBER, Role.STRANGER]
        assert access.role("other", "1") is Role.STRANGER
        assert access.role("nowhere", "1") is Role.STRANGER

    async def test_a_grant_counts_at_once_on_its_channel_alone(self, access: AccessService) -> None:
        await run(access.grant, by("terminal"), "42", "chat", "member")
        assert access.role("chat", "42") is Role.MEMBER
        assert access.role("other", "42") is Role.STRANGER

    async def test_a_configured_role_wins_upwards(self, access: AccessService) -> None:
        await run(access.grant, by("terminal"), "1", "chat", "member")
        await run(access.grant, by("terminal"), "3", "chat", "admin")
        assert (access.role("chat", "1"), access.role("chat", "3")) == (Role.OWNER, Role.ADMIN)

    async def test_a_grant_takes_the_place_of_the_one_before(
        self, access: AccessService, memory_store: InMemoryStore
    ) -> None:
        await run(access.grant, by("terminal"), "42", "chat", "admin")
        for _ in range(2):
            await run(access.grant, by("terminal"), "42", "chat", "member")
        assert access.role("chat", "42") is Role.MEMBER
        assert await names(memory_store) == ["access/granted"] * 2

    async def test_a_revocation_counts_at_once_and_is_a_fact(
        self, access: AccessService, memory_store: InMemoryStore
    ) -> None:
        await run(access.grant, by("terminal"), "42", "chat", "owner")
        await run(access.revoke, by("terminal"), "42", "chat")
        assert access.role("chat", "42") is Role.STRANGER
        assert await names(memory_store) == ["access/granted", "access/revoked"]
        with refused("no grant"):
            await run(access.revoke, by("terminal"), "42", "chat")

    @pytest.mark.parametrize(("listed", "key"), [("1", "owners"), ("2", "admins"), ("3", "members")])
    async def test_who_is_configured_is_revoked_in_the_configuration(
        self, access: AccessService, memory_store: InMemoryStore, listed: str, key: str
    ) -> None:
        with refused(rf"\[channels\.chat\] {key}"):
            await run(access.revoke, by("terminal"), listed, "chat")
        assert await names(memory_store) == []

    @pytest.mark.parametrize("text", ["@ann", "４２", "007", "9" * 40, ""])
    async def test_only_numeric_ids_are_granted(
        self, access: AccessService, memory_store: InMemoryStore, text: str
    ) -> None:
        with refused():
            await run(access.grant, by("terminal"), text, "chat", "member")
        assert await names(memory_store) == []

    def test_a_text_that_is_no_id_is_a_stranger_even_where_a_list_has_it(self, tape: TapeService) -> None:
        clock = SteppingClock()
        listed = {"chat": ListedPeople(owners=frozenset({"ann", "４２"}))}
        access = AccessService(tape, now=clock, random=CountingSalt(), configured=listed)
        assert {access.role("chat", one) for one in ("ann", "４２")} == {Role.STRANGER}

    async def test_a_channel_that_is_not_configured_is_refused(self, access: AccessService) -> None:
        with refused("chat, other"):
            await run(access.grant, by("terminal"), "42", "chta", "member")

    @pytest.mark.parametrize(
        ("giver", "role", "allowed"),
        [
            ("chat:1", "owner", True),
            ("chat:2", "admin", True),
            ("chat:2", "owner", False),
            ("chat:3", "member", False),
            ("chat:9", "member", False),
            ("other:1", "member", False),
            ("", "member", False),
            ("terminal:", "member", False),
        ],
    )
    async def test_nobody_gives_more_than_they_have(
        self, access: AccessService, giver: str, role: Any, allowed: bool
    ) -> None:
        code = await code_of(access)
        if allowed:
            assert (await run(access.grant, by(giver), "50", "chat", role)).role == role
            assert (await run(access.approve, by(giver), code, role)).role == role
            return
        with refused("not enough"):
            await run(access.grant, by(giver), "50", "chat", role)
        with refused("not enough"):
            await run(access.approve, by(giver), code, role)

    async def test_nobody_takes_from_who_has_more(self, access: AccessService) -> None:
        await run(access.grant, by("terminal"), "42", "chat", "owner")
        with refused("not enough"):
            await run(access.revoke, by("chat:2"), "42", "chat")
        with refused("not enough"):
            await run(access.grant, by("chat:2"), "42", "chat", "member")
        await run(access.revoke, by("chat:1"), "42", "chat")

    async def test_a_role_of_a_later_version_is_none(
        self, access: AccessService, tape: TapeService, memory_store: InMemoryStore, clock: SteppingClock
    ) -> None:
        await run(access.grant, by("terminal"), "42", "chat", "owner")
        data = {"channel": "chat", "id": "42", "role": "auditor", "by": "terminal", "how": "command"}
        await TapeService(memory_store, "bubbot/access", now=clock, new_id=CountingIds()).append_event(
            "access/granted", data
        )
        again = opened(memory_store, clock)
        await again.load()
        assert again.role("chat", "42") is Role.STRANGER


class TestCodes:
    async def test_a_code_lets_its_person_in_once(self, access: AccessService, memory_store: InMemoryStore) -> None:
        code = await code_of(access)
        assert len(code) == 8
        assert set(code) <= set("23456789ABCDEFGHJKLMNPQRSTUVWXYZ")
        assert access.role("chat", "42") is Role.STRANGER
        grant = await run(access.approve, by("terminal"), code, "member")
        assert (grant.id, grant.role, grant.name) == ("42", "member", "Ann")
        assert access.role("chat", "42") is Role.MEMBER
        assert await names(memory_store) == ["access/code", "access/granted", "access/code_used"]
        await run(access.revoke, by("terminal"), "42", "chat")
        with refused("used before"):
            await run(access.approve, by("terminal"), code, "member")
        assert access.role("chat", "42") is Role.STRANGER

    @pytest.mark.parametrize("typed", [str.lower, lambda code: f" {code[:4]} - {code[4:]}\n", " ".join])
    async def test_a_code_may_be_typed_in_any_case_and_with_spaces(self, access: AccessService, typed: object) -> None:
        assert callable(typed)
        await run(access.approve, by("terminal"), typed(await code_of(access)), "owner")
        assert access.role("chat", "42") is Role.OWNER

    @pytest.mark.parametrize(
        "text", ["", "ABC", "ABCDEFGH2", "ABCDEFG0", "ABCDEFGI", "ＡＢＣＤＥＦＧＨ", "ABCDEFG٢", "ß" * 4, "x" * 100_000]
    )
    async def test_what_cannot_be_a_code_is_told_so_and_leaves_no_trace(
        self, access: AccessService, memory_store: InMemoryStore, text: str
    ) -> None:
        with refused("8 letters and digits"):
            await run(access.approve, by("terminal"), text, "member")
        assert await names(memory_store) == []

    async def test_it_ends_after_an_hour(self, access: AccessService, clock: SteppingClock) -> None:
        code = await code_of(access)
        clock.advance(timedelta(hours=1))
        assert access.pending_codes() == ()
        with refused("expired"):
            await run(access.approve, by("terminal"), code, "member")

    async def test_it_works_until_then(self, access: AccessService, clock: SteppingClock) -> None:
        code = await code_of(access)
        clock.advance(timedelta(minutes=59, seconds=50))
        assert len(access.pending_codes()) == 1
        await run(access.approve, by("terminal"), code, "member")
        assert access.role("chat", "42") is Role.MEMBER

    async def test_after_a_day_it_is_forgotten(self, access: AccessService, clock: SteppingClock) -> None:
        code = await code_of(access)
        clock.advance(timedelta(days=1))
        with refused("no such code"):
            await run(access.approve, by("terminal"), code, "member")
        assert access.state.codes == ()

    async def test_a_revocation_ends_the_open_codes_of_its_person(self, access: AccessService) -> None:
        code = await code_of(access)
        await run(access.grant, by("terminal"), "42", "chat", "member")
        await run(access.revoke, by("terminal"), "42", "chat")
        with refused("expired"):
            await run(access.approve, by("terminal"), code, "member")

    async def test_a_code_of_a_channel_that_was_taken_away_lets_nobody_in(self, access: AccessService) -> None:
        code = await code_of(access)
        access.configured = {"other": ListedPeople()}
        with refused("'chat' is not a configured channel"):
            await run(access.approve, by("terminal"), code, "member")
        access.configured = LISTED
        assert access.role("chat", "42") is Role.STRANGER
        await run(access.approve, by("terminal"), code, "member")

    async def test_an_approval_takes_nothing_away(self, access: AccessService) -> None:
        code = await code_of(access)
        await run(access.grant, by("terminal"), "42", "chat", "admin")
        assert (await run(access.approve, by("terminal"), code, "member")).role == "admin"

    async def test_two_approvals_at_once_let_in_once(self, clock: SteppingClock) -> None:
        store = Slow()
        access = opened(store, clock)
        code = await code_of(access)
        two = [run(access.approve, by("terminal"), code, "member") for _ in range(2)]
        both = await asyncio.gather(*two, return_exceptions=True)
        assert [type(one).__name__ for one in both] == ["AccessChange", "CommandRefused"]
        assert (await names(store)).count("access/granted") == 1

    async def test_the_tape_holds_a_salted_digest_and_never_the_code(
        self, access: AccessService, memory_store: InMemoryStore
    ) -> None:
        first, second = await code_of(access), await code_of(access, channel="other")
        text = "".join(encode(entry.payload) for entry in await whole(memory_store, "bubbot/access"))
        assert first not in text
        assert first != second
        salts = {entry.payload["data"]["salt"] for entry in await whole(memory_store, "bubbot/access")}
        assert len(salts) == 2

    async def test_codes_are_compared_in_constant_time_and_all_of_them(self, access: AccessService) -> None:
        codes = [await code_of(access, Sender(str(number))) for number in range(10, 15)]
        with patch("bubbot.features.access.service.compare_digest", wraps=compare_digest) as compared:
            await run(access.approve, by("terminal"), codes[0], "member")
        assert compared.call_count == 5
        assert all(len(call.args[0]) == len(call.args[1]) == 32 for call in compared.call_args_list)

    @pytest.mark.parametrize(
        "sender",
        [Sender("@ann"), Sender("４２"), Sender(""), Sender("42", bot=True), Sender("1"), Sender("3")],
        ids=["name", "digits", "empty", "bot", "owner", "member"],
    )
    async def test_who_gets_none(self, access: AccessService, memory_store: InMemoryStore, sender: Sender) -> None:
        assert await access.create_code(sender, "chat", "42") is None
        assert await names(memory_store) == []

    async def test_a_hostile_name_is_kept_short_and_storable(self, access: AccessService) -> None:
        await code_of(access, Sender("42", "\ud800" + "x" * 10_000))
        assert access.state.codes[0].code.fact.name == "\ufffd" + "x" * 63


class TestLimits:
    async def test_one_code_in_ten_minutes_three_at_once(self, access: AccessService, clock: SteppingClock) -> None:
        assert await access.create_code(ANN, "chat", "42")
        clock.advance(timedelta(minutes=9, seconds=50))
        assert await access.create_code(ANN, "chat", "42") is None
        for _ in range(2):
            clock.advance(timedelta(minutes=10))
            assert await access.create_code(ANN, "chat", "42")
        clock.advance(timedelta(minutes=10))
        assert await access.create_code(ANN, "chat", "42") is None
        clock.advance(timedelta(minutes=31))
        assert await access.create_code(ANN, "chat", "42")

    async def test_a_flood_of_people_gets_ten_codes_in_a_row(
        self, access: AccessService, memory_store: InMemoryStore
    ) -> None:
        flood = [access.create_code(Sender(str(number)), "chat", str(number)) for number in range(100, 400)]
        given = [code for code in await asyncio.gather(*flood) if code]
        assert len(given) == len(await whole(memory_store, "bubbot/access")) == 10
        assert await access.create_code(ANN, "other", "42")

    async def test_after_a_flood_the_next_person_waits_for_minutes_and_not_for_an_hour(
        self, access: AccessService, clock: SteppingClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        for number in range(100, 120):
            await access.create_code(Sender(str(number)), "chat", str(number))
        assert await access.create_code(ANN, "chat", "42") is None
        assert [record.getMessage().count("bubbot access grant") for record in caplog.records] == [1]
        clock.advance(timedelta(minutes=12))
        assert await access.create_code(ANN, "chat", "42")

    async def test_a_flood_of_days_writes_120_codes_a_day(
        self, access: AccessService, memory_store: InMemoryStore, clock: SteppingClock
    ) -> None:
        clock.step = timedelta(0)
        for number in range(100, 100 + 2 * 24 * 30):  # somebody else every two minutes, for two days
            await access.create_code(Sender(str(number)), "chat", str(number))
            clock.advance(timedelta(minutes=2))
        assert 230 <= len(await whole(memory_store, "bubbot/access")) <= 240

    async def test_a_clock_that_was_ahead_keeps_nobody_out_and_no_code_open(
        self, access: AccessService, clock: SteppingClock
    ) -> None:
        clock.advance(timedelta(days=2))
        early = await code_of(access)
        for _ in range(10):
            with refused("no such code"):
                await run(access.approve, by("terminal"), "22222222", "member")
        for number in range(100, 120):
            await access.create_code(Sender(str(number)), "chat", str(number))
        clock.advance(-timedelta(days=2))
        assert access.pending_codes() == ()
        with refused("expired"):
            await run(access.approve, by("terminal"), early, "member")
        await run(access.approve, by("terminal"), await code_of(access), "member")
        assert access.role("chat", "42") is Role.MEMBER

    async def test_guessing_ends_and_fills_nothing(
        self, access: AccessService, memory_store: InMemoryStore, clock: SteppingClock
    ) -> None:
        code = await code_of(access)
        later = timestamp(clock() + timedelta(hours=1))[11:16]
        for number in range(30):
            match = "no such code" if number < 10 else f"try again after {later} UTC"
            with refused(match):
                await run(access.approve, by("terminal"), "22222222", "member")
        assert (await names(memory_store)).count("access/code_refused") == 10
        with refused("try again after"):
            await run(access.approve, by("terminal"), code, "member")
        await run(access.approve, by("chat:1"), code, "member")  # who guesses stops nobody else
        clock.advance(timedelta(hours=1))
        with refused("used before"):
            await run(access.approve, by("terminal"), code, "member")


class Failing(InMemoryStore):
    """Writes, and then says that it could not."""

    failing = False

    async def append(self, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.append`."""
        stored = await super().append(batches)
        if self.failing:
            raise StoreFull("no room")
        return stored


class Slow(InMemoryStore):
    """Writes when the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.waiting = asyncio.Event(), asyncio.Event()
        self.gate.set()

    async def append(self, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.append`."""
        self.waiting.clear() if self.gate.is_set() else self.waiting.set()
        await asyncio.sleep(0)
        await asyncio.wait_for(self.gate.wait(), 10)
        return await super().append(batches)


class TestTrouble:
    async def test_after_a_failure_the_tape_decides(self, clock: SteppingClock) -> None:
        store = Failing()
        access = opened(store, clock)
        await run(access.grant, by("terminal"), "42", "chat", "member")
        store.failing = True
        with pytest.raises(StoreFull):
            await run(access.revoke, by("terminal"), "42", "chat")
        store.failing = False
        await access.load()
        assert access.role("chat", "42") is Role.STRANGER

    async def test_a_caller_that_is_cancelled_stops_no_change_half_way(self, clock: SteppingClock) -> None:
        store = Slow()
        access = opened(store, clock)
        await run(access.grant, by("terminal"), "42", "chat", "member")
        store.gate.clear()
        task = asyncio.ensure_future(run(access.revoke, by("terminal"), "42", "chat"))
        await asyncio.wait_for(store.waiting.wait(), 10)
        task.cancel()
        store.gate.set()
        assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)
        await access.load()  # waits for its turn
        assert access.role("chat", "42") is Role.STRANGER

    async def test_an_erased_fact_says_nothing(self, memory_store: InMemoryStore, clock: SteppingClock) -> None:
        await memory_store.append([Batch("bubbot/access", (TapeEntry("event", {}, erased=True),) * 2)])
        access = opened(memory_store, clock)
        await access.load()
        assert access.role("chat", "42") is Role.STRANGER
