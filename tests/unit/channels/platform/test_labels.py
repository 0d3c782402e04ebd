"""Labels of buttons, however long and odd they are: the label is cut, the id never."""

from __future__ import annotations

import pytest
from msgspec import structs

from bubbot.ports.channel import Button, ButtonSet
from channels.discord.sender import make_components
from channels.platform.labels import shorten_label
from channels.telegram.sender import make_keyboard

MAX_BUTTON_ID_BYTES = 64


HOSTILE = [
    "",
    " \n\t",
    "\u202e\u200b",
    "x" * 10_000,
    "👨‍👩‍👧‍👦" * 200,
    "e\u0301" * 200,
    "\ud83d",
    "a\nb\x00c",
    "字" * 500,
]


@pytest.mark.parametrize("label", HOSTILE)
@pytest.mark.parametrize("limit", [1, 2, 64, 80])
def test_a_label_fits_and_is_never_empty(label: str, limit: int) -> None:
    short = shorten_label(label, limit)
    assert 1 <= len(short.encode("utf-16-le")) // 2 <= limit
    assert "\n" not in short
    assert short.isprintable() or "\u200d" in short


@pytest.mark.parametrize("label", ["17:00 instead", "Yes", "字", "5", "!", "👍", "x" * 64, "👍" * 32])
def test_a_label_that_fits_stays(label: str) -> None:
    assert shorten_label(label, 64) == label


@pytest.mark.parametrize(
    ("label", "limit", "short"),
    [
        ("x" * 70, 10, "x" * 9 + "…"),
        ("👍" * 9, 9, "👍" * 4 + "…"),
        ("abcd efgh", 6, "abcd…"),
        ("ab\u0301\u0301\u0301cd", 5, "ab…"),
        ("a👩\u200d\u200d👩", 5, "a👩…"),
    ],
)
def test_a_label_is_cut_as_late_as_possible_and_not_before_what_joins(label: str, limit: int, short: str) -> None:
    assert shorten_label(label, limit) == short


def test_a_label_without_visible_words_is_three_dots() -> None:
    assert shorten_label("\u200b ", 64) in ("…", "�")


def test_platforms_get_whole_ids_below_cut_labels() -> None:
    offered = tuple(Button(label, ",x" * 5_000, "v" * 5_000) for label in HOSTILE)
    buttons = structs.replace(ButtonSet(offered), key="k" * 60)
    ids = [buttons.button_id(number) for number in range(len(offered))]
    keys = [key for row in make_keyboard(buttons)["inline_keyboard"] for key in row]
    assert [key["callback_data"] for key in keys] == ids
    rows = make_components(buttons)
    parts = [part for row in rows for part in row["components"]]
    assert [part["custom_id"] for part in parts] == ids
    assert max(len(row["components"]) for row in rows) <= 5
    assert max(map(len, ids)) <= MAX_BUTTON_ID_BYTES


def test_no_more_buttons_than_a_platform_takes() -> None:
    many = structs.replace(ButtonSet(tuple(Button(str(number), ",x") for number in range(300))), key="k")
    assert len(make_components(many)) == 5
    assert sum(len(row["components"]) for row in make_components(many)) == 25
    assert sum(map(len, make_keyboard(many)["inline_keyboard"])) == 100
