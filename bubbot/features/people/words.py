"""Words of a person, to find verbatim copies of them in other texts."""

from __future__ import annotations

from collections.abc import Iterable

MIN_CHARS = 12
"""The shortest line that counts as somebody's own words: anybody may say a shorter one."""
PIECE_CHARS = 32
"""The length of the pieces that are compared: of a longer line, any one of them tells."""


_GRAM_CHARS = 8
_GRAM_STEP = MIN_CHARS - _GRAM_CHARS + 1
"""Of a text only the runs of characters at these steps are looked up: one of them is in the beginning of each piece."""


class WordIndex:
    """The lines that a person said."""

    def __init__(self) -> None:
        self._pieces: dict[str, set[str]] = {}
        """The pieces of the lines, by their first `MIN_CHARS` characters."""
        self._grams: set[str] = set()
        """The runs of `_GRAM_CHARS` characters in these."""

    def add(self, texts: Iterable[str]) -> None:
        """Add what the person said."""
        for text in texts:
            for line in map(str.strip, text.splitlines()):
                for start in range(0, len(line), PIECE_CHARS):
                    piece = line[start : start + PIECE_CHARS]
                    if len(piece) >= MIN_CHARS:
                        self._pieces.setdefault(piece[:MIN_CHARS], set()).add(piece)
                        self._grams |= {piece[place : place + _GRAM_CHARS] for place in range(_GRAM_STEP)}

    def is_in(self, text: str) -> bool:
        """Return true if a text holds one of the lines, or a piece of a long one."""
        places = range(0, len(text) - _GRAM_CHARS + 1, _GRAM_STEP)
        grams = [text[place : place + _GRAM_CHARS] for place in places]
        if self._grams.isdisjoint(grams):
            return False
        return any(
            gram in self._grams and self._begins_near(text, place) for gram, place in zip(grams, places, strict=True)
        )

    def _begins_near(self, text: str, place: int) -> bool:
        """Return true if a piece begins at a place of a text, or less than a step before."""
        for start in range(max(0, place - _GRAM_STEP + 1), place + 1):
            found = self._pieces.get(text[start : start + MIN_CHARS], ())
            if any(text.startswith(piece, start) for piece in found):
                return True
        return False
