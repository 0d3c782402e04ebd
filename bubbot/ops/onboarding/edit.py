"""Edits single values in the text of a `config.toml`; everything else stays byte for byte.

Comments stay too, except inside a value that is replaced, or behind a removed key.

A value that has a line of its own is changed in that line; a default or a section that is commented out is switched on,
and a new key gets a line. A value in any other form is left to tomlkit, which takes far longer for a whole text. The
result is parsed: if it is not the old content with the one change, `ConfigError` says what to write by hand.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from bubbot.errors import ConfigError

Value: TypeAlias = str | int | float | bool | Sequence[str | int] | Mapping[str, float]
"""A value that can be written."""
Table: TypeAlias = tuple[str, ...]
"""The path of a table, such as ("channels", "telegram")."""
Change: TypeAlias = Callable[[MutableMapping[str, Any]], object]
"""Changes a table in place."""

_BYTE_ORDER_MARK = "\ufeff"


def set_key(text: str, table: Table, key: str, value: Value) -> str:
    """Set a key of a table: where it is, else in place of its commented default, else in a new line.

    Raises `ConfigError` if the table is a value, or if tomlkit cannot make the change.
    """
    new = list(value) if isinstance(value, list | tuple) else value
    line = f"{_format_key(key)} = {format_toml(value)}"

    def change(section: MutableMapping[str, Any]) -> None:
        old = section.get(key)
        if isinstance(old, list) and isinstance(new, list) and new[: len(old)] == old:
            old.extend(new[len(old) :])  # the comments in it stay
        else:
            section[key] = new

    by_line = partial(_set_in_line, table=table, key=key, line=line, change=change)
    return _edit(text, table, change, f"[{_format_key(*table)}] {line}", by_line)


def remove_key(text: str, table: Table, key: str) -> str:
    """Remove a key and the comment behind it; return the same text if there is none. Raises `ConfigError`."""
    if key not in _find_or_add_table(parse_toml(text), table):
        return text
    return _edit(text, table, lambda section: section.pop(key), f"remove [{_format_key(*table)}] {key}")


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a text that is known to be TOML."""
    return tomllib.loads(text.removeprefix(_BYTE_ORDER_MARK))


def format_toml(value: Value) -> str:
    """Format a value as TOML, a table on one line."""
    import tomlkit

    if isinstance(value, Mapping):
        table = tomlkit.inline_table()
        table.update(value)
        return table.as_string()
    return tomlkit.item(value).as_string()


def _edit(text: str, table: Table, change: Change, by_hand: str, by_line: Callable[[str], str] | None = None) -> str:
    """Change a table.

    Args:
        by_hand: the change in words, for the error.
        by_line: makes the change in a text; tomlkit makes it if the result is wrong, or without it.
    """
    from tomlkit.exceptions import TOMLKitError

    expected = parse_toml(text)
    change(_find_or_add_table(expected, table))
    mark = _BYTE_ORDER_MARK if text.startswith(_BYTE_ORDER_MARK) else ""
    # In a text with both ends of lines, each line keeps its own.
    end_of_line = "\r\n" if 0 < text.count("\n") == text.count("\r\n") else "\n"
    plain = text.removeprefix(mark).replace(end_of_line, "\n")
    for edit in (by_line, partial(_change_with_tomlkit, table=table, change=change)):
        try:
            edited = mark + edit(plain).replace("\n", end_of_line) if edit else text
            if edit and parse_toml(edited) == expected:
                return edited
        except (TOMLKitError, tomllib.TOMLDecodeError):
            continue
    raise ConfigError(
        f"config.toml writes this in a form that is not changed automatically: change it by hand ({by_hand})."
    )


def _change_with_tomlkit(text: str, table: Table, change: Change) -> str:
    """Change a table of any form. Raise `ConfigError` if tomlkit would change anything else."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    document = tomlkit.parse(text)
    if document.as_string() != text:  # it writes some headers of arrays of tables with other quotes
        raise TOMLKitError("other bytes would change")
    change(_find_or_add_table(document, table))
    return document.as_string()


def _find_or_add_table(data: MutableMapping[str, Any], table: Table) -> MutableMapping[str, Any]:
    for part in table:
        data = data.setdefault(part, {})
        if not isinstance(data, dict):
            raise ConfigError(f"config.toml: [{_format_key(*table)}] must be a section with keys, not a single value.")
    return data


def _set_in_line(text: str, table: Table, key: str, line: str, change: Change) -> str:
    """Change the line of a key, or of its commented default, else add one behind the last; switch on the section."""
    # `splitlines` would split at characters that TOML allows in lines.
    rows: list[str] = re.findall(r"[^\n]*\n|[^\n]+", text)
    headers = [number for number, row in enumerate(rows) if re.match(r"[ \t#]*\[", row) and _parse_row(row)]
    header = f"[{_format_key(*table)}]"
    found = [number for number in headers if _parse_row(rows[number]) == tomllib.loads(header)]
    if not found:
        gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        return f"{text}{gap}{header}\n{line}\n"

    def is_comment(number: int) -> bool:
        return rows[number].lstrip().startswith("#")

    start = min(found, key=is_comment)
    end = next((number for number in headers if number > start), len(rows))
    written = [number for number in range(start + 1, end) if list(_parse_row(rows[number])) == [key]]
    rows[start] = _uncomment(rows[start])
    if written:
        at = min(written, key=is_comment)
        rows[at] = _change_with_tomlkit(_uncomment(rows[at]), (), change)
    else:
        keys = [number for number in range(start + 1, end) if not is_comment(number) and _parse_row(rows[number])]
        last = max(keys, default=start)
        rows[last] = rows[last].removesuffix("\n") + f"\n{line}\n"
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
