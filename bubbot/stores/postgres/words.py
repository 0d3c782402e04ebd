"""The words of texts, as the server indexes them, and what is looked for among them.

A text has the stems of its words, and the pairs of characters of scripts without spaces. The server narrows; Python decides.
"""

from __future__ import annotations

from collections.abc import Iterable

from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import Matcher
from bubbot.tape.ranking import list_terms
from bubbot.tape.store import SYSTEM_TAPE_PREFIX
from bubbot.tape.words import fold_text, is_run, run_pairs, run_tokens, split_pieces, stem, strip_accents, tokens

MAX_LETTERS = 40
"""Letters of a word. Of a longer one the beginning is indexed."""
MAX_WORDS = 64
"""The most words that narrow a query; what is found is compared with all of them."""
MAX_LETTERS_OF_ENTRY = 200_000
"""Letters of the words of one entry. An entry with more has `_ANYTHING`, so that every query reads it."""
_TAPE, _ANYTHING = "\ue000", "\ue001"
"""Begins the word that names the tape of an entry; stands for all words. Private characters: no word of a text has them."""
TAPE_QUERY = f"(SELECT ('''' || '{_TAPE}' || tapes.tape || '''')::tsquery FROM tapes WHERE tapes.name = ?)"
"""The expression of `tsquery` for all entries of a tape, by its name: words alone would find those of all tapes."""


def index_entry(tape: str, number: int, entry: TapeEntry) -> tuple[int, int, str, str] | None:
    """Return tape, id, words and folded text of an entry, for the index; None if search never looks at it."""
    if tape.startswith(SYSTEM_TAPE_PREFIX) or not (text := entry.searchable_text()):
        return None
    folded = fold_text(text)
    words = {word: None for piece, _ in split_pieces(strip_accents(folded)) for word in _words_of(piece) if word}
    found = [f"{_TAPE}{number}", *words]
    if sum(map(len, found)) > MAX_LETTERS_OF_ENTRY:
        found[1:] = [_ANYTHING]
    return number, entry.id, " ".join(found), folded


def _words_of(piece: str) -> Iterable[str]:
    return run_tokens(piece) if is_run(piece) else (stem(piece)[:MAX_LETTERS],)


def any_word(expressions: Iterable[str]) -> str:
    """Return the expression of `tsquery` for entries with one of some expressions, or with too many words to tell."""
    return " | ".join([*(f"({each})" for each in expressions), f"'{_ANYTHING}'"])


def all_words(matcher: Matcher) -> str:
    """Return the `tsquery` expression that every accepted entry matches; empty if the filters have no word."""
    query = matcher.query
    parts: list[str] = []
    for text in (query.phrase_text, query.words_text):
        parts += [part for word in [*tokens(strip_accents(fold_text(text)))][:MAX_WORDS] for part in _parts_of(word)]
    return " & ".join(dict.fromkeys(parts))


def term_expressions(text: str) -> dict[str, str]:
    """Return the expression of `tsquery` for each term of a question; see `list_terms`."""
    return {term: " & ".join(_parts_of(term)) for term in list_terms(text)}


def _parts_of(word: str) -> Iterable[str]:
    """Yield the expressions that an entry has which holds a word, or a part of a run."""
    if not is_run(word):
        yield _quote(stem(word)[:MAX_LETTERS])
    elif len(word) == 1:
        yield f"{_quote(word)}:*"  # it begins a pair, or is the last of its run
    else:
        yield from map(_quote, run_pairs(word))


def _quote(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
