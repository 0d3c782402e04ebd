"""Separation of thoughts and answer within a model's text, whole or while it streams."""

from __future__ import annotations

import re

_CORES = ("(?:ant)?think(?:ing)?", "thoughts?", "reasoning(?:_content|_scratchpad)?")
_PREFIX = r"(?:[\w.]{0,20}[:_.\d])?"
"""A namespace, such as `seed:`, or the name of the model."""
_CORE = "|".join(_CORES)
_ATTRIBUTES = r"[\w.:=\"' \-]{0,80}"
_PAIRS = (
    (r"\[THINK\]", r"\[/THINK\]"),
    ("◁think▷", "◁/think▷"),
    (r"<\|think\|>", r"<\|/think\|>"),
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),
    (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),
    (r"<\|inner_prefix\|>", r"<\|inner_suffix\|>"),
    (r"<\|channel>thought", r"<channel\|>"),
)
"""The marks of Mistral, Kimi, Cohere, Open Thoughts, Apertus and Gemma, which are not tags."""
_WRAPPERS = {
    "<final>": "</final>",
    "<|start_response|>": "<|end_response|>",
    "<|begin_of_solution|>": "<|end_of_solution|>",
    "<answer>": "</answer>",
    "<response>": "</response>",
    "<output>": "</output>",
}
"""The marks around the answer that follows a thought."""
_OWN_WRAPPERS = ("<answer>", "<response>", "<output>")
"""Wrappers that may be the answer's own words unless they follow a thought."""
_HEADER = (
    r"(?:<\|start\|>assistant(?: to=[\w.\-]{1,80})? ?)?"
    r"<\|channel\|>(?P<channel>(?:analysis|commentary|final)?(?: to=[\w.\-]{1,80})?) ?"
    r"(?:<\|constrain\|> ?\w{0,20} ?)?<\|message\|>|<\|start\|>assistant ?<\|message\|>"
)
"""The beginning of a message in the format of gpt-oss. A channel is for people unless it is `analysis` or names a recipient."""
_TAG_END = re.compile(r"<\|(?:end|call|return)\|>|(?=<\|(?:start|channel)\|>)")

_MARK = re.compile(
    r"(?=[\n`~<\[◁])(?:"
    r"(?P<line>\n)"
    r"|(?P<ticks>`+|~{3,})"
    rf"|(?P<tag>(?i:<[ \t]{{0,2}}{_PREFIX}(?P<core>{_CORE})(?:[ \t]{_ATTRIBUTES})?(?P<void>/)?>))"
    rf"|(?P<pair>{'|'.join(opening for opening, _ in _PAIRS)})"
    rf"|(?P<header>{_HEADER})"
    rf"|(?P<closing>(?i:<[ \t]{{0,2}}/[ \t]{{0,2}}{_PREFIX}(?:{_CORE})[ \t]{{0,2}}/?>)|{'|'.join(closing for _, closing in _PAIRS)})"
    rf"|(?P<wrapper>(?i:{'|'.join(map(re.escape, _WRAPPERS))}))"
    rf"|(?P<unwrap>(?i:{'|'.join(map(re.escape, _WRAPPERS.values()))}))"
    r"|(?P<end><\|(?:end|call|return)\|>))"
)
_HALF = re.compile(
    r"(?:`+|~+|\[/?[A-Z]{0,5}|◁[/a-z]{0,6}|<[ \t]{0,2}/?[ \t]{0,2}[\w.:]{0,45}[ \t]{0,2}/?|<\|[\w/]{0,20}\|?|<\|channel>\w{0,7}|<channel\|?"
    rf"|(?i:<[ \t]{{0,2}}{_PREFIX}(?:{_CORE})[ \t]{_ATTRIBUTES}/?)"
    r"|<\|(?:start|channel)\|>[\w.\-<|>= ]{0,280})\Z"
)
"""The end of a text that may still become a mark."""
MARK_HINT = re.compile(r"think|thought|reasoning|final>|\|>|channel>|inner_", re.IGNORECASE)
"""A hint that occurs in every text with a mark; most answers have none."""
_CLOSING_CHARS = 80
"""Characters enough for the longest mark that ends a thought."""
_HEAD_CHARS = 40
MAX_LINE_CHARS = 4096
"""The most characters of an unfinished line to keep."""
_FENCE_HEAD = re.compile(r"(?:[ \t]|[>*+\-]|\d{1,3}[.)])*")
"""The text before a fence, which may be in a list or a quotation."""
_FENCE_END = re.compile(r"[ \t>]*(`*|~*)[ \t\r]*\n?")
_MENTION_BEFORE = re.compile(r"[\s\"'`“”‘’«»„「『（(\[{<>/|]")
"""The character before a mark that a sentence mentions; it is rare at the end of a thought."""


