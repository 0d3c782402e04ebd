"""Texts that contain the words of a query with spelling mistakes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from bubbot.tape.words import is_run, is_spelt, stem, strip_accents, tokens

T = TypeVar("T")
LONG_WORD_LETTERS = 8
"""Letters from which a word may have two mistakes."""
MAX_MISTAKES = 2
"""Spelling mistakes allowed in a long word."""
CLOSER_TURNS = 4
"""How many of the closest spellings precede each one that is less close: it may be the intended one."""


class SpellingMatch(NamedTuple):
    """A piece of a text that stands for a word, and the number of mistakes between them.

    An accent counts half a mistake, two swapped letters somewhat less than one: they hardly occur by chance.
    """

    piece: str
    mistakes: float


def find_misspelt(query: str, texts: Mapping[int, str]) -> dict[int, SpellingMatch]:
    """Find the casefolded texts that contain every word of the query, spelling mistakes allowed.

    Each comes with the piece that matches the query's longest word, and the mistakes of all words.
    """
    words = sorted(tokens(query), key=len, reverse=True)
    text_tokens = {place: tokens(text) for place, text in texts.items()}
    vocabulary = dict.fromkeys(token for text_words in text_tokens.values() for token in text_words)
    matches = dict.fromkeys(texts, SpellingMatch("", 0)) if words else {}
    for word in words:
        near = find_alike(word, vocabulary)
        best = {place: _best(near, text_tokens[place]) for place in matches}
        matches = {
            place: SpellingMatch(first.piece or piece.piece, first.mistakes + piece.mistakes)
            for place, first in matches.items()
            if (piece := best[place])
        }
    return matches


def share_room(levels: Sequence[Sequence[T]], room: int) -> list[T]:
    """Choose `room` items: the first level gets all it needs, or four fifths; the next levels share the rest likewise."""
    if not levels or room <= 0:
        return []
    first = levels[0]
    others = share_room(levels[1:], room - len(first) if len(first) <= room else room // (CLOSER_TURNS + 1))
    return [*first[: room - len(others)], *others]


class WordFilter:
    """Decides for one text or many at once if it has every word of a query; compares each word only once.

    `find` tells which tokens stand for a word: `find_alike` for spelling mistakes, `find_stems` for other endings.
    """

    def __init__(self, query: str, find: Callable[[str, Collection[str]], Collection[str]]) -> None:
        self._words = {word: _KnownTokens(find) for word in tokens(query)}

    def matches(self, texts: Iterable[str]) -> bool:
        """Return true if the casefolded texts together have every word of the query."""
        text_tokens = {token for text in texts for token in tokens(text)}
        return bool(self._words) and all(known.have(word, text_tokens) for word, known in self._words.items())


@dataclass
class _KnownTokens:
    find: Callable[[str, Collection[str]], Collection[str]]
    compared: set[str] = field(default_factory=set)
    alike: set[str] = field(default_factory=set)

    def have(self, word: str, text_tokens: Set[str]) -> bool:
        if new := text_tokens - self.compared:
            self.compared |= new
            self.alike.update(self.find(word, new))
        return not self.alike.isdisjoint(text_tokens)


def _best(near: Mapping[str, SpellingMatch], words: Iterable[str]) -> SpellingMatch | None:
    return min((near[token] for token in words if token in near), key=lambda match: match.mistakes, default=None)


def find_stems(word: str, vocabulary: Collection[str]) -> list[str]:
    """Find the tokens that are the word with this or another ending; of a run those that contain it."""
    if is_run(word):
        return [token for token in vocabulary if word in token]
    first, own = strip_accents(word[:1]), stem(word)
    return [
        token
        for token in vocabulary
        if (token[:1] == first or not token.isascii()) and not is_run(token) and stem(token) == own
    ]


def find_alike(word: str, vocabulary: Collection[str]) -> dict[str, SpellingMatch]:
    """Find the tokens that may stand for a word, each with the matching piece."""
    if is_run(word):
        return {token: match for token in vocabulary if is_run(token) and (match := _window(word, token))}
    bare = strip_accents(word)
    if not is_spelt(word):
        return {token: SpellingMatch(token, 0.5 * (token != word)) for token in vocabulary if _same(word, bare, token)}
    near = {token: SpellingMatch(token, 0) for token in vocabulary if word in token}
    shortest, longest = len(bare) - MAX_MISTAKES, len(bare) + MAX_MISTAKES
    choices = {
        token: strip_accents(token)
        for token in vocabulary
        if shortest <= len(token) <= longest and _comparable(bare, token)
    }
    if not choices:
        return near
    # Imported here, as below: forty modules that only a search needs.
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    close = process.extract(bare, choices, scorer=OSA.distance, score_cutoff=MAX_MISTAKES, limit=None)
    return {
        token: SpellingMatch(token, _mistakes(bare, form, mistakes))
        for form, mistakes, token in close
        if mistakes <= max_edits(len(form))
    } | near


def max_edits(meant: int) -> int:
    """Return the spelling mistakes allowed in a word of so many letters: one, or two if it is long."""
    return MAX_MISTAKES if meant >= LONG_WORD_LETTERS else 1


def _same(word: str, bare: str, token: str) -> bool:
    """Return true if a short word, or one with a digit, is there unchanged except for accents."""
    return token == word or (bare == token if token.isascii() else bare == strip_accents(token))


def _comparable(bare: str, token: str) -> bool:
    """Return true if lengths fit. Words of four letters also need the same first letter: too many are alike."""
    if len(token) < 4 or abs(len(token) - len(bare)) > max_edits(len(token)):
        return False
    return len(bare) > 4 or strip_accents(token[0]) == bare[0]


def _mistakes(bare: str, form: str, mistakes: float) -> float:
    if not mistakes:
        return 0.5
    return mistakes - 0.3 if len(bare) == len(form) and sorted(bare) == sorted(form) else mistakes


def _window(word: str, run: str) -> SpellingMatch | None:
    """Return the window of a run that matches the word, or None; from four characters on one may be wrong, or two
    swapped.
    """
    if word in run:
        return SpellingMatch(word, 0)
    size = len(word)
    third = -(-size // 3)
    # One mistake touches at most two of three pieces, so one of them must be unchanged.
    if size < 4 or not any(word[at : at + third] in run for at in range(0, size, third)):
        return None
    from rapidfuzz.distance import OSA

    windows = (run[at : at + size] for at in range(len(run) - size + 1))
    return next(
        (SpellingMatch(window, 1) for window in windows if OSA.distance(word, window, score_cutoff=1) <= 1), None
    )
