"""Pictures as SVG: a screen, screens one after another, and the messages of a chat."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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
    """A message of a chat. `quoted`: what it replies to. `buttons`: those under it.

    Without an author it is a note in the middle: what happened to the bot meanwhile.
    """

    author: str
    text: str
    is_bot: bool
    quoted: str = ""
    buttons: tuple[str, ...] = ()


_CHAT_WIDTH, _WRAP, _LINE, _CHAT_TOP, _CHAT_FOOT = 620, 56, 19, 62, 36
"""Sizes of a drawn chat: pixels, and characters of a line."""


def draw_chat(bubbles: Sequence[Bubble], *, title: str, source: str, color: str) -> str:
    """Draw messages, those of the bot on the left; `source` says below where they come from."""
    drawn, height = _draw_bubbles(bubbles, color)
    height += _CHAT_TOP + _CHAT_FOOT
    shown = [part for number, parts in drawn for part in parts(_CHAT_TOP + number)]
    return "\n".join([_chat_head(title, height), *shown, _chat_foot(source, height)])


def draw_moving_chat(
    frames: Sequence[tuple[float, Sequence[Bubble]]], *, title: str, source: str, color: str, height: int
) -> str:
    """Draw a chat as it grows, for the seconds of each state, again and again: by style sheets, without a script.

    Old messages leave at the top. Who wants no motion sees the last state.
    """
    total = sum(seconds for seconds, _ in frames)
    room = height - _CHAT_TOP - _CHAT_FOOT
    runs: dict[str, list[tuple[float, float]]] = {}
    begin = 0.0
    for seconds, bubbles in frames:
        drawn, needed = _draw_bubbles(bubbles, color)
        for top, parts in drawn:
            shown = "\n".join(parts(_CHAT_TOP + top - max(0, needed - room)))
            spans = runs.setdefault(shown, [])
            if spans and spans[-1][1] == begin:
                spans[-1] = (spans[-1][0], begin + seconds)
            else:
                spans.append((begin, begin + seconds))
        begin += seconds
    rules = [
        f".state {{ visibility: hidden; animation: {total:g}s step-end infinite; }}",
        "@media (prefers-reduced-motion: reduce) { .state { animation: none; } .state.last { visibility: visible; } }",
    ]
    groups: list[str] = []
    for shown, spans in runs.items():
        for start, stop in spans:
            name = f"m{len(groups)}"
            rules.append(_visibility(name, 100 * start / total, 100 * stop / total))
            last = " last" if stop == begin else ""
            groups.append(f'<g class="state{last}" style="animation-name: {name}">{shown}</g>')
    clip = f'<clipPath id="room"><rect y="{_CHAT_TOP - 10}" width="{_CHAT_WIDTH}" height="{room + 10}"/></clipPath>'
    head = _chat_head(title, height, "\n".join(rules))
    return "\n".join([head, clip, '<g clip-path="url(#room)">', *groups, "</g>", _chat_foot(source, height)])


def _draw_bubbles(bubbles: Sequence[Bubble], color: str) -> tuple[list[tuple[int, Callable[[int], list[str]]]], int]:
    """Return how to draw each message, with its distance from the top, and the height of all."""
    drawn: list[tuple[int, Callable[[int], list[str]]]] = []
    top = 0
    for bubble in bubbles:
        rows = _rows_of(bubble)
        height = _LINE + 12 if not bubble.author else 34 + _LINE * len(rows) + (38 if bubble.buttons else 0)
        drawn.append((top, partial(_draw_bubble, bubble, rows, height, color)))
        top += height + 10
    return drawn, top


def _rows_of(bubble: Bubble) -> list[tuple[str, str]]:
    rows = [(f"Reply to: {bubble.quoted}", "quote")] if bubble.quoted else []
    return rows + [(row, "text") for part in bubble.text.split("\n") for row in (textwrap.wrap(part, _WRAP) or [""])]


def _draw_bubble(bubble: Bubble, rows: Sequence[tuple[str, str]], height: int, color: str, y: int) -> list[str]:
    if not bubble.author:
        return [f'<text class="note" x="{_CHAT_WIDTH // 2}" y="{y + 20}">{escape(bubble.text)}</text>']
    x, fill = (20, "#ffffff") if bubble.is_bot else (110, color)
    parts = [f'<rect x="{x}" y="{y}" width="490" height="{height}" rx="12" fill="{fill}" stroke="#c8ccd2"/>']
    width = 462 // max(1, len(bubble.buttons))
    for number in range(len(bubble.buttons)):
        left, top = x + 14 + width * number, y + height - 40
        parts.append(f'<rect x="{left}" y="{top}" width="{width - 6}" height="30" rx="7" fill="#dcebfa"/>')
    parts.append(f'<text class="author" x="{x + 14}" y="{y + 22}">{escape(bubble.author)}</text>')
    for number, (row, kind) in enumerate(rows):
        if row:
            parts.append(f'<text class="{kind}" x="{x + 14}" y="{y + 43 + _LINE * number}">{escape(row)}</text>')
    for number, label in enumerate(bubble.buttons):
        middle, base = x + 14 + width * number + width // 2 - 3, y + height - 20
        parts.append(f'<text class="button" x="{middle}" y="{base}">{escape(label)}</text>')
    return parts


def _chat_head(title: str, height: int, rules: str = "") -> str:
    return (
        f'<svg viewBox="0 0 {_CHAT_WIDTH} {height}" xmlns="http://www.w3.org/2000/svg"><style>'
        f"text {{ font-family: {_SANS}; font-size: 15px; fill: #1d2127; }} .title {{ font-size: 18px; font-weight: bold; }}"
        " .author { font-weight: bold; font-size: 13px; } .quote, .source { fill: #5b6470; font-size: 13px; }"
        " .button { font-weight: bold; font-size: 13px; text-anchor: middle; }"
        f" .note {{ font-family: {_FONT}; font-size: 14px; fill: #a02020; text-anchor: middle; }}{rules}</style>"
        f'<rect width="{_CHAT_WIDTH}" height="{height}" rx="10" fill="#eef1f5"/>'
        f'<text class="title" x="20" y="38">{escape(title)}</text>'
    )


def _chat_foot(source: str, height: int) -> str:
    return f'<text class="source" x="20" y="{height - 18}">{escape(source)}</text></svg>\n'


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
