"""Words of people and models on a page: nothing in them acts, and nothing in them hides."""

from __future__ import annotations

import re

from msgspec import Struct

HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Characters that are invisible or turn what follows around: controls, overrides of the direction, tags."""
_CONTROL_PICTURES = 0x2400


class Excerpt(Struct, frozen=True):
    """The beginning of a text.

    Attributes:
        text: what is shown.
        rest: how many characters follow.
    """

    text: str
    rest: int = 0

    @classmethod
    def of(cls, text: str, limit: int) -> Excerpt:
        """Cut a text."""
        return cls(text[:limit], max(len(text) - limit, 0))


class TextPage(Struct, frozen=True):
    """A page of a long text; the first one has the number 1."""

    text: str
    number: int
    pages: int
    characters: int

    @classmethod
    def of(cls, text: str, number: int, size: int) -> TextPage:
        """Cut a page out of a text; the last one if there are not so many."""
        pages = max(-(-len(text) // size), 1)
        number = min(max(number, 1), pages)
        return cls(text[(number - 1) * size : number * size], number, pages, len(text))


def reveal(value: object) -> str:
    """Return a text, or a value as text, with what is hidden in it written out. It has to be escaped still."""
    return HIDDEN.sub(_name, str(value))


def _name(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(_CONTROL_PICTURES + code)
    return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"
