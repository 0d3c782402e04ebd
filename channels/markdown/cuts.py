"""Where a text may be cut: at a paragraph, else a line, a sentence, a word, and last between any two characters."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TypeAlias

from wcwidth import grapheme_boundary_before

Measure: TypeAlias = Callable[[str], int]
"""The length of a text as the platform counts it: at least one and at most two for each character."""
Ranges: TypeAlias = Sequence[tuple[int, int]]
"""Starts and ends, ascending and apart."""
LONGEST_CLUSTER = 64
"""Code points that are kept together as one character at most; longer ones are cut like text."""
_SPACE = re.compile(r"(?<=\S)\s+")
_INK = re.compile(r"\S")
_SENTENCE = re.compile(r"(?:[.!?…]+[\"'”’)\]]*(?=\s)|[。！？…]+[」』”’）\"']*)")


@dataclass(frozen=True, slots=True)
class TextCut:
    """A piece ends before `end`; the next one begins at `begin`. What lies between is white space."""

    end: int
    begin: int


def boundary(text: str, at: int) -> bool:
    """Whether the text may be parted there without tearing a character as people see it."""
    if not 0 < at < len(text):
        return True
    before, after = text[at - 1], text[at]
    if before < "\u0300" and after < "\u0300":
        return True
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return False
    low = max(0, at - LONGEST_CLUSTER)
    return grapheme_boundary_before(text[low : at + 1], at + 1 - low) == at - low


def furthest(text: str, start: int, limit: int, measure: Measure) -> int:
    """The largest end for which the text from `start` measures no more than `limit`."""
    low, high = start, min(len(text), start + limit)
    while low < high:
        middle = (low + high + 1) // 2
        if measure(text[start:middle]) <= limit:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(frozen=True, slots=True)
class TextCutter:
    """Finds the cuts of one text.

    `exact` are the ranges whose white space counts (code): there only the line end at the cut goes. `whole` are those
    that are better not cut (addresses, inline code). `allowed` may refuse a cut.
    """

    text: str
    measure: Measure
    exact: Ranges = ()
    whole: Ranges = ()
    allowed: Callable[[TextCut], bool] | None = None

    def cut(self, start: int, limit: int, *, before: int | None = None) -> TextCut:
        """The best cut after `start` for a piece that measures at most `limit`, and ends at `before` at the latest.

        A place in the first quarter is taken only where nothing else but tearing a word is left.
        """
        return self.gentle(start, limit, before=before) or self._anywhere(start, self._last(start, limit, before))

    def gentle(self, start: int, limit: int, *, before: int | None = None) -> TextCut | None:
        """The same, or None where a word or a line of code would have to be torn."""
        last = self._last(start, limit, before)
        for least in (start + max(1, (last - start) // 4), start + 1):
            for found in self._places(start, last):
                if found.end >= least and found.begin > start and (self.allowed is None or self.allowed(found)):
                    return found
        return None

    def _last(self, start: int, limit: int, before: int | None) -> int:
        last = furthest(self.text, start, limit, self.measure)
        return last if before is None else min(last, before)

    def _places(self, start: int, last: int) -> Iterator[TextCut]:
        spaces = list(_SPACE.finditer(self.text, start, min(len(self.text), last + LONGEST_CLUSTER)))
        blank = [match for match in spaces if "\n" in match[0]]
        first = max(0, bisect_right(self.exact, (start, -1)) - 1)
        code = [end for _, end in takewhile(lambda found: found[0] < last, islice(self.exact, first, None))]
        yield from self._outside([*code, *(match.start() for match in blank if match[0].count("\n") > 1)], start, last)
        yield from self._outside([match.start() for match in blank], start, last)
        yield from self._lines_of_code(start, last)
        sentences = _SENTENCE.finditer(self.text, start, min(len(self.text), last + 1))
        for places in ([match.end() for match in sentences], [match.start() for match in spaces]):
            yield from self._outside([at for at in places if not inside(self.whole, at)], start, last)

    def _outside(self, places: Sequence[int], start: int, last: int) -> Iterator[TextCut]:
        """The places that are not in code, the last one first."""
        for at in sorted(places, reverse=True):
            if start < at <= last and not inside(self.exact, at):
                found = self._trimmed(start, at)
                if boundary(self.text, found.end) and boundary(self.text, found.begin):
                    yield found

    def _lines_of_code(self, start: int, last: int) -> Iterator[TextCut]:
        at = self.text.rfind("\n", start, last + 1)
        while at > start:
            if inside(self.exact, at):
                yield TextCut(at, at + 1)
            at = self.text.rfind("\n", start, at)

    def _trimmed(self, start: int, at: int) -> TextCut:
        """A cut without the white space around it, but with the indentation of the line that follows."""
        end = at
        index = bisect_right(self.exact, (at, -1))
        low = max(start, self.exact[index - 1][1]) if index else start
        high = self.exact[index][0] if index < len(self.exact) else len(self.text)
        while end > low and self.text[end - 1].isspace():
            end -= 1
        found = _INK.search(self.text, at, high)
        begin = found.start() if found else high
        return TextCut(end, begin if begin == len(self.text) else self.text.rfind("\n", at, begin) + 1 or begin)

    def _anywhere(self, start: int, last: int) -> TextCut:
        for at in range(last, start, -1):
            found = TextCut(at, at)
            if boundary(self.text, at) and (self.allowed is None or self.allowed(found)):
                return found
        torn = max(last, start + 1)
        pair = self.text[torn - 1 : torn + 1]
        halves = len(pair) == 2 and "\ud800" <= pair[0] <= "\udbff" and "\udc00" <= pair[1] <= "\udfff"
        at = torn - 1 if halves and torn - 1 > start else torn + halves
        return TextCut(at, at)


def inside(ranges: Ranges, at: int) -> bool:
    """Whether the place has something of one range on both sides."""
    index = bisect_right(ranges, (at, -1)) - 1
    return index >= 0 and ranges[index][0] < at < ranges[index][1]
