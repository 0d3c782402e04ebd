"""Edits single values in the text of a `config.toml`; everything else stays byte for byte, comments too.

It recognises lines by their form, which covers what people usually write. Then it parses the result: if that is not the
old content with the one change, `ConfigError` says what to write by hand.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from typing import Any, TypeAlias

from bubbot.errors import ConfigError

Value: TypeAlias = str | int | float | bool | Sequence[str | int]
"""A value that can be written."""
Table: TypeAlias = tuple[str, ...]
"""The path of a table, such as ("channels", "telegram")."""

_HEADER = re.compile(r"#?\s*\[[^\[\]]+\]\s*(#.*)?")


def set_key(text: str, table: Table, key: str, value: Value) -> str:
    """Set a key of a table: in its line, else in that of its commented default, else in a new line.

    Raises `ConfigError` if the text writes the key or the table in a form that cannot be changed line by line.
    """
    expected = parse_toml(text)
    _find_or_add_table(expected, table)[key] = list(value) if isinstance(value, list | tuple) else value
    line = f"{_format_key(key)} = {format_toml(value)}"
    return _verify(_insert(text, table, key, line), expected, f"[{_format_key(*table)}] {line}")


def remove_key(text: str, table: Table, key: str) -> str:
    """Remove the line of a key; return the same text if it has none. Raises `ConfigError`."""
    expected = parse_toml(text)
    if _find_or_add_table(expected, table).pop(key, None) is None:
        return text
    lines = _split_lines(text)
    start, end = _find_table(lines, table, live=True) or (0, 0)
    index = _find_key(lines, start, end, key, mark="")
    edited = "".join(lines[:index] + lines[index + 1 :]) if index is not None else text
    return _verify(edited, expected, f"remove [{_format_key(*table)}] {key}")


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a text that is known to be TOML."""
    return tomllib.loads(text.removeprefix("\ufeff"))


def format_toml(value: Value) -> str:
    """Format a value as TOML."""
    import tomlkit

    return tomlkit.item(value).as_string()


def _verify(edited: str, expected: dict[str, Any], change: str) -> str:
    try:
        if parse_toml(edited) == expected:
            return edited
    except tomllib.TOMLDecodeError:
        pass
    raise ConfigError(
        f"config.toml writes this in a form that is not changed automatically: change it by hand ({change})."
    )


def _find_or_add_table(data: dict[str, Any], table: Table) -> dict[str, Any]:
    node = data
    for part in table:
        inner = node.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ConfigError(
                f"config.toml: [{_format_key(*table)}] must be a section with keys, not a single value."
            )
        node = inner
    return node


def _insert(text: str, table: Table, key: str, line: str) -> str:
    end_of_line = "\r\n" if "\r\n" in text else "\n"
    lines = _split_lines(text)
    bounds = _find_table(lines, table, live=True)
    if bounds is None and (bounds := _find_table(lines, table, live=False)):
        lines[bounds[0]] = re.sub(r"^#\s*", "", lines[bounds[0]])
    if bounds is None:
        gap = "" if not text else end_of_line if text.endswith("\n") else end_of_line * 2
        return f"{text}{gap}[{_format_key(*table)}]{end_of_line}{line}{end_of_line}"
    start, end = bounds
    index = _find_key(lines, start, end, key, mark="")
    if index is not None:
        lines[index] = f"{line}{_after_value(lines[index])}"
    elif (index := _find_key(lines, start, end, key, mark="#")) is not None:
        lines[index] = f"{line}{end_of_line}"
    else:
        if not lines[start].endswith("\n"):
            lines[start] += end_of_line
        lines.insert(start + 1, f"{line}{end_of_line}")
    return "".join(lines)


def _split_lines(text: str) -> list[str]:
    """Split the text into lines with their ends; `splitlines` would split at characters that TOML allows in lines."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _find_table(lines: Sequence[str], table: Table, *, live: bool) -> tuple[int, int] | None:
    """Find the line of the table's header and that of the next header; `live`: not in a comment."""
    heads = [index for index, line in enumerate(lines) if _HEADER.fullmatch(line.strip("\ufeff \t\r\n"))]
    for index in heads:
        line = lines[index].strip("\ufeff \t\r\n")
        if line.startswith("#") is not live and _is_header(line.lstrip("# "), table):
            return index, next((head for head in heads if head > index), len(lines))
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


def _find_key(lines: Sequence[str], start: int, end: int, key: str, *, mark: str) -> int | None:
    form = re.compile(rf"\s*{mark}\"?{re.escape(key)}\"?\s*=")
    return next((index for index in range(start + 1, end) if form.match(lines[index])), None)


def _after_value(line: str) -> str:
    """Return the rest of a line after its value: a comment and the end of the line."""
    body = line.rstrip("\r\n")
    for match in (*re.finditer(r"\s*#", body), None):
        end = match.start() if match else len(body)
        try:
            tomllib.loads(body[:end].removeprefix("\ufeff"))
        except tomllib.TOMLDecodeError:
            continue
        return body[end:] + line[len(body) :]
    return line[len(body) :]


def _format_key(*parts: str) -> str:
    import tomlkit

    return tomlkit.key(parts).as_string()
