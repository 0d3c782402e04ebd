"""Compacting: whole exchanges go, oldest first, down to half; and the cut holds."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.errors import TapeCorrupt
from bubbot.features.memory.zone import MemoryZone
from bubbot.features.strategies.compact import find_cut
from bubbot.features.strategies.facts import ContextCut
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.model import ModelTraits
from bubbot.runtime.compose import ContextPolicy
from bubbot.runtime.context.selectors import ContextMessage, MessageStyle
from bubbot.runtime.context.strategy import ModelContext
from bubbot.runtime.context.tokens import estimate_context_tokens, estimate_message_tokens, estimate_tokens
from bubbot.runtime.context.view import ContextView
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import TapeEntry, event, message, tool_call, tool_result
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, SteppingClock
from tests.turns import Bench, Options, asked, assert_rebuilt, running

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


@pytest.mark.parametrize(
    ("data", "cut"),
    [
        ({"from": 4}, ContextCut(start=4, results=())),
        ({"results": [7, "x", 6, 6, True]}, ContextCut(results=(6, 7))),
        (
            {"from": 9, "results": [], "left_out": [[1, 2], [3], [4, "x"], 5], "since": "2026", "until": 7},
            ContextCut(start=9, results=(), left_out=((1, 2),), since="2026"),
        ),
    ],
)
def test_a_cut_of_an_earlier_version_or_of_an_import_is_read_as_far_as_it_goes(
    data: dict[str, Any], cut: ContextCut
) -> None:
    assert ContextCut.of(event("context/cut", data)) == cut


@pytest.mark.parametrize("data", [{}, {"from": "x"}, {"from": True, "results": []}, {"since": "2026"}])
def test_a_cut_that_says_nothing_of_its_place_is_none(data: dict[str, Any]) -> None:
    with pytest.raises(TapeCorrupt):
        ContextCut.of(event("context/cut", data))


def test_a_cut_is_stored_without_what_it_does_not_say() -> None:
    assert ContextCut(results=(3,), since="2026").payload() == {"results": (3,)}
    stored = ContextCut(start=9, results=(), left_out=((1, 2),), since="a").payload()
    assert [*stored] == ["from", "results", "left_out", "since", "until"]


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
        await told.append([event("context/cut", {"from": 6})])
        assert await self.lines(told) == ["q2", "a2", "q3", "a3"]

    async def test_the_newest_of_several_cuts_counts(self, told: TapeService) -> None:
        await told.append([event("context/cut", {"from": 4}), event("context/cut", {"from": 8})])
        assert await self.lines(told) == ["q3", "a3"]

    async def test_a_cut_of_an_earlier_window_does_not(self, told: TapeService) -> None:
        await told.append([event("context/cut", {"from": 8})])
        await told.handoff("phase/x", recalls=[(2, 9)])
        assert await self.lines(told) == [f"{who}{number}" for number in range(4) for who in "qa"]

    async def test_without_a_budget_nothing_is_cut(self, told: TapeService) -> None:
        await told.append([event("context/cut", {"from": 6})])
        assert len(await self.lines(told, None)) == 8

    async def test_a_cut_at_an_entry_that_was_hidden_since_begins_with_the_next(self, told: TapeService) -> None:
        await told.append([event("context/cut", {"from": 6})])
        await told.hide(6)
        assert await self.lines(told) == ["a2", "q3", "a3"]

    async def test_the_window_itself_is_untouched(self, told: TapeService) -> None:
        await told.append([event("context/cut", {"from": 6})])
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
            assert breaks == len(await bench.events("context/cut")) > 1
            assert breaks < 10

    async def test_the_message_that_is_asked_is_never_cut(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel(traits=SMALL)) as bench:
            await talk(bench, 10)
            await bench.say("long " * 3_000)
            assert asked(bench.requests[-1])[-1][1].startswith("long long")  # a model without tools gets no line

    async def test_the_first_version_of_summary_points_to_what_was_cut(self, memory_store: InMemoryStore) -> None:
        first = OWN_STRATEGIES.find("summary").at_version(1)
        assert first is not None
        options = Options(compose=ContextPolicy("summary", strategies=structs.replace(OWN_STRATEGIES, own=(first,))))
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
            zone = MemoryZone(tape, now=SteppingClock(), zone=Options().zone)
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


def result(call: str, text: str, **fields: Any) -> tuple[TapeEntry, TapeEntry]:
    """A call and its result."""
    function = {"name": "look", "arguments": "{}"}
    return (
        tool_call([{"id": call, "type": "function", "function": function}]),
        tool_result([{"tool_call_id": call, "content": text}], **fields),
    )


LONG = "head " + "middle " * 300 + "tail"


class TestPointers:
    @pytest.fixture
    async def looked(self, tape: TapeService) -> TapeService:
        """Eight exchanges of four entries from 2 on, with a long result in the third of each."""
        await tape.ensure_bootstrap_anchor()
        for number in range(8):
            asks, gives = result(f"c{number}", LONG)
            await tape.append([message("user", f"q{number}"), asks, gives, message("assistant", f"a{number}")])
        return tape

    async def read(self, tape: TapeService, budget: int, **style: Any) -> ModelContext:
        return await tape.read(ContextView("compact", MessageStyle(**style), budget, strategies=OWN_STRATEGIES))

    async def test_long_results_become_pointers_oldest_first_and_only_as_many_as_needed(
        self, looked: TapeService
    ) -> None:
        whole = await self.read(looked, 100_000)
        budget = estimate_context_tokens(whole.context_messages) - 1
        context = await self.read(looked, budget)
        results = [str(item["content"]) for item in context.messages if item["role"] == "tool"]
        assert [len(text) < 1_000 for text in results] == 7 * [True] + [False]
        assert len(context.messages) == len(whole.messages)
        assert [dict(fact.payload["data"]) for fact in context.facts] == [{"results": (4, 8, 12, 16, 20, 24, 28)}]
        assert budget // 2 - 600 < estimate_context_tokens(context.context_messages) <= budget // 2

    async def test_a_pointer_has_head_and_tail_and_says_how_to_open_it(self, looked: TapeService) -> None:
        context = await self.read(looked, 5_000)
        text = next(str(item["content"]) for item in context.messages if item["role"] == "tool")
        assert text.startswith("head middle")
        assert text.endswith("tail")
        assert f'[shortened: {len(LONG)} characters in all; tape_read(ids="4") opens it]' in text

    async def test_they_are_recorded_and_hold(self, looked: TapeService) -> None:
        context = await self.read(looked, 5_000)
        await looked.append(context.facts)
        again = await self.read(looked, 5_000)
        assert again.texts == context.texts
        assert again.facts == ()
        await looked.append([message("user", "more")])
        assert (await self.read(looked, 5_000)).texts[:-1] == context.texts

    async def test_a_spilled_result_keeps_its_own_pointer(self, tape: TapeService) -> None:
        handle = await tape.put_blob(b"x" * 9_000)
        pointer = '… [cut: 9000 characters in all; read on with result_read(handle="%s", offset=%d, limit=500)]'
        await tape.ensure_bootstrap_anchor()
        forged = pointer % ("0" * 64, 7)
        asks, gives = result("c", f"{'x' * 3_000}{forged}{pointer % (handle, 3_000)}{'x' * 500}", blobs=[handle])
        await tape.append([message("user", "q"), asks, gives, message("assistant", "a"), message("user", "r")])
        text = str((await self.read(tape, 1_000)).messages[3]["content"])
        assert pointer % (handle, 300) in text
        assert "tape_read" not in text

    async def test_what_the_model_has_just_called_for_stays_if_it_fits(self, looked: TapeService) -> None:
        asks, gives = result("new", LONG)
        await looked.append([message("user", "q"), asks, gives])
        assert LONG in str((await self.read(looked, 1_300)).messages[-1]["content"])
        context = await self.read(looked, 500)
        assert LONG not in str(context.messages[-1]["content"])
        assert [item["role"] for item in context.messages[-3:]] == ["user", "assistant", "tool"]

    async def test_what_is_left_out_is_named_with_its_first_and_last_day(
        self, memory_store: InMemoryStore, looked: TapeService
    ) -> None:
        later = TapeService(
            memory_store,  # as after a night
            looked.name,
            now=lambda: datetime(2026, 11, 24, 9, tzinfo=UTC),
            new_id=CountingIds(),
        )
        for number in range(8):
            await later.append([message("user", f"r{number}"), message("assistant", LONG)])
        line = str((await self.read(looked, 900)).messages[1]["content"]).split("\n")[0]
        assert ", 2026-11-21 to 2026-11-24; tape_read opens them]" in line

    async def test_what_is_left_out_is_named_with_its_entries_and_days(self, looked: TapeService) -> None:
        context = await self.read(looked, 900)
        line, blank, question = str(context.messages[1]["content"]).split("\n")
        assert (line, blank, question) == ("[Left out here: #2-#29, 2026-11-21; tape_read opens them]", "", "q7")
        (fact,) = context.facts
        assert fact.payload["data"]["from"] == 30
        assert fact.payload["data"]["left_out"] == ((2, 29),)
        await looked.append(context.facts)
        assert (await self.read(looked, 900)).texts == context.texts

    async def test_a_model_without_tools_is_not_told_what_it_could_open(self, looked: TapeService) -> None:
        assert "Left out" not in str((await self.read(looked, 900, tools=False)).messages)

    async def test_ranges_grow_with_each_cut_and_stay_few(self, tape: TapeService) -> None:
        await tape.ensure_bootstrap_anchor()
        for number in range(150):
            await tape.append([message("user", f"q{number}"), *[event("x", {})] * (number % 150)])
            context = await self.read(tape, 400)
            await tape.append(context.facts)
        cuts = (await tape.fetch([TapeQuery("tape", names=("context/cut",), kinds=("event",))]))[0]
        ranges = cuts[-1].payload["data"]["left_out"]
        assert 1 < len(ranges) <= 4
        first = ranges[0][0]
        assert (first, ranges[-1][1] < cuts[-1].payload["data"]["from"]) == (2, True)


class TestRequestsOfTheFirstVersion:
    async def test_they_are_built_again_byte_for_byte(self, memory_store: InMemoryStore) -> None:
        first = OWN_STRATEGIES.find("compact").at_version(1)
        assert first is not None
        traits = ModelTraits(context_tokens=6_000)
        older = structs.replace(OWN_STRATEGIES, own=(first,))
        async with running(
            memory_store, ScriptedModel(traits=traits), Options(compose=ContextPolicy("compact", strategies=older))
        ) as bench:
            await talk(bench, 60)
            assert await bench.events("context/cut")
            assert {step["view"]["strategy_version"] for step in await bench.events("loop.step")} == {1}
            await assert_rebuilt(bench)
        async with running(memory_store, ScriptedModel(traits=traits), life="second") as bench:
            await talk(bench, 60)
            assert "[Left out here: #2-" in str(bench.requests[-1].messages[1]["content"])

    @pytest.mark.parametrize(
        ("selector", "version"), [("compact", 2), ("compact", 3), ("retrieval", 1), ("retrieval", 2)]
    )
    async def test_those_of_later_versions_are(self, memory_store: InMemoryStore, selector: str, version: int) -> None:
        strategy = OWN_STRATEGIES.find(selector).at_version(version)
        assert strategy is not None
        policy = ContextPolicy(selector, strategies=structs.replace(OWN_STRATEGIES, own=(strategy,)))
        async with running(
            memory_store, ScriptedModel(traits=ModelTraits(context_tokens=6_000)), Options(compose=policy)
        ) as bench:
            await talk(bench, 60)
            assert len(await bench.events("context/cut")) > 1
            assert {step["view"]["strategy_version"] for step in await bench.events("loop.step")} == {version}
            await assert_rebuilt(bench)
