"""Texts as the tokens of the index. FTS5 sees words between spaces that this file has made, and makes none itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from zlib import crc32

from bubbot.tape.words import is_run, is_spelt, is_symbol, pieces, plain

MAX_TOKEN_LETTERS = 40
"""Letters of a term. A longer word has its beginning as a term, and windows of this length that overlap by half: what is
no longer than `WITHIN` lies within one of them."""
WITHIN = MAX_TOKEN_LETTERS // 2
LONG_WORD_MARK = "\ue000l"
"""The token of an entry with a longer word. Private characters: no text has such a token."""
HUGE = "\ue000h"
"""The token of an entry with a word that is too long for windows, such as a file in letters."""
_HUGE = 1000
END = "\ue000"
"""After the last letters of a term among its trigrams."""
_SPELT = 20  # a longer word is not looked for by spelling


def tape_token(tape: int) -> str:
    """The token of every entry of a tape."""
    return f"\ue000t{tape}"


def kind_token(kind: str) -> str:
    """The token of every entry of a kind; two kinds may share one."""
    return f"\ue000k{crc32(kind.encode('utf-8', 'surrogatepass')):x}"


def document(text: str) -> tuple[list[str], set[str]]:
    """The tokens of a folded text in order, and its different terms: words, which have an entry each in the vocabulary."""
    body: list[str] = []
    terms: set[str] = set()
    beside: dict[str, None] = {}
    for piece, _ in pieces(text):
        if piece.isascii() or not (is_run(piece) or is_symbol(piece)):
            term = piece[:MAX_TOKEN_LETTERS]
            body.append(term)
            terms.add(term)
            if len(piece) > MAX_TOKEN_LETTERS:
                parts = _windows(piece)
                terms.update(parts)
                beside |= dict.fromkeys([*parts, LONG_WORD_MARK, *([HUGE] if len(piece) > _HUGE else [])])
        else:
            body += run_tokens(piece)
    return [*body, *beside], terms


def _windows(word: str) -> list[str]:
    """The windows of a long word but the first; of a huge one only some, and its end."""
    starts = range(WITHIN, min(len(word), _HUGE) - MAX_TOKEN_LETTERS, WITHIN)
    return [*(word[at : at + MAX_TOKEN_LETTERS] for at in starts), word[-MAX_TOKEN_LETTERS:]]


def run_tokens(run: str) -> Iterator[str]:
    """The overlapping pairs of a run, and its last character: so any part of it is found, one character too."""
    for at in range(len(run) - 1):
        yield run[at : at + 2]
    yield run[-1]


def grams(term: str) -> list[str]:
    """The trigrams of a term, and its ending; nothing of a shorter one."""
    return [*trigrams(term), term[-3:] + END] if len(term) >= 3 else []


def trigrams(text: str) -> list[str]:
    """The trigrams of a text."""
    return [text[at : at + 3] for at in range(len(text) - 2)]


def some_trigrams(text: str) -> list[str]:
    """Enough of the trigrams of a text to cover it: each is a list to go through, and texts are compared anyway."""
    return list(dict.fromkeys([*(text[at : at + 3] for at in range(0, len(text) - 2, 3)), text[-3:]]))


def deletions(term: str) -> set[int]:
    """The hashes under which a misspelt term is found: of it without accents, and with one letter left out. Words one
    mistake apart share one. A short word is not misspelt, only typed without its accents."""
    bare = plain(term)
    if is_spelt(term) and len(term) <= _SPELT:
        return set(hashes([bare, *one_less(bare)]))
    return set() if bare == term else set(hashes([bare]))


def one_less(word: str) -> list[str]:
    """The word with each of its letters left out."""
    return [word[:at] + word[at + 1 :] for at in range(len(word))]


def hashes(words: Iterable[str]) -> Iterator[int]:
    """Their hashes."""
    return (crc32(word.encode("utf-8", "surrogatepass")) for word in words)


def phrase(tokens: Iterable[str], *, prefix: bool = False) -> str:
    """An FTS5 phrase of tokens; none of them has a quote in it. `prefix`: the last may go on."""
    return f'"{" ".join(tokens)}"{" *" if prefix else ""}'
