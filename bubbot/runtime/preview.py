"""Previews of a running turn: values for the channel, never facts. Nothing here can fail a turn."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from bubbot.ports.channel import Preview
from bubbot.runtime.router import THOUGHT_OPENS
from bubbot.texts import SILENT_MARK

PreviewCallback: TypeAlias = Callable[[str, Preview], None]
"""Takes the session and a preview; never blocks and never raises."""
MAX_ARGUMENTS_CHARS = 80
"""Characters of a call's arguments that are shown."""

_HALF_OPENED = re.compile(r"<[a-z]{0,9}\Z", re.IGNORECASE)


def ignore_preview(session: str, event: Preview) -> None:
    """Ignore previews, for channels that show none."""


def shorten(text: str, limit: int = MAX_ARGUMENTS_CHARS) -> str:
    """Shorten a text to its beginning, on one line."""
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit and len(text) <= 4 * limit else f"{line[: limit - 1]}…"


class PreviewText:
    """Text deltas as people may see them: without leaked reasoning, outer whitespace, or the mark of silence.

    The pieces add up to what `route_assistant` makes of the full text.
    """

    def __init__(self) -> None:
        self._unread = ""  # may still turn out to be a tag
        self._waiting = ""  # visible, but may still turn out to be trailing whitespace, or silence
        self._closing = ""  # the tag that ends the thought being read
        self._begun = False

    def feed(self, delta: str) -> str:
        """Return what may be shown now; hold back what may still turn out to be something else."""
        self._unread += delta
        while self._skip_to_tag():
            pass
        text = self._waiting if self._begun else self._waiting.lstrip()
        if not self._begun and SILENT_MARK.startswith(text.rstrip()):
            self._waiting = text
            return ""
        self._begun = True
        visible = text.rstrip()
        self._waiting = text[len(visible) :]
        return visible

    def flush(self) -> str:
        """Return what was held back and is visible after all, because the text ends here."""
        text = (self._waiting + ("" if self._closing else self._unread)).rstrip()
        self._waiting = self._unread = ""
        if self._begun:
            return text
        return "" if text.strip() == SILENT_MARK else text.lstrip()

    def _skip_to_tag(self) -> bool:
        """Read on to the beginning or end of a thought; return false if there is none yet."""
        if self._closing:
            end = re.search(re.escape(self._closing), self._unread, re.IGNORECASE)
            self._unread = self._unread[end.end() if end else -len(self._closing) :]
            self._closing = "" if end else self._closing
            return end is not None
        opening = THOUGHT_OPENS.search(self._unread)
        stop = opening or _HALF_OPENED.search(self._unread)
        at = stop.start() if stop else len(self._unread)
        self._waiting += self._unread[:at]
        self._unread = self._unread[opening.end() if opening else at :]
        self._closing = f"</{opening[1]}>" if opening else ""
        return opening is not None
