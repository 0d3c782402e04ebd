"""Cuts of a text, in order of preference: at a paragraph, a line, a sentence, a word, between any two characters."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, takewhile
from typing import TypeAlias

from msgspec import Struct
from wcwidth import grapheme_boundary_before

Measure: TypeAlias = Callable[[str], int]
"""The length of a text as the platform counts it: one or two for each character."""
Ranges: TypeAlias = Sequence[tuple[int, int]]
"""Starts and ends, in ascending order and without overlap."""
MAX_CLUSTER_CODE_POINTS = 64
"""Code points that stay together as one character; longer clusters are cut like text."""
_SPACE = re.compile(r"(?<=\S)\s+")
_INK = re.compile(r"\S")
_SENTENCE = re.compile(r"(?:[.!?…]+[\"'”’)\]]*(?=\s)|[。！？…]+[」』”’）\"']*)")


class TextCut(Struct, frozen=True):
    """A place to cut: a piece ends before `end`, the next one begins at `begin`; between them is white space."""

    end: int
    begin: int


def is_boundary(text: str, at: int) -> bool:
    """Return true if a cut at `at` tears no character as people see it."""
    if not 0 < at < len(text):
        return True
    before, after = text[at - 1], text[at]
    if before < "\u0300" and after < "\u0300":
        return True
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return False
    low = max(0, at - MAX_CLUSTER_CODE_POINTS)
    return grapheme_boundary_before(text[low : at + 1], at + 1 - low) == at - low


def find_end(text: str, start: int, limit: int, measure: Measure) -> int:
    """Find the largest end for which the text from `start` measures at most `limit`."""
    low, high = start, min(len(text), start + limit)
    while low < high:
        middle = (low + high + 1) // 2
        if measure(text[start:middle]) <= limit:
            low = middle
        else:
            high = middle - 1
    return low


class TextCutter(Struct, frozen=True):
    """A finder of cuts in one text.

    Attributes:
        measure: the platform's count of its length.
        code_ranges: ranges whose white space counts (code); a cut there drops only its line end.
        unbreakable_ranges: ranges to keep in one piece if possible (addresses, inline code).
        is_allowed: a check that may refuse a cut; None accepts every cut.
    """

    text: str
    measure: Measure
    code_ranges: Ranges = ()
    unbreakable_ranges: Ranges = ()
    is_allowed: Callable[[TextCut], bool] | None = None

    def cut(self, start: int, limit: int, *, before: int | None = None) -> TextCut:
        """Find the best cut after `start` for a piece that measures at most `limit` and ends at or before `before`.

        A cut in the first quarter is used only if the alternative is to tear a word.
        """
        return self.cut_gently(start, limit, before=before) or self._cut_anywhere(
            start, self._find_last(start, limit, before)
        )

    def cut_gently(self, start: int, limit: int, *, before: int | None = None) -> TextCut | None:
        """Find the best cut as `cut` does; return None if it would tear a word or a line of code."""
        last = self._find_last(start, limit, before)
        for min_end in (start + max(1, (last - start) // 4), start + 1):
            for cut in self._iterate_cuts(start, last):
                if cut.end >= min_end and cut.begin > start and (self.is_allowed is None or self.is_allowed(cut)):
                    return cut
        return None

    def _find_last(self, start: int, limit: int, before: int | None) -> int:
        last = find_end(self.text, start, limit, self.measure)
        return last if before is None else min(last, before)

    def _iterate_cuts(self, start: int, last: int) -> Iterator[TextCut]:
        spaces = list(_SPACE.finditer(self.text, start, min(len(self.text), last + MAX_CLUSTER_CODE_POINTS)))
        breaks = [match for match in spaces if "\n" in match[0]]
        first = max(0, bisect_right(self.code_ranges, (start, -1)) - 1)
        code = [end for _, end in takewhile(lambda span: span[0] < last, islice(self.code_ranges, first, None))]
        paragraphs = [match.start() for match in breaks if match[0].count("\n") > 1]
        yield from self._cuts_outside_code([*code, *paragraphs], start, last)
        yield from self._cuts_outside_code([match.start() for match in breaks], start, last)
        yield from self._cuts_in_code(start, last)
        sentences = _SENTENCE.finditer(self.text, start, min(len(self.text), last + 1))
        for places in ([match.end() for match in sentences], [match.start() for match in spaces]):
            yield from self._cuts_outside_code(
                [at for at in places if not is_inside(self.unbreakable_ranges, at)], start, last
            )

    def _cuts_outside_code(self, places: Sequence[int], start: int, last: int) -> Iterator[TextCut]:
        """Yield a cut for each place that is not in code, the last one first."""
        for at in sorted(places, reverse=True):
            if start < at <= last and not is_inside(self.code_ranges, at):
                cut = self._trim(start, at)
                if is_boundary(self.text, cut.end) and is_boundary(self.text, cut.begin):
                    yield cut

    def _cuts_in_code(self, start: int, last: int) -> Iterator[TextCut]:
        at = self.text.rfind("\n", start, last + 1)
        while at > start:
            if is_inside(self.code_ranges, at):
                yield TextCut(at, at + 1)
            at = self.text.rfind("\n", start, at)

    def _trim(self, start: int, at: int) -> TextCut:
        """Cut without the white space around it, but keep the indentation of the line that follows."""
        end = at
        index = bisect_right(self.code_ranges, (at, -1))
        low = max(start, self.code_ranges[index - 1][1]) if index else start
        high = self.code_ranges[index][0] if index < len(self.code_ranges) else len(self.text)
        while end > low and self.text[end - 1].isspace():
            end -= 1
        ink = _INK.search(self.text, at, high)
        begin = ink.start() if ink else high
        return TextCut(end, begin if begin == len(self.text) else self.text.rfind("\n", at, begin) + 1 or begin)

    def _cut_anywhere(self, start: int, last: int) -> TextCut:
        for at in range(last, start, -1):
            cut = TextCut(at, at)
            if is_boundary(self.text, at) and (self.is_allowed is None or self.is_allowed(cut)):
                return cut
        torn = max(last, start + 1)
        pair = self.text[torn - 1 : torn + 1]
        halves = len(pair) == 2 and "\ud800" <= pair[0] <= "\udbff" and "\udc00" <= pair[1] <= "\udfff"
        at = torn - 1 if halves and torn - 1 > start else torn + halves
        return TextCut(at, at)


def is_inside(ranges: Ranges, at: int) -> bool:
    """Return true if one range has characters on both sides of `at`."""
    index = bisect_right(ranges, (at, -1)) - 1
    return index >= 0 and ranges[index][0] < at < ranges[index][1]
