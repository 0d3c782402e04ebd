"""The thoughts within a model's text, told apart from its answer, whole or while it streams."""

from __future__ import annotations

import re

_CORES = ("(?:ant)?think(?:ing)?", "thoughts?", "reasoning(?:_content|_scratchpad)?")
_PREFIX = r"(?:[\w.]{0,20}[:_.\d])?"
"""A name space, such as `seed:`, or the name of the model."""
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
"""The marks of Mistral, Kimi, Cohere, Open Thoughts, Apertus and Gemma that are no tags."""
_WRAPPERS = {
    "<final>": "</final>",
    "<|start_response|>": "<|end_response|>",
    "<|begin_of_solution|>": "<|end_of_solution|>",
    "<answer>": "</answer>",
    "<response>": "</response>",
    "<output>": "</output>",
}
"""What models write around the answer that follows their thoughts."""
_OWN_WRAPPERS = ("<answer>", "<response>", "<output>")
"""Those that may as well be the answer's own words, unless they follow a thought."""
_HEADER = (
    r"(?:<\|start\|>assistant(?: to=[\w.\-]{1,80})? ?)?"
    r"<\|channel\|>(?P<channel>(?:analysis|commentary|final)?(?: to=[\w.\-]{1,80})?) ?"
    r"(?:<\|constrain\|> ?\w{0,20} ?)?<\|message\|>|<\|start\|>assistant ?<\|message\|>"
)
"""What begins a message in the format of gpt-oss. A channel is for people, unless it is `analysis`, or names a recipient."""
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
_HINT = re.compile(r"think|thought|reasoning|final>|\|>|channel>|inner_", re.IGNORECASE)
"""What is in every text with a mark of its own: most answers have none."""
_SPECIAL = re.compile(r"[\n`~<\[◁]")
"""What every mark has, so that most pieces need not be searched for each."""
_CLOSING_CHARS = 80
"""The longest mark that ends a thought, and more."""
_HEAD_CHARS = 40
_FENCE_HEAD = re.compile(r"(?:[ \t]|[>*+\-]|\d{1,3}[.)])*")
"""What stands before a fence: it may be in a list or in a quotation."""
_FENCE_END = re.compile(r"[ \t>]*(`*|~*)[ \t\r]*\n?")
_MENTION_BEFORE = re.compile(r"[\s\"'`“”‘’«»„「『（(\[{<>/|]")
"""What stands before a mark that a sentence mentions, and seldom at the end of a thought."""


def _end_of(tag: str) -> re.Pattern[str]:
    """Return what ends a thought that a tag of this name begins."""
    core = next(core for core in _CORES if re.fullmatch(core, tag, re.IGNORECASE))
    return re.compile(rf"<[ \t]{{0,2}}/[ \t]{{0,2}}{_PREFIX}(?:{core})[ \t]{{0,2}}/?>", re.IGNORECASE)


def lacks_opening(thoughts: str) -> bool:
    """Return true if the first of a message's thoughts began without a mark: the prompt of its model opens it."""
    mark = _MARK.match(thoughts)
    return bool(thoughts) and (mark is None or mark.lastgroup not in ("tag", "pair", "header", "closing"))


def split_thoughts(text: str) -> tuple[str, list[str]]:
    """Split a whole text; see `ThoughtSplitter`."""
    if not _HINT.search(text):
        return text, []
    splitter = ThoughtSplitter(holds=True)
    return splitter.feed(text) + splitter.flush(), splitter.thoughts


class ThoughtSplitter:
    """Splits text deltas into what people may see and the thoughts.

    A thought begins with a mark at the beginning of the answer, of a line or after another thought, outside code, and
    ends with its own mark. Without that, the rest is a thought if nothing stands before it; else it is text, since part of
    an answer would be lost. A mark that ends a thought which none began makes all before it a thought, if it stands outside
    code, at the beginning of a line or right after a word, and is not part of a sentence that names both.
    The pieces add up to the same texts wherever the deltas are cut.

    Args:
        holds: show nothing until it is certain that it is no thought which no mark begins.

    Attributes:
        thoughts: with their marks, as the model wrote them.
        is_unopened: there was a thought which no mark began.
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
        self._begin_line()

    def feed(self, delta: str) -> str:
        """Return what people may see now."""
        if not (self._unread or self._fence or self._closing) and not _SPECIAL.search(delta):  # as in most pieces
            self._show(delta)
        else:
            self._unread += delta
            self._read(is_end=False)
        return self._take()

    def flush(self) -> str:
        """Return the rest."""
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

    def _read_thought(self, text: str, place: int, closing: re.Pattern[str], *, is_end: bool) -> int:
        end = closing.search(text, place)
        if end is not None and end[0] and text[end.start() - 1 : end.start()] == "`":
            if end.end() == len(text) and not is_end:
                return place
            if text[end.end() : end.end() + 1] == "`":  # it is mentioned
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
        fence = _FENCE_END.fullmatch(self._head + text[place:end])
        if fence is not None and text[end - 1] != "\n" and not is_end:
            return place
        if fence is not None and fence[1].startswith(self._fence):
            self._fence = ""
        self._show(text[place:end])
        return end

    def _read_words(self, text: str, place: int, *, is_end: bool) -> int:
        """Read up to a mark and the mark; stay before it if it may not be all."""
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
        if len(mark[0]) >= len("```") and _FENCE_HEAD.fullmatch(self._head):
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
        """Return true if a mark is none of the words that people see, and act on it."""
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
        """Return true if a mark ends a thought which none began."""
        if self._is_blank:
            self.thoughts.append("".join([*self._held, mark]))
            self._held.clear()
            return True
        is_glued = not (self._has_mention or _MENTION_BEFORE.match(self._last))
        if not self._may_lead or self._is_code or not (is_glued or self._begins_line()):
            return False
        self.thoughts.append("".join([*self._held, mark]))
        self._held.clear()
        self._shown.clear()
        self._is_blank, self.is_unopened = True, True
        self._end_thought()
        return True

    def _begins_line(self) -> bool:
        """Return true if nothing stands before on its line, and what follows is not indented as code."""
        return self._is_blank or (len(self._head) < len("    ") and not self._head.strip(" "))

    def _begin_line(self) -> None:
        self._head = self._last = ""
        self._is_code = self._has_mention = False

    def _show(self, text: str) -> None:
        if not text:
            return
        _, line_end, line = text.rpartition("\n")
        if line_end:
            self._begin_line()
        self._head += line[: _HEAD_CHARS - len(self._head)] if len(self._head) < _HEAD_CHARS else ""
        self._last = line[-1:] or self._last
        if "`" in line and len(re.findall("`+", line)) % 2:
            self._is_code = not self._is_code
        self._is_blank = self._is_blank and not text.strip()
        (self._held if self._holds and self._may_lead else self._shown).append(text)

    def _release(self) -> None:
        self._shown += self._held
        self._held.clear()
