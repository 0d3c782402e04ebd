"""The commands `bubbot memory`: the memory of a session."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from msgspec import Struct, to_builtins
from pydantic import model_validator

from bubbot.errors import ConfigError, EntryNotFound, MemoryTooLarge
from bubbot.features.memory.changes import find_lost_lines
from bubbot.features.memory.files import FILE_LIMIT, read_memory
from bubbot.features.memory.scopes import WORKSPACE_TAPE
from bubbot.features.memory.settings import Scope
from bubbot.features.memory.shared_zone import AnyZone, SharedZones
from bubbot.features.memory.views import DailyNote, MemorySnapshot, format_memory_page
from bubbot.features.memory.zone import MemoryZone, format_versions
from bubbot.identity import is_id
from bubbot.ports.command import Argument, CommandContext, CommandGroup, CommandResult, ShellInput, command, read_as_of
from bubbot.ports.tool import ToolArgs
from bubbot.texts import Texts

EXIT_NO_CHANGE = 1


def parse_entry_id(text: str) -> int:
    """Parse the id of an entry. Raise `ValueError`."""
    if not text.isdecimal() or not 1 <= int(text) <= 10**15:
        raise ValueError(f"{text!r} is not the number of an entry")
    return int(text)


class Owner(ToolArgs):
    """Whose memory: that of a session, of a person, or of the workspace."""

    session: Annotated[str | None, Argument("a session such as default or telegram:42")] = None
    user: Annotated[
        str | None, Argument("the person with this account, such as telegram:42, instead of a session", "CHANNEL:ID")
    ] = None
    workspace: Annotated[bool, Argument("the memory of everybody who may speak, instead of a session")] = False
    positional: ClassVar[tuple[str, ...]] = ("session",)


def parse_version(text: str) -> int:
    """Parse the number of a version. Raise `ValueError`."""
    if not text.isdecimal() or not 1 <= int(text) <= 10**15:
        raise ValueError(f"{text!r} is not the number of a version")
    return int(text)


class OwnerAndWord(Owner):
    """Whose memory, and a word more, which stands alone after `--user` and `--workspace`.

    Attributes:
        word_name: the field of the word.
    """

    word_name: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _take_word(cls, values: Any) -> Any:
        """Take the first word as what it is, if it cannot be a session."""
        is_shared = isinstance(values, Mapping) and (values.get("user") is not None or values.get("workspace"))
        if not is_shared or values.get(cls.word_name) is not None:
            return values
        return {**values, cls.word_name: values.get("session"), "session": None}

    @model_validator(mode="after")
    def _require_word(self) -> Self:
        """Raise `ValueError` without the word: a text left out must not count as an empty one."""
        if getattr(self, self.word_name) is None:
            raise ValueError(f"the {self.word_name} is missing")
        return self


class SaveMemory(OwnerAndWord):
    """The complete new long-term memory."""

    text: Annotated[str | None, Argument("the whole new text; - reads it from standard input")] = None
    yes: Annotated[bool, Argument("do not ask before lines go")] = False
    positional: ClassVar[tuple[str, ...]] = ("session", "text")
    word_name: ClassVar[str] = "text"


class ForgetMemory(OwnerAndWord):
    """The lines to forget."""

    text: Annotated[str | None, Argument("what the lines contain; upper and lower case are the same")] = None
    positional: ClassVar[tuple[str, ...]] = ("session", "text")
    word_name: ClassVar[str] = "text"


class RestoreMemory(OwnerAndWord):
    """The version to bring back."""

    version: Annotated[int | None, Argument("its number, as show lists them", parse=parse_version)] = None
    positional: ClassVar[tuple[str, ...]] = ("session", "version")
    word_name: ClassVar[str] = "version"


class ShowMemory(Owner):
    """Which memory, and of when."""

    as_of: Annotated[
        int | None, Argument("what was remembered when N was the newest entry of the tape", "N", parse_entry_id)
    ] = None  # fmt: skip


class ExportMemory(Owner):
    """Where to write the memory."""

    file: Annotated[str | None, Argument("a new file (default: standard output)")] = None
    positional: ClassVar[tuple[str, ...]] = ("session", "file")


class EraseMemory(ToolArgs):
    """Whose memory to erase."""

    user: Annotated[str | None, Argument("the person with this account, such as telegram:42", "CHANNEL:ID")] = None
    workspace: Annotated[bool, Argument("the memory of everybody who may speak")] = False
    yes: Annotated[bool, Argument("do not ask before")] = False


class ImportFiles(OwnerAndWord):
    """Where memory comes from."""

    path: Annotated[Path | None, Argument("a Markdown file, or a folder with MEMORY.md and YYYY-MM-DD.md")] = None
    replace: Annotated[bool, Argument("also if something is remembered already")] = False
    positional: ClassVar[tuple[str, ...]] = ("session", "path")
    word_name: ClassVar[str] = "path"


class ImportMemory(Owner):
    """The contents of the imported files.

    Attributes:
        long_term: the text of the long-term memory.
        notes: the daily notes, as date and content.
        left_out: the names of files that are not memory.
        replace: replace a memory that is not empty.
    """

    long_term: str
    notes: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...]
    replace: bool


class MemoryResult(Struct, frozen=True):
    """What a session remembers.

    Attributes:
        session: the session, as it was named; `user CHANNEL:ID` or `workspace` for other memory.
        memory: the newest version.
        versions: the numbers of the versions on the tape, in ascending order.
    """

    session: str
    memory: MemorySnapshot
    versions: tuple[int, ...]


class MemoryErased(Struct, frozen=True):
    """Memory that was erased.

    Attributes:
        owner: `user CHANNEL:ID` or `workspace`.
        entries: how many entries lost their content.
    """

    owner: str
    entries: int


class MemoryChange(Struct, frozen=True):
    """A change of what a session remembers.

    Attributes:
        session: the session, as it was named; `user CHANNEL:ID` or `workspace` for other memory.
        changed: false if nothing changed.
        memory: the version that counts now.
        previous: the number of the version before; 0 if there was none.
        removed: lines that are no longer there.
        left_out: names of files that are not memory, of an import.
    """

    session: str
    changed: bool
    memory: MemorySnapshot
    previous: int
    removed: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


@asynccontextmanager
async def _open_session_memory(
    context: CommandContext, session: str, *, write: bool, create: bool, as_of: int | None
) -> AsyncIterator[MemoryZone]:
    """Open the memory of a session, to read as it was `as_of` an entry.

    To `write`, keep other writers away; `create` makes a missing session.
    """
    async with context.open_session(
        session, write=write, create=create, usage="remembered from", subject="memory"
    ) as current:
        tape = await read_as_of(current, as_of)
        days = context.settings.settings.retention_days
        yield MemoryZone(tape, now=context.now, zone=context.zone, retention_days=days)


@asynccontextmanager
async def _open_memory(
    context: CommandContext, args: Owner, *, write: bool = False, create: bool = False, as_of: int | None = None
) -> AsyncIterator[tuple[str, AnyZone]]:
    """Open a memory; yield its label and the memory (see `_open_session_memory`).

    Raises:
        ConfigError: not exactly one is named, or the change is too large.
    """
    if sum((args.session is not None, args.user is not None, args.workspace)) != 1:
        raise ConfigError("name a session such as default, or --user CHANNEL:ID, or --workspace")
    try:
        if args.session is not None:
            async with _open_session_memory(context, args.session, write=write, create=create, as_of=as_of) as own:
                yield args.session, own
            return
        if as_of is not None:
            raise ConfigError("--as-of is for the memory of a session")
        label, scope, tapes = await _find_shared(context, args.user)
        days = context.settings.settings.retention_days
        yield label, await _shared_zones(context).open_outside(tapes, scope, zone=context.zone, retention_days=days)
    except MemoryTooLarge as error:
        raise ConfigError(str(error)) from error


def _shared_zones(context: CommandContext) -> SharedZones:
    """Return the running bot's own shared memory, so that a change takes effect at once, or that of the home."""
    accounts = context.settings.find_accounts(context.open_tape)
    return context.service(SharedZones) or SharedZones(context.open_tape, context.now, accounts)


