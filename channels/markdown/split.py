"""Splitting of long answers into pieces that fit a platform; marks are closed and reopened at each cut."""

from __future__ import annotations

from bisect import bisect_right

from channels.markdown.cuts import Measure, TextCutter
from channels.markdown.marked_text import MarkedText, count_utf16_units, extract_part, limit_marks


def split_marked(
    marked: MarkedText, limit: int, measure: Measure = count_utf16_units, *, max_marks: int | None = None
) -> list[MarkedText]:
    """Split a text into pieces, in order.

    Between two pieces only white space is dropped; within code only the line end at the cut. A text that fits is one
    unchanged piece; no piece is only white space. No character is torn, unless it alone is longer than `limit` or has
    more than 64 code points.

    Args:
        marked: the text and its marks.
        limit: the largest measure of a piece, at least 2.
        measure: the platform's count of its length.
        max_marks: marks in a piece; None for no limit.

    Raises:
        ValueError: `limit` is less than 2.
    """
    if limit < 2:
        raise ValueError(f"limit is {limit}: a piece has to hold at least one character; use 2 or more")
    text = marked.text
    cutter = TextCutter(
        text,
        measure,
        code_ranges=[(mark.start, mark.end) for mark in marked.marks if mark.kind == "pre"],
        unbreakable_ranges=[(mark.start, mark.end) for mark in marked.marks if mark.kind in ("code", "link")],
    )
    starts = sorted(mark.start for mark in marked.marks)
    pieces: list[MarkedText] = []
    start = 0
    while start < len(text):
        before = _find_excess_mark(marked, starts, start, limit, max_marks)
        if before is None and len(text) - start <= limit and measure(text[start:]) <= limit:
            end, begin = len(text), len(text)
        else:
            cut = cutter.cut(start, limit, before=before)
            end, begin = cut.end, cut.begin
        if text[start:end].strip():
            piece = extract_part(marked, start, end)
            pieces.append(piece if max_marks is None else limit_marks(piece, max_marks))
        start = begin
    return pieces


def _find_excess_mark(marked: MarkedText, starts: list[int], start: int, limit: int, most: int | None) -> int | None:
    """Return the start of the first mark beyond `most`; None if there is none, or too close for a separate piece."""
    if most is None or len(starts) <= most:
        return None
    reaching = sum(mark.start < start < mark.end for mark in marked.marks)
    index = bisect_right(starts, start - 1) + max(0, most - reaching)
    if index >= len(starts) or starts[index] < start + limit // 8:
        return None
    return starts[index]
