"""Commands: a method of a feature's service, declared once. Chat, shell and model are renderers of the same call.

The method gets who calls and the arguments, and returns a value; it knows no surface. `make_tool` and `make_command` make
of the declaration what the router and the command line run: they read the arguments, call, and say the result or the
refusal in the sentence that the catalogues have for its type, in a variant for the surface if there is one:
`AuditChange.granted@chat`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any, Generic, TypeAlias, TypeVar, get_args, get_origin, get_type_hints, overload

import msgspec
from msgspec import structs

from bubbot.arguments.fields import Args, NoArguments, form_fields
from bubbot.concurrency import run_uninterrupted
from bubbot.errors import (
    AccessError,
    BubbotError,
    CommandError,
    CommandFailed,
    CommandRefused,
    ConfigError,
    ConfirmationNeeded,
    ToolFailed,
    ToolRetry,
    ValueInvalid,
)
from bubbot.log import printable
from bubbot.ports.channel import TERMINAL_CHANNEL, Role
from bubbot.ports.turn import Turn
from bubbot.shell_command import (
    Command,
    CommandContext,
    CommandFailure,
    CommandGroup,
    CommandResult,
    FolderResult,
    TableResult,
)
from bubbot.tape.entry import thaw
from bubbot.texts import COMMAND_PREFIX, Texts
from bubbot.tool import CallPlan, CommandHelp, CommandPlace, Effect, EffectKind, PlanCall, RerunModel, Tool, ToolOutput

TERMINAL = "terminal"
"""The caller in a terminal: the operating system's user, who is an owner."""
S = TypeVar("S")
A = TypeVar("A", bound=Args)
R = TypeVar("R")


