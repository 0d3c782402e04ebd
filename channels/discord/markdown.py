"""A model's Markdown as Discord reads Markdown. Whatever the model wrote gives a text; nothing in it is lost.

Discord has no tables, rules, images, tasks, quotes in quotes, fences other than three backticks, nor headings below the
third; two underscores underline, and `||` hides. What is text in CommonMark and would be markup there is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from markdown_it.token import Token

from channels.discord.inline import code_safe, inline, linked, plain
from channels.markdown.marked_text import MarkedText, clean
from channels.markdown.parser import language_of, tokens
from channels.markdown.render import RULE
from channels.markdown.table import aligned, width_of

TABLE_COLUMNS = 64
"""Columns of fixed width up to which a table stands in columns; a telephone shows fewer, and wraps them."""
_TASK = re.compile(r"\[([ xX])\](?:\s|$)")
_LANGUAGE = re.compile(r"[A-Za-z0-9_+\-.#]+")


def render(source: str, *, table_columns: int = TABLE_COLUMNS) -> str:
    """The Markdown for Discord. Tables wider than `table_columns` become a list of their rows."""
    source = clean(source)
    try:
        return _DiscordPage(source, table_columns).made()
    except Exception:  # noqa: BLE001 (the parser is not ours: an answer without its looks is better than none)
        return source


@dataclass
class _DiscordList:
    """A list that is open. `number`: of its newest item, in a numbered one."""

    numbered: bool
    number: int = -1


class _DiscordPage:
    """The blocks one below the other, with as many empty lines between them as in the source: none or one."""

    def __init__(self, source: str, table_columns: int) -> None:
        self._lines = source.split("\n")
        self._tokens = tokens(source)
        self._columns = table_columns
        self._made: list[str] = []
        self._quotes = 0
        self._low = 0  # the fewest quotes since the last line
        self._floors: list[int] = []
        self._lists: list[_DiscordList] = []
        self._indents: list[str] = []
        self._marker: str | None = None
        self._gap = False

    def made(self) -> str:
        position = 0
        while position < len(self._tokens):
            position = self._take(position)
        return "\n".join(self._made)

    def _take(self, position: int) -> int:
        """Shows one block, or the border of one, and returns where the next one is."""
        token = self._tokens[position]
        if token.map and token.nesting >= 0 and token.type != "inline":
            self._gap = self._gap or self._apart(token)
        if token.type == "table_open":
            return self._table(position)
        kind, _, side = token.type.rpartition("_")
        if token.type == "inline":
            self._paragraph(position)
        elif token.type in ("fence", "code_block"):
            self._code(token)
        elif token.type == "hr":
            self._write([RULE])
        elif kind == "blockquote":
            self._quote(opens=side == "open")
        elif kind in ("ordered_list", "bullet_list"):
            self._list(numbered=kind == "ordered_list", opens=side == "open")
        elif kind == "list_item":
            self._item(position, opens=side == "open")
        return position + 1

    def _apart(self, token: Token) -> bool:
        """Whether an empty line stands above it in the source."""
        above = self._lines[token.map[0] - 1] if token.map and token.map[0] else "-"
        return not above.strip(" \t>")

    def _write(self, lines: Sequence[str], *, flat: bool = False) -> None:
        """Adds the lines of a block, in the quotes and lists that are open; `flat` ones stand in no list."""
        if self._gap and self._made:
            self._made.append("> " * self._low)
        self._gap, self._low = False, self._quotes
        quote = "> " * self._quotes
        marker, self._marker = self._marker, None
        if marker is not None and flat:
            self._made.append(quote + marker)
        indent = "" if flat else self._indent()
        for number, line in enumerate(lines):
            lead = marker if marker is not None and not flat and not number else indent
            self._made.append(f"{quote}{lead}{line}")

    def _indent(self) -> str:
        """That of the lists within the innermost quote: one around it does not reach in."""
        return "".join(self._indents[self._floors[-1] if self._floors else 0 :])

    def _paragraph(self, position: int) -> None:
        token, opened = self._tokens[position], self._tokens[position - 1]
        children = token.children or []
        if opened.type == "heading_open":
            level = int(opened.tag[1:])
            small = level > 3 or bool(self._lists)
            text = inline(children, newline=" ", bold=small).strip()
            if text:
                self._write([f"**{text}**" if small else f"{'#' * level} {text}"])
            return
        text = inline(children)
        if text.strip():
            self._write(text.split("\n"))

    def _quote(self, *, opens: bool) -> None:
        if opens:
            self._flush_marker()
            self._floors.append(len(self._indents))
            self._quotes += 1
        else:
            self._floors.pop()
            self._quotes -= 1
        self._low = min(self._low, self._quotes)

    def _flush_marker(self) -> None:
        """Shows the marker of an item that begins with nothing to stand behind it."""
        if self._marker is not None:
            self._write([""])

    def _list(self, *, numbered: bool, opens: bool) -> None:
        if opens:
            self._lists.append(_DiscordList(numbered))
        else:
            self._lists.pop()

    def _item(self, position: int, *, opens: bool) -> None:
        if not opens:
            self._flush_marker()
            self._indents.pop()
            return
        self._flush_marker()
        shown, token = self._lists[-1], self._tokens[position]
        if shown.numbered:
            # A list that says 1. everywhere is counted; any other keeps its numbers.
            shown.number = max(int(token.info), shown.number + 1)
        marker = f"{shown.number}{token.markup} " if shown.numbered else "- "
        indent = self._indent()
        self._indents.append(" " * len(marker))
        self._marker = indent + marker + self._task(position)

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
        if token.info.strip() and (rest or not text.strip()):
            # More than a language, or a language of nothing, is shown as it is written.
            self._write(inline([Token("text", "", 0, content=token.info.strip())]).split("\n"))
        if text.strip():
            self._fence(text, language)

    def _fence(self, text: str, language: str = "") -> None:
        shown = language if _LANGUAGE.fullmatch(language) else ""
        self._write([f"```{shown}", *code_safe(text).split("\n"), "```"], flat=True)

    def _table(self, position: int) -> int:
        rows: list[list[Sequence[Token]]] = []
        sides: list[str] = []
        while self._tokens[position].type != "table_close":
            token = self._tokens[position]
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "th_open":
                sides.append(str(token.attrs.get("style", "")).removeprefix("text-align:"))
            elif token.type == "inline":
                rows[-1].append(token.children or [])
            position += 1
        bare = [[MarkedText(plain(cell)) for cell in row] for row in rows]
        if any(linked(cell) for row in rows for cell in row) or width_of(bare) > self._columns:
            self._rows(rows)
        else:
            self._fence(aligned(bare, sides))
        return position + 1

    def _rows(self, rows: Sequence[Sequence[Sequence[Token]]]) -> None:
        """A block for each row, a line `head: cell` for each column."""
        head, *body = rows
        if not body:
            self._write([" | ".join(inline(name, newline=" ") for name in head)])
        for row in body:
            lines = []
            for name, cell in zip(head, row, strict=True):
                label, text = inline(name, newline=" ", bold=True).strip(), inline(cell, newline=" ").strip()
                lines.append(" ".join(filter(None, [f"**{label}:**" if label else "", text])))
            self._write([line for line in lines if line] or [""])
            self._gap = True
