"""Ranking: which texts bear on a question, by the words that they share with it.

It is BM25 as FTS5 has it, over stems of words and pairs of characters of scripts without spaces. What a person said counts
more than what a model wrote: a model repeats and elaborates, and says the same words more often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import log

from msgspec import Struct

from bubbot.tape.entry import TapeEntry, is_said_by_person
from bubbot.tape.words import fold_text, is_run, run_pairs, run_tokens, split_pieces, stem, strip_accents

MAX_TERMS = 48
"""Words of a question that are looked for, the longest first."""
FREQUENT_ENTRIES = 80
FREQUENT_SHARE = 0.05
"""A word that stands in more entries of a tape than `FREQUENT_ENTRIES`, and in more than this share of them, orders what
other words find and finds nothing itself: else each message would bring something."""
PERSON_WEIGHT = 2.0
"""How much more it counts if a person said it."""
LEAST_SHARE = 0.4
"""What scores less than this share of the best bears on the question by chance."""
_SATURATION, _LENGTH = 1.2, 0.75  # k1 and b of BM25
_LEAST_IDF = 1e-6


def list_terms(text: str) -> list[str]:
    """List the different words of a question, longest first; runs without spaces as pairs of characters."""
    pieces = (piece for piece, _ in split_pieces(strip_accents(fold_text(text))))
    terms = dict.fromkeys(term for piece in pieces for term in _terms_of(piece))
    return sorted(terms, key=len, reverse=True)[:MAX_TERMS]


def _terms_of(piece: str) -> Iterable[str]:
    return run_pairs(piece) if is_run(piece) else (piece,)


def is_frequent(count: int, entries: int) -> bool:
    """Return true if a word that is in so many of the entries of a tape says nothing by itself."""
    return count > max(FREQUENT_ENTRIES, FREQUENT_SHARE * entries)


class _Occurrences(Struct, frozen=True):
    """The terms of a question in one text, and the number of all its words."""

    terms: Mapping[str, int]
    words: int

    @classmethod
    def of(cls, text: str, stems: Mapping[str, str]) -> _Occurrences:
        """Count the terms in a text. `stems`: the term of each stem."""
        pieces = [term for piece, _ in split_pieces(strip_accents(fold_text(text))) for term in _indexed_as(piece)]
        initials = {term[:1] for term in stems}
        found = Counter(stems.get(stem(piece)) for piece in pieces if piece[:1] in initials)
        return cls({term: count for term, count in found.items() if term}, len(pieces))


def _indexed_as(piece: str) -> Iterable[str]:
    return run_tokens(piece) if is_run(piece) else (piece,)


def score_texts(
    terms: Sequence[str],
    texts: Mapping[int, str],
    counts: Mapping[str, int] | None = None,
    others: int = 0,
    size: int | None = None,
) -> dict[int, float]:
    """Score the texts that have a term that is not frequent, by BM25 over all terms.

    Args:
        terms: of `list_terms`.
        texts: by id.
        counts: how many other texts have each term.
        others: the number of other texts.
        size: the number of entries of the tape, for what is frequent, if others of it are not among the texts.
    """
    stems = {stem(term): term for term in terms}
    found = {number: _Occurrences.of(text, stems) for number, text in texts.items()}
    having = Counter(counts or {})
    own = Counter(term for each in found.values() for term in each.terms)
    finding = {term for term, count in own.items() if not is_frequent(count, len(texts) if size is None else size)}
    having.update(own)
    total = others + len(texts)
    mean = sum(each.words for each in found.values()) / max(1, len(found)) or 1.0
    weights = {term: max(_LEAST_IDF, log((total - n + 0.5) / (n + 0.5))) for term, n in having.items() if n <= total}
    return {
        number: sum(
            weights.get(term, _LEAST_IDF) * _saturate(count, each.words / mean) for term, count in each.terms.items()
        )
        for number, each in found.items()
        if any(term in finding for term in each.terms)
    }


def _saturate(count: int, length: float) -> float:
    return count * (_SATURATION + 1) / (count + _SATURATION * (1 - _LENGTH + _LENGTH * length))


def score_entries(
    text: str,
    entries: Iterable[TapeEntry],
    counts: Mapping[str, int] | None = None,
    others: int = 0,
    size: int | None = None,
) -> dict[int, float]:
    """Score the entries that share words with a text, by their ids. `counts`, `others` and `size`: see `score_texts`."""
    by_id = {entry.id: entry for entry in entries}
    texts = {number: entry.searchable_text() for number, entry in by_id.items()}
    scores = score_texts(list_terms(text), texts, counts, others, size)
    return {number: score * _weigh(by_id[number]) for number, score in scores.items()}


def _weigh(entry: TapeEntry) -> float:
    return PERSON_WEIGHT if is_said_by_person(entry.kind, entry.payload) else 1.0


def order_scores(scores: Mapping[int, float]) -> list[int]:
    """Return the ids best first, and of equals the highest, without those that are far below the best."""
    least = LEAST_SHARE * max(scores.values(), default=0.0)
    near = [number for number, score in scores.items() if score >= least]
    return sorted(near, key=lambda number: (scores[number], number), reverse=True)
