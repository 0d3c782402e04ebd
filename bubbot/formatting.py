"""Small operations on texts that core and adapters share: repair, neutralise, format, find what was meant."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import Any

ALLOWED_CONTROLS = "\n\t\u200c\u200d"
"""Controls that stay: line feed, tab, and the joiners, which only shape letters and emoji."""
_OBEYED = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Unicode categories that a terminal obeys: C0, C1, formats (with all direction changes), surrogates, separators."""

SQUARE_SIGNS = "【】〔〕〖〗〘〙〚〛⁅⁆⟦⟧⟬⟭⦋⦌⦍⦎⦏⦐❲❳⸢⸣⸤⸥「」｢｣⌈⌉⌊⌋⎡⎣⎤⎦⹕⹖⹗⹘"
"""Other characters that look like square brackets."""
ANGLED_SIGNS = "<＜﹤‹〈〈⟨ᐸ˂❮❰⧼≺"
"""Characters that look like the beginning of a tag."""
MAX_VALUE_CHARS = 60
"""Characters of a wrong value that are shown."""
_MARKS = r"([\\`*_\[\]<>~|#!@&])"
"""Characters that begin something in Markdown, or mention somebody."""
_BACKTICKS = "`+"
_INVISIBLE = (
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200c\u200d\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U000e0000-\U000e0fff]"
)
_LANGUAGE = r"(?ai)[a-z]{2,8}(-[a-z0-9]{1,8}){0,4}"
_SURROGATE = "[\ud800-\udfff]"
_UNITS = ((10**9, "GB"), (10**6, "MB"))


def clean(text: str) -> str:
    """Make a text storable: join halves of a surrogate pair, replace lone ones by replacement characters."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def clean_json(value: Any) -> Any:
    """Replace every half of a surrogate pair in a JSON value: it is legal in JSON but not in text.

    One unit replaces one unit, so that offsets stay right.
    """
    text = json.dumps(value, ensure_ascii=False)
    if text.isascii() or not re.search(_SURROGATE, text):
        return value
    return json.loads(re.sub(_SURROGATE, "\N{REPLACEMENT CHARACTER}", text))


def clean_label(text: str, limit: int | None = None) -> str:
    """Write a text on one line for use within brackets, which it cannot close; cut to `limit` characters, if there is one."""
    chars = "".join(_label_char(char) for char in text)
    return " ".join(chars.split())[:limit].strip()


def _label_char(char: str) -> str:
    category, plain = unicodedata.category(char), unicodedata.normalize("NFKC", char)
    if char in SQUARE_SIGNS or char in ANGLED_SIGNS or any(part in "[]<>" for part in plain):
        return "_"
    if category in ("Cf", "Cs"):
        return ""
    return " " if category in ("Cc", "Cn", "Co", "Zl", "Zp", "Zs") else char


def read_language(tag: object) -> str:
    """Return the tag of a language as a platform tells it; empty for what is none."""
    return tag.lower() if isinstance(tag, str) and re.fullmatch(_LANGUAGE, tag) else ""


def format_bytes(size: float) -> str:
    """Format a number of bytes for people."""
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size / 1000:.0f} kB" if size >= 1000 else f"{size:.0f} byte{'' if size == 1 else 's'}"


def cell_width(text: str) -> int:
    """Return how many cells of a terminal a text takes: a Chinese character takes two, an accent of its own none."""
    if text.isascii():
        return len(text)
    # Imported here: most texts need no tables of Unicode.
    from wcwidth import wcswidth

    width: int = wcswidth(text)
    return width if width >= 0 else len(text)  # negative if it has control characters


_WIDE = "\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff01-\uff60\U00020000-\U0003ffff"
_WORD = re.compile(rf"( *)([（《「『【“]*(?:[{_WIDE}]|(?:`[^`]*`|[^ `{_WIDE}])+|`)[，。、；：？！）》」』】”…]*)")
"""Spaces and what stays on one row: a word, a `command` in backticks, a Chinese character; each with its punctuation."""
_COMMAND = re.compile(r"(?:[^\s:]*/)?bubbot(?: \S+)+")
_MARGIN = re.compile(r"\A *(?:\d+\.? +|[-*] +)?")
_FENCE = re.compile(r" {0,3}(?:```|~~~)")


def wrap_words(line: str, columns: int, indent: str = "") -> str:
    """Break a line between words, into rows of at most so many cells; the rows after the first begin with `indent`.

    A word that is wider than a row stays whole, so that a path can be copied; the terminal breaks it.
    """
    if not columns or cell_width(line) <= columns:
        return line
    rows, used = [""], 0
    start = len(line) - len(line.lstrip(" "))
    words = _WORD.findall(line)
    if command := _COMMAND.match(line, start):
        words = [(line[:start], command[0]), *_WORD.findall(line, command.end())]
    for spaces, word in words:
        begins = spaces
        if used + len(spaces) + cell_width(word) > columns and rows[-1].strip():
            rows.append("")
            begins, used = indent, 0
        rows[-1] += begins + word
        used += len(begins) + cell_width(word)
    return "\n".join(rows)


def wrap_text(text: str, columns: int) -> str:
    """Break the lines of a text between words; a further row begins where its line, or item of a list, does.

    What people copy stays in one piece: code in fences, a line after `#`, a command of the shell that begins a line.
    """
    if not columns:
        return text
    rows, is_code = [], False
    for line in text.split("\n"):
        is_fence = _FENCE.match(line) is not None
        margin = " " * min(len(line) - len(_MARGIN.sub("", line)), columns // 2)
        rows.append(line if is_code or is_fence or line.startswith("#") else wrap_words(line, columns, margin))
        is_code ^= is_fence
    end = text[len(text.rstrip(" ")) :]  # of a question
    return "\n".join(rows).rstrip(" ") + end


def format_table(
    rows: Sequence[Sequence[str]], *, columns: int = 0, right: Collection[int] = (), header: Sequence[str] = ()
) -> list[str]:
    """Format rows as a table without lines; if it does not fit, a cell a line, with the later ones indented.

    Args:
        rows: cells of one line each; as many in each row.
        columns: the width of the terminal; 0 for no limit.
        right: the numbers of the columns that end at their right side, such as numbers.
        header: the titles of the columns; if the table does not fit, they precede the cells.
    """
    table = [header, *rows] if header else list(rows)
    widths = [max(map(cell_width, column)) for column in zip(*table, strict=True)]
    if not columns or sum(widths) + 2 * (len(widths) - 1) <= columns:
        return ["  ".join(map(_pad, row, widths, _sides(len(row), right))).rstrip() for row in table]
    titles = [f"{title}: " for title in header] if header else [""] * len(widths)
    return [
        ("" if index == 0 else "  ") + titles[index] + cell for row in rows for index, cell in enumerate(row) if cell
    ]


def _sides(count: int, right: Collection[int]) -> list[bool]:
    return [index in right for index in range(count)]


def _pad(cell: str, width: int, at_right: bool) -> str:  # noqa: FBT001 - mapped over cells
    space = " " * (width - cell_width(cell))
    return space + cell if at_right else cell + space


def did_you_mean(
    word: str, candidates: Iterable[str], *, rest: str = "", before: str = "", after: str = "?", otherwise: str = ""
) -> str:
    """Return the end of an error about an unknown word: "did you mean 'x'?", `otherwise` if no candidate is close.

    Args:
        word: the unknown word, in any case.
        candidates: the words there are.
        rest: is put behind the candidate.
        before: is put before the question.
        after: is put after the question, in place of "?".
        otherwise: is returned if no candidate is close.
    """
    # Imported here: most words are known.
    from difflib import get_close_matches

    close = get_close_matches(word.lower(), candidates, n=1)
    return f"{before}did you mean {close[0] + rest!r}{after}" if close else otherwise


def show_value(value: object) -> str:
    """Return a wrong value as people write it, at most `MAX_VALUE_CHARS` characters of it."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    short = text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}…"
    return repr(short) if isinstance(value, str) else short


