"""Formulas in TeX: `\\(…\\)`, `\\[…\\]`, `$…$`, `$$…$$` and `\\begin{…}…\\end{…}` stay as they are written.

No platform renders them, and Markdown would swallow half of their signs.
"""

from __future__ import annotations

import re

from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

MAX_FORMULA_LINES = 100
_ENDS = {"\\(": "\\)", "\\[": "\\]", "$$": "$$", "$": "$"}
_BEGIN = re.compile(r"\\begin\{([a-zA-Z]+\*?)\}")
_TEX = re.compile(r"\\[a-zA-Z,;:!{}|]|\^|\w_\w|_\{|[=+]|\d\s*[*/·×]\s*\d|\b\w\*\w\b")
"""Signs that are common in formulas and rare in other text in brackets."""
_OTHER = re.compile(r"`|\]\(|://")


def parse_formula(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 (a rule's signature)
    """Take a formula in a line as text."""
    end = _find_end(state.src, state.pos, state.posMax)
    if end is None:
        return False
    if not silent:
        first, *others = state.src[state.pos : end].split("\n")
        state.pending += first
        for line in others:
            state.push("softbreak", "br", 0)
            state.pending += line
    state.pos = end
    return True


def _find_end(text: str, start: int, limit: int) -> int | None:
    """Return the end of the formula that starts here; None if there is none."""
    begin = _BEGIN.match(text, start, limit)
    if begin:
        sign, end_sign = begin[0], f"\\end{{{begin[1]}}}"
    else:
        sign = text[start : start + 2] if text[start : start + 2] in _ENDS else text[start]
        end_sign = _ENDS.get(sign, "")
    at = text.find(end_sign, start + len(sign), limit) if end_sign else -1
    if at < 0:
        return None
    content, end = text[start + len(sign) : at], at + len(end_sign)
    if not content.strip() or _OTHER.search(content):
        return None
    if sign == "$" and (
        content[0].isspace()
        or content[-1].isspace()
        or text[end : end + 1].isalnum()
        or text[start - 1 : start].isalnum()
        or "**" in content
        or (re.search(r"\s", content) and not _TEX.search(content))
    ):
        return None  # an amount of money
    if sign in ("\\[", "$$") and "\n" not in content and not _TEX.search(content):
        return None  # brackets that are escaped: \[1\]
    return end


def parse_formula_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001
    """Take the lines of a formula as one paragraph, also if one of them looks like a list or a heading."""
    if state.is_code_block(start):
        return False
    first = _line(state, start)
    begin = _BEGIN.match(first)
    sign = begin[0] if begin else first[:2]
    end_sign = f"\\end{{{begin[1]}}}" if begin else {"\\[": "\\]", "$$": "$$"}.get(sign, "")
    if not end_sign or end_sign in first[len(sign) :]:
        return False
    for number in range(start + 1, min(end, start + MAX_FORMULA_LINES)):
        line = _line(state, number)
        if not line or state.sCount[number] < state.blkIndent:
            return False
        if end_sign in line:
            break
    else:
        return False
    if not silent:
        opened = state.push("paragraph_open", "p", 1)
        opened.map = [start, number + 1]
        token = state.push("inline", "", 0)
        token.map = [start, number + 1]
        token.content = state.getLines(start, number + 1, state.blkIndent, keepLastLF=False).strip()
        token.children = []
        state.push("paragraph_close", "p", -1)
        state.line = number + 1
    return True


def _line(state: StateBlock, number: int) -> str:
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]].rstrip()
