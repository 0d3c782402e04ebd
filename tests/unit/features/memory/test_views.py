"""Reading memory: zones as they are, zones as they come from elsewhere, versions, recall, and the prompt's block."""

from __future__ import annotations

import asyncio
from datetime import UTC, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbot.errors import EntryNotFound
from bubbot.features.memory.zone import MemoryZone
from bubbot.ports.channel import Role, Sender
from bubbot.ports.turn import Turn
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, event, message
from bubbot.tape.service import TapeService
from bubbot.tape.store import Batch
from tests.doubles import NO_RUNNER, START, CountingIds, SteppingClock
from tests.unit.features.memory.test_tools import use


def mark(name: str, version: object, *, window: bool = False) -> TapeEntry:
    return anchor(name, {"version": version}, window=window)


def long_term(content: object) -> TapeEntry:
    return event("memory.long_term", {"content": content, "updated_at": "2026-11-20T10:00:00+00:00"})


def daily(day: object, content: object) -> TapeEntry:
    return event("memory.daily", {"date": day, "content": content, "updated_at": "2026-11-20T10:00:00+00:00"})


def zone(version: object, *notes: TapeEntry, window: bool = False) -> list[TapeEntry]:
    return [mark("memory/open", version, window=window), *notes, mark("memory/seal", version, window=window)]


def notes(*days: tuple[str, str], long: str = "") -> list[TapeEntry]:
    return zone(3, *([long_term(long)] if long else []), *(daily(day, content) for day, content in days))


async def taped(*entries: TapeEntry) -> TapeService:
    """A tape with these entries, as an import or an older version may leave it."""
    store = InMemoryStore()
    await store.append([Batch("tape", entries)])
    return TapeService(store, "tape", now=SteppingClock(), new_id=CountingIds())


async def memory_of(*entries: TapeEntry, clock: SteppingClock | None = None) -> MemoryZone:
    return MemoryZone(await taped(*entries), now=clock or SteppingClock(), zone=UTC)


async def read(*entries: TapeEntry) -> Any:
    return await (await memory_of(*entries)).read()


async def block(*entries: TapeEntry, **options: Any) -> str:
    """The block of the prompt on 2026-11-21."""
    return await (await memory_of(*entries)).get_context(**options)


async def recall(*entries: TapeEntry, **arguments: Any) -> list[str]:
    """What the tool finds on 2026-11-21: a text for each place."""
    fork = await (await taped(*entries)).open_fork()
    turn = Turn("turn-1", "stdin:default", fork, Sender("1"), Role.MEMBER, SteppingClock(), UTC, runner=NO_RUNNER)
    return (await use(turn, "memory.recall", **arguments)).split("\n\n")[1:]


def texts(memory: Any) -> tuple[str, list[tuple[str, str]]]:
    return memory.long_term, [(note.date, note.content) for note in memory.dailies]


class TestNewestZone:
    async def test_a_tape_without_a_zone_has_an_empty_memory(self) -> None:
        assert (await read(message("user", "hello"))).is_empty
        assert (await read()).is_empty

    async def test_a_zone_is_read_whole_with_the_days_in_order(self) -> None:
        memory = await read(*zone(4, long_term("Likes tea."), daily("2026-11-20", "b"), daily("2026-11-19", "a")))
        assert (memory.version, memory.seal_id) == (4, 5)
        assert texts(memory) == ("Likes tea.", [("2026-11-19", "a"), ("2026-11-20", "b")])
        assert {memory.long_term_updated_at, *(note.updated_at for note in memory.dailies)} == {
            "2026-11-20T10:00:00+00:00"
        }

    async def test_the_newest_zone_replaces_the_older_one_entirely(self) -> None:
        newest = await read(*zone(1, long_term("old"), daily("2026-11-01", "old")), *zone(2, long_term("new")))
        assert (newest.version, texts(newest)) == (2, ("new", []))

    async def test_an_imported_zone_that_says_nothing_of_the_window_is_read_like_any_other(self) -> None:
        assert (await read(*zone(2, long_term("from elsewhere"), window=True))).long_term == "from elsewhere"

    async def test_messages_between_the_entries_of_an_imported_zone_do_not_disturb(self) -> None:
        opening, note, seal = zone(1, long_term("a"))
        assert (await read(opening, message("user", "x"), note, message("user", "y"), seal)).long_term == "a"


