"""FTS5 expressions for a text: they match every entry that holds it, and some that do not."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from bubbot.stores.sqlite.index.tokens import (
    ENDING_MARK,
    HUGE_WORD_MARK,
    LONG_WORD_MARK,
    MAX_PART_LETTERS,
    MAX_TOKEN_LETTERS,
    covering_trigrams,
    phrase,
    run_tokens,
)
from bubbot.tape.words import is_run, is_symbol, split_pieces

MAX_TERMS = 400
"""The most terms in one look-up; each costs FTS5 a cursor."""
_MAX_CONTAINING_TERMS = 5000  # the same limit for terms that contain a given part
_ENTRIES_PER_CURSOR = 26  # entries read for a page of hits, times the cost of one, divided by the cost of a cursor
_MAX_COMBINATIONS = 64  # the most combinations of a first and a last word to look up as phrases
_NEXT = "\U0010ffff"
_NOWHERE = "\ue000n"  # a token that no entry has


@dataclass(frozen=True, slots=True)
class _TextPieces:
    """The pieces of a text.

    Attributes:
        inner: complete pieces.
        first: perhaps the end of a longer word; empty if there is none.
        last: perhaps the beginning of a longer word; empty if there is none.
        alone: perhaps any part of a longer word; then there is no other piece.
        goes_on: the last of `inner` is a character after which a run may go on.
    """

    inner: tuple[str, ...] = ()
    first: str = ""
    last: str = ""
    alone: str = ""
    goes_on: bool = False


def expression_for(conn: sqlite3.Connection, text: str, entries: int) -> str | None:
    """Build the FTS5 expression for a folded text; None if it is too unspecific, so that a scan is faster.

    `entries`: how many are indexed.
    """
    text_pieces = _cut_text(text)
    if text_pieces.alone:
        return _within(conn, text_pieces.alone, entries)
    firsts = _terms_ending(conn, text_pieces.first) if text_pieces.first else None
    lasts = _terms_beginning(conn, text_pieces.last) if text_pieces.last else None
    if len(firsts or ("",)) * len(lasts or ("",)) <= _MAX_COMBINATIONS:
        expression = _phrases(text_pieces, firsts, lasts)
    else:
        expression = _all([_any(firsts) if firsts is not None else "", *_other_conditions(text_pieces, lasts)])
    if firsts is not None:  # the end of a long word is not adjacent to the next token
        end = _any(firsts) if len(text_pieces.first) <= MAX_TOKEN_LETTERS else ""
        expression = (
            f"({expression}) OR ({_all([end, _any([LONG_WORD_MARK]), *_other_conditions(text_pieces, lasts)])})"
        )
    return expression or None


def _within(conn: sqlite3.Connection, part: str, entries: int) -> str | None:
    """Build the expression for a text within a single word; None if a scan is faster.

    A cursor for each term costs as much as reading some five entries: if the terms are many and frequent, reading the
    newest entries finds enough hits sooner.
    """
    terms = terms_containing(conn, part, _MAX_CONTAINING_TERMS)
    if terms is None:
        return None
    if len(terms) > MAX_TERMS:
        marks = ", ".join("?" * len(terms))
        times = conn.execute(f"SELECT sum(df) FROM term WHERE term IN ({marks})", terms).fetchone()[0]
        if len(terms) * times > _ENTRIES_PER_CURSOR * entries:
            return None
    return _any([*terms, HUGE_WORD_MARK if len(part) <= MAX_PART_LETTERS else LONG_WORD_MARK])


def _phrases(text_pieces: _TextPieces, firsts: list[str] | None, lasts: list[str] | None) -> str:
    """Combine every first word, the pieces between, and every last word into phrases."""
    between = text_pieces.inner
    combinations = [
        (*first, *between, *last)
        for first in ([()] if firsts is None else [(term,) for term in firsts])
        for last in ([()] if lasts is None else [(term,) for term in lasts])
    ]
    if not combinations:
        return _any([_NOWHERE])
    return " OR ".join(phrase(tokens, prefix=text_pieces.goes_on) for tokens in combinations if tokens)


def _other_conditions(text_pieces: _TextPieces, lasts: list[str] | None) -> list[str]:
    """Build the conditions besides the first word."""
    core = phrase(text_pieces.inner, prefix=text_pieces.goes_on) if text_pieces.inner else ""
    return [core, "" if lasts is None else _any(lasts)]


def _all(parts: list[str]) -> str:
    return " AND ".join(f"({part})" for part in parts if part)


def _cut_text(text: str) -> _TextPieces:
    """Cut the text into its pieces and classify them."""
    all_pieces = split_pieces(text)
    inner: list[str] = []
    first = last = ""
    goes_on = False
    for number, (piece, start) in enumerate(all_pieces):
        begins, ends = start == 0, number == len(all_pieces) - 1 and start + len(piece) == len(text)
        if is_run(piece):
            tokens = list(run_tokens(piece))
            goes_on = ends and len(piece) == 1
            inner += tokens[:-1] if ends and not goes_on else tokens
        elif is_symbol(piece):
            inner.append(piece)
        elif begins and ends:
            return _TextPieces(alone=piece)
        elif begins:
            first = piece
        elif ends:
            last = piece
        else:
            inner.append(piece[:MAX_TOKEN_LETTERS])
    return _TextPieces(tuple(inner), first, last, goes_on=goes_on)


def _any(terms: list[str]) -> str:
    return " OR ".join(phrase((term,)) for term in terms or [_NOWHERE])


def terms_containing(conn: sqlite3.Connection, part: str, limit: int = MAX_TERMS) -> list[str] | None:
    """Find the terms that contain the part; None if there may be too many."""
    if len(part) < 3:
        return None
    if len(part) > MAX_TOKEN_LETTERS:
        return []
    return _find_terms(conn, covering_trigrams(part), "instr(term, ?1) > 0", part, limit)


def _terms_ending(conn: sqlite3.Connection, part: str) -> list[str] | None:
    """Find the terms that end with the part; None if there are too many."""
    if len(part) < 3:
        return None
    if len(part) > MAX_TOKEN_LETTERS:
        return []
    grams = [*covering_trigrams(part)[:-1], part[-3:] + ENDING_MARK]
    return _find_terms(conn, grams, "substr(term, -length(?1)) = ?1", part, MAX_TERMS)


def _terms_beginning(conn: sqlite3.Connection, part: str) -> list[str] | None:
    """Find the terms that begin with the part; None if there are too many."""
    start = part[:MAX_TOKEN_LETTERS]
    rows = conn.execute(
        "SELECT term FROM term WHERE term >= ? AND term < ? LIMIT ?", (start, start + _NEXT, MAX_TERMS + 1)
    ).fetchall()
    return None if len(rows) > MAX_TERMS else [row[0] for row in rows]


def _find_terms(conn: sqlite3.Connection, grams: list[str], condition: str, part: str, limit: int) -> list[str] | None:
    expression = " AND ".join(phrase((gram,)) for gram in dict.fromkeys(grams))
    rows = conn.execute(
        f"SELECT term FROM gram CROSS JOIN term ON term.id = gram.rowid WHERE gram MATCH ?2 AND {condition} LIMIT ?3",
        (part, expression, limit + 1),
    ).fetchall()
    return None if len(rows) > limit else [row[0] for row in rows]
