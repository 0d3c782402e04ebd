"""The text of a tainted answer for clients that render Markdown, changed so that rendering fetches nothing."""

from __future__ import annotations

import re
from collections.abc import Callable

from bubbot.runtime.shown import read_address

_WORDS = re.compile(r"[^\r\n]*[\r\n]|[^\r\n]*\s")
"""A line, or whole words of an unfinished one: no relevant pattern contains a space."""
_IMAGE, _TAG = re.compile(r"!+\["), re.compile(r"<(?=[A-Za-z/!?])")
_COUNTS = re.compile(r"!\[|<|//|www\.|\./|\w/", re.IGNORECASE)
"""A hint that occurs in every text that must change; most texts have none."""
_FENCE = re.compile(r"(`{3,})([^`\r\n]*)[\r\n]*\Z")
"""A whole line that opens or closes code. After any other fence, such as one in a list, nothing counts as code."""
_DRAWN = re.compile(r"\s*(html|xhtml|xml|svg|mermaid|md|markdown|jsx|tsx|vue|mdx)\b", re.IGNORECASE)
"""The languages of code that clients render."""
_ADDRESS = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.\-]*)?://|(?<![:/\w])//(?=[\w\-]+\.\w|\[)|"
    r"(?<![\w@/.\-])(?=www\.\w|(?:[\w\-]+\.)+[a-z]{2,}/\S)",
    re.IGNORECASE,
)
_HOST = re.compile(r"[\w.\-]*")
"""The beginning of an address as clients detect it: with a scheme, without one, or as a host with a path."""


class QuietText:
    """Text deltas made safe to show: images become links, tags are no tags, and addresses are broken.

    An address stays only if the model saw it: one that it composed may carry what it knows. Text that may still turn
    out to be something else is held back: a word until its end, and a line that may be a fence. The pieces add up to
    the same text wherever the deltas are cut.
    """

    def __init__(self, stands: Callable[[str], bool]) -> None:
        """Keep the addresses for which `stands` is true: the model saw them."""
        self._stands = stands
        self.restart()

    def restart(self) -> None:
        """Begin another text."""
        self._held = ""
        self._fence = ""
        self._is_drawn = False
        self._is_unsure = False
        self._begins_line = True

    def feed(self, delta: str) -> str:
        """Return the text to show now."""
        self._held += delta
        return self._read(is_end=False)

    def flush(self) -> str:
        """Return the rest."""
        return self._read(is_end=True) if self._held else ""

    def _read(self, *, is_end: bool) -> str:
        shown: list[str] = []
        while self._held:
            if self._begins_line and self._held.startswith("```"[: len(self._held)]):
                end = re.search(r"[\r\n]", self._held)
                if end is None and not is_end:
                    break
                line = self._held[: end.end()] if end else self._held
                if self._turn_fence(line):
                    shown.append(self._quieten(line))
                    self._held = self._held[len(line) :]
                    continue
            found = _WORDS.match(self._held)
            if found is None and not is_end:
                break
            words = found[0] if found else self._held
            self._held = self._held[len(words) :]
            self._begins_line = words[-1] in "\r\n"
            shown.append(self._quieten(words) if _COUNTS.search(words) else words)
            if "```" in words or ("~~~" in words and not self._fence):
                self._is_unsure = True  # the limits of code depend on its surroundings
        return "".join(shown)

    def _turn_fence(self, line: str) -> bool:
        """Begin or end code if this line does."""
        fence = _FENCE.match(line)
        if fence is None:
            return False
        if not self._fence:
            self._fence, self._is_drawn = fence[1], bool(_DRAWN.match(fence[2]))
        elif len(fence[1]) >= len(self._fence) and not fence[2].strip():
            self._fence = ""
        else:
            return False
        return True

    def _quieten(self, words: str) -> str:
        words = self._break_addresses(words)
        if self._fence and not self._is_drawn and not self._is_unsure:
            return words
        return _TAG.sub("< ", _IMAGE.sub("[", words))

    def _break_addresses(self, words: str) -> str:
        parts, place = list[str](), 0
        while found := _ADDRESS.search(words, place):
            start = found.start()
            address = read_address(words, start, found.end()) if found["scheme"] else ""
            if address and self._stands(address):
                end = start + len(address)
                parts.append(words[place:end])
            else:
                host = _HOST.match(words, found.end())
                assert host is not None  # it also matches the empty text
                beginning = found[0].replace("://", "[:]//") if found["scheme"] else found[0].replace("//", "/ /")
                end = host.end()
                parts += [words[place:start], beginning, host[0].replace(".", "[.]")]
            place = end
        return "".join([*parts, words[place:]])


def quieten(text: str, stands: Callable[[str], bool]) -> str:
    """Return a whole text as `QuietText` shows it."""
    quiet = QuietText(stands)
    return quiet.feed(text) + quiet.flush()
