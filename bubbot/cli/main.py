"""The command `bubbot`: finds the requested command, loads only that one, and turns errors into exit codes."""

from __future__ import annotations

import argparse
import logging
import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from bubbot import __version__, log, plugins
from bubbot.cli.arguments import decode_text, describe_parser_error, describe_surplus, usage_error
from bubbot.cli.interrupt import EXIT_INTERRUPTED as EXIT_INTERRUPTED  # noqa: PLC0414 - belongs to the exit codes below
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
from bubbot.ports.text import did_you_mean
from bubbot.records import dataclass

if TYPE_CHECKING:
    from bubbot.cli.help import HelpTranslator

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


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """A command's line of help, its module, and the heading it stands under in `bubbot --help`.

    The module has `configure(parser) -> None` and `run(args) -> int`, where `args` also has `command` (str), `home` and
    `config` (Path, or None if not set); that of a feature has its `CommandGroup`, such as `USAGE_COMMANDS`.
    """

    help: str
    module: str
    section: str = "Installed packages"


COMMANDS: Mapping[str, ShellCommand] = {
    "chat": ShellCommand("talk to the bot in this terminal", "bubbot.cli.chat", "Talk"),
    "ask": ShellCommand("ask one question and print the answer", "bubbot.cli.ask", "Talk"),
    "status": ShellCommand("show the state of the running bot", "bubbot.cli.status", "Look"),
    "usage": ShellCommand("show model calls and their cost", "bubbot.features.usage.commands", "Look"),
    "context": ShellCommand("compare what each context strategy sends", "bubbot.features.strategies.commands", "Look"),
    "why": ShellCommand("explain the last answer of a session", "bubbot.features.why.commands", "Look"),
    "explain": ShellCommand("ask what happened in a chat, with sources", "bubbot.features.explain.commands", "Look"),
    "replay": ShellCommand(
        "build recorded requests again, or ask another model", "bubbot.features.replay.commands", "Look"
    ),
    "trace": ShellCommand("look at sessions, turns and requests in a browser", "bubbot.cli.trace", "Look"),
    "doctor": ShellCommand("find out what is wrong with this home, and how to fix it", "bubbot.cli.doctor", "Look"),
    "help": ShellCommand("explain a command or a topic", "bubbot.cli.topics", "Look"),
    "tape": ShellCommand("list, show, search, verify, export and import tapes", "bubbot.cli.tape.command", "Change"),
    "memory": ShellCommand("show and change what a session remembers", "bubbot.features.memory.shell", "Change"),
    "schedule": ShellCommand(
        "schedule prompts, commands and texts, and see their results", "bubbot.features.schedule.shell", "Change"
    ),
    "approvals": ShellCommand(
        "answer what the bot asks, and see what it may do", "bubbot.features.approvals.commands", "Change"
    ),
    "access": ShellCommand("manage who may talk to the bot", "bubbot.features.access.shell", "Change"),
    "init": ShellCommand("set up a bot: name, model, accounts", "bubbot.cli.init", "Set up"),
    "model": ShellCommand("install the demonstration model", "bubbot.cli.model", "Set up"),
    "completion": ShellCommand("complete commands with Tab in your shell", "bubbot.cli.completion.command", "Set up"),
    "config": ShellCommand("show and change settings", "bubbot.cli.config", "Set up"),
    "run": ShellCommand("run the bot with every configured channel", "bubbot.cli.run.command", "Operate"),
    "reload": ShellCommand("apply changed settings to the running bot", "bubbot.cli.reload", "Operate"),
    "service": ShellCommand("run the bot under systemd, and show its state", "bubbot.cli.service", "Operate"),
    "backup": ShellCommand("back up everything the bot stores, even while it runs", "bubbot.cli.backup", "Operate"),
    "restore": ShellCommand(
        "create a home from a backup, in quarantine until it is released", "bubbot.cli.restore", "Operate"
    ),
}
"""Every command, by sections; only the module of the requested one is imported."""
HELP_TOPICS = (
    "`bubbot help COMMAND` explains one command, and `bubbot help exit-codes`, `environment` or `json` a topic."
)
NO_THREAD = "can't start new thread"
"""What Python says, in a plain `RuntimeError`."""
TOP_OPTIONS = frozenset({"-h", "--help", "--home", "--config", "--plain", "--version"})
"""The options that may stand before the command."""
USAGE_HEADING = "usage: "
"""The beginning of every help, which argparse writes."""
COMMAND_GROUP = "bubbot.commands"
"""The entry points of packages that add commands."""


