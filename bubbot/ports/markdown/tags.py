"""Simple HTML tags that models write in Markdown, shown as in a browser; other tags stay text."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

from markdown_it.rules_inline import StateInline

from bubbot.ports.markdown.marks import MarkState

MAX_TAG_LEVELS = 20
_TAG = re.compile(r"<([a-z]{1,6})((?:\s[^<>]{0,2000})?)/?>", re.IGNORECASE)
_LINE_END = re.compile(r"<br\s*/?>", re.IGNORECASE)
_LINE_ENDS = re.compile(r"(?:<br\s*/?>[ \t]*\n?[ \t]*)+", re.IGNORECASE)
_HREF = re.compile(r"""(?:^|\s)href\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'<>]+))""", re.IGNORECASE)
_MARKS: Mapping[str, str] = MappingProxyType(
    {
        "b": "strong", "strong": "strong", "mark": "strong", "i": "em", "em": "em", "u": "u", "ins": "u",
        "s": "s", "del": "s", "strike": "s",
    }
)  # fmt: skip
_CODE = ("code", "kbd", "samp", "tt")
_RAISED = dict(
    zip("0123456789+-−=()abcdefghijklmnoprstuvwxyz", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁼⁽⁾ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ", strict=True)
)
_LOWERED = dict(zip("0123456789+-−=()aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ", strict=True))


def parse_tag(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 (a rule's signature)
    """Parse a line end, or a tag with its content. An unclosed tag is text."""
    if state.src[state.pos] != "<":
        return False
    line_ends = _LINE_ENDS.match(state.src, state.pos, state.posMax)
    if line_ends:
        if not silent and state.src[line_ends.end() : state.posMax].strip():
            for _ in _LINE_END.findall(line_ends[0]):
                state.push("hardbreak", "br", 0)
        state.pos = line_ends.end()
        return True
    tag = _TAG.match(state.src, state.pos, state.posMax)
    if tag is None or tag[0].endswith("/>") or state.level >= MAX_TAG_LEVELS:
        return False
    name = tag[1].lower()
    state = cast("MarkState", state)
    closing = _find_closing(state, name, tag.end())
    if closing is None or not state.src[tag.end() : closing.start()].strip():
        return False
    return _write(state, name, tag, closing, silent=silent)


def _find_closing(state: MarkState, name: str, start: int) -> re.Match[str] | None:
    if (
        not (name in _MARKS or name in _CODE or name in ("sub", "sup", "a"))
        or (name, state.posMax) in state.unclosed_tags
    ):
        return None
    first: re.Match[str] | None = None
    depth = 0
    for tag in re.compile(rf"<(/?){name}(?:\s[^<>]*)?>", re.IGNORECASE).finditer(state.src, start, state.posMax):
        if tag[1]:
            first = first or tag
            if not depth:
                return tag
        depth += -1 if tag[1] else 1
        if depth > MAX_TAG_LEVELS:
            break
    else:
        if first is None:
            state.unclosed_tags.add((name, state.posMax))
    return first


def _write(state: MarkState, name: str, tag: re.Match[str], closing: re.Match[str], *, silent: bool) -> bool:
    content = state.src[tag.end() : closing.start()]
    if name in _MARKS:
        if not silent:
            _write_marked(state, _MARKS[name], tag.end(), closing.start())
    elif name in _CODE:
        if not silent:
            state.push("code_inline", "code", 0).content = " ".join(html.unescape(content).split())
    elif name == "a":
        address = _read_address(state, tag[2])
        if not address or state.linkLevel:
            return False
        if not silent:
            state.push("link_open", "a", 1).attrs = {"href": address}
            state.linkLevel += 1
            state.parse_inside(tag.end(), closing.start())
            state.linkLevel -= 1
            state.push("link_close", "a", -1)
    elif content.lstrip().startswith("["):  # the number of a note
        if not silent:
            state.parse_inside(tag.end(), closing.start())
    else:
        text = _shift(html.unescape(content).strip(), name)
        if text is None:
            return False
        if not silent:
            state.pending += text
    state.pos = closing.end()
    return True


def _shift(text: str, name: str) -> str | None:
    """Write an index or a power in Unicode or after a sign; None if it is more than a few plain characters."""
    signs = _RAISED if name == "sup" else _LOWERED
    if all(char in signs for char in text):
        return "".join(signs[char] for char in text)
    if re.search(r"[\\`*_~\[\]<>&|:\n]", text):
        return None
    sign = "^" if name == "sup" else "_"
    return f"{sign}{text}" if len(text) == 1 else f"{sign}({text})"


def _read_address(state: MarkState, attributes: str) -> str:
    href = _HREF.search(attributes)
    address = state.md.normalizeLink(html.unescape(href[1] or href[2] or href[3] or "").strip()) if href else ""
    return address if state.md.validateLink(address) else ""


def _write_marked(state: MarkState, kind: str, start: int, end: int) -> None:
    """Write a mark around the text from `start` to `end`, without the white space at its ends."""
    text = state.src[start:end]
    left, right = len(text) - len(text.lstrip()), len(text) - len(text.rstrip())
    state.pending += " " * bool(left)
    state.push(f"{kind}_open", kind, 1)
    state.parse_inside(start + left, end - right)
    state.push(f"{kind}_close", kind, -1)
    state.pending += " " * bool(right)
