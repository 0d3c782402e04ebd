"""Splitting of long answers into pieces that fit a platform: text with marks, and Markdown itself.

Both cut with `TextCutter`. Text with marks has its marks closed and opened again at each cut; Markdown, for platforms
that parse it themselves, its fences.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

from msgspec import Struct

from bubbot.ports.markdown import parse_tokens, split_fence_info
from channels.markdown.cuts import Measure, TextCut, TextCutter
from channels.markdown.marked_text import MarkedText, clean_text, count_utf16_units, extract_part, limit_marks

MIN_PIECE_LIMIT = 64
"""The smallest limit of a piece: a fence needs room for its own lines."""
_FENCE_SEARCH_CHARS = 200
"""Characters at the beginning of a line that are searched for a fence."""
_UNBREAKABLE = re.compile(r"`[^`\n]{1,500}`|\[[^\[\]\n]{0,500}\]\([^()\n]{0,500}\)|https?://\S+")
_OPENS = re.compile(r"(?:[ \t>]|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t]))*(?:`{3,}[^`\n]*|~{3,}[^\n]*)")


def split_marked(
    marked: MarkedText, limit: int, measure: Measure = count_utf16_units, *, max_marks: int | None = None
) -> list[MarkedText]:
    """Split a text into pieces, in order.

    Between two pieces only white space is dropped; within code only the line end at the cut. A text that fits is one
    unchanged piece; no piece is only white space. No character is torn, unless it alone is longer than `limit` or has
    more than 64 code points.

    Args:
        limit: the largest measure of a piece, at least 2.
        measure: the platform's count of its length.
        max_marks: marks in a piece; None for no limit.

    Raises:
        ValueError: `limit` is less than 2.
    """
    if limit < 2:
        raise ValueError(f"limit is {limit}: a piece has to hold at least one character; use 2 or more")
    text = marked.text
    if len(text) <= limit and measure(text) <= limit and (max_marks is None or len(marked.marks) <= max_marks):
        return [marked] if text.strip() else []
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


class _CodeFence(Struct, frozen=True):
    """A block of code.

    Attributes:
        raw: its lines in the source.
        marker: the signs that open it.
        info: the text after the marker.
        before: the marker of a list in front of it; empty if there is none.
        nested: it is in a list or a quote.
        closed: the source closes it.
    """

    raw: str
    marker: str
    info: str
    content: str
    before: str
    nested: bool
    closed: bool


def split_source(source: str, limit: int, measure: Measure = len) -> list[str]:
    """Split Markdown into pieces that measure at most `limit`, in order.

    A source that fits is one unchanged piece. If a block of code is cut, its fence is closed and reopened with its
    language, and both lines count. A block in a list or a quote is moved out of it in all pieces but the first, because
    later pieces have no list around it.

    Raises:
        ValueError: `limit` is less than 64.
    """
    if limit < MIN_PIECE_LIMIT:
        raise ValueError(f"limit is {limit}: a piece has to hold the lines of a fence; use {MIN_PIECE_LIMIT} or more")
    source = clean_text(source)
    if not source.strip():
        return []
    if measure(source) <= limit:
        return [source]
    packer = _PiecePacker(limit, measure)
    for unit in _split_units(source):
        if isinstance(unit, str):
            packer.add_text(unit)
        else:
            packer.add_fence(unit)
    return packer.finish()


def _split_units(source: str) -> Iterator[str | _CodeFence]:
    """Yield the fences, and the lines between them."""
    lines = source.split("\n")
    at = 0
    for token in parse_tokens(source, inline=False):
        if token.type != "fence" or not token.map or token.map[0] < at:
            continue
        start, end = token.map
        if start > at:
            yield "\n".join(lines[at:start])
        yield _CodeFence(
            raw="\n".join(lines[start:end]),
            marker=token.markup,
            info=token.info.strip(),
            content=token.content.removesuffix("\n"),
            before=lines[start].split(token.markup)[0].strip(" \t>"),
            nested=token.level > 0,
            closed=end - start - 1 > len(token.content.removesuffix("\n").split("\n")) - (not token.content),
        )
        at = end
    if at < len(lines):
        yield "\n".join(lines[at:])


class _PiecePacker:
    """A packer that fills one piece after the other."""

    def __init__(self, limit: int, measure: Measure) -> None:
        self._limit = limit
        self._measure = measure
        self._pieces: list[str] = []
        self._current: str | None = None

    def finish(self) -> list[str]:
        self._flush()
        return self._pieces

    def _flush(self) -> None:
        if self._current is not None and self._current.strip():
            text = self._current.rstrip()
            # Drop empty lines in front; keep the indentation of the first line.
            self._pieces.append(text[text.rfind("\n", 0, len(text) - len(text.lstrip())) + 1 :])
        self._current = None

    def _room(self) -> int:
        return self._limit - (0 if self._current is None else self._measure(self._current) + 1)

    def _add(self, text: str) -> None:
        self._current = text if self._current is None else f"{self._current}\n{text}"

    def add_text(self, text: str) -> None:
        """Add lines that are not code."""
        spans = [match.span() for match in _UNBREAKABLE.finditer(text)]
        cutter = TextCutter(
            text, self._measure, unbreakable_ranges=spans, is_allowed=lambda cut: _opens_nothing(text, cut)
        )
        start = 0
        while start < len(text) or not text:
            if self._measure(text[start:]) <= self._room():
                self._add(text[start:])
                return
            if self._room() < self._limit // 4:
                self._flush()
                continue
            cut = cutter.cut_gently(start, self._room())
            if cut is None and self._current is not None:
                self._flush()
                continue
            cut = cut or cutter.cut(start, self._room())
            self._add(text[start : cut.end])
            self._flush()
            start = cut.begin

    def add_fence(self, fence: _CodeFence) -> None:
        """Add a block of code: unchanged if it fits into one piece, else in as many as it needs."""
        is_usable_as_written = fence.closed and (not fence.nested or not self._pieces)
        if is_usable_as_written and self._measure(fence.raw) <= self._room():
            self._add(fence.raw)
            return
        if fence.before and fence.before not in "-*+":
            self.add_text(fence.before)
        marker, language, first = self._choose_fence(fence)
        lines = f"{first}\n{fence.content}\n{marker}"
        if self._measure(lines) > self._room() and (
            self._measure(lines) <= self._limit or self._is_room_small(first, marker)
        ):
            self._flush()
        cutter = TextCutter(fence.content, self._measure, code_ranges=[(-1, len(fence.content) + 1)])
        start = 0
        while True:
            room = self._room() - self._measure(first) - self._measure(marker) - 2
            rest = fence.content[start:]
            if self._measure(rest) <= room:
                self._add(f"{first}\n{rest}\n{marker}")
                return
            cut = cutter.cut(start, room)
            if fence.content[start : cut.end].strip():
                self._add(f"{first}\n{fence.content[start : cut.end]}\n{marker}")
                self._flush()
                first = marker + language
            start = cut.begin

    def _is_room_small(self, first: str, marker: str) -> bool:
        return self._room() - self._measure(first) - self._measure(marker) < self._limit // 4

    def _choose_fence(self, fence: _CodeFence) -> tuple[str, str, str]:
        """Return the marker (longer than any run of its sign in the code), the language, and the first line."""
        max_length = self._limit // 8
        marker = fence.marker
        for sign in (marker[0], "~" if marker[0] == "`" else "`"):
            run = max((len(signs) for signs in re.findall(re.escape(sign) + "+", fence.content)), default=0)
            length = max(3, run + 1, len(fence.marker) if sign == fence.marker[0] else 0)
            if length > max_length and run + 1 <= max_length:
                length = max(3, run + 1)
            marker = sign * min(length, max_length)
            if length <= max_length:
                break
        language, rest = split_fence_info(fence.info)
        if self._measure(fence.info) <= max_length and not ("`" in fence.info and marker[0] == "`"):
            return marker, language, marker + fence.info
        if rest:
            # As text, so that it can be cut; it must not begin a fence itself.
            self.add_text(("\\" if fence.info[0] in "`~" else "") + fence.info)
        return marker, language, marker + language


def _opens_nothing(text: str, cut: TextCut) -> bool:
    """Return true if neither half of a line that is cut looks like a fence."""
    start, end = text.rfind("\n", 0, cut.end) + 1, text.find("\n", cut.begin)
    if "\n" in text[cut.end : cut.begin]:
        return True
    halves = text[start : cut.end], text[cut.begin : end if end >= 0 else len(text)]
    return not any(_OPENS.fullmatch(half[:_FENCE_SEARCH_CHARS]) for half in halves)
