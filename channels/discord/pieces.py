"""Split of Discord's Markdown into messages: formatting across a cut is closed before it and reopened after it."""

from __future__ import annotations

import re

from channels.markdown.marked_text import count_utf16_units
from channels.markdown.split_source import split_source

MARKS_MARGIN_UTF16 = 24
"""UTF-16 code units reserved for marks that are closed and reopened: more than all of them at once."""
_FENCE = re.compile(r"(?:> )*```")
_BLOCK = re.compile(r"(?:> )*\s*(?:$|- |\d{1,9}[.)] |#{1,3} )")
_LEAD = re.compile(r"(?:> )*\s*")
_SCAN = re.compile(
    r"\\."
    r"|(?P<code>`+)(?:.*?[^`])?(?P=code)(?!`)"
    r"|<https?://[^>\s]*>|\]\([^)\s]*\)|https?://\S*[^\s*_~|]"
    r"|(?P<torn>`+)|(?P<mark>\*\*|\*|~~|\|\||_)"
)


def split_markdown(source: str, limit: int) -> list[str]:
    """Split rendered Markdown into pieces of at most `limit` UTF-16 code units, in order."""
    if count_utf16_units(source) <= limit:
        return [source] if source.strip() else []
    result: list[str] = []
    open_marks: list[str] = []
    escape = ""
    for part in split_source(source, limit - MARKS_MARGIN_UTF16, count_utf16_units):
        piece = escape + part
        if open_marks and not _FENCE.match(piece):
            lead = _LEAD.match(piece)
            at = lead.end() if lead else 0
            piece = piece[:at] + "".join(open_marks) + piece[at:]
        open_marks, escape = _open_at_end(piece)
        result.append(piece.removesuffix(escape) + "".join(reversed(open_marks)))
    if escape:
        result[-1] += escape
    return result


def _open_at_end(piece: str) -> tuple[list[str], str]:
    """Return the marks still open, outer ones first, and a final backslash that the cut separates from its sign."""
    marks: list[str] = []
    fenced, line = False, ""
    for line in piece.split("\n"):
        if _FENCE.match(line):
            fenced, marks = not fenced, []
        elif not fenced:
            if _BLOCK.match(line):
                marks = []
            _update_marks(line, marks)
    torn = not fenced and (len(line) - len(line.rstrip("\\"))) % 2
    return marks, "\\" if torn else ""


def _update_marks(line: str, marks: list[str]) -> None:
    for match in _SCAN.finditer(line):
        if match["torn"]:
            marks.append(match["torn"])
            return  # the rest of the line is code
        mark = match["mark"]
        if not mark:
            continue
        if mark in marks:
            del marks[marks.index(mark) :]
        else:
            marks.append(mark)