class Surface(StrEnum):
    """Where a call comes from."""

    CHAT = "chat"
    SHELL = "shell"
    MODEL = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls a command, and from where.

    Attributes:
        id: `terminal` or `channel:id`.
        role: the role now.
        surface: where the call comes from.
        is_direct: nobody else reads along.
        has_power: an owner asks in person, with nobody reading along.
        has_confirmed: the person has said yes to the question of the command.
        pressed_value: the value of the button that was pressed; empty if the command was typed.
        texts: the sentences for the answer.
        turn: the turn in which it is typed or called; None in a shell.
        context: what a shell command works on; None in a turn.
    """

    id: str = TERMINAL
    role: Role = Role.OWNER
    surface: Surface = Surface.SHELL
    is_direct: bool = True
    has_power: bool = True
    has_confirmed: bool = False
    pressed_value: str = ""
    texts: Texts = field(default_factory=Texts)
    turn: Turn | None = None
    context: CommandContext | None = None

    @property
    def place(self) -> str:
        """`terminal`, or the channel; not who it is: what somebody decided there holds on if they are forgotten."""
        return self.id.partition(":")[0]

    @classmethod
    def of_turn(cls, turn: Turn, *, has_confirmed: bool = False) -> Caller:
        """Return the person who typed a command in a turn, or for whom its model calls a tool."""
        channel = turn.session.partition(":")[0]
        press = turn.inbounds[0].inbound.press if turn.inbounds else None
        return cls(
            id=TERMINAL if channel == TERMINAL_CHANNEL else f"{channel}:{turn.sender.id}",
            role=turn.role,
            surface=Surface.CHAT if turn.runs_command else Surface.MODEL,
            is_direct=turn.is_direct,
            has_power=turn.has_power_over_other_chats,
            has_confirmed=has_confirmed,
            pressed_value=press.value if press else "",
            texts=turn.texts,
            turn=turn,
        )

    @classmethod
    def of_shell(cls, context: CommandContext, *, has_confirmed: bool = False) -> Caller:
        """Return the person who types a command in a shell, or sends a form of a page."""
        return cls(id=context.account or TERMINAL, has_confirmed=has_confirmed, texts=context.texts, context=context)

    @property
    def required_turn(self) -> Turn:
        """The turn, for a command that no shell has."""
        assert self.turn is not None
        return self.turn

    @property
    def result_texts(self) -> Texts:
        """The sentences for what a tool returns: people read their language, models English."""
        return self.turn.result_texts if self.turn else self.texts

    @property
    def channel(self) -> str:
        """The channel of the chat in which it is called; empty in a shell."""
        return self.turn.session.partition(":")[0] if self.turn else ""


@dataclass(frozen=True, kw_only=True)
class CommandSpec(Generic[S, A, R]):
    """A declared command.

    Attributes:
        run: the method. Of the parameters `caller` and `args` it has those that it needs. If a shell has other arguments
            than a chat, `args` is one of two classes, that of chats and models first.
        usage: how it is typed in a shell after `bubbot`: `access grant <channel> <id> <role>`. An argument in angle
            brackets has to be given there, one in square brackets may be; others are options.
        chat: its names in a chat: first that of its tool, then those that people type instead; none: not in a chat.
        form: how its arguments are typed in a chat: `<auditor> of <session>`.
        example: its arguments in a shell, such as `anna telegram:7`, for help.
        help: what people are told of it in a chat.
        role: the least role that may call it.
        effect: what it does.
        in_shell: a shell has it.
        is_direct: in a chat, only with nobody reading along; if it is for owners, only for one who asks in person.
        for_model: models may call it.
        ask: a method that returns the question that is asked first, or None; it only reads.
        undo: the name of the command that takes it back, with arguments of the same names as the fields of the result.
        rows: the key of `--json` if the result is a list.
        writes: the running bot carries it out, or a shell if none runs; None: if its effect is not to read.
        only_reads: returns true for arguments with which a command that writes only reads, as a shell does beside a bot.
        progress: what long work does, and the unit that it counts, as a terminal shows it; see `Command.progress`.
    """

    run: Callable[..., Awaitable[R]]
    usage: str
    chat: tuple[str, ...] = ()
    form: str = ""
    example: str = ""
    help: CommandHelp = field(default_factory=CommandHelp)
    role: Role = Role.MEMBER
    effect: Effect = field(default_factory=Effect)
    in_shell: bool = True
    is_direct: bool = False
    for_model: bool = False
    ask: Callable[[S, Caller, A], Awaitable[ConfirmationNeeded | None]] | None = None
    undo: str = ""
    rows: str = ""
    writes: bool | None = None
    only_reads: Callable[[A], bool] | None = None
    progress: tuple[str, str] | None = None

    @property
    def name(self) -> str:
        """Its words in a shell, which name it."""
        return _WORDS.split(self.usage)[0].strip()

    @property
    def shell_form(self) -> str:
        """How its arguments are typed in a shell."""
        return self.usage[len(self.name) :].strip()

    @property
    def args(self) -> type[A]:
        """The class of its arguments in a chat."""
        found: type[A] = self._args[0]
        return found

    @property
    def shell_args(self) -> type[A]:
        """The class of its arguments in a shell."""
        found: type[A] = self._args[-1]
        return found

    @property
    def _args(self) -> Sequence[Any]:
        found = _hints(self.run).get("args", NoArguments)
        return get_args(found) or (found,)

    @property
    def result(self) -> Any:
        """The type of its result."""
        return _hints(self.run)["return"]

    @property
    def row(self) -> Any:
        """The type of the items of its result; None if that is no list."""
        return get_args(self.result)[0] if get_origin(self.result) in (list, tuple) else None

    @property
    def summary(self) -> str:
        """Its line of help."""
        return " ".join((self.run.__doc__ or "").split())

    @property
    def is_write(self) -> bool:
        """True if it changes anything."""
        return self.effect.kind is not EffectKind.READ if self.writes is None else self.writes

    @property
    def typed_name(self) -> str:
        """The name that people type in a chat, without the comma."""
        return self.chat[1] if len(self.chat) > 1 else self.chat[0]


_WORDS = re.compile(r"[<\[]")


@cache
def _hints(run: Callable[..., Any]) -> Mapping[str, Any]:
    return get_type_hints(run, include_extras=True)


class CommandMethod(Generic[S, A, R]):
    """A method that is a command."""

    def __init__(self, spec: CommandSpec[S, A, R]) -> None:
        self.spec = spec

    @overload
    def __get__(self, service: None, owner: type[S]) -> CommandMethod[S, A, R]: ...
    @overload
    def __get__(self, service: S, owner: type[S]) -> BoundCommand[S, A, R]: ...
    def __get__(self, service: S | None, owner: type[S]) -> Any:
        """Bind it to a service, as a method is."""
        return self if service is None else BoundCommand(self.spec, service)


@dataclass(frozen=True)  # a generic class with slots cannot be made by `Name[T](…)`
class BoundCommand(Generic[S, A, R]):
    """A command of one service."""

    spec: CommandSpec[S, A, R]
    service: S

    async def __call__(self, caller: Caller, args: A | None = None) -> R:
        """Check who calls, and run it. One that writes runs to its end though its caller is cancelled.

        Raises:
            CommandRefused: this caller may not, or not here; or what the command itself refuses.
            ConfirmationNeeded: the person has to be asked first.
        """
        spec, needed = self.spec, _hints(self.spec.run)
        given: dict[str, Any] = {"caller": caller, "args": args if args is not None else spec.args()}
        if not caller.role.at_least(spec.role):
            raise CommandRefused("not_allowed", needed=spec.role, role=caller.role)
        is_private = caller.has_power if spec.role is Role.OWNER else caller.is_direct
        if spec.is_direct and not is_private:
            raise CommandRefused("only_direct")
        if spec.ask and not caller.has_confirmed and (question := await spec.ask(self.service, caller, given["args"])):
            raise question
        work = spec.run(self.service, **{name: value for name, value in given.items() if name in needed})
        return await (run_uninterrupted(_complete(work)) if spec.is_write else work)


async def _complete(work: Awaitable[R]) -> R:
    return await work


def command(usage: str, **options: Any) -> Callable[[Callable[..., Awaitable[R]]], CommandMethod[Any, Any, R]]:
    """Declare a method as a command; `options` are further fields of `CommandSpec`. Its docstring is its help."""
    return lambda run: CommandMethod(CommandSpec(run=run, usage=usage, **options))


def list_commands(service: type) -> Iterator[CommandSpec[Any, Any, Any]]:
    """Yield the commands that a class of services declares, in their order."""
    for value in vars(service).values():
        if isinstance(value, CommandMethod):
            yield value.spec


def find_spec(service: type, name: str) -> CommandSpec[Any, Any, Any]:
    """Return a command of a class of services by its name. Raise `KeyError` if there is none."""
    found = next((spec for spec in list_commands(service) if spec.name == name), None)
    if found is None:
        raise KeyError(f"{service.__name__} has no command {name!r}")
    return found


# Sentences


def describe(spec: CommandSpec[Any, Any, Any], service: type, result: Any, caller: Caller) -> str:
    """Return what a caller is told of a result.

    A result with a method `describe` says it itself. Of any other the sentence has the name of its type, and its property
    `variant` after a dot; its method `more` returns the names of further sentences that apply. The fields are their
    values, with those of its method `values`, and `undo`, the call that takes the result back. A list is a line for each
    row, and the sentence `none` of the type of its rows if it is empty. A model reads English.
    """
    texts = caller.result_texts
    if isinstance(result, (list, tuple)):
        lines = [describe(spec, service, row, caller) for row in result]
        return "\n".join(lines) or texts.say_on(caller.surface, f"{spec.row.__name__}.none")
    if hasattr(result, "describe"):
        told: str = result.describe(caller)
        return told
    values = _values(result, caller)
    if spec.undo:
        values["undo"] = format_call(find_spec(service, spec.undo), msgspec.structs.asdict(result), caller)
    names = [_sentence(result), *(result.more() if hasattr(result, "more") else ())]
    return " ".join(texts.say_on(caller.surface, name, **values) for name in names)


def _sentence(result: Any) -> str:
    """Return the name of the sentence of a result."""
    name = type(result).__name__
    return f"{name}.{result.variant}" if hasattr(result, "variant") else name


def _values(result: Any, caller: Caller) -> dict[str, Any]:
    return {**msgspec.structs.asdict(result), **(result.values(caller) if hasattr(result, "values") else {})}


def describe_rows(rows: Sequence[Any], caller: Caller) -> tuple[tuple[str, ...], ...]:
    """Return the cells of a table for a shell: those of a sentence are two spaces apart."""
    return tuple(_cells(row, caller) for row in rows)


def _cells(row: Any, caller: Caller) -> tuple[str, ...]:
    values = _values(row, caller)
    template = caller.texts.template_on(caller.surface, _sentence(row))
    return tuple(printable(cell.format_map(values)) for cell in template.split("  "))


def explain(error: CommandRefused, command_name: str, texts: Texts, surface: Surface) -> str:
    """Return what a refusal says, in the language of the texts."""
    values = {name: texts.role(value) if isinstance(value, Role) else value for name, value in error.values.items()}
    return texts.say_on(surface, error.code, **{"command": command_name, **values})


def format_call(spec: CommandSpec[Any, Any, Any], values: Mapping[str, Any], caller: Caller) -> str:
    """Return what a person types to call a command with these values."""
    if caller.surface is Surface.SHELL:
        words = [shlex.quote(str(values[name])) for name in form_fields(spec.shell_form) if name in values]
        return f"`{' '.join(['bubbot', spec.name, *words])}`"
    form = re.sub(r"[<\[](.*?)[>\]]", lambda match: str(values.get(match[1], "")), spec.form)
    return f"{caller.texts.format_commands(COMMAND_PREFIX + spec.typed_name)} {form}".strip()


# Adapters


def make_tool(spec: CommandSpec[Any, Any, Any], service: type, find: Callable[[], Any], **options: Any) -> Tool:
    """Make the tool with which people type a command in a chat, and with which models call it.

    A command that returns `RerunModel` makes the model answer.

    Args:
        spec: the command.
        service: the class that declares it.
        find: returns the service of the running bot.
        **options: further fields of `Tool`, for what only a call of a model needs. A `plan` is refused as the command is.
    """
    name = COMMAND_PREFIX + spec.typed_name

    async def run(turn: Turn, args: Any) -> ToolOutput:
        caller = Caller.of_turn(turn, has_confirmed=getattr(args, "confirm", False) or not turn.runs_command)
        with explain_refusals(turn, name):
            try:
                result = await BoundCommand(spec, find())(caller, args)
            except ConfirmationNeeded as question:
                return explain(question, turn.texts.format_commands(name), turn.texts, caller.surface)
        return result if isinstance(result, RerunModel) else describe(spec, service, result, caller)

    if plan := options.get("plan"):
        options["plan"] = _explained(plan, name)
    about = structs.replace(spec.help, place=CommandPlace.DIRECT) if spec.is_direct else spec.help
    return Tool(
        spec.chat[0],
        spec.summary,
        spec.args,
        run,
        spec.chat[1:],
        spec.for_model,
        spec.role,
        about,
        effect=spec.effect,
        form=spec.form,
        **options,
    )


def _explained(plan: PlanCall[Any], command_name: str) -> PlanCall[Any]:
    async def plan_call(turn: Turn, args: Any) -> CallPlan:
        with explain_refusals(turn, command_name):
            return await plan(turn, args)

    return plan_call


@contextmanager
def explain_refusals(turn: Turn, command_name: str) -> Iterator[None]:
    """Tell the person or the model why a command, by its name with the comma, is refused or fails.

    Raises:
        ToolRetry: it is refused.
        ToolFailed: it cannot do its work.
    """
    try:
        yield
    except CommandRefused as error:
        surface = Surface.CHAT if turn.runs_command else Surface.MODEL
        name = turn.result_texts.format_commands(command_name)
        signal = ToolFailed if isinstance(error, CommandFailed) else ToolRetry
        raise signal(explain(error, name, turn.result_texts, surface)) from error
    except (AccessError, ConfigError) as error:
        raise ToolRetry(turn.texts.reason(error)) from error


def make_tools(service: type, find: Callable[[], Any], **options: Mapping[str, Any]) -> list[Tool]:
    """Make the tools of all commands of a class of services that have names in a chat, as `make_tool` does.

    `options` are those of `make_tool` by the name of the tool with underscores for dots.
    """
    return [
        make_tool(spec, service, find, **options.get(spec.chat[0].replace(".", "_"), {}))
        for spec in list_commands(service)
        if spec.chat
    ]


OpenService: TypeAlias = Callable[[CommandContext], Awaitable[Any]]
"""Return the running bot's own service, so that a change takes effect at once, or one over the tapes of the home."""


