"""Labels: of buttons, which platforms limit, and names within the brackets of a note."""

from __future__ import annotations

import unicodedata

from bubbot.formatting import clean_label, replace_controls

EMPTY_LABEL = "…"
"""The label of a button without visible words: platforms refuse an empty one."""
MAX_NAME_CHARS = 64
"""Characters of a name in a note."""


def clean_note_name(name: str) -> str:
    """Return a name for use in a note, `[forwarded from NAME]`, which it cannot close."""
    return clean_label(name, MAX_NAME_CHARS)


def shorten_label(label: str, limit: int) -> str:
    """Return a label on one line, of at most `limit` UTF-16 code units, cut between characters."""
    line = " ".join(replace_controls(label.encode(errors="replace").decode()).split())
    if not any(unicodedata.category(char)[0] in "LNPS" for char in line):
        return EMPTY_LABEL
    if _units(line) <= limit:
        return line
    line = line[:limit]
    while _units(line) > limit - 1:
        line = line[:-1]
    while line and (unicodedata.category(line[-1]) in ("Mn", "Me", "Cf") or line[-1].isspace()):
        line = line[:-1]
    return f"{line}…"


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2
