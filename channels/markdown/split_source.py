"""Long Markdown in pieces of Markdown, for platforms that read it themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from channels.markdown.cuts import Measure, TextCut, TextCutter
from channels.markdown.marked_text import clean
from channels.markdown.parser import language_of, tokens

LEAST = 64
"""Characters that a piece has to hold: a fence needs room for its own lines."""
_LOOKED_AT = 200
"""Characters at the beginning of a line in which a fence is looked for."""
_WHOLE = re.compile(r"`[^`\n]{1,500}`|\[[^\[\]\n]{0,500}\]\([^()\n]{0,500}\)|https?://\S+")
_OPENS = re.compile(r"(?:[ \t>]|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t]))*(?:`{3,}[^`\n]*|~{3,}[^\n]*)")


@dataclass(frozen=True, slots=True)
class _CodeFence:
    """A block of code. `raw`: its lines in the source; `before`: the marker of a list it stands behind."""

    raw: str
    marker: str
    info: str
    content: str
    before: str
    nested: bool
    closed: bool


def split_source(source: str, limit: int, measure: Measure = len) -> list[str]:
    """Pieces of Markdown that measure at most `limit` (no less than 64), in order.

    A source that fits is one piece, as it is. Where a block of code is cut, its fence is closed and opened again with
    its language, and both lines count. A block that stands in a list or a quote is moved out of it in all pieces but
    the first, for there is no list any more that it could stand in.
    """
    if limit < LEAST:
        raise ValueError(f"limit is {limit}: a piece has to hold the lines of a fence; use {LEAST} or more")
    source = clean(source)
    if not source.strip():
        return []
    if measure(source) <= limit:
        return [source]
    packer = _PiecePacker(limit, measure)
    for unit in _units(source):
        if isinstance(unit, str):
            packer.text(unit)
        else:
            packer.fence(unit)
    return packer.done()


def _units(source: str) -> Iterator[str | _CodeFence]:
    """The fences, and the lines between them."""
    lines = source.split("\n")
    at = 0
    for token in tokens(source, inline=False):
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
    """Fills one piece after the other."""

    def __init__(self, limit: int, measure: Measure) -> None:
        self._limit = limit
        self._measure = measure
        self._pieces: list[str] = []
        self._current: str | None = None

    def done(self) -> list[str]:
        self._flush()
        return self._pieces

    def _flush(self) -> None:
        if self._current is not None and self._current.strip():
            text = self._current.rstrip()
            # Empty lines in front go; the indentation of the first line stays.
            self._pieces.append(text[text.rfind("\n", 0, len(text) - len(text.lstrip())) + 1 :])
        self._current = None

    def _room(self) -> int:
        return self._limit - (0 if self._current is None else self._measure(self._current) + 1)

    def _add(self, text: str) -> None:
        self._current = text if self._current is None else f"{self._current}\n{text}"

    def text(self, text: str) -> None:
        """Takes lines that are no code."""
        whole = [match.span() for match in _WHOLE.finditer(text)]
        cutter = TextCutter(text, self._measure, whole=whole, allowed=lambda cut: _opens_nothing(text, cut))
        start = 0
        while start < len(text) or not text:
            if self._measure(text[start:]) <= self._room():
                self._add(text[start:])
                return
            if self._room() < self._limit // 4:
                self._flush()
                continue
            found = cutter.gentle(start, self._room())
            if found is None and self._current is not None:
                self._flush()
                continue
            found = found or cutter.cut(start, self._room())
            self._add(text[start : found.end])
            self._flush()
            start = found.begin

    def fence(self, fence: _CodeFence) -> None:
        """Takes a block of code: whole where it fits into one piece, else in as many as it needs."""
        as_it_is = fence.closed and (not fence.nested or not self._pieces)
        if as_it_is and self._measure(fence.raw) <= self._room():
            self._add(fence.raw)
            return
        if fence.before and fence.before not in "-*+":
            self.text(fence.before)
        marker, language, first = self._looks(fence)
        lines = f"{first}\n{fence.content}\n{marker}"
        if self._measure(lines) > self._room() and (self._measure(lines) <= self._limit or self._small(first, marker)):
            self._flush()
        cutter = TextCutter(fence.content, self._measure, exact=[(-1, len(fence.content) + 1)])
        start = 0
        while True:
            room = self._room() - self._measure(first) - self._measure(marker) - 2
            rest = fence.content[start:]
            if self._measure(rest) <= room:
                self._add(f"{first}\n{rest}\n{marker}")
                return
            found = cutter.cut(start, room)
            if fence.content[start : found.end].strip():
                self._add(f"{first}\n{fence.content[start : found.end]}\n{marker}")
                self._flush()
                first = marker + language
            start = found.begin

    def _small(self, first: str, marker: str) -> bool:
        return self._room() - self._measure(first) - self._measure(marker) < self._limit // 4

    def _looks(self, fence: _CodeFence) -> tuple[str, str, str]:
        """The marker, the language, and the first line; a marker is longer than any run of its sign in the code."""
        most = self._limit // 8
        marker = fence.marker
        for sign in (marker[0], "~" if marker[0] == "`" else "`"):
            run = max((len(found) for found in re.findall(re.escape(sign) + "+", fence.content)), default=0)
            length = max(3, run + 1, len(fence.marker) if sign == fence.marker[0] else 0)
            if length > most and run + 1 <= most:
                length = max(3, run + 1)
            marker = sign * min(length, most)
            if length <= most:
                break
        language, rest = language_of(fence.info)
        if self._measure(fence.info) <= most and not ("`" in fence.info and marker[0] == "`"):
            return marker, language, marker + fence.info
        if rest:
            # Written out, so that it is cut like text; it must not begin a fence itself.
            self.text(("\\" if fence.info[0] in "`~" else "") + fence.info)
        return marker, language, marker + language


def _opens_nothing(text: str, cut: TextCut) -> bool:
    """Whether neither half of a line that is cut looks like a fence, which its whole was not."""
    start, end = text.rfind("\n", 0, cut.end) + 1, text.find("\n", cut.begin)
    if "\n" in text[cut.end : cut.begin]:
        return True
    halves = text[start : cut.end], text[cut.begin : end if end >= 0 else len(text)]
    return not any(_OPENS.fullmatch(half[:_LOOKED_AT]) for half in halves)
