"""The memory tools: each answer says what is on the tape now, and says so when nothing changed."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from bubbot.errors import ToolRetry
from bubbot.features.memory.feature import MemoryFeature
from bubbot.features.memory.settings import MemorySettings
from bubbot.features.memory.zone import MemoryZone
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Role, Sender
from bubbot.ports.turn import Turn
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.service import TapeService
from bubbot.tool import Tool, Toolbox
from tests.doubles import NO_RUNNER, SteppingClock
from tests.turns import Options, running

TOOLS = Toolbox(MemoryFeature(Path("unused"), SteppingClock(), MemorySettings()).feature().tools)


@pytest.fixture
async def turn(tape: TapeService, clock: SteppingClock) -> Turn:
    await tape.ensure_bootstrap_anchor()
    fork = await tape.open_fork()
    return Turn("turn-1", "stdin:default", fork, Sender("1"), Role.MEMBER, clock, UTC, runner=NO_RUNNER)


async def use(turn: Turn, name: str, **arguments: Any) -> str:
    """Calls a tool as a model does, with arguments in JSON."""
    one = TOOLS.find(name)
    answer = await one.run(turn, one.parse(json.dumps(arguments)))
    assert isinstance(answer, str)
    return answer


def memory(turn: Turn) -> MemoryZone:
    return MemoryZone(turn.tape, now=turn.now, zone=turn.zone)


class TestSave:
    async def test_it_cites_version_and_entry(self, turn: Turn) -> None:
        assert await use(turn, "memory.save", content="Likes tea.") == (
            "Saved to long-term memory as version 1 (entry 4)."
        )
        assert (await turn.tape.entry(4)).name == "memory/seal"

    async def test_it_lists_the_lines_that_were_lost_and_how_to_get_them_back(self, turn: Turn) -> None:
        await use(turn, "memory.save", content="Likes tea.\nLives in Bonn.")
        assert await use(turn, "memory.save", content="Likes tea.\nHas a cat.") == (
            "Saved to long-term memory as version 2 (entry 7). Lines that were there before and are not any more:\n"
            "- Lives in Bonn.\n"
            "If one of them still holds, save again with it; `,memory.restore 1` brings back all of version 1."
        )

    async def test_a_typed_text_that_drops_lines_asks_first(self) -> None:
        async with running(InMemoryStore(), ScriptedModel(), Options()) as bench:
            await bench.say(",memory.save Likes tea.")
            asked = (await bench.say(",memory.save Has a cat.")).text
            assert asked == (
                "These lines would go:\n- Likes tea.\n"
                "`,remember TEXT` adds a line and keeps them. `,memory.save confirm=true TEXT` replaces all."
            )
            assert "Likes tea." in (await bench.say(",memory")).text
            assert "no more" not in (await bench.say(',memory.save content="Likes tea.\nHas a cat."')).text
            await bench.say(",memory.save confirm=true Has a dog.")
            assert "Likes tea." not in (await bench.say(",memory")).text

    async def test_the_same_text_again_is_said_to_be_there_already(self, turn: Turn) -> None:
        await use(turn, "memory.save", content="Likes tea.")
        answer = await use(turn, "memory.save", content="Likes tea.")
        assert answer == "Long-term memory says exactly this already (version 1, entry 4); nothing was written."

    @pytest.mark.parametrize("content", ["", " \n"])
    async def test_an_empty_text_is_sent_back(self, turn: Turn, content: str) -> None:
        with pytest.raises(ToolRetry, match=r"content is empty; `,memory\.forget"):
            await use(turn, "memory.save", content=content)

    @pytest.mark.parametrize(("text", "advised"), [("x" * 4096, False), ("x" * 4097, True), ("あ" * 1366, True)])
    async def test_a_text_over_four_kilobytes_is_saved_with_advice_to_shorten_it(
        self, turn: Turn, text: str, advised: bool
    ) -> None:
        answer = await use(turn, "memory.save", content=text)
        assert ("Shorten it" in answer) is advised
        assert (await memory(turn).read()).long_term == text

    async def test_text_that_is_not_unicode_is_sent_back(self, turn: Turn) -> None:
        with pytest.raises(ToolRetry, match="not valid text"):
            await use(turn, "memory.save", content="\ud800")
        assert (await memory(turn).read()).is_empty

    async def test_the_merged_tape_has_the_entry_that_was_cited(self, turn: Turn, tape: TapeService) -> None:
        await use(turn, "memory.save", content="Likes tea.")
        await turn.tape.merge()
        assert (await tape.entry(4)).name == "memory/seal"


class TestDaily:
    async def test_it_names_the_day_version_and_entry(self, turn: Turn) -> None:
        assert await use(turn, "memory.daily", content="Rain.") == (
            "Added to the notes of 2026-11-21 as version 1 (entry 4)."
        )
        answer = await use(turn, "memory.daily", content="Sun.", date="2026-11-20")
        assert answer.startswith("Added to the notes of 2026-11-20 as version 2 (entry 8)")

    async def test_the_day_is_that_of_the_turns_time_zone(self, turn: Turn) -> None:
        turn.zone = timezone(timedelta(hours=9))
        turn.now = SteppingClock(datetime(2026, 11, 21, 23, 30, tzinfo=UTC))
        assert "notes of 2026-11-22" in await use(turn, "memory.daily", content="x", date="")

    async def test_a_wrong_date_is_named(self, turn: Turn) -> None:
        with pytest.raises(ToolRetry, match="date: 'Friday' is not a date such as 2026-11-21"):
            await use(turn, "memory.daily", content="x", date="Friday")

    async def test_an_empty_note_is_sent_back(self, turn: Turn) -> None:
        with pytest.raises(ToolRetry, match="content is empty"):
            await use(turn, "memory.daily", content="  ")

    @pytest.mark.parametrize(("day", "warned"), [("2026-10-22", False), ("2026-10-21", True)])
    async def test_a_day_past_retention_is_said_to_go_soon(self, turn: Turn, day: str, warned: bool) -> None:
        assert ("kept for 30 days" in await use(turn, "memory.daily", content="x", date=day)) is warned

    async def test_a_day_is_taken_as_far_ahead_as_notes_are_kept(self, turn: Turn) -> None:
        assert "2026-12-21" in await use(turn, "memory.daily", content="x", date="2026-12-21")
        with pytest.raises(ToolRetry, match="2026-12-22 is more than 30 days ahead"):
            await use(turn, "memory.daily", content="x", date="2026-12-22")

    async def test_a_long_note_brings_advice(self, turn: Turn) -> None:
        assert "Add only what matters" in await use(turn, "memory.daily", content="x" * 5000)


class TestRecall:
    async def test_it_cites_where_it_found_what(self, turn: Turn) -> None:
        await use(turn, "memory.save", content="Likes green tea.\nHas a cat.")
        await use(turn, "memory.daily", content="Bought TEA.\nRain.")
        assert await use(turn, "memory.recall", query="tea") == (
            "From memory (version 2, entry 8), notes since 2026-11-14:\n\n"
            "Long-term memory:\nLikes green tea.\n\nNotes of 2026-11-21:\nBought TEA."
        )

    async def test_without_a_query_it_gives_all(self, turn: Turn) -> None:
        await use(turn, "memory.save", content="Likes tea.\nHas a cat.")
        assert "Likes tea.\nHas a cat." in await use(turn, "memory.recall")

    async def test_it_says_when_nothing_was_found_and_what_it_did_not_look_at(self, turn: Turn) -> None:
        await use(turn, "memory.daily", content="Rain.", date="2026-11-01")
        await use(turn, "memory.daily", content="Sun.", date="2026-11-14")
        assert await use(turn, "memory.recall", query="rain") == (
            "There is nothing that contains 'rain' in memory (version 2, entry 8), notes since 2026-11-14.\n\n"
            "Older notes were not looked at (1 day); days=20 reaches all of them."
        )
        assert "Rain." in await use(turn, "memory.recall", query="rain", days=20)

    async def test_an_empty_memory_says_so(self, turn: Turn) -> None:
        assert await use(turn, "memory.recall") == "Memory is empty (no version yet)."
        await memory(turn).ensure()
        assert await use(turn, "memory.recall") == "Memory is empty (version 1, entry 3)."

    @pytest.mark.parametrize("days", [-1, 10**9, "many"])
    async def test_impossible_days_are_sent_back(self, turn: Turn, days: object) -> None:
        with pytest.raises(ToolRetry, match="days is"):
            await use(turn, "memory.recall", days=days)


class TestShow:
    async def test_it_gives_text_version_sizes_days_and_versions(self, turn: Turn) -> None:
        await use(turn, "memory.save", content="Likes tea.\nHas a cat.")
        await use(turn, "memory.daily", content="Rain.", date="2026-11-19")
        await use(turn, "memory.daily", content="Sun.")
        assert await use(turn, "memory.show") == (
            "Memory: version 3, entry 13.\n"
            "Long-term memory: 21 bytes in 2 lines.\n"
            "Likes tea.\n"
            "Has a cat.\n"
            "Daily notes: 2 days (2026-11-19, 2026-11-21), 10 bytes in 2 lines.\n"
            "The prompt shows those of today and 7 days before; 30 days are kept.\n"
            "On the tape: the versions 1 to 3; `,memory.restore N` brings one back.\n"
            "`,memory.recall` gives the text."
        )

    async def test_an_empty_memory_is_shown_too(self, turn: Turn) -> None:
        answer = await use(turn, "memory.show")
        assert "no version yet" in answer
        assert "On the tape" not in answer

    def test_people_may_type_memory_alone(self) -> None:
        assert TOOLS.find("memory").name == "memory.show"


class TestForget:
    async def test_it_lists_what_went_and_says_that_older_versions_remain(self, turn: Turn) -> None:
        await use(turn, "memory.save", content="Likes tea.\nLives in Bonn.")
        assert await use(turn, "memory.forget", text="bonn") == (
            "Removed 1 line from memory, now version 2 (entry 7):\n- Lives in Bonn.\n"
            "Older versions remain on the tape with them, and so does what was said; "
            "`,memory.restore 1` brings back all of version 1."
        )

    async def test_it_does_not_offer_what_it_cannot_do(self, turn: Turn) -> None:
        await use(turn, "memory.save", content="Lives in Bonn.")
        assert "erase" not in (await use(turn, "memory.forget", text="bonn")).lower()

    async def test_without_a_match_it_says_that_nothing_was_removed(self, turn: Turn) -> None:
        await use(turn, "memory.save", content="a\nb")
        answer = await use(turn, "memory.forget", text="c")
        assert answer == "No line of memory contains 'c' (version 1, entry 4); nothing was removed."
        assert "words of a single line" in await use(turn, "memory.forget", text="a\nb")

    async def test_an_empty_text_is_sent_back(self, turn: Turn) -> None:
        with pytest.raises(ToolRetry, match="the text to forget is empty"):
            await use(turn, "memory.forget", text=" ")


class TestRestore:
    async def test_it_says_which_version_it_is_now(self, turn: Turn) -> None:
        await use(turn, "memory.save", content="a")
        await use(turn, "memory.save", content="b")
        answer = await use(turn, "memory.restore", version=1)
        assert answer == (
            "Brought version 1 back as version 3 (entry 10); `,memory.restore 2` brings back all of version 2."
        )
        assert (await memory(turn).read()).long_term == "a"

    async def test_restoring_the_same_says_that_nothing_was_written(self, turn: Turn) -> None:
        await use(turn, "memory.save", content="a")
        assert "nothing was written" in await use(turn, "memory.restore", version=1)

    async def test_an_unknown_version_is_sent_back_with_those_there_are(self, turn: Turn) -> None:
        await use(turn, "memory.save", content="a")
        with pytest.raises(ToolRetry, match="no memory version 5; this tape has version 1"):
            await use(turn, "memory.restore", version=5)


class TestClear:
    async def test_it_explains_first_and_removes_nothing(self, turn: Turn) -> None:
        await use(turn, "memory.save", content="a\nb")
        answer = await use(turn, "memory.clear")
        assert answer.startswith("Nothing was removed yet.")
        assert "long-term memory (3 bytes in 2 lines) and the notes of 0 days" in answer
        assert "`,memory.clear confirm=true`" in answer
        assert not (await memory(turn).read()).is_empty

    @pytest.mark.parametrize(
        ("arguments", "kind", "power"), [({}, "read", ""), ({"confirm": True}, "inside", "memory")]
    )
    async def test_only_a_confirmed_call_counts_as_clearing(
        self, turn: Turn, arguments: dict[str, Any], kind: str, power: str
    ) -> None:
        clear = TOOLS.find("memory.clear")
        assert clear.plan is not None
        plan = await clear.plan(turn, clear.parse(json.dumps({"scope": "user", **arguments})))
        assert (plan.effect.kind.value, plan.effect.power.value) == (kind, power)
        assert json.loads(plan.details) == {"scope": "user", **arguments}

    async def test_confirmed_it_empties_memory_and_says_how_to_undo_that(self, turn: Turn) -> None:
        await use(turn, "memory.save", content="a")
        answer = await use(turn, "memory.clear", confirm=True)
        assert answer.startswith("Emptied memory, now version 2 (entry 6): ")
        assert answer.endswith("`,memory.restore 1` brings back all of version 1.")
        assert (await memory(turn).read()).is_empty

    async def test_an_empty_memory_needs_no_clearing(self, turn: Turn) -> None:
        assert "nothing was written" in await use(turn, "memory.clear", confirm=True)


@pytest.mark.parametrize("one", list(TOOLS), ids=lambda one: one.name)
def test_every_tool_tells_a_model_what_it_is_for(one: Tool) -> None:
    spec = one.spec()
    assert one.for_model is (one.name not in ("memory.why", "memory.view", "memory.remember"))
    assert len(one.summary) > 30
    assert all(field.get("description") for field in spec.parameters.get("properties", {}).values())


def test_the_tools_are_those_of_the_design() -> None:
    assert [one.name for one in TOOLS] == [
        f"memory.{name}"
        for name in ("remember", "save", "daily", "recall", "show", "forget", "restore", "clear", "why", "view")
    ]


class TestRemember:
    async def test_a_line_is_added_to_what_is_there(self, turn: Turn) -> None:
        await use(turn, "memory.save", content="Likes tea.")
        assert await use(turn, "memory.remember", text=" Ann is allergic to nuts. ") == (
            "Saved to long-term memory as version 2 (entry 7)."
        )
        assert (await memory(turn).read()).long_term == "Likes tea.\nAnn is allergic to nuts."
        with pytest.raises(ToolRetry):
            await use(turn, "memory.remember", text=" \n ")

    async def test_it_is_the_first_one_in_an_empty_memory(self, turn: Turn) -> None:
        await use(turn, "memory.remember", text="Likes tea.")
        assert (await memory(turn).read()).long_term == "Likes tea."