def _end_of(tag: str) -> re.Pattern[str]:
    """Return the pattern that ends a thought begun by a tag of this name."""
    core = next(core for core in _CORES if re.fullmatch(core, tag, re.IGNORECASE))
    return re.compile(rf"<[ \t]{{0,2}}/[ \t]{{0,2}}{_PREFIX}(?:{core})[ \t]{{0,2}}/?>", re.IGNORECASE)


def has_marks(text: str) -> bool:
    """Return true if a text may contain a mark or the end of a line."""
    return "\n" in text or "<" in text or "`" in text or "[" in text or "~" in text or "◁" in text


def _has_odd_ticks(line: str) -> bool:
    return "`" in line and len(re.findall("`+", line)) % 2 == 1


def lacks_opening(thoughts: str) -> bool:
    """Return true if the first of a message's thoughts began without a mark: the model's prompt opened it."""
    mark = _MARK.match(thoughts)
    return bool(thoughts) and (mark is None or mark.lastgroup not in ("tag", "pair", "header", "closing"))


def split_thoughts(text: str) -> tuple[str, list[str]]:
    """Split a whole text into the answer and its thoughts; see `ThoughtSplitter`."""
    splitter = ThoughtSplitter(holds=True)
    return splitter.feed(text) + splitter.flush(), splitter.thoughts


