"""Discord's dialect of Markdown. Any input gives a text, and no content is lost.

Discord has no tables, rules, images, tasks, nested quotes, fences other than three backticks, nor headings below the
third level; two underscores underline, and `||` hides. Text in CommonMark that would be markup in Discord is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from markdown_it.token import Token

from channels.markdown.marked_text import MarkKind
from channels.markdown.walk import Dialect, LineDialect, walk_line, walk_markdown

TABLE_COLUMNS = 64
"""Largest width in characters of a table shown in columns; a phone shows fewer, and wraps them."""
_LANGUAGE = re.compile(r"[A-Za-z0-9_+\-.#]+")
_SHOWN_AS_LINK = re.compile(r"https?://\S+", re.IGNORECASE)
_LONGEST_URL = 1_000
"""Characters of a URL that is hidden behind a text; a longer one follows the text, where it can be split."""
_LINE_START = re.compile(r"^([ \t]*)(?:(#{1,3}|-#|[-+]|>|>>>)(?=\s|$)|(\d{1,9})(\.)(?=\s|$))", re.MULTILINE)
_SPECIAL = re.compile(
    r"(?P<tag><(?:@[!&]?|#)\d{1,20}>|<a?:\w{2,32}:\d{1,20}>|<t:-?\d{1,13}(?::[tTdDfFR])?>)"
    r"|\\(?=[^0-9A-Za-z\s]|$)|[*`_]|~~+|^~|~$|\|\|+|^\||\|$|\](?=\()"
)
_NONE = ("", 0, 0)
_MARKS: dict[MarkKind, str] = {"bold": "**", "italic": "*", "underline": "__", "strike": "~~", "spoiler": "||"}


def render(source: str, *, table_columns: int = TABLE_COLUMNS) -> str:
    """Render Markdown for Discord. Tables wider than `table_columns` become a list of their rows."""
    return walk_markdown(source, DiscordDialect(table_columns), str)


class DiscordDialect(Dialect[str]):
    """A writer of blocks, separated by no or one empty line, as in the source."""

    def __init__(self, table_columns: int) -> None:
        self.table_columns = table_columns
        self._output: list[str] = []
        self._quotes = 0
        self._min_quotes = 0  # the smallest quote depth since the last line
        self._floors: list[int] = []  # the number of indents outside each open quote
        self._indents: list[str] = []
        self._marker: str | None = None
        self._gap = False

    def finish(self) -> str:
        return "\n".join(self._output)

    def begin_block(self, *, has_gap: bool) -> None:
        self._gap = self._gap or has_gap

    def _write(self, lines: Sequence[str], *, flat: bool = False) -> None:
        """Add the lines of a block inside the open quotes and lists; `flat` ignores the lists."""
        if self._gap and self._output:
            self._output.append("> " * self._min_quotes)
        self._gap, self._min_quotes = False, self._quotes
        quote = "> " * self._quotes
        marker, self._marker = self._marker, None
        if marker is not None and flat:
            self._output.append(quote + marker)
        indent = "" if flat else self._indent()
        for number, line in enumerate(lines):
            lead = marker if marker is not None and not flat and not number else indent
            self._output.append(f"{quote}{lead}{line}")

    def _indent(self) -> str:
        """Return the indent of the lists inside the innermost quote; lists around the quote don't indent it."""
        return "".join(self._indents[self._floors[-1] if self._floors else 0 :])

    def write_paragraph(self, children: Sequence[Token]) -> None:
        text = _render_line(children, "\n")
        if text.strip():
            self._write(text.split("\n"))

    def write_heading(self, children: Sequence[Token], level: int) -> None:
        is_bold = level > 3 or bool(self._indents)
        text = _render_line(children, is_bold=is_bold).strip()
        if text:
            self._write([f"**{text}**" if is_bold else f"{'#' * level} {text}"])

    def open_quote(self) -> None:
        self._flush_marker()
        self._floors.append(len(self._indents))
        self._quotes += 1

    def close_quote(self) -> None:
        self._floors.pop()
        self._quotes -= 1
        self._min_quotes = min(self._min_quotes, self._quotes)

    def open_item(self, number: str, checkbox: str) -> None:
        self._flush_marker()
        marker = f"{number} " if number else "- "
        self._marker = self._indent() + marker + checkbox
        self._indents.append(" " * len(marker))

    def close_item(self) -> None:
        self._flush_marker()
        self._indents.pop()

    def _flush_marker(self) -> None:
        """Write the pending marker of an item without a first line."""
        if self._marker is not None:
            self._write([""])

    def write_code(self, code: str, language: str, info: str) -> None:
        if not code.strip():
            info = info or language
        if info:
            self._write([escape_text(info)])
        if code.strip():
            self._write_fence(code, language)

    def _write_fence(self, code: str, language: str = "") -> None:
        language = language if _LANGUAGE.fullmatch(language) else ""
        self._write([f"```{language}", *escape_code(code).split("\n"), "```"], flat=True)

    def read_cell(self, children: Sequence[Token]) -> str | None:
        return None if has_hidden_url(children) else plain_text(children, "\n").strip("\n")

    def write_table(self, text: str) -> None:
        self._write_fence(text)

    def write_rows(self, rows: Sequence[Sequence[Sequence[Token]]]) -> None:
        head, *body = rows
        if not body:
            self._write([" | ".join(_render_line(name) for name in head)])
        for row in body:
            lines = []
            for name, cell in zip(head, row, strict=True):
                label, text = _render_line(name, is_bold=True).strip(), _render_line(cell, "\n").strip()
                lines += " ".join(filter(None, [f"**{label}:**" if label else "", text])).split("\n")
            self._write([line for line in lines if line] or [""])
            self._gap = True