class CommandParser(argparse.ArgumentParser):
    """A parser with the options of every command; subparsers that a command adds have them too.

    Attributes:
        usage_heading: the beginning of its help.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # From 3.14 on, argparse colours its help, and FORCE_COLOR makes it do so in pipes.
        plain: dict[str, Any] = {"color": False} if sys.version_info >= (3, 14) else {}
        super().__init__(*args, **{"allow_abbrev": False, **plain, **kwargs})
        # Suppressed, so that the command's own parser does not reset an option typed before the command.
        self.usage_heading = USAGE_HEADING
        group = self.add_argument_group("options of every command")
        group.add_argument("--home", metavar="PATH", type=_path, default=argparse.SUPPRESS, help="the home folder")
        group.add_argument("--config", metavar="PATH", type=_path, default=argparse.SUPPRESS, help="a config.toml")
        group.add_argument(
            "--plain",
            action="store_true",
            default=argparse.SUPPRESS,
            help="print lines only, for screen readers and logs: nothing is drawn twice, no colours",
        )
        group.add_argument("--version", action="version", version=f"bubbot {__version__}")

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` with one line that names the command for help."""
        raise usage_error(self.prog, describe_parser_error(message))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and refuse what this command does not take: argparse would leave that to the parser above it."""
        parsed, surplus = super().parse_known_args(args, namespace)
        if surplus:
            raise usage_error(self.prog, describe_surplus(self, surplus))
        return parsed, surplus

    def print_help(self, file: Any = None) -> None:
        """Print the help. Unlike argparse, report a lost output as a failure."""
        if file is not None or sys.stdout is None:
            super().print_help(file)
            return
        try:
            sys.stdout.write(self.usage_heading + self.format_help().removeprefix(USAGE_HEADING))
        except OSError as error:
            reason = error.strerror or str(error)
            raise OutputFailed(reason, reader_left=isinstance(error, BrokenPipeError)) from error


def main(
    argv: Sequence[str] | None = None,
    *,
    commands: Mapping[str, ShellCommand] = COMMANDS,
    on_loaded: Callable[[], None] = lambda: None,
) -> int:
    """Run the command of `argv` and return its exit code.

    Raises nothing: every error becomes a sentence on stderr and an exit code.

    Args:
        argv: the arguments without the program's name; None for `sys.argv`.
        commands: the commands by name.
        on_loaded: called once the command is loaded, before it does anything.
    """
    words = sys.argv[1:] if argv is None else argv
    as_json = "--json" in [*words, "--"][: [*words, "--"].index("--")]
    try:
        _reserve_descriptors()
        try:
            code = _run(words, commands, on_loaded)
        except SystemExit as stop:  # argparse, after help
            code = stop.code if isinstance(stop.code, int) else EXIT_OK if stop.code is None else EXIT_FAILED
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a failure can still be reported
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OutputFailed as error:
        return EXIT_OK if error.reader_left else _report(error, as_json=as_json)
    except BrokenPipeError as error:
        # `bubbot tape list | head`: the reader has closed the output. Any other broken pipe is a fault.
        return EXIT_OK if _is_output_lost() else _report(error, as_json=as_json)
    # The outermost boundary: report any other error in one sentence.
    except Exception as error:  # noqa: BLE001
        return _report(error, as_json=as_json)


def _reserve_descriptors() -> None:
    """Open the null device for each standard stream that is closed.

    Otherwise the next file that is opened, perhaps the database, would be standard output to every child process. A
    closed standard input reads as an empty one.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003 - the system assigns the lowest number
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - open until the process ends


def _run(argv: Sequence[str], commands: Mapping[str, ShellCommand], on_loaded: Callable[[], None]) -> int:
    installed = _installed_commands(commands)
    translator = _find_translator(argv)
    every = {**commands, **{name: ShellCommand(text, "") for name, text in installed.items()}}
    top = _top_parser(every, translator.translate if translator else str)
    if translator:
        translator.translate_parser(top)
    if not argv:
        top.print_help()
        return EXIT_OK
    if argv[0].startswith("-") and argv[0].partition("=")[0] not in TOP_OPTIONS:
        raise usage_error(top.prog, describe_surplus(top, argv[:1]))  # argparse would miss the command first
    first = top.parse_args(argv)
    if decode_text(first.command, "the command") not in (words := [*commands, *installed]):
        top.error(f"there is no command {first.command!r}{did_you_mean(first.command, words, before=': ')}")
    parser, module = load_command(first.command, commands)
    if translator:
        translator.translate_parser(parser)
    namespace = argparse.Namespace(**{"home": None, "config": None, "plain": False} | vars(first))
    del namespace.rest
    args = parser.parse_args(first.rest, namespace)
    on_loaded()
    code: int = module.run(args)
    return code


