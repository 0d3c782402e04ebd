"""Cuts texts into the tokens of the index. FTS5 sees only the words between spaces that this module makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from zlib import crc32

from bubbot.tape.words import is_run, is_spelt, is_symbol, split_pieces, strip_accents

MAX_TOKEN_LETTERS = 40
"""Letters of a term. A longer word has its beginning as a term, and windows of this length that overlap by half: a part
no longer than `MAX_PART_LETTERS` lies within one of them."""
MAX_PART_LETTERS = MAX_TOKEN_LETTERS // 2
LONG_WORD_MARK = "\ue000l"
"""The token of an entry with a longer word. Private characters: no text has such a token."""
HUGE_WORD_MARK = "\ue000h"
"""The token of an entry with a word that is too long for windows, such as a file in letters."""
_HUGE_WORD_LETTERS = 1000
ENDING_MARK = "\ue000"
"""Marks the last letters of a term among its trigrams."""
_MAX_SPELT_LETTERS = 20  # longer words are not searched by spelling


KIND_TOKENS = ("\ue000k", "\ue000k~")
"""The tokens of all kinds lie between these two."""


def tape_token(tape: int) -> str:
    """Return the token of every entry of a tape."""
    return f"\ue000t{tape}"


def kind_token(kind: str) -> str:
    """Return the token of every entry of a kind; two kinds may share one."""
    return f"\ue000k{crc32(kind.encode('utf-8', 'surrogatepass')):x}"


def tokenize(text: str) -> tuple[list[str], set[str]]:
    """Cut a folded text into its tokens, in order, and its distinct terms.

    Terms are words, each with a row in the vocabulary.
    """
    body: list[str] = []
    terms: set[str] = set()
    extra_tokens: dict[str, None] = {}
    for piece, _ in split_pieces(text):
        if piece.isascii() or not (is_run(piece) or is_symbol(piece)):
            term = piece[:MAX_TOKEN_LETTERS]
            body.append(term)
            terms.add(term)
            if len(piece) > MAX_TOKEN_LETTERS:
                parts = _windows(piece)
                terms.update(parts)
                extra_tokens |= dict.fromkeys(
                    [*parts, LONG_WORD_MARK, *([HUGE_WORD_MARK] if len(piece) > _HUGE_WORD_LETTERS else [])]
                )
        else:
            body += run_tokens(piece)
    return [*body, *extra_tokens], terms


def _windows(word: str) -> list[str]:
    """Cut the windows of a long word, except the first; of a huge one only some, and its end."""
    starts = range(MAX_PART_LETTERS, min(len(word), _HUGE_WORD_LETTERS) - MAX_TOKEN_LETTERS, MAX_PART_LETTERS)
    return [*(word[at : at + MAX_TOKEN_LETTERS] for at in starts), word[-MAX_TOKEN_LETTERS:]]


def run_tokens(run: str) -> Iterator[str]:
    """Yield the overlapping pairs of a run and its last character, so that any part of it is found."""
    for at in range(len(run) - 1):
        yield run[at : at + 2]
    yield run[-1]


def grams(term: str) -> list[str]:
    """List the trigrams of a term and its ending; none for a term under three letters."""
    return [*trigrams(term), term[-3:] + ENDING_MARK] if len(term) >= 3 else []


def trigrams(text: str) -> list[str]:
    """List the trigrams of a text."""
    return [text[at : at + 3] for at in range(len(text) - 2)]


def covering_trigrams(text: str) -> list[str]:
    """Pick enough trigrams of a text to cover it.

    Each one is a list to go through, and the texts are compared anyway.
    """
    return list(dict.fromkeys([*(text[at : at + 3] for at in range(0, len(text) - 2, 3)), text[-3:]]))


def deletions(term: str) -> set[int]:
    """Hash the forms under which a misspelt term is found: without accents, and with one letter left out.

    Words one mistake apart share one form. A short word is not misspelt, only typed without its accents.
    """
    bare = strip_accents(term)
    if is_spelt(term) and len(term) <= _MAX_SPELT_LETTERS:
        return set(hashes([bare, *drop_each_letter(bare)]))
    return set() if bare == term else set(hashes([bare]))


def drop_each_letter(word: str) -> list[str]:
    """List the word with each of its letters left out."""
    return [word[:at] + word[at + 1 :] for at in range(len(word))]


def hashes(words: Iterable[str]) -> Iterator[int]:
    """Hash each word."""
    return (crc32(word.encode("utf-8", "surrogatepass")) for word in words)


def phrase(tokens: Iterable[str], *, prefix: bool = False) -> str:
    """Build an FTS5 phrase of tokens, which never contain a quote. `prefix`: the last may go on."""
    return f'"{" ".join(tokens)}"{" *" if prefix else ""}'
