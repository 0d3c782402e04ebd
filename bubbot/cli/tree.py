"""The command line in click's terms: common options, help, and words whose commands load when they are typed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import click
from click.shell_completion import CompletionItem

from bubbot import __version__
from bubbot.app.command_table import CommandRow
from bubbot.cli.invocation import Invocation, decode_text
from bubbot.cli.output import show, show_on_stderr
from bubbot.errors import ConfigError
from bubbot.formatting import did_you_mean

ABOUT = "A self-hosted chat bot that records everything on append-only tapes."
HELP_TOPICS = (
    "`bubbot help COMMAND` explains one command, and `bubbot help exit-codes`, `environment` or `json` a topic."
)
WORDS, OPTIONS, COMMON_OPTIONS, ACTIONS = "positional arguments", "options", "options of every command", "actions"
"""The headings of a help text."""
MAX_HELP_COLUMNS = 100
MAX_WORD_COLUMNS = 30
"""The widest word or option with its meaning on the same line."""
COMPLETE_VARIABLE = "_BUBBOT_COMPLETE"
"""Set by the completion scripts: the program prints completions instead of running the command."""
_NEGATIVE_NUMBER = r"-\d[\d.]*(?:[eE][+-]?\d+)?"
_MARK = "\0"
"""A character that no argument can contain; it marks negative numbers while click reads a command line."""
Translate: TypeAlias = Callable[[str], str]
OnOption: TypeAlias = Callable[[click.Context, click.Parameter, Any], None]


class CommonOption(click.Option):
    """An option that every command has."""


def list_common_options() -> list[click.Parameter]:
    """Make the options of every command. They may stand before and after each of its words; the last one counts."""

    def option(name: str, **options: Any) -> click.Parameter:
        # No argument of a command has such a name.
        return CommonOption([f"--{name}", f"option_{name}"], expose_value=False, is_eager=True, **options)

    plain = "print lines only, for screen readers and logs: nothing is drawn twice, no colours"
    version = "show program's version number and exit"
    place: dict[str, Any] = {"metavar": "PATH", "shell_complete": complete_file}
    return [
        option("home", help="the home folder", callback=_keep("home"), **place),
        option("config", help="a config.toml", callback=_keep("config"), **place),
        option("plain", help=plain, is_flag=True, callback=_keep("is_plain")),
        option("version", help=version, is_flag=True, callback=_print(lambda _: f"bubbot {__version__}")),
    ]


def _keep(attribute: str) -> OnOption:
    """Make the callback of an option that sets this attribute of the `Invocation`."""

    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value is not None and value is not False:
            setattr(ctx.obj, attribute, _parse_path(value, ctx, param) if isinstance(value, str) else value)

    return keep


def _parse_path(text: str, ctx: click.Context, param: click.Parameter) -> Path:
    reason = "the path is empty"
    try:
        if text:
            return Path(unmark(text)).expanduser()
    except RuntimeError:
        user = text.partition("/")[0]
        cause = "HOME is not set" if user == "~" else f"there is no user {user[1:]!r}"
        reason = f"{text!r} is not a path here: {cause}"
    raise click.BadParameter(reason, ctx, param)


def _print(write: Callable[[click.Context], str]) -> OnOption:
    """Make the callback of an option that prints a text instead of running the command."""

    def print_text(ctx: click.Context, _param: click.Parameter, value: Any) -> None:
        if value and not ctx.resilient_parsing:
            if sys.stdout is None:  # print the help on standard error instead
                show_on_stderr(write(ctx), wraps=False)
            else:
                show(write(ctx), wraps=False)
            ctx.exit()

    return print_text


def complete_file(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete the name of a file."""
    return [CompletionItem(incomplete, type="file")]


def unmark(text: str) -> str:
    """Remove the mark of a negative number."""
    return text.removeprefix(_MARK)


