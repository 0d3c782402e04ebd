"""Which texts hold the words of a query with spelling mistakes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rapidfuzz import process
from rapidfuzz.distance import OSA

from bubbot.tape.words import edits_of, is_run, is_spelt, plain, tokens


class Alike(NamedTuple):
    """A piece of a text that stands for a word, and the mistakes by which they differ."""

    piece: str
    mistakes: int


def misspelt(query: str, texts: Mapping[int, str]) -> dict[int, Alike]:
    """The casefolded texts that hold every word of the query, spelling mistakes allowed.

    Each comes with the piece of it that stands for the query's longest word, and the mistakes of all of them.
    """
    words = sorted(tokens(query), key=len, reverse=True)
    own = {place: tokens(text) for place, text in texts.items()}
    vocabulary = dict.fromkeys(token for some in own.values() for token in some)
    found = dict.fromkeys(texts, Alike("", 0)) if words else {}
    for word in words:
        near = alike(word, vocabulary)
        best = {place: _best(near, own[place]) for place in found}
        found = {
            place: Alike(first.piece or piece.piece, first.mistakes + piece.mistakes)
            for place, first in found.items()
            if (piece := best[place])
        }
    return found


def _best(near: Mapping[str, Alike], own: Iterable[str]) -> Alike | None:
    return min((near[token] for token in own if token in near), key=lambda one: one.mistakes, default=None)


def alike(word: str, vocabulary: Iterable[str]) -> dict[str, Alike]:
    """The tokens that may stand for a word, each with the piece of it that does."""
    if is_run(word):
        return {token: found for token in vocabulary if is_run(token) and (found := _window(word, token))}
    bare = plain(word)
    if not is_spelt(word):
        return {token: Alike(token, int(token != word)) for token in vocabulary if _same(word, bare, token)}
    edits = edits_of(word)
    near = {token: Alike(token, 0) for token in vocabulary if word in token}
    choices = {token: plain(token) for token in vocabulary if _comparable(bare, token, edits)}
    close = process.extract(bare, choices, scorer=OSA.distance, score_cutoff=edits, limit=None)
    return {token: Alike(token, max(1, int(mistakes))) for _, mistakes, token in close} | near


def _same(word: str, bare: str, token: str) -> bool:
    """A short word, or one with a digit, has to be there as it is; accents do not count."""
    return token == word or (bare == token if token.isascii() else bare == plain(token))


def _comparable(bare: str, token: str, edits: int) -> bool:
    """Lengths first. Words of four letters are alike too often: theirs has to be the same first letter."""
    if len(token) < 4 or abs(len(token) - len(bare)) > edits:
        return False
    return len(bare) > 4 or plain(token[0]) == bare[0]


def _window(word: str, run: str) -> Alike | None:
    """The window of a run that is the word, one character wrong or two swapped from four on; or nothing."""
    if word in run:
        return Alike(word, 0)
    size = len(word)
    third = -(-size // 3)
    # One mistake touches two of three pieces at most, so one of them has to be there as it is.
    if size < 4 or not any(word[at : at + third] in run for at in range(0, size, third)):
        return None
    windows = (run[at : at + size] for at in range(len(run) - size + 1))
    return next((Alike(one, 1) for one in windows if OSA.distance(word, one, score_cutoff=1) <= 1), None)
