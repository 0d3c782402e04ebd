"""The figures as a person reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.bench.goals import Goal
from benchmarks.bench.measure import Figures

SAID = {True: "yes", False: "NO", None: "not measured"}


def report(figures: Figures, goals: Sequence[Goal]) -> str:
    """Everything, goals last."""
    parts = [
        _machine(figures),
        _single("One tape: half of the times under, 99 of 100 under, processor time (ms)", figures["single"]),
        _single("Searching it (the same; `plain`: LIKE, or a comparison with every text)", figures["search"]),
        _crowds(figures["crowds"]),
        _fresh(figures),
        _goals(goals),
    ]
    return "\n\n".join(parts)


def _machine(figures: Figures) -> str:
    one = figures["machine"]
    return f"{one['cores']} cores, {one['system']}, Python {one['python']}, SQLite {one['sqlite']}"


def _single(title: str, sizes: Figures) -> str:
    names = list(dict.fromkeys(name for rows in sizes.values() for name in rows))
    head = ["", *(f"{int(size):,}" for size in sizes)]
    lines = [[name, *(_times(rows.get(name)) for rows in sizes.values())] for name in names]
    return f"{title}\n{table([head, *lines])}"


def _times(row: Figures | None) -> str:
    return f"{row['p50']:.2f}  {row['p99']:.2f}  {row['cpu']:.2f}" if row else "-"


def _crowds(crowds: Figures) -> str:
    found = {disk: crowds[disk] for disk in ("fast", "slow") if disk in crowds}
    said = [_crowd(disk, many, rows) for disk, by_number in found.items() for many, rows in by_number.items()]
    head = ["", "a second", "to raw", "lowest", "highest", "processor ms", "fsyncs"]
    lines = [head, *(line for lines in said for line in lines)]
    more = f"\nThe slow fsync is missing: {crowds['skipped']}." if "skipped" in crowds else ""
    return f"Sessions at once\n{table(lines)}{more}"


def _crowd(disk: str, many: str, rows: Figures) -> Iterator[list[str]]:
    raw = rows["raw sqlite3"]["rate"]
    for name, row in rows.items():
        numbers = [f"{row['rate']:.0f}", f"{row['rate'] / raw:.2f}", f"{row['lowest']:.0f}", f"{row['highest']:.0f}"]
        where = f"{many} session{'s' if many != '1' else ''}, {disk} disk: {name}"
        yield [where, *numbers, f"{row['cpu']:.2f}", f"{row['fsyncs']:.2f}"]


def _fresh(figures: Figures) -> str:
    lines = [["", "open, first context ms", "whole bot ms", "memory MB", "peak MB", "bytes an entry", "built in s"]]
    for size, row in figures["fresh"].items():
        built = figures["built"][size]
        numbers = [f"{row[name]:.1f}" for name in ("store", "bot", "memory", "peak")]
        lines.append([f"{int(size):,}", *numbers, f"{built['bytes']:.0f}", f"{built['seconds']:.1f}"])
    return f"A fresh process\n{table(lines)}"


def _goals(goals: Sequence[Goal]) -> str:
    lines = [["goal", "wanted", "measured", "reached"]]
    for one in goals:
        wanted = f"{'at least' if one.least else 'at most'} {one.wanted:g} {one.unit}"
        measured = "-" if one.measured is None else f"{one.measured:.2f} {one.unit}"
        lines.append([one.name, wanted, measured, SAID[one.reached] + (f": {one.why}" if one.why else "")])
    return f"Goals\n{table(lines)}"


def table(lines: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they have to be; the first to the left, numbers to the right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) if not place else cell.rjust(width) for place, (cell, width) in enumerate(cells))
        for cells in (list(zip(line, widths, strict=True)) for line in lines)
    )