class HelpfulCommand(click.Command):
    """A command with the common options and a help in the language of the bot."""

    def __init__(self, name: str, *, params: Sequence[click.Parameter] = (), **attributes: Any) -> None:
        help_option = click.Option(
            ["-h", "--help", "option_help"],
            is_flag=True,
            expose_value=False,
            callback=_print(lambda ctx: ctx.get_help()),
            help="show this help message and exit",
        )
        super().__init__(
            name,
            context_settings={"max_content_width": MAX_HELP_COLUMNS},
            params=[help_option, *params, *list_common_options()],
            add_help_option=False,
            **attributes,
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words; every error names the command."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help: usage, text, arguments, options, and examples."""
        usage_heading, translate = find_translation(ctx.obj)
        formatter.write_usage(ctx.command_path, " ".join(self.collect_usage_pieces(ctx)), usage_heading)
        formatter.write_paragraph()
        formatter.write_text(translate(self.help or ""))
        sections = [(heading, rows) for heading, rows in (*self.list_sections(), *self._list_params(ctx)) if rows]
        width = max(len(word) for _, rows in sections for word, _ in rows if len(word) <= MAX_WORD_COLUMNS)
        for heading, rows in sections:
            with formatter.section(translate(heading)):  # one column for all
                formatter.write_dl([(word.ljust(width), translate(text)) for word, text in rows], MAX_WORD_COLUMNS)
        if self.epilog:
            formatter.write_paragraph()
            formatter.write("".join(f"{translate(line)}\n" for line in self.epilog.splitlines()))

    def list_sections(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """List the headings of its commands, each with the commands and their lines of help."""
        return []

    def _list_params(self, ctx: click.Context) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        rows: dict[str, list[tuple[str, str]]] = {WORDS: [], OPTIONS: [], COMMON_OPTIONS: []}
        for param in self.get_params(ctx):
            kind = COMMON_OPTIONS if isinstance(param, CommonOption) else OPTIONS
            if record := param.get_help_record(ctx):
                rows[WORDS if isinstance(param, click.Argument) else kind].append(record)
        yield from rows.items()


class LeafCommand(HelpfulCommand):
    """A command that accepts negative numbers as words, such as ids of groups; click takes them for options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words with a mark before negative numbers, which `unmark` takes off."""
        ctx.allow_extra_args = True
        return super().parse_args(
            ctx, [f"{_MARK}{word}" if re.fullmatch(_NEGATIVE_NUMBER, word) else word for word in args]
        )


class WordGroup(HelpfulCommand, click.Group):
    """The commands of a word, or of the program. Its error for an unknown command names a similar one."""

    def __init__(self, name: str, *, metavar: str = "ACTION", **attributes: Any) -> None:
        self.word = metavar
        super().__init__(
            name,
            callback=click.pass_context(self._refuse_alone),
            invoke_without_command=True,
            subcommand_metavar=f"{metavar} ...",
            **attributes,
        )

    def _refuse_alone(self, ctx: click.Context) -> None:
        if ctx.invoked_subcommand is None:
            raise click.UsageError(f"missing: {self.word}", ctx)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find the command, or raise an error with a similar one."""
        command = self.get_command(ctx, args[0])
        if command is None and not ctx.resilient_parsing:
            word, words = decode_text(args[0], "the command"), self.list_commands(ctx)
            kind = "unknown action" if ctx.parent else "there is no command"
            raise click.UsageError(f"{kind} {word!r}{did_you_mean(word, words, before=': ')}", ctx)
        return args[0] if command else None, command, args[1:]

    def list_sections(self) -> list[tuple[str, list[tuple[str, str]]]]:
        return [(ACTIONS, [(name, command.short_help or "") for name, command in self.commands.items()])]

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        """List the words in the order in which they were added."""
        return [*self.commands]


class RootGroup(WordGroup):
    """The program: it has each word and its line of help from a table, and loads the typed one.

    Args:
        rows: our commands by their word.
        list_installed: returns the words that packages add; it inspects each package.
        load: makes the command of a word.
    """

    def __init__(
        self,
        rows: Mapping[str, CommandRow],
        list_installed: Callable[[], Mapping[str, CommandRow]],
        load: Callable[[str], click.Command],
    ) -> None:
        super().__init__("bubbot", metavar="COMMAND", help=ABOUT, epilog=HELP_TOPICS)
        self._own, self._list_installed, self._load = rows, list_installed, load

    @cached_property
    def rows(self) -> Mapping[str, CommandRow]:
        """All words; a package cannot replace one of ours."""
        return {**self._own, **{word: row for word, row in self._list_installed().items() if word not in self._own}}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        """List the words."""
        return [*self.rows]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        """Load a command."""
        return self._load(cmd_name) if cmd_name in self._own or cmd_name in self.rows else None

    def list_sections(self) -> list[tuple[str, list[tuple[str, str]]]]:
        sections: dict[str, list[tuple[str, str]]] = {}
        for word, row in self.rows.items():
            sections.setdefault(row.section, []).append((word, row.help))
        return [*sections.items()]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer words without loading their commands, and options."""
        words = [CompletionItem(word, help=row.help) for word, row in self.rows.items() if word.startswith(incomplete)]
        return [*words, *click.Command.shell_complete(self, ctx, incomplete)]


def find_translation(invocation: Invocation) -> tuple[str, Translate]:
    """Return the first line of a help text and its translator, in the language of the given home."""
    # Imported here: only help is translated.
    from bubbot.settings.environment import default_home
    from bubbot.settings.language import read_language

    usage_heading = "usage: "
    try:
        language = read_language(invocation.home or default_home(), invocation.config)
    except ConfigError:  # commands that need the settings report it
        return usage_heading, str
    if language.startswith("en"):
        return usage_heading, str
    # Imported here: help in English needs no catalogue.
    from bubbot.cli.help import HelpTranslator
    from bubbot.texts import Texts

    texts = Texts(language)
    return (texts.say("help_usage"), HelpTranslator(texts).translate) if texts.is_translated else (usage_heading, str)


def describe_usage(error: click.UsageError) -> str:
    """Describe in our words why click refuses a command line."""
    params = error.ctx.command.params if error.ctx else []
    if isinstance(error, click.NoSuchOption):
        # Imported here: few command lines have a wrong option.
        from difflib import get_close_matches

        known = {name.lstrip("-"): name for param in params for name in param.opts if name.startswith("--")}
        near = get_close_matches(error.option_name.lstrip("-"), known, n=1, cutoff=0.75)
        return f"unknown option {error.option_name!r}{f': did you mean {known[near[0]]!r}?' if near else ''}"
    if isinstance(error, click.BadOptionUsage):
        option = next((param for param in params if error.option_name in param.opts), None)
        if isinstance(option, click.Option) and option.is_flag:
            return f"{error.option_name} takes no value: leave it out"
        return f"{error.option_name} needs a value"
    if isinstance(error, click.BadParameter) and error.param is not None:
        return f"{error.param.opts[0]}: {error.message}"
    return error.message
