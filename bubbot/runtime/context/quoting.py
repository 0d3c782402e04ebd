"""Safe quoting of people's texts, names and quotes, so that no model takes them for the bot's own marks.

A model reads both marks of the bot (`[2026-11-21 20:21]`, `Ann (#1):`, `[in reply to you: "…"]`, `[corrects #7]`,
`[file …]`, `<memory>`, `## Today's notes`) and texts of people. Marks stand at the beginning of a message or a line, so
no line of a person's text may begin like a mark.
"""

from __future__ import annotations

import json
import re
import unicodedata
from functools import cache

from bubbot.formatting import ANGLED_SIGNS, SQUARE_SIGNS, clean_label

MAX_DISPLAY_NAME_CHARS = 64
"""Characters of a display name."""
INDENT = "    "
"""The prefix of the further lines of a message in a chat of several people."""
PROMPT_TAGS = ("memory", "runtimecontract", "command", "skills")
"""The tags of the prompt, without the separators between their words."""

_BREAK = "\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]"
_BIDI = "[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
_TAG = f"[{ANGLED_SIGNS}](?=([^{ANGLED_SIGNS}]{{0,48}}))"
_BLANK = "\u115f\u1160\u2800\u3164\uffa0"
"""Letters and signs that are invisible."""
_NAME_MARKS = "♯⋕꞉∶ː˸։׃܃܄⁚ꓽ︓﹕"
"""Look-alikes of the `#` and `:` around a display name that NFKC does not turn into them."""


@cache
def _pattern(source: str) -> re.Pattern[str]:
    """Compile a pattern on first use: most commands of the shell quote nothing."""
    return re.compile(source)


def escape_people_text(text: str, indent: str = "") -> str:
    """Write a person's text so that no line of it looks like a mark of the bot.

    It puts `indent` before every line except the first.
    """
    if text.isascii() and "[" not in text and "<" not in text and not indent:
        return _pattern(_BREAK).sub("\n", text)
    lines = _pattern(_BREAK).split(_pattern(_BIDI).sub("", text))
    return escape_tags(f"\n{indent}".join(_escaped_line(line) for line in lines))


def indent_lines(text: str, indent: str = INDENT) -> str:
    """Put the indent before every line except the first."""
    return f"\n{indent}".join(_pattern(_BREAK).split(text))


def escape_note(text: str) -> str:
    """Write a text for the memory block: like `escape_people_text`, and without headings."""
    lines = escape_people_text(text).split("\n")
    return "\n".join(f"\\{line}" if _first_visible(line) == "#" else line for line in lines)


def escape_tags(text: str) -> str:
    """Escape the beginnings of prompt tags, in any look-alike letters."""
    return _pattern(_TAG).sub(lambda match: "&lt;" if _is_tag(match[1]) else match[0], text)


def clean_name(name: str) -> str:
    """Write a name on one line, without control, bidirectional and bracket characters, `#` and `:`."""
    chars = [char for char in unicodedata.normalize("NFKC", name) if _is_name_char(char)]
    return " ".join("".join(chars).split())[:MAX_DISPLAY_NAME_CHARS].strip()


def clean_field(text: str, limit: int) -> str:
    """Write a text as one of several fields within brackets, so that it neither closes them nor begins another field.

    Use it for file names, media types and notes of a platform.
    """
    return "".join("," if unicodedata.normalize("NFKC", char) == ";" else char for char in clean_label(text, limit))


def quote_text(text: str) -> str:
    """Write a text as a JSON string without look-alikes of its end, brackets, line breaks or tags."""
    plain = json.dumps(text, ensure_ascii=False)
    return '"' + "".join(_quoted_char(char) for char in plain[1:-1]) + '"'


def escape_json(text: str) -> str:
    """Write a JSON text on one line, without direction marks and without the beginning of a prompt tag."""
    hidden = _pattern(_BIDI).sub(_json_escape, text)
    return escape_tags(_pattern(_BREAK).sub(_json_escape, hidden))


def _json_escape(match: re.Match[str]) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in match[0])


def _escaped_line(line: str) -> str:
    first = _first_visible(line)
    return f"\\{line}" if first and (first in "[]" or first in SQUARE_SIGNS) else line


def _first_visible(line: str) -> str:
    """Return the first visible character after NFKC; empty for a blank line."""
    for char in line:
        for normal in unicodedata.normalize("NFKC", char):
            if not _is_invisible(normal):
                return normal
    return ""


def _is_invisible(char: str) -> bool:
    return char.isspace() or char in _BLANK or unicodedata.category(char)[0] in "CMZ"


def _is_tag(following: str) -> bool:
    letters = "".join(char for char in unicodedata.normalize("NFKC", following).casefold() if char.isalnum())
    return letters.startswith(PROMPT_TAGS)


def _is_name_char(char: str) -> bool:
    category = unicodedata.category(char)
    if char in "[]<>#:" or char in _NAME_MARKS or char in _BLANK or char in ANGLED_SIGNS:
        return False
    return category not in ("Ps", "Pe", "Cf", "Cs", "Co", "Cn") and (category != "Cc" or char.isspace())


def _quoted_char(char: str) -> str:
    if char.isascii() and char not in "[]<>":
        return char
    plain = unicodedata.normalize("NFKC", char)
    looks_alike = (
        any(part in '"[]<>\\' for part in plain) or char in "“”„‟" or char in SQUARE_SIGNS or char in ANGLED_SIGNS
    )
    if looks_alike or not char.isprintable():
        return json.dumps(char)[1:-1] if not char.isascii() else f"\\u{ord(char):04x}"
    return char
