"""Sources of settings: the TOML file, files with secrets, and the error messages about both.

It knows no single setting; `loader` does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from bubbot.errors import ConfigError
from bubbot.formatting import did_you_mean
from bubbot.ports.settings import Keys
from bubbot.settings.channels import CHANNEL_KINDS
from bubbot.settings.environment import SECRET_KEY

MAX_CONFIG_BYTES = 1_000_000
"""The largest `config.toml`, in bytes; a file of that size is a mistake."""
MAX_SECRET_BYTES = 64_000
"""The largest secret file, in bytes."""

_CHANNEL_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_PASSWORD = re.compile(r"^\w+://[^/@\s]*:[^/@\s]+@")


class SourcedValue(Struct, frozen=True):
    """A value and its origin: a file, a variable or a credential."""

    value: object
    origin: str


class MissingSecret(Struct, frozen=True):
    """A setting whose secret file cannot be used. `reason`: a sentence that names the origin and the file."""

    setting: Keys
    file: str
    reason: str


def read_toml(path: Path, *, is_required: bool) -> dict[str, Any]:
    """Read the tables of a TOML file; return none if it does not exist and is not `is_required`.

    Raise `ConfigError` if it cannot be read or is not TOML, with line, column and the fix.
    """
    if not is_required and not os.path.lexists(path):
        return {}
    text = read_text(path, MAX_CONFIG_BYTES, "The configuration")
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise ConfigError(f"{path}, line {line}: a NUL byte is not text: remove it, or restore the file.")
    # Imported here: a home that is set up by variables has no such file.
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_describe_syntax_error(path, text, str(error))) from None
    except RecursionError:
        raise ConfigError(f"{path}: the brackets are nested too deeply to be read.") from None
    except ValueError:
        raise ConfigError(f"{path}: a number has thousands of digits: write a smaller one.") from None


def _describe_syntax_error(path: Path, text: str, message: str) -> str:
    reason, _, position = message.rpartition(" (at ")
    match = re.match(r"line (\d+), column (\d+)", position)
    line, column = match.groups() if match else (str(text.count("\n") + 1), "end")
    fix = next(
        (fix for start, fix in _FIXES.items() if reason.startswith(start)), 'write each setting as key = "value"'
    )
    row = text.splitlines()[int(line) - 1 :][:1]
    if row and (word := re.search(r"[=[,]\s*(True|False|TRUE|FALSE)\b", row[0])):  # as Python and YAML write it
        fix = f"write {word[1].lower()} in small letters"
    return f"{path}, line {line}, column {column}: this is not TOML ({reason}): {fix}."


_FIXES = {
    "Invalid value": 'put a text in quotes, as in name = "bubbot", and end a list with ]',
    "Expected '='": "write a setting as key = value, and a section as [section]",
    "Cannot": "the same name is there twice; keep one",
    "Illegal character": "close the quotes on the same line",
    "Unterminated": "close the quotes",
    'Expected "': "close the quotes",
    "Expected newline": 'write one setting a line, and a text in quotes, as in name = "bubbot"',
    "Unescaped": "write a path in single quotes, as in 'C:\\folder'",
    "Expected ']": "close the bracket of the section",
    "Unclosed array": "close the bracket of the list",
}


def read_text(path: Path, limit: int, subject: str) -> str:
    """Read a UTF-8 file of at most `limit` bytes, without a byte order mark and with plain line ends.

    Raise `ConfigError`, in a sentence that begins with `subject`.
    """
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"{subject}: {path} is not a regular file: name another one.")
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{subject}: {path} cannot be read ({reason}): check the name and its permissions.") from None
    if len(data) > limit:
        raise ConfigError(f"{subject}: {path} is larger than {limit} bytes: check that it is the right file.")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{subject}: {path}, line {line} is not UTF-8 text: save the file as UTF-8.") from None


def read_secret(path: Path, subject: str) -> str:
    """Read a file and strip the space around its text. Raise `ConfigError`, also if nothing is left."""
    secret = read_text(path, MAX_SECRET_BYTES, subject).strip()
    if not secret:
        raise ConfigError(f"{subject}: {path} is empty, but should hold a secret.")
    return secret


def find_written_secrets(config: Path) -> list[str]:
    """Name the settings whose secrets stand in a configuration itself, such as `channels.telegram.token`.

    Raise `ConfigError` if it cannot be read.
    """
    return [
        ".".join(path) for path, value in iter_texts(read_toml(config, is_required=False)) if _holds_secret(path, value)
    ]


def _holds_secret(path: Keys, value: str) -> bool:
    return bool(value) and bool(SECRET_KEY.search(path[-1]) or _PASSWORD.search(value))


def iter_texts(table: Mapping[str, Any], parent: Keys = ()) -> Iterator[tuple[Keys, str]]:
    """Yield every text in a table and its nested tables, with its path."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from iter_texts(value, (*parent, key))
        elif isinstance(value, str):
            yield (*parent, key), value


def flatten(
    tables: Mapping[str, Any], origin: Callable[[Keys], str], *, sections: Collection[str], problems: list[str]
) -> dict[Keys, SourcedValue]:
    """Return the values of one source by path. Each table of `channels` has its own leaf, for a channel without keys.

    Args:
        tables: the sections of the source.
        origin: names the origin of a setting by its path.
        sections: the sections that exist; `tools.web` is a section within a section.
        problems: receives a sentence for each section that is unknown or not a table.
    """
    leaves: dict[Keys, SourcedValue] = {}
    for section, table in tables.items():
        source = origin((section,))
        if section not in sections:
            problems.append(f"{source}: {describe_unknown_section(section, sections)}")
        elif not isinstance(table, Mapping):
            problems.append(f"{source}: [{section}] must be a section with keys, not a single value.")
        elif section == "channels":
            for name, inner in table.items():
                leaves |= _channel_leaves(name, inner, origin, problems)
        else:
            for key, value in table.items():
                if f"{section}.{key}" not in sections:
                    leaves[section, key] = SourcedValue(value, origin((section, key)))
                elif isinstance(value, Mapping):
                    leaves |= {
                        (section, key, inner): SourcedValue(item, origin((section, key, inner)))
                        for inner, item in value.items()
                    }
                else:
                    problems.append(f"{source}: [{section}.{key}] must be a section with keys, not a single value.")
    return leaves


def describe_unknown_section(section: str, sections: Collection[str]) -> str:
    """Return a sentence about a section that does not exist."""
    if section in CHANNEL_KINDS:
        return f"[{section}] is not a section: write [channels.{section}]."
    otherwise = "; docs/reference/config.md lists all sections."
    return f"[{section}] is not a section{did_you_mean(section, sections, before='; ', otherwise=otherwise)}"


def _channel_leaves(
    name: str, table: object, origin: Callable[[Keys], str], problems: list[str]
) -> dict[Keys, SourcedValue]:
    path, section = ("channels", name), f"{origin(('channels', name))}: [channels.{name}]"
    if not _CHANNEL_NAME.fullmatch(name):
        problems.append(f"{section} needs another name: small letters, digits, '-' and '_', at most 64.")
    elif not isinstance(table, Mapping):
        problems.append(f"{section} must be a section with keys, not a single value.")
    elif not isinstance(table.get("kind", name), str) or not table.get("kind", name):
        problems.append(f"{section} kind must be the name of an adapter, in quotes.")
    else:
        return {path: SourcedValue({}, section)} | {
            (*path, key): SourcedValue(value, origin((*path, key))) for key, value in table.items()
        }
    return {}
