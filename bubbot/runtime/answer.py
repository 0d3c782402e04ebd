"""The part of a model's text that people see, whole or while it streams."""

from __future__ import annotations

import re
import unicodedata

from msgspec import Struct

from bubbot.formatting import clean_label
from bubbot.ports.agents import Agent
from bubbot.runtime.thoughts import MARK_HINT, MAX_LINE_CHARS, ThoughtSplitter, has_marks, split_thoughts
from bubbot.texts import SILENT_MARK

_INVISIBLE = (
    r"\s\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Spaces, controls, and characters that are never drawn."""
_FILLERS = "\u115f\u1160\u3164\uffa0"
"""The invisible characters that count as letters."""
_FENCE = r"^[^\S\n]*(?:`{3,}|~{3,})"
_EMPTY = (
    rf"(?:[{_INVISIBLE}#>]|&(?:nbsp|zwn?j|shy|e[nm]sp|thinsp|#(?:160|173|820[2-7]|8288|65279)|#x(?:a0|ad|200[a-f]|2060|feff));"
    rf"|</?(?:br|p)\s*/?>|{_FENCE}[\w+#.\-]*[^\S\n]*\n[{_INVISIBLE}]*{_FENCE}[^\S\n]*$|{_FENCE}\s*\Z|!?\[\]\(\))"
)
# An atomic group: Python before 3.11.5 lets a possessive one fail where it need not.
_NOTHING = re.compile(rf"(?>{_EMPTY}*)", re.IGNORECASE | re.MULTILINE)
"""Text without anything to read: invisible characters, also as HTML, and Markdown around nothing."""
_EMPTY_PIECE = re.compile(_EMPTY, re.IGNORECASE | re.MULTILINE)
_FENCE_LINE = re.compile(rf"{_FENCE}[\w+#.\-]*[^\S\n]*(?:\n|\Z)", re.MULTILINE)
_HALF = re.compile(r"(?:&#?\w{0,8}|<[/a-z ]{0,6}|!?\[\]?\(?|`+|~+)\Z", re.IGNORECASE)
"""The end of a text that may still become such a piece."""
_DRESS = re.compile(rf"[{_INVISIBLE}\"'“”‘’«»„‹›*_~`\\.。!…,、;:·\-]+")
"""The characters that models write around the mark of silence; punctuation after `NFKC`."""
_SILENT_WORD = SILENT_MARK.strip("[]")
_SILENCE = re.compile(rf"(?:[\[【〔〖⟦]+(?i:{_SILENT_WORD})[\]】〕〗⟧]+|[({{<《「『]{_SILENT_WORD}[)}}>》」』])+")
_NO_WORD = re.compile(r"[\W_]")
_LONGEST_SILENCE = 200
MAX_TITLE_CHARS = 64
"""Characters of the name before an answer."""


class RoutedAnswer(Struct, frozen=True):
    """The meaning of a model's text for people.

    Attributes:
        text: to deliver.
        silent: the model chose to say nothing.
        empty: there is no text, which counts as a failure.
        content: the text for later requests: as the model wrote it, or without its thoughts.
        thoughts: the thoughts within the text, with their marks; empty for none.
    """

    text: str
    silent: bool = False
    empty: bool = False
    content: str = ""
    thoughts: str = ""


_BLOCK = re.compile(r"\s*(?:[#>|]|[-*+] |\d+[.)] |`{3}|~{3})")
"""The beginning of a text in Markdown that has to stand at the beginning of a line."""


def label_answer(agent: Agent, text: str) -> str:
    """Put the name of an agent before its answer, if several live in the chat; an empty text gives the beginning of one."""
    if not agent.is_among_others:
        return text
    name = f"**{clean_label(agent.title, MAX_TITLE_CHARS)}:**"
    return f"{name}\n\n{text}" if _BLOCK.match(text) else f"{name} {text}"


def route_assistant(text: str) -> RoutedAnswer:
    """Take thoughts out and detect silence. The text is never executed, even if it looks like a command."""
    visible, found = split_thoughts(text) if MARK_HINT.search(text) else (text, [])
    visible = visible.strip()
    content, thoughts = (visible, "\n".join(found)) if found else (text, "")
    first = visible[:1]
    if first.isalnum() and first not in _FILLERS:  # the usual case: the text is neither silence nor empty
        return RoutedAnswer(visible, content=content, thoughts=thoughts)
    silent, empty = _is_silence(visible), _NOTHING.fullmatch(visible) is not None
    return RoutedAnswer("" if silent or empty else visible, silent, empty, content, thoughts)


def _is_silence(text: str) -> bool:
    """Return true if the text is only the mark of silence, however decorated."""
    if len(text) > _LONGEST_SILENCE:
        return False
    bare = _DRESS.sub("", unicodedata.normalize("NFKC", _FENCE_LINE.sub("", text)))
    return _SILENCE.fullmatch(bare) is not None


def _is_undecided(text: str) -> bool:
    """Return true if this beginning of a text may still turn out to be silence, or empty."""
    rest = _HALF.sub("", _FENCE_LINE.sub("", text))
    if len(text) > _LONGEST_SILENCE:
        return _NOTHING.fullmatch(rest) is not None
    words = _NO_WORD.sub("", _EMPTY_PIECE.sub("", unicodedata.normalize("NFKC", rest))).upper()
    return (_SILENT_WORD * _LONGEST_SILENCE).startswith(words)


class PreviewText:
    """Text deltas as people may see them: without thoughts, outer whitespace, or the mark of silence.

    The pieces add up to the text of `route_assistant`. If a mark ends a thought that no mark began after people saw
    part of it, only the pieces since that mark do.

    Args:
        holds: show nothing until the text is certainly not such a thought.

    Attributes:
        is_wrong: the text shown so far was such a thought; the code that retracts it resets this.
    """

    def __init__(self, *, holds: bool = False) -> None:
        self._splitter = ThoughtSplitter(holds=holds)
        self._waiting = ""  # visible, but may still turn out to be trailing whitespace, silence, or nothing
        self._begun = False
        self._decides_at = 0
        self.is_wrong = False

    @property
    def is_unopened(self) -> bool:
        """True if the text had a thought that no mark began."""
        return self._splitter.is_unopened

    def feed(self, delta: str) -> str:
        """Return the text to show now; hold back text that may still turn out to be something else."""
        splitter = self._splitter
        if self._begun and splitter.is_plain and "!" <= delta[-1:] <= "~" and not has_marks(delta):
            # The usual piece has no mark and no whitespace at the end. Only whitespace is held back.
            splitter.line += delta
            if splitter.line[MAX_LINE_CHARS:]:
                splitter.shorten_line()
            visible, self._waiting = self._waiting + delta, ""
            return visible
        was_unopened, visible = splitter.is_unopened, splitter.feed(delta)
        return self._pass(visible, has_ended=splitter.is_unopened and not was_unopened)

    def flush(self) -> str:
        """End the text; return the held-back text that is visible after all."""
        was_unopened, visible = self._splitter.is_unopened, self._splitter.flush()
        shown = ""
        if visible or self.is_unopened:
            shown = self._pass(visible, has_ended=self.is_unopened and not was_unopened)
        if self._begun or not self._waiting:
            return shown
        rest = self._waiting.strip()
        return "" if _is_silence(rest) or _NOTHING.fullmatch(rest) else rest

    def _pass(self, visible: str, *, has_ended: bool) -> str:
        """Return the text to show of a piece; `has_ended`: everything before it was a thought."""
        if has_ended:
            self.is_wrong = self._begun
            self._waiting, self._begun = "", False
        text = self._waiting + visible
        if not self._begun:
            text = text.lstrip()
            begins_words = text[:1].isalnum() and text[0] not in _FILLERS
            if not begins_words and (text[self._decides_at :] == "" or _is_undecided(text.rstrip())):
                if text[_LONGEST_SILENCE:]:  # check long texts less often
                    self._decides_at = 2 * len(text)
                self._waiting = text
                return ""
        self._begun = True
        shown = text.rstrip()
        self._waiting = text[len(shown) :] if shown != text else ""
        return shown
