"""Compacting: whole exchanges go, oldest first, down to half; and the cut holds."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.features.memory.zone import MemoryZone
from bubbot.features.strategies.compact import find_cut
from bubbot.features.strategies.events import CUT
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.model import ModelTraits
from bubbot.runtime.compose import ContextPolicy
from bubbot.runtime.context.selectors import ContextMessage
from bubbot.runtime.context.tokens import estimate_message_tokens, estimate_tokens
from bubbot.runtime.context.view import ContextView
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import event, message
from bubbot.tape.service import TapeService
from tests.turns import Bench, Options, asked, running

SMALL = ModelTraits(context_tokens=2_000, tools=False, short_prompt=True)


def line(role: str, entry_id: int, size: int = 30) -> ContextMessage:
    return ContextMessage({"role": role, "content": "x" * size}, (entry_id,))


def window(roles: str, size: int = 30) -> list[ContextMessage]:
    """u: user, a: assistant, t: tool result."""
    names = {"u": "user", "a": "assistant", "t": "tool"}
    return [line(names[role], place, size) for place, role in enumerate(roles, 1)]


def tokens(shown: Sequence[ContextMessage]) -> int:
    return sum(estimate_message_tokens(one) for one in shown)


@pytest.mark.parametrize(
    ("text", "least"), [("", 1), ("word " * 100, 125), ("漢" * 100, 100), ("def f(): ...\n" * 10, 30)]
)
def test_the_estimate_errs_on_the_safe_side(text: str, least: int) -> None:
    assert estimate_tokens(text) >= least


def test_what_fits_is_not_cut() -> None:
    shown = window("uaua")
    assert find_cut(shown, tokens(shown)) is None


def test_what_does_not_fit_is_cut_to_half_the_budget() -> None:
    shown = window("ua" * 10)
    cut = find_cut(shown, tokens(shown) - 1)
    assert cut is not None
    kept = [one for one in shown if one.ids[0] >= cut]
    assert tokens(kept) <= tokens(shown) // 2
    assert tokens(kept) > tokens(shown) // 2 - tokens(window("uaua"))


def test_the_newest_exchange_stays_however_long_it_is() -> None:
    assert find_cut([*window("ua"), line("user", 3, 9_000), line("assistant", 4)], 100) == 3


def test_a_window_without_a_user_is_not_cut() -> None:
    assert find_cut(window("aaa", 900), 10) is None


@given(st.lists(st.sampled_from(["ua", "uatta", "u", "uata"]), min_size=1), st.integers(1, 600))
def test_a_cut_begins_with_a_users_message_and_leaves_no_exchange_in_half(parts: list[str], budget: int) -> None:
    shown = window("".join(parts))
    cut = find_cut(shown, budget)
    assert (cut is None) == (tokens(shown) <= budget)
    if cut is not None:
        assert shown[cut - 1].message["role"] == "user"


class TestRecordedCuts:
    @pytest.fixture
    async def told(self, tape: TapeService) -> TapeService:
        await tape.ensure_bootstrap_anchor()
        for number in range(4):
            await tape.append([message("user", f"q{number}"), message("assistant", f"a{number}")])
        return tape

    async def lines(self, tape: TapeService, budget: int | None = 10_000) -> list[str]:
        context = await tape.read(ContextView("compact", budget=budget, strategies=OWN_STRATEGIES))
        assert not context.facts
        return [str(one["content"]) for one in context.messages][1:]

    async def test_a_recorded_cut_holds_though_there_would_be_room_again(self, told: TapeService) -> None:
        await told.append([event(CUT, {"from": 6})])
        assert await self.lines(told) == ["q2", "a2", "q3", "a3"]

    async def test_the_newest_of_several_cuts_counts(self, told: TapeService) -> None:
        await told.append([event(CUT, {"from": 4}), event(CUT, {"from": 8})])
        assert await self.lines(told) == ["q3", "a3"]

    async def test_a_cut_of_an_earlier_window_does_not(self, told: TapeService) -> None:
        await told.append([event(CUT, {"from": 8})])
        await told.handoff("phase/x", recalls=[(2, 9)])
        assert await self.lines(told) == [f"{who}{number}" for number in range(4) for who in "qa"]

    async def test_without_a_budget_nothing_is_cut(self, told: TapeService) -> None:
        await told.append([event(CUT, {"from": 6})])
        assert len(await self.lines(told, None)) == 8

    async def test_a_cut_at_an_entry_that_was_hidden_since_begins_with_the_next(self, told: TapeService) -> None:
        await told.append([event(CUT, {"from": 6})])
        await told.hide(6)
        assert await self.lines(told) == ["a2", "q3", "a3"]

    async def test_the_window_itself_is_untouched(self, told: TapeService) -> None:
        await told.append([event(CUT, {"from": 6})])
        assert len((await told.read(ContextView())).messages) == 9


async def talk(bench: Bench, turns: int) -> None:
    for number in range(turns):
        await bench.say(f"{number}: " + "many words " * 12)


class TestInTurns:
    async def test_requests_stay_within_the_models_size(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel(traits=SMALL)) as bench:
            await talk(bench, 40)
            for request in bench.requests:
                assert (
                    sum(estimate_message_tokens(ContextMessage(one, ())) for one in request.messages)
                    + estimate_tokens(request.system)
                    <= 1_500 + 100
                )

    async def test_between_two_cuts_requests_extend_each_other(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel(traits=SMALL)) as bench:
            await talk(bench, 40)
            breaks = sum(
                after.messages[: len(before.messages)] != before.messages
                for before, after in zip(bench.requests, bench.requests[1:], strict=False)
            )
            assert breaks == len(await bench.events(CUT)) > 1
            assert breaks < 10

    async def test_the_message_that_is_asked_is_never_cut(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel(traits=SMALL)) as bench:
            await talk(bench, 10)
            await bench.say("long " * 3_000)
            assert asked(bench.requests[-1])[-1][1].startswith("long long")

    async def test_the_summary_selector_points_to_what_was_cut(self, memory_store: InMemoryStore) -> None:
        options = Options(compose=ContextPolicy("summary", strategies=OWN_STRATEGIES))
        async with running(memory_store, ScriptedModel(traits=SMALL), options) as bench:
            await talk(bench, 30)
            hint = asked(bench.requests[-1])[0]
            assert hint[0] == "user"
            assert "tape_search finds them" in hint[1]
            cited = [entry for entry in await bench.entries() if f"#{entry.id} " in hint[1]]
            assert cited
            assert all(entry.payload["role"] == "user" for entry in cited)

    async def test_memory_is_no_reason_to_cut(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel(traits=SMALL)) as bench:
            await bench.say("hello")
            tape = bench.tape()
            zone = MemoryZone(tape, now=bench.tape()._now, zone=Options().zone)
            await zone.save_long_term("\n".join(f"fact {number} of many" for number in range(2_000)))
            await bench.say("and?")
            assert [content for role, content in asked(bench.requests[-1]) if role == "user"] == ["hello", "and?"]


def test_a_long_window_is_added_up_once() -> None:
    """A hundred thousand messages took a quarter of a minute, in which no other chat was served."""
    sums = 0

    def count(_frame: object, event: str, called: object) -> None:
        nonlocal sums
        sums += event == "c_call" and called is sum

    shown = window("ua" * 500)
    sys.setprofile(count)
    try:
        cut = find_cut(shown, tokens(shown) - 1)
    finally:
        sys.setprofile(None)
    assert cut is not None
    assert sums <= 2
    rest = [message for message in shown if message.ids[-1] >= cut]
    assert tokens(rest) <= (tokens(shown) - 1) // 2 < tokens(shown[len(shown) - len(rest) - 2 :])
