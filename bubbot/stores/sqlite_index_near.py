"""From misspelt words to what FTS5 is asked: each word as the spellings the vocabulary has for it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from math import log10

from rapidfuzz import process
from rapidfuzz.distance import OSA

from bubbot.stores.sqlite_index_exact import containing
from bubbot.stores.sqlite_index_tokens import END, LONGEST, hashes, one_less, phrase, run_tokens, trigrams
from bubbot.tape.words import edits_of, is_run, is_spelt, plain, tokens

SPELLINGS = 16
"""Spellings of a word that are looked for: the closest, and of those the most frequent."""
_LONG_RUN = 12
_CLOSE = 4000  # terms that are compared with a word
_HASHES = 500  # in one statement
_NEXT = "\U0010ffff"


def plan(conn: sqlite3.Connection, text: str) -> str | None:
    """The FTS5 expression for entries that hold every word of the folded text; None where one of them is nowhere."""
    parts = []
    for word in sorted(tokens(text), key=len, reverse=True):
        part = _run(word) if is_run(word) else _word(conn, word)
        if part is None:
            return None
        parts.append(f"({part})")
    return " AND ".join(parts) or None


def _word(conn: sqlite3.Connection, word: str) -> str | None:
    found = spellings(conn, word)
    return " OR ".join(phrase((one,)) for one in found) if found else None


def spellings(conn: sqlite3.Connection, word: str) -> list[str]:
    """The terms that may be meant by a word, best first."""
    if len(word) > LONGEST:
        return [word[:LONGEST]]
    found = {word: 0.0} if _is_term(conn, word) else {}
    bare = plain(word)
    if not is_spelt(word):
        return [*found, *(term for term in _accented(conn, bare) if term != word)]
    found |= dict.fromkeys(containing(conn, word, SPELLINGS) or (), 1.0)
    edits = edits_of(word)
    close = _compared(bare, _by_deletion(conn, bare, edits), edits)
    if edits > 1 and not close and not found:
        close = _compared(bare, _by_pieces(conn, bare, edits), edits)
    found = close | found
    if not found:
        return []
    ranked = sorted(found, key=lambda term: found[term] - _frequency(conn, term))
    return ranked[:SPELLINGS]


def _is_term(conn: sqlite3.Connection, word: str) -> bool:
    return conn.execute("SELECT 1 FROM term WHERE term = ?", (word,)).fetchone() is not None


def _frequency(conn: sqlite3.Connection, term: str) -> float:
    """Ten times as frequent is half a mistake closer."""
    row = conn.execute("SELECT df FROM term WHERE term = ?", (term,)).fetchone()
    return 0.5 * log10(1 + row[0]) if row else 0.0


def _compared(bare: str, terms: Iterable[str], edits: int) -> dict[str, float]:
    """The terms within so many mistakes of a word without accents. Those of four letters begin with its letter."""
    choices = {term: plain(term) for term in terms if len(bare) > 4 or plain(term[0]) == bare[0]}
    close = process.extract(bare, choices, scorer=OSA.distance, score_cutoff=edits, limit=None)
    return {term: float(mistakes) for _, mistakes, term in close}


def _accented(conn: sqlite3.Connection, bare: str) -> list[str]:
    """Of a short word: what differs in accents alone."""
    return [term for term in _hashed(conn, [bare]) if plain(term) == bare]


def _by_deletion(conn: sqlite3.Connection, bare: str, edits: int) -> list[str]:
    """Terms that are the word, one letter left out of either; with two mistakes, two left out of the word."""
    forms = [bare, *one_less(bare)]
    if edits > 1:
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


def _by_pieces(conn: sqlite3.Connection, bare: str, edits: int) -> list[str]:
    """Terms of nearly its length that share its beginning, its end, or what is between: two mistakes spare one of them."""
    low, high = len(bare) - edits, len(bare) + edits
    begins = "SELECT term FROM term WHERE term >= ? AND term < ? AND length(term) BETWEEN ? AND ? LIMIT ?"
    found = dict.fromkeys(row[0] for row in conn.execute(begins, (bare[:3], bare[:3] + _NEXT, low, high, _CLOSE)))
    sharing = (
        "SELECT term FROM gram CROSS JOIN term ON term.id = gram.rowid WHERE gram MATCH ? "
        "AND length(term) BETWEEN ? AND ? LIMIT ?"
    )
    middle = trigrams(bare[3:-3]) or trigrams(bare[2:-2])
    for wanted in ([bare[-3:] + END], middle):
        expression = " AND ".join(phrase((one,)) for one in wanted)
        found |= dict.fromkeys(row[0] for row in conn.execute(sharing, (expression, low, high, _CLOSE)))
    return list(found)


def _run(run: str) -> str | None:
    """A run as it is; from four characters on with one of them wrong, or two swapped."""
    size = len(run)
    if size < 4:
        return phrase(_pairs(run), prefix=size == 1)
    if size > _LONG_RUN:
        third = -(-size // 3)
        return " OR ".join(phrase(_pairs(run[at : at + third])) for at in range(0, size, third) if size - at > 1)
    kept = {(run[:at], run[at + wide :]) for at in range(size) for wide in (1, 2) if at + wide <= size}
    either = [
        " AND ".join(phrase(_pairs(part)) for part in parts if len(part) > 1)
        for parts in sorted(kept)
        if any(len(part) > 1 for part in parts)
    ]
    return " OR ".join(f"({one})" for one in dict.fromkeys(either))


def _pairs(run: str) -> list[str]:
    tokens_of = list(run_tokens(run))
    return tokens_of if len(run) == 1 else tokens_of[:-1]
