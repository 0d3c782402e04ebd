"""What the corrections of a tape hide and supersede."""

from __future__ import annotations

import pytest

from bubbot.tape.corrections import Corrections
from bubbot.tape.entry import TapeEntry, event


def corrections(*changes: tuple[object, object]) -> list[TapeEntry]:
    """The corrections from entry 11 on: what each of them corrects, and its text or what it says of hiding."""
    return [
        event("correction", {"corrects": target, "content" if isinstance(said, str) else "hide": said}).with_id(number)
        for number, (target, said) in enumerate(changes, 11)
    ]


@pytest.mark.parametrize(
    ("events", "hidden", "superseded"),
    [
        (corrections(), set(), {}),
        (corrections((1, "one")), set(), {1: 11}),
        (corrections((1, "one"), (2, "two"), (1, "three")), set(), {1: 13, 2: 12}),
        (corrections((1, True)), {1, 11}, {}),
        (corrections((1, "one"), (1, True), (2, "two")), {1, 11, 12}, {2: 13}),
        (corrections((1, True), (1, "one")), {1, 11, 12}, {}),
        (corrections((1, "one"), (11, "of a correction"), (1, True)), {1, 11, 12, 13}, {}),
        (corrections((1, "one"), (1, "two"), (12, True)), {12, 13}, {1: 11}),
        (corrections((1, False), (2, 1), (3, None)), set(), {1: 11, 2: 12, 3: 13}),
        (corrections((True, True), ("1", True), (None, True), (1.0, True)), set(), {}),
    ],
)
@pytest.mark.law("T6")
def test_what_is_hidden_takes_its_corrections_along_and_the_newest_of_the_others_counts(
    events: list[TapeEntry], hidden: set[int], superseded: dict[int, int]
) -> None:
    assert Corrections.of(events) == Corrections(frozenset(hidden), superseded)
