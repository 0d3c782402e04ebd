"""Discord's Markdown in messages: looks that a cut goes through are closed before it and opened again behind it."""

from __future__ import annotations

import re

from channels.markdown.marked_text import utf16
from channels.markdown.split_source import split_source

MARKS_MARGIN = 24
"""UTF-16 code units for marks that are closed and opened again: more than all of them at once."""
_FENCE = re.compile(r"(?:> )*```")
_BLOCK = re.compile(r"(?:> )*\s*(?:$|- |\d{1,9}[.)] |#{1,3} )")
_LEAD = re.compile(r"(?:> )*\s*")
_SCAN = re.compile(
    r"\\."
    r"|(?P<code>`+)(?:.*?[^`])?(?P=code)(?!`)"
    r"|<https?://[^>\s]*>|\]\([^)\s]*\)|https?://\S*[^\s*_~|]"
    r"|(?P<torn>`+)|(?P<mark>\*\*|\*|~~|\|\||_)"
)


def pieces(source: str, limit: int) -> list[str]:
    """Pieces of what `render` made, of at most `limit` UTF-16 code units, in order."""
    if utf16(source) <= limit:
        return [source] if source.strip() else []
    made: list[str] = []
    open_marks: list[str] = []
    escape = ""
    for piece in split_source(source, limit - MARKS_MARGIN, utf16):
        whole = escape + piece
        if open_marks and not _FENCE.match(whole):
            lead = _LEAD.match(whole)
            at = lead.end() if lead else 0
            whole = whole[:at] + "".join(open_marks) + whole[at:]
        open_marks, escape = _open_at_end(whole)
        made.append(whole.removesuffix(escape) + "".join(reversed(open_marks)))
    if escape:
        made[-1] += escape
    return made


def _open_at_end(piece: str) -> tuple[list[str], str]:
    """The marks that are not closed yet, outer ones first, and a backslash that is cut from what it escapes."""
    marks: list[str] = []
    fenced, line = False, ""
    for line in piece.split("\n"):
        if _FENCE.match(line):
            fenced, marks = not fenced, []
        elif not fenced:
            if _BLOCK.match(line):
                marks = []
            _follow(line, marks)
    torn = not fenced and (len(line) - len(line.rstrip("\\"))) % 2
    return marks, "\\" if torn else ""


def _follow(line: str, marks: list[str]) -> None:
    for found in _SCAN.finditer(line):
        if found["torn"]:
            marks.append(found["torn"])
            return  # what follows is code
        mark = found["mark"]
        if not mark:
            continue
        if mark in marks:
            del marks[marks.index(mark) :]
        else:
            marks.append(mark)
