"""What people see of a model's text, whole or while it streams."""

from __future__ import annotations

import re
import unicodedata

from bubbot.records import dataclass
from bubbot.runtime.thoughts import MARK_HINT, MAX_LINE_CHARS, ThoughtSplitter, has_marks, split_thoughts
from bubbot.texts import SILENT_MARK

_INVISIBLE = (
    r"\s\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Spaces, controls, and what Unicode lets nobody draw."""
_FILLERS = "\u115f\u1160\u3164\uffa0"
"""Those that are letters."""
_FENCE = r"^[^\S\n]*(?:`{3,}|~{3,})"
_EMPTY = (
    rf"(?:[{_INVISIBLE}#>]|&(?:nbsp|zwn?j|shy|e[nm]sp|thinsp|#(?:160|173|820[2-7]|8288|65279)|#x(?:a0|ad|200[a-f]|2060|feff));"
    rf"|</?(?:br|p)\s*/?>|{_FENCE}[\w+#.\-]*[^\S\n]*\n[{_INVISIBLE}]*{_FENCE}[^\S\n]*$|{_FENCE}\s*\Z|!?\[\]\(\))"
)
# An atomic group: Python before 3.11.5 lets a possessive one fail where it need not.
_NOTHING = re.compile(rf"(?>{_EMPTY}*)", re.IGNORECASE | re.MULTILINE)
"""What leaves nothing to read: invisible characters, also as HTML, and Markdown around nothing."""
_EMPTY_PIECE = re.compile(_EMPTY, re.IGNORECASE | re.MULTILINE)
_FENCE_LINE = re.compile(rf"{_FENCE}[\w+#.\-]*[^\S\n]*(?:\n|\Z)", re.MULTILINE)
_HALF = re.compile(r"(?:&#?\w{0,8}|<[/a-z ]{0,6}|!?\[\]?\(?|`+|~+)\Z", re.IGNORECASE)
"""The end of a text that may still become a piece of nothing."""
_DRESS = re.compile(rf"[{_INVISIBLE}\"'“”‘’«»„‹›*_~`\\.。!…,、;:·\-]+")
"""What models write around the mark of silence; punctuation as `NFKC` leaves it."""
_SILENT_WORD = SILENT_MARK.strip("[]")
_SILENCE = re.compile(rf"(?:[\[【〔〖⟦]+(?i:{_SILENT_WORD})[\]】〕〗⟧]+|[({{<《「『]{_SILENT_WORD}[)}}>》」』])+")
_NO_WORD = re.compile(r"[\W_]")
_LONGEST_SILENCE = 200


@dataclass(frozen=True, slots=True)
class RoutedAnswer:
    """The meaning of a model's text for people.

    Attributes:
        text: the text to deliver.
        silent: the model chose to say nothing.
        empty: there is no text, which is a failure.
        content: what the model is shown again: its text, as it wrote it or without its thoughts.
        thoughts: those within the text, with their marks; empty if it has none.
    """

    text: str
    silent: bool = False
    empty: bool = False
    content: str = ""
    thoughts: str = ""


def route_assistant(text: str) -> RoutedAnswer:
    """Take thoughts out and detect silence; the text is never executed, whatever it begins with."""
    visible, found = split_thoughts(text) if MARK_HINT.search(text) else (text, [])
    visible = visible.strip()
    content, thoughts = (visible, "\n".join(found)) if found else (text, "")
    first = visible[:1]
    if first.isalnum() and first not in _FILLERS:  # as most do: it is neither silence nor nothing
        return RoutedAnswer(visible, content=content, thoughts=thoughts)
    silent, empty = _is_silence(visible), _NOTHING.fullmatch(visible) is not None
    return RoutedAnswer("" if silent or empty else visible, silent, empty, content, thoughts)


def _is_silence(text: str) -> bool:
    """Return true if the text is the mark of silence in whatever dress, and nothing else."""
    if len(text) > _LONGEST_SILENCE:
        return False
    bare = _DRESS.sub("", unicodedata.normalize("NFKC", _FENCE_LINE.sub("", text)))
    return _SILENCE.fullmatch(bare) is not None


def _is_undecided(text: str) -> bool:
    """Return true if this beginning of a text may still become silence, or nothing."""
    rest = _HALF.sub("", _FENCE_LINE.sub("", text))
    if len(text) > _LONGEST_SILENCE:
        return _NOTHING.fullmatch(rest) is not None
    words = _NO_WORD.sub("", _EMPTY_PIECE.sub("", unicodedata.normalize("NFKC", rest))).upper()
    return (_SILENT_WORD * _LONGEST_SILENCE).startswith(words)


class PreviewText:
    """Text deltas as people may see them: without thoughts, outer whitespace, or the mark of silence.

    The pieces add up to what `route_assistant` makes of the full text, unless a mark ends a thought that none began, of
    which people have seen a part; then those since.

    Args:
        holds: show nothing until it is certain that it is no such thought.

    Attributes:
        is_wrong: what was shown so far was such a thought; whoever takes that back sets it to false.
    """

    def __init__(self, *, holds: bool = False) -> None:
        self._splitter = ThoughtSplitter(holds=holds)
        self._waiting = ""  # visible, but may still turn out to be trailing whitespace, silence, or nothing
        self._begun = False
        self._decides_at = 0
        self.is_wrong = False

    @property
    def is_unopened(self) -> bool:
        """True if there was a thought that no mark began."""
        return self._splitter.is_unopened

    def feed(self, delta: str) -> str:
        """Return what may be shown now; hold back what may still turn out to be something else."""
        splitter = self._splitter
        if self._begun and splitter.is_plain and "!" <= delta[-1:] <= "~" and not has_marks(delta):
            # As in most pieces: no mark, and no whitespace at the end. What is held back is whitespace.
            splitter.line += delta
            if splitter.line[MAX_LINE_CHARS:]:
                splitter.shorten_line()
            visible, self._waiting = self._waiting + delta, ""
            return visible
        was_unopened, visible = splitter.is_unopened, splitter.feed(delta)
        return self._pass(visible, has_ended=splitter.is_unopened and not was_unopened)

    def flush(self) -> str:
        """Return what was held back and is visible after all, because the text ends here."""
        was_unopened, visible = self._splitter.is_unopened, self._splitter.flush()
        shown = ""
        if visible or self.is_unopened:
            shown = self._pass(visible, has_ended=self.is_unopened and not was_unopened)
        if self._begun or not self._waiting:
            return shown
        rest = self._waiting.strip()
        return "" if _is_silence(rest) or _NOTHING.fullmatch(rest) else rest

    def _pass(self, visible: str, *, has_ended: bool) -> str:
        """Return what may be shown of a piece; `has_ended`: all before it was a thought."""
        if has_ended:
            self.is_wrong = self._begun
            self._waiting, self._begun = "", False
        text = self._waiting + visible
        if not self._begun:
            text = text.lstrip()
            begins_words = text[:1].isalnum() and text[0] not in _FILLERS
            if not begins_words and (text[self._decides_at :] == "" or _is_undecided(text.rstrip())):
                if text[_LONGEST_SILENCE:]:  # a long one is looked at seldom
                    self._decides_at = 2 * len(text)
                self._waiting = text
                return ""
        self._begun = True
        shown = text.rstrip()
        self._waiting = text[len(shown) :] if shown != text else ""
        return shown
