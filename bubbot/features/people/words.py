"""Words of a person, to find verbatim copies of them in other texts."""

from __future__ import annotations

from collections.abc import Iterable

MIN_CHARS = 12
"""The shortest line that counts as somebody's own words: anybody may say a shorter one."""
PIECE_CHARS = 32
"""The length of the pieces that are compared: of a longer line, any one of them tells."""


class WordIndex:
    """The lines that a person said."""

    def __init__(self) -> None:
        self._pieces: dict[str, set[str]] = {}
        """The pieces of the lines, by their first `MIN_CHARS` characters."""

    def add(self, texts: Iterable[str]) -> None:
        """Add what the person said."""
        for text in texts:
            for line in map(str.strip, text.splitlines()):
                for start in range(0, len(line), PIECE_CHARS):
                    piece = line[start : start + PIECE_CHARS]
                    if len(piece) >= MIN_CHARS:
                        self._pieces.setdefault(piece[:MIN_CHARS], set()).add(piece)

    def is_in(self, text: str) -> bool:
        """Return true if a text holds one of the lines, or a piece of a long one."""
        pieces = self._pieces
        if not pieces:
            return False
        for start in range(len(text) - MIN_CHARS + 1):
            found = pieces.get(text[start : start + MIN_CHARS])
            if found and any(text.startswith(piece, start) for piece in found):
                return True
        return False
