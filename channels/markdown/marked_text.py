"""Text with marks on it: what an answer looks like, apart from how a platform says so."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

MarkKind: TypeAlias = Literal["quote", "spoiler", "bold", "italic", "strike", "link", "code", "pre"]
_OUTER_FIRST: tuple[MarkKind, ...] = ("quote", "spoiler", "bold", "italic", "strike", "link", "code", "pre")
_LEAST_FIRST: tuple[MarkKind, ...] = ("italic", "bold", "strike", "code", "quote", "pre", "spoiler", "link")
_ALONE = ("link", "code", "pre")
"""None of these may lie in another of them."""
_PLAIN = ("bold", "italic", "strike", "spoiler")
"""None of these may lie around or in `code` and `pre`."""


@dataclass(frozen=True, slots=True)
class TextMark:
    """A kind of look for the characters from `start` up to and without `end`, counted as Python does."""

    start: int
    end: int
    kind: MarkKind
    language: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class MarkedText:
    """A text and its marks, outer ones before inner ones. Two marks lie in each other or apart."""

    text: str
    marks: tuple[TextMark, ...] = ()


def utf16(text: str) -> int:
    """The length in UTF-16 code units, by which Telegram measures."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def clean(text: str) -> str:
    """The text as every platform can take it: line ends are `\\n`; NUL and half a surrogate pair are shown as `�`."""
    if not text.isascii():
        # Two halves that belong together become their character here.
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\N{REPLACEMENT CHARACTER}")


def part_of(marked: MarkedText, start: int, end: int) -> MarkedText:
    """The characters from `start` to `end` with what is on them; a mark that goes on beyond is closed there."""
    marks = tuple(
        replace(mark, start=max(mark.start, start) - start, end=min(mark.end, end) - start)
        for mark in marked.marks
        if mark.start < end and mark.end > start
    )
    return MarkedText(marked.text[start:end], marks)


def at_most(marked: MarkedText, count: int) -> MarkedText:
    """At most `count` marks: those that say least are left out, the last ones of them first."""
    if len(marked.marks) <= count:
        return marked
    order = sorted(marked.marks, key=lambda mark: (_LEAST_FIRST.index(mark.kind), -mark.start))
    left_out = set(order[: len(order) - count])
    return MarkedText(marked.text, tuple(mark for mark in marked.marks if mark not in left_out))


def settle(text: str, marks: Iterable[TextMark]) -> MarkedText:
    """Brings marks that lie in each other or apart into the form that platforms allow.

    Of links and code in each other the outer one stays; code in a spoiler is only hidden; bold and the like stop
    before code and go on after it; one kind in itself is one mark.
    """
    ordered = sorted((mark for mark in marks if mark.end > mark.start), key=_outer_first)
    hidden = [(mark.start, mark.end) for mark in ordered if mark.kind == "spoiler"]
    alone = list(
        _outermost(
            mark for mark in ordered if mark.kind in _ALONE and not (mark.kind == "code" and _within(hidden, mark))
        )
    )
    holes = [(mark.start, mark.end) for mark in alone if mark.kind != "link"]
    settled = [*alone, *_outermost(mark for mark in ordered if mark.kind == "quote")]
    for kind in _PLAIN:
        for mark in _outermost(mark for mark in ordered if mark.kind == kind):
            settled += _around(mark, holes)
    return MarkedText(text, tuple(sorted(settled, key=_outer_first)))


def _outer_first(mark: TextMark) -> tuple[int, int, int]:
    return mark.start, -mark.end, _OUTER_FIRST.index(mark.kind)


def _outermost(ordered: Iterable[TextMark]) -> Iterator[TextMark]:
    end = 0
    for mark in ordered:
        if mark.start >= end:
            end = mark.end
            yield mark


def _within(apart: Sequence[tuple[int, int]], mark: TextMark) -> bool:
    before = bisect_right(apart, (mark.start, mark.end)) - 1
    return any(start <= mark.start and mark.end <= end for start, end in apart[max(0, before) : before + 2])


def _around(mark: TextMark, holes: Sequence[tuple[int, int]]) -> Iterator[TextMark]:
    start = mark.start
    for low, high in holes[max(0, bisect_right(holes, (mark.start, mark.start)) - 1) :]:
        if low >= mark.end:
            break
        if low > start:
            yield replace(mark, start=start, end=low)
        start = max(start, high)
    if start < mark.end:
        yield replace(mark, start=start)
