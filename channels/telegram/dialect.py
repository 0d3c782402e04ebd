"""Telegram's dialect of Markdown: text with marks, which become entities. Nothing that people could read is lost."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from urllib.parse import urlsplit

from markdown_it.token import Token
from msgspec import structs

from channels.markdown.marked_text import MarkedText, MarkKind, TextMark, normalise_marks
from channels.markdown.table import PHONE_COLUMNS
from channels.markdown.walk import Dialect, LineDialect, walk_line, walk_markdown

BULLET_SIGN = "•"
_LINKABLE = re.compile(r"(?:https?|ton)://\S+", re.IGNORECASE)
"""Addresses that a text may link to. Not `tg://`: a link to `tg://user` notifies the person."""
_ADDRESS = re.compile(
    r"(?:[a-z][a-z0-9+.-]{0,20}://)?((?:[\w-]{1,63}\.){1,10}[^\W\d_]{2,63}|\d[\d.]{5,13}\d)(?![\w-])\S*", re.IGNORECASE
)
"""An address within a text, with its host."""


def parse_markdown(source: str, *, table_columns: int = PHONE_COLUMNS) -> MarkedText:
    """Convert Markdown to the text people read and its marks. Tables wider than `table_columns` become row lists."""
    return walk_markdown(source, TelegramDialect(table_columns), MarkedText)


class TelegramDialect(Dialect[MarkedText]):
    """A writer of blocks, with no or one empty line between two of them, as in the source."""

    def __init__(self, table_columns: int) -> None:
        self.table_columns = table_columns
        self._pieces: list[str] = []
        self._at = 0
        self._marks: list[TextMark] = []
        self._indents: list[str] = []
        self._quotes: list[int] = []
        self._gap = 0
        self._continues_line = True  # the next block continues the current line: after the marker of an item, say

    def finish(self) -> MarkedText:
        return normalise_marks("".join(self._pieces), self._marks)

    def begin_block(self, *, has_gap: bool) -> None:
        if not self._continues_line:
            self._gap = max(self._gap, 2 if has_gap else 1)
        self._continues_line = False

    def _flush(self, *, flat: bool = False) -> None:
        """Write the pending line ends; `flat` leaves out the indentation, so that people can copy what follows."""
        if self._gap and self._at:
            self._write("\n" * self._gap + ("" if flat else "".join(self._indents)))
        self._gap = 0

    def _write(self, text: str, *marks: TextMark) -> None:
        self._marks += [structs.replace(mark, start=mark.start + self._at, end=mark.end + self._at) for mark in marks]
        if text:
            self._pieces.append(text)
            self._at += len(text)

    def write_paragraph(self, children: Sequence[Token]) -> None:
        self._flush()
        line = _read_line(children, "\n" + "".join(self._indents))
        self._write(line.text, *line.marks)

    def write_heading(self, children: Sequence[Token], level: int) -> None:  # noqa: ARG002 (all are bold)
        self._flush()
        start = self._at
        self.write_paragraph(children)
        self._marks.append(TextMark(start, self._at, "bold"))

    def open_quote(self) -> None:
        self._flush()
        self._quotes.append(self._at)
        self._continues_line = True

    def close_quote(self) -> None:
        self._marks.append(TextMark(self._quotes.pop(), self._at, "quote"))
        self._continues_line = False

    def open_item(self, number: str, checkbox: str) -> None:
        marker = f"{number} {checkbox}" if number else checkbox or f"{BULLET_SIGN} "
        self._flush()
        self._write(marker)
        self._indents.append(" " * len(marker))
        self._continues_line = True

    def close_item(self) -> None:
        self._indents.pop()
        self._continues_line = False

    def write_code(self, code: str, language: str, info: str) -> None:
        self._end_line()
        if not code:
            info = info or language
        if info:
            self._flush()
            self._write(info)
            self._end_line()
        if code:
            self._flush(flat=True)
            self._write(code, TextMark(0, len(code), "pre", language))
        else:
            self._gap = 0

    def _end_line(self) -> None:
        if self._pieces and not self._gap and not self._pieces[-1].endswith("\n"):
            self._gap = 1

    def read_cell(self, children: Sequence[Token]) -> str | None:
        line = _read_line(children, "\n")
        return (
            None if any(mark.kind == "link" and mark.url != line.text for mark in line.marks) else line.text.strip("\n")
        )

    def write_table(self, text: str) -> None:
        self.write_code(text, "", "")

    def write_rows(self, rows: Sequence[Sequence[Sequence[Token]]]) -> None:
        self._end_line()
        self._flush(flat=True)
        head, *body = [[_read_line(cell, "\n" if number else " ") for cell in row] for number, row in enumerate(rows)]
        if not body:
            self._write(" | ".join(name.text for name in head))
        for number, row in enumerate(body):
            for column, (name, cell) in enumerate(zip(head, row, strict=True)):
                self._write("\n" if column else "\n\n" if number else "")
                if name.text:
                    self._write(f"{name.text}:", TextMark(0, len(name.text) + 1, "bold"), *name.marks)
                self._write(" " if name.text and cell.text else "")
                self._write(cell.text, *cell.marks)


def _read_line(children: Sequence[Token], line_end: str) -> MarkedText:
    line = _TelegramLine(line_end)
    walk_line(children, line)
    return MarkedText(line.text, tuple(line.marks))


class _TelegramLine(LineDialect):
    def __init__(self, line_end: str) -> None:
        self._line_end = line_end
        self._opened: list[tuple[int, MarkKind]] = []
        self.text = ""
        self.marks: list[TextMark] = []

    def write_text(self, text: str) -> None:
        self.text += text

    def write_break(self) -> None:
        self.text += self._line_end

    def write_code(self, code: str) -> None:
        self.marks.append(TextMark(len(self.text), len(self.text) + len(code), "code"))
        self.text += code

    def write_image(self, children: Sequence[Token], url: str, title: str) -> None:
        start = len(self.text)
        self.text += _read_line(children, " ").text
        self._add_link(start, url, title, is_autolink=False)

    def open_mark(self, kind: MarkKind) -> None:
        self._opened.append((len(self.text), kind))

    def close_mark(self, after: Token | None) -> None:  # noqa: ARG002 (entities need no look ahead)
        start, kind = self._opened.pop()
        self.marks.append(TextMark(start, len(self.text), kind))

    def open_link(self) -> None:
        self.open_mark("link")

    def close_link(self, url: str, title: str, after: Token | None, *, is_autolink: bool) -> None:  # noqa: ARG002
        self._add_link(self._opened.pop()[0], url, title, is_autolink=is_autolink)

    def _add_link(self, start: int, url: str, title: str, *, is_autolink: bool) -> None:
        """Link the text from `start`, or write the address behind it if no platform accepts it."""
        text = self.text[start:]
        if not text.strip():
            self.text += url
        if _LINKABLE.fullmatch(url):
            if not is_autolink and _shows_other_host(text, url):
                start = len(self.text) + len(" (")
                self.text += f" ({url})"
                self.marks.append(TextMark(start, start + len(url), "link", url=url))
            else:
                self.marks.append(TextMark(start, len(self.text), "link", url=url))
        elif text.strip() and url and url not in (text, f"mailto:{text}"):
            self.text += f" ({url})"
        if title:
            self.text += f" ({title})"


def _shows_other_host(text: str, url: str) -> bool:
    """Return true if a text looks like an address on another host than its link."""
    try:
        host = (urlsplit(url).hostname or "").removeprefix("www.")
    except ValueError:
        return True
    addresses = _ADDRESS.findall(unicodedata.normalize("NFKC", text))
    return any(address.casefold().removeprefix("www.") != host for address in addresses)
