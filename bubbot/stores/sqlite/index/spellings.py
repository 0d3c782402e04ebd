"""The words of the texts that a misspelt word may be meant for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from math import inf

import aiosqlite

from bubbot.stores.sqlite.index.tokens import MAX_TOKEN_LETTERS
from bubbot.tape.spelling import MAX_MISTAKES, find_alike
from bubbot.tape.words import is_spelt, strip_accents

MAX_SPELLINGS = 96
"""The most words that a misspelt word is taken for: the closest, and of equally close ones the most frequent."""
TERMS_PER_ENTRY = 40_000
"""Words of an index from which on a spelling that may be chance has to stand in more than one entry."""
_GROWTH = 0.9  # how fast the entries grow with the words
_CHANCE_LETTERS = 4
_WORDS_PER_STATEMENT = 200


async def find_spellings(conn: aiosqlite.Connection, word: str, *, is_alone: bool = False) -> dict[str, float]:
    """Find the words of the index that a folded word may mean, and the mistakes of each; itself for one of few letters.

    `is_alone`: no other word of the query confirms it, so words that are close by chance are left out.
    """
    bare = strip_accents(word)
    if not is_spelt(bare):
        return {bare: 0.0}
    start = bare[:MAX_TOKEN_LETTERS]
    mistakes = await asyncio.to_thread(_measure_close, start, await _read_words(conn, len(start)))
    if len(start) == len(bare):
        mistakes = {near: match.mistakes for near, match in find_alike(bare, mistakes).items()}
    counts = await _count_entries(conn, [*mistakes])
    if is_alone:
        ((terms,),) = await conn.execute_fetchall("SELECT coalesce(max(id), 0) FROM term")
        least = (terms / TERMS_PER_ENTRY) ** _GROWTH
        mistakes = {
            near: number
            for near, number in mistakes.items()
            if counts[near] * _unlikeliness(bare, near, number) >= least
        }
    best = sorted(mistakes, key=lambda near: (mistakes[near], -counts[near]))[:MAX_SPELLINGS]
    return {near: mistakes[near] for near in best}


async def _read_words(conn: aiosqlite.Connection, letters: int) -> str:
    """Read the words of about this length, with spaces between them: most of the time would go into rows."""
    lengths = letters - MAX_MISTAKES, letters + MAX_MISTAKES
    rows = await conn.execute_fetchall(
        "SELECT group_concat(word, ' ') FROM term WHERE letters BETWEEN ? AND ?", lengths
    )
    ((text,),) = rows
    return text or ""


def _measure_close(word: str, words: str) -> dict[str, float]:
    """Return the words that are close to one, with the distance of each.

    Of a word as long as tokens are, the end may be missing: each letter more or less before it is a mistake there, too.
    """
    from rapidfuzz import process  # only a search needs it
    from rapidfuzz.distance import OSA

    most = MAX_MISTAKES if len(word) < MAX_TOKEN_LETTERS else 2 * MAX_MISTAKES
    choices = words.split(" ")
    return {
        near: far for near, far, _ in process.extract(word, choices, scorer=OSA.distance, score_cutoff=most, limit=None)
    }


async def _count_entries(conn: aiosqlite.Connection, words: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for start in range(0, len(words), _WORDS_PER_STATEMENT):
        some = words[start : start + _WORDS_PER_STATEMENT]
        pairs = ", ".join(["(?, ?)"] * len(some))
        rows = await conn.execute_fetchall(
            f"SELECT word, entries FROM term WHERE (letters, word) IN (VALUES {pairs})",
            [value for word in some for value in (len(word), word)],
        )
        found.update((word, count) for word, count in rows)
    return found


def _unlikeliness(word: str, term: str, mistakes: float) -> float:
    """Return how unlikely it is that a word is so close to a term by chance: four times for each letter they share.

    Each mistake makes up for one of them. So a letter left out is better evidence than a wrong one, of which there are
    many more. Swapped letters, which are less than a mistake, are no chance.
    """
    if not mistakes or not float(mistakes).is_integer():
        return inf
    shared = Counter(word) & Counter(term)
    return 4.0 ** max(0, shared.total() - _CHANCE_LETTERS - int(mistakes))
