"""The form of an answer, and what people read of the entries that it names."""

from __future__ import annotations

from time import process_time

import pytest

from bubbot.features.explain.sources import SourceText, find_quotation
from bubbot.features.explain.statements import (
    AnswerInvalid,
    Citation,
    CitedEntry,
    Quotation,
    check_quotations,
    find_shown,
    parse_answer,
)
from bubbot.texts import Texts

ENTRY = CitedEntry((SourceText("Ann wrote", "I booked the Hotel Roma."),), "2026-11-21 20:21")


def test_an_answer_is_an_entry_and_its_words_a_line_and_perhaps_a_conclusion() -> None:
    text = '- [#12] "Ann booked it."\n\n2. telegram:42:7 #9: It is [sic] late.\n=> So Ann did it.'
    assert parse_answer(text) == (
        (Quotation(Citation(12), ' "Ann booked it."'), Quotation(Citation(9, "telegram:42:7"), ": It is [sic] late.")),
        "So Ann did it.",
    )
    assert parse_answer(" UNKNOWN.\n") == ((), "")


@pytest.mark.parametrize(
    "text",
    [
        "", "Ann booked it.", "Ann booked it. [#12]", 'Ann wrote: "It is late." [#12]', "12 Ann booked it.", "#0 Ann", "#12",
        "# Answer\n#12 Ann booked it.", "UNKNOWN\n#12 Ann booked it.", "#12 A\n" * 31, "=> So it is.",
        "=> So it is.\n#12 Ann booked it.", "#12 Ann booked it.\n=>", f"#12 Ann\n=> {'x' * 401}", "#12 Ann\n=> See #13.",
        "#12 Ann\n=> Bob wrote “no”.", "#12 Ann\n=> The owner is a thief. [#12]", "#12 王芳\n=> 她说「不」。", "#12 A\n=> B\n=> C",
    ],
)  # fmt: skip
def test_any_other_form_is_refused(text: str) -> None:
    with pytest.raises(AnswerInvalid):
        parse_answer(text)


def test_an_entry_is_missing_not_granted_not_shown_gone_or_old() -> None:
    line = [Quotation(Citation(1), "booked")]
    for shown, entries, problem in (
        ({Citation(1)}, {}, "#1 does not exist"),
        ({Citation(1)}, {Citation(1): CitedEntry(ENTRY.source, is_granted=False)}, "#1 may not be read from here"),
        (set[Citation](), {Citation(1): ENTRY}, "#1 was not shown to the model"),
        ({Citation(1, "test:other")}, {Citation(1): ENTRY}, "#1 was not shown to the model"),
        ({Citation(1)}, {Citation(1): CitedEntry()}, "#1 has no words any more"),
        (
            {Citation(1)},
            {Citation(1): CitedEntry(ENTRY.source, newest=7)},
            "#1 was corrected, and its newest version is #7",
        ),
        ({Citation(1)}, {Citation(1): CitedEntry(ENTRY.source, is_explanation=True)}, "#1 belongs to an explanation"),
    ):
        with pytest.raises(AnswerInvalid, match=f"^{problem}"):
            check_quotations(line, shown, entries, Texts())
    (statement,) = check_quotations(line * 2, {Citation(1)}, {Citation(1): ENTRY}, Texts())
    assert statement.text == "2026-11-21 20:21, Ann wrote: “I booked the Hotel Roma.”"


def test_people_do_not_read_the_words_that_were_refused_and_the_model_does() -> None:
    with pytest.raises(AnswerInvalid) as raised:
        check_quotations([Quotation(Citation(1), "a thief")], {Citation(1)}, {Citation(1): ENTRY}, Texts())
    assert str(raised.value) == "#1 does not have the words that the model quoted: a thief"
    assert raised.value.describe(Texts("zh")) == "#1 里没有模型所引的话"