async def _find_shared(context: CommandContext, user: str | None) -> tuple[str, Scope, tuple[str, ...]]:
    """Find the tapes of a person, or of the workspace without one. Raise `ConfigError` if no account is named so."""
    if user is None:
        return "workspace", Scope.WORKSPACE, (WORKSPACE_TAPE,)
    channel, _, number = user.rpartition(":")
    if not channel or not is_id(number):
        raise ConfigError(f"{user!r} is not an account: write CHANNEL:ID with the numeric id, such as telegram:42")
    return f"user {user}", Scope.USER, await _shared_zones(context).find_user_tapes((channel, number))


@command("memory show", example="memory show default", result=MemoryResult)
async def show(context: CommandContext, args: ShowMemory) -> CommandResult:
    """Print what is remembered, and which versions there are."""
    async with _open_memory(context, args, as_of=args.as_of) as (label, zone):
        snapshot = await zone.read()
        versions = {fact.version for fact in await zone.versions()}
    text = format_memory_page(snapshot)
    if versions:
        text += f"\nOn the tape: {format_versions(versions, Texts())}."
        text += f" `bubbot memory restore {_reference(args)} N` brings one back.\n"
    return CommandResult(text, data=to_builtins(MemoryResult(label, snapshot, tuple(sorted(versions)))))