def replace_controls(text: str) -> str:
    """Put U+FFFD in place of each character that a terminal obeys instead of showing it.

    The result cannot move the cursor, rename the window, write the clipboard, or change the direction of the text.
    """
    text = text.replace("\r\n", "\n")
    if text.isprintable():
        return text
    # Each character is looked at once, not at each of its places: a long text has few.
    return text.translate({ord(char): "\N{REPLACEMENT CHARACTER}" for char in set(text) if _is_obeyed(char)})


def _is_obeyed(char: str) -> bool:
    return not char.isprintable() and char not in ALLOWED_CONTROLS and unicodedata.category(char) in _OBEYED


def show_details(text: str) -> str:
    """Write details so that nothing in them hides: what a screen obeys or does not show is written as its number."""
    text = text.replace("\r\n", "\n")
    hidden = (char for char in set(text) if replace_controls(char) != char or re.match(_INVISIBLE, char))
    return text.translate({ord(char): f"<U+{ord(char):04X}>" for char in hidden} | {ord("\t"): "    "})


def fence(text: str) -> str:
    """Put a text into a code block that it cannot close, and in which no mention and no mark counts."""
    longest = max([2, *map(len, re.findall(_BACKTICKS, text))])
    marks = "`" * (longest + 1)
    return f"{marks}\n{text}\n{marks}"


def code(text: str) -> str:
    """Put a text into a code span on one line, which it cannot close."""
    line = " ".join(show_details(text).split()).replace("`", "<U+0060>")
    return f"`{line}`"


def escape_markdown(text: str) -> str:
    """Write a text on one line of Markdown, so that people read it as it is."""
    return re.sub(_MARKS, r"\\\1", " ".join(show_details(text).split()))


def escape_json(text: str) -> str:
    """Escape unprintable characters in JSON, except line feeds between values; as data it stays the same."""
    hidden = (char for char in set(text) if not char.isprintable() and char != "\n")
    return text.translate({ord(char): json.dumps(char)[1:-1] for char in hidden})
