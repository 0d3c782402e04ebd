"""Words: the pieces of a folded text that search compares."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache

# Scripts written without spaces (and Hangul, whose words carry particles): compared by windows of characters.
_RUNS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17d3\u2e80-\u2fdf\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
# Signs inside a word that Python's \w does not take for letters: Hebrew, Arabic, Indic, and combining ones.
_SIGNS = "\u0300-\u036f\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0966-\u0dff"
_WORDS = f"[{_RUNS}]+|(?:[^\\W_{_RUNS}]|[{_SIGNS}])+"
# Currency, arrows, dingbats and emoji: they are no words, but people search for them.
_SYMBOLS = "\u20a0-\u20cf\u2190-\u23ff\u2500-\u27bf\u2900-\u2bff\U0001f000-\U0001faff"
_PIECES = f"{_WORDS}|[{_SYMBOLS}]"
_RUN = f"[{_RUNS}]"
_SYMBOL = f"[{_SYMBOLS}]"
_ASCII_TOKEN = re.compile(r"[a-z0-9]+")
_DIGIT = re.compile(r"\d")
_LETTER = f"[^\\W_{_RUNS}]|[{_SIGNS}]"
_ACCENT = re.compile("[\u0300-\u036f]")


@cache
def _pattern(source: str) -> re.Pattern[str]:
    """Compile a pattern on first use: its long ranges take milliseconds, which would delay every command."""
    return re.compile(source)


def fold_text(text: str) -> str:
    """Fold a text to the form in which texts are compared: NFKC, then casefold."""
    return unicodedata.normalize("NFKC", text).casefold()


def tokens(text: str) -> dict[str, None]:
    """List the different words and runs of a casefolded text, in order."""
    return dict.fromkeys((_ASCII_TOKEN if text.isascii() else _pattern(_WORDS)).findall(text))


def split_pieces(text: str) -> list[tuple[str, int]]:
    """Split a folded text into words, runs and symbols, each with its start offset.

    A character's piece depends only on its neighbours: a text that contains another one has all its inner pieces; only
    the first and the last may be longer.
    """
    matches = (_ASCII_TOKEN if text.isascii() else _pattern(_PIECES)).finditer(text)
    return [(match.group(), match.start()) for match in matches]


def is_run(piece: str) -> bool:
    """Return true for a run of a script written without spaces."""
    return not piece.isascii() and _pattern(_RUN).match(piece) is not None


def run_tokens(run: str) -> Iterator[str]:
    """Yield the overlapping pairs of a run and its last character, so that any part of it is found."""
    for at in range(len(run) - 1):
        yield run[at : at + 2]
    yield run[-1]


def run_pairs(run: str) -> list[str]:
    """List the overlapping pairs of a part of a run, which may go on after it; of a single character itself."""
    return [run[at : at + 2] for at in range(max(len(run) - 1, 1))]


def is_symbol(piece: str) -> bool:
    """Return true for a sign that stands alone, such as an emoji."""
    return len(piece) == 1 and bool(_pattern(_SYMBOL).match(piece)) and not _pattern(_WORDS).match(piece)


def is_spelt(word: str) -> bool:
    """Return true if people may misspell it: four letters or more, and no digit."""
    return len(word) >= 4 and _DIGIT.search(word) is None


def strip_accents(word: str) -> str:
    """Strip the accents of a word, as people type it without the keys for them."""
    if word.isascii():
        return word
    return unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFD", word)))


def holds_phrase(text: str, phrase: str) -> bool:
    """Return true if the text has the phrase, and not only as a part of longer words; both are folded."""
    start = text.find(phrase) if phrase else -1
    while start >= 0:
        if not (_is_within_word(text, start) or _is_within_word(text, start + len(phrase))):
            return True
        start = text.find(phrase, start + 1)
    return False


def _is_within_word(text: str, at: int) -> bool:
    """Return true if the characters before and at a place belong to one word."""
    return 0 < at < len(text) and all(_pattern(_LETTER).match(letter) for letter in text[at - 1 : at + 1])


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """Return the stem of a folded word, by Porter's rules for English, and without accents.

    The search index has the same rules from SQLite, which leaves words of two letters as they are.
    """
    bare = strip_accents(word)
    if len(bare) < 3 or not bare.isascii():
        return bare
    from snowballstemmer import stemmer  # only a search needs it

    # One for each word: a stemmer keeps the word that it works on, and SQLite asks in a thread of its own.
    return str(stemmer("porter").stemWord(bare))
