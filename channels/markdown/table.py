"""Tables in columns of fixed width."""

from __future__ import annotations

from collections.abc import Sequence

from wcwidth import wcwidth

PHONE_COLUMNS = 40
"""Columns of fixed width that a phone shows."""


def count_columns(text: str) -> int:
    """Count the terminal columns of a text: wide East Asian characters and emoji take two."""
    return sum(max(0, wcwidth(char)) for char in text)


def align_rows(rows: Sequence[Sequence[str]], sides: Sequence[str]) -> str:
    """Format the table in columns; the first row is the head.

    Args:
        rows: the cells.
        sides: `left`, `right` or `center` for each column.
    """
    widths = [max(count_columns(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [_pad(cell, width, side) for cell, width, side in zip(row, widths, sides, strict=True)]
        lines.append(" | ".join(cells).rstrip())
    lines.insert(1, "-+-".join("-" * width for width in widths))
    return "\n".join(lines)


def measure_rows(rows: Sequence[Sequence[str]]) -> int:
    """Count the terminal columns that `align_rows` needs."""
    columns = range(len(rows[0]))
    return sum(max(count_columns(row[column]) for row in rows) for column in columns) + 3 * (len(columns) - 1)


def _pad(text: str, width: int, side: str) -> str:
    room = width - count_columns(text)
    left = room if side == "right" else room // 2 if side == "center" else 0
    return " " * left + text + " " * (room - left)
