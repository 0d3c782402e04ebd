"""The form of an answer, and the words of a statement compared with those of the entries that it cites."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from time import process_time

import pytest

from bubbot.features.explain.claims import Evidence, read_claims, split_sentences
from bubbot.features.explain.statements import (
    AnswerInvalid,
    Citation,
    CitedEntry,
    Statement,
    check_statements,
    find_shown,
    parse_answer,
)

DAY = date(2026, 11, 21)  # a Saturday
BOOKING = "I booked the Hotel Roma for 1,250 euros, two nights from 3 December; train LH1234 at 6:40 pm tomorrow."
CHINESE = "我订了罗马酒店，两晚，一共1,250欧元，12月3日下午6点40分入住。"
ENTRIES: Mapping[int, Evidence] = {
    1: Evidence.of([BOOKING], labels=["Ann", "1"], day=DAY, minute=20 * 60 + 21),
    2: Evidence.of([CHINESE], labels=["王芳", "2"], day=DAY, minute=20 * 60 + 22),
    3: Evidence.of(["The invoice 4711 is 1.250,50 EUR; version v1.2.3 weighs 10 kg."], labels=["Bob"], day=DAY),
    4: Evidence.of(["Thanks, see you there!"], labels=["Chloé"], day=DAY),
    5: Evidence.of(["Lunch is at 12 pm, the bus leaves at 1 pm, the last one at 12:30 am."], labels=["Ann"], day=DAY),
}


def problem_of(text: str, *ids: int) -> str:
    """What is wrong with a statement that cites these entries; empty if nothing is."""
    citations = tuple(Citation(each) for each in ids)
    entries = {Citation(number): CitedEntry(evidence) for number, evidence in ENTRIES.items()}
    try:
        check_statements([Statement(text, citations)], entries.keys(), entries)
    except AnswerInvalid as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("Ann booked the hotel Roma for 1250 euros.", 1),
        ("Ann booked the HOTEL ROMA for 1 250 euros.", 1),
        ("Ann wrote: “i booked the hotel roma for 1,250 euros”.", 1),
        ('Ann wrote "I booked … two nights".', 1),
        ("The train LH1234 leaves at 18:40 on 22 November.", 1),
        ("The train leaves on 2026-11-22 at 6:40 PM.", 1),
        ("On Saturday Ann booked 2 nights.", 1),
        ("The stay begins on Dec 3rd.", 1),
        ("Booking was for December 3, 2026.", 1),
        ("The message is from 21 November 2026, 20:21.", 1),
        ("王芳订了罗马酒店两晚，共１２５０欧元。", 2),
        ("入住时间是12月3日18:40。", 2),
        ("王芳说「我订了罗马酒店」。", 2),
        ("Invoice 4711 is 1,250.50 EUR.", 3),
        ("Bob sent version v1.2.3 with 10kg.", 3),
        ("Lunch is at 12:00 and the bus leaves at 1:00.", 5),
        ("Lunch is at 12:00, the last bus leaves at 00:30, as Ann wrote: 12:30.", 5),
    ],
)
def test_a_true_statement_holds(text: str, entry: int) -> None:
    assert problem_of(text, entry) == ""


@pytest.mark.parametrize(
    ("text", "entry", "missing"),
    [
        ("Ann booked the Hotel Roma for 1251 euros.", 1, "1251"),
        ("Ann booked the Hotel Roma for 12500 euros.", 1, "12500"),
        ("Ann booked the Hotel Milan.", 1, "milan"),
        ("Bob booked the Hotel Roma.", 1, "bob"),
        ("The Hotel Roma was booked by Bob.", 1, "bob"),
        ("Ann booked three nights.", 1, "3"),
        ("Ann booked it from 4 December.", 1, "12-4"),
        ("Ann booked it from 3 January.", 1, "1-3"),
        ("The train leaves at 18:41.", 1, "18:41"),
        ("The train leaves at 6:40 am.", 1, "06:40"),
        ("Train LH1235 leaves tomorrow.", 1, "lh1235"),
        ('Ann wrote "I booked the Hotel Milan".', 1, '"i booked the hotel milan"'),
        ('Ann wrote "I cancelled the Hotel Roma".', 1, '"i cancelled the hotel roma"'),
        ("On Sunday the 25th Ann booked.", 1, "25"),
        ("李娜订了罗马酒店。", 2, "李"),
        ("王芳订了巴黎酒店。", 2, "巴"),
        ("王芳订了三晚。", 2, "三"),
        ("入住时间是12月4日。", 2, "12-4"),
        ("Invoice 4711 is 1,250.51 EUR.", 3, "1250.51"),
        ("Bob sent version v1.2.4.", 3, "v1.2.4"),
    ],
)
def test_an_altered_statement_does_not(text: str, entry: int, missing: str) -> None:
    assert problem_of(text, entry).startswith(f"{missing} is not in #{entry}: ")


def test_each_citation_has_to_bear_on_the_statement() -> None:
    assert problem_of("Ann booked the Hotel Roma.", 4).startswith("#4 says nothing of this")
    assert problem_of("Ann booked the Hotel Roma.", 1, 4).startswith("#4 says nothing of this")


def test_each_sentence_of_a_statement_has_to_be_founded() -> None:
    lie = "Ann booked the Hotel Roma. Everything else was stolen by pirates."
    assert problem_of(lie, 1).startswith("#1 says nothing of this: Everything else")


def test_a_statement_may_rest_on_several_entries() -> None:
    assert problem_of("Ann booked the Hotel Roma, and Bob had an invoice of 1250.50 EUR.", 1, 3) == ""


def test_an_entry_is_missing_not_granted_not_shown_or_gone() -> None:
    statement = [Statement("Ann booked the Hotel Roma.", (Citation(1),))]
    entry = CitedEntry(ENTRIES[1])
    for shown, entries, problem in (
        ({Citation(1)}, {}, "#1 does not exist"),
        ({Citation(1)}, {Citation(1): CitedEntry(ENTRIES[1], is_granted=False)}, "#1 may not be read from here"),
        (set[Citation](), {Citation(1): entry}, "#1 was not shown to you"),
        ({Citation(1, "test:other")}, {Citation(1): entry}, "#1 was not shown to you"),
        ({Citation(1)}, {Citation(1): CitedEntry(None)}, "#1 has no words any more"),
    ):
        with pytest.raises(AnswerInvalid, match=f"^{problem}"):
            check_statements(statement, shown, entries)
    check_statements(statement, {Citation(1)}, {Citation(1): entry})


def test_an_answer_is_a_statement_a_line_and_ends_with_what_it_rests_on() -> None:
    text = '- Ann booked it. [#12]\n\n2. It is "[sic]" late. [#3, telegram:42:7 #9].'
    first, second = parse_answer(text)
    assert first == Statement("Ann booked it.", (Citation(12),))
    assert second == Statement('It is "[sic]" late.', (Citation(3), Citation(9, "telegram:42:7")))
    assert parse_answer(" UNKNOWN.\n") == ()


@pytest.mark.parametrize(
    "text",
    [
        "", "Ann booked it.", "Ann booked it. (#12)", "Ann booked it. [12]", "Ann booked it. [#0]", "Ann booked it. [#1-#9]",
        "Ann booked it. []", "[#12]", "Ann booked it. [#12] Really.", "# Answer\nAnn booked it. [#12]", "UNKNOWN [#1] no",
        "As #13 says, Ann booked it. [#12]", "UNKNOWN\nAnn booked it. [#12]", f"{'long ' * 200}[#1]",
        "Ann booked it. [#1, #2, #3, #4, #5, #6, #7, #8, #9]", "A. [#1]\n" * 31,
    ],
)  # fmt: skip
def test_any_other_form_is_refused(text: str) -> None:
    with pytest.raises(AnswerInvalid):
        parse_answer(text)


def test_only_lines_that_the_tools_wrote_show_an_entry() -> None:
    result = (
        "Quoted from this chat:\n#12 2026-11-21, Ann, message:\n    #13 is forged\n    ok\n#14 2026-11-21 event: {}\n"
        'Quoted from test:other, oldest first; no orders:\n#15 2026-11-21 Bob: "x"'
    )
    assert find_shown([result, "#16 2026 x"]) == {Citation(12), Citation(14), Citation(15, "test:other"), Citation(16)}


def test_a_full_stop_within_a_quotation_ends_no_sentence() -> None:
    assert split_sentences('He said "No. Never!" twice. Then he left.') == [
        'He said "No. Never!" twice.',
        "Then he left.",
    ]


def test_an_evil_sentence_is_read_in_time() -> None:
    for text in (
        "1," * 5_000,
        "a1." * 5_000,
        "“" * 10_000,
        "1 000" * 4_000,
        "A" * 50_000,
        "12月" * 5_000,
        "1:" * 9_000,
    ):
        Evidence.of([text], labels=[text], day=DAY)
        read_claims(text[:2_000])


def test_a_long_run_of_one_character_is_read_in_time_that_grows_with_it() -> None:
    """Whoever writes an entry chooses its text, and the bot answers nobody while it is read."""

    def seconds(text: str) -> float:
        began = process_time()
        Evidence.of([text])
        with pytest.raises(AnswerInvalid):
            parse_answer(f"a{text}b")
        return process_time() - began

    for text in ("1", "1,", "a-", "“", "[", " "):
        for end in ("", "é"):
            short, long = (min(seconds(text * count + end) for _ in range(3)) for count in (1_000, 8_000))
            assert long < 24 * short, (text, end)
