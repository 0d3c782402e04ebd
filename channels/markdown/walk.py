"""The walk through the Markdown of an answer. It visits each token once and lets a platform's dialect write it.

    walk_markdown(source, dialect)        blocks: what is a paragraph, a quote, an item, code, a table
        dialect.write_paragraph(tokens)   what the platform puts around it, in front of it, and in place of it
            walk_line(tokens, line)       the text of the paragraph: marks, links, images, code
                line.open_mark("bold")    what the platform writes for each of these

The walk knows Markdown-it's tokens and the rules that all platforms share: how lists are numbered, what a task item is,
when there is an empty line between two blocks, when a table is too wide. A dialect knows one platform.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Protocol, TypeVar

from markdown_it.token import Token

from bubbot.ports.markdown import parse_tokens, split_fence_info
from channels.markdown.marked_text import MarkKind, clean_text
from channels.markdown.table import align_rows, measure_rows

RULE_LINE = "—" * 8
_TASK = re.compile(r"\[([ xX])\](?:\s|$)")
_SPACED_BLOCKS = (
    "paragraph_open", "heading_open", "fence", "code_block", "hr", "blockquote_open", "list_item_open", "table_open",
)  # fmt: skip
_MARK_KINDS: dict[str, MarkKind] = {
    "strong": "bold",
    "em": "italic",
    "u": "underline",
    "s": "strike",
    "spoiler": "spoiler",
}
OutputT = TypeVar("OutputT")
OutputT_co = TypeVar("OutputT_co", covariant=True)


class Dialect(Protocol[OutputT_co]):
    """A writer of blocks for one platform.

    Attributes:
        table_columns: the widest table that is shown in columns.
    """

    table_columns: int

    def begin_block(self, *, has_gap: bool) -> None:
        """Begin a block; `has_gap`: an empty line precedes it in the source."""

    def write_paragraph(self, children: Sequence[Token]) -> None: ...
    def write_heading(self, children: Sequence[Token], level: int) -> None: ...
    def write_code(self, code: str, language: str, info: str) -> None:
        """Write a block of code; `info` is the line after the fence if it has more than the language."""

    def read_cell(self, children: Sequence[Token]) -> str | None:
        """Return the plain text of a table's cell; None if a link would be lost in it."""

    def write_table(self, text: str) -> None:
        """Write a table that is laid out in columns of fixed width."""

    def write_rows(self, rows: Sequence[Sequence[Sequence[Token]]]) -> None:
        """Write a table, its head first, as a block for each row with a line `head: cell` for each column."""

    def open_item(self, number: str, checkbox: str) -> None:
        """Begin an item of a list; `number` and `checkbox` are empty if it has none."""

    def close_item(self) -> None: ...
    def open_quote(self) -> None: ...
    def close_quote(self) -> None: ...
    def finish(self) -> OutputT_co: ...


class LineDialect(Protocol):
    """A writer of the text within a paragraph, a heading or a cell. `after` is the token that follows."""

    def write_text(self, text: str) -> None: ...
    def write_break(self) -> None: ...
    def write_code(self, code: str) -> None: ...
    def write_image(self, children: Sequence[Token], url: str, title: str) -> None: ...
    def open_mark(self, kind: MarkKind) -> None: ...
    def close_mark(self, after: Token | None) -> None: ...
    def open_link(self) -> None: ...
    def close_link(self, url: str, title: str, after: Token | None, *, is_autolink: bool) -> None: ...


def walk_markdown(source: str, dialect: Dialect[OutputT], literal: Callable[[str], OutputT]) -> OutputT:
    """Write any source in a dialect; if the parser fails, return what `literal` makes of the source."""
    source = clean_text(source)
    try:
        _BlockWalk(source, dialect).walk()
        return dialect.finish()
    except Exception:  # noqa: BLE001 (the parser is not ours: an answer without formatting is better than none)
        return literal(source)


