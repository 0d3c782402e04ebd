"""The command port: what people do from a shell and, if the command has typed names, in a chat.

A feature declares each command once. The shell's options come from the model of its arguments, as the words of a comma
command do; the same function runs in a shell's process, in the running bot, and in a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, Protocol, TypeAlias, get_type_hints
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Struct, to_builtins
from typing_extensions import TypeVar

from bubbot.arguments.fields import Args, ArgumentField, NoArguments, fields_of, form_fields, require_args
from bubbot.errors import CommandError, ConfigError, EntryNotFound
from bubbot.ports.channel import Role
from bubbot.ports.progress import OnProgress, ignore_progress
from bubbot.ports.session_names import (
    find_tape,
    first_session,
    parse_session,
    read_session,
    require_no_open_turn,
    require_user_tape,
)
from bubbot.ports.turn import Turn
from bubbot.tape.handle import Clock, TapeHandle
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.service import NewId, TapeService, session_tape
from bubbot.tape.store import SharesWriting, TapeStore
from bubbot.texts import Texts
from bubbot.tool import CommandHelp, Effect

WRITE_TIMEOUT_SECONDS = 300.0
"""The longest time a command waits for the running turn of its session."""
EXIT_NO_ANSWER = 1
"""The exit code of a command that ran, and has no answer."""
DEFAULT_SESSION = "default"
"""The session of a shell command that names none."""
T = TypeVar("T")


class Argument(Struct, frozen=True):
    """How a field of the arguments is typed in a shell, as `Annotated[str, Argument("…")]`.

    A required field, or one in the form of the command, is a word; any other is an option.

    Attributes:
        help: its line of help; empty for the description of the field.
        metavar: the name of an option's value in the help; None for the field's name in capitals.
        parse: makes the value of a text in a shell. Raises `ValueError` with a sentence.
        rest: takes all remaining words, as one text.
        short: a letter that stands for the option, such as `m` for `-m`.
        repeated: the option may be typed several times, once for each item of a list.
    """

    help: str = ""
    metavar: str | None = None
    parse: Callable[[str], Any] | None = None
    rest: bool = False
    short: str = ""
    repeated: bool = False


async def read_as_of(tape: TapeHandle, entry: int | None) -> TapeHandle:
    """Return the tape as it was when this entry was its newest one; None: as it is.

    Raises:
        ConfigError: the tape does not have the entry yet.
    """
    if entry is None:
        return tape
    require_head(entry, await tape.head())
    return await tape.as_of(((1, entry),))


def require_head(as_of: int, head: int) -> None:
    """Raise `ConfigError` if a tape whose newest entry is `head` has no entry `as_of` yet."""
    if as_of > head:
        raise ConfigError(
            f"--as-of {as_of}: the newest entry of this tape is {head}; leave --as-of out to see it as it is now"
        )


class TypedAnswer(Struct, frozen=True):
    """What the bot answered to a comma command.

    Attributes:
        text: the answer.
        turn: the id of the turn.
        entries: its first and its last entry on the tape of the session; empty if it wrote nothing.
    """

    text: str
    turn: str
    entries: tuple[int, int] | tuple[()] = ()


TypeCommand: TypeAlias = Callable[[str, str, str], Awaitable[TypedAnswer]]
"""Type a comma command for the owner at the terminal, and wait for the answer: session, line, and the model of its turn, empty
for that of the session. The bot that runs for the home answers, or one that is opened for this."""


def write_keyed(name: str, text: str) -> str:
    """Write an argument of a comma command, of any characters."""
    doubled = text.replace('"', '""')
    return f'{name}="{doubled}"'


@asynccontextmanager
async def no_exclusion(_session: str) -> AsyncIterator[None]:
    """Do nothing: this process holds the home's lock and runs no turns."""
    yield


