"""The command `bubbot`: find the requested command, load only that one, and turn errors into exit codes."""

from __future__ import annotations

import logging
import os
import select
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

import click

from bubbot import log
from bubbot.app.command_table import COMMANDS, PACKAGES, CommandRow
from bubbot.cli.interrupt import EXIT_INTERRUPTED as EXIT_INTERRUPTED  # noqa: PLC0414 - belongs to the exit codes below
from bubbot.cli.invocation import Invocation, usage_error
from bubbot.cli.tree import COMPLETE_VARIABLE, RootGroup, describe_usage
from bubbot.errors import (
    AddressUnavailable,
    BubbotError,
    ChannelRefused,
    CommandRefused,
    ConfigError,
    DatabaseLost,
    HomeLocked,
    ModelUnconfigured,
    OutputFailed,
    StoreError,
    TapeCorrupt,
    ValueInvalid,
)
from bubbot.settings.environment import read_variables

if TYPE_CHECKING:
    from bubbot.shell_command import CommandGroup, CommandSyntax

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_LOCKED, EXIT_DATABASE, EXIT_DAMAGED, EXIT_REFUSED = 0, 1, 2, 3, 4, 5, 6
"""The exit codes; docs/reference/exit-codes.md explains them."""
EXIT_CODES: Mapping[type[BubbotError], int] = {
    AddressUnavailable: EXIT_FAILED,
    HomeLocked: EXIT_LOCKED,
    ConfigError: EXIT_USAGE,
    ValueInvalid: EXIT_USAGE,
    ModelUnconfigured: EXIT_USAGE,
    TapeCorrupt: EXIT_DAMAGED,
    DatabaseLost: EXIT_DAMAGED,
    StoreError: EXIT_DATABASE,
    ChannelRefused: EXIT_REFUSED,
    BubbotError: EXIT_FAILED,
}
"""The exit code of each error class; an error takes the code of its nearest base class."""
NO_THREAD = "can't start new thread"
"""Python's text for it, in a plain `RuntimeError`."""
COMMAND_GROUP = "bubbot.commands"
"""The entry point group of packages that add commands."""


def main(argv: Sequence[str] | None = None, *, rows: Mapping[str, CommandRow] = COMMANDS) -> int:
    """Run the command of `argv` and return its exit code.

    It raises nothing: every error becomes a sentence on stderr and an exit code.

    Args:
        argv: the arguments without the program's name; None for `sys.argv`.
        rows: the commands by their word.
    """
    words = sys.argv[1:] if argv is None else argv
    as_json = "--json" in [*words, "--"][: [*words, "--"].index("--")]
    try:
        _reserve_descriptors()
        try:
            code = _run(words, rows)
        except SystemExit as stop:  # raised by a command
            code = stop.code if isinstance(stop.code, int) else EXIT_OK if stop.code is None else EXIT_FAILED
        if sys.stdout is not None:
            sys.stdout.flush()  # here a failure can still be reported
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OutputFailed as error:
        return EXIT_OK if error.reader_left else _report(error, as_json=as_json)
    except BrokenPipeError as error:
        # `bubbot tape list | head`: the reader has closed the output. Other broken pipes are faults.
        return EXIT_OK if _is_output_lost() else _report(error, as_json=as_json)
    # The outermost boundary: report any other error in one sentence.
    except Exception as error:  # noqa: BLE001
        return _report(error, as_json=as_json)


def _reserve_descriptors() -> None:
    """Open the null device for each standard stream that is closed.

    Otherwise the next opened file, perhaps the database, would become the standard output of every child process. A
    closed standard input reads as empty.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003 - the system assigns the lowest number
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - open until the process ends


def _run(argv: Sequence[str], rows: Mapping[str, CommandRow]) -> int:
    root = build_root(rows)
    if request := read_variables().get(COMPLETE_VARIABLE):
        # Imported here: only completion needs it.
        from bubbot.cli.completion.shells import print_completions

        return print_completions(root, request)
    try:
        with root.make_context("bubbot", [*argv] or ["--help"], obj=Invocation()) as context:
            code: int = root.invoke(context)
            return code
    except click.exceptions.Exit as stop:  # after help
        return stop.exit_code
    except click.UsageError as error:
        program = error.ctx.command_path if error.ctx else "bubbot"
        raise usage_error(program, describe_usage(error)) from error


def build_root(rows: Mapping[str, CommandRow] = COMMANDS) -> RootGroup:
    """Build the command line of these commands and those of packages; it loads a command when it is typed."""

    def list_installed() -> dict[str, CommandRow]:
        # Imported here: few command lines use a word of a package.
        from bubbot import plugins

        return {word: CommandRow(PACKAGES, text) for word, text in plugins.describe(COMMAND_GROUP).items()}

    def load(word: str) -> click.Command:
        # Imported here: the program's help makes no command.
        from bubbot.cli.adapter import make_click_command

        return make_click_command(load_group(word, rows))

    return RootGroup(rows, list_installed, load)


def load_group(word: str, rows: Mapping[str, CommandRow] = COMMANDS) -> CommandGroup[CommandSyntax]:
    """Import the commands of a word, ours or an installed package's. Raise `ConfigError` if the package fails."""
    if word not in rows:
        # Imported here: only a command of an installed package needs it.
        from bubbot.app.installed import load_command_group

        return load_command_group(word)
    module = rows[word].module
    if not module.startswith("bubbot.features."):
        group: CommandGroup[CommandSyntax] = getattr(import_module(module), f"{word.upper()}_COMMANDS")
        return group
    # Imported here: the words of the command line itself need no feature.
    from bubbot.app.commands import load_shared

    group = import_module(module).COMMANDS
    return replace(group, commands=(*group.commands, *load_shared(word)))