class ThoughtSplitter:
    """Splits text deltas into thoughts and text for people.

    A thought begins with a mark at the beginning of the answer, of a line or after another thought, outside code, and
    ends with its own mark. Without an end, the rest is a thought if nothing precedes it; otherwise it is text, since
    part of an answer would be lost. A mark that ends a thought which none began makes everything before it a thought,
    if it stands outside code, at the beginning of a line or right after a word, and not in a sentence that names both
    marks.

    The pieces add up to the same texts wherever the deltas are cut.

    Args:
        holds: show nothing until the text is certainly not a thought without an opening mark.

    Attributes:
        thoughts: with their marks, as the model wrote them.
        is_unopened: a thought had no opening mark.
        is_plain: a piece without marks is text for people.
        line: the visible part of the current line, shortened if it is very long.
    """

    def __init__(self, *, holds: bool) -> None:
        self.thoughts: list[str] = []
        self.is_unopened = False
        self._holds = holds
        self._held: list[str] = []
        self._unread = ""
        self._shown: list[str] = []
        self._thought: list[str] = []
        self._closing: re.Pattern[str] | None = None
        self._may_lead = True
        self._is_blank = True
        self._fence = ""
        self._unwrap = ""
        self._has_headers = False
        self.is_plain = not holds
        self._begin_line()

    def feed(self, delta: str) -> str:
        """Return the text that people may see now."""
        if self.is_plain and not has_marks(delta):  # the usual case
            self.line += delta
            self._is_blank = self._is_blank and not delta.strip()
            if self.line[MAX_LINE_CHARS:]:
                self.shorten_line()
            return delta
        self._unread += delta
        self._read(is_end=False)
        return self._take()

    def flush(self) -> str:
        """Return the rest."""
        if self.is_plain:
            return ""
        self._read(is_end=True)
        if self._closing is not None:
            rest, self._closing, self._unread = "".join(self._thought) + self._unread, None, ""
            if self._is_blank:
                self.thoughts.append(rest)
            else:
                self._show(rest)
        self._release()
        return self._take()

    def _take(self) -> str:
        shown = "".join(self._shown)
        self._shown.clear()
        return shown

    def _read(self, *, is_end: bool) -> None:
        text, place, before = self._unread, 0, -1
        while before < place < len(text):
            before = place
            if self._closing is not None:
                place = self._read_thought(text, place, self._closing, is_end=is_end)
            elif self._fence:
                place = self._read_code(text, place, is_end=is_end)
            else:
                place = self._read_words(text, place, is_end=is_end)
        self._unread = text[place:]
        is_held = self._holds and self._may_lead
        self.is_plain = not (self._unread or self._fence or is_held) and self._closing is None

    def _read_thought(self, text: str, place: int, closing: re.Pattern[str], *, is_end: bool) -> int:
        end = closing.search(text, place)
        if end is not None and end[0] and text[end.start() - 1 : end.start()] == "`":
            if end.end() == len(text) and not is_end:
                return place
            if text[end.end() : end.end() + 1] == "`":  # the text mentions the mark
                self._thought.append(text[place : end.end()])
                return end.end()
        if end is None:
            rest = max(place, len(text) - _CLOSING_CHARS)
            self._thought.append(text[place:rest])
            return rest
        self.thoughts.append("".join(self._thought) + text[place : end.end()])
        self._end_thought()
        return end.end()

    def _end_thought(self) -> None:
        self._thought, self._closing, self._may_lead = [], None, False
        self._release()
        self._begin_line()

    def _read_code(self, text: str, place: int, *, is_end: bool) -> int:
        """Read a line of code, or the rest of one."""
        end = text.find("\n", place) + 1 or len(text)
        fence = _FENCE_END.fullmatch(self.line[:_HEAD_CHARS] + text[place:end])
        if fence is not None and text[end - 1] != "\n" and not is_end:
            return place
        if fence is not None and fence[1].startswith(self._fence):
            self._fence = ""
        self._show(text[place:end])
        return end

    def _read_words(self, text: str, place: int, *, is_end: bool) -> int:
        """Read up to a mark and the mark itself; stop before it if it may be incomplete."""
        mark = _MARK.search(text, place)
        if mark is None:
            half = None if is_end else _HALF.search(text, place)
            end = half.start() if half else len(text)
            self._show(text[place:end])
            return end
        self._show(text[place : mark.start()])
        kind = mark.lastgroup
        if kind == "ticks":
            return self._read_ticks(text, mark, is_end=is_end)
        if kind == "unwrap" and mark[0].lower() == self._unwrap and not text[mark.end() :].strip():
            return len(text) if is_end else mark.start()
        if not self._obeys(mark):
            self._show(mark[0])
        return mark.end()

    def _read_ticks(self, text: str, mark: re.Match[str], *, is_end: bool) -> int:
        if mark.end() == len(text) and not is_end:
            return mark.start()
        if len(mark[0]) >= len("```") and _FENCE_HEAD.fullmatch(self.line[:_HEAD_CHARS]):
            end = text.find("\n", mark.end()) + 1
            if not end and not is_end:
                return mark.start()
            if mark[0][0] == "~" or "`" not in text[mark.end() : end or len(text)]:
                self._fence = mark[0]
                self._show(text[mark.start() : end or len(text)])
                return end or len(text)
        self._show(mark[0])
        return mark.end()

    def _obeys(self, mark: re.Match[str]) -> bool:
        """Act on a mark; return false if it is part of the visible text."""
        match mark.lastgroup:
            case "tag" | "pair" | "header":
                if not self._begins_line():
                    self._has_mention = True
                    return False
                self._begin_thought(mark)
            case "closing":
                return self._end_unopened(mark[0])
            case "wrapper":
                opening = mark[0].lower()
                if not self._is_blank or (opening in _OWN_WRAPPERS and not self.thoughts):
                    return False
                self._unwrap = _WRAPPERS[opening]
            case "end":
                if not self._has_headers:
                    return False
                self._begin_line()
            case _:
                return False
        return True

    def _begin_thought(self, mark: re.Match[str]) -> None:
        if mark["header"] is not None:
            self._has_headers = True
            channel = mark["channel"] or ""
            if not channel.startswith("analysis") and "to=" not in mark[0]:
                return
            self._closing = _TAG_END
        elif mark["tag"] is not None:
            self._closing = _end_of(mark["core"])
        else:
            closings = [closing for opening, closing in _PAIRS if re.fullmatch(opening, mark[0])]
            self._closing = re.compile(closings[0])
        self._thought = [mark[0]]
        if mark["void"] is not None:
            self.thoughts.append(mark[0])
            self._end_thought()

    def _end_unopened(self, mark: str) -> bool:
        """Return true if a mark ends a thought that no mark began."""
        if self._is_blank:
            self.thoughts.append("".join([*self._held, mark]))
            self._held.clear()
            return True
        is_glued = not (self._has_mention or _MENTION_BEFORE.match(self.line[-1:]))
        if not self._may_lead or not (is_glued or self._begins_line()) or self._is_odd != _has_odd_ticks(self.line):
            return False
        self.thoughts.append("".join([*self._held, mark]))
        self._held.clear()
        self._shown.clear()
        self._is_blank, self.is_unopened = True, True
        self._end_thought()
        return True

    def _begins_line(self) -> bool:
        """Return true at the beginning of a line that is not indented like code."""
        return self._is_blank or self.line in ("", " ", "  ", "   ")

    def _begin_line(self) -> None:
        self.line = ""
        self._is_odd = self._has_mention = False

    def shorten_line(self) -> None:
        """Keep the relevant parts of a long line: its beginning, its end, and if the end is code."""
        short = f"{self.line[:_HEAD_CHARS]}…{self.line[-1]}"
        self._is_odd ^= _has_odd_ticks(self.line) != _has_odd_ticks(short)
        self.line = short

    def _show(self, text: str) -> None:
        if not text:
            return
        _, line_end, line = text.rpartition("\n")
        if line_end:
            self._begin_line()
        self.line += line
        if self.line[MAX_LINE_CHARS:]:
            self.shorten_line()
        self._is_blank = self._is_blank and not text.strip()
        (self._held if self._holds and self._may_lead else self._shown).append(text)

    def _release(self) -> None:
        self._shown += self._held
        self._held.clear()
