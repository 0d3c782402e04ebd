"""A model's Markdown as text with marks. Whatever the model wrote gives a text; nothing in it is lost."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from markdown_it.token import Token

from channels.markdown.marked_text import MarkedText, MarkKind, TextMark, clean, settle
from channels.markdown.parser import language_of, tokens
from channels.markdown.table import laid_out

RULE = "—" * 8
BULLET = "•"
PHONE = 40
"""Columns of fixed width that a telephone shows."""
_TASK = re.compile(r"\[([ xX])\](?:\s|$)")
_SHOWN_AS_LINK = re.compile(r"(?:https?|ton)://\S+", re.IGNORECASE)
"""Addresses that a text may lead to. Not `tg://`: a link to `tg://user` calls the person."""
_ADDRESS = re.compile(
    r"(?:[a-z][a-z0-9+.-]{0,20}://)?((?:[\w-]{1,63}\.){1,10}[^\W\d_]{2,63}|\d[\d.]{5,13}\d)(?![\w-])\S*", re.IGNORECASE
)
"""An address within a text, with its host."""
_INLINE: dict[str, MarkKind] = {"strong": "bold", "em": "italic", "s": "strike", "spoiler": "spoiler"}


def parse(source: str, *, table_columns: int = PHONE) -> MarkedText:
    """The text people read and its marks. Tables wider than `table_columns` become a list of their rows."""
    source = clean(source)
    try:
        return _MarkdownPage(source, table_columns).made()
    except Exception:  # noqa: BLE001 (the parser is not ours: an answer without its looks is better than none)
        return MarkedText(source)


_PLACED_BY_OTHERS = ("inline", "table_open", "ordered_list_open", "bullet_list_open")


class _ParagraphLine:
    """The inside of a paragraph, put together from its tokens. `end` is how a new line begins."""

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
            self._linked(start, len(self._pieces) - 1, str(token.attrs.get("src", "")), token)
        elif token.nesting == 1:
            self._open.append((start, len(self._pieces), token))
        elif token.nesting == -1:
            self._closed(*self._open.pop())
        else:
            self._write(token.content)

    def _closed(self, start: int, piece: int, token: Token) -> None:
        kind = _INLINE.get(token.type.removesuffix("_open"))
        if kind:
            self.marks.append(TextMark(start, self._at, kind))
        else:
            self._linked(start, piece, str(token.attrs.get("href", "")), token)

    def _linked(self, start: int, piece: int, url: str, token: Token) -> None:
        """A link on what was written since `start`. One that no platform takes stands behind its text."""
        text, title = "".join(self._pieces[piece:]), token.attrs.get("title", "")
        if not text.strip():
            self._write(url)
        if _SHOWN_AS_LINK.fullmatch(url):
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
    shown = (found.casefold().removeprefix("www.") for found in _ADDRESS.findall(unicodedata.normalize("NFKC", text)))
    return any(one != host for one in shown)


@dataclass
class _MarkdownList:
    """A list that is open. `number`: of its newest item, in a numbered one."""

    numbered: bool
    number: int = -1


class _MarkdownPage:
    """The blocks one below the other, with as many empty lines between them as in the source: none or one."""

    def __init__(self, source: str, table_columns: int) -> None:
        self._lines = source.split("\n")
        self._tokens = tokens(source)
        self._columns = table_columns
        self._pieces: list[str] = []
        self._at = 0
        self._marks: list[TextMark] = []
        self._lists: list[_MarkdownList] = []
        self._indents: list[str] = []
        self._quotes: list[int] = []
        self._gap = 0
        self._begun = True  # what comes next stands where we are: after the marker of an item, say
        self._start = 0

    def made(self) -> MarkedText:
        position = 0
        while position < len(self._tokens):
            position = self._take(position)
        return settle("".join(self._pieces), self._marks)

    def _take(self, position: int) -> int:
        """Shows one block, or the border of one, and returns where the next one is."""
        token = self._tokens[position]
        if (
            token.map
            and token.nesting >= 0
            and token.type not in ("inline", "table_open", "ordered_list_open", "bullet_list_open")
        ):
            self._below(token)
        if token.type == "table_open":
            return self._table(position)
        kind, _, side = token.type.rpartition("_")
        if token.type == "inline":
            self._put_line(token)
        elif token.type in ("fence", "code_block"):
            self._code(token)
        elif token.type == "hr":
            self._write(RULE)
        elif side in ("open", "close"):
            self._border(kind, position, opens=side == "open")
        return position + 1

    def _border(self, kind: str, position: int, *, opens: bool) -> None:
        if kind == "heading":
            self._heading(opens=opens)
        elif kind == "blockquote":
            self._quote(opens=opens)
        elif kind == "list_item":
            self._item(position, opens=opens)
        elif kind in ("ordered_list", "bullet_list"):
            self._list(numbered=kind == "ordered_list", opens=opens)

    def _below(self, token: Token) -> None:
        if not self._begun and token.map:
            above = self._lines[token.map[0] - 1] if token.map[0] else ""
            self._gap = max(self._gap, 1 if above.strip(" \t>") else 2)
        self._begun = False

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

    def _heading(self, *, opens: bool) -> None:
        if opens:
            self._flush()
            self._start = self._at
        else:
            self._marks.append(TextMark(self._start, self._at, "bold"))

    def _quote(self, *, opens: bool) -> None:
        if opens:
            self._flush()
            self._quotes.append(self._at)
            self._begun = True
        else:
            self._marks.append(TextMark(self._quotes.pop(), self._at, "quote"))
            self._begun = False

    def _list(self, *, numbered: bool, opens: bool) -> None:
        if opens:
            self._lists.append(_MarkdownList(numbered))
        else:
            self._lists.pop()

    def _item(self, position: int, *, opens: bool) -> None:
        if not opens:
            self._indents.pop()
            self._begun = False
            return
        shown, token = self._lists[-1], self._tokens[position]
        task = self._task(position)
        if shown.numbered:
            # A list that says 1. everywhere is counted; any other keeps its numbers.
            shown.number = max(int(token.info), shown.number + 1)
        marker = f"{shown.number}{token.markup} {task}" if shown.numbered else task or f"{BULLET} "
        self._write(marker)
        self._indents.append(" " * len(marker))
        self._begun = True

    def _task(self, position: int) -> str:
        """The box of an item that begins with one, which is taken out of its text."""
        paragraph = self._tokens[position + 2 : position + 3]
        if not paragraph or paragraph[0].type != "inline" or not paragraph[0].children:
            return ""
        first = paragraph[0].children[0]
        found = _TASK.match(first.content) if first.type == "text" else None
        if not found:
            return ""
        first.content = first.content[found.end() :]
        return "☐ " if found[1] == " " else "☑ "

    def _code(self, token: Token) -> None:
        language, rest = language_of(token.info)
        text = token.content.removesuffix("\n")
        self._leave_marker()
        if rest or not text:
            # More than a language, or a language of nothing, is shown as it is written.
            self._write(token.info.strip())
            self._gap = 1 if text else 0
        if text:
            self._put_flat(MarkedText(text, (TextMark(0, len(text), "pre", language),)))

    def _leave_marker(self) -> None:
        if self._pieces and not self._gap and not self._pieces[-1].endswith("\n"):
            self._gap = 1

    def _put_flat(self, marked: MarkedText) -> None:
        """Without the indentation of the list it is in, so that it can be copied as it is."""
        indents, self._indents = self._indents, []
        self._put(marked)
        self._indents = indents

    def _table(self, position: int) -> int:
        self._below(self._tokens[position])
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
        self._leave_marker()
        self._put_flat(laid_out(rows, sides, self._columns))
        return position + 1
