"""What a running turn shows: values for the channel, never facts. Nothing here can fail a turn."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from bubbot.ports.channel import Preview
from bubbot.runtime.router import THOUGHT_OPENS
from bubbot.texts import SILENT_MARK

Show: TypeAlias = Callable[[str, Preview], None]
"""Takes the session and what to show; never blocks and never raises."""
ARGUMENTS_SHOWN = 80
"""Characters of a call's arguments that are shown."""

_HALF_OPENED = re.compile(r"<[a-z]{0,9}\Z", re.IGNORECASE)


def show_nothing(session: str, event: Preview) -> None:
    """For channels that show no previews."""


def shortened(text: str, limit: int = ARGUMENTS_SHOWN) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit and len(text) <= 4 * limit else f"{line[: limit - 1]}…"


class PreviewText:
    """Text deltas as people may see them: without leaked reasoning, space around them, or the mark of silence.

    What is given out adds up to what `route_assistant` makes of the whole text.
    """

    def __init__(self) -> None:
        self._unread = ""  # may still turn out to be a tag
        self._waiting = ""  # visible, but may still turn out to be space at an end, or silence
        self._closing = ""  # the tag that ends the thought being read
        self._begun = False

    def feed(self, delta: str) -> str:
        """What may be shown now; what may still turn out to be something else is held back."""
        self._unread += delta
        while self._thought_or_text():
            pass
        text = self._waiting if self._begun else self._waiting.lstrip()
        if not self._begun and SILENT_MARK.startswith(text.rstrip()):
            self._waiting = text
            return ""
        self._begun = True
        shown = text.rstrip()
        self._waiting = text[len(shown) :]
        return shown

    def rest(self) -> str:
        """What was held back and is shown after all, because the text ends here."""
        text = (self._waiting + ("" if self._closing else self._unread)).rstrip()
        self._waiting = self._unread = ""
        if self._begun:
            return text
        return "" if text.strip() == SILENT_MARK else text.lstrip()

    def _thought_or_text(self) -> bool:
        """Reads on to where a thought ends or begins; False where there is no such place yet."""
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
