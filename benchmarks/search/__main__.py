"""The search measured: python -m benchmarks.search [--entries 100000] [--corpus chat] [--queries 200] [--json FILE]."""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import asdict
from pathlib import Path

from benchmarks.search.corpus import CORPORA
from benchmarks.search.measure import Row, run


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
    given = parser.parse_args()
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


if __name__ == "__main__":
    main()
