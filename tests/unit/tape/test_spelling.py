"""Other spellings: the filter for one text at a time agrees with the comparison of many."""

from __future__ import annotations

import random

import pytest

from bubbot.tape.spelling import WordFilter, find_alike, find_misspelt, share_room
from bubbot.tape.words import fold_text
from tests.sentences import sentences


@pytest.mark.parametrize(
    "query", ["databse", "retrun valeu", "the", "x1", "\u6570\u5267\u5e93\u8fc1\u79fb", "caf\u00e9 ole", "", "!?"]
)
def test_a_filter_passes_the_texts_that_are_found(query: str) -> None:
    texts = [fold_text(text) for text in random.Random(5).sample(sentences(), 300)]
    texts += ["the database", "\u6570\u636e\u5e93\u8fc1\u79fb", "cafe ol\u00e9", "x1 x2", ""]
    spelling = WordFilter(query, find_alike)
    found = find_misspelt(query, dict(enumerate(texts)))
    assert [number for number, text in enumerate(texts) if spelling.matches([text])] == sorted(found)


@pytest.mark.parametrize(
    ("levels", "room", "chosen"),
    [
        (["aaa", "bbb"], 5, "aaabb"),
        (["a" * 20, "b" * 9], 20, "a" * 20),
        (["a" * 21, "b" * 9], 20, "a" * 16 + "b" * 4),
        (["a" * 21, "b" * 9, "c" * 9], 40, "a" * 21 + "b" * 9 + "c" * 9),
        (["a" * 60, "b" * 60, "c" * 60], 50, "a" * 40 + "b" * 8 + "c" * 2),
        (["a" * 60, "b"], 20, "a" * 19 + "b"),
        (["a" * 60], 20, "a" * 20),
        ([], 20, ""),
        (["a"], 0, ""),
    ],
)
def test_the_closest_are_shown_all_if_they_fit_and_else_leave_some_room(
    levels: list[str], room: int, chosen: str
) -> None:
    assert "".join(share_room(levels, room)) == chosen


@pytest.mark.parametrize(
    ("typed", "meant", "is_found"),
    [
        ("mandrxline", "mandoline", True),
        ("mdolin", "mandolin", True),
        ("mandxlim", "mandolin", True),
        ("bandolxn", "bandoln", True),
        ("brandolxn", "bandoln", False),
        ("bundolx", "bandoln", False),
        ("bantoln", "bandoln", True),
    ],
)
def test_two_mistakes_are_for_words_that_were_meant_with_eight_letters(typed: str, meant: str, is_found: bool) -> None:
    assert (meant in find_alike(typed, [meant])) is is_found