class TestWhatCannotBeRead:
    @pytest.mark.parametrize("content", [None, 7, True, [], {"a": 1}, ["text"]])
    async def test_content_that_is_not_text_is_left_out_and_the_rest_is_read(self, content: object) -> None:
        snapshot = await read(*zone(1, long_term(content), daily("2026-11-20", content), daily("2026-11-19", "kept")))
        assert texts(snapshot) == ("", [("2026-11-19", "kept")])

    @pytest.mark.parametrize("day", [None, 20261120, "", "yesterday", "2026-13-01", "2026-02-30", "2026-11-20T10:00"])
    async def test_a_note_of_no_day_is_left_out(self, day: object) -> None:
        assert texts(await read(*zone(1, daily(day, "lost"), long_term("kept")))) == ("kept", [])

    @pytest.mark.parametrize("version", [None, "2", 2.0, True, 0, -1, [], {"version": 2}])
    async def test_a_version_that_is_no_number_is_zero_and_the_content_is_read(self, version: object) -> None:
        snapshot = await read(*zone(version, long_term("kept")))
        assert (snapshot.version, snapshot.long_term, snapshot.seal_id) == (0, "kept", 3)

    async def test_the_opening_names_the_version_where_the_seal_does_not(self) -> None:
        assert (await read(mark("memory/open", 5), mark("memory/seal", None))).version == 5

    @pytest.mark.parametrize("field", ["data", "state"])
    @pytest.mark.parametrize("value", [None, "text", 3, []])
    async def test_data_or_state_of_another_form_is_no_failure(self, field: str, value: object) -> None:
        opening, note, seal = zone(1, long_term("a"))
        odd = TapeEntry("event", {"name": "memory.long_term", field: value})
        bare = TapeEntry("anchor", {"name": "memory/seal", field: value})
        assert (await read(opening, note, odd, seal)).long_term == "a"
        assert (await read(opening, note, bare)).long_term == "a"

    async def test_unknown_events_inside_a_zone_are_passed_over(self) -> None:
        opening, note, seal = zone(1, long_term("a"))
        assert (await read(opening, event("memory.mood", {"content": "good"}), note, seal)).long_term == "a"

    async def test_a_seal_without_an_opening_is_an_empty_memory(self) -> None:
        assert (await read(mark("memory/seal", 3))).is_empty

    async def test_a_stray_seal_after_a_zone_leaves_that_zone_the_newest(self) -> None:
        assert (await read(*zone(1, long_term("a")), long_term("stray"), mark("memory/seal", 2))).long_term == "a"

    async def test_an_opening_that_was_never_sealed_is_passed_over(self) -> None:
        unsealed = [mark("memory/open", 2), long_term("half")]
        assert (await read(*zone(1, long_term("a")), *unsealed)).long_term == "a"
        assert (await read(*unsealed, *zone(3, daily("2026-11-20", "b")))).long_term == ""

    async def test_an_event_that_bears_the_name_of_an_anchor_marks_nothing(self) -> None:
        opening, note, seal = zone(1, long_term("a"))
        assert (await read(opening, note, event("memory/seal"), long_term("b"), seal)).long_term == "b"

    async def test_several_notes_of_one_day_are_joined_and_the_last_long_term_text_counts(self) -> None:
        snapshot = await read(
            *zone(1, long_term("a"), daily("2026-11-20", "x"), daily("20261120", "y"), long_term("b"))
        )
        assert texts(snapshot) == ("b", [("2026-11-20", "x\ny")])

    async def test_erased_entries_are_left_out(self) -> None:
        blank = TapeEntry("event", {}, erased=True)
        opening, note, seal = zone(1, long_term("a"))
        assert (await read(opening, blank, note, seal)).long_term == "a"

    json = st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
        max_leaves=4,
    )
    names = st.sampled_from(["memory/open", "memory/seal", "memory.long_term", "memory.daily", "other"])
    payloads = st.fixed_dictionaries(
        {"name": names | json},
        optional={
            "data": json | st.fixed_dictionaries({}, optional={"content": json, "date": json, "updated_at": json}),
            "state": json | st.fixed_dictionaries({"version": json}),
        },
    )

    @given(st.lists(st.tuples(st.sampled_from(["anchor", "event", "message"]), payloads), max_size=12))
    def test_no_tape_makes_a_view_fail(self, drawn: list[tuple[str, Any]]) -> None:
        async def look() -> None:
            memory = await memory_of(*(TapeEntry(kind, payload) for kind, payload in drawn))
            await memory.read()
            await memory.versions()
            assert (await memory.get_context()).endswith("\n</memory>")
            assert await memory.export()

        asyncio.run(look())


