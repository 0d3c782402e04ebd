"""Text with marks: the look of an answer, independent of any platform's format."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from bubbot.formatting import clean

MarkKind: TypeAlias = Literal["quote", "spoiler", "bold", "italic", "underline", "strike", "link", "code", "pre"]
_OUTER_FIRST: tuple[MarkKind, ...] = (
    "quote",
    "spoiler",
    "bold",
    "italic",
    "underline",
    "strike",
    "link",
    "code",
    "pre",
)
_LEAST_FIRST: tuple[MarkKind, ...] = (
    "italic",
    "underline",
    "bold",
    "strike",
    "code",
    "quote",
    "pre",
    "spoiler",
    "link",
)
_EXCLUSIVE = ("link", "code", "pre")
"""Marks that may not contain each other."""
_NOT_AROUND_CODE = ("bold", "italic", "underline", "strike", "spoiler")
"""Marks that may not lie around or in `code` and `pre`."""


class TextMark(Struct, frozen=True):
    """A look of some characters.

    Attributes:
        start: index of the first character, as Python counts.
        end: index after the last character.
        language: the language of a block of code; empty if not stated.
    """

    start: int
    end: int
    kind: MarkKind
    language: str = ""
    url: str = ""


class MarkedText(Struct, frozen=True):
    """A text and its marks, outer ones before inner ones. Two marks are nested or do not overlap."""

    text: str
    marks: tuple[TextMark, ...] = ()


def count_utf16_units(text: str) -> int:
    """Count the UTF-16 code units of a text, the measure of Telegram."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def clean_text(text: str) -> str:
    """Make the text fit for every platform: line ends become `\\n`; NUL and half a surrogate pair become `�`."""
    return clean(text).replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\N{REPLACEMENT CHARACTER}")


def is_visible(text: str) -> bool:
    """Return true if the text contains a visible character."""
    return any(unicodedata.category(char) not in ("Cc", "Cf", "Zs", "Zl", "Zp") for char in text)


def extract_part(marked: MarkedText, start: int, end: int) -> MarkedText:
    """Cut out the characters from `start` to `end` with their marks; close marks that continue beyond."""
    marks = tuple(
        structs.replace(mark, start=max(mark.start, start) - start, end=min(mark.end, end) - start)
        for mark in marked.marks
        if mark.start < end and mark.end > start
    )
    return MarkedText(marked.text[start:end], marks)


def limit_marks(marked: MarkedText, max_marks: int) -> MarkedText:
    """Keep at most `max_marks` marks: drop those that tell readers least, the last ones of them first."""
    if len(marked.marks) <= max_marks:
        return marked
    order = sorted(marked.marks, key=lambda mark: (_LEAST_FIRST.index(mark.kind), -mark.start))
    dropped = set(order[: len(order) - max_marks])
    return MarkedText(marked.text, tuple(mark for mark in marked.marks if mark not in dropped))


def normalise_marks(text: str, marks: Iterable[TextMark]) -> MarkedText:
    """Normalise marks that are nested or do not overlap into the form that platforms allow.

    Of nested links and code only the outer one stays; code in a spoiler is only hidden; bold and the like stop before
    code and continue after it; one kind nested in itself is one mark.
    """
    ordered = sorted([mark for mark in marks if mark.end > mark.start], key=_outer_first)
    if not ordered:
        return MarkedText(text)
    hidden = [(mark.start, mark.end) for mark in ordered if mark.kind == "spoiler"]
    exclusive = list(
        _outermost(
            mark
            for mark in ordered
            if mark.kind in _EXCLUSIVE and not (mark.kind == "code" and _is_within(hidden, mark))
        )
    )
    holes = [(mark.start, mark.end) for mark in exclusive if mark.kind != "link"]
    settled = [*exclusive, *_outermost(mark for mark in ordered if mark.kind == "quote")]
    for kind in _NOT_AROUND_CODE:
        for mark in _outermost(mark for mark in ordered if mark.kind == kind):
            settled += _cut_out(mark, holes)
    return MarkedText(text, tuple(sorted(settled, key=_outer_first)))


def _outer_first(mark: TextMark) -> tuple[int, int, int]:
    return mark.start, -mark.end, _OUTER_FIRST.index(mark.kind)


def _outermost(ordered: Iterable[TextMark]) -> Iterator[TextMark]:
    end = 0
    for mark in ordered:
        if mark.start >= end:
            end = mark.end
            yield mark


def _is_within(ranges: Sequence[tuple[int, int]], mark: TextMark) -> bool:
    before = bisect_right(ranges, (mark.start, mark.end)) - 1
    return any(start <= mark.start and mark.end <= end for start, end in ranges[max(0, before) : before + 2])


def _cut_out(mark: TextMark, holes: Sequence[tuple[int, int]]) -> Iterator[TextMark]:
    start = mark.start
    for low, high in holes[max(0, bisect_right(holes, (mark.start, mark.start)) - 1) :]:
        if low >= mark.end:
            break
        if low > start:
            yield structs.replace(mark, start=start, end=low)
        start = max(start, high)
    if start < mark.end:
        yield structs.replace(mark, start=start)
