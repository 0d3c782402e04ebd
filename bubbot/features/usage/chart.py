"""Charts of spending: what is drawn, and the child process that draws it, so that the bot's memory stays as it is."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from bubbot.errors import CommandFailed
from bubbot.features.usage.reporter import Period, UsageReporter, format_heading
from bubbot.features.usage.spending import SpendingReport, UsageSum
from bubbot.formatting import replace_controls
from bubbot.packages import requirements_command
from bubbot.texts import Texts

MAX_BARS = 12
"""Bars of one panel at most; the last one is the sum of the rest."""
MAX_DAYS = 62
"""Days that are drawn one by one; more are drawn as months."""
MAX_LABEL_CHARS = 40
DRAWING_TIMEOUT_SECONDS = 60.0
DRAWING_FILE = Path(__file__).with_name("draw.py")
"""The program of the child process."""


Pair: TypeAlias = tuple[str, str]
"""A text, and one to use if no font has all characters of the first; an empty one stands for a number such as `#1`."""


class DrawingRow(Struct, array_like=True, frozen=True):
    """A name or day with its value, and the value as text."""

    label: Pair
    value: float
    amount: Pair


class DrawingPanel(Struct, frozen=True):
    """A table of spending: `columns` for days, `bars` for names."""

    kind: Literal["columns", "bars"]
    title: Pair
    rows: tuple[DrawingRow, ...]


class Drawing(Struct, frozen=True):
    """The input of `draw.py`."""

    title: Pair
    panels: tuple[DrawingPanel, ...]
    format: Literal["png", "svg"] = "png"


class DrawnChart(Struct, frozen=True):
    """A chart.

    Attributes:
        image: its bytes.
        numbered: the names that no font can draw, by the number that stands for each.
    """

    image: bytes
    numbered: Mapping[str, str]

    def format_numbered(self, texts: Texts) -> Iterator[str]:
        """Yield a line for each number in the chart."""
        for number, name in self.numbered.items():
            yield texts.say("usage_numbered", number=number, name=name)


def charts_are_installed() -> bool:
    """Return true if the extra `charts` is installed; import nothing of it."""
    return find_spec("matplotlib") is not None


def format_install_command() -> str:
    """Format the command that installs the extra into the environment of this bot, in the locked versions."""
    return requirements_command(__file__)


def build_chart(
    reporter: UsageReporter,
    texts: Texts,
    period: Period,
    spending: SpendingReport,
    *,
    by: Sequence[str],
    chat: str = "",
) -> Drawing:
    """Build what is drawn: one panel for each table, days first. Texts are pairs, in English the second time.

    Args:
        reporter: formats the amounts.
        texts: the language.
        period: the period of the spending.
        spending: the spending, with calls.
        by: the tables.
        chat: the chat of the spending; empty for all.
    """
    has_price = spending.total.has_price

    def measure(usage: UsageSum) -> float:
        length = spending.measure(usage)
        return length / 10**9 * reporter.currency.usd_rate if has_price else float(length)

    def format_measure(texts: Texts, value: float) -> str:
        return (
            reporter.currency.format_amount(texts, value)
            if has_price
            else texts.say("usage_tokens", tokens=texts.format_number(f"{value:,.0f}"))
        )

    def unit(texts: Texts) -> str:
        return reporter.currency.name if has_price else texts.say("usage_token_unit")

    def panel(grouping: str, rows: Sequence[tuple[str, str, float]]) -> DrawingPanel:
        def title(each: Texts) -> str:
            return each.say("usage_panel", by=format_heading(each, grouping).rstrip(":："), unit=unit(each))

        return DrawingPanel(
            "columns" if grouping == "day" else "bars",
            (title(texts), title(texts.english)),
            tuple(
                DrawingRow(
                    (label, fallback), value, (format_measure(texts, value), format_measure(texts.english, value))
                )
                for label, fallback, value in rows
            ),
        )

    panels = []
    for grouping in sorted(by, key=lambda grouping: grouping != "day"):
        sums = {name: measure(usage) for name, usage in spending.by[grouping].items()}
        if not sums:
            continue
        if grouping == "day":
            first = reporter.period_start(period) or min(sums)
            panels.append(panel(grouping, [(name, name, value) for name, value in _fill_days(sums, first)]))
        else:
            panels.append(panel(grouping, _cut_names(texts, sums)))
    title, in_english = (
        reporter.format_summary(each, period, spending, chat, is_short=True) for each in (texts, texts.english)
    )
    return Drawing((title, in_english), tuple(panels))


def _fill_days(sums: Mapping[str, float], first: str) -> list[tuple[str, float]]:
    """Return the days from the first one to the last one with spending, those without any too; or the months."""
    start, end = date.fromisoformat(first), date.fromisoformat(max(sums))
    days = [(start + timedelta(days=number)).isoformat() for number in range((end - start).days + 1)]
    if len(days) <= MAX_DAYS:
        return [(day[5:], sums.get(day, 0.0)) for day in days]
    months = dict.fromkeys((day[:7] for day in days), 0.0)
    for day, value in sums.items():
        months[day[:7]] += value
    return list(months.items())


def _cut_names(texts: Texts, sums: Mapping[str, float]) -> list[tuple[str, str, float]]:
    """Return the first names, as pairs, and the sum of the rest."""
    names = list(sums)
    kept = names if len(names) <= MAX_BARS else names[: MAX_BARS - 1]
    rows = [(_shorten(name), "", sums[name]) for name in kept]
    if rest := names[len(kept) :]:
        rows.append((texts.say("usage_rest"), texts.english.say("usage_rest"), sum(sums[name] for name in rest)))
    return rows


def _shorten(name: str) -> str:
    name = replace_controls(" ".join(name.split()))
    return name if len(name) <= MAX_LABEL_CHARS else f"{name[: MAX_LABEL_CHARS - 1]}…"


async def draw_chart(drawing: Drawing) -> DrawnChart:
    """Draw a chart in a child process that ends. Raise `CommandFailed`."""
    # Fonts are listed in a folder that is gone afterwards: a service may write nowhere else.
    with TemporaryDirectory(prefix="bubbot-chart-") as folder:
        try:
            output = await _run_drawing(msgspec.json.encode(drawing), folder)
        except OSError as error:  # TimeoutError and ChildProcessError are among them
            raise CommandFailed("usage_chart_failed", reason=str(error) or type(error).__name__) from error
    head, _, image = output.partition(b"\n")
    return DrawnChart(image, json.loads(head)["numbered"])


async def _run_drawing(drawing: bytes, folder: str) -> bytes:
    # Run by path with -P, so that Python searches neither the working directory nor a folder of bubbot for modules. It
    # inherits nothing of this process's environment.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", str(DRAWING_FILE)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        close_fds=True,
        start_new_session=True,
        env={"LANG": "C.UTF-8", "MPLCONFIGDIR": folder, "OPENBLAS_NUM_THREADS": "1"},
    )
    try:
        async with asyncio.timeout(DRAWING_TIMEOUT_SECONDS):
            output, errors = await process.communicate(drawing)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode or not output:
        lines = errors.decode(errors="replace").strip().splitlines() or [f"exit status {process.returncode}"]
        raise ChildProcessError(lines[-1][:300])
    return output
