"""Rendering of inline Markdown for Discord."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest

from markdown_it.token import Token

_SHOWN_AS_LINK = re.compile(r"https?://\S+", re.IGNORECASE)
_LONGEST_URL = 1_000
"""Characters of a URL that is hidden behind a text; a longer one follows the text, where it can be split."""
_LINE_START = re.compile(r"^([ \t]*)(?:(#{1,3}|-#|[-+]|>|>>>)(?=\s|$)|(\d{1,9})(\.)(?=\s|$))", re.MULTILINE)
_SPECIAL = re.compile(
    r"(?P<tag><(?:@[!&]?|#)\d{1,20}>|<a?:\w{2,32}:\d{1,20}>|<t:-?\d{1,13}(?::[tTdDfFR])?>)"
    r"|\\(?=[^0-9A-Za-z\s]|$)|[*`_]|~~+|^~|~$|\|\|+|^\||\|$|\](?=\()"
)
_NONE = ("", 0, 0)
_MARKS = {"strong": "**", "em": "*", "s": "~~", "spoiler": "||"}


def render_inline(children: Sequence[Token], *, newline: str = "\n", is_bold: bool = False) -> str:
    """Render text with Discord's marks. `newline` replaces line ends; `is_bold`: the surrounding text is bold already."""
    return _InlineRenderer(newline, bold=is_bold).render(children)


def plain_text(children: Sequence[Token]) -> str:
    """Return the text without formatting, on one line."""
    parts = []
    for token in children:
        if token.type in ("softbreak", "hardbreak"):
            parts.append(" ")
        elif token.type == "image":
            parts.append(plain_text(token.children or []) or str(token.attrs.get("src", "")))
        else:
            parts.append(token.content)
    return "".join(parts)


def has_hidden_url(children: Sequence[Token]) -> bool:
    """Return true if there is an image, or a link whose URL is not its text."""
    for number, token in enumerate(children):
        if token.type == "image":
            return True
        if token.type == "link_open" and plain_text(children[number + 1 : number + 2]) != token.attrs.get("href"):
            return True
    return False


def escape_code(text: str) -> str:
    """Return code that cannot end its block: put an invisible character between three backticks."""
    return re.sub(r"`{3,}", lambda match: "\u200b".join(match[0]), text)


def escape_text(text: str, *, at_line_start: bool = True) -> str:
    """Escape a text so that Discord shows it literally. `at_line_start`: the text is at the beginning of a line."""
    text = _SPECIAL.sub(_escape_signs, text)
    if at_line_start:
        return _LINE_START.sub(_escape_line_start, text)
    first, end, rest = text.partition("\n")
    return first + end + _LINE_START.sub(_escape_line_start, rest)


def _escape_signs(match: re.Match[str]) -> str:
    """Escape each sign; leave the tags of people, channels, emoji and times: allowed_mentions keeps them silent."""
    return match[0] if match["tag"] else "".join(f"\\{sign}" for sign in match[0])


def _escape_line_start(match: re.Match[str]) -> str:
    return f"{match[1]}\\{match[2]}" if match[2] else f"{match[1]}{match[3]}\\{match[4]}"