class _BlockWalk:
    def __init__(self, source: str, dialect: Dialect[object]) -> None:
        self._lines = source.split("\n")
        self._tokens = parse_tokens(source)
        self._dialect = dialect
        self._numbers: list[int | None] = []  # of the newest item of each open list; None if it has no numbers
        self._rows: list[list[Sequence[Token]]] = []
        self._sides: list[str] = []

    def walk(self) -> None:
        for position, token in enumerate(self._tokens):
            if token.type in _SPACED_BLOCKS:
                self._dialect.begin_block(has_gap=self._has_gap_above(token))
            match token.type:
                case "inline":
                    self._visit_text(self._tokens[position - 1], token.children or [])
                case "fence" | "code_block":
                    language, rest = split_fence_info(token.info)
                    code = token.content.removesuffix("\n")
                    self._dialect.write_code(code, language, token.info.strip() if rest else "")
                case "hr":
                    self._dialect.write_paragraph([Token("text", "", 0, content=RULE_LINE)])
                case "blockquote_open":
                    self._dialect.open_quote()
                case "blockquote_close":
                    self._dialect.close_quote()
                case "list_item_open":
                    self._open_item(token, self._tokens[position + 1 : position + 3])
                case "list_item_close":
                    self._dialect.close_item()
                case _:
                    self._visit_border(token)

    def _visit_border(self, token: Token) -> None:
        """Open or close what has no text of its own: a list, a table, its rows and cells."""
        match token.type:
            case "bullet_list_open":
                self._numbers.append(None)
            case "ordered_list_open":
                self._numbers.append(-1)
            case "bullet_list_close" | "ordered_list_close":
                self._numbers.pop()
            case "table_open":
                self._rows, self._sides = [], []
            case "tr_open":
                self._rows.append([])
            case "th_open":
                self._sides.append(str(token.attrs.get("style", "")).removeprefix("text-align:"))
            case "table_close":
                self._write_table()

    def _has_gap_above(self, token: Token) -> bool:
        """Return true if an empty line precedes the block in the source."""
        above = self._lines[token.map[0] - 1] if token.map and token.map[0] else "-"
        return not above.strip(" \t>")

    def _visit_text(self, opened: Token, children: Sequence[Token]) -> None:
        if opened.type == "heading_open":
            self._dialect.write_heading(children, int(opened.tag[1:]))
        elif opened.type == "paragraph_open":
            self._dialect.write_paragraph(children)
        else:
            self._rows[-1].append(children)

    def _open_item(self, item: Token, content: Sequence[Token]) -> None:
        number = self._numbers[-1]
        if number is not None:
            # A list with 1. everywhere is counted; any other keeps its numbers.
            number = self._numbers[-1] = max(int(item.info), number + 1)
        self._dialect.open_item("" if number is None else f"{number}{item.markup}", _take_checkbox(content))

    def _write_table(self) -> None:
        cells = [[self._dialect.read_cell(cell) for cell in row] for row in self._rows]
        texts = [[cell for cell in row if cell is not None] for row in cells]
        if texts == cells and measure_rows(texts) <= self._dialect.table_columns:
            self._dialect.write_table(align_rows(texts, self._sides))
        else:
            self._dialect.write_rows(self._rows)


def _take_checkbox(content: Sequence[Token]) -> str:
    """Remove a task item's checkbox from its first paragraph and return its sign; empty if there is none."""
    children = content[1].children if len(content) > 1 else None
    box = _TASK.match(children[0].content) if children and children[0].type == "text" else None
    if not children or not box:
        return ""
    children[0].content = children[0].content[box.end() :]
    return "☐ " if box[1] == " " else "☑ "


def walk_line(children: Sequence[Token], line: LineDialect) -> None:
    """Write the text of a paragraph, a heading or a cell."""
    tokens = [token for token in children if token.content or token.type != "text"]
    links: list[Token] = []
    for token, after in zip_longest(tokens, tokens[1:]):
        match token.type:
            case "softbreak" | "hardbreak":
                line.write_break()
            case "code_inline":
                line.write_code(token.content)
            case "image":
                line.write_image(token.children or [], _read_attribute(token, "src"), _read_attribute(token, "title"))
            case "link_open":
                links.append(token)
                line.open_link()
            case "link_close":
                link = links.pop()
                url, title = _read_attribute(link, "href"), _read_attribute(link, "title")
                line.close_link(url, title, after, is_autolink=link.markup == "autolink")
            case "strong_open" | "em_open" | "u_open" | "s_open" | "spoiler_open":
                line.open_mark(_MARK_KINDS[token.type.removesuffix("_open")])
            case "strong_close" | "em_close" | "u_close" | "s_close" | "spoiler_close":
                line.close_mark(after)
            case _:
                line.write_text(token.content)


def _read_attribute(token: Token, name: str) -> str:
    return str(token.attrs.get(name, ""))
