"""The inside of a paragraph, as Discord reads it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest

from markdown_it.token import Token

_SHOWN_AS_LINK = re.compile(r"https?://\S+", re.IGNORECASE)
_LONGEST_URL = 1_000
"""Characters of an address that hides behind a text; a longer one stands behind it, where it can be cut."""
_BEGINS = re.compile(r"^([ \t]*)(?:(#{1,3}|-#|[-+]|>|>>>)(?=\s|$)|(\d{1,9})(\.)(?=\s|$))", re.MULTILINE)
_SPECIAL = re.compile(
    r"(?P<tag><(?:@[!&]?|#)\d{1,20}>|<a?:\w{2,32}:\d{1,20}>|<t:-?\d{1,13}(?::[tTdDfFR])?>)"
    r"|\\(?=[^0-9A-Za-z\s]|$)|[*`_]|~~+|^~|~$|\|\|+|^\||\|$|\](?=\()"
)
_NONE = ("", 0, 0)
_MARKS = {"strong": "**", "em": "*", "s": "~~", "spoiler": "||"}


def inline(children: Sequence[Token], *, newline: str = "\n", bold: bool = False) -> str:
    """The text with Discord's marks. `newline` is how a line ends in it; `bold`: it stands in bold letters already."""
    return _InlineRenderer(newline, bold=bold).made(children)


def plain(children: Sequence[Token]) -> str:
    """The text without any looks, in one line."""
    found = []
    for token in children:
        if token.type in ("softbreak", "hardbreak"):
            found.append(" ")
        elif token.type == "image":
            found.append(plain(token.children or []) or str(token.attrs.get("src", "")))
        else:
            found.append(token.content)
    return "".join(found)


def linked(children: Sequence[Token]) -> bool:
    """Whether there is a link whose address is not its text."""
    for number, token in enumerate(children):
        if token.type == "image":
            return True
        if token.type == "link_open" and plain(children[number + 1 : number + 2]) != token.attrs.get("href"):
            return True
    return False


def code_safe(text: str) -> str:
    """Code in which nothing ends the block: three backticks get something invisible between them."""
    return re.sub(r"`{3,}", lambda found: "\u200b".join(found[0]), text)


def escaped(text: str, *, starts: bool = True) -> str:
    """A text that Discord shows as it is. `starts`: it stands at the beginning of a line."""
    text = _SPECIAL.sub(_signs, text)
    if starts:
        return _BEGINS.sub(_begins, text)
    first, end, rest = text.partition("\n")
    return first + end + _BEGINS.sub(_begins, rest)


def _signs(found: re.Match[str]) -> str:
    """Each sign escaped; what names a person, a channel, a picture or a time is left: it calls nobody."""
    return found[0] if found["tag"] else "".join(f"\\{sign}" for sign in found[0])


def _begins(found: re.Match[str]) -> str:
    return f"{found[1]}\\{found[2]}" if found[2] else f"{found[1]}{found[3]}\\{found[4]}"


