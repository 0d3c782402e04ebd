"""Pictures as SVG: a screen, screens one after another, and the messages of a chat."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from rich.console import Console
from rich.text import Text

from tests.docs.pictures.recording import COLUMNS

_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_SANS = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_PAGE = f"""<svg class="rich-terminal" viewBox="0 0 {{width}} {{height}}" xmlns="http://www.w3.org/2000/svg">
<style>
.{{unique_id}}-matrix {{{{ font-family: {_FONT}; font-size: {{char_height}}px; }}}}
.{{unique_id}}-title {{{{ font-size: 18px; font-weight: bold; font-family: {_SANS}; }}}}
{{styles}}
</style>
<defs>
<clipPath id="{{unique_id}}-clip-terminal"><rect x="0" y="0" width="{{terminal_width}}" height="{{terminal_height}}"/></clipPath>
{{lines}}
</defs>
{{chrome}}
<g transform="translate({{terminal_x}}, {{terminal_y}})" clip-path="url(#{{unique_id}}-clip-terminal)">
{{backgrounds}}
<g class="{{unique_id}}-matrix">
{{matrix}}
</g>
</g>
</svg>
"""
_ROW = """<style>{styles}</style>{backgrounds}<g class="screen-matrix">{matrix}</g>"""
_LINE_HEIGHT = 20 * 1.22
"""Height of a row, as Rich draws it."""


def _export(rows: Sequence[Text], *, title: str, unique_id: str, code_format: str) -> str:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    for row in rows:
        console.print(row, no_wrap=True, overflow="ignore", crop=False)
    return console.export_svg(title=title, unique_id=unique_id, code_format=code_format)


def draw_screen(rows: Sequence[Text], title: str) -> str:
    """Draw a screen."""
    return _tidy(_export(rows, title=title, unique_id="screen", code_format=_PAGE))


def draw_recording(frames: Sequence[tuple[float, Sequence[Text]]], title: str) -> str:
    """Draw screens one after another, for the seconds of each, again and again: by style sheets, without a script.

    A row that stays is drawn once. Who wants no motion sees the last screen.
    """
    height = max(len(rows) for _, rows in frames)
    total = sum(seconds for seconds, _ in frames)
    blank = draw_screen([Text()] * height, title)
    rules: list[str] = []
    groups: list[str] = []
    for number in range(height):
        begin = 0.0
        runs: list[tuple[float, float, Text]] = []
        for seconds, rows in frames:
            row = rows[number] if number < len(rows) else Text()
            if runs and runs[-1][2] == row and runs[-1][2].spans == row.spans:
                runs[-1] = (runs[-1][0], begin + seconds, row)
            else:
                runs.append((begin, begin + seconds, row))
            begin += seconds
        for begin_run, end, row in runs:
            if not row.plain:
                continue
            name = f"r{len(groups)}"
            start, stop = 100 * begin_run / total, 100 * end / total
            rules.append(_visibility(name, start, stop))
            last = " last" if end == total else ""
            drawn = _export([row], title="", unique_id=name, code_format=_ROW)
            drawn = re.sub(r' clip-path="[^"]*"', "", drawn)
            groups.append(
                f'<g class="row{last}" style="animation-name: {name}" transform="translate(0, {number * _LINE_HEIGHT:.1f})">'
                f"{drawn}</g>"
            )
    rules.append(f".row {{ visibility: hidden; animation: {total:g}s step-end infinite; }}")
    rules.append(
        "@media (prefers-reduced-motion: reduce) { .row { animation: none; } .row.last { visibility: visible; } }"
    )
    head, _, tail = blank.partition("</style>")
    body, _, end_tags = tail.rpartition('<g class="screen-matrix">')
    rest = end_tags[end_tags.index("</g>") :].removeprefix("</g>")
    return _tidy(head + "\n".join(rules) + "\n</style>" + body + "\n".join(groups) + rest)


def _visibility(name: str, start: float, stop: float) -> str:
    steps = ["0% { visibility: hidden; }"] if start else []
    steps.append(f"{start:.3f}% {{ visibility: visible; }}")
    if stop < 100:
        steps.append(f"{stop:.3f}% {{ visibility: hidden; }}")
    return f"@keyframes {name} {{ {' '.join(steps)} }}"


@dataclass(frozen=True)
class Bubble:
    """A message of a chat. `quoted`: what it replies to. `buttons`: those under it."""

    author: str
    text: str
    is_bot: bool
    quoted: str = ""
    buttons: tuple[str, ...] = ()


def draw_chat(bubbles: Sequence[Bubble], *, title: str, source: str, color: str) -> str:
    """Draw messages, those of the bot on the left; `source` says below where they come from."""
    width, wrap, line, y = 620, 56, 19, 62
    parts: list[str] = []
    for bubble in bubbles:
        rows = [(f"Reply to: {bubble.quoted}", "quote")] if bubble.quoted else []
        rows += [(row, "text") for part in bubble.text.split("\n") for row in (textwrap.wrap(part, wrap) or [""])]
        rows += [(f"[ {button} ]", "button") for button in bubble.buttons]
        x, height = (20 if bubble.is_bot else 110), 34 + line * len(rows)
        fill = "#ffffff" if bubble.is_bot else color
        parts.append(f'<rect x="{x}" y="{y}" width="490" height="{height}" rx="12" fill="{fill}" stroke="#c8ccd2"/>')
        parts.append(f'<text class="author" x="{x + 14}" y="{y + 22}">{escape(bubble.author)}</text>')
        for number, (row, kind) in enumerate(rows):
            if row:
                parts.append(f'<text class="{kind}" x="{x + 14}" y="{y + 43 + line * number}">{escape(row)}</text>')
        y += height + 10
    height = y + 36
    head = (
        f'<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg"><style>'
        f"text {{ font-family: {_SANS}; font-size: 15px; fill: #1d2127; }} .title {{ font-size: 18px; font-weight: bold; }}"
        " .author { font-weight: bold; font-size: 13px; } .quote, .source { fill: #5b6470; font-size: 13px; }"
        " .button { font-weight: bold; }</style>"
        f'<rect width="{width}" height="{height}" rx="10" fill="#eef1f5"/><text class="title" x="20" y="38">{escape(title)}</text>'
    )
    foot = f'<text class="source" x="20" y="{height - 18}">{escape(source)}</text></svg>\n'
    return "\n".join([head, *parts, foot])


def read_text(svg: str) -> list[str]:
    """Return the rows of text of a picture, in the order in which they are drawn."""
    rows: list[tuple[tuple[str, str], str]] = []
    for group in _with_text(ElementTree.fromstring(svg)):
        for element in group:
            key = (str(id(group)), element.get("y", ""))
            text = "".join(element.itertext()).replace("\xa0", " ")
            if rows and rows[-1][0] == key:
                rows[-1] = (key, rows[-1][1] + text)
            else:
                rows.append((key, text))
    return [text.rstrip() for _, text in rows]


def _with_text(root: ElementTree.Element) -> list[list[ElementTree.Element]]:
    tag = "{http://www.w3.org/2000/svg}text"
    return [found for group in root.iter() if (found := [one for one in group if one.tag == tag])]


def _tidy(svg: str) -> str:
    """Leave out blanks at the end of lines, which version control would complain about."""
    return "\n".join(line.rstrip() for line in svg.split("\n"))
