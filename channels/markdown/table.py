"""Tables for narrow screens: in columns if they fit, else row by row."""

from __future__ import annotations

from collections.abc import Sequence

from wcwidth import wcwidth

from channels.markdown.marked_text import MarkedText, TextMark

PHONE_COLUMNS = 40
"""Columns of fixed width that a phone shows."""
Row = Sequence[MarkedText]


def count_columns(text: str) -> int:
    """Count the terminal columns of a text: wide East Asian characters and emoji take two."""
    return sum(max(0, wcwidth(char)) for char in text)


def align_rows(rows: Sequence[Row], sides: Sequence[str]) -> str:
    """Format the table in columns; the first row is the head.

    Args:
        rows: the cells.
        sides: `left`, `right` or `center` for each column.
    """
    widths = [max(count_columns(row[column].text) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [_pad(cell.text, width, side) for cell, width, side in zip(row, widths, sides, strict=True)]
        lines.append(" | ".join(cells).rstrip())
    lines.insert(1, "-+-".join("-" * width for width in widths))
    return "\n".join(lines)


def measure_rows(rows: Sequence[Row]) -> int:
    """Count the terminal columns that `align_rows` needs."""
    columns = range(len(rows[0]))
    return sum(max(count_columns(row[column].text) for row in rows) for column in columns) + 3 * (len(columns) - 1)


def lay_out_table(rows: Sequence[Row], sides: Sequence[str], max_columns: int) -> MarkedText:
    """Format a table in columns if it fits `max_columns` and has no links, which would be lost there; else in blocks."""
    has_links = any(
        mark.kind == "link" and mark.url != cell.text for row in rows for cell in row for mark in cell.marks
    )
    if not has_links and measure_rows(rows) <= max_columns:
        text = align_rows(rows, sides)
        return MarkedText(text, (TextMark(0, len(text), "pre"),))
    return _lay_out_blocks(rows)


def _lay_out_blocks(rows: Sequence[Row]) -> MarkedText:
    """Write a block for each row, with a line `head: cell` for each column."""
    pieces: list[MarkedText] = []
    head, *body = rows
    for number, row in enumerate(body):
        for column, (name, cell) in enumerate(zip(head, row, strict=True)):
            pieces.append(MarkedText("\n" if column else "\n\n" if number else ""))
            label = MarkedText(f"{name.text}:", (TextMark(0, len(name.text) + 1, "bold"), *name.marks))
            pieces += [label, MarkedText(" "), cell] if name.text and cell.text else [label if name.text else cell]
    if not body:
        pieces = [MarkedText(" | ".join(name.text for name in head))]
    return join_marked(pieces)


def join_marked(pieces: Sequence[MarkedText]) -> MarkedText:
    """Join the pieces and move their marks along."""
    texts: list[str] = []
    marks: list[TextMark] = []
    at = 0
    for piece in pieces:
        marks += [TextMark(mark.start + at, mark.end + at, mark.kind, mark.language, mark.url) for mark in piece.marks]
        texts.append(piece.text)
        at += len(piece.text)
    return MarkedText("".join(texts), tuple(marks))


def _pad(text: str, width: int, side: str) -> str:
    room = width - count_columns(text)
    left = room if side == "right" else room // 2 if side == "center" else 0
    return " " * left + text + " " * (room - left)