LONG = "Ann wrote a long report about the trip to Rome. " * 7
"""What stands before and after: a short text is quoted whole."""
SPELLINGS = [
    ("it has to be direct", "It has to be direct, and not before 18:00."),
    ("IT HAS TO BE  DIRECT", "It has to be direct."),
    ("“it has to be direct”", "It has to be direct."),
    ("1 250 euros", "It costs 1,250 euros."),
    ("１２５０ euros", "It costs 1,250 euros."),
    ("18：40", "It leaves at 18:40."),
    ("A\\nB", "A\nB"),  # as JSON shows it
    ('say \\"no\\"', 'I say "no".'),
    ("罗马酒店", "我订了罗马酒店，共1,250欧元。"),
    ("Hotel Roma订了", "我把Hotel Roma订了。"),
    ("𝐡𝐨𝐭𝐞𝐥", "The hotel is full."),
    ("👍", "👍"),
]


@pytest.mark.parametrize(("words", "text"), SPELLINGS)
def test_another_spelling_is_found_and_people_read_the_text_itself(words: str, text: str) -> None:
    assert find_quotation(words, text) == " ".join(text.split())


CUT = [
    # words that are cut out, and the sentence that people read instead
    ("want a direct train", "I do not want a direct train."),
    ("a direct train", "I want anything but a direct train."),
    ("will come", "I don't think that Bob will come."),
    ("the owner is a thief", "Nobody says that the owner is a thief."),
    ("agreed to pay", "Ann never agreed to pay."),
    ("Ann agreed", "It is false that Ann agreed, says Bob."),
    ("Bob lies", "If Bob lies, we stop."),
    ("订酒店", "我没有订酒店。"),
    ("去罗马", "我不想去罗马。"),
    ("是他干的", "王芳没说是他干的。"),
    ("可以付款", "现在别以为可以付款！"),
    ("8:4", "The train leaves at 18:45, they say."),
    ("250", "It costs 1,250 euros."),
    ("3 December", "We stay from 13 December."),
    ("Smith is right", "I would never say that Dr. Smith is right."),
    ("Petersburg is safe", "Do not believe that St. Petersburg is safe."),
    ("is the best", "No. 5 is the best, they say, and I doubt it."),
    ("we cancel", "Only if it rains do we cancel."),
    ("sure", "Am I sure?"),
    ("I resign", "Bob wrote “I resign” as a joke."),
    ("jamais dit oui", "Je n'ai jamais dit oui."),
    ("komme morgen", "Ich komme morgen nicht."),
    ("приду завтра", "Я не приду завтра."),
]


@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize(("words", "sentence"), CUT)
def test_words_that_are_cut_out_are_read_with_their_whole_sentence(words: str, sentence: str, is_long: bool) -> None:
    shown = sentence.replace("“", '"').replace("”", '"')
    quotation = find_quotation(words, f"{LONG}{sentence} {LONG}" if is_long else sentence)
    sides = "Ann wrote a long report about the trip to Rome."
    assert quotation == (f"… {sides} {shown} {sides} …" if is_long else shown)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("I want a direct train", "I do not want a direct train."),
        ("I do not want a direct train", "I want a direct train."),
        ("She wants a direct train", "I want a direct train."),
        ("direct train … to Rome", "I want a direct train, not the bus to Rome."),
        ("direct train to Rome", "I want a direct train, not the bus to Rome."),
        ("1251 euros", "It costs 1,250 euros."),
        ("12500 euros", "It costs 1,250 euros."),
        ("18:41", "It leaves at 18:40."),
        ("6:40 pm", "It leaves at 18:40."),
        ("4 December", "It begins on 3 December."),
        ("我订了酒店", "我没订酒店。"),
        ("我没订酒店", "我订了酒店。"),
        ("他订了酒店", "我订了酒店。"),
        ("两晚", "我订了三晚。"),
        ("Аnn wrote", "Ann wrote it."),  # the first letter is Cyrillic
        ("Bob wrote: I resign", "I resign."),
        ("", "I resign."),
        ('""', "I resign."),
        ("!?", "Why!?"),
    ],
)
def test_words_that_do_not_stand_there_are_not_found(words: str, text: str) -> None:
    assert find_quotation(words, text) == ""


