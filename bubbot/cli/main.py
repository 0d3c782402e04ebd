"""The command `bubbot`: finds the command asked for, loads that one alone, and turns errors into exit codes."""

from __future__ import annotations

import argparse
import logging
import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from bubbot import __version__, log
from bubbot.cli.interrupt import EXIT_INTERRUPTED as EXIT_INTERRUPTED  # noqa: PLC0414 - one of the exit codes below
from bubbot.errors import (
    BubbotError,
    ChannelRefused,
    ConfigError,
    HomeLocked,
    ModelUnconfigured,
    OutputFailed,
    StoreError,
    TapeCorrupt,
)

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_LOCKED, EXIT_DATABASE, EXIT_DAMAGED, EXIT_REFUSED = 0, 1, 2, 3, 4, 5, 6
"""The exit codes; docs/reference/exit-codes.md explains them."""
EXIT_CODES: Mapping[type[BubbotError], int] = {
    HomeLocked: EXIT_LOCKED,
    ConfigError: EXIT_USAGE,
    ModelUnconfigured: EXIT_USAGE,
    TapeCorrupt: EXIT_DAMAGED,
    StoreError: EXIT_DATABASE,
    ChannelRefused: EXIT_REFUSED,
    BubbotError: EXIT_FAILED,
}
"""The code of an error is that of its class, or of the nearest class above it."""


@dataclass(frozen=True, slots=True)
class Command:
    """One line of help, and the module, with `configure(parser) -> None` and `run(args) -> int`.

    `args` also has `command` (str), `home` and `config` (Path, or None where not given).
    """

    help: str
    module: str


COMMANDS: Mapping[str, Command] = {
    "init": Command("set a bot up: name, model, accounts", "bubbot.cli.init"),
    "chat": Command("talk with the bot in this terminal", "bubbot.cli.chat"),
    "run": Command("run the bot with every configured channel", "bubbot.cli.run.command"),
    "status": Command("say how the running bot is", "bubbot.cli.status"),
    "reload": Command("let the running bot take over changed settings", "bubbot.cli.reload"),
    "ask": Command("one question, one answer", "bubbot.cli.ask"),
    "tape": Command("list, show, search, verify, export and import tapes", "bubbot.cli.tape.command"),
    "memory": Command("show and change what a session remembers", "bubbot.cli.memory.command"),
    "schedule": Command("plan prompts, commands and texts, and see what became of them", "bubbot.cli.schedule"),
    "access": Command("say who may speak with the bot", "bubbot.cli.access"),
    "usage": Command("show which models were asked and what that cost", "bubbot.cli.usage"),
    "service": Command("run the bot under systemd, and see how it is there", "bubbot.cli.service"),
    "backup": Command("copy everything the bot keeps, also while it runs", "bubbot.cli.backup"),
    "restore": Command("make a home of a backup, in quarantine until it is released", "bubbot.cli.restore"),
    "doctor": Command("find out what is wrong with this home, and how to mend it", "bubbot.cli.doctor"),
}
"""Every command; its module is imported when it is asked for, and no other."""


