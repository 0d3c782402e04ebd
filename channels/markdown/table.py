"""Tables in columns of fixed width."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from wcwidth import wcwidth

PHONE_COLUMNS = 40
"""Columns of fixed width that a phone shows."""


def count_columns(text: str) -> int:
    """Count the terminal columns of the longest line of a text: wide East Asian characters and emoji take two."""
    return max(sum(max(0, wcwidth(char)) for char in line) for line in text.split("\n"))


def align_rows(rows: Sequence[Sequence[str]], sides: Sequence[str]) -> str:
    """Format the table in columns; the first row is the head.

    Args:
        rows: the cells; one may have several lines.
        sides: `left`, `right` or `center` for each column.
    """
    widths = [max(count_columns(row[column]) for row in rows) for column in range(len(rows[0]))]
    rule = "-+-".join("-" * width for width in widths)
    lines = []
    for number, row in enumerate(rows):
        if number == 1:
            lines.append(rule)
        for parts in zip_longest(*(cell.split("\n") for cell in row), fillvalue=""):
            cells = [_pad(part, width, side) for part, width, side in zip(parts, widths, sides, strict=True)]
            lines.append(" | ".join(cells).rstrip())
    return "\n".join(lines if len(rows) > 1 else [*lines, rule])


def measure_rows(rows: Sequence[Sequence[str]]) -> int:
    """Count the terminal columns that `align_rows` needs."""
    columns = range(len(rows[0]))
    return sum(max(count_columns(row[column]) for row in rows) for column in columns) + 3 * (len(columns) - 1)


def _pad(text: str, width: int, side: str) -> str:
    room = width - count_columns(text)
    left = room if side == "right" else room // 2 if side == "center" else 0
    return " " * left + text + " " * (room - left)