class _InlineRenderer:
    def __init__(self, newline: str, *, bold: bool) -> None:
        self._newline = newline
        self._bold = bold
        self._pieces: list[str] = []
        self._open: list[tuple[str, int]] = []
        self._closed = _NONE  # the mark that was closed last, where it begins and ends
        self._links: list[tuple[Token, int]] = []

    def made(self, children: Sequence[Token]) -> str:
        shown = [token for token in children if token.content or token.type != "text"]
        for token, after in zip_longest(shown, shown[1:]):
            self._take(token, after)
        return "".join(self._pieces)

    def _take(self, token: Token, after: Token | None) -> None:
        if token.type in ("softbreak", "hardbreak"):
            self._pieces.append(" " if self._links else self._newline)
        elif token.type == "code_inline":
            self._code(token.content)
        elif token.type == "image":
            self._image(token)
        elif token.type == "link_open":
            self._links.append((token, len(self._pieces)))
        elif token.type == "link_close":
            self._linked(*self._links.pop(), after)
            self._closed = _NONE  # a link is one piece, with what was in it
        elif token.nesting:
            self._mark(token, after)
        else:
            self._pieces.append(escaped(token.content, starts=self._at_start()))

    def _last(self) -> str:
        return next((piece[-1] for piece in reversed(self._pieces) if piece), "\n")

    def _at_start(self) -> bool:
        return self._last() == "\n"

    def _mark(self, token: Token, after: Token | None) -> None:
        kind = token.type.rpartition("_")[0]
        if token.nesting > 0:
            mark = _MARKS.get(kind, "")
            if (kind == "strong" and self._bold) or any(open_mark == mark for open_mark, _ in self._open):
                mark = ""
            self._begin(mark)
            return
        mark, start = self._open.pop()
        self._end(mark, start, starred=after is not None and after.type == "strong_open")

    def _begin(self, mark: str) -> None:
        closed, start, end = self._closed
        if mark and closed == mark and not any(self._pieces[end + 1 :]):
            # Two of a kind side by side are one: their marks would be read together.
            self._pieces[end] = ""
            self._pieces[start] = mark
            self._open.append((mark, start))
        else:
            self._open.append((mark, len(self._pieces)))
            self._pieces.append(mark)

    def _end(self, mark: str, start: int, *, starred: bool) -> None:
        inner = [piece for piece in self._pieces[start + 1 :] if piece]
        if not "".join(inner).strip():
            self._pieces[start] = ""  # marks around nothing are not read as such
            return
        shown, before = mark, next((piece for piece in reversed(self._pieces[:start]) if piece), "")
        if mark == "*" and (starred or before in ("*", "**") or inner[0] in ("*", "**")):
            shown = self._pieces[start] = "_"  # beside another star it would be read with it
        self._closed = (mark, start, len(self._pieces))
        self._pieces.append(shown)

    def _code(self, content: str) -> None:
        """Code ends no mark in CommonMark, and does so in Discord: those whose signs are in it are left out."""
        for place, (mark, start) in enumerate(self._open):
            if any(sign in content for sign in (mark, "_" if mark == "*" else mark) if sign):
                self._pieces[start] = ""
                self._open[place] = ("", start)
        self._pieces.append(_code(content))

    def _image(self, token: Token) -> None:
        start = len(self._pieces)
        self._pieces.append(escaped(plain(token.children or []), starts=self._at_start()))
        self._behind(start, str(token.attrs.get("src", "")), token)

    def _linked(self, token: Token, start: int, after: Token | None) -> None:
        url = str(token.attrs.get("href", ""))
        text = "".join(self._pieces[start:])
        if (token.markup == "autolink" or (_says(text, url) and _goes_on(after))) and _SHOWN_AS_LINK.fullmatch(url):
            self._pieces[start:] = [f"<{url}>"]
        else:
            self._behind(start, url, token)

    def _behind(self, start: int, url: str, token: Token) -> None:
        """A link on what was written since `start`. One that Discord does not take stands behind its text."""
        text, title = "".join(self._pieces[start:]), str(token.attrs.get("title", ""))
        web = _SHOWN_AS_LINK.fullmatch(url) is not None
        if not text.strip() or _says(text, url):
            self._pieces[start:] = [text if not text.strip() and not url else url if web else escaped(url)]
        elif web and len(url) <= _LONGEST_URL and not self._links:
            target = url.replace("(", "%28").replace(")", "%29").replace("\\", "%5C")
            self._pieces[start:] = [f"[{_bracketed(text)}]({target})"]
        elif url and url not in (text, f"mailto:{text}"):
            self._pieces.append(f" ({url if web else escaped(url, starts=False)})")
        if title:
            self._pieces.append(f" ({escaped(title, starts=False)})")


def _says(text: str, url: str) -> bool:
    """Whether a text, escaped as it is, says the address itself."""
    return text in (escaped(url), escaped(url, starts=False))


def _goes_on(after: Token | None) -> bool:
    """Whether what follows would be read as part of an address."""
    return after is not None and after.type == "text" and after.content[:1] in tuple("*_~|`\\[")


def _bracketed(text: str) -> str:
    return re.sub(r"(?<!\\)([\[\]])", r"\\\1", text)


def _code(content: str) -> str:
    """Inline code; the marks around it are longer than any run of backticks in it."""
    if not content.strip():
        return content
    longest = max((len(run) for run in re.findall("`+", content)), default=0)
    if longest > 1:
        content, longest = "\u200b".join(re.split("(?<=`)(?=`)", content)), 1
    marks = "`" * (longest + 1)
    space = " " if content.startswith("`") or content.endswith("`") else ""
    return f"{marks}{space}{content}{space}{marks}"