def _render_line(children: Sequence[Token], line_end: str = " ", *, is_bold: bool = False) -> str:
    """Render text; `line_end` replaces line breaks; `is_bold`: the text around it is bold already."""
    line = _DiscordLine(line_end, is_bold=is_bold)
    walk_line(children, line)
    return line.finish()


class _DiscordLine(LineDialect):
    def __init__(self, line_end: str, *, is_bold: bool) -> None:
        self._line_end = line_end
        self._is_bold = is_bold
        self._pieces: list[str] = []
        self._open: list[tuple[str, int]] = []
        self._closed = _NONE  # the mark that was closed last, with the positions of its start and end
        self._links: list[int] = []

    def finish(self) -> str:
        return "".join(self._pieces)

    def write_text(self, text: str) -> None:
        self._pieces.append(escape_text(text, at_line_start=self._at_start()))

    def write_break(self) -> None:
        self._pieces.append(" " if self._links else self._line_end)

    def _at_start(self) -> bool:
        return next((piece[-1] for piece in reversed(self._pieces) if piece), "\n") == "\n"

    def open_mark(self, kind: MarkKind) -> None:
        mark = _MARKS[kind]
        if (kind == "bold" and self._is_bold) or any(open_mark == mark for open_mark, _ in self._open):
            mark = ""
        closed, start, end = self._closed
        if mark and closed == mark and not any(self._pieces[end + 1 :]):
            # Join two adjacent spans of one kind: Discord would read their marks together.
            self._pieces[end] = ""
            self._pieces[start] = mark
            self._open.append((mark, start))
        else:
            self._open.append((mark, len(self._pieces)))
            self._pieces.append(mark)

    def close_mark(self, after: Token | None) -> None:
        mark, start = self._open.pop()
        inner = [piece for piece in self._pieces[start + 1 :] if piece]
        if not "".join(inner).strip():
            self._pieces[start] = ""  # Discord shows marks around nothing as text
            return
        sign, before = mark, next((piece for piece in reversed(self._pieces[:start]) if piece), "")
        if mark == "*" and (
            (after is not None and after.type == "strong_open") or before in ("*", "**") or inner[0] in ("*", "**")
        ):
            sign = self._pieces[start] = "_"  # next to another star Discord would read both together
        self._closed = (mark, start, len(self._pieces))
        self._pieces.append(sign)

    def write_code(self, code: str) -> None:
        """Write inline code; drop open marks whose signs it contains: in Discord, unlike CommonMark, code ends them."""
        for index, (mark, start) in enumerate(self._open):
            if any(sign in code for sign in (mark, "_" if mark == "*" else mark) if sign):
                self._pieces[start] = ""
                self._open[index] = ("", start)
        self._pieces.append(_inline_code(code))

    def write_image(self, children: Sequence[Token], url: str, title: str) -> None:
        start = len(self._pieces)
        self.write_text(plain_text(children))
        self._attach_url(start, url, title)

    def open_link(self) -> None:
        self._links.append(len(self._pieces))

    def close_link(self, url: str, title: str, after: Token | None, *, is_autolink: bool) -> None:
        start = self._links.pop()
        text = "".join(self._pieces[start:])
        if (is_autolink or (_is_url_text(text, url) and _extends_url(after))) and _SHOWN_AS_LINK.fullmatch(url):
            self._pieces[start:] = [f"<{url}>"]
        else:
            self._attach_url(start, url, title)
        self._closed = _NONE  # the link with its content is one piece

    def _attach_url(self, start: int, url: str, title: str) -> None:
        """Make the text since `start` a link; put a URL that Discord does not accept after the text."""
        text = "".join(self._pieces[start:])
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


def plain_text(children: Sequence[Token], line_end: str = " ") -> str:
    """Return the text without formatting; `line_end` replaces line breaks."""
    parts = []
    for token in children:
        if token.type in ("softbreak", "hardbreak"):
            parts.append(line_end)
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
