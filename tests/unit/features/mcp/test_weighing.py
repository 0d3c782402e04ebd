"""What the arguments of a reading call may tell its server."""

from __future__ import annotations

import math
from typing import Any

import pytest

from bubbot.features.mcp.weighing import SentWords, weigh_arguments

SCHEMA = {
    "type": "object",
    "properties": {
        "words": {"type": "string"},
        "limit": {"type": "integer"},
        "order": {"enum": ["newest", "oldest", "best", "worst"]},
        "exact": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "within": {"type": "object", "properties": {"year": {"type": "integer"}}, "required": ["year"]},
    },
    "required": ["words"],
}
OPTIONAL = math.log2(6)
"""Which of five optional arguments there is, or none."""


@pytest.mark.parametrize(
    ("values", "sent"),
    [
        ({}, SentWords("", 0)),
        ({"words": "a b"}, SentWords("a b", 0)),
        ({"words": "a", "order": "best"}, SentWords("a", OPTIONAL + 2)),
        ({"words": "a", "exact": False}, SentWords("a", OPTIONAL + 1)),
        ({"words": "a", "limit": 10}, SentWords("a", OPTIONAL + 8)),
        ({"words": "a", "limit": 2.5}, SentWords("a 2.5", OPTIONAL)),
        ({"words": "a", "order": "other"}, SentWords("a other", OPTIONAL)),
        ({"words": "a", "tags": ["b", "c"]}, SentWords("a b c", OPTIONAL + 2)),
        ({"words": "a", "within": {"year": 2026}}, SentWords("a", OPTIONAL + 22)),
        ({"words": "a", "my secret": "is"}, SentWords("a my secret is", math.log2(3))),
        ({"words": "a", "within": {"my": {"secret": None}}}, SentWords("a my secret", OPTIONAL + 1)),
    ],
)
def test_texts_are_looked_for_and_everything_else_is_counted(values: dict[str, Any], sent: SentWords) -> None:
    found = weigh_arguments(SCHEMA, values)
    assert found.text == sent.text
    assert found.bits == pytest.approx(sent.bits)


def test_which_words_stand_in_which_argument_costs_what_that_can_carry() -> None:
    text = {"type": "string"}
    schema = {"type": "object", "properties": {"sender": text, "words": text}, "required": ["sender", "words"]}
    words = ["a", "b", "c", "d", "e"]
    splits = [(" ".join(words[:place]), " ".join(words[place:])) for place in range(1, len(words))]
    sent = [weigh_arguments(schema, {"sender": first, "words": second}) for first, second in splits]
    assert [each.text for each in sent] == ["a b c d e"] * 4
    assert sum(2.0**-each.bits for each in sent) <= 1


def test_numbers_cost_at_least_what_they_can_carry() -> None:
    """Kraft: codes of these lengths exist, so that no choice of a number tells more than it costs."""
    costs = [weigh_arguments(SCHEMA, {"words": "", "limit": number}).bits - OPTIONAL for number in range(-5_000, 5_001)]
    assert sum(2.0**-cost for cost in costs) <= 1
