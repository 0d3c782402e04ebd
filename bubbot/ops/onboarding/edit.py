"""Changes single values in the text of a `config.toml`; everything else stays, comments too, byte for byte.

Lines are looked at by their form, which is enough for what people write. What it makes is then parsed: where that is
not the old content with the one change, nothing is changed and `ConfigError` says what to write by hand.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from typing import Any, TypeAlias

from bubbot.errors import ConfigError

Value: TypeAlias = str | int | float | bool | Sequence[str | int]
"""What can be written."""
Table: TypeAlias = tuple[str, ...]
"""The path of a table, such as ("channels", "telegram")."""

_HEADER = re.compile(r"#?\s*\[[^\[\]]+\]\s*(#.*)?")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def with_value(text: str, table: Table, key: str, value: Value) -> str:
    """The text with the key of this table set: in its line, else in that of its commented default, else in a new one.

    Raises `ConfigError` where the text writes the key or the table in a form that cannot be changed line by line.
    """
    wanted = parsed(text)
    _table_in(wanted, table)[key] = list(value) if isinstance(value, list | tuple) else value
    line = f"{_name(key)} = {toml(value)}"
    return _checked(_placed(text, table, key, line), wanted, f"[{_header(table)}] {line}")


def without(text: str, table: Table, key: str) -> str:
    """The text without the line of this key; the same text where there is none. Raises `ConfigError`."""
    wanted = parsed(text)
    if _table_in(wanted, table).pop(key, None) is None:
        return text
    lines = _lines(text)
    start, end = _range(lines, table, live=True) or (0, 0)
    at = _line_of(lines, start, end, key, mark="")
    made = "".join(lines[:at] + lines[at + 1 :]) if at is not None else text
    return _checked(made, wanted, f"remove [{_header(table)}] {key}")


def parsed(text: str) -> dict[str, Any]:
    """The content of a text that is known to be TOML."""
    return tomllib.loads(text.removeprefix("\ufeff"))


def toml(value: Value) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        # A string of JSON is one of TOML, but for this one character, which must be escaped here.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"[{', '.join(toml(one) for one in value)}]"


def _checked(made: str, wanted: dict[str, Any], change: str) -> str:
    try:
        if parsed(made) == wanted:
            return made
    except tomllib.TOMLDecodeError:
        pass
    raise ConfigError(
        f"config.toml writes this in a form that is not changed automatically: change it by hand ({change})."
    )


def _table_in(data: dict[str, Any], table: Table) -> dict[str, Any]:
    node = data
    for part in table:
        inner = node.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"config.toml: [{_header(table)}] must be a section with keys, not a single value.")
        node = inner
    return node


def _placed(text: str, table: Table, key: str, line: str) -> str:
    end_of_line = "\r\n" if "\r\n" in text else "\n"
    lines = _lines(text)
    found = _range(lines, table, live=True)
    if found is None and (found := _range(lines, table, live=False)):
        lines[found[0]] = re.sub(r"^#\s*", "", lines[found[0]])
    if found is None:
        gap = "" if not text else end_of_line if text.endswith("\n") else end_of_line * 2
        return f"{text}{gap}[{_header(table)}]{end_of_line}{line}{end_of_line}"
    start, end = found
    at = _line_of(lines, start, end, key, mark="")
    if at is not None:
        lines[at] = f"{line}{_after_value(lines[at])}"
    elif (at := _line_of(lines, start, end, key, mark="#")) is not None:
        lines[at] = f"{line}{end_of_line}"
    else:
        if not lines[start].endswith("\n"):
            lines[start] += end_of_line
        lines.insert(start + 1, f"{line}{end_of_line}")
    return "".join(lines)


def _lines(text: str) -> list[str]:
    """The lines with their ends. Not `splitlines`: to TOML most of what that ends a line at is a character like others."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _range(lines: Sequence[str], table: Table, *, live: bool) -> tuple[int, int] | None:
    """Where the table's header stands and where the next header does; `live`: not as a comment."""
    heads = [at for at, line in enumerate(lines) if _HEADER.fullmatch(line.strip("\ufeff \t\r\n"))]
    for at in heads:
        line = lines[at].strip("\ufeff \t\r\n")
        if line.startswith("#") is not live and _is_header(line.lstrip("# "), table):
            return at, next((head for head in heads if head > at), len(lines))
    return None


def _is_header(line: str, table: Table) -> bool:
    try:
        node = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return False
    for part in table:
        if list(node) != [part]:
            return False
        node = node[part]
    return node == {}


def _line_of(lines: Sequence[str], start: int, end: int, key: str, *, mark: str) -> int | None:
    form = re.compile(rf"\s*{mark}\"?{re.escape(key)}\"?\s*=")
    return next((at for at in range(start + 1, end) if form.match(lines[at])), None)


def _after_value(line: str) -> str:
    """What stands behind the value of a line: a comment, and the end of the line."""
    body = line.rstrip("\r\n")
    for found in (*re.finditer(r"\s*#", body), None):
        end = found.start() if found else len(body)
        try:
            tomllib.loads(body[:end].removeprefix("\ufeff"))
        except tomllib.TOMLDecodeError:
            continue
        return body[end:] + line[len(body) :]
    return line[len(body) :]


def _header(table: Table) -> str:
    return ".".join(map(_name, table))


def _name(key: str) -> str:
    return key if _BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)
