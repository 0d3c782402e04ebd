"""The shipped units with the paths of an installation, quoted for systemd."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from bubbot.errors import ConfigError

SYSTEM_HOME = Path("/var/lib/bubbot")
"""The default home of the service of the system, which the shipped unit makes."""

_PLAIN = re.compile(r"[\w/.@+=,:~^-]+", re.ASCII)
_EXEC = re.compile(r"^ExecStart=:\S+ (.* -m bubbot) --home \S+ (.+)$", re.MULTILINE)
_STATE = re.compile(r"^StateDirectory=.*\nStateDirectoryMode=.*$", re.MULTILINE)
_FOLDER = re.compile(r"^WorkingDirectory=.*$", re.MULTILINE)


def read_unit(name: str) -> str:
    return (files("bubbot.ops.service") / "units" / name).read_text(encoding="utf-8")


def render_unit(name: str, *, python: Path, home: Path, config: Path | None) -> str:
    """Fill in a shipped unit for this interpreter, home and configuration.

    Raises `ConfigError` for a path that a unit cannot contain.
    """
    if set(str(python)) & set("\"'"):
        raise ConfigError(
            f"systemd starts no program with a quote in its path, as in {python}: install bubbot elsewhere."
        )
    paths = ["--home", quote_word(home), *([] if config is None else ["--config", quote_word(config)])]
    text = _EXEC.sub(
        lambda match: f"ExecStart=:{quote_word(python)} {match[1]} {' '.join(paths)} {match[2]}", read_unit(name)
    )
    text = _FOLDER.sub(lambda _: f"WorkingDirectory={_escape(home)}", text)
    if home != SYSTEM_HOME:
        text = _STATE.sub(lambda _: f"ReadWritePaths={_list_item(home)}", text)
    return text


def quote_word(path: Path) -> str:
    """Quote the path as one word of a command line of systemd."""
    text = _escape(path)
    return text if _PLAIN.fullmatch(text) else '"' + text.replace('"', '\\"') + '"'


def _list_item(path: Path) -> str:
    """Quote the path as one word of a list of paths, in which a backslash is an ordinary character."""
    text = _escape(path)
    if _PLAIN.fullmatch(text):
        return text
    quote = next((quote for quote in "\"'" if quote not in text), None)
    if quote is None:
        raise ConfigError(f"systemd cannot be told of a folder with both kinds of quotes in its path, as in {path}.")
    return f"{quote}{text}{quote}"


def _escape(path: Path) -> str:
    """Escape percent signs by doubling them, as systemd expands specifiers after a single one."""
    text = str(path)
    if any(char < " " or char in "\x7f\\" or "\ud800" <= char <= "\udfff" for char in text) or text != text.strip():
        raise ConfigError(
            f"systemd cannot be told of the path {text!r}: it takes no backslash, no control character, no space at the "
            "end, and UTF-8 alone."
        )
    return text.replace("%", "%%")