class CommandContext(Struct, frozen=True):
    """The state that a command works on.

    Attributes:
        store: the tapes, open for writing if the command writes.
        workspace: the workspace of the home's sessions.
        now: the clock.
        new_id: makes unique ids.
        settings: the current settings of the feature; None if it has none.
        zone: the time zone of the deployment.
        exclusive: keeps turns of a session from running during its block.
        services: the running bot's own services of the features; none if no bot runs.
        is_running: the running bot carries the command out.
        is_daemon: that bot is the daemon, which has the channels and fires the jobs, and not a chat in a terminal.
        turn: the turn in which the command was typed; None for one of a shell.
        terminal_width: the columns of the terminal that shows the answer; 0 if it goes elsewhere, such as to a pipe, or to
            a terminal for lines only.
        type_command: lets the bot answer a comma command; None if this is the running bot, or a command that writes.
        on_progress: gets the counts of long work; the running bot shows none.
        texts: the sentences in the language of the bot.
        home: the home folder; None in a turn, and for commands that need none.
        account: the account of an owner who runs it from a page of the bot; empty for the user of a shell.
    """

    store: TapeStore
    workspace: str
    now: Clock
    new_id: NewId
    settings: Any = None
    zone: ZoneInfo = msgspec.field(default_factory=lambda: ZoneInfo("UTC"))
    exclusive: Callable[[str], AbstractAsyncContextManager[None]] = no_exclusion
    services: Sequence[object] = ()
    is_running: bool = False
    is_daemon: bool = False
    turn: Turn | None = None
    terminal_width: int = 0
    type_command: TypeCommand | None = None
    on_progress: OnProgress = ignore_progress
    texts: Texts = msgspec.field(default_factory=Texts)
    home: Path | None = None
    account: str = ""

    def service(self, kind: type[T]) -> T | None:
        """Return the running bot's own service of this class, so that a change takes effect at once; None without one."""
        return next((service for service in self.services if isinstance(service, kind)), None)

    def make_projections(self) -> ProjectionRunner:
        """Make the states for a service of this command. It excludes bots that write to the store meanwhile, if several may."""
        return ProjectionRunner(self.store if isinstance(self.store, SharesWriting) else None)

    def open_tape(self, name: str, session: str = "") -> TapeService:
        """Open a tape by its name."""
        return TapeService(self.store, name, now=self.now, new_id=self.new_id, session=session)

    async def first_session(self, session: str) -> str:
        """Return a session as it is stored; a chat that moved may be named by each of its ids."""
        return await first_session(self.store, session)

    @asynccontextmanager
    async def open_session(
        self,
        reference: str | None = None,
        *,
        write: bool = False,
        create: bool = False,
        usage: str = "opened by commands",
        subject: str = "content",
    ) -> AsyncIterator[TapeHandle]:
        """Open the tape of a session. In a chat that is the fork of the turn, which is merged with it.

        Args:
            reference: a session or the name of a tape; None: that of the chat, or `DEFAULT_SESSION`.
            write: keep turns and other writers away until the block ends.
            create: make the session if it is missing.
            usage: the word of the error for tapes of the system, which are never this.
            subject: the word of the error for archives, whose … can be read and no longer changed.

        Raises:
            CommandError: a chat named another session.
            EntryNotFound: there is no such session.
            ConfigError: nothing may be written there.
        """
        if self.turn is not None:
            if reference is not None and parse_session(reference) != self.turn.session:
                raise CommandError("in a chat this command works on the chat itself; the shell reaches the others")
            yield self.turn.tape
            return
        reference = DEFAULT_SESSION if reference is None else reference
        try:
            name = await find_tape(self.store, self.workspace, reference)
        except EntryNotFound:
            if not create:
                raise
            session = parse_session(reference)
            name = session_tape(self.workspace, session)
        else:
            require_user_tape(name, usage)
            if write and any(tape.archived_from for tape in await self.store.tapes() if tape.name == name):
                raise ConfigError(f"{name} is an archive; its {subject} can be read and no longer changed")
            session = await read_session(self.store, name)
        tape = self.open_tape(name, session)
        if not write:
            yield tape
            return
        async with self.lock_tape(name, session):
            await require_no_open_turn(self.store, name, reference)
            if create:
                await tape.ensure_bootstrap_anchor()
            yield tape

    @asynccontextmanager
    async def lock_tape(self, tape: str, session: str = "") -> AsyncIterator[None]:
        """Keep all other writers off a tape until the block ends. Raises `ConfigError` after five minutes."""
        session = session or await read_session(self.store, tape)
        if not session:  # no turn runs on an archive or a tape of the system
            yield
            return
        exclusion = self.exclusive(session)
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_SECONDS):
                await exclusion.__aenter__()
        except TimeoutError as error:
            raise ConfigError(
                f"a turn of {session} has been running for {WRITE_TIMEOUT_SECONDS / 60:.0f} minutes: ,stop ends it; nothing was written"
            ) from error
        try:
            yield
        finally:
            await exclusion.__aexit__(None, None, None)


