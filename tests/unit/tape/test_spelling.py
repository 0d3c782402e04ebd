"""Other spellings: the filter for one text at a time agrees with the comparison of many."""

from __future__ import annotations

import random

import pytest

from bubbot.tape.query import fold_text
from bubbot.tape.spelling import SpellingFilter, find_misspelt
from tests.sentences import sentences


@pytest.mark.parametrize(
    "query", ["databse", "retrun valeu", "the", "x1", "\u6570\u5267\u5e93\u8fc1\u79fb", "caf\u00e9 ole", "", "!?"]
)
def test_a_filter_passes_the_texts_that_are_found(query: str) -> None:
    texts = [fold_text(text) for text in random.Random(5).sample(sentences(), 300)]
    texts += ["the database", "\u6570\u636e\u5e93\u8fc1\u79fb", "cafe ol\u00e9", "x1 x2", ""]
    spelling = SpellingFilter(query)
    found = find_misspelt(query, dict(enumerate(texts)))
    assert [number for number, text in enumerate(texts) if spelling.matches(text)] == sorted(found)
