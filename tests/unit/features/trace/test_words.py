"""Words on a page: nothing in them hides."""

from __future__ import annotations

import pytest

from bubbot.features.trace.words import Excerpt, TextPage, reveal


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\ttext, 日本語, \U0001f469\u200d\U0001f467, a\u200fb", None),
        ("\x00\x07\x1b[2J\r", "␀␇␛[2J␍"),
        ("\x7f\x9b", "␡⟨U+009B⟩"),
        ("a\u202eb\u2066c\u061cd", "a⟨U+202E⟩b⟨U+2066⟩c⟨U+061C⟩d"),
        ("hid\U000e0041den", "hid⟨U+E0041⟩den"),
        ("\ud83d lone", "⟨U+D83D⟩ lone"),
        ("a\u2028b", "a⟨U+2028⟩b"),
    ],
)
def test_what_is_hidden_is_written_out(text: str, shown: str | None) -> None:
    assert reveal(text) == (text if shown is None else shown)
    reveal(text).encode()  # it can be sent


def test_an_excerpt_says_how_much_follows() -> None:
    assert (Excerpt.of("abcdef", 4), Excerpt.of("abc", 3)) == (Excerpt("abcd", 2), Excerpt("abc", 0))


@pytest.mark.parametrize(
    ("number", "expected"), [(0, ("ab", 1)), (1, ("ab", 1)), (3, ("e", 3)), (99, ("e", 3)), (-5, ("ab", 1))]
)
def test_pages_of_a_text_are_never_beyond_it(number: int, expected: tuple[str, int]) -> None:
    page = TextPage.of("abcde", number, 2)
    assert ((page.text, page.number), page.pages) == (expected, 3)
    assert TextPage.of("", 1, 2).pages == 1