@command("memory export", example="memory export default memory.md")
async def export(context: CommandContext, args: ExportMemory) -> CommandResult:
    """Write what is remembered as Markdown."""
    async with _open_memory(context, args) as (_, zone):
        return CommandResult(format_memory_page(await zone.read()), raw=True, file=args.file)


def _reference(args: Owner) -> str:
    """Write the words that name a memory in a command."""
    if args.session is not None:
        return args.session
    return "--workspace" if args.user is None else f"--user {args.user}"


def _owner_name(args: EraseMemory) -> str:
    return "the workspace" if args.user is None else f"the person with the account {args.user}"


async def _ask_erasure(context: CommandContext, args: EraseMemory) -> CommandResult:
    """Say what goes."""
    if (args.user is None) is not args.workspace:
        return CommandResult("")  # the command itself refuses
    return CommandResult(f"Erase all memory of {_owner_name(args)}, with its older versions?")


@command(
    "memory erase", example="memory erase --user telegram:42", writes=True, question=_ask_erasure, result=MemoryErased
)
async def erase(context: CommandContext, args: EraseMemory) -> CommandResult:
    """Erase the memory of a person or of the workspace for good, with its older versions."""
    if (args.user is None) is not args.workspace:
        raise ConfigError("name --user CHANNEL:ID or --workspace; ,reset erase erases a chat with its memory")
    label, _, tapes = await _find_shared(context, args.user)
    erased = await _shared_zones(context).erase(tapes)
    text = f"Erased all memory of {_owner_name(args)}: {erased} {'entry' if erased == 1 else 'entries'}."
    note = " What was said in chats stays on their tapes." if erased else ""
    code = 0 if erased else EXIT_NO_CHANGE
    return CommandResult(f"{text}{note}\n", code, data=to_builtins(MemoryErased(label, erased)))


def read_saved_text(args: SaveMemory, files: ShellInput) -> SaveMemory:
    """Take the text from the command line or standard input. Raise `ConfigError` if it cannot be saved."""
    typed = args.text or ""
    raw = files.read_stdin(FILE_LIMIT) if typed == "-" else typed.encode("utf-8", "surrogateescape")
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"the text is not UTF-8 (byte {error.start + 1}); nothing was saved") from error
    if not text.strip():
        raise ConfigError("the text is empty; bubbot memory forget removes lines")
    return args.model_copy(update={"text": text})


async def _ask_loss(context: CommandContext, args: SaveMemory) -> CommandResult:
    """Say which lines go."""
    try:
        async with _open_memory(context, args) as (_, zone):
            lost = find_lost_lines((await zone.read()).long_term, args.text or "")
    except EntryNotFound:
        lost = []
    if not lost:
        return CommandResult("")
    lines = "\n".join(f"- {line.strip()}" for line in lost)
    return CommandResult(f"These lines go:\n{lines}\nReplace the memory?")


@command(
    "memory save",
    example="memory save default 'Likes green tea.'",
    writes=True,
    prepare=read_saved_text,
    question=_ask_loss,
    result=MemoryChange,
)
async def save(context: CommandContext, args: SaveMemory) -> CommandResult:
    """Replace the long-term memory. If lines go, it asks before."""
    async with _open_memory(context, args, write=True, create=True) as (label, zone):
        before = await zone.read()
        removed = await zone.save_long_term(args.text or "")
        after = await zone.read()
    return _change_result(before, after, args, label, removed)


def check_text(args: ForgetMemory, _files: ShellInput) -> ForgetMemory:
    """Raise `ConfigError` if every line contains the text."""
    if not (args.text or "").strip():
        raise ConfigError("the text to forget is empty; give words of the line that is to go")
    return args


