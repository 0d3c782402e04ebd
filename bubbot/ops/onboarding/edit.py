"""Edits single values in the text of a `config.toml`; everything else stays byte for byte.

Comments stay too, except inside a value that is replaced, or behind a removed key.

tomlkit changes a value in whatever form it is written. To tomlkit, defaults and sections that are commented out are
only comments, and it adds a new key behind them; so they are switched on, and keys are added, as lines of text. The
result is parsed: if it is not the old content with the one change, `ConfigError` says what to write by hand.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, MutableMapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from bubbot.errors import ConfigError

Value: TypeAlias = str | int | float | bool | Sequence[str | int]
"""A value that can be written."""
Table: TypeAlias = tuple[str, ...]
"""The path of a table, such as ("channels", "telegram")."""

_BYTE_ORDER_MARK = "\ufeff"


def set_key(text: str, table: Table, key: str, value: Value) -> str:
    """Set a key of a table: where it is, else in place of its commented default, else in a new line.

    Raises `ConfigError` if the table is a value, or if tomlkit cannot make the change.
    """
    new = list(value) if isinstance(value, list | tuple) else value
    line = f"{_format_key(key)} = {format_toml(value)}"
    is_new = key not in _find_or_add_table(parse_toml(text), table)

    def change(section: MutableMapping[str, Any]) -> None:
        old = section.get(key)
        if isinstance(old, list) and isinstance(new, list) and new[: len(old)] == old:
            old.extend(new[len(old) :])  # the comments in it stay
        else:
            section[key] = new

    prepare = partial(_add_line, table=table, key=key, line=line) if is_new else str
    return _edit(text, table, change, f"[{_format_key(*table)}] {line}", prepare)


def remove_key(text: str, table: Table, key: str) -> str:
    """Remove a key and the comment behind it; return the same text if there is none. Raises `ConfigError`."""
    if key not in _find_or_add_table(parse_toml(text), table):
        return text
    return _edit(text, table, lambda section: section.pop(key), f"remove [{_format_key(*table)}] {key}")


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a text that is known to be TOML."""
    return tomllib.loads(text.removeprefix(_BYTE_ORDER_MARK))


def format_toml(value: Value) -> str:
    """Format a value as TOML."""
    import tomlkit

    return tomlkit.item(value).as_string()


def _edit(
    text: str,
    table: Table,
    change: Callable[[MutableMapping[str, Any]], object],
    by_hand: str,
    prepare: Callable[[str], str] = str,
) -> str:
    """Change a table with tomlkit.

    Args:
        text: the text to edit.
        table: the table to change.
        change: makes the change, in plain data and in tomlkit's.
        by_hand: the change in words, for the error.
        prepare: edits the text before; if the result is wrong, the unprepared text is changed.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    expected = parse_toml(text)
    change(_find_or_add_table(expected, table))
    mark = _BYTE_ORDER_MARK if text.startswith(_BYTE_ORDER_MARK) else ""
    # In a text with both ends of lines, each line keeps its own.
    end_of_line = "\r\n" if 0 < text.count("\n") == text.count("\r\n") else "\n"
    plain = text.removeprefix(mark).replace(end_of_line, "\n")
    for base in (prepare(plain), plain):
        try:
            document = tomlkit.parse(base)
            # tomlkit writes some headers of arrays of tables with other quotes.
            is_exact = document.as_string() == base
            change(_find_or_add_table(document, table))
            edited = mark + document.as_string().replace("\n", end_of_line)
            if is_exact and parse_toml(edited) == expected:
                return edited
        except (TOMLKitError, tomllib.TOMLDecodeError):
            continue
    raise ConfigError(
        f"config.toml writes this in a form that is not changed automatically: change it by hand ({by_hand})."
    )


def _find_or_add_table(data: MutableMapping[str, Any], table: Table) -> MutableMapping[str, Any]:
    for part in table:
        data = data.setdefault(part, {})
        if not isinstance(data, dict):
            raise ConfigError(f"config.toml: [{_format_key(*table)}] must be a section with keys, not a single value.")
    return data


def _add_line(text: str, table: Table, key: str, line: str) -> str:
    """Switch on the commented default of a key, else add its line below the header; switch on the section, too."""
    # `splitlines` would split at characters that TOML allows in lines.
    rows = re.findall(r"[^\n]*\n|[^\n]+", text)
    content = [_parse_row(row) for row in rows]
    headers = [number for number, row in enumerate(rows) if content[number] and re.match(r"[ \t#]*\[", row)]
    header = f"[{_format_key(*table)}]"
    found = [number for number in headers if content[number] == tomllib.loads(header)]
    if not found:
        gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        return f"{text}{gap}{header}\n{line}\n"
    start = min(found, key=lambda number: rows[number].lstrip().startswith("#"))
    end = next((number for number in headers if number > start), len(rows))
    default = next((number for number in range(start + 1, end) if list(content[number]) == [key]), None)
    rows[start] = _uncomment(rows[start])
    if default is None:
        rows[start] = rows[start].removesuffix("\n") + f"\n{line}\n"
    else:
        rows[default] = _uncomment(rows[default])
    return "".join(rows)


def _uncomment(row: str) -> str:
    return re.sub(r"^[ \t]*#[ \t]*", "", row)


def _parse_row(row: str) -> dict[str, Any]:
    """Parse a line, even if it is a comment; return an empty table if it is not TOML."""
    try:
        return tomllib.loads(_uncomment(row))
    except tomllib.TOMLDecodeError:
        return {}


def _format_key(*parts: str) -> str:
    import tomlkit

    return tomlkit.key(parts).as_string()
