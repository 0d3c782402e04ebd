"""Long answers in pieces that fit a platform, with their marks closed and opened again."""

from __future__ import annotations

from bisect import bisect_right

from channels.markdown.cuts import Measure, TextCutter
from channels.markdown.marked_text import MarkedText, at_most, part_of, utf16


def split(marked: MarkedText, limit: int, measure: Measure = utf16, *, most: int | None = None) -> list[MarkedText]:
    """Pieces that measure at most `limit` (no less than 2) and have at most `most` marks, in order.

    Between two pieces only white space is left out; within code only the line end at the cut. A text that fits is
    one piece, as it is; pieces of white space alone are not made. No character is torn, unless it alone is longer
    than `limit` or made of more than 64 code points.
    """
    if limit < 2:
        raise ValueError(f"limit is {limit}: a piece has to hold at least one character; use 2 or more")
    text = marked.text
    cutter = TextCutter(
        text,
        measure,
        exact=[(mark.start, mark.end) for mark in marked.marks if mark.kind == "pre"],
        whole=[(mark.start, mark.end) for mark in marked.marks if mark.kind in ("code", "link")],
    )
    starts = sorted(mark.start for mark in marked.marks)
    pieces: list[MarkedText] = []
    start = 0
    while start < len(text):
        before = _too_many(marked, starts, start, limit, most)
        if before is None and len(text) - start <= limit and measure(text[start:]) <= limit:
            end, begin = len(text), len(text)
        else:
            found = cutter.cut(start, limit, before=before)
            end, begin = found.end, found.begin
        if text[start:end].strip():
            piece = part_of(marked, start, end)
            pieces.append(piece if most is None else at_most(piece, most))
        start = begin
    return pieces


def _too_many(marked: MarkedText, starts: list[int], start: int, limit: int, most: int | None) -> int | None:
    """Where the first mark begins that would be one too many, if it is far enough away for a piece of its own."""
    if most is None or len(starts) <= most:
        return None
    reaching = sum(mark.start < start < mark.end for mark in marked.marks)
    index = bisect_right(starts, start - 1) + max(0, most - reaching)
    if index >= len(starts) or starts[index] < start + limit // 8:
        return None
    return starts[index]
