"""The commands of memory, of chats, models and shells."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec.structs import replace as replace_fields

from bubbot.arguments.fields import NoArguments, write_given
from bubbot.command import Caller, command, make_group, make_tools
from bubbot.errors import (
    CommandRefused,
    ConfigError,
    ConfirmationNeeded,
    EntryNotFound,
    MemoryTooLarge,
    UsageError,
    ValueInvalid,
)
from bubbot.features.memory.arguments import (
    ClearArgs,
    DailyArgs,
    EraseArgs,
    ExportMemoryArgs,
    ForgetLinesArgs,
    ForgetOwnerArgs,
    ImportArgs,
    ImportFilesArgs,
    OwnerArgs,
    ReadMemoryArgs,
    RecallArgs,
    RememberArgs,
    RestoreArgs,
    RestoreOwnerArgs,
    SaveArgs,
    SaveOwnerArgs,
    ScopedArgs,
    ShowOwnerArgs,
    ViewArgs,
    WhyViewArgs,
    parse_version,
)
from bubbot.features.memory.changes import find_lost_lines, forget_lines, list_lines
from bubbot.features.memory.explained import MemoryViewInUse, MemoryWhy, explain_memory
from bubbot.features.memory.facts import ViewChosen
from bubbot.features.memory.files import FILE_LIMIT, read_memory
from bubbot.features.memory.memories import Memories
from bubbot.features.memory.opening import (
    MemoryOpener,
    OpenMemory,
    find_shared,
    label_of,
    plan_outside,
    shared_zones,
)
from bubbot.features.memory.policy import DEFAULT, ChosenView, choose_policy, list_views
from bubbot.features.memory.results import (
    MemoriesRecalled,
    MemoryChange,
    MemoryChanged,
    MemoryErased,
    MemoryPage,
    MemoryRecalled,
    MemoryResult,
    MemoryShown,
    bullet_list,
    cite,
    describe_content,
    name_owner,
    name_zone,
    scope_option,
    undo_hint,
)
from bubbot.features.memory.settings import Scope
from bubbot.features.memory.shared_zone import AnyZone
from bubbot.features.memory.views import DailyNote, MemorySnapshot, parse_day
from bubbot.features.memory.zone import missing_version
from bubbot.formatting import clean
from bubbot.ports.channel import Role
from bubbot.ports.turn import Turn
from bubbot.shell_command import ShellInput
from bubbot.tape.words import fold_text
from bubbot.tool import CLEARS_MEMORY, INSIDE, READS_PEOPLE, CallPlan, CommandHelp, HelpTopic, Tool

Act = Callable[[AnyZone], Awaitable[Sequence[str] | None]]
"""Change a memory; return the lines that went, or None if a comparison tells."""


def _help(brief: str, *examples: str, **more: Any) -> CommandHelp:
    return CommandHelp(HelpTopic.MEMORY, brief, examples, **more)


class MemoryCommands:
    """The commands, for the turns of a bot and for a shell."""

    def __init__(self, memories: Memories | None = None) -> None:
        """Build them.

        Args:
            memories: those of the running bot, for its turns; None for a shell.
        """
        self._opener = MemoryOpener(memories)

    @command(
        "memory remember",
        chat=("memory.remember", "remember"),
        in_shell=False,
        form="<text>",
        effect=INSIDE,
        help=_help(
            "Remember something for good",
            ",remember Ann is allergic to nuts.",
            ',remember scope=user text="I like short answers."',
            in_menu=True,
        ),
    )
    async def remember(self, caller: Caller, args: RememberArgs) -> MemoryChange:
        """Add lines to the long-term memory; what is there stays."""
        if not args.text.strip():
            raise CommandRefused("save_empty")

        async def add(zone: AnyZone) -> Sequence[str]:
            return await zone.save_long_term(f"{(await zone.read()).long_term}\n{args.text.strip()}")

        async with self._opener.open_to_write(caller, args) as opened:
            return await self._change(caller, opened, add, deed="remembered")

    async def _ask_save(self, caller: Caller, args: SaveArgs | SaveOwnerArgs) -> ConfirmationNeeded | None:
        """Ask before lines go."""
        content = _require_text(args.content, "save_empty")
        try:
            async with self._opener.open_to_write(caller, args, only_asks=True) as opened:
                lost = find_lost_lines((await opened.zone.read()).long_term, content)
        except EntryNotFound:  # a session that is missing has nothing to lose
            return None
        option = f"{scope_option(opened.scope)} confirm=true"
        return ConfirmationNeeded("memory_would_go", lines=bullet_list(lost), option=option) if lost else None

    @command(
        "memory save [session] [text]",
        chat=("memory.save",),
        form="<content>",
        example="default 'Likes green tea.'",
        effect=INSIDE,
        for_model=True,
        ask=_ask_save,
        help=_help(
            "Replace what I remember",
            ",memory.save Ann is allergic to nuts.",
            ",memory.save scope=user I like short answers.",
        ),
    )
    async def save(self, caller: Caller, args: SaveArgs | SaveOwnerArgs) -> MemoryChange:
        """Replace the long-term memory of this chat: lasting preferences and facts. Lines you leave out are lost."""
        content = _require_text(args.content, "save_empty")
        async with self._opener.open_to_write(caller, args, create=True) as opened:
            return await self._change(caller, opened, lambda zone: zone.save_long_term(content), deed="saved")

    @command(
        "memory daily",
        chat=("memory.daily",),
        in_shell=False,
        form="<content>",
        effect=INSIDE,
        for_model=True,
        help=_help(
            "Add to a day's notes",
            ",memory.daily Paid the rent.",
            ',memory.daily date=2026-11-20 content="Ann called."',
        ),
    )
    async def daily(self, caller: Caller, args: DailyArgs) -> MemoryChange:
        """Add to the notes of a day, today by default: what was done, decided or left open."""
        content, days = _require_text(args.content, "note_empty"), self._opener.settings(caller).retention_days
        async with self._opener.open_to_write(caller, args) as opened:
            zone = opened.zone
            day = parse_day(args.date) if args.date else zone.today().isoformat()
            if day is None:
                raise ValueInvalid("note_no_date", text=args.date)
            if day > zone.last_day():
                raise ValueInvalid("note_too_far", day=day, number=days)
            is_old = day < (zone.today() - timedelta(days=days)).isoformat()
            notes = caller.texts.say("note_goes", count=days) if is_old else ""
            add = partial(_note, content=content, day=day)
            return await self._change(caller, opened, add, deed="noted", day=day, notes=notes)

    @command(
        "memory recall",
        chat=("memory.recall",),
        in_shell=False,
        form="[query]",
        effect=READS_PEOPLE,
        for_model=True,
        help=_help("Search memory and recent notes", ",memory.recall", ",memory.recall allergic"),
    )
    async def recall(self, caller: Caller, args: RecallArgs) -> MemoriesRecalled:
        """Search long-term memory and the notes of the last days; without a query it gives all of them."""
        async with self._opener.open_to_read(caller, args) as found:
            return MemoriesRecalled(
                tuple(
                    [
                        MemoryRecalled(each.scope, await each.zone.read(), each.zone.today(), args.days, args.query)
                        for each in found
                    ]
                )
            )

    @command(
        "memory show [session]",
        chat=("memory.show", "memory"),
        example="default",
        effect=READS_PEOPLE,
        for_model=True,
        help=_help("What I remember here", ",memory", ",memory scope=user", in_menu=True),
    )
    async def show(self, caller: Caller, args: ReadMemoryArgs | ShowOwnerArgs) -> MemoryResult:
        """Show what memory holds: its long-term text, the days it has notes of, and the versions on the tape."""
        async with self._opener.open_to_read(caller, args) as found:
            further: tuple[MemoryShown, ...] = ()
            for each in reversed(found):
                versions = sorted({version.version for version in await each.zone.versions()})
                shown = MemoryShown(
                    each.label,
                    await each.zone.read(),
                    tuple(versions),
                    scope=each.scope,
                    reference=each.reference,
                    settings=self._opener.settings(caller),
                    further=further,
                )
                further = (shown, *further)
        return further[0]

    @command(
        "memory forget [session] [text]",
        chat=("memory.forget", "memory.forget", "forget"),
        form="<text>",
        example="default 'green tea'",
        effect=INSIDE,
        for_model=True,
        help=_help("Forget every line with a text", ",memory.forget nuts", ",memory.forget allergic to"),
    )
    async def forget(self, caller: Caller, args: ForgetLinesArgs | ForgetOwnerArgs) -> MemoryChange:
        """Remove every line of long-term memory and of the daily notes that contains a text."""
        text = _require_text(args.text, "forget_empty")
        async with self._opener.open_to_write(caller, args) as opened:
            result = await self._change(caller, opened, lambda zone: zone.forget(text), deed="forgot", text=text)
            if result.lost or caller.turn is None:
                return result
            hint = caller.texts.say("forget_by_line") if "\n" in text.strip() else ""
            for scope in await self._find_scopes_with(caller, text):
                zone = name_zone(scope, caller.texts)
                hint += caller.texts.say("forget_elsewhere", zone=zone, scope=scope_option(scope))
            return replace_fields(result, notes=hint)

    async def _find_scopes_with(self, caller: Caller, text: str) -> list[Scope]:
        """Find the memories that this turn may change and that have a line with a text."""
        assert self._opener.memories is not None
        needle, writes = fold_text(text).strip(), self._opener.memories.choose(caller.required_turn).writes
        async with self._opener.open_to_read(caller, ReadMemoryArgs()) as found:
            zones = [(each.scope, await each.zone.read()) for each in found if each.scope in writes]
        return [scope for scope, memory in zones if forget_lines(memory, needle, "")[1]]

    @command(
        "memory restore [session] [version]",
        chat=("memory.restore",),
        form="<version>",
        example="default 3",
        effect=INSIDE,
        for_model=True,
        help=_help("Bring back an older memory", ",memory.restore 3", ",memory.restore version=3", words=("undo",)),
    )
    async def restore(self, caller: Caller, args: RestoreArgs | RestoreOwnerArgs) -> MemoryChange:
        """Bring an older version of memory back as the newest one."""
        number = args.version or 0
        async with self._opener.open_to_write(caller, args) as opened:
            try:
                return await self._change(
                    caller, opened, lambda zone: zone.restore(number), deed="restored", number=number
                )
            except EntryNotFound as error:
                others = {version.version for version in await opened.zone.versions()} - {number}
                name, values = missing_version(number, others, caller.result_texts)
                if caller.turn is None:  # programs know the error by its kind
                    raise EntryNotFound(caller.texts.say(name, **values)) from error
                raise CommandRefused(name, **values) from error

    @command(
        "memory clear",
        chat=("memory.clear",),
        in_shell=False,
        form="[confirm]",
        effect=CLEARS_MEMORY,
        for_model=True,
        help=_help("Forget everything", ",memory.clear", ",memory.clear confirm=true"),
    )
    async def clear(self, caller: Caller, args: ClearArgs) -> MemoryChange:
        """Empty the memory. Call it without confirm first: it shows what would be removed, and the person has to agree."""
        async with self._opener.open_to_write(caller, args) as opened:
            before, texts, scope = await opened.zone.read(), caller.texts, opened.scope
            if not before.is_empty and not args.confirm:
                what, cited = describe_content(before, texts), cite(scope, before, texts)
                raise ConfirmationNeeded("clear_asks", cited=cited, what=what, scope=scope_option(scope))
            return await self._change(caller, opened, lambda zone: zone.clear(), deed="cleared")

    @command(
        "memory why [session]",
        chat=("memory.why",),
        example="default",
        effect=READS_PEOPLE,
        help=_help("What of it the model is shown", ",memory.why"),
    )
    async def why(self, caller: Caller, args: NoArguments | WhyViewArgs) -> MemoryWhy:
        """Say what of memory the model is shown here, by which view, from which entries, and what is left out and why."""
        days = self._opener.settings(caller).recent_days
        if isinstance(args, WhyViewArgs):
            assert caller.context is not None
            async with caller.context.open_session(args.session, usage="explained", subject="memory") as tape:
                planned = await plan_outside(caller, tape)
                return await explain_memory(tape, planned, recent_days=days, zone=caller.context.zone)
        turn, memories = caller.required_turn, self._require_memories()
        return await explain_memory(turn.tape, await memories.plan(turn), recent_days=days, zone=turn.zone)

    @command(
        "memory view",
        chat=("memory.view",),
        in_shell=False,
        form="[name]",
        effect=INSIDE,
        help=_help("Choose what I remember from", ",memory.view", ",memory.view family"),
    )
    async def view(self, caller: Caller, args: ViewArgs) -> MemoryViewInUse:
        """Say which memory view this chat uses, or choose another one for it."""
        turn, memories, name = caller.required_turn, self._require_memories(), args.name.strip()
        settings, installed = memories.settings, memories.sources.installed
        use = await memories.find_policy(turn.tape)
        if not name:
            shown = {
                each: ", ".join(settings.views[each].nodes) if each in settings.views else ""
                for each in list_views(settings, installed)
            }
            return MemoryViewInUse(
                variant=use.origin, name=use.wanted, applies=use.policy.name, problem=use.problem, choices=shown
            )
        if not caller.is_direct and not caller.role.at_least(Role.ADMIN):
            raise CommandRefused("view_for_admin", role=caller.role)
        chosen = "" if name == DEFAULT else name
        if chosen:
            _require_view(chosen, list_views(settings, installed))
        if chosen != await turn.tape.read(ChosenView()):
            await turn.tape.append([ViewChosen(chosen).to_entry()])
        use = choose_policy(chosen, settings, installed)
        variant = "failed" if use.problem else "changed" if chosen else "configured"
        return MemoryViewInUse(variant=variant, name=use.wanted, applies=use.policy.name, problem=use.problem)

    def _require_memories(self) -> Memories:
        assert self._opener.memories is not None
        return self._opener.memories

    @command("memory export [session] [file]", example="default memory.md", effect=READS_PEOPLE)
    async def export(self, caller: Caller, args: ExportMemoryArgs) -> MemoryPage:
        """Write what is remembered as Markdown."""
        async with self._opener.open_to_read(caller, args) as (opened,):
            return MemoryPage(await opened.zone.read(), args.file)

    @command("memory import [session] [path]", example="default my-bot/memory", effect=INSIDE)
    async def import_files(self, caller: Caller, args: ImportArgs) -> MemoryChange:
        """Take memory from a file or a nanobot folder."""
        content = MemorySnapshot(
            long_term=args.long_term, dailies=tuple(DailyNote(date, text) for date, text in args.notes)
        )
        async with self._opener.open_to_write(caller, args, create=True) as opened:
            zone = opened.zone
            if not args.replace and not (await zone.read()).is_empty:
                raise ValueInvalid("memory_not_empty", owner=opened.label)
            changed = await self._change(caller, opened, lambda zone: zone.import_snapshot(content), deed="imported")
            days = self._opener.settings(caller).retention_days
            oldest, last = (zone.today() - timedelta(days=days)).isoformat(), zone.last_day()
        notes, dailies = "", changed.memory.dailies
        if args.left_out:
            notes += "\n" + caller.texts.say("import_left_out", names=", ".join(args.left_out))
        if old := sum(not oldest <= note.date <= last for note in dailies):
            notes += "\n" + caller.texts.say("import_old_notes", number=old, total=len(dailies), days=days)
        return replace_fields(changed, left_out=args.left_out, notes=notes)

    async def _ask_erase(self, caller: Caller, args: EraseArgs) -> ConfirmationNeeded | None:
        """Ask before it is too late."""
        if (args.user is None) is not args.workspace:
            return None  # the command itself refuses
        return ConfirmationNeeded("memory_erase_asks", owner=name_owner(args.user, caller.texts))

    @command("memory erase", example="--user telegram:42", writes=True, ask=_ask_erase)
    async def erase(self, caller: Caller, args: EraseArgs) -> MemoryErased:
        """Erase the memory of a person or of the workspace for good, with its older versions."""
        if (args.user is None) is not args.workspace:
            raise ValueInvalid("memory_erase_whose")
        _, tapes = await find_shared(caller, args)
        return MemoryErased(label_of(args), await shared_zones(caller).erase(tapes))

    async def _change(self, caller: Caller, opened: OpenMemory, act: Act, **told: Any) -> MemoryChanged:
        """Change a memory, and compare it with what it was; tell people of lines that went, whatever a model says."""
        zone, texts = opened.zone, caller.texts
        before = await zone.read()
        try:
            lost = await act(zone)
        except MemoryTooLarge as error:
            names = {"long_term": "too_large_long_term", "all": "too_large_all"}
            what = caller.result_texts.say(names.get(error.part, "too_large_note"), day=error.part)
            raise ValueInvalid("memory_too_large", what=what, size=error.size, limit=error.limit) from error
        after = await zone.read()
        removed = tuple(line.strip() for line in lost or ())
        if lost is None:
            kept = {line.strip() for line in list_lines(after)}
            lost = [line for line in list_lines(before) if line.strip() not in kept]
        if lost and caller.turn is not None:
            way_back, name = undo_hint(opened.scope, before, texts), name_zone(opened.scope, texts)
            caller.turn.alert(texts.say("memory_alert", count=len(lost), zone=name, way_back=way_back))
        return MemoryChanged(
            opened.label,
            after.seal_id != before.seal_id,
            after,
            before.version,
            removed,
            scope=opened.scope,
            reference=opened.reference,
            before=before,
            lost=tuple(lost),
            **told,
        )


def _require_view(name: str, names: Sequence[str]) -> None:
    """Raise `CommandRefused`, with the nearest name, if there is no such memory view."""
    if name not in names:
        # Imported here: most names are known.
        from difflib import get_close_matches

        near = get_close_matches(name.lower(), names, n=1)
        listed = ", ".join(names)
        if near:
            raise CommandRefused("view_unknown_near", name=clean(name), near=near[0], names=listed)
        raise CommandRefused("view_unknown", name=clean(name), names=listed)


async def _note(zone: AnyZone, content: str, day: str) -> Sequence[str]:
    """Add to the note of a day, which takes nothing away."""
    await zone.append_daily(content, day)
    return ()


def _require_text(text: str | None, refusal: str) -> str:
    """Return a text that was given. Raise `ValueInvalid` if it is blank."""
    if not fold_text(text or "").strip():
        raise ValueInvalid(refusal)
    return text or ""


# What only a call of a model needs


def memory_tools(memories: Memories) -> list[Tool]:
    """Build the tools for the memories that a turn has access to."""
    opener, commands = MemoryOpener(memories), MemoryCommands(memories)

    async def plan_loss(turn: Turn, args: ScopedArgs, find_lost: Callable[[MemorySnapshot], Sequence[str]]) -> CallPlan:
        """Say which lines a call would take away; one that takes none only adds."""
        async with opener.open_to_write(Caller.of_turn(turn), args, only_asks=True) as opened:
            lost = find_lost(await opened.zone.read())
        details = write_given(args, indent=2)
        if not lost:
            return CallPlan(INSIDE, details)
        lines = bullet_list(lost)
        state = sha256(lines.encode()).hexdigest()
        return CallPlan(CLEARS_MEMORY, f"{details}\n{turn.texts.say('memory_goes')}\n{lines}", state=state)

    async def plan_save(turn: Turn, args: SaveArgs) -> CallPlan:
        return await plan_loss(turn, args, lambda before: find_lost_lines(before.long_term, args.content))

    async def plan_forget(turn: Turn, args: ForgetLinesArgs) -> CallPlan:
        needle = fold_text(args.text).strip()
        return await plan_loss(turn, args, lambda before: forget_lines(before, needle, "")[1] if needle else ())

    async def plan_restore(turn: Turn, args: RestoreArgs) -> CallPlan:
        return await plan_loss(turn, args, list_lines)  # any of them may be missing in the older version

    options: dict[str, dict[str, Any]] = {
        "memory_save": {"plan": plan_save},
        "memory_show": {"is_rare": True},
        "memory_forget": {"plan": plan_forget},
        "memory_restore": {"plan": plan_restore, "is_rare": True},
        "memory_clear": {"plan": _plan_clear, "is_rare": True},
    }
    return make_tools(MemoryCommands, lambda: commands, **options)


async def _plan_clear(_turn: Turn, args: ClearArgs) -> CallPlan:
    """Say whether a call clears anything: without `confirm` it only tells what would go."""
    details = write_given(args, indent=2)
    return CallPlan(CLEARS_MEMORY if args.confirm else READS_PEOPLE, details)


# What only a shell has


A = TypeVar("A", bound=OwnerArgs)


def _take_word(action: str, args: A, name: str, field: str = "") -> A:
    """Take the first word as what it is, if it cannot be a session.

    Args:
        action: the command after `bubbot memory`.
        args: as they were typed.
        name: the word after the session.
        field: its field, if that has another name.

    Raises:
        UsageError: the word is missing: a text left out must not count as an empty one.
    """
    field = field or name
    if getattr(args, field) is None and (args.user is not None or args.workspace):
        args = replace_fields(args, session=None, **{field: args.session})
    if getattr(args, field) is None:
        raise UsageError(f"memory {action}: the {name} is missing; see `bubbot memory {action} --help`")
    return args


def read_saved_text(args: SaveOwnerArgs, files: ShellInput) -> SaveOwnerArgs:
    """Take the text from the command line or standard input. Raise `ConfigError` if it is none."""
    args = _take_word("save", args, "text", "content")
    typed = args.content or ""
    raw = files.read_stdin(FILE_LIMIT) if typed == "-" else typed.encode("utf-8", "surrogateescape")
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"the text is not UTF-8 (byte {error.start + 1}); nothing was saved") from error
    return replace_fields(args, content=text)


def _take_text(args: ForgetOwnerArgs, _files: ShellInput) -> ForgetOwnerArgs:
    return _take_word("forget", args, "text")


def _take_version(args: RestoreOwnerArgs, _files: ShellInput) -> RestoreOwnerArgs:
    args = _take_word("restore", args, "version")
    try:
        return replace_fields(args, version=parse_version(str(args.version)))
    except ValueError as error:
        raise UsageError(f"memory restore: version: {error}; see `bubbot memory restore --help`") from error


def read_files(args: ImportFilesArgs, files: ShellInput) -> ImportArgs:
    """Read the memory from the files. Raise `ConfigError` if there is none."""
    args = _take_word("import", args, "path")
    found = read_memory(Path(args.path or ""), files)
    if found.memory.is_empty:
        raise ConfigError(f"{args.path} holds no memory")
    return ImportArgs(
        args.session,
        args.user,
        args.workspace,
        long_term=found.memory.long_term,
        notes=tuple((note.date, note.content) for note in found.memory.dailies),
        left_out=found.left_out,
        replace=args.replace,
    )


def _shell_help(text: str, **more: Any) -> dict[str, Any]:
    return {"help": f"{text[:1].lower()}{text[1:-1]}", "description": text, **more}


_OPTIONS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "show": _shell_help("Print what is remembered, and which versions there are.", is_answered_without_home=False),
        "save": _shell_help("Replace the long-term memory. If lines go, it asks before.", prepare=read_saved_text),
        "forget": _shell_help("Remove every line that contains a text.", prepare=_take_text),
        "restore": _shell_help("Bring an older version back as the newest.", prepare=_take_version),
        "why": _shell_help(
            "Print the memory view of a session, and what each of its nodes brings.", is_answered_without_home=False
        ),
        "export": {"result": None, "is_answered_without_home": False},
        "import": {"args": ImportFilesArgs, "prepare": read_files, "sent": ImportArgs},
    }
)
"""What only a shell has: most of the words for chats and models speak of one chat."""
_MADE = make_group(
    "memory",
    MemoryCommands,
    None,
    "Show and change the memory of a session, of a person or of the workspace. `show`, `why` and `export` are read-only and work while the bot runs. "
    "Every change is a new version; older versions stay.",
    (),
    help_line="show and change what a session remembers",
    section="Change",
    **_OPTIONS,
)
COMMANDS = replace(
    _MADE, commands=tuple(sorted(_MADE.commands, key=lambda each: [*_OPTIONS, "erase"].index(each.action)))
)
