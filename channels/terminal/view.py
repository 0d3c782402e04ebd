"""How the terminal shows things: answers as Markdown, everything harmless, commands completed."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.utils import get_cwidth
from rich.console import Console
from rich.markdown import Markdown

from bubbot.ports.channel import CommandInfo, ToolFinished, replace_controls

WIDEST = 100
"""Columns an answer takes at most: longer lines are hard to read."""
SUMMARY_SHOWN = 60
FOLD_CHARS = 10_000
"""Characters of a line that are folded anew at every drawing."""
_PADDING = re.compile(r"[ ]+((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)


def harmless(text: str) -> str:
    """The text without what a terminal would obey: it cannot move the cursor, rename the window, or turn its
    direction around."""
    return replace_controls(text)


def markdown(text: str, *, width: int, colour: bool) -> str:
    """An answer as it is printed. Line breaks stay where the model made them."""
    parsed = Markdown(harmless(text), code_theme="ansi_dark", hyperlinks=False)
    for token in parsed.parsed:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"
    file = io.StringIO()
    console = Console(
        file=file,
        width=max(20, min(width, WIDEST)),
        force_terminal=True,
        color_system="standard" if colour else None,
        no_color=not colour,
        legacy_windows=False,
        highlight=False,
        emoji=False,
        _environ={},
    )
    console.print(parsed)
    # Lines filled up with spaces would wrap into empty ones in a window made narrower.
    return _PADDING.sub(r"\1", file.getvalue()).strip("\n")


def dim(text: str, *, colour: bool) -> str:
    """An aside, such as a tool call."""
    return f"\x1b[2m{text}\x1b[0m" if colour else text


def tool_line(arguments: str, ended: ToolFinished) -> str:
    """A finished tool call on one line."""
    outcome = f"{ended.size} characters" if ended.ok else "failed"
    kept = ", kept aside whole" if ended.spilled else ""
    return " ".join(harmless(f"· {ended.name} {arguments} → {outcome}{kept}").split())


def rows(text: str, width: int, most: int) -> list[str]:
    """The last rows of a text that is still being written, none wider than `width`."""
    made: list[str] = []
    begin = text.rfind("\n", 0, max(0, len(text) - width * most)) + 1
    if len(text) - begin > FOLD_CHARS:  # from the same place at every drawing, or the rows would flicker
        begin += (len(text) - begin - width * most) // FOLD_CHARS * FOLD_CHARS
    for line in harmless(text[begin:]).expandtabs(4).split("\n"):
        made.append("")
        used = 0
        for char in line:
            wide = get_cwidth(char)
            if used + wide > width:
                made.append("")
                used = 0
            made[-1] += char
            used += wide
    return made[-most:]


class CommandCompleter(Completer):
    """Completes the names of comma commands and of their arguments."""

    def __init__(self, commands: Callable[[], Sequence[CommandInfo]]) -> None:
        self._commands = commands

    def get_completions(
        self,
        document: Document,
        complete_event: CompleteEvent,  # noqa: ARG002 - the port's signature
    ) -> Iterator[Completion]:
        """See `Completer`."""
        before = document.text_before_cursor
        if not before.startswith(","):
            return
        name, space, rest = before[1:].partition(" ")
        if not space:
            yield from self._names(name)
            return
        info = next((one for one in self._commands() if one.name == name), None)
        word = rest.rpartition(" ")[2]
        if info is None or "=" in word:
            return
        if info.arguments == ("command",):
            yield from self._names(word.removeprefix(","))
            return
        for argument in info.arguments:
            if argument.startswith(word) and f"{argument}=" not in rest:
                yield Completion(f"{argument}=", start_position=-len(word))

    def _names(self, begun: str) -> Iterator[Completion]:
        for one in sorted(self._commands(), key=lambda info: info.name):
            if one.name.startswith(begun):
                yield Completion(one.name, start_position=-len(begun), display_meta=one.summary[:SUMMARY_SHOWN])
