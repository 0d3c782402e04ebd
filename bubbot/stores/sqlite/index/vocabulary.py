"""The vocabulary of an index: the tokens of texts, and the terms that a word may be a part of, or a mistake for.

FTS5 sees only the words between spaces that this module makes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, log10
from zlib import crc32

import aiosqlite

from bubbot.tape.spelling import LONG_WORD_LETTERS, MAX_MISTAKES, find_alike
from bubbot.tape.words import is_run, is_spelt, is_symbol, split_pieces, strip_accents

MAX_TOKEN_LETTERS = 40
"""Letters of a term. A longer word has its beginning as a term, and windows of this length that overlap by half: a part
no longer than `MAX_PART_LETTERS` lies within one of them."""
MAX_PART_LETTERS = MAX_TOKEN_LETTERS // 2
LONG_WORD_MARK = "\ue000l"
"""The token of an entry with a longer word. Private characters: no text has such a token."""
HUGE_WORD_MARK = "\ue000h"
"""The token of an entry with a word that is too long for windows, such as a file in letters."""
MAX_TERMS = 400
"""The most terms in one look-up; each costs FTS5 a cursor."""
MAX_SPELLINGS = 16
"""The most terms that hold a misspelt word as their part and are looked for."""
_TERMS_PER_ENTRY = 40_000
"""Terms of a vocabulary from which on a spelling that may be chance has to stand in more than one entry."""
_GROWTH = 0.9  # how fast the entries grow with the terms
_CHANCE_LETTERS = 4
_MAX_HALF_LETTERS = 8
_HUGE_WORD_LETTERS = 1000
_ENDING_MARK = "\ue000"  # after the last letters of a term among its trigrams
_LAST = "\U0010ffff"
VALUES_PER_STATEMENT = 500


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
    return [*(term[at : at + 3] for at in range(len(term) - 2)), term[-3:] + _ENDING_MARK] if len(term) >= 3 else []


def misspelt_forms(term: str) -> set[int]:
    """Hash the forms under which a misspelt term is found: without accents, and with one letter left out.

    Words one mistake apart share one form. Of two mistakes at least one half of a long term has one at most (two letters
    swapped in the middle are one wrong letter for each half), so its halves have the forms.
    """
    bare = strip_accents(term)
    if not is_spelt(term):
        return set() if bare == term else _hashes([bare])
    short = len(bare) < LONG_WORD_LETTERS
    return _hashes([bare, *_drop_each_letter(bare)] if short else _half_forms(bare, len(bare)))


def _typed_forms(word: str) -> set[int]:
    """Hash the forms that a typed word shares with every term that it may be meant for."""
    bare = strip_accents(word)
    if not is_spelt(word):
        return _hashes([bare])
    size, forms = len(bare), [bare]
    if size <= LONG_WORD_LETTERS:  # a short term has one letter less, or more
        forms += _drop_each_letter(bare)
    for meant in range(max(LONG_WORD_LETTERS, size - MAX_MISTAKES), size + MAX_MISTAKES + 1):
        forms += _half_forms(bare, meant)
    return _hashes(forms)


def _half_forms(word: str, size: int) -> list[str]:
    """List the forms of the two halves of a word of about this size; only those for an equal size meet.

    They are the halves with one letter left out. That serves for every mistake: with a letter too many, the other's half
    ends one letter later.
    """
    letters = min(size // 2, _MAX_HALF_LETTERS)
    halves = (word[:letters], word[::-1][:letters])
    return [f"{side} {size} {form}" for side, half in enumerate(halves) for form in _drop_each_letter(half)]


def phrase(tokens: Iterable[str], *, prefix: bool = False) -> str:
    """Build an FTS5 phrase of tokens, which never contain a quote. `prefix`: the last may go on."""
    return f'"{" ".join(tokens)}"{" *" if prefix else ""}'


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The terms of an index.

    Attributes:
        conn: the index file.
    """

    conn: aiosqlite.Connection

    async def containing(self, part: str, limit: int = MAX_TERMS) -> dict[str, int] | None:
        """Find the terms that contain the part, with the entries of each; None if there may be too many."""
        return await self._with_grams(part, _covering_trigrams(part), "instr(term, :part) > 0", limit)

    async def ending(self, part: str) -> list[str] | None:
        """Find the terms that end with the part; None if there are too many."""
        ends = [*_covering_trigrams(part)[:-1], part[-3:] + _ENDING_MARK]
        terms = await self._with_grams(part, ends, "substr(term, -length(:part)) = :part", MAX_TERMS)
        return None if terms is None else list(terms)

    async def beginning(self, part: str) -> list[str] | None:
        """Find the terms that begin with the part; None if there are too many."""
        start = part[:MAX_TOKEN_LETTERS]
        sql = "SELECT term FROM term WHERE term >= ? AND term < ? LIMIT ?"
        rows = [*await self.conn.execute_fetchall(sql, (start, start + _LAST, MAX_TERMS + 1))]
        return None if len(rows) > MAX_TERMS else [row[0] for row in rows]

    async def spellings(self, word: str, *, is_alone: bool = False) -> dict[str, float]:
        """Find the terms that a word may mean, the closest and most frequent first, and the mistakes of each.

        Ten times as frequent is half a mistake closer. `is_alone`: no other word of the query confirms it, so terms that
        are close by chance are left out.
        """
        starts = _possible_terms(word)
        forms = set().union(*map(_typed_forms, starts))
        sql = "SELECT term, df FROM term WHERE id IN (SELECT term FROM form WHERE hash IN {})"
        counts = await self._select(sql, sorted(forms))
        counts |= await self._select("SELECT term, df FROM term WHERE term IN {}", [word])
        if is_spelt(word):
            counts |= await self.containing(word, MAX_SPELLINGS) or {}
        mistakes: dict[str, float] = {}
        for start in starts:
            for term, match in find_alike(start, counts).items():
                mistakes[term] = min(match.mistakes, mistakes.get(term, match.mistakes))
        if is_alone:
            least = (await self._count_terms() / _TERMS_PER_ENTRY) ** _GROWTH
            mistakes = {
                term: number
                for term, number in mistakes.items()
                if counts[term] * _unlikeliness(word, term, number) >= least
            }
        rated = sorted(mistakes, key=lambda term: mistakes[term] - 0.5 * log10(1 + counts[term]))
        return {term: mistakes[term] for term in rated}

    async def _count_terms(self) -> int:
        ((count,),) = await self.conn.execute_fetchall("SELECT coalesce(max(id), 0) FROM term")
        return int(count)

    async def _with_grams(self, part: str, part_grams: list[str], condition: str, limit: int) -> dict[str, int] | None:
        if len(part) < 3:
            return None
        if len(part) > MAX_TOKEN_LETTERS:
            return {}
        rows = await self.conn.execute_fetchall(
            f"SELECT term, df FROM gram CROSS JOIN term ON term.id = gram.rowid WHERE gram MATCH :grams AND {condition} LIMIT :limit",
            {"part": part, "grams": _all_grams(part_grams), "limit": limit + 1},
        )
        found = dict(map(tuple, rows))
        return None if len(found) > limit else found

    async def _select(self, sql: str, values: Sequence[object]) -> dict[str, int]:
        found: dict[str, int] = {}
        for start in range(0, len(values), VALUES_PER_STATEMENT):
            part = values[start : start + VALUES_PER_STATEMENT]
            rows = await self.conn.execute_fetchall(sql.format(f"({', '.join('?' * len(part))})"), part)
            found.update(map(tuple, rows))
        return found