@command(
    "memory forget", example="memory forget default 'green tea'", writes=True, prepare=check_text, result=MemoryChange
)
async def forget(context: CommandContext, args: ForgetMemory) -> CommandResult:
    """Remove every line that contains a text."""
    async with _open_memory(context, args, write=True) as (label, zone):
        before = await zone.read()
        removed = await zone.forget(args.text or "")
        after = await zone.read()
    if not removed:
        data = to_builtins(MemoryChange(label, changed=False, memory=after, previous=before.version))
        return CommandResult(f"No line contains {args.text!r}; nothing was removed.\n", EXIT_NO_CHANGE, data=data)
    note = "Older versions remain on the tape with these lines, and so does what was said.\n"
    return _change_result(before, after, args, label, removed, note=note)


@command("memory restore", example="memory restore default 3", writes=True, result=MemoryChange)
async def restore(context: CommandContext, args: RestoreMemory) -> CommandResult:
    """Bring an older version back as the newest."""
    async with _open_memory(context, args, write=True) as (label, zone):
        before = await zone.read()
        await zone.restore(args.version or 0)
        after = await zone.read()
    return _change_result(before, after, args, label)


def read_files(args: ImportFiles, files: ShellInput) -> ImportMemory:
    """Read the memory from the files. Raise `ConfigError` if there is none."""
    found = read_memory(args.path or Path(), files)
    if found.memory.is_empty:
        raise ConfigError(f"{args.path} holds no memory")
    return ImportMemory(
        session=args.session,
        user=args.user,
        workspace=args.workspace,
        long_term=found.memory.long_term,
        notes=tuple((note.date, note.content) for note in found.memory.dailies),
        left_out=found.left_out,
        replace=args.replace,
    )


@command(
    "memory import",
    example="memory import default my-bot/memory",
    writes=True,
    args=ImportFiles,
    prepare=read_files,
    sent=ImportMemory,
    result=MemoryChange,
)
async def import_memory(context: CommandContext, args: ImportMemory) -> CommandResult:
    """Take memory from a file or a nanobot folder."""
    notes = tuple(DailyNote(date, content) for date, content in args.notes)
    days = context.settings.settings.retention_days
    async with _open_memory(context, args, write=True, create=True) as (label, zone):
        before = await zone.read()
        if not before.is_empty and not args.replace:
            raise ConfigError(
                f"{label} remembers something already: --replace puts this in its place (the older version "
                "stays on the tape)"
            )
        await zone.import_snapshot(MemorySnapshot(long_term=args.long_term, dailies=notes))
        after = await zone.read()
        oldest, last = (zone.today() - timedelta(days=days)).isoformat(), zone.last_day()
    note = ""
    if args.left_out:
        note = f"Left out: {', '.join(args.left_out)}.\n"
    if old := [note.date for note in after.dailies if not oldest <= note.date <= last]:
        note += (
            f"{len(old)} of the {len(after.dailies)} notes are of days more than {days} days ago or ahead: "
            "they leave the newest version when the session is next opened, and stay in this one. "
            "To keep them, set retention_days under [memory] first.\n"
        )
    return _change_result(before, after, args, label, note=note, left_out=args.left_out)


def _change_result(
    before: MemorySnapshot,
    after: MemorySnapshot,
    args: Owner,
    label: str,
    removed: list[str] | None = None,
    *,
    note: str = "",
    left_out: tuple[str, ...] = (),
) -> CommandResult:
    lines = tuple(line.strip() for line in removed or ())
    data = MemoryChange(label, after.seal_id != before.seal_id, after, before.version, lines, left_out)
    text = _describe_change(before, after, label, _reference(args), removed)
    return CommandResult(text + note, data=to_builtins(data))


def _describe_change(
    before: MemorySnapshot, after: MemorySnapshot, label: str, reference: str, removed: list[str] | None = None
) -> str:
    if after.seal_id == before.seal_id:
        return f"Nothing changed: this is what version {after.version} (entry {after.seal_id}) says.\n"
    notes = f"{len(after.dailies)} daily note{'' if len(after.dailies) == 1 else 's'}"
    lines = [f"Memory of {label} is now version {after.version} (entry {after.seal_id}), with {notes}."]
    if removed:
        lines += ["No longer there:", *(f"- {line.strip()}" for line in removed)]
    if before.version and not before.is_empty:
        lines.append(f"`bubbot memory restore {reference} {before.version}` brings back what was there before.")
    return "".join(f"{line}\n" for line in lines)


MEMORY_COMMANDS = CommandGroup(
    "memory",
    (show, save, forget, restore, export, import_memory, erase),
    "Show and change the memory of a session, of a person or of the workspace. `show` and `export` are read-only and work while the bot runs. "
    "Every change is a new version; older versions stay.",
)
