"""Who may answer, from where and until when; ids; and the cost of a decision among many grants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from bubbot.features.approvals.decider import Decider
from bubbot.features.approvals.facts import Answer
from bubbot.features.approvals.service import (
    ApprovalService,
)
from bubbot.features.approvals.settings import ApprovalSettings
from bubbot.features.approvals.state import APPROVALS_PROJECTION, ApprovalState, covers
from bubbot.ports.channel import Inbound, Role
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import TapeEntry, timestamp
from bubbot.tape.projection import ProjectedTape, read_projection
from bubbot.tool import GrantKind, GrantTarget
from tests.approval_facts import ServiceBench, make_grant, make_opened
from tests.doubles import SteppingClock
from tests.kernels import draft_nothing, find_nothing_sent

OWNER = Decider("telegram", "1", "Ann", Role.OWNER, "telegram:1", has_power=True, surface="command")
MEMBER = Decider("telegram", "2", "Bob", Role.MEMBER, "telegram:-9", has_power=False, surface="button")


@pytest.fixture
def bench(memory_store: InMemoryStore, clock: SteppingClock) -> ServiceBench:
    return ServiceBench(memory_store, clock)


class TestWho:
    async def test_an_owner_may_answer_in_the_chat_and_from_a_direct_one(self, bench: ServiceBench) -> None:
        await bench.ask()
        here = structs.replace(OWNER, session="telegram:-9", has_power=False)
        assert await bench.answer(here) is None
        await bench.ask("BBBBB")
        assert await bench.answer(OWNER, "bbb bb") is None

    async def test_an_owner_in_another_group_may_not(self, bench: ServiceBench) -> None:
        await bench.ask()
        assert await bench.answer(structs.replace(OWNER, session="telegram:-7", has_power=False)) == "foreign"

    async def test_the_asker_may_not_answer_what_is_asked_and_that_leaves_a_fact(self, bench: ServiceBench) -> None:
        await bench.ask()
        assert await bench.answer(MEMBER) == "foreign"
        assert await bench.names() == ["approval.opened", "approval.rejected"]

    async def test_the_asker_confirms_and_nobody_else_but_an_owner(self, bench: ServiceBench) -> None:
        await bench.ask(verdict="confirm")
        assert await bench.answer(structs.replace(MEMBER, id="3")) == "foreign"
        assert await bench.answer(structs.replace(MEMBER, channel="discord")) == "foreign"
        assert await bench.answer(MEMBER) is None

    async def test_a_role_that_the_settings_name_may(self, memory_store: InMemoryStore, clock: SteppingClock) -> None:
        bench = ServiceBench(memory_store, clock, role="admin")
        await bench.ask()
        assert await bench.answer(structs.replace(MEMBER, id="3", role=Role.ADMIN)) is None

    async def test_an_admin_may_not_by_default(self, bench: ServiceBench) -> None:
        await bench.ask()
        assert await bench.answer(structs.replace(MEMBER, id="3", role=Role.ADMIN)) == "foreign"


class TestWhen:
    async def test_the_time_of_the_press_counts_though_it_got_here_later(self, bench: ServiceBench) -> None:
        await bench.ask()
        pressed = bench.clock()
        bench.clock.advance(timedelta(hours=23))
        await bench.ask("BBBBB")  # which forgets cards that have ended
        typed = bench.clock()
        bench.clock.advance(timedelta(hours=2))
        await bench.ask("CCCCC")
        assert await bench.answer(structs.replace(OWNER, moment=typed)) is None
        assert await bench.answer(structs.replace(OWNER, moment=bench.clock()), "BBBBB") is None
        assert (
            await bench.answer(structs.replace(OWNER, moment=pressed), "CCCCC") == "expired"
        )  # a day old: it may be wrong now

    async def test_a_press_from_the_future_counts_now(self, bench: ServiceBench) -> None:
        await bench.ask()
        moment = bench.clock() + timedelta(days=9)
        assert await bench.answer(structs.replace(OWNER, moment=moment)) is None

    async def test_a_press_after_the_end_means_no(self, bench: ServiceBench) -> None:
        await bench.ask()
        bench.clock.advance(timedelta(hours=25))
        assert await bench.answer(structs.replace(OWNER, moment=bench.clock() - timedelta(minutes=1))) == "expired"

    async def test_late_means_no_and_leaves_a_fact(self, bench: ServiceBench) -> None:
        await bench.ask()
        bench.clock.advance(timedelta(hours=24))
        assert await bench.service.list_open() == []
        assert await bench.answer(OWNER) == "expired"
        assert await bench.names() == ["approval.opened", "approval.rejected"]

    async def test_a_card_that_a_later_one_has_put_out_of_the_state_has_expired_too(self, bench: ServiceBench) -> None:
        await bench.ask()
        bench.clock.advance(timedelta(hours=25))
        await bench.ask("BBBBB")
        assert await bench.answer(OWNER) == "expired"

    async def test_the_second_answer_does_not_count(self, bench: ServiceBench) -> None:
        await bench.ask()
        assert [await bench.answer(OWNER), await bench.answer(OWNER)] == [None, "was_approved"]
        assert (await bench.names()).count("approval.decided") == 1

    async def test_what_nobody_asked_leaves_nothing(self, bench: ServiceBench) -> None:
        assert await bench.answer(OWNER, "ZZZZZ") == "unknown"
        assert await bench.names() == []

    async def test_a_scope_that_was_not_offered_does_not_count(self, bench: ServiceBench) -> None:
        await bench.ask(scopes=("once",))
        assert await bench.answer(OWNER, scope="always") == "scope"


class TestContinuation:
    """Decisions that were taken while no bot ran."""

    @pytest.mark.parametrize("is_new", [True, False])
    async def test_each_goes_on_once_also_if_its_message_was_accepted_before(
        self, bench: ServiceBench, *, is_new: bool
    ) -> None:
        accepted: list[Inbound] = []

        async def accept(inbound: Inbound, staged: Mapping[str, Sequence[TapeEntry]]) -> bool:
            accepted.append(inbound)
            for tape, facts in staged.items() if is_new else ():
                await bench.open_tape(tape).append(facts)
            return is_new

        await bench.ask()
        await bench.answer(OWNER)
        assert [each.opened.fact.id for each in bench.service.state.decided] == ["AAAAA"]
        unused: Any = None
        kernel: Any = SimpleNamespace(
            accept=accept, draft=draft_nothing, find_sent=find_nothing_sent, send=unused, find_texts=unused, zone=UTC
        )
        service = ApprovalService(bench.open_tape, bench.clock, bytes, ApprovalSettings(), kernel=kernel)
        for _ in range(2):
            await service.continue_decided()
        assert (len(accepted), (await bench.names()).count("approval.continued")) == (1, 1)


@pytest.mark.parametrize(("verdict", "scope"), [("approved", "chat"), ("denied", "")])
async def test_only_a_yes_is_recorded_with_what_it_covers(bench: ServiceBench, verdict: Answer, scope: str) -> None:
    await bench.service.answer(await bench.ask(), verdict, OWNER, scope="chat")
    decided = await bench.service.find_decision("AAAAA")
    assert decided is not None
    assert (decided.fact.verdict, decided.fact.scope) == (verdict, scope)


class TestIds:
    async def test_an_id_that_was_used_is_not_used_again(self, bench: ServiceBench) -> None:
        first = await bench.service.new_id()
        await bench.ask("33333")
        assert (first, await bench.service.new_id()) == ("22222", "44444")


class TestState:
    async def test_a_checkpoint_restores_it(self, bench: ServiceBench) -> None:
        await bench.ask()
        await bench.ask("BBBBB")
        await bench.answer(OWNER, "AAAAA", scope="always")
        await bench.service.load()
        projected = ProjectedTape(APPROVALS_PROJECTION, bench.open_tape("bubbot/access"))
        await projected.load()
        await projected.write_checkpoint(force=True)
        restored = await read_projection(APPROVALS_PROJECTION, bench.open_tape("bubbot/access"))
        assert restored == bench.service.state
        assert (len(restored.open), len(restored.decided), len(restored.grants)) == (1, 1, 1)

    @pytest.mark.parametrize(
        ("granted", "called", "is_covered"),
        [
            ("/srv/data", "/srv/data", True),
            ("/srv/data", "/srv/data/a/b", True),
            ("/srv/data", "/srv/database", False),
            ("/srv/data/a", "/srv/data", False),
            ("/", "/etc", True),
        ],
    )
    def test_a_folder_covers_what_is_below_it(self, granted: str, called: str, *, is_covered: bool) -> None:
        folder = GrantKind.FOLDER
        assert covers(GrantTarget(folder, granted), GrantTarget(folder, called)) is is_covered

    def test_a_domain_covers_itself_only(self) -> None:
        domain = GrantKind.DOMAIN
        assert not covers(GrantTarget(domain, "example.org"), GrantTarget(domain, "evil.example.org"))
        assert not covers(GrantTarget(domain, "example.org"), GrantTarget(GrantKind.RECIPIENT, "example.org"))

    def test_a_pinned_tool_is_covered_as_it_was_pinned_and_is_no_exact_destination(self) -> None:
        pinned = GrantTarget(GrantKind.PINNED, "post/send@1234")
        assert covers(pinned, pinned)
        assert not pinned.is_exactly("post/send@1234")
        assert not covers(pinned, GrantTarget(GrantKind.PINNED, "post/send@5678"))

    def test_the_number_of_grants_does_not_matter(self) -> None:
        class Counting(dict[Any, Any]):
            reads = 0

            def get(self, key: Any, default: Any = None) -> Any:
                self.reads += 1
                return super().get(key, default)

        state = ApprovalState().apply([granted(number) for number in range(1, 2001)])
        state.by_target = Counting(state.by_target)
        target = GrantTarget(GrantKind.RECIPIENT, "person 77")
        assert [grant.id for grant, _ in state.find_grants("post.send", target)] == [78]
        assert state.by_target.reads == 1


def granted(number: int) -> TapeEntry:
    """The fact of a grant."""
    entry = make_grant(value=f"person {number - 1}").to_entry()
    return entry.with_meta({}, timestamp(SteppingClock()())).with_id(number)


def test_a_card_that_expired_is_forgotten_when_another_one_is_asked() -> None:
    """Of those that nobody answers in years none stays in memory."""
    begin = datetime(2026, 11, 21, tzinfo=UTC)

    def opened(number: int) -> TapeEntry:
        at = begin + timedelta(hours=number)
        fact = make_opened(id=str(number), expires=timestamp(at + timedelta(hours=2)))
        return fact.to_entry().with_meta({}, timestamp(at)).with_id(number)

    state = ApprovalState().apply([opened(number) for number in range(1, 6)])
    assert [card.fact.id for card in state.open] == ["4", "5"]
