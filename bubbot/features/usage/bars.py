"""Spending as bars, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import StringIO

from bubbot.features.usage.reporter import UsageReporter, format_heading
from bubbot.features.usage.spending import SpendingReport
from bubbot.log import printable
from bubbot.texts import Texts

MAX_WIDTH = 100
"""Columns at most; longer bars say no more."""


def format_bars(
    reporter: UsageReporter, texts: Texts, spending: SpendingReport, by: Sequence[str], width: int
) -> Iterator[str]:
    """Yield the lines of the tables `by`, each a heading and a bar for each name, at most `width` columns wide."""
    # Imported here: what goes to a pipe or a chat has no bars.
    from rich.bar import Bar
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    output, width = StringIO(), min(width, MAX_WIDTH)
    console = Console(file=output, width=width, color_system=None, force_terminal=False, emoji=False)
    for grouping in by:
        sums = spending.by[grouping]
        if not sums:
            continue
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(no_wrap=True, overflow="ellipsis", max_width=max(width // 3, 8))
        table.add_column(ratio=1, min_width=4)
        for _ in range(2):
            table.add_column(justify="right", no_wrap=True)
        longest = max(map(spending.measure, sums.values()))
        for name, usage in sums.items():
            bar = Bar(longest or 1, 0, spending.measure(usage))
            cost, calls = reporter.format_cost(texts, usage), texts.say("usage_calls", count=usage.calls)
            table.add_row(Text(f"  {printable(name)}"), bar, Text(cost), Text(calls))
        console.print(Text(format_heading(texts, grouping)))
        console.print(table)
    yield from (line.rstrip() for line in output.getvalue().splitlines())
