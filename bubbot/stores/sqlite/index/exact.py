"""From a text to what FTS5 is asked for the entries that hold it: all of them, and some that do not."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from bubbot.stores.sqlite.index.tokens import (
    END,
    HUGE,
    LONG_WORD_MARK,
    MAX_TOKEN_LETTERS,
    WITHIN,
    phrase,
    run_tokens,
    some_trigrams,
)
from bubbot.tape.words import is_run, is_symbol, pieces

ANY_OF = 400
"""Terms that one look-up takes at most; each costs FTS5 a cursor."""
_MANY = 5000  # the same, of the terms that have a part in them
_READ = 26  # entries read for a page of hits, times what one costs, divided by what a cursor costs
_PAIRS = 64  # combinations of a first and a last word that are looked up as phrases
_NEXT = "\U0010ffff"
_NOWHERE = "\ue000n"  # a token that no entry has


@dataclass(frozen=True, slots=True)
class _TextPieces:
    """The pieces of a text. Its first may be the end of a longer word, its last the beginning of one; `alone` may be
    any part of one; `goes_on`: the last of `inner` is a character after which a run may go on."""

    inner: tuple[str, ...] = ()
    first: str = ""
    last: str = ""
    alone: str = ""
    goes_on: bool = False


def plan(conn: sqlite3.Connection, text: str, entries: int) -> str | None:
    """The FTS5 expression for a folded text; None where it says too little, and reading everything is better.

    `entries`: how many are indexed.
    """
    found = _cut(text)
    if found.alone:
        return _within(conn, found.alone, entries)
    firsts = _endings(conn, found.first) if found.first else None
    lasts = _beginnings(conn, found.last) if found.last else None
    if len(firsts or ("",)) * len(lasts or ("",)) <= _PAIRS:
        either = _phrases(found, firsts, lasts)
    else:
        either = _all([_any(firsts) if firsts is not None else "", *_rest(found, lasts)])
    if firsts is not None:  # the end of a long word does not stand beside what follows it
        end = _any(firsts) if len(found.first) <= MAX_TOKEN_LETTERS else ""
        either = f"({either}) OR ({_all([end, _any([LONG_WORD_MARK]), *_rest(found, lasts)])})"
    return either or None


def _within(conn: sqlite3.Connection, part: str, entries: int) -> str | None:
    """A text within one word. A cursor for each term costs as much as reading some five entries: where the terms are
    many and frequent, the newest entries that hold one are read sooner than found."""
    terms = containing(conn, part, _MANY)
    if terms is None:
        return None
    if len(terms) > ANY_OF:
        marks = ", ".join("?" * len(terms))
        times = conn.execute(f"SELECT sum(df) FROM term WHERE term IN ({marks})", terms).fetchone()[0]
        if len(terms) * times > _READ * entries:
            return None
    return _any([*terms, HUGE if len(part) <= WITHIN else LONG_WORD_MARK])


def _phrases(found: _TextPieces, firsts: list[str] | None, lasts: list[str] | None) -> str:
    """Every combination of a first word, what is between, and a last one."""
    between = found.inner
    some = [
        (*one, *between, *other)
        for one in ([()] if firsts is None else [(term,) for term in firsts])
        for other in ([()] if lasts is None else [(term,) for term in lasts])
    ]
    if not some:
        return _any([_NOWHERE])
    return " OR ".join(phrase(tokens, prefix=found.goes_on) for tokens in some if tokens)


def _rest(found: _TextPieces, lasts: list[str] | None) -> list[str]:
    """What has to be there besides the first word."""
    core = phrase(found.inner, prefix=found.goes_on) if found.inner else ""
    return [core, "" if lasts is None else _any(lasts)]


def _all(parts: list[str]) -> str:
    return " AND ".join(f"({part})" for part in parts if part)


def _cut(text: str) -> _TextPieces:
    """The pieces of the text by what is known of them."""
    found = pieces(text)
    inner: list[str] = []
    first = last = ""
    goes_on = False
    for place, (piece, start) in enumerate(found):
        begins, ends = start == 0, place == len(found) - 1 and start + len(piece) == len(text)
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
    return " OR ".join(phrase((one,)) for one in terms or [_NOWHERE])


def containing(conn: sqlite3.Connection, part: str, most: int = ANY_OF) -> list[str] | None:
    """The terms with the part in them; None where there may be too many."""
    if len(part) < 3:
        return None
    if len(part) > MAX_TOKEN_LETTERS:
        return []
    return _looked_up(conn, some_trigrams(part), "instr(term, ?1) > 0", part, most)


def _endings(conn: sqlite3.Connection, part: str) -> list[str] | None:
    """The terms that end with the part; None where there are too many."""
    if len(part) < 3:
        return None
    if len(part) > MAX_TOKEN_LETTERS:
        return []
    wanted = [*some_trigrams(part)[:-1], part[-3:] + END]
    return _looked_up(conn, wanted, "substr(term, -length(?1)) = ?1", part, ANY_OF)


def _beginnings(conn: sqlite3.Connection, part: str) -> list[str] | None:
    """The terms that begin with the part; None where there are too many."""
    known = part[:MAX_TOKEN_LETTERS]
    rows = conn.execute(
        "SELECT term FROM term WHERE term >= ? AND term < ? LIMIT ?", (known, known + _NEXT, ANY_OF + 1)
    ).fetchall()
    return None if len(rows) > ANY_OF else [row[0] for row in rows]


def _looked_up(conn: sqlite3.Connection, wanted: list[str], condition: str, part: str, most: int) -> list[str] | None:
    expression = " AND ".join(phrase((one,)) for one in dict.fromkeys(wanted))
    rows = conn.execute(
        f"SELECT term FROM gram CROSS JOIN term ON term.id = gram.rowid WHERE gram MATCH ?2 AND {condition} LIMIT ?3",
        (part, expression, most + 1),
    ).fetchall()
    return None if len(rows) > most else [row[0] for row in rows]
