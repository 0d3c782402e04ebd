"""The child process that draws charts: matplotlib behind one JSON object on stdin.

`bubbot.features.usage.chart` starts it as `python -P draw.py`; it imports nothing of bubbot. The object has `format` (`png`
or `svg`), `title` and `panels`; a panel has `kind` (`columns` for days, `bars` for names), `title` and `rows` of label,
value and the value as text. Each text is a pair: the text, and one to use if no font here has all characters of the first; an
empty one stands for a number such as `#1`. The output is one line of JSON, `{"numbered": {"#1": text}}`, then the image.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from typing import Any

import matplotlib as mpl

mpl.use("Agg")  # before the figure is imported: no window system is looked for

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontEntry, fontManager
from matplotlib.ft2font import FT2Font

BASE_FAMILY = "DejaVu Sans"
"""Comes with matplotlib, so that there is always a font."""
PREFERRED_FONTS = (
    *("noto sans cjk sc", "noto sans sc", "source han sans", "wenquanyi", "droid sans fallback", "microsoft yahei"),
    *("simhei", "pingfang", "hiragino", "noto sans", "sans"),
)
"""Parts of the names of fonts that are tried first, in this order."""
COLUMN_LABELS = 12
"""Labels below columns at most; more would overlap."""
WIDTH_INCHES, DOTS_PER_INCH = 8.0, 150
COLOUR = "#3572a5"


class Labels:
    """Makes every text legible with the fonts that are installed.

    Attributes:
        families: the font families to draw with, in order of preference.
        numbered: the texts for which a number stands, by number.
    """

    def __init__(self, texts: Iterable[Sequence[str]]) -> None:
        """Choose the fonts. `texts`: everything that will be drawn."""
        self.families = [BASE_FAMILY]
        self.numbered: dict[str, str] = {}
        self._missing = _characters("".join(text for pair in texts for text in pair))
        self._missing -= _covered(next(font for font in fontManager.ttflist if font.name == BASE_FAMILY))
        for font in sorted(fontManager.ttflist, key=_rank):
            if not self._missing:
                break
            if font.name not in self.families and (found := self._missing & _covered(font)):
                self.families.append(font.name)
                self._missing -= found

    def choose(self, pair: Sequence[str]) -> str:
        """Return the text of a pair that can be drawn."""
        text, fallback = pair
        if not self._missing & _characters(text):
            return text
        if fallback:
            return "".join(char for char in fallback if char not in self._missing).strip()
        number = next((number for number, name in self.numbered.items() if name == text), None)
        number = number or f"#{len(self.numbered) + 1}"
        self.numbered[number] = text
        return number


def _characters(text: str) -> set[str]:
    return {char for char in text if not char.isspace()}


def _rank(font: FontEntry) -> tuple[int, bool, str]:
    name = font.name.lower()
    place = next((place for place, part in enumerate(PREFERRED_FONTS) if part in name), len(PREFERRED_FONTS))
    return place, font.style != "normal" or str(font.weight) not in ("400", "normal", "regular"), font.name


def _covered(font: FontEntry) -> set[str]:
    """Return the characters that a font can draw: none if its glyphs are images or only say that one is missing."""
    if "last resort" in font.name.lower():
        return set()
    try:
        face = FT2Font(font.fname, face_index=font.index)
        return {chr(code) for code in face.get_charmap()} if face.scalable else set()
    except (OSError, RuntimeError):  # a file that is no font, or that is gone
        return set()


def _texts(chart: dict[str, Any]) -> Iterator[Sequence[str]]:
    yield chart["title"]
    for panel in chart["panels"]:
        yield panel["title"]
        for label, _, amount in panel["rows"]:
            yield from (label, amount)


def _height(panel: dict[str, Any]) -> float:
    return 2.2 if panel["kind"] == "columns" else 0.7 + 0.3 * len(panel["rows"])


def draw(chart: dict[str, Any]) -> tuple[dict[str, str], bytes]:
    """Draw a chart; return the texts for which numbers stand, and the bytes of the image."""
    mpl.rcdefaults()
    labels = Labels(_texts(chart))
    mpl.rcParams.update(
        {
            "font.family": labels.families,
            "text.parse_math": False,  # a dollar sign is a dollar sign
            "axes.spines.top": False,
            "axes.spines.right": False,
            "svg.hashsalt": "bubbot",  # the same chart is the same bytes
        }
    )
    heights = [_height(panel) for panel in chart["panels"]]
    figure = Figure(figsize=(WIDTH_INCHES, 0.6 + sum(heights)), dpi=DOTS_PER_INCH, layout="constrained")
    figure.suptitle(labels.choose(chart["title"]), fontsize=12)
    all_axes = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, panel in zip(all_axes, chart["panels"], strict=True):
        axes.set_title(labels.choose(panel["title"]), loc="left", fontsize=10)
        (_draw_columns if panel["kind"] == "columns" else _draw_bars)(axes, panel["rows"], labels)
    image = BytesIO()
    with warnings.catch_warnings():
        # A character without a glyph would be drawn as a box: no chart is better.
        warnings.filterwarnings("error", message=r"(?s).*Glyph .* missing from font")
        figure.savefig(image, format=chart["format"], metadata={"Date": None} if chart["format"] == "svg" else None)
    return labels.numbered, image.getvalue()


def _draw_columns(axes: Axes, rows: Sequence[Any], labels: Labels) -> None:
    step = -(-len(rows) // COLUMN_LABELS)
    axes.bar(range(len(rows)), [value for _, value, _ in rows], color=COLOUR)
    places = range(0, len(rows), step)
    axes.set_xlim(-0.6, max(len(rows), 7) - 0.4)  # a column alone is no wall
    axes.set_xticks(list(places), [labels.choose(rows[place][0]) for place in places], fontsize=8)
    axes.tick_params(axis="y", labelsize=8)


def _draw_bars(axes: Axes, rows: Sequence[Any], labels: Labels) -> None:
    bars = axes.barh(range(len(rows)), [value for _, value, _ in rows], color=COLOUR)
    axes.bar_label(bars, [labels.choose(amount) for _, _, amount in rows], padding=4, fontsize=8)
    axes.set_yticks(range(len(rows)), [labels.choose(label) for label, _, _ in rows], fontsize=8)
    axes.set_ylim(max(len(rows), 2) - 0.5, -0.5)  # the first is on top; a bar alone is no wall
    axes.margins(x=0.2)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)


if __name__ == "__main__":
    names, content = draw(json.load(sys.stdin))
    sys.stdout.buffer.write(json.dumps({"numbered": names}).encode() + b"\n" + content)