class _InlineRenderer:
    def __init__(self, newline: str, *, bold: bool) -> None:
        self._newline = newline
        self._bold = bold
        self._pieces: list[str] = []
        self._open: list[tuple[str, int]] = []
        self._closed = _NONE  # the mark that was closed last, with the positions of its start and end
        self._links: list[tuple[Token, int]] = []

    def render(self, children: Sequence[Token]) -> str:
        tokens = [token for token in children if token.content or token.type != "text"]
        for token, after in zip_longest(tokens, tokens[1:]):
            self._render_token(token, after)
        return "".join(self._pieces)

    def _render_token(self, token: Token, after: Token | None) -> None:
        if token.type in ("softbreak", "hardbreak"):
            self._pieces.append(" " if self._links else self._newline)
        elif token.type == "code_inline":
            self._add_code(token.content)
        elif token.type == "image":
            self._add_image(token)
        elif token.type == "link_open":
            self._links.append((token, len(self._pieces)))
        elif token.type == "link_close":
            self._close_link(*self._links.pop(), after)
            self._closed = _NONE  # the link with its content is one piece
        elif token.nesting:
            self._toggle_mark(token, after)
        else:
            self._pieces.append(escape_text(token.content, at_line_start=self._at_start()))

    def _last(self) -> str:
        return next((piece[-1] for piece in reversed(self._pieces) if piece), "\n")

    def _at_start(self) -> bool:
        return self._last() == "\n"

    def _toggle_mark(self, token: Token, after: Token | None) -> None:
        kind = token.type.rpartition("_")[0]
        if token.nesting > 0:
            mark = _MARKS.get(kind, "")
            if (kind == "strong" and self._bold) or any(open_mark == mark for open_mark, _ in self._open):
                mark = ""
            self._open_mark(mark)
            return
        mark, start = self._open.pop()
        self._close_mark(mark, start, starred=after is not None and after.type == "strong_open")

    def _open_mark(self, mark: str) -> None:
        closed, start, end = self._closed
        if mark and closed == mark and not any(self._pieces[end + 1 :]):
            # Join two adjacent spans of one kind: Discord would read their marks together.
            self._pieces[end] = ""
            self._pieces[start] = mark
            self._open.append((mark, start))
        else:
            self._open.append((mark, len(self._pieces)))
            self._pieces.append(mark)

    def _close_mark(self, mark: str, start: int, *, starred: bool) -> None:
        inner = [piece for piece in self._pieces[start + 1 :] if piece]
        if not "".join(inner).strip():
            self._pieces[start] = ""  # Discord shows marks around nothing as text
            return
        sign, before = mark, next((piece for piece in reversed(self._pieces[:start]) if piece), "")
        if mark == "*" and (starred or before in ("*", "**") or inner[0] in ("*", "**")):
            sign = self._pieces[start] = "_"  # next to another star Discord would read both together
        self._closed = (mark, start, len(self._pieces))
        self._pieces.append(sign)

    def _add_code(self, content: str) -> None:
        """Add inline code; drop open marks whose signs it contains: in Discord, unlike CommonMark, code ends them."""
        for index, (mark, start) in enumerate(self._open):
            if any(sign in content for sign in (mark, "_" if mark == "*" else mark) if sign):
                self._pieces[start] = ""
                self._open[index] = ("", start)
        self._pieces.append(_inline_code(content))

    def _add_image(self, token: Token) -> None:
        start = len(self._pieces)
        self._pieces.append(escape_text(plain_text(token.children or []), at_line_start=self._at_start()))
        self._attach_url(start, str(token.attrs.get("src", "")), token)

    def _close_link(self, token: Token, start: int, after: Token | None) -> None:
        url = str(token.attrs.get("href", ""))
        text = "".join(self._pieces[start:])
        if (
            token.markup == "autolink" or (_is_url_text(text, url) and _extends_url(after))
        ) and _SHOWN_AS_LINK.fullmatch(url):
            self._pieces[start:] = [f"<{url}>"]
        else:
            self._attach_url(start, url, token)

    def _attach_url(self, start: int, url: str, token: Token) -> None:
        """Make the text since `start` a link; put a URL that Discord does not accept after the text."""
        text, title = "".join(self._pieces[start:]), str(token.attrs.get("title", ""))
        is_web = _SHOWN_AS_LINK.fullmatch(url) is not None
        if not text.strip() or _is_url_text(text, url):
            self._pieces[start:] = [text if not text.strip() and not url else url if is_web else escape_text(url)]
        elif is_web and len(url) <= _LONGEST_URL and not self._links:
            target = url.replace("(", "%28").replace(")", "%29").replace("\\", "%5C")
            self._pieces[start:] = [f"[{_escape_brackets(text)}]({target})"]
        elif url and url not in (text, f"mailto:{text}"):
            self._pieces.append(f" ({url if is_web else escape_text(url, at_line_start=False)})")
        if title:
            self._pieces.append(f" ({escape_text(title, at_line_start=False)})")


def _is_url_text(text: str, url: str) -> bool:
    """Return true if an escaped text is the URL itself."""
    return text in (escape_text(url), escape_text(url, at_line_start=False))


def _extends_url(after: Token | None) -> bool:
    """Return true if Discord would read the following text as part of a URL."""
    return after is not None and after.type == "text" and after.content[:1] in tuple("*_~|`\\[")


def _escape_brackets(text: str) -> str:
    return re.sub(r"(?<!\\)([\[\]])", r"\\\1", text)


def _inline_code(content: str) -> str:
    """Return inline code with delimiters longer than any run of backticks in it."""
    if not content.strip():
        return content
    longest = max((len(run) for run in re.findall("`+", content)), default=0)
    if longest > 1:
        content, longest = "\u200b".join(re.split("(?<=`)(?=`)", content)), 1
    marks = "`" * (longest + 1)
    space = " " if content.startswith("`") or content.endswith("`") else ""
    return f"{marks}{space}{content}{space}{marks}"
