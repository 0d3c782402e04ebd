"""Conversion of a model's Markdown to Discord's. Any input gives a text, and no content is lost.

Discord has no tables, rules, images, tasks, nested quotes, fences other than three backticks, nor headings below the
third level; two underscores underline, and `||` hides. Text in CommonMark that would be markup in Discord is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from markdown_it.token import Token

from channels.discord.inline import escape_code, has_hidden_url, plain_text, render_inline
from channels.markdown.marked_text import MarkedText, clean_text
from channels.markdown.parser import RULE_LINE, parse_tokens, split_fence_info
from channels.markdown.table import align_rows, measure_rows

TABLE_COLUMNS = 64
"""Largest width in characters of a table shown in columns; a phone shows fewer, and wraps them."""
_TASK = re.compile(r"\[([ xX])\](?:\s|$)")
_LANGUAGE = re.compile(r"[A-Za-z0-9_+\-.#]+")


def render(source: str, *, table_columns: int = TABLE_COLUMNS) -> str:
    """Render Markdown for Discord. Tables wider than `table_columns` become a list of their rows."""
    source = clean_text(source)
    try:
        return _DiscordPage(source, table_columns).render()
    except Exception:  # noqa: BLE001 (a foreign parser: an answer without formatting is better than none)
        return source


@dataclass
class _DiscordList:
    """An open list. `number`: that of its latest item, if numbered."""

    is_numbered: bool
    number: int = -1


class _DiscordPage:
    """A page of blocks, separated by no or one empty line, as in the source."""

    def __init__(self, source: str, table_columns: int) -> None:
        self._lines = source.split("\n")
        self._tokens = parse_tokens(source)
        self._columns = table_columns
        self._output: list[str] = []
        self._quotes = 0
        self._min_quotes = 0  # the smallest quote depth since the last line
        self._floors: list[int] = []  # the number of indents outside each open quote
        self._lists: list[_DiscordList] = []
        self._indents: list[str] = []
        self._marker: str | None = None
        self._gap = False

    def render(self) -> str:
        position = 0
        while position < len(self._tokens):
            position = self._render_block(position)
        return "\n".join(self._output)

    def _render_block(self, position: int) -> int:
        """Render a block, or its start or end, and return the next position."""
        token = self._tokens[position]
        if token.map and token.nesting >= 0 and token.type != "inline":
            self._gap = self._gap or self._has_gap_above(token)
        if token.type == "table_open":
            return self._render_table(position)
        kind, _, side = token.type.rpartition("_")
        if token.type == "inline":
            self._render_paragraph(position)
        elif token.type in ("fence", "code_block"):
            self._render_code(token)
        elif token.type == "hr":
            self._write([RULE_LINE])
        elif kind == "blockquote":
            self._toggle_quote(opens=side == "open")
        elif kind in ("ordered_list", "bullet_list"):
            self._toggle_list(numbered=kind == "ordered_list", opens=side == "open")
        elif kind == "list_item":
            self._toggle_item(position, opens=side == "open")
        return position + 1

    def _has_gap_above(self, token: Token) -> bool:
        """Return true if an empty line precedes the block in the source."""
        above = self._lines[token.map[0] - 1] if token.map and token.map[0] else "-"
        return not above.strip(" \t>")

    def _write(self, lines: Sequence[str], *, flat: bool = False) -> None:
        """Add the lines of a block inside the open quotes and lists; `flat` ignores the lists."""
        if self._gap and self._output:
            self._output.append("> " * self._min_quotes)
        self._gap, self._min_quotes = False, self._quotes
        quote = "> " * self._quotes
        marker, self._marker = self._marker, None
        if marker is not None and flat:
            self._output.append(quote + marker)
        indent = "" if flat else self._indent()
        for number, line in enumerate(lines):
            lead = marker if marker is not None and not flat and not number else indent
            self._output.append(f"{quote}{lead}{line}")

    def _indent(self) -> str:
        """Return the indent of the lists inside the innermost quote; lists around the quote don't indent it."""
        return "".join(self._indents[self._floors[-1] if self._floors else 0 :])

    def _render_paragraph(self, position: int) -> None:
        token, opened = self._tokens[position], self._tokens[position - 1]
        children = token.children or []
        if opened.type == "heading_open":
            level = int(opened.tag[1:])
            is_bold = level > 3 or bool(self._lists)
            text = render_inline(children, newline=" ", is_bold=is_bold).strip()
            if text:
                self._write([f"**{text}**" if is_bold else f"{'#' * level} {text}"])
            return
        text = render_inline(children)
        if text.strip():
            self._write(text.split("\n"))

    def _toggle_quote(self, *, opens: bool) -> None:
        if opens:
            self._flush_marker()
            self._floors.append(len(self._indents))
            self._quotes += 1
        else:
            self._floors.pop()
            self._quotes -= 1
        self._min_quotes = min(self._min_quotes, self._quotes)

    def _flush_marker(self) -> None:
        """Write the pending marker of an item without a first line."""
        if self._marker is not None:
            self._write([""])

    def _toggle_list(self, *, numbered: bool, opens: bool) -> None:
        if opens:
            self._lists.append(_DiscordList(numbered))
        else:
            self._lists.pop()

    def _toggle_item(self, position: int, *, opens: bool) -> None:
        if not opens:
            self._flush_marker()
            self._indents.pop()
            return
        self._flush_marker()
        current, token = self._lists[-1], self._tokens[position]
        if current.is_numbered:
            # A list with 1. everywhere is counted; any other keeps its numbers.
            current.number = max(int(token.info), current.number + 1)
        marker = f"{current.number}{token.markup} " if current.is_numbered else "- "
        indent = self._indent()
        self._indents.append(" " * len(marker))
        self._marker = indent + marker + self._take_checkbox(position)

    def _take_checkbox(self, position: int) -> str:
        """Remove a task item's checkbox from its text and return its sign; empty if there is none."""
        paragraph = self._tokens[position + 2 : position + 3]
        if not paragraph or paragraph[0].type != "inline" or not paragraph[0].children:
            return ""
        first = paragraph[0].children[0]
        box = _TASK.match(first.content) if first.type == "text" else None
        if not box:
            return ""
        first.content = first.content[box.end() :]
        return "☐ " if box[1] == " " else "☑ "

    def _render_code(self, token: Token) -> None:
        language, rest = split_fence_info(token.info)
        text = token.content.removesuffix("\n")
        if token.info.strip() and (rest or not text.strip()):
            # An info string with more than a language, or without code, is shown literally.
            self._write(render_inline([Token("text", "", 0, content=token.info.strip())]).split("\n"))
        if text.strip():
            self._write_fence(text, language)

    def _write_fence(self, text: str, language: str = "") -> None:
        info = language if _LANGUAGE.fullmatch(language) else ""
        self._write([f"```{info}", *escape_code(text).split("\n"), "```"], flat=True)

    def _render_table(self, position: int) -> int:
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
        cells = [[MarkedText(plain_text(cell)) for cell in row] for row in rows]
        if any(has_hidden_url(cell) for row in rows for cell in row) or measure_rows(cells) > self._columns:
            self._write_rows(rows)
        else:
            self._write_fence(align_rows(cells, sides))
        return position + 1

    def _write_rows(self, rows: Sequence[Sequence[Sequence[Token]]]) -> None:
        """Write a block for each row, with a line `head: cell` for each column."""
        head, *body = rows
        if not body:
            self._write([" | ".join(render_inline(name, newline=" ") for name in head)])
        for row in body:
            lines = []
            for name, cell in zip(head, row, strict=True):
                label, text = (
                    render_inline(name, newline=" ", is_bold=True).strip(),
                    render_inline(cell, newline=" ").strip(),
                )
                lines.append(" ".join(filter(None, [f"**{label}:**" if label else "", text])))
            self._write([line for line in lines if line] or [""])
            self._gap = True
