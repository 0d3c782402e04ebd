"""The options that every command has, and errors about the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bubbot.errors import UsageError


@dataclass(slots=True)
class Invocation:
    """The options of every command.

    Attributes:
        home: `--home`; None if not typed.
        config: `--config`; None if not typed.
        is_plain: `--plain`.
        as_json: `--json`; only commands that declare a result have it.
        is_confirmed: `--yes`; only commands that ask have it.
    """

    home: Path | None = None
    config: Path | None = None
    is_plain: bool = False
    as_json: bool = False
    is_confirmed: bool = False


def usage_error(program: str, message: str) -> UsageError:
    """Make the error for a wrong command line: one line that names the command for help.

    Args:
        program: the command, such as `bubbot tape show`.
        message: the mistake and the fix.
    """
    sentence = " ".join(message.split())
    return UsageError(f"{sentence}{' See' if sentence.endswith('?') else '; see'} `{program} --help`")


def decode_text(text: str, name: str) -> str:
    """Decode an argument as UTF-8 in every locale: in the locale C, Python may accept only ASCII.

    Raise `UsageError` with the argument's name if it is not UTF-8.
    """
    try:
        return text.encode("utf-8", "surrogateescape").decode()
    except UnicodeError as error:
        raise UsageError(f"{name} is not valid UTF-8: check the encoding of the terminal; nothing was done") from error


def parse_count(text: str) -> int:
    """Parse a number from 1 on. Raise `ValueError` with a sentence."""
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is not a number from 1 on")
    return int(text)
