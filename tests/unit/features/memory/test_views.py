"""Reading memory: zones as they are, zones as they come from elsewhere, versions, recall, and the prompt's block."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbot.features.memory.block import build_memory_block
from bubbot.features.memory.views import (
    DailyNote,
    MemorySnapshot,
    MemoryVersion,
    MemoryVersionsView,
    MemoryVersionView,
    MemoryView,
    format_memory_page,
    parse_day,
    recall,
)
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import EMPTY_OBJECT, JsonObject, Kind, TapeEntry, event, message
from bubbot.tape.query import evaluate
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, SteppingClock

TODAY = date(2026, 11, 21)


def mark(name: str, version: object, *, window: bool = False) -> TapeEntry:
    return anchor(name, {"version": version}, window=window)


def long_term(content: object) -> TapeEntry:
    return event("memory.long_term", {"content": content, "updated_at": "2026-11-20T10:00:00+00:00"})


def daily(day: object, content: object) -> TapeEntry:
    return event("memory.daily", {"date": day, "content": content, "updated_at": "2026-11-20T10:00:00+00:00"})


def zone(version: object, *notes: TapeEntry, window: bool = False) -> list[TapeEntry]:
    return [mark("memory/open", version, window=window), *notes, mark("memory/seal", version, window=window)]


def found(view: Any, entries: list[TapeEntry]) -> Any:
    stored = [entry.with_id(place) for place, entry in enumerate(entries, 1)]
    return [evaluate(stored, query) for query in view.queries("tape")]


def read(*entries: TapeEntry) -> MemorySnapshot:
    view = MemoryView()
    return view.fold(found(view, list(entries)))


def texts(snapshot: MemorySnapshot) -> tuple[str, list[tuple[str, str]]]:
    return snapshot.long_term, [(note.date, note.content) for note in snapshot.dailies]


def notes(*days: tuple[str, str], long_term: str = "", version: int = 3) -> MemorySnapshot:
    return MemorySnapshot(version, long_term, "", tuple(DailyNote(day, content) for day, content in days), 9)


class TestNewestZone:
    def test_a_tape_without_a_zone_has_an_empty_memory(self) -> None:
        assert read(message("user", "hello")) == MemorySnapshot()
        assert read().is_empty

    def test_a_zone_is_read_whole_with_the_days_in_order(self) -> None:
        snapshot = read(*zone(4, long_term("Likes tea."), daily("2026-11-20", "b"), daily("2026-11-19", "a")))
        when = "2026-11-20T10:00:00+00:00"
        assert snapshot == MemorySnapshot(
            4, "Likes tea.", when, (DailyNote("2026-11-19", "a", when), DailyNote("2026-11-20", "b", when)), 5
        )

    def test_the_newest_zone_replaces_the_older_one_entirely(self) -> None:
        newest = read(*zone(1, long_term("old"), daily("2026-11-01", "old")), *zone(2, long_term("new")))
        assert (newest.version, texts(newest)) == (2, ("new", []))

    def test_an_imported_zone_that_says_nothing_of_the_window_is_read_like_any_other(self) -> None:
        assert read(*zone(2, long_term("from elsewhere"), window=True)).long_term == "from elsewhere"

    def test_messages_between_the_entries_of_an_imported_zone_do_not_disturb(self) -> None:
        opening, note, seal = zone(1, long_term("a"))
        assert read(opening, message("user", "x"), note, message("user", "y"), seal).long_term == "a"

    def test_it_asks_one_query_that_an_index_of_names_can_answer(self) -> None:
        (query,) = MemoryView().queries("tape")
        assert (query.kinds, query.missing, query.text) == (("anchor", "event"), "empty", "")
        assert not MemoryView().heavy


class TestWhatCannotBeRead:
    @pytest.mark.parametrize("content", [None, 7, True, [], {"a": 1}, ["text"]])
    def test_content_that_is_not_text_is_left_out_and_the_rest_is_read(self, content: object) -> None:
        snapshot = read(*zone(1, long_term(content), daily("2026-11-20", content), daily("2026-11-19", "kept")))
        assert texts(snapshot) == ("", [("2026-11-19", "kept")])

    @pytest.mark.parametrize("day", [None, 20261120, "", "yesterday", "2026-13-01", "2026-02-30", "2026-11-20T10:00"])
    def test_a_note_of_no_day_is_left_out(self, day: object) -> None:
        assert read(*zone(1, daily(day, "lost"), long_term("kept"))) == read(*zone(1, event("x"), long_term("kept")))

    @pytest.mark.parametrize("version", [None, "2", 2.0, True, 0, -1, [], {"version": 2}])
    def test_a_version_that_is_no_number_is_zero_and_the_content_is_read(self, version: object) -> None:
        snapshot = read(*zone(version, long_term("kept")))
        assert (snapshot.version, snapshot.long_term, snapshot.seal_id) == (0, "kept", 3)

    def test_the_opening_names_the_version_where_the_seal_does_not(self) -> None:
        assert read(mark("memory/open", 5), mark("memory/seal", None)).version == 5

    @pytest.mark.parametrize("field", ["data", "state"])
    @pytest.mark.parametrize("value", [None, "text", 3, []])
    def test_data_or_state_of_another_form_is_no_failure(self, field: str, value: object) -> None:
        opening, note, seal = zone(1, long_term("a"))
        odd = TapeEntry(Kind.EVENT, {"name": "memory.long_term", field: value})
        bare = TapeEntry(Kind.ANCHOR, {"name": "memory/seal", field: value})
        assert read(opening, note, odd, seal).long_term == "a"
        assert read(opening, note, bare).long_term == "a"

    def test_unknown_events_inside_a_zone_are_passed_over(self) -> None:
        opening, note, seal = zone(1, long_term("a"))
        assert read(opening, event("memory.mood", {"content": "good"}), note, seal).long_term == "a"

    def test_a_seal_without_an_opening_is_an_empty_memory(self) -> None:
        assert read(mark("memory/seal", 3)) == MemorySnapshot()

    def test_a_stray_seal_after_a_zone_leaves_that_zone_the_newest(self) -> None:
        assert read(*zone(1, long_term("a")), long_term("stray"), mark("memory/seal", 2)).long_term == "a"

    def test_an_opening_that_was_never_sealed_is_passed_over(self) -> None:
        unsealed = [mark("memory/open", 2), long_term("half")]
        assert read(*zone(1, long_term("a")), *unsealed).long_term == "a"
        assert read(*unsealed, *zone(3, daily("2026-11-20", "b"))).long_term == ""

    def test_an_event_that_bears_the_name_of_an_anchor_marks_nothing(self) -> None:
        opening, note, seal = zone(1, long_term("a"))
        assert read(opening, note, event("memory/seal"), long_term("b"), seal).long_term == "b"

    def test_several_notes_of_one_day_are_joined_and_the_last_long_term_text_counts(self) -> None:
        snapshot = read(*zone(1, long_term("a"), daily("2026-11-20", "x"), daily("20261120", "y"), long_term("b")))
        assert texts(snapshot) == ("b", [("2026-11-20", "x\ny")])

    def test_erased_entries_are_left_out(self) -> None:
        blank = TapeEntry(Kind.EVENT, EMPTY_OBJECT, erased=True)
        opening, note, seal = zone(1, long_term("a"))
        assert read(opening, blank, note, seal).long_term == "a"

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
    def test_no_tape_makes_a_view_fail(self, drawn: list[tuple[str, JsonObject]]) -> None:
        entries = [TapeEntry(kind, payload) for kind, payload in drawn]
        snapshot = read(*entries)
        for view in (MemoryVersionsView(), MemoryVersionView(1)):
            view.fold(found(view, entries))
        assert build_memory_block(snapshot, today=TODAY).endswith("\n</memory>")
        assert format_memory_page(snapshot)


class TestVersions:
    def test_they_are_listed_newest_first_with_seal_and_date(self) -> None:
        view = MemoryVersionsView()
        dated = TapeEntry(Kind.ANCHOR, {"name": "memory/seal", "state": {"version": 2}}, date="2026-11-21")
        listed = view.fold(found(view, [*zone(1, long_term("a")), mark("memory/open", 2), dated]))
        assert listed == (MemoryVersion(2, 5, "2026-11-21"), MemoryVersion(1, 3, ""))

    def test_seals_that_name_no_version_are_left_out(self) -> None:
        view = MemoryVersionsView()
        assert [one.version for one in view.fold(found(view, [*zone(1), *zone("two"), *zone(3)]))] == [3, 1]

    def test_one_version_is_read_by_its_number(self) -> None:
        view = MemoryVersionView(2)
        entries = [*zone(1, long_term("a")), *zone(2, long_term("b")), *zone(3, long_term("c"))]
        snapshot = view.fold(found(view, entries))
        assert snapshot is not None
        assert (snapshot.version, snapshot.long_term, snapshot.seal_id) == (2, "b", 6)

    def test_of_two_zones_with_one_number_the_newest_counts(self) -> None:
        view = MemoryVersionView(2)
        snapshot = view.fold(found(view, [*zone(2, long_term("a")), *zone(2, long_term("b")), *zone(3)]))
        assert snapshot is not None
        assert snapshot.long_term == "b"

    def test_a_version_that_is_not_there_is_none(self) -> None:
        view = MemoryVersionView(7)
        assert view.fold(found(view, zone(1))) is None


class TestRecall:
    memory = notes(
        ("2026-11-14", "Planned the trip"),
        ("2026-11-21", "Booked a flight\nAte cake"),
        long_term="Likes tea\nLikes cake",
    )

    def test_without_a_query_it_gives_everything_since_a_day_newest_first(self) -> None:
        assert [place for place, _ in recall(self.memory, since=date(2026, 11, 14))] == [
            "",
            "2026-11-21",
            "2026-11-14",
        ]
        assert len(recall(self.memory, since=date(2026, 11, 15))) == 2

    def test_a_query_keeps_the_lines_that_contain_it(self) -> None:
        assert recall(self.memory, since=date.min, query=" CAKE ") == [
            ("", "Likes cake"),
            ("2026-11-21", "Ate cake"),
        ]

    @pytest.mark.parametrize(
        ("text", "query"), [("Straße", "STRASSE"), ("ｆｕｌｌ", "full"), ("東京タワー", "東京"), ("a👍b", "👍")]
    )
    def test_a_query_is_compared_after_normalisation_in_any_script(self, text: str, query: str) -> None:
        assert recall(notes(long_term=f"x\n{text}"), since=TODAY, query=query) == [("", text)]

    def test_a_query_over_several_lines_gives_the_whole_text(self) -> None:
        assert recall(notes(long_term="a\nb\nc"), since=TODAY, query="a\nb") == [("", "a\nb\nc")]


class TestRecallFindsAsSearchDoes:
    memory = notes(
        ("2026-09-01", "Met Zoë at the café."),
        ("2026-11-20", "Rain.\nThe database migration went well."),
        long_term="Likes green tea.\nPrefers short answers.",
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
    def test_words_in_any_order_misspelt_without_accents_and_dates(self, query: str, found: str) -> None:
        assert [text for _, text in recall(self.memory, since=date.min, query=query)] == [found]

    def test_a_day_that_is_named_is_looked_at_however_old_it_is(self) -> None:
        assert recall(self.memory, since=TODAY, query="2026-09-01") == [("2026-09-01", "Met Zoë at the café.")]

    def test_what_is_there_exactly_hides_what_is_only_alike(self) -> None:
        memory = notes(("2026-11-20", "datebase"), long_term="database")
        assert recall(memory, since=date.min, query="database") == [("", "database")]

    def test_nothing_is_found_where_a_word_is_missing(self) -> None:
        assert recall(self.memory, since=date.min, query="database volcano") == []


class TestBlock:
    def test_its_sections_come_in_order_with_recent_days_newest_first(self) -> None:
        snapshot = notes(
            ("2026-11-13", "too old"),
            ("2026-11-14", "a week ago"),
            ("2026-11-20", "yesterday"),
            ("2026-11-21", "today"),
            ("2026-11-22", "not yet"),
            long_term="Likes tea.",
        )
        head, _, body = build_memory_block(snapshot, today=TODAY).partition("\n\n")
        assert head.startswith("<memory>\n")
        assert all(name in head for name in ("`memory.save`", "`memory.daily`", "`memory.recall`"))
        assert body == (
            "## Long-term memory\nLikes tea.\n\n## Today's notes\ntoday\n\n## Notes of days to come\n### 2026-11-22\nnot yet\n\n"
            "## Recent notes\n"
            "### 2026-11-20\nyesterday\n\n### 2026-11-14\na week ago\n</memory>"
        )

    def test_empty_sections_are_left_out_and_the_hints_stay(self) -> None:
        block = build_memory_block(MemorySnapshot(), today=TODAY)
        assert "##" not in block
        assert "memory.save" in block

    def test_no_recent_days_show_today_only(self) -> None:
        block = build_memory_block(notes(("2026-11-20", "before"), ("2026-11-21", "now")), today=TODAY, recent_days=0)
        assert "\nnow\n" in block
        assert "before" not in block

    def test_it_stays_the_same_until_day_or_version_change(self) -> None:
        snapshot = notes(("2026-11-21", "note"), long_term="x")
        assert build_memory_block(snapshot, today=TODAY) == build_memory_block(snapshot, today=date(2026, 11, 21))
        assert build_memory_block(snapshot, today=TODAY) != build_memory_block(
            snapshot, today=TODAY + timedelta(days=1)
        )

    @pytest.mark.parametrize(
        "tag", ["</memory>", "</MEMORY>", "< / memory >", "<memory>", "</memory\n>", "＜/memory＞", "<\u200b/memory>"]
    )
    def test_a_note_can_neither_end_nor_begin_the_block(self, tag: str) -> None:
        block = build_memory_block(notes(("2026-11-21", tag), ("2026-11-20", tag), long_term=f"a{tag}b"), today=TODAY)
        assert block.count("&lt;") == 3
        assert block.casefold().count("<memory>") == block.casefold().count("</memory>") == 1

    def test_other_angle_brackets_stay_as_they_are(self) -> None:
        assert "list<int> & a < b" in build_memory_block(notes(long_term="list<int> & a < b"), today=TODAY)

    def test_a_long_section_is_cut_at_a_line_and_says_so(self) -> None:
        block = build_memory_block(notes(long_term="first line\nsecond line"), today=TODAY, limit=15)
        assert "first line\n[12 more characters are not shown here; `memory.recall` finds them]" in block
        assert "second" not in block

    def test_todays_notes_keep_their_end(self) -> None:
        block = build_memory_block(notes(("2026-11-21", "first line\nsecond line")), today=TODAY, limit=15)
        assert "them]\nsecond line\n</memory>" in block
        assert "first" not in block

    @pytest.mark.parametrize("limit", [0, 1, 5])
    def test_a_line_longer_than_the_limit_is_cut_within(self, limit: int) -> None:
        block = build_memory_block(notes(("2026-11-21", "x" * 100), long_term="y" * 100), today=TODAY, limit=limit)
        assert (block.count("xx"), block.count("yy")) == (limit // 2, limit // 2)
        assert block.count(f"[{100 - limit} more") == 2

    def test_a_hundred_thousand_brackets_are_no_trouble(self) -> None:
        assert (
            len(build_memory_block(notes(long_term="<" * 100_000 + "/memory>"), today=TODAY, limit=200_000)) > 100_000
        )


class TestMarkdown:
    def test_it_holds_everything_as_it_is(self) -> None:
        page = format_memory_page(notes(("2026-11-20", "a"), ("2026-11-21", "</memory>"), long_term="Likes tea."))
        assert page == (
            "# Memory, version 3\n\n## Long-term memory\n\nLikes tea.\n\n## Notes\n\n"
            "### 2026-11-21\n\n</memory>\n\n### 2026-11-20\n\na\n"
        )

    def test_an_empty_memory_says_so(self) -> None:
        assert "Nothing is remembered" in format_memory_page(MemorySnapshot())


@pytest.mark.law("T8")
async def test_views_of_memory_write_nothing_and_answer_the_same_again(
    memory_store: InMemoryStore, tape: TapeService
) -> None:
    await tape.append([*zone(1, long_term("a")), *zone(2, daily("2026-11-20", "b"))])
    before = await memory_store.tapes(), await tape.between_dates()
    for view in (MemoryView(), MemoryVersionsView(), MemoryVersionView(1)):
        assert await tape.read(view) == await tape.read(view)
    again = TapeService(memory_store, "tape", now=SteppingClock(), new_id=CountingIds())
    assert await again.read(MemoryView()) == await tape.read(MemoryView())
    assert (await memory_store.tapes(), await tape.between_dates()) == before


@pytest.mark.parametrize(
    ("text", "day"), [("2026-11-21", "2026-11-21"), ("20261121", "2026-11-21"), ("21.11.2026", None)]
)
def test_a_date_is_read_in_the_forms_of_iso_8601(text: str, day: str | None) -> None:
    assert parse_day(text) == day