def _find_translator(argv: Sequence[str]) -> HelpTranslator | None:
    """Return the translator of the help that `argv` asks for; None if that is English, or no help is asked for."""
    if argv and not {"-h", "--help"}.intersection(argv):
        return None
    from bubbot.settings.environment import default_home
    from bubbot.settings.language import read_language

    options = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("--home", "--config"):
        options.add_argument(name, type=_path)
    try:
        place = options.parse_known_args(argv)[0]
        language = read_language(place.home or default_home(), place.config)
    except (argparse.ArgumentError, ConfigError):  # it is reported by those who need it
        return None
    if language.startswith("en"):
        return None
    # Imported here: help in English needs no catalogue.
    from bubbot.cli.help import HelpTranslator
    from bubbot.texts import Texts

    texts = Texts(language)
    return HelpTranslator(texts) if texts.is_translated else None


def load_command(name: str, commands: Mapping[str, ShellCommand] = COMMANDS) -> tuple[argparse.ArgumentParser, Any]:
    """Import a command, of ours or of an installed package, and return its parser and itself."""
    if name in commands:
        module: Any = import_module(commands[name].module)
        group = None if hasattr(module, "configure") else getattr(module, f"{name.upper()}_COMMANDS")
    else:
        # Imported here: only a command of an installed package needs it.
        from bubbot.app.installed import load_command_group

        module, group = None, load_command_group(name)
    if group is not None:
        # Imported here: only commands of features need it.
        from bubbot.cli.options import GroupCommand

        module = GroupCommand(group)
    parser = CommandParser(prog=f"bubbot {name}", description=module.__doc__)
    module.configure(parser)
    return parser, module


def describe_commands() -> dict[str, str]:
    """List every command, also those of installed packages, with its line of help."""
    return {name: command.help for name, command in COMMANDS.items()} | _installed_commands(COMMANDS)


def _installed_commands(commands: Mapping[str, ShellCommand]) -> dict[str, str]:
    """List the commands that installed packages add, with what the packages say of themselves; import none of them."""
    return {name: text for name, text in plugins.describe(COMMAND_GROUP).items() if name not in commands}


def _top_parser(commands: Mapping[str, ShellCommand], translate: Callable[[str], str]) -> argparse.ArgumentParser:
    width = max(map(len, commands), default=0)
    sections: dict[str, str] = {}
    for name, command in commands.items():
        row = f"  {name:<{width}}  {translate(command.help)}\n"
        sections[command.section] = sections.get(command.section, f"{translate(command.section)}:\n") + row
    table = "\n".join(sections.values())
    parser = CommandParser(
        prog="bubbot",
        usage="bubbot [--home PATH] [--config PATH] [--plain] COMMAND ...",
        description="A self-hosted chat bot that records everything on append-only tapes.",
        epilog=f"{table}\n{translate(HELP_TOPICS)}",
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
        user = text.partition("/")[0]
        reason = "HOME is not set" if user == "~" else f"there is no user {user[1:]!r}"
        raise argparse.ArgumentTypeError(f"{text!r} is not a path here: {reason}") from error
    raise argparse.ArgumentTypeError("the path is empty")


def _sentence(error: BubbotError) -> str:
    """Return what an error says."""
    if not isinstance(error, CommandRefused):
        return str(error)
    # Imported here: most errors say it themselves.
    from bubbot.texts import Texts

    sentence: str = Texts().say_on("shell", error.code, **{"command": "bubbot", **error.values})
    return sentence


def _report(error: Exception, *, as_json: bool) -> int:
    """Print the error on stderr, one sentence a line, or as one line of JSON; return its exit code."""
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
    """Yield the single errors of a group, as several tasks can fail at once."""
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
    # Imported here: a command that ends well prints no error.
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
        # Without a buffer, a failed write leaves nothing to flush: ask the pipe whether somebody reads.
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        if not any(events & select.POLLERR for _, events in poll.poll(0)):
            return False
    except OSError:  # also if stdout is not a file at all
        pass
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True
