"""What bears on a question: by rare words, whatever their endings, and by who said it."""

from __future__ import annotations

import pytest

from bubbot.tape.entry import TapeEntry, event, message
from bubbot.tape.query import Ranked, TapeQuery
from bubbot.tape.ranking import FREQUENT_ENTRIES, MAX_TERMS, list_terms, score_texts
from bubbot.tape.service import TapeService
from bubbot.tape.words import fold_text, stem, tokens
from tests.sentences import sentences

SAID = [
    message("user", "we painted both houses last spring"),
    message("assistant", "How nice that you paint: paint, brushes and more paint"),
    message("user", "我的护照在红色的盒子里"),
    message("user", "nothing of interest"),
    event("note", {"text": "we painted the house"}),
]


async def rank(tape: TapeService, text: str, **bounds: object) -> list[int]:
    query = TapeQuery(tape.name, Ranked(text), kinds=("message",), **bounds)  # type: ignore[arg-type]
    return [entry.id for entry in (await tape.fetch([query]))[0]]


@pytest.mark.parametrize("text", ["when did I paint the house?", "PAINTING Houses"])
async def test_other_endings_are_the_same_word_and_what_people_said_comes_first(tape: TapeService, text: str) -> None:
    await tape.append(SAID)
    assert (await rank(tape, text))[0] == 1
    assert 4 not in await rank(tape, text)


async def test_what_a_person_said_counts_twice(tape: TapeService) -> None:
    words = "the passport is in the box"
    await tape.append(
        [message("user", words), message("assistant", words), message("user", "a box and a bag and a hat")]
    )
    assert (await rank(tape, "passport box"))[:2] == [1, 2]


async def test_runs_are_compared_by_pairs(tape: TapeService) -> None:
    await tape.append(SAID)
    assert await rank(tape, "护照放在哪里了？") == [3]


async def test_a_limit_and_a_point_in_time_bound_it(tape: TapeService) -> None:
    await tape.append(SAID)
    assert await rank(tape, "paint the houses", limit=1) == [1]
    assert await rank(tape, "paint the houses", as_of=0) == []
    assert await rank(tape, "!?") == await rank(tape, "volcano") == []


async def test_a_frequent_word_brings_nothing_by_itself_and_orders_what_others_bring(tape: TapeService) -> None:
    said: list[TapeEntry] = [message("user", f"the weather in week {number}") for number in range(FREQUENT_ENTRIES + 1)]
    said += [message("user", "something else") for _ in range(2 * len(said))]
    await tape.append([*said, message("user", "a volcano in the garden"), message("user", "a volcano in the weather")])
    assert await rank(tape, "weather") == []
    assert await rank(tape, "volcano weather") == [len(said) + 2, len(said) + 1], "found by volcano alone"


def test_terms_are_the_longest_words_without_accents() -> None:
    assert list_terms("is my Café in a box") == ["cafe", "box", "is", "my", "in", "a"]
    assert list_terms("我的护照") == ["我的", "的护", "护照"]
    assert len(list_terms(" ".join(f"word{number}" for number in range(100)))) == MAX_TERMS


def test_rare_words_count_more_and_long_texts_less() -> None:
    texts = {1: "tea with milk", 2: "tea and a passport", 3: "tea " + "and more " * 40, 4: "tea", 5: "milk"}
    scores = score_texts(list_terms("passport tea"), texts)
    assert sorted(scores, key=scores.__getitem__, reverse=True)[0] == 2
    assert scores[4] > scores[3] > 0
    assert 5 not in scores


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("running", "run"),
        ("houses", "hous"),
        ("is", "is"),
        ("naïveté", "naivet"),
        ("привет", "привет"),
        ("护照", "护照"),
    ],
)
def test_stems(word: str, expected: str) -> None:
    assert stem(word) == expected


def test_every_word_begins_with_its_stem_but_for_the_last_letter() -> None:
    """So what is not indexed is looked for by these letters."""
    words = {word for text in sentences() for word in tokens(fold_text(text)) if word.isascii()}
    assert len(words) > 1000
    assert [word for word in words if not word.startswith(stem(word)[:-1])] == []
