"""The search measured: python -m benchmarks.search [--entries 100000] [--corpus chat] [--queries 200] [--json FILE].

`--show FILE...` prints the figures of earlier runs side by side."""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import asdict
from pathlib import Path

from benchmarks.search.asked import CLASSES
from benchmarks.search.corpus import CORPORA
from benchmarks.search.measure import MADE_UP_SORTS, Row, run

WAIT = "the slowest class while up to 100,000 entries wait for the index"


def main() -> None:
    """Measures, prints a table, and writes the figures where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--corpus", choices=CORPORA, action="append", help="only this one; may be repeated")
    parser.add_argument("--queries", type=int, default=200, help="of each class")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--folder", type=Path, help="where the tapes are made and kept; one that is there is used again"
    )
    parser.add_argument("--json", type=Path, help="a file for the figures")
    parser.add_argument(
        "--show", type=Path, nargs="+", help="print the figures in these files as one table for the docs"
    )
    given = parser.parse_args()
    if given.show:
        print(side_by_side([Row(**row) for file in given.show for row in json.loads(file.read_text("utf-8"))]))
        return
    rows = [
        row
        for corpus in given.corpus or CORPORA
        for row in asyncio.run(
            run(
                given.entries,
                corpus,
                seed=given.seed,
                queries=given.queries,
                folder=given.folder and given.folder / corpus,
            )
        )
    ]
    print(table(rows))
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False) + "\n", "utf-8")


def table(rows: list[Row]) -> str:
    """A line for each figure."""
    lines: list[tuple[str, ...]] = [("what", "found", "itself", "wrong", "cpu", "cpu p95", "wall", "note")]
    for row in rows:
        parts = ["" if part is None else f"{100 * part:.1f}%" for part in (row.found, row.shown, row.wrong)]
        times = ["" if one is None else f"{one:.1f}" for one in (row.cpu, row.cpu95, row.wall)]
        lines.append((row.name, *parts, *times, row.note))
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def side_by_side(rows: list[Row]) -> str:
    """A Markdown table: a line for each class, a column for each corpus and size.

    A cell has what was found, or in its place what was wrong, and milliseconds of processor time: the middle, and for what
    waits the slowest class.
    """
    columns: dict[str, dict[str, str]] = {}
    slowest: dict[str, float] = {}
    for row in rows:
        corpus, name = row.name.split(": ", 1)
        cells = columns.setdefault(column := f"{corpus} {row.entries // 1000}k", {})
        part = row.found if row.found is not None else row.wrong
        if row.waiting:
            slowest[column] = max(slowest.get(column, 0.0), row.cpu or 0.0)
        elif part is not None:
            cells[name] = f"{100 * part:.1f} %, {row.cpu:.1f}"
    for column, milliseconds in slowest.items():
        columns[column][WAIT] = f"{milliseconds:.0f}"
    names = [*CLASSES, *MADE_UP_SORTS, WAIT]
    lines = [["query", *columns], ["---"] * (len(columns) + 1)]
    lines += [[name, *(cells.get(name, "–") for cells in columns.values())] for name in names]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