def make_command(spec: CommandSpec[Any, Any, Any], service: type, open_service: OpenService, **options: Any) -> Command:
    """Make the command of the shell.

    `--json` prints the fields of the type that the method declares; a subclass may have more for its sentences. A result may
    have `exit_code`, and `is_text` if it holds texts of people, which lose in a terminal only what that would obey; `is_raw`
    if it is for other programs, `file`, the new file that it is written to, or that gets `content`, `folder`, a new folder for
    `files` of a command that reads, and `is_error` if it says why nothing was done. With `rows` it is a table, below which its method `footer` says more; a row may have `right`, the
    columns of numbers, and the sentence `header` of its type.

    Args:
        spec: the command.
        service: the class that declares it.
        open_service: returns a service.
        **options: further fields of `Command`.
    """

    async def run(context: CommandContext, args: Any) -> CommandResult:
        caller = Caller.of_shell(context, has_confirmed=True)  # the shell has asked before
        with _report(spec, caller):
            result = await BoundCommand(spec, await open_service(context))(caller, args)
        data = _to_json(spec, result)
        listed = result if spec.rows else getattr(result, "rows", ())
        if listed and not hasattr(spec.row, "describe"):
            end = f"{spec.row.__name__}.end" if spec.rows else ""
            text = f"\n{caller.texts.say(end)}\n" if end in caller.texts else ""
            if hasattr(result, "footer"):
                text = f"{result.footer(caller)}\n"
            row, cells = type(listed[0]), describe_rows(listed, caller)
            if spec.is_write:
                return CommandResult(text, getattr(result, "exit_code", 0), data=data, rows=cells)
            heading = f"{row.__name__}.header"
            header = tuple(caller.texts.say(heading).split("  ")) if heading in caller.texts else ()
            right = getattr(row, "right", ())
            return TableResult(text, getattr(result, "exit_code", 0), data=data, rows=cells, right=right, header=header)
        text = describe(spec, service, result, caller)
        if not getattr(result, "is_text", False):
            text = printable(text, keep="\n")
        if getattr(result, "folder", None) is not None:
            return FolderResult(f"{text}\n", data=data, folder=result.folder, files=result.files)
        answer = CommandFailure if getattr(result, "is_error", False) else CommandResult
        return answer(
            f"{text}\n" if text else "",
            getattr(result, "exit_code", 0),
            getattr(result, "is_raw", False),
            getattr(result, "file", None),
            getattr(result, "content", b""),
            data=data,
        )

    async def ask(context: CommandContext, args: Any) -> CommandResult:
        assert spec.ask is not None
        caller = Caller.of_shell(context)
        with _report(spec, caller):
            question = await spec.ask(await open_service(context), caller, args)
        text = explain(question, f"bubbot {spec.name}", caller.texts, caller.surface) if question else ""
        return CommandResult(printable(text, keep="\n"))

    summary = spec.summary
    return Command(
        **{
            "name": spec.name,
            "run": run,
            "args": spec.shell_args,
            "form": spec.shell_form,
            "help": summary[:1].lower() + summary[1:].removesuffix("."),
            "description": summary,
            "example": f"{spec.name} {spec.example}".strip(),
            "writes": spec.is_write,
            "only_reads": spec.only_reads,
            "progress": spec.progress,
            "is_answered_without_home": not spec.is_write,
            "question": ask if spec.ask else None,
            "result": spec.result,
            "rows": spec.rows,
            **options,
        }
    )


