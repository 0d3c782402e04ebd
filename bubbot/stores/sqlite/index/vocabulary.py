"""The vocabulary of an index: the tokens of texts, and the terms that a word may be a part of, or a mistake for.

FTS5 sees only the words between spaces that this module makes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log10
from zlib import crc32

from bubbot.tape.spelling import LONG_WORD_LETTERS, find_alike, max_edits
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
"""The most spellings of a word that are looked for at first, the closest and most frequent; some times as many then."""
_HUGE_WORD_LETTERS = 1000
_ENDING_MARK = "\ue000"  # after the last letters of a term among its trigrams
_LAST = "\U0010ffff"
_VALUES_PER_STATEMENT = 500


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


def deletions(term: str) -> set[int]:
    """Hash the forms under which a misspelt term is found: without accents, and with one letter left out.

    Words one mistake apart share one form. A short word is not misspelt, only typed without its accents.
    """
    bare = strip_accents(term)
    if is_spelt(term):
        return _hashes([bare, *_drop_each_letter(bare)])
    return set() if bare == term else _hashes([bare])


def phrase(tokens: Iterable[str], *, prefix: bool = False) -> str:
    """Build an FTS5 phrase of tokens, which never contain a quote. `prefix`: the last may go on."""
    return f'"{" ".join(tokens)}"{" *" if prefix else ""}'


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The terms of an index.

    Attributes:
        conn: the index file.
    """

    conn: sqlite3.Connection

    def containing(self, part: str, limit: int = MAX_TERMS) -> list[str] | None:
        """Find the terms that contain the part; None if there may be too many."""
        return self._with_grams(part, _covering_trigrams(part), "instr(term, ?1) > 0", limit)

    def ending(self, part: str) -> list[str] | None:
        """Find the terms that end with the part; None if there are too many."""
        ends = [*_covering_trigrams(part)[:-1], part[-3:] + _ENDING_MARK]
        return self._with_grams(part, ends, "substr(term, -length(?1)) = ?1", MAX_TERMS)

    def beginning(self, part: str) -> list[str] | None:
        """Find the terms that begin with the part; None if there are too many."""
        start = part[:MAX_TOKEN_LETTERS]
        sql = "SELECT term FROM term WHERE term >= ? AND term < ? LIMIT ?"
        rows = self.conn.execute(sql, (start, start + _LAST, MAX_TERMS + 1)).fetchall()
        return None if len(rows) > MAX_TERMS else [row[0] for row in rows]

    def frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        """Count the entries of each term that there is."""
        return dict(self._select("SELECT term, df FROM term WHERE term IN", terms))

    def spellings(self, word: str, *, distant: bool = False) -> dict[str, float]:
        """Find the terms that a word may mean, the closest and most frequent first, and the mistakes of each.

        Ten times as frequent is half a mistake closer. Without `distant` all terms with one mistake are found and most
        with two, which takes less time.
        """
        word = word[:MAX_TOKEN_LETTERS]
        bare = strip_accents(word)
        terms = {word, *self._by_deletion(word, bare)}
        if is_spelt(word):
            terms.update(self.containing(word, MAX_SPELLINGS) or ())
            if distant and max_edits(len(bare), len(bare) + 2) > 1:
                terms.update(self._similar(bare))
        alike = find_alike(word, terms)
        counts = self.frequencies(list(alike))
        rated = sorted(counts, key=lambda term: alike[term].mistakes - 0.5 * log10(1 + counts[term]))
        return {term: alike[term].mistakes for term in rated}

    def _by_deletion(self, word: str, bare: str) -> list[str]:
        """Find terms that have a form in common with the word.

        Two words with one mistake between them have one if a letter is left out of each, or of one. If two mistakes are
        allowed, two letters are left out of the word.
        """
        forms = [bare]
        if is_spelt(word):
            forms += _drop_each_letter(bare)
            if max_edits(len(bare), len(bare) + 1) > 1:
                forms += [shorter for form in forms[1:] for shorter in _drop_each_letter(form)]
        sql = "SELECT DISTINCT term.term FROM tdel JOIN term ON term.id = tdel.term WHERE hash IN"
        return [row[0] for row in self._select(sql, sorted(_hashes(forms)))]

    def _similar(self, bare: str) -> list[str]:
        """Find the terms that may be two mistakes away.

        Two mistakes mostly leave three letters in a row as they are. They may leave none of a short word, so that is
        compared with all of similar length.
        """
        lengths = (len(bare) - 2, len(bare) + 2)
        if len(bare) <= LONG_WORD_LETTERS:
            sql = "SELECT term FROM term INDEXED BY term_length WHERE length(term) BETWEEN ? AND ?"
            return [row[0] for row in self.conn.execute(sql, lengths)]
        expression = " OR ".join(phrase((gram,)) for gram in dict.fromkeys(grams(bare)))
        rows = self.conn.execute(
            "SELECT term FROM gram CROSS JOIN term ON term.id = gram.rowid WHERE gram MATCH ? "
            "AND length(term) BETWEEN ? AND ?",
            (expression, *lengths),
        )
        return [row[0] for row in rows]

    def _with_grams(self, part: str, part_grams: list[str], condition: str, limit: int) -> list[str] | None:
        if len(part) < 3:
            return None
        if len(part) > MAX_TOKEN_LETTERS:
            return []
        rows = self.conn.execute(
            f"SELECT term FROM gram CROSS JOIN term ON term.id = gram.rowid WHERE gram MATCH ?2 AND {condition} LIMIT ?3",
            (part, _all_grams(part_grams), limit + 1),
        ).fetchall()
        return None if len(rows) > limit else [row[0] for row in rows]

    def _select(self, sql: str, values: Sequence[object]) -> Iterator[tuple[str, int]]:
        for start in range(0, len(values), _VALUES_PER_STATEMENT):
            part = values[start : start + _VALUES_PER_STATEMENT]
            yield from self.conn.execute(f"{sql} ({', '.join('?' * len(part))})", part).fetchall()


def _all_grams(texts: Iterable[str]) -> str:
    return " AND ".join(phrase((gram,)) for gram in dict.fromkeys(texts))


def _covering_trigrams(text: str) -> list[str]:
    """Pick enough trigrams of a text to cover it: each is a list to go through, and the texts are compared anyway."""
    return [*(text[at : at + 3] for at in range(0, len(text) - 3, 3)), text[-3:]]


def _drop_each_letter(word: str) -> list[str]:
    return [word[:at] + word[at + 1 :] for at in range(len(word))]


def _hashes(words: Iterable[str]) -> set[int]:
    return {crc32(word.encode("utf-8", "surrogatepass")) for word in words}