class TestVersions:
    async def test_they_are_listed_newest_first_with_seal_and_date(self) -> None:
        dated = TapeEntry("anchor", {"name": "memory/seal", "state": {"version": 2}}, date="2026-11-21")
        listed = await (await memory_of(*zone(1, long_term("a")), mark("memory/open", 2), dated)).versions()
        assert [(one.version, one.seal_id, one.date[:10]) for one in listed] == [(2, 5, "2026-11-21"), (1, 3, "")]

    async def test_seals_that_name_no_version_are_left_out(self) -> None:
        assert [one.version for one in await (await memory_of(*zone(1), *zone("two"), *zone(3))).versions()] == [3, 1]

    async def test_of_two_zones_with_one_number_the_newest_counts(self) -> None:
        memory = await memory_of(*zone(2, long_term("a")), *zone(2, long_term("b")), *zone(3))
        await memory.restore(2)
        assert (await memory.read()).long_term == "b"

    async def test_a_version_that_is_not_there_is_refused_with_those_that_are(self) -> None:
        with pytest.raises(EntryNotFound, match="has the versions 1 to 2, 4 and 6"):
            await (await memory_of(*zone(1), *zone(2), *zone(4), *zone(6))).restore(7)


class TestRecall:
    memory = notes(
        ("2026-11-14", "Planned the trip"),
        ("2026-11-21", "Booked a flight\nAte cake"),
        long="Likes tea\nLikes cake",
    )

    async def test_without_a_query_it_gives_everything_since_a_day_newest_first(self) -> None:
        assert [text.splitlines()[0] for text in await recall(*self.memory)] == [
            "Long-term memory:",
            "Notes of 2026-11-21:",
            "Notes of 2026-11-14:",
        ]
        assert len([text for text in await recall(*self.memory, days=6) if text.startswith("Notes")]) == 1

    async def test_a_query_keeps_the_lines_that_contain_it(self) -> None:
        assert await recall(*self.memory, query=" CAKE ") == [
            "Long-term memory:\nLikes cake",
            "Notes of 2026-11-21:\nAte cake",
        ]

    @pytest.mark.parametrize(
        ("text", "query"), [("Straße", "STRASSE"), ("ｆｕｌｌ", "full"), ("東京タワー", "東京"), ("a👍b", "👍")]
    )
    async def test_a_query_is_compared_after_normalisation_in_any_script(self, text: str, query: str) -> None:
        assert await recall(*notes(long=f"x\n{text}"), query=query) == [f"Long-term memory:\n{text}"]

    async def test_a_query_over_several_lines_gives_the_whole_text(self) -> None:
        assert await recall(*notes(long="a\nb\nc"), query="a\nb") == ["Long-term memory:\na\nb\nc"]


class TestRecallFindsAsSearchDoes:
    memory = notes(
        ("2026-09-01", "Met Zoë at the café."),
        ("2026-11-20", "Rain.\nThe database migration went well."),
        long="Likes green tea.\nPrefers short answers.",
    )

    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("migration database", "The database migration went well."),
            ("databse migration", "The database migration went well."),
            ("MIGRATION", "The database migration went well."),
            ("cafe zoe", "Met Zoë at the café."),
            ("2026-11-20", "Rain.\nThe database migration went well."),
            ("migration 2026-11-20", "The database migration went well."),
            ("rain migration", "Rain.\nThe database migration went well."),
            ("tea green", "Likes green tea."),
        ],
    )
    async def test_words_in_any_order_misspelt_without_accents_and_dates(self, query: str, found: str) -> None:
        assert [text.partition("\n")[2] for text in await recall(*self.memory, query=query, days=365)] == [found]

    async def test_a_day_that_is_named_is_looked_at_however_old_it_is(self) -> None:
        assert (await recall(*self.memory, query="2026-09-01", days=0))[0] == (
            "Notes of 2026-09-01:\nMet Zoë at the café."
        )

    async def test_what_is_there_exactly_hides_what_is_only_alike(self) -> None:
        memory = notes(("2026-11-20", "datebase"), long="database")
        assert await recall(*memory, query="database", days=365) == ["Long-term memory:\ndatabase"]

    async def test_what_bears_on_the_words_is_found_where_one_is_missing(self) -> None:
        assert await recall(*self.memory, query="did the databases migrate?", days=365) == [
            "Notes of 2026-11-20:\nThe database migration went well."
        ]
        assert await recall(*self.memory, query="volcano", days=365) == []


