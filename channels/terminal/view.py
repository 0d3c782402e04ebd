"""The terminal's display: answers as Markdown, text without control characters, completion of commands."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.utils import get_cwidth
from rich.console import Console
from rich.markdown import Markdown
from rich.theme import Theme

from bubbot.ports.channel import CommandInfo, ToolFinished, replace_controls
from bubbot.ports.markdown import parse_tokens
from channels.markdown.marked_text import clean_text

MAX_ANSWER_COLUMNS = 100
"""The widest answer, in columns: longer lines are hard to read."""
MAX_SUMMARY_CHARS = 60
FOLD_CHARS = 10_000
"""Characters of a line that are folded again at every drawing."""
_STYLES = {"u": "underline", "spoiler": "reverse"}
"""Marks that Rich doesn't know."""
_PADDING = re.compile(r"[ ]+((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)


def neutralise(text: str) -> str:
    """Replace characters that a terminal would obey.

    The text cannot move the cursor, rename the window, or reverse the direction of writing.
    """
    return replace_controls(text)


def render_markdown(text: str, *, width: int, colour: bool) -> str:
    """Render an answer for printing. The model's line breaks stay."""
    parsed = Markdown("", code_theme="ansi_dark", hyperlinks=False)
    parsed.parsed = parse_tokens(clean_text(neutralise(text)))  # by the rules of all platforms, not by Rich's own
    parsed.inlines = Markdown.inlines | set(_STYLES)
    for token in parsed.parsed:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"
            child.tag = child.tag or child.type.partition("_")[0]
    file = io.StringIO()
    console = Console(
        file=file,
        width=max(20, min(width, MAX_ANSWER_COLUMNS)),
        force_terminal=True,
        color_system="standard" if colour else None,
        no_color=not colour,
        legacy_windows=False,
        highlight=False,
        emoji=False,
        theme=Theme({f"markdown.{name}": style for name, style in _STYLES.items()}),
        _environ={},
    )
    console.print(parsed)
    # Lines padded with spaces would wrap into empty ones if the window became narrower.
    return _PADDING.sub(r"\1", file.getvalue()).strip("\n")


def dim(text: str, *, colour: bool) -> str:
    """Write an aside, such as a tool call, in faint letters."""
    return f"\x1b[2m{text}\x1b[0m" if colour else text


def format_tool_call(arguments: str, event: ToolFinished) -> str:
    """Format a finished tool call on one line."""
    outcome = f"{event.size} characters" if event.ok else "failed"
    storage = ", kept aside whole" if event.spilled else ""
    return " ".join(neutralise(f"· {event.name} {arguments} → {outcome}{storage}").split())


def fold_rows(text: str, width: int, max_rows: int) -> list[str]:
    """Fold a text in progress between words; return its last `max_rows` rows, none wider than `width`.

    A word that is wider than a row is broken, and so is writing without spaces, such as Chinese.
    """
    folded: list[str] = []
    begin = text.rfind("\n", 0, max(0, len(text) - width * max_rows)) + 1
    if len(text) - begin > FOLD_CHARS:  # from the same position at every drawing, or the rows would flicker
        begin += (len(text) - begin - width * max_rows) // FOLD_CHARS * FOLD_CHARS
    for line in neutralise(text[begin:]).expandtabs(4).split("\n"):
        folded.append("")
        used = 0
        for char in line:
            columns = get_cwidth(char)
            if used + columns > width:
                head, space, word = folded[-1].rpartition(" ")
                if not space or not head.strip() or char == " " or columns > 1 or get_cwidth(word) != len(word):
                    word = ""
                else:
                    folded[-1] = f"{head} "
                folded.append(word)
                used = len(word)
            folded[-1] += char
            used += columns
    return folded[-max_rows:]


class CommandCompleter(Completer):
    """A completer of comma commands and the names of their arguments."""

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
            yield from self._complete_names(name)
            return
        info = next((command for command in self._commands() if command.name == name), None)
        word = rest.rpartition(" ")[2]
        if info is None or "=" in word:
            return
        if info.arguments == ("command",):
            yield from self._complete_names(word.removeprefix(","))
            return
        for argument in info.arguments:
            if argument.startswith(word) and f"{argument}=" not in rest:
                yield Completion(f"{argument}=", start_position=-len(word))

    def _complete_names(self, prefix: str) -> Iterator[Completion]:
        for info in sorted(self._commands(), key=lambda info: info.name):
            if info.name.startswith(prefix):
                yield Completion(info.name, start_position=-len(prefix), display_meta=info.summary[:MAX_SUMMARY_CHARS])