def _to_json(spec: CommandSpec[Any, Any, Any], result: Any) -> Any:
    """Return a result as JSON has it, with the fields of the declared type alone."""
    if spec.rows or not isinstance(result, msgspec.Struct) or type(result) is spec.result:
        return msgspec.to_builtins({spec.rows: result} if spec.rows else result, enc_hook=thaw)
    declared = [field.name for field in msgspec.structs.fields(spec.result)]
    return {name: msgspec.to_builtins(getattr(result, name), enc_hook=thaw) for name in declared}


@contextmanager
def _report(spec: CommandSpec[Any, Any, Any], caller: Caller) -> Iterator[None]:
    """Turn a refusal into the error that a shell reports: of usage for a value that names nothing here."""
    kinds: Mapping[type[CommandRefused], type[BubbotError]] = {ValueInvalid: ConfigError, CommandFailed: CommandError}
    try:
        yield
    except CommandRefused as error:
        text = printable(explain(error, f"bubbot {spec.name}", caller.texts, caller.surface), keep="\n")
        raise kinds.get(type(error), AccessError)(text) from error


def make_group(
    word: str,
    service: type,
    open_service: OpenService | None,
    description: str,
    further: Sequence[Command] = (),
    *,
    help_line: str = "",
    section: str = "Change",
    **options: Mapping[str, Any],
) -> CommandGroup:
    """Make the group of the commands of a class of services that have a form in a shell.

    Args:
        word: the word of the group.
        service: the class.
        open_service: returns a service; None for one that is built without arguments.
        description: the beginning of the help of the group.
        further: commands that only a shell has, after the others.
        help_line: the line of the group in `bubbot --help`.
        section: the heading that it stands under there.
        **options: those of `make_command`, by the last word of a command with underscores for hyphens.
    """

    async def build_service(_context: CommandContext) -> Any:
        return service()

    commands = [
        make_command(
            spec,
            service,
            open_service or build_service,
            **options.get(spec.name.rpartition(" ")[2].replace("-", "_"), {}),
        )
        for spec in list_commands(service)
        if spec.in_shell
    ]
    return CommandGroup(word, (*commands, *further), description, help_line, section)
