"""Rendering of a model's Markdown as text with marks. Every input gives a text, and nothing in it is lost."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from markdown_it.token import Token

from channels.markdown.marked_text import MarkedText, MarkKind, TextMark, clean_text, normalise_marks
from channels.markdown.parser import RULE_LINE, parse_tokens, split_fence_info
from channels.markdown.table import PHONE_COLUMNS, lay_out_table

BULLET_SIGN = "•"
_TASK = re.compile(r"\[([ xX])\](?:\s|$)")
_LINKABLE = re.compile(r"(?:https?|ton)://\S+", re.IGNORECASE)
"""Addresses that a text may link to. Not `tg://`: a link to `tg://user` notifies the person."""
_ADDRESS = re.compile(
    r"(?:[a-z][a-z0-9+.-]{0,20}://)?((?:[\w-]{1,63}\.){1,10}[^\W\d_]{2,63}|\d[\d.]{5,13}\d)(?![\w-])\S*", re.IGNORECASE
)
"""An address within a text, with its host."""
_INLINE: dict[str, MarkKind] = {"strong": "bold", "em": "italic", "s": "strike", "spoiler": "spoiler"}


def parse_markdown(source: str, *, table_columns: int = PHONE_COLUMNS) -> MarkedText:
    """Convert Markdown to the text people read and its marks. Tables wider than `table_columns` become row lists."""
    source = clean_text(source)
    try:
        return _MarkdownPage(source, table_columns).render()
    except Exception:  # noqa: BLE001 (the parser is not ours: an answer without marks is better than none)
        return MarkedText(source)


_GAP_SET_ELSEWHERE = ("inline", "table_open", "ordered_list_open", "bullet_list_open")


class _ParagraphLine:
    """The text and marks of a paragraph's tokens. `end` is written for a line break."""

    def __init__(self, children: Sequence[Token], end: str = "\n") -> None:
        self._pieces: list[str] = []
        self._at = 0
        self._open: list[tuple[int, int, Token]] = []
        self._end = end
        self.marks: list[TextMark] = []
        for token in children:
            self._take(token)

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def _write(self, text: str) -> None:
        self._pieces.append(text)
        self._at += len(text)

    def _take(self, token: Token) -> None:
        start = self._at
        if token.type in ("softbreak", "hardbreak"):
            self._write(self._end)
        elif token.type == "code_inline":
            self._write(token.content)
            self.marks.append(TextMark(start, self._at, "code"))
        elif token.type == "image":
            self._write(_ParagraphLine(token.children or [], " ").text)
            self._add_link(start, len(self._pieces) - 1, str(token.attrs.get("src", "")), token)
        elif token.nesting == 1:
            self._open.append((start, len(self._pieces), token))
        elif token.nesting == -1:
            self._close(*self._open.pop())
        else:
            self._write(token.content)

    def _close(self, start: int, piece: int, token: Token) -> None:
        kind = _INLINE.get(token.type.removesuffix("_open"))
        if kind:
            self.marks.append(TextMark(start, self._at, kind))
        else:
            self._add_link(start, piece, str(token.attrs.get("href", "")), token)

    def _add_link(self, start: int, piece: int, url: str, token: Token) -> None:
        """Link the text since `start`, or write the address behind it if no platform accepts it.

        Args:
            start: offset of the linked text.
            piece: index of its first piece.
            url: the address.
            token: the link's token, with its title.
        """
        text, title = "".join(self._pieces[piece:]), token.attrs.get("title", "")
        if not text.strip():
            self._write(url)
        if _LINKABLE.fullmatch(url):
            if token.info != "auto" and _shows_other_host(text, url):
                self._write(" (")
                start = self._at
                self._write(url)
                self.marks.append(TextMark(start, self._at, "link", url=url))
                self._write(")")
            else:
                self.marks.append(TextMark(start, self._at, "link", url=url))
        elif text.strip() and url and url not in (text, f"mailto:{text}"):
            self._write(f" ({url})")
        if title:
            self._write(f" ({title})")


def _shows_other_host(text: str, url: str) -> bool:
    """Return true if a text reads like an address on another host than the one it leads to."""
    try:
        host = (urlsplit(url).hostname or "").removeprefix("www.")
    except ValueError:
        return True
    addresses = _ADDRESS.findall(unicodedata.normalize("NFKC", text))
    return any(address.casefold().removeprefix("www.") != host for address in addresses)


@dataclass
class _MarkdownList:
    """An open list. `number` is that of its newest item if the list is numbered."""

    numbered: bool
    number: int = -1


