"""Text that is safe to show on a terminal."""

from __future__ import annotations

import unicodedata

ALLOWED_CONTROLS = "\n\t\u200c\u200d"
"""Controls that stay: line feed, tab, and the joiners, which only shape letters and emoji."""
_OBEYED = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Unicode categories that a terminal obeys: C0, C1, formats (with all direction changes), surrogates, separators."""


def replace_controls(text: str) -> str:
    """Put U+FFFD in place of each character that a terminal obeys instead of showing it.

    The result cannot move the cursor, rename the window, write the clipboard, or change the direction of the text.
    """
    text = text.replace("\r\n", "\n")
    return (
        text
        if text.isprintable()
        else "".join("\N{REPLACEMENT CHARACTER}" if _is_obeyed(char) else char for char in text)
    )


def _is_obeyed(char: str) -> bool:
    return not char.isprintable() and char not in ALLOWED_CONTROLS and unicodedata.category(char) in _OBEYED
