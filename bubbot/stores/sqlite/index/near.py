"""FTS5 expressions for misspelt words: each word becomes the spellings that the vocabulary has for it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from math import log10

from bubbot.stores.sqlite.index.exact import terms_containing
from bubbot.stores.sqlite.index.tokens import (
    ENDING_MARK,
    LONG_WORD_MARK,
    MAX_TOKEN_LETTERS,
    drop_each_letter,
    hashes,
    phrase,
    run_tokens,
    trigrams,
)
from bubbot.tape.spelling import find_alike, max_edits
from bubbot.tape.words import is_run, is_spelt, strip_accents, tokens

MAX_SPELLINGS = 16
"""The most spellings to search for a word: the closest, and of equally close ones the most frequent."""
_LONG_RUN_LETTERS = 12
_HASHES_PER_STATEMENT = 500  # in one statement


def expressions_for(conn: sqlite3.Connection, text: str) -> list[str]:
    """Build FTS5 expressions for entries that hold every word of the folded text.

    Return one for all words, or one for each spelling of a single word, best first; none if a word has no spelling.
    """
    words = sorted(tokens(text), key=len, reverse=True)
    if len(words) == 1:
        return (
            _run_expressions(words[0])
            if is_run(words[0])
            else [phrase((spelling,)) for spelling in find_spellings(conn, words[0])]
        )
    parts = []
    for word in words:
        part = " OR ".join(
            _run_expressions(word) if is_run(word) else [phrase((spelling,)) for spelling in find_spellings(conn, word)]
        )
        if not part:
            return []
        parts.append(f"({part})")
    return [" AND ".join(parts)] if parts else []


def find_spellings(conn: sqlite3.Connection, word: str) -> list[str]:
    """Find the terms that a word may mean, best first."""
    if len(word) > MAX_TOKEN_LETTERS:
        return [LONG_WORD_MARK]
    mistakes = {word: 0.0} if _is_term(conn, word) else {}
    bare = strip_accents(word)
    if not is_spelt(word):
        return [
            *mistakes,
            *(term for term in _find_by_hash(conn, [bare]) if term != word and strip_accents(term) == bare),
        ]
    mistakes |= dict.fromkeys(terms_containing(conn, word, MAX_SPELLINGS) or (), 0.0)
    mistakes |= _rate(word, _find_by_deletion(conn, bare))
    if max_edits(len(bare), len(bare) + 2) > 1 and min(mistakes.values(), default=2.0) > 1:
        mistakes |= _rate(word, _find_by_grams(conn, bare))
    return sorted(mistakes, key=lambda term: mistakes[term] - _frequency(conn, term))[:MAX_SPELLINGS]


def _rate(word: str, terms: Iterable[str]) -> dict[str, float]:
    return {term: match.mistakes for term, match in find_alike(word, terms).items()}


def _is_term(conn: sqlite3.Connection, word: str) -> bool:
    return conn.execute("SELECT 1 FROM term WHERE term = ?", (word,)).fetchone() is not None


def _frequency(conn: sqlite3.Connection, term: str) -> float:
    """Score a term by its frequency: ten times as frequent is half a mistake closer."""
    row = conn.execute("SELECT df FROM term WHERE term = ?", (term,)).fetchone()
    return 0.5 * log10(1 + row[0]) if row else 0.0


def _find_by_deletion(conn: sqlite3.Connection, bare: str) -> list[str]:
    """Find terms that equal the word with one letter left out of either.

    If two mistakes are allowed, two letters may be left out of the word.
    """
    forms = [bare, *drop_each_letter(bare)]
    if max_edits(len(bare), len(bare) + 1) > 1:
        forms += [shorter for form in forms[1:] for shorter in drop_each_letter(form)]
    return _find_by_hash(conn, forms)


def _find_by_hash(conn: sqlite3.Connection, forms: list[str]) -> list[str]:
    all_hashes = sorted(set(hashes(forms)))
    terms: dict[str, None] = {}
    for start in range(0, len(all_hashes), _HASHES_PER_STATEMENT):
        part = all_hashes[start : start + _HASHES_PER_STATEMENT]
        marks = ", ".join("?" * len(part))
        rows = conn.execute(
            f"SELECT DISTINCT term.term FROM tdel JOIN term ON term.id = tdel.term WHERE hash IN ({marks})", part
        )
        terms |= dict.fromkeys(row[0] for row in rows)
    return list(terms)


def _find_by_grams(conn: sqlite3.Connection, bare: str) -> list[str]:
    """Find terms of similar length that share three letters in a row: two mistakes rarely spare none."""
    grams = dict.fromkeys([*trigrams(bare), bare[-3:] + ENDING_MARK])
    sql = (
        "SELECT term FROM gram CROSS JOIN term ON term.id = gram.rowid WHERE gram MATCH ? "
        "AND length(term) BETWEEN ? AND ?"
    )
    expression = " OR ".join(phrase((gram,)) for gram in grams)
    return [row[0] for row in conn.execute(sql, (expression, len(bare) - 2, len(bare) + 2))]


def _run_expressions(run: str) -> list[str]:
    """Build expressions for a run, the most specific first.

    From four characters on, one of them may be wrong, or two swapped.
    """
    size = len(run)
    if size < 4:
        return [phrase(_pairs(run), prefix=size == 1)]
    if size > _LONG_RUN_LETTERS:
        third = -(-size // 3)
        return [phrase(_pairs(run[at : at + third])) for at in range(0, size, third) if size - at > 1]
    splits = sorted({(run[:at], run[at + wide :]) for at in range(size) for wide in (1, 2) if at + wide <= size})
    # A single character is in too many texts to search for it.
    long_parts = [tuple(part for part in parts if len(part) > 1) for parts in splits]
    by_size: dict[int, list[str]] = {}
    for parts in dict.fromkeys(parts for parts in long_parts if parts):
        by_size.setdefault(sum(map(len, parts)), []).append(" AND ".join(phrase(_pairs(part)) for part in parts))
    return [
        " OR ".join(f"({expression})" for expression in by_size[length]) for length in sorted(by_size, reverse=True)
    ]


def _pairs(run: str) -> list[str]:
    run_pairs = list(run_tokens(run))
    return run_pairs if len(run) == 1 else run_pairs[:-1]