class _MarkdownPage:
    """A renderer of blocks, with no or one empty line between two of them, as in the source."""

    def __init__(self, source: str, table_columns: int) -> None:
        self._lines = source.split("\n")
        self._tokens = parse_tokens(source)
        self._columns = table_columns
        self._pieces: list[str] = []
        self._at = 0
        self._marks: list[TextMark] = []
        self._lists: list[_MarkdownList] = []
        self._indents: list[str] = []
        self._quotes: list[int] = []
        self._gap = 0
        self._is_inline = True  # the next block continues the current line: after the marker of an item, say
        self._start = 0

    def render(self) -> MarkedText:
        position = 0
        while position < len(self._tokens):
            position = self._take(position)
        return normalise_marks("".join(self._pieces), self._marks)

    def _take(self, position: int) -> int:
        """Render one block, or the border of one, and return the position of the next one."""
        token = self._tokens[position]
        if token.map and token.nesting >= 0 and token.type not in _GAP_SET_ELSEWHERE:
            self._set_gap(token)
        if token.type == "table_open":
            return self._render_table(position)
        kind, _, side = token.type.rpartition("_")
        if token.type == "inline":
            self._put_line(token)
        elif token.type in ("fence", "code_block"):
            self._render_code(token)
        elif token.type == "hr":
            self._write(RULE_LINE)
        elif side in ("open", "close"):
            self._render_border(kind, position, opens=side == "open")
        return position + 1

    def _render_border(self, kind: str, position: int, *, opens: bool) -> None:
        if kind == "heading":
            self._render_heading(opens=opens)
        elif kind == "blockquote":
            self._render_quote(opens=opens)
        elif kind == "list_item":
            self._render_item(position, opens=opens)
        elif kind in ("ordered_list", "bullet_list"):
            self._render_list(numbered=kind == "ordered_list", opens=opens)

    def _set_gap(self, token: Token) -> None:
        if not self._is_inline and token.map:
            above = self._lines[token.map[0] - 1] if token.map[0] else ""
            self._gap = max(self._gap, 1 if above.strip(" \t>") else 2)
        self._is_inline = False

    def _flush(self) -> None:
        if self._gap and self._at:
            gap = "\n" * self._gap + "".join(self._indents)
            self._pieces.append(gap)
            self._at += len(gap)
        self._gap = 0

    def _write(self, text: str) -> None:
        if text:
            self._flush()
            self._pieces.append(text)
            self._at += len(text)

    def _put(self, marked: MarkedText) -> None:
        self._flush()
        self._marks += [replace(mark, start=mark.start + self._at, end=mark.end + self._at) for mark in marked.marks]
        self._write(marked.text)

    def _put_line(self, token: Token) -> None:
        line = _ParagraphLine(token.children or [], "\n" + "".join(self._indents))
        self._put(MarkedText(line.text, tuple(line.marks)))

    def _render_heading(self, *, opens: bool) -> None:
        if opens:
            self._flush()
            self._start = self._at
        else:
            self._marks.append(TextMark(self._start, self._at, "bold"))

    def _render_quote(self, *, opens: bool) -> None:
        if opens:
            self._flush()
            self._quotes.append(self._at)
            self._is_inline = True
        else:
            self._marks.append(TextMark(self._quotes.pop(), self._at, "quote"))
            self._is_inline = False

    def _render_list(self, *, numbered: bool, opens: bool) -> None:
        if opens:
            self._lists.append(_MarkdownList(numbered))
        else:
            self._lists.pop()

    def _render_item(self, position: int, *, opens: bool) -> None:
        if not opens:
            self._indents.pop()
            self._is_inline = False
            return
        parent, token = self._lists[-1], self._tokens[position]
        task = self._take_task(position)
        if parent.numbered:
            # A list that says 1. everywhere is counted; any other keeps its numbers.
            parent.number = max(int(token.info), parent.number + 1)
        marker = f"{parent.number}{token.markup} {task}" if parent.numbered else task or f"{BULLET_SIGN} "
        self._write(marker)
        self._indents.append(" " * len(marker))
        self._is_inline = True

    def _take_task(self, position: int) -> str:
        """Remove the checkbox at the beginning of an item's text and return its sign; empty if there is none."""
        paragraph = self._tokens[position + 2 : position + 3]
        if not paragraph or paragraph[0].type != "inline" or not paragraph[0].children:
            return ""
        first = paragraph[0].children[0]
        match = _TASK.match(first.content) if first.type == "text" else None
        if not match:
            return ""
        first.content = first.content[match.end() :]
        return "☐ " if match[1] == " " else "☑ "

    def _render_code(self, token: Token) -> None:
        language, rest = split_fence_info(token.info)
        text = token.content.removesuffix("\n")
        self._break_after_marker()
        if rest or not text:
            # Text after the language, or a language without code, is shown as written.
            self._write(token.info.strip())
            self._gap = 1 if text else 0
        if text:
            self._put_flat(MarkedText(text, (TextMark(0, len(text), "pre", language),)))

    def _break_after_marker(self) -> None:
        if self._pieces and not self._gap and not self._pieces[-1].endswith("\n"):
            self._gap = 1

    def _put_flat(self, marked: MarkedText) -> None:
        """Write without the indentation of the surrounding list, so that people can copy it."""
        indents, self._indents = self._indents, []
        self._put(marked)
        self._indents = indents

    def _render_table(self, position: int) -> int:
        self._set_gap(self._tokens[position])
        rows: list[list[MarkedText]] = []
        sides: list[str] = []
        while self._tokens[position].type != "table_close":
            token = self._tokens[position]
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "th_open":
                sides.append(str(token.attrs.get("style", "")).removeprefix("text-align:"))
            elif token.type == "inline":
                line = _ParagraphLine(token.children or [], " ")
                rows[-1].append(MarkedText(line.text, tuple(line.marks)))
            position += 1
        self._break_after_marker()
        self._put_flat(lay_out_table(rows, sides, self._columns))
        return position + 1
