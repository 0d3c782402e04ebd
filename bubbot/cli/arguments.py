"""Parts of command lines that several commands have: the option `--json`, counts, and errors of usage."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from bubbot.errors import UsageError
from bubbot.ports.text import did_you_mean

# Texts, which `re` compiles when they are used: a command line without a mistake needs none of them.
_OPTION_LINE = r"(?m)^  (-.*?)(?:  |$)"
_OPTION = r"--[a-z][a-z-]*"
_CHOICE = r"(?s)argument (?P<name>.+?): invalid choice: (?P<value>.+?) \(choose from (?P<choices>.*)\)"
_NUMBER = r"(?s)argument (?P<name>.+?): invalid (?:int|float) value: (?P<value>.+)"
_NO_VALUE = r"argument (?P<name>.+?): expected (?:one|at least one) argument"
_NEEDLESS_VALUE = r"(?s)argument (?P<name>.+?): ignored explicit argument (?P<value>.+)"
_MISSING = r"the following arguments are required: (?P<names>.*)"


def add_json_option(parser: argparse.ArgumentParser, help_text: str = "print one JSON object instead") -> None:
    """Add the option `--json`: of every command whose module or group declares what it prints then."""
    parser.add_argument("--json", action="store_true", help=help_text)


def decode_text(text: str, name: str) -> str:
    """Read an argument as UTF-8, whatever the locale: in the locale C, Python may take no other script than ASCII.

    Raise `UsageError` for the argument of this name if it is not UTF-8.
    """
    try:
        return text.encode("utf-8", "surrogateescape").decode()
    except UnicodeError as error:
        raise UsageError(f"{name} is not valid UTF-8: check the encoding of the terminal; nothing was done") from error


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
    sentence = " ".join(message.split())
    return UsageError(f"{sentence}{' See' if sentence.endswith('?') else '; see'} `{program} --help`")


def describe_parser_error(message: str) -> str:
    """Return our words for an error of argparse, which names the argument, what was typed, and what would be right."""
    if match := re.fullmatch(_CHOICE, message):
        value, choices = match["value"].strip("'"), [choice.strip("'") for choice in match["choices"].split(", ")]
        if match["name"] == "ACTION":
            return f"unknown action {value!r}{did_you_mean(value, choices, before=': ')}"
        return f"{match['name']} is {value!r}, but must be {_join(choices)}"
    if match := re.fullmatch(_NUMBER, message):
        return f"{match['name']} is {match['value']}, but must be a number"
    if match := re.fullmatch(_NO_VALUE, message):
        return f"{match['name']} needs a value"
    if match := re.fullmatch(_NEEDLESS_VALUE, message):
        return f"{match['name']} takes no value: leave {match['value']} out"
    if match := re.fullmatch(_MISSING, message):
        return f"missing: {match['names'].removesuffix(', rest')}"
    return message.removeprefix("argument ")


def describe_surplus(parser: argparse.ArgumentParser, surplus: Sequence[str]) -> str:
    """Return the error for arguments that a command does not take."""
    option = next((word for word in surplus if len(word) > 1 and word.startswith("-")), None)
    if option is not None:
        name = option.partition("=")[0]
        # Imported here: few command lines have a wrong option.
        from difflib import get_close_matches

        lines = " ".join(re.findall(_OPTION_LINE, parser.format_help()))
        known = {word.lstrip("-"): word for word in re.findall(_OPTION, lines)}
        close = get_close_matches(name.lstrip("-"), known, n=1, cutoff=0.75)
        return f"unknown option {name!r}" + (f": did you mean {known[close[0]]!r}?" if close else "")
    # The usage without its options: what else the command takes.
    form = re.sub(r"\[-[^][]*(?:\[[^][]*\][^][]*)*\]", "", parser.format_usage().partition(":")[2])
    return f"unexpected argument {surplus[0]!r}: apart from options, write `{' '.join(form.split())}`"


def _join(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


def list_actions(parser: argparse.ArgumentParser) -> Sequence[argparse.Action]:
    """List the options and arguments of a parser."""
    return parser._actions  # noqa: SLF001 - argparse has no public list of them


def list_groups(parser: argparse.ArgumentParser) -> Sequence[argparse._ArgumentGroup]:
    """List the groups of options of a parser, which have headings."""
    return parser._action_groups  # noqa: SLF001 - as above


def list_lines(parser: argparse.ArgumentParser) -> Sequence[argparse.Action]:
    """List the lines of help of the subcommands of a parser."""
    inner = [action for action in list_actions(parser) if isinstance(action, argparse._SubParsersAction)]  # noqa: SLF001 - as above
    return [choice for action in inner for choice in action._choices_actions]  # noqa: SLF001 - as above
