"""The tokens of texts, and the FTS5 expressions of what is looked for.

FTS5 sees only the words between spaces that this module makes: words without accents, and pairs of characters of scripts
without spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from bubbot.tape.words import fold_text, is_run, run_pairs, run_tokens, split_pieces, strip_accents, tokens

MAX_TOKEN_LETTERS = 40
"""Letters of a token. Of a longer word the beginning is a token."""
MAX_WORDS = 64
"""The most words of one expression; what is found is compared with all of them."""
PART_LETTERS = 3
"""The fewest letters of a part of a word that the index finds."""
_KIND = "\ue000"
"""Begins the token of a kind. A private character: no token of a text has it, since it is no letter."""
_DIGIT, _DIGITS = 0xE100, 0x1000
"""The first of the private characters that write a tape's number, and how many there are."""
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def tokenize(text: str) -> list[str]:
    """Cut a folded text into its tokens, in order."""
    found: list[str] = []
    for piece, _ in split_pieces(strip_accents(text)):
        if is_run(piece):
            found += run_tokens(piece)
        else:
            found.append(piece[:MAX_TOKEN_LETTERS])
    return found


def tape_key(tape: int) -> str:
    """Return the token of every entry of a tape: three characters, which are one trigram, too."""
    return "".join(chr(_DIGIT + tape // _DIGITS**place % _DIGITS) for place in range(3))


def place_of(tape: int, kind: str) -> str:
    """Return what stands in the column `place` of the table `words` for an entry."""
    return f"{tape_key(tape)} {_KIND}{kind}"


def clean_text(text: str) -> str:
    """Return a text with spaces for what SQLite cannot store, or reads as the end."""
    return _UNSTORABLE.sub(" ", text)


def sender_tokens(name: str, number: str) -> list[str]:
    """Return what stands in the column `sender`: the name and the id of a person."""
    return [*tokenize(fold_text(name)), *tokenize(fold_text(number))]


def within(tape: int, kinds: Sequence[str], sender: str = "") -> str:
    """Build the expression for the entries of a tape, of these kinds, or of all for no kind, and of a sender, or of all."""
    parts = [f'place : "{tape_key(tape)}"']
    if kinds:
        parts.append(f"place : ({_any(_KIND + kind for kind in kinds)})")
    if person := phrase_expression(fold_text(sender)):
        parts.append(f"sender : {person}")
    return " AND ".join(parts)


def phrase_expression(text: str) -> str:
    """Build the expression for the words of a folded text, one after the other; empty if it has none.

    Before the first and after the last character, a script without spaces may go on.
    """
    pieces = [piece for piece, _ in split_pieces(strip_accents(text))][:MAX_WORDS]
    if not pieces:
        return ""
    *first, last = pieces
    wanted = [token for piece in first for token in tokenize(piece)]
    if not is_run(last):
        return _phrase([*wanted, *tokenize(last)])
    expression = _phrase([*wanted, *run_pairs(last)])
    return f"{expression} *" if len(last) == 1 else expression  # it begins a pair, or is the last of its run


def words_expression(text: str) -> str:
    """Build the expression for all words of a folded text, in any order; empty if it has none."""
    return " AND ".join(phrase_expression(word) for word in [*tokens(strip_accents(text))][:MAX_WORDS])


def any_expression(words: Iterable[str]) -> str:
    """Build the expression for any of some words or runs."""
    return " OR ".join(phrase_expression(word) for word in words)


def part_expression(tape: int, text: str) -> str:
    """Build the expression, for the table `parts`, of a part of the texts of a tape; empty if it is too short.

    Trigrams that cover it are enough: the entries that are found are compared, however many.
    """
    part = clean_text(text)
    if len(part) < PART_LETTERS:
        return ""
    starts = [*range(0, len(part) - PART_LETTERS, PART_LETTERS), len(part) - PART_LETTERS][:MAX_WORDS]
    return f"{_phrase([tape_key(tape)])} AND {_trigrams(part, starts)}"


def letters_expression(tape: int, choices: Iterable[Sequence[str]]) -> str:
    """Build the expression, for the table `parts`, of texts of a tape that hold one word of each choice to the letter.

    All trigrams of a word: few of the entries that are found are compared. Words that are too short bound nothing; empty
    if all are.
    """
    long = [words for words in choices if all(len(word) >= PART_LETTERS for word in words)]
    each = [
        " OR ".join(f"({_trigrams(word, range(len(word) - PART_LETTERS + 1))})" for word in words) for words in long
    ]
    return " AND ".join([_phrase([tape_key(tape)]), *(f"({some})" for some in each)]) if each else ""


def _trigrams(text: str, starts: Iterable[int]) -> str:
    trigrams = dict.fromkeys(text[start : start + PART_LETTERS] for start in starts)
    return " AND ".join(_phrase([trigram]) for trigram in trigrams)


def _phrase(words: Iterable[str]) -> str:
    return '"{}"'.format(" ".join(words).replace('"', '""'))


def _any(words: Iterable[str]) -> str:
    return " OR ".join(_phrase([word]) for word in words)
