"""Words of a person are found in other texts wherever they stand."""

from __future__ import annotations

import pytest

from bubbot.features.people.words import WordIndex
from bubbot.ports.forgetting import ForgottenPerson

LINE = "the recipe of my aunt needs three eggs, and salt from the sea"


def index_of(*texts: str) -> WordIndex:
    index = WordIndex()
    index.add(texts)
    return index


@pytest.mark.parametrize("before", range(12))
@pytest.mark.parametrize("part", [LINE, LINE[:32], LINE[32:]])
def test_a_line_and_each_piece_of_it_are_found_at_every_place(before: int, part: str) -> None:
    assert index_of(LINE).is_in("x" * before + part + "y" * before)


@pytest.mark.parametrize("text", ["", "the recipe", LINE[:31], LINE[1:33], "of my aunt needs", LINE.upper()])
def test_less_than_a_piece_and_other_words_are_not(text: str) -> None:
    assert not index_of(LINE, "yes").is_in(text)


def test_the_shortest_line_counts_and_a_shorter_one_does_not() -> None:
    assert index_of("twelve chars").is_in("(twelve chars)")
    assert not index_of("eleven char").is_in("(eleven char)")


@pytest.mark.parametrize(
    ("text", "is_identified", "is_named"),
    [
        ("telegram:4242", True, False),
        ("xtelegram:4242 telegram:42421", False, False),
        ("by 123456789.", True, False),
        ("1234567890", False, False),
        ("discord:777:9", True, False),
        ("ask ÖZGE", False, True),
        ("ask özgeler", False, False),
        ("Is ANN XO there?", False, True),
        ("Joann Xo", False, False),
        ("ask Al", False, False),
    ],
)
def test_ids_and_names_are_found_as_whole_words(text: str, is_identified: bool, is_named: bool) -> None:
    person = ForgottenPerson(
        (("telegram", "4242"), ("discord", "123456789")), ("discord:777",), ("Ann Xo", "Özge", "Al")
    )
    assert (person.is_identified_in(text), person.is_named_in(text)) == (is_identified, is_named)


def test_somebody_without_a_name_is_named_nowhere() -> None:
    assert not ForgottenPerson((("telegram", "4242"),)).is_named_in("anything, Özge")