def _unlikeliness(word: str, term: str, mistakes: float) -> float:
    """Return how unlikely it is that a word is so close to a term by chance: four times for each letter they share.

    Each mistake makes up for one of them. So a letter left out is better evidence than a wrong one, of which there are
    many more. Accents and swapped letters, which are less than a mistake, are no chance.
    """
    if not mistakes or not float(mistakes).is_integer():
        return inf
    shared = Counter(strip_accents(word)) & Counter(strip_accents(term))
    return 4.0 ** max(0, shared.total() - _CHANCE_LETTERS - int(mistakes))


def _all_grams(texts: Iterable[str]) -> str:
    return " AND ".join(phrase((gram,)) for gram in dict.fromkeys(texts))


def _covering_trigrams(text: str) -> list[str]:
    """Pick enough trigrams of a text to cover it: each is a list to go through, and the texts are compared anyway."""
    return [*(text[at : at + 3] for at in range(0, len(text) - 3, 3)), text[-3:]]


def _possible_terms(word: str) -> list[str]:
    """Cut a word to the lengths at which a term of a long one, with its mistakes, may end."""
    if len(word) <= MAX_TOKEN_LETTERS - MAX_MISTAKES:
        return [word]
    ends = range(MAX_TOKEN_LETTERS - MAX_MISTAKES, MAX_TOKEN_LETTERS + MAX_MISTAKES + 1)
    return list(dict.fromkeys(word[:end] for end in ends))


def _drop_each_letter(word: str) -> list[str]:
    return [word[:at] + word[at + 1 :] for at in range(len(word))]


def _hashes(words: Iterable[str]) -> set[int]:
    return {crc32(word.encode("utf-8", "surrogatepass")) for word in words}