class CommandParser(argparse.ArgumentParser):
    """A parser that knows the options every command takes; parsers a command adds below it know them too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})
        # Suppressed, so that an option given before the command is not reset by the command's own parser.
        every = self.add_argument_group("options of every command")
        every.add_argument("--home", metavar="PATH", type=_path, default=argparse.SUPPRESS, help="the home folder")
        every.add_argument("--config", metavar="PATH", type=_path, default=argparse.SUPPRESS, help="a config.toml")
        every.add_argument("--version", action="version", version=f"bubbot {__version__}")

    def print_help(self, file: Any = None) -> None:
        """Print the help. Unlike argparse, do not take a lost output for success."""
        if file is not None or sys.stdout is None:
            super().print_help(file)
            return
        try:
            sys.stdout.write(self.format_help())
        except OSError as error:
            reason = error.strerror or str(error)
            raise OutputFailed(reason, reader_left=isinstance(error, BrokenPipeError)) from error


def main(
    argv: Sequence[str] | None = None,
    *,
    commands: Mapping[str, Command] = COMMANDS,
    on_loaded: Callable[[], None] = lambda: None,
) -> int:
    """Runs the command of `argv` (without the program's name; `sys.argv` where None) and returns its exit code.

    `on_loaded` is called once the command is loaded and before it does anything. Raises nothing: every error becomes a
    sentence on stderr and a code.
    """
    try:
        _reserve_descriptors()
        try:
            code = _run(sys.argv[1:] if argv is None else argv, commands, on_loaded)
        except SystemExit as stop:  # argparse, after help or a usage error
            code = stop.code if isinstance(stop.code, int) else EXIT_OK if stop.code is None else EXIT_FAILED
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a failure can still be reported
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OutputFailed as error:
        return EXIT_OK if error.reader_left else _report(error)
    except BrokenPipeError as error:
        # `bubbot tape list | head`: who read the output has enough. Any other broken pipe is a fault.
        return EXIT_OK if _output_is_lost() else _report(error)
    # The end of the program: whatever else comes up here is told in one sentence.
    except Exception as error:  # noqa: BLE001
        return _report(error)


def _reserve_descriptors() -> None:
    """Open the null device for each standard stream that is closed: else the next file that is opened, the database
    perhaps, would be standard output to every child process. A closed standard input reads as an empty one."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003 - the system gives the lowest number
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as the process lives


def _run(argv: Sequence[str], commands: Mapping[str, Command], on_loaded: Callable[[], None]) -> int:
    top = _top_parser(commands)
    if not argv:
        top.print_help()
        return EXIT_OK
    first = top.parse_args(argv)
    if first.command not in commands:
        near = get_close_matches(first.command, commands, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(commands)}"
        top.error(f"there is no command {first.command!r}; {hint}")
    module: Any = import_module(commands[first.command].module)
    parser = CommandParser(prog=f"bubbot {first.command}", description=module.__doc__)
    module.configure(parser)
    given = argparse.Namespace(**{"home": None, "config": None} | vars(first))
    del given.rest
    wanted = parser.parse_args(first.rest, given)
    on_loaded()
    code: int = module.run(wanted)
    return code


def _top_parser(commands: Mapping[str, Command]) -> argparse.ArgumentParser:
    width = max(map(len, commands), default=0)
    table = "\n".join(f"  {name:<{width}}  {command.help}" for name, command in commands.items())
    parser = CommandParser(
        prog="bubbot",
        usage="bubbot [--home PATH] [--config PATH] COMMAND ...",
        description="A self-hosted chat bot whose whole state is facts on append-only tapes.",
        epilog=f"commands:\n{table}\n\n`bubbot COMMAND --help` tells more of one command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", metavar="COMMAND", help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _path(text: str) -> Path:
    try:
        if text:
            return Path(text).expanduser()
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
    raise argparse.ArgumentTypeError("the path is empty")


def _report(error: Exception) -> int:
    """Tells the error on stderr, in a sentence a line; returns its exit code."""
    causes = [*_leaves(error)]
    known = [cause for cause in causes if isinstance(cause, BubbotError)]
    if len(known) == len(causes):
        for line in dict.fromkeys(line for cause in known for line in str(cause).splitlines()):
            _tell(line)
        _log_traceback(error)
        return next(EXIT_CODES[kind] for kind in type(known[0]).__mro__ if kind in EXIT_CODES)
    unknown = next(cause for cause in causes if not isinstance(cause, BubbotError))
    if isinstance(unknown, OSError) and _output_is_lost():
        _tell(f"The output could not be written: {unknown.strerror}.")
        return EXIT_FAILED
    what = " ".join(f"{type(unknown).__name__}: {unknown}".split())
    _tell(f"This should not have happened ({what[:300]}); run with BUBBOT_LOG__LEVEL=debug to see the traceback.")
    _log_traceback(error)
    return EXIT_FAILED


def _leaves(error: Exception) -> Iterator[Exception]:
    """The errors themselves, where several tasks failed at once."""
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _tell(sentence: str) -> None:
    with suppress(OSError):
        print(f"bubbot: {log.printable(log.redact(sentence))}", file=sys.stderr)


def _log_traceback(error: Exception) -> None:
    # Loaded here, because only a command that failed early has neither logging nor settings yet.
    if not log.is_set_up():
        with suppress(ImportError):
            level, secrets = import_module("bubbot.settings.environment").logging_environment()
            log.setup(level, secrets=secrets)
    logging.getLogger("bubbot.cli").debug("The traceback.", exc_info=error, extra={"action": "cli.failed"})


def _output_is_lost() -> bool:
    """Whether stdout takes nothing any more; if so it is replaced, so that Python's own last flush is quiet."""
    if sys.stdout is None:
        return False
    try:
        sys.stdout.flush()
        # Unbuffered, a failed write leaves nothing to flush: then the pipe itself tells that nobody reads.
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        if not any(events & select.POLLERR for _, events in poll.poll(0)):
            return False
    except OSError:  # also where stdout is no file at all
        pass
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True
