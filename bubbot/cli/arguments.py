"""Parts of command lines that several commands have: the option `--json`, counts, and errors of usage."""

from __future__ import annotations

import argparse

from bubbot.errors import UsageError


def add_json_option(parser: argparse.ArgumentParser, help_text: str = "print one JSON object instead") -> None:
    """Add the option `--json`: of every command whose module or group declares what it prints then."""
    parser.add_argument("--json", action="store_true", help=help_text)


def parse_count(text: str) -> int:
    """Parse a number from 1 on. Raise `ArgumentTypeError`."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def usage_error(program: str, message: str) -> UsageError:
    """Make the error for a command line that a parser let pass: one line that names the command for help.

    Args:
        program: the command, such as `bubbot tape show`.
        message: what is wrong, and what would be right.
    """
    return UsageError(f"{' '.join(message.split())}; see `{program} --help`")
