"""`bubbot help`: explains a command, or a topic that belongs to several."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Annotated

import click

from bubbot.app.command_table import COMMANDS
from bubbot.arguments.fields import Args
from bubbot.cli.invocation import Invocation, usage_error
from bubbot.cli.local_command import local_command
from bubbot.cli.output import show
from bubbot.formatting import did_you_mean
from bubbot.shell_command import Argument, CommandGroup

EXIT_CODE_TEXTS: Mapping[int, str] = {
    0: "success, or the program that reads the output stopped reading",
    1: "failure of a model, a tool, a channel or bubbot itself; the output was lost; `doctor` found a problem; `status` "
    "or `reload` found no bot or an unhealthy one; a search found nothing; a pairing code does not work; a port of `bubbot run` is taken",
    2: "wrong usage or configuration; nothing was done",
    3: "another process writes to this home and takes no requests",
    4: "the database cannot be used, is newer than this bubbot, or there is no disk space",
    5: "a tape, a backup or a file to import is damaged",
    6: "every platform refuses the bot at its start; retrying does not help",
    130: "interrupted (Ctrl-C)",
}
"""The meanings of the exit codes, in short; see docs/reference/exit-codes.md."""
ENVIRONMENT_TEXTS: Mapping[str, str] = {
    "BUBBOT_HOME": "the home folder, if there is no --home (default: $XDG_DATA_HOME/bubbot, else ~/.local/share/bubbot)",
    "BUBBOT_SECTION__KEY": "a setting, such as BUBBOT_MODEL__NAME for `[model] name`; it wins over config.toml. With _FILE "
    "at its end a file that holds a secret",
    "OPENAI_API_KEY": "a provider's key, under the provider's own name, if `[model] api_key` is not set",
    "CREDENTIALS_DIRECTORY": "a folder with secrets, which systemd sets (LoadCredential=)",
    "XDG_DATA_HOME": "where the home folder and completion scripts are by default",
    "XDG_CONFIG_HOME": "where the units of your services and fish's completions are",
    "XDG_RUNTIME_DIR": "where the socket of a running bot is, if its home has too long a path",
    "TZ": "the time zone that `bubbot init` suggests",
    "LC_ALL": "or LC_MESSAGES, or LANG: the language of `bubbot init` and `--help` before there is a config.toml",
    "LC_MESSAGES": "as LC_ALL",
    "LANG": "as LC_ALL",
    "BUBBOT_PLAIN": "`1`: every command runs as with --plain, for screen readers: lines only, nothing is drawn twice",
    "DISPLAY": "or WAYLAND_DISPLAY: a window can be opened, so `bubbot trace` opens a browser",
    "WAYLAND_DISPLAY": "as DISPLAY",
    "TERM": "`dumb`: lines only, as with --plain",
    "NO_COLOR": "if set: no colours. Only `chat` and progress on a terminal have some; a pipe never gets any, so FORCE_COLOR "
    "changes nothing there",
    "EDITOR": "the editor in commands that `bubbot doctor` prints",
    "NOTIFY_SOCKET": "systemd's, with WATCHDOG_USEC and WATCHDOG_PID: where a service reports that it works",
}
"""The variables that bubbot reads."""
TOPICS: Mapping[str, str] = {
    "exit-codes": "the exit codes of every command",
    "environment": "the environment variables that count",
    "json": "commands that print JSON for other programs",
}
"""The topics with a line of help."""


class HelpTopicArgs(Args, frozen=True):
    """The arguments of `bubbot help`."""

    topic: Annotated[str | None, Argument("a command or a topic (default: an overview of the commands)")] = None
    action: Annotated[str | None, Argument("the action of a command, such as `show` of `tape`")] = None


@local_command(
    "help",
    form="[topic] [action]",
    example="help exit-codes",
    description="Explain a command or a topic: " + "; ".join(f"`{name}`: {text}" for name, text in TOPICS.items()),
)
def explain_topic(invocation: Invocation, args: HelpTopicArgs) -> int:
    """Explain a command or a topic."""
    # Imported here: the program loads commands by name, never the other way round.
    from bubbot.cli.main import build_root, load_group, main

    root = build_root()
    words = root.list_commands(click.Context(root))
    if args.topic is None or args.topic in words:
        typed = {"--home": invocation.home, "--config": invocation.config}
        places = [f"{name}={path}" for name, path in typed.items() if path]
        return main([*places, *(word for word in (args.topic, args.action, "--help") if word)])
    if args.topic not in TOPICS:
        hint = did_you_mean(args.topic, [*words, *TOPICS], before=": ")
        raise usage_error("bubbot", f"there is no command or topic {args.topic!r}{hint}")
    if args.topic == "exit-codes":
        show(format_rows({str(code): text for code, text in EXIT_CODE_TEXTS.items()}))
    elif args.topic == "environment":
        show(format_rows(ENVIRONMENT_TEXTS))
    else:
        show(
            "These print JSON with --json, one object or one object a line; docs/reference/json.md has the schemas. An error "
            'is the last line on standard error: {"error": {"message": …, "code": …, "exit_code": …}}.\n'
        )
        commands = [command for word in COMMANDS for command in load_group(word).commands]
        show(format_rows({f"bubbot {command.name}": command.help for command in commands if command.result}))
    return 0


def format_rows(rows: Mapping[str, str]) -> str:
    """Format names and their meanings as a table of the terminal's width."""
    # Imported here: it knows COLUMNS.
    from shutil import get_terminal_size

    indent, width = max(map(len, rows)) + 2, max(get_terminal_size().columns - 2, 18)
    if width < indent + 20:  # put the meanings below the names
        return "\n".join(
            f"{name}\n{textwrap.fill(text, width, initial_indent='  ', subsequent_indent='  ', break_long_words=False)}"
            for name, text in rows.items()
        )
    return "\n".join(
        textwrap.fill(f"{name:<{indent}}{text}", width, subsequent_indent=" " * indent) for name, text in rows.items()
    )


HELP_COMMANDS = CommandGroup("help", (explain_topic,))
