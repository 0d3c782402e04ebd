"""What counts as a word: the pieces of a folded text that search compares."""

from __future__ import annotations

import re
import unicodedata

# Scripts written without spaces (and Hangul, whose words carry particles): compared by windows of characters.
_RUNS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17d3\u2e80-\u2fdf\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
# Signs inside a word that Python's \w does not take for letters: Hebrew, Arabic, Indic, and combining ones.
_SIGNS = "\u0300-\u036f\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0966-\u0dff"
_WORDS = f"[{_RUNS}]+|(?:[^\\W_{_RUNS}]|[{_SIGNS}])+"
# Currency, arrows, dingbats and emoji: nobody spells them, but people look for them.
_SYMBOLS = "\u20a0-\u20cf\u2190-\u23ff\u2500-\u27bf\u2900-\u2bff\U0001f000-\U0001faff"
_TOKEN = re.compile(_WORDS)
_PIECE = re.compile(f"{_WORDS}|[{_SYMBOLS}]")
_ASCII_TOKEN = re.compile(r"[a-z0-9]+")
_IS_RUN = re.compile(f"[{_RUNS}]")
_IS_SYMBOL = re.compile(f"[{_SYMBOLS}]")
_DIGIT = re.compile(r"\d")
_ACCENT = re.compile("[\u0300-\u036f]")


def tokens(text: str) -> dict[str, None]:
    """The different words and runs of a casefolded text, in order."""
    return dict.fromkeys((_ASCII_TOKEN if text.isascii() else _TOKEN).findall(text))


def pieces(text: str) -> list[tuple[str, int]]:
    """The words, runs and symbols of a folded text, each with the place where it begins.

    Which piece a character belongs to depends on its neighbours alone: a text that holds another one has its inner
    pieces, and longer ones, at most, at both ends.
    """
    found = (_ASCII_TOKEN if text.isascii() else _PIECE).finditer(text)
    return [(one.group(), one.start()) for one in found]


def is_run(piece: str) -> bool:
    """Whether it is a run of a script written without spaces."""
    return _IS_RUN.match(piece) is not None


def is_symbol(piece: str) -> bool:
    """Whether it is a sign of its own, such as an emoji."""
    return len(piece) == 1 and _IS_SYMBOL.match(piece) is not None and _TOKEN.match(piece) is None


def is_spelt(word: str) -> bool:
    """Whether people misspell it: from four letters on, and no digit in it."""
    return len(word) >= 4 and _DIGIT.search(word) is None


def plain(word: str) -> str:
    """The word without accents, as people type it who have no such keys."""
    if word.isascii():
        return word
    return unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFD", word)))