IsoTime: TypeAlias = Annotated[str, "date-time"]
"""A time in a result of a command: ISO 8601 with its offset from UTC."""


def json_data(value: Any) -> Any:
    """Return a value as JSON has it: records and mappings as objects, sequences as lists, bytes in base64."""
    return to_builtins(value, enc_hook=_write_mapping)


def _write_mapping(value: Any) -> Any:
    """Write what msgspec does not know: mappings of other types than `dict`."""
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"{type(value).__name__} has no form in JSON")


class CommandResult(Struct, frozen=True, forbid_unknown_fields=True):
    """What a command answers.

    Attributes:
        text: what it prints.
        rows: the cells of a table, which is printed before the text so that it fits the terminal.
        code: its exit code.
        raw: print the text as it is, for other programs; only a terminal gets no control characters.
        file: write the text to this new file instead.
        content: write these bytes to the file, and print the text.
        data: the same for programs, with the fields of `Command.result`; `json_data` makes it. None for a command without.
    """

    text: str
    code: int = 0
    raw: bool = False
    file: str | None = None
    content: bytes = b""
    data: Mapping[str, Any] | None = None
    rows: tuple[tuple[str, ...], ...] = ()


class CommandFailure(CommandResult, frozen=True):
    """An answer whose text says why nothing was done, and goes to standard error. Only commands that read have one."""


class TableResult(CommandResult, frozen=True):
    """The answer of a command that only reads, with more about its table than a running bot sends.

    Attributes:
        right: the columns that are numbers.
        header: the headings of the columns; empty for none.
    """

    right: tuple[int, ...] = ()
    header: tuple[str, ...] = ()


class FolderResult(CommandResult, frozen=True):
    """An answer with the files of a new folder. Only commands that read have one.

    Attributes:
        folder: the new folder.
        files: what they hold, by their paths below it.
    """

    folder: str = ""
    files: Mapping[str, bytes] = msgspec.field(default_factory=dict)


class ShellInput(Protocol):
    """Files and standard input of the person who types a command; the running bot has others."""

    def read_text(self, path: Path, limit: int, subject: str) -> str:
        """Read a UTF-8 file of at most `limit` bytes. Raise `ConfigError`, in a sentence that begins with `subject`."""
        ...

    def read_stdin(self, limit: int) -> bytes:
        """Read standard input, at most `limit` bytes of it."""
        ...


