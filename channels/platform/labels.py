"""Labels: of buttons, which platforms limit, and names within the brackets of a note."""

from __future__ import annotations

import unicodedata

from bubbot.ports.text import replace_controls

EMPTY_LABEL = "…"
"""The label of a button without visible words: platforms refuse an empty one."""


MAX_NAME_CHARS = 64
"""Characters of a name in a note."""


def clean_name(name: str) -> str:
    """Return a name on one line for use in a note, `[forwarded from NAME]`, which it cannot close or imitate."""
    return clean_words(name)[:MAX_NAME_CHARS].strip()


def clean_words(text: str) -> str:
    """Return a text of any length on one line for use in a note, `[poll QUESTION]`, which it cannot close or imitate."""
    return " ".join("".join(map(_name_char, text)).split())


def _name_char(char: str) -> str:
    category = unicodedata.category(char)
    if category[0] in "CZ":
        return "" if category in ("Cf", "Cs") else " "
    folded = unicodedata.normalize("NFKC", char)
    is_bracket = any(unicodedata.category(part) in ("Ps", "Pe") or part in "<>" for part in folded)
    return "_" if is_bracket and folded not in ("(", ")") else char


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