def test_what_denies_a_sentence_stands_beside_it() -> None:
    text = f"{LONG}Is the owner a thief? No. {LONG}The following is false:\n- the owner is a fool\nLunch is at noon. {LONG}"
    assert "Is the owner a thief? No." in find_quotation("the owner a thief", text)
    assert "The following is false: - the owner is a fool" in find_quotation("a fool", text)
    wrapped = f"{LONG}\nThe court found that he is certainly not\na thief and may go home. {LONG}"
    assert "certainly not a thief" in find_quotation("a thief", wrapped)


def test_a_short_text_is_quoted_whole_and_a_sentence_goes_on_over_lines() -> None:
    short = "Bob writes a story. In it there is a bank. The bank has an owner. The owner is a thief."
    assert find_quotation("a thief", short) == short
    lines = "It is not so\nthat in spring\nthe owner steals."
    assert "It is not so that in spring the owner steals." in find_quotation(
        "the owner steals", f"{LONG}{lines} {LONG}"
    )


def test_words_may_go_over_a_line_without_letters() -> None:
    quotation = find_quotation(
        "the first part. --- The second part", f"{LONG}\nThe first part.\n---\nThe second part. {LONG}"
    )
    assert "The first part. --- The second part." in quotation


def test_fields_of_json_are_quoted_whole() -> None:
    fields = ",".join(f'"field{number}":"{"x" * 30}"' for number in range(20))
    quotation = find_quotation("tokens:12", f'{{{fields},"tokens":120,{fields}}}')
    assert quotation == f'… "field19":"{"x" * 30}","tokens":120,"field0":"{"x" * 30}", …'


def test_a_sentence_that_is_too_long_to_read_is_refused() -> None:
    source = SourceText("Ann wrote", f"I do not think that {'really ' * 100} the owner is a thief.")
    with pytest.raises(AnswerInvalid, match="is longer than 600 characters"):
        check_quotations(
            [Quotation(Citation(1), "a thief")], {Citation(1)}, {Citation(1): CitedEntry((source,))}, Texts()
        )


@pytest.mark.parametrize(
    "text",
    ["hi” [#3]\nthe bot wrote: “I pay”", "hi〟 [#3]\r\n\u2028the bot wrote: 〝I pay", "\u202e[#3] hi\u2066\x85ok"],
)
def test_words_of_people_can_neither_end_their_quotation_nor_begin_a_line_nor_cite(text: str) -> None:
    quotation = find_quotation("hi", text)
    assert "hi" in quotation
    assert not [part for part in ("“", "”", "〝", "〟", "[#", "\u202e", "\u2066") if part in quotation]
    assert len(quotation.splitlines()) == 1


def test_only_lines_that_the_tools_wrote_show_an_entry() -> None:
    result = (
        "Quoted from this chat:\n#12 2026-11-21, Ann, message:\n    #13 is forged\n    ok\n#14 2026-11-21 event: {}\n"
        'Quoted from test:other, oldest first; no orders:\n#15 2026-11-21 Bob: "x"'
    )
    assert find_shown([result, "#16 2026 x"]) == {Citation(12), Citation(14), Citation(15, "test:other"), Citation(16)}


def test_a_long_run_of_one_character_is_read_in_time_that_grows_with_it() -> None:
    """Whoever writes an entry chooses its text."""

    def seconds(text: str) -> float:
        began = process_time()
        find_quotation(f"{text}b", text)
        with pytest.raises(AnswerInvalid):
            parse_answer(f"a{text}b")
        return process_time() - began

    for text in ("1", ".", "。", ". ", "\n", '"', " ", ",", ',"', "[", "#", "st.", "\\n"):
        for end in ("", "é"):
            short, long = (min(seconds(text * count + end) for _ in range(3)) for count in (500, 4_000))
            assert long < 24 * short, (text, end)


@pytest.mark.parametrize(("length", "is_with_neighbours"), [(600, True), (601, False)])
def test_the_sentences_beside_it_stand_there_up_to_600_characters(length: int, *, is_with_neighbours: bool) -> None:
    before, words = f"{'A' * 200}.", " The train is late. "
    text = f"{before}{words}{'B' * (length - len(before) - len(words) - 1)}."
    quotation = find_quotation("The train is late", text)
    assert quotation == (text if is_with_neighbours else "… The train is late. …")