class TestBlock:
    async def test_its_sections_come_in_order_with_recent_days_newest_first(self) -> None:
        memory = notes(
            ("2026-11-13", "too old"),
            ("2026-11-14", "a week ago"),
            ("2026-11-20", "yesterday"),
            ("2026-11-21", "today"),
            ("2026-11-22", "not yet"),
            long="Likes tea.",
        )
        head, _, body = (await block(*memory)).partition("\n\n")
        assert head.startswith("<memory>\n")
        assert all(name in head for name in ("`memory.save`", "`memory.daily`", "`memory.recall`"))
        assert body == (
            "## Long-term memory\nLikes tea.\n\n## Today's notes\ntoday\n\n## Notes of days to come\n### 2026-11-22\nnot yet\n\n"
            "## Recent notes\n"
            "### 2026-11-20\nyesterday\n\n### 2026-11-14\na week ago\n</memory>"
        )

    async def test_empty_sections_are_left_out_and_the_hints_stay(self) -> None:
        shown = await block()
        assert "##" not in shown
        assert "memory.save" in shown

    async def test_no_recent_days_show_today_only(self) -> None:
        shown = await block(*notes(("2026-11-20", "before"), ("2026-11-21", "now")), recent_days=0)
        assert "\nnow\n" in shown
        assert "before" not in shown

    async def test_it_stays_the_same_until_day_or_version_change(self) -> None:
        clock, one = SteppingClock(START), notes(("2026-11-21", "note"), long="x")
        memory = await memory_of(*one, clock=clock)
        first = await memory.get_context()
        assert await memory.get_context() == first
        clock.advance(timedelta(days=1))
        assert await memory.get_context() != first

    @pytest.mark.parametrize(
        "tag", ["</memory>", "</MEMORY>", "< / memory >", "<memory>", "</memory\n>", "＜/memory＞", "<\u200b/memory>"]
    )
    async def test_a_note_can_neither_end_nor_begin_the_block(self, tag: str) -> None:
        shown = await block(*notes(("2026-11-21", tag), ("2026-11-20", tag), long=f"a{tag}b"))
        assert shown.count("&lt;") == 3
        assert shown.casefold().count("<memory>") == shown.casefold().count("</memory>") == 1

    async def test_other_angle_brackets_stay_as_they_are(self) -> None:
        assert "list<int> & a < b" in await block(*notes(long="list<int> & a < b"))

    async def test_a_long_section_is_cut_at_a_line_and_says_so(self) -> None:
        shown = await block(*notes(long="first line\nsecond line"), limit=15)
        assert "first line\n[12 more characters are not shown here; `memory.recall` finds them]" in shown
        assert "second" not in shown

    async def test_todays_notes_keep_their_end(self) -> None:
        shown = await block(*notes(("2026-11-21", "first line\nsecond line")), limit=15)
        assert "them]\nsecond line\n</memory>" in shown
        assert "first" not in shown

    @pytest.mark.parametrize("limit", [0, 1, 5])
    async def test_a_line_longer_than_the_limit_is_cut_within(self, limit: int) -> None:
        shown = await block(*notes(("2026-11-21", "x" * 100), long="y" * 100), limit=limit)
        assert (shown.count("xx"), shown.count("yy")) == (limit // 2, limit // 2)
        assert shown.count(f"[{100 - limit} more") == 2

    async def test_a_hundred_thousand_brackets_are_no_trouble(self) -> None:
        assert len(await block(*notes(long="<" * 100_000 + "/memory>"), limit=200_000)) > 100_000


class TestMarkdown:
    async def test_it_holds_everything_as_it_is(self) -> None:
        page = await (
            await memory_of(*notes(("2026-11-20", "a"), ("2026-11-21", "</memory>"), long="Likes tea."))
        ).export()
        assert page == (
            "# Memory, version 3\n\n## Long-term memory\n\nLikes tea.\n\n## Notes\n\n"
            "### 2026-11-21\n\n</memory>\n\n### 2026-11-20\n\na\n"
        )

    async def test_an_empty_memory_says_so(self) -> None:
        assert "Nothing is remembered" in await (await memory_of()).export()


@pytest.mark.law("T8")
async def test_views_of_memory_write_nothing_and_answer_the_same_again() -> None:
    memory = await memory_of(*zone(1, long_term("a")), *zone(2, daily("2026-11-20", "b")))
    tape = await taped(*zone(1, long_term("a")), *zone(2, daily("2026-11-20", "b")))
    before = await tape.between_dates()
    for again in (MemoryZone(tape, now=SteppingClock(), zone=UTC) for _ in range(2)):
        for look in ("read", "versions", "get_context", "export"):
            assert str(await getattr(again, look)()) == str(await getattr(memory, look)())
    assert await tape.between_dates() == before
