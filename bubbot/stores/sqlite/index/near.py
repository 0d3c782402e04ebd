"""From misspelt words to what FTS5 is asked: each word as the spellings the vocabulary has for it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from math import log10

from bubbot.stores.sqlite.index.exact import containing
from bubbot.stores.sqlite.index.tokens import (
    END,
    LONG_WORD_MARK,
    MAX_TOKEN_LETTERS,
    hashes,
    one_less,
    phrase,
    run_tokens,
    trigrams,
)
from bubbot.tape.words import is_run, is_spelt, plain, tokens
from bubbot.views.spelling import alike, edits_of

SPELLINGS = 16
"""Spellings of a word that are looked for: the closest, and of those the most frequent."""
_LONG_RUN = 12
_HASHES = 500  # in one statement


def plan(conn: sqlite3.Connection, text: str) -> list[str]:
    """FTS5 expressions for entries that hold every word of the folded text: one for all words, or one for each spelling
    of a single word, best first. None of them where a word is nowhere."""
    words = sorted(tokens(text), key=len, reverse=True)
    if len(words) == 1:
        return _run(words[0]) if is_run(words[0]) else [phrase((one,)) for one in spellings(conn, words[0])]
    parts = []
    for word in words:
        part = " OR ".join(_run(word) if is_run(word) else [phrase((one,)) for one in spellings(conn, word)])
        if not part:
            return []
        parts.append(f"({part})")
    return [" AND ".join(parts)] if parts else []


def spellings(conn: sqlite3.Connection, word: str) -> list[str]:
    """The terms that may be meant by a word, best first."""
    if len(word) > MAX_TOKEN_LETTERS:
        return [LONG_WORD_MARK]
    found = {word: 0.0} if _is_term(conn, word) else {}
    bare = plain(word)
    if not is_spelt(word):
        return [*found, *(term for term in _hashed(conn, [bare]) if term != word and plain(term) == bare)]
    found |= dict.fromkeys(containing(conn, word, SPELLINGS) or (), 0.0)
    found |= _meant(word, _by_deletion(conn, bare))
    if edits_of(len(bare), len(bare) + 2) > 1 and min(found.values(), default=2.0) > 1:
        found |= _meant(word, _by_grams(conn, bare))
    return sorted(found, key=lambda term: found[term] - _frequency(conn, term))[:SPELLINGS]


def _meant(word: str, terms: Iterable[str]) -> dict[str, float]:
    return {term: found.mistakes for term, found in alike(word, terms).items()}


def _is_term(conn: sqlite3.Connection, word: str) -> bool:
    return conn.execute("SELECT 1 FROM term WHERE term = ?", (word,)).fetchone() is not None


def _frequency(conn: sqlite3.Connection, term: str) -> float:
    """Ten times as frequent is half a mistake closer."""
    row = conn.execute("SELECT df FROM term WHERE term = ?", (term,)).fetchone()
    return 0.5 * log10(1 + row[0]) if row else 0.0


def _by_deletion(conn: sqlite3.Connection, bare: str) -> list[str]:
    """Terms that are the word with one letter left out of either; where two mistakes are allowed, two out of the word."""
    forms = [bare, *one_less(bare)]
    if edits_of(len(bare), len(bare) + 1) > 1:
        forms += [twice for once in forms[1:] for twice in one_less(once)]
    return _hashed(conn, forms)


def _hashed(conn: sqlite3.Connection, forms: list[str]) -> list[str]:
    wanted = sorted(set(hashes(forms)))
    found: dict[str, None] = {}
    for start in range(0, len(wanted), _HASHES):
        part = wanted[start : start + _HASHES]
        marks = ", ".join("?" * len(part))
        rows = conn.execute(
            f"SELECT DISTINCT term.term FROM tdel JOIN term ON term.id = tdel.term WHERE hash IN ({marks})", part
        )
        found |= dict.fromkeys(row[0] for row in rows)
    return list(found)


def _by_grams(conn: sqlite3.Connection, bare: str) -> list[str]:
    """Terms of nearly its length with which it shares three letters in a row: two mistakes rarely spare none."""
    wanted = dict.fromkeys([*trigrams(bare), bare[-3:] + END])
    sql = (
        "SELECT term FROM gram CROSS JOIN term ON term.id = gram.rowid WHERE gram MATCH ? "
        "AND length(term) BETWEEN ? AND ?"
    )
    expression = " OR ".join(phrase((one,)) for one in wanted)
    return [row[0] for row in conn.execute(sql, (expression, len(bare) - 2, len(bare) + 2))]


def _run(run: str) -> list[str]:
    """A run as it is; from four characters on with one of them wrong, or two swapped: what tells most comes first."""
    size = len(run)
    if size < 4:
        return [phrase(_pairs(run), prefix=size == 1)]
    if size > _LONG_RUN:
        third = -(-size // 3)
        return [phrase(_pairs(run[at : at + third])) for at in range(0, size, third) if size - at > 1]
    kept = sorted({(run[:at], run[at + wide :]) for at in range(size) for wide in (1, 2) if at + wide <= size})
    # One character alone is in too many texts to be asked for.
    told = [tuple(part for part in parts if len(part) > 1) for parts in kept]
    by_size: dict[int, list[str]] = {}
    for parts in dict.fromkeys(parts for parts in told if parts):
        by_size.setdefault(sum(map(len, parts)), []).append(" AND ".join(phrase(_pairs(part)) for part in parts))
    return [" OR ".join(f"({one})" for one in by_size[length]) for length in sorted(by_size, reverse=True)]


def _pairs(run: str) -> list[str]:
    tokens_of = list(run_tokens(run))
    return tokens_of if len(run) == 1 else tokens_of[:-1]
