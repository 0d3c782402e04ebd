"""What people see of a model's text, whole or while it streams."""

from __future__ import annotations

import re

from bubbot.records import dataclass
from bubbot.texts import SILENT_MARK

_THOUGHT_OPENING = re.compile(r"<(think|thinking|reasoning)>", re.IGNORECASE)
_THOUGHT = re.compile(r"<(think|thinking|reasoning)>.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_HALF_OPENED = re.compile(r"<[a-z]{0,9}\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RoutedAnswer:
    """The meaning of a model's text for people.

    Attributes:
        text: the text to deliver.
        silent: the model chose to say nothing.
        empty: there is no text, which is a failure.
    """

    text: str
    silent: bool = False
    empty: bool = False


def route_assistant(text: str) -> RoutedAnswer:
    """Strip leaked reasoning and detect `[SILENT]`; the text is never executed, whatever it begins with."""
    visible = _THOUGHT.sub("", text).strip()
    if visible == SILENT_MARK:
        return RoutedAnswer("", silent=True)
    return RoutedAnswer(visible, empty=not visible)


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
        if self._begun and "!" <= delta[-1:] <= "~" and not (self._unread or self._closing) and "<" not in delta:
            # As in most pieces: no tag, and no whitespace at the end. What is held back is whitespace.
            visible, self._waiting = self._waiting + delta, ""
            return visible
        self._unread += delta
        if not self._closing and "<" not in self._unread:  # as in most pieces
            self._waiting, self._unread = self._waiting + self._unread, ""
        while self._unread and self._skip_to_tag():
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
        opening = _THOUGHT_OPENING.search(self._unread)
        stop = opening or _HALF_OPENED.search(self._unread)
        at = stop.start() if stop else len(self._unread)
        self._waiting += self._unread[:at]
        self._unread = self._unread[opening.end() if opening else at :]
        self._closing = f"</{opening[1]}>" if opening else ""
        return opening is not None