RunCommand: TypeAlias = Callable[[CommandContext, Any], Awaitable[CommandResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSyntax:
    """How a command is typed in a shell, and what its help says.

    Attributes:
        name: its words, such as `schedule add`; the first is that of its group.
        args: the model of its arguments.
        form: the arguments that are typed as words after its name, as `<channel> <id> [role]`; empty: the required
            ones. The others are options.
        help: its line in the help of the group.
        description: the beginning of its own help.
        example: what to type after `bubbot`, for the end of its help; a line each if there are several. One that has the
            word `bubbot` itself is shown as it is.
        rows: the key of the object that `--json` prints, if the result is a list.
        result: the class of what `--json` prints; the reference has its schema. None: the command has no such option.
        json_help: the line of help of that option.
    """

    name: str
    args: type[Args] = NoArguments
    form: str = ""
    help: str = ""
    description: str = ""
    example: str = ""
    rows: str = ""
    result: Any = None
    json_help: str = "print one JSON object instead"

    @property
    def fields(self) -> Mapping[str, ArgumentField]:
        """Its arguments, by name."""
        return fields_of(self.args)

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments that are typed as words; the others are options."""
        declared = form_fields(self.form)
        return tuple(declared) or tuple(name for name, field in self.fields.items() if field.is_required)

    def requires(self, name: str) -> bool:
        """Return true if a shell has to be given this argument: its form may demand what a chat knows by itself."""
        return f"<{name}>" in self.form.split() or self.fields[name].is_required

    @property
    def action(self) -> str:
        """Its words after that of the group; empty for the only command of a group."""
        return self.name.partition(" ")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(CommandSyntax):
    """A command of the shell; the decorator `command` makes most of them. `CommandResult.data` is made of its `result`.

    Attributes:
        run: does the work.
        writes: the running bot carries it out, or this process if none runs. A command that only reads always runs in
            this process, also while a bot runs.
        only_reads: returns true for arguments with which a command that writes only reads.
        prepare: makes of the arguments what is sent, in the process of the shell: it reads files that they name.
        sent: the model of what `prepare` makes; None for `args`.
        needs_home: false for a command that works without tapes; it finds an empty store in its context.
        on_missing_home: answers a command that only reads in a home where no bot ever ran, from settings and arguments;
            None: an error does.
        is_answered_without_home: it only reads, and answers in a home where no bot ever ran from an empty one.
        begins_home: in such a home the bot answers a comma command first, so that there is one.
        question: returns what a shell asks before it runs the command, or an empty text; it only reads. The option
            `--yes` does not ask.
        progress: what long work does, and the unit that it counts, such as `("Indexing the tapes", "entries")`; the unit is
            empty if nothing is counted. It may have the names of arguments in braces.
        typed: names as a comma command in chats; none by default.
        typed_help: what people are told of that comma command.
        role: the least role that may type it in a chat. In a shell everyone is the owner.
        effect: what it does as a command in chats.
    """

    run: RunCommand
    writes: bool = False
    only_reads: Callable[[Any], bool] | None = None
    prepare: Callable[[Any, ShellInput], Args] | None = None
    sent: type[Args] | None = None
    needs_home: bool = True
    on_missing_home: Callable[[Any, Any], CommandResult] | None = None
    is_answered_without_home: bool = False
    begins_home: bool = False
    question: RunCommand | None = None
    progress: tuple[str, str] | None = None
    typed: tuple[str, ...] = ()
    typed_help: CommandHelp = field(default_factory=CommandHelp)
    role: Role = Role.OWNER
    effect: Effect = field(default_factory=Effect)


def command(name: str, **options: Any) -> Callable[[RunCommand], Command]:
    """Make a `Command` of `async def f(context: CommandContext, args: SomeArgs) -> CommandResult`.

    Its docstring is the help; a second paragraph replaces the first one in the command's own help. `options` are further
    fields of `Command`; `args` is the model of what is typed, if that is prepared.
    """

    def decorate(run: RunCommand) -> Command:
        return Command(name=name, run=run, **{**described_by(run), **options})

    return decorate


def described_by(handler: Callable[..., Any]) -> dict[str, Any]:
    """Return the fields of a `Command` that a function tells: its arguments and its help. Raise `ConfigError`."""
    args = get_type_hints(handler).get("args")
    first, _, second = (" ".join(part.split()) for part in (handler.__doc__ or "").partition("\n\n"))
    require_args(f"the command {handler.__name__}", args)
    if not first:
        raise ConfigError(f"the command {handler.__name__} needs a docstring: it is its help")
    return {"args": args, "help": first[0].lower() + first[1:].removesuffix("."), "description": second or first}


C_co = TypeVar("C_co", bound=CommandSyntax, default=Command, covariant=True)


@dataclass(frozen=True)  # a generic class with slots cannot be made by `Name[T](…)`
class CommandGroup(Generic[C_co]):
    """The commands behind one word of the shell. A package offers one in the entry-point group `bubbot.commands`.

    Attributes:
        name: the word.
        commands: its commands: several with a further word each, or one with this word alone.
        description: the beginning of its help.
        help: its line in `bubbot --help`. That of a package is what the package says of itself.
        section: the heading that it stands under there.
    """

    name: str
    commands: tuple[C_co, ...]
    description: str = ""
    help: str = ""
    section: str = ""

    def find(self, name: str) -> C_co | None:
        """Find a command by its whole name."""
        return next((command for command in self.commands if command.name == name), None)