def _sentence(error: BubbotError) -> str:
    """Return the sentence of an error."""
    if not isinstance(error, CommandRefused):
        return str(error)
    # Imported here: most errors have their own sentence.
    from bubbot.texts import Texts

    sentence: str = Texts().say_on("shell", error.code, **{"command": "bubbot", **error.values})
    return sentence


def _report(error: Exception, *, as_json: bool) -> int:
    """Print the error on stderr, a sentence per line or one line of JSON; return its exit code."""
    causes = [*_flatten(error)]
    expected = [cause for cause in causes if isinstance(cause, BubbotError)]
    if len(expected) == len(causes):
        code = next(EXIT_CODES[error_class] for error_class in type(expected[0]).__mro__ if error_class in EXIT_CODES)
        lines = [*dict.fromkeys(line for cause in expected for line in _sentence(cause).splitlines())]
        _print_errors(lines, expected[0].kind, code, as_json=as_json)
        _log_traceback(error)
        return code
    unexpected = next(cause for cause in causes if not isinstance(cause, BubbotError))
    if isinstance(unexpected, OSError) and _is_output_lost():
        sentence = f"The output could not be written: {unexpected.strerror}."
        _print_errors([sentence], OutputFailed.kind, EXIT_FAILED, as_json=as_json)
        return EXIT_FAILED
    if isinstance(unexpected, MemoryError) or str(unexpected) == NO_THREAD:
        sentence = (
            "This process gets no further memory or thread: raise its limits (`ulimit -a` shows them), or end others."
        )
        _print_errors([sentence], "unexpected", EXIT_FAILED, as_json=as_json)
        _log_traceback(error)
        return EXIT_FAILED
    description = " ".join(f"{type(unexpected).__name__}: {unexpected}".split())
    sentence = (
        f"This should not have happened ({description[:300]}); run with BUBBOT_LOG__LEVEL=debug to see the traceback."
    )
    _print_errors([sentence], "unexpected", EXIT_FAILED, as_json=as_json)
    _log_traceback(error)
    return EXIT_FAILED


def _flatten(error: Exception) -> Iterator[Exception]:
    """Yield the single errors of a group: several tasks can fail at once."""
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            yield from _flatten(inner)
    else:
        yield error


def _print_errors(sentences: Sequence[str], kind: str, exit_code: int, *, as_json: bool) -> None:
    lines = [f"bubbot: {log.printable(log.redact(sentence))}" for sentence in sentences]
    if as_json:
        # Imported here: no other command line needs it.
        import json

        error = {"message": log.redact("\n".join(sentences)), "code": kind, "exit_code": exit_code}
        lines = [json.dumps({"error": error})]
    # Imported here: a successful command prints no error.
    from bubbot.cli.output import show_on_stderr

    show_on_stderr("\n".join(lines), wraps=not as_json)


def _log_traceback(error: Exception) -> None:
    # Imported here: only a command that failed early has neither logging nor settings yet.
    if not log.is_configured():
        with suppress(ImportError):
            from bubbot.settings.environment import logging_environment

            level, secrets = logging_environment()
            log.setup(level, secrets=secrets)
    logging.getLogger("bubbot.cli").debug("command failed", exc_info=error, extra={"action": "cli.failed"})


def _is_output_lost() -> bool:
    """Return true if stdout is gone; then redirect it to the null device, so that Python's last flush is quiet."""
    if sys.stdout is None:
        return False
    try:
        sys.stdout.flush()
        # Without a buffer, a failed write leaves nothing to flush: ask the pipe if it has a reader.
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        if not any(events & select.POLLERR for _, events in poll.poll(0)):
            return False
    except OSError:  # also if stdout is not a file
        pass
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True
