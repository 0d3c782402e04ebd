"""The memory tools: every answer says what memory holds now and cites the entry."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from hashlib import sha256
from typing import Annotated, ClassVar, Literal, Protocol, TypeAlias

from pydantic import AfterValidator, Field

from bubbot.errors import EntryNotFound, MemoryTooLarge, ToolRetry
from bubbot.features.memory.block import BlockNode, ScopedMemory
from bubbot.features.memory.changes import find_lost_lines, forget_lines
from bubbot.features.memory.scopes import ZoneAccess
from bubbot.features.memory.settings import MemorySettings, Scope
from bubbot.features.memory.shared_zone import AnyZone
from bubbot.features.memory.views import MemorySnapshot, parse_day, recall
from bubbot.features.memory.zone import format_versions, missing_version_text
from bubbot.ports.arguments import write_given
from bubbot.ports.tool import (
    CLEARS_MEMORY,
    INSIDE,
    READS_PEOPLE,
    CallPlan,
    CommandHelp,
    HelpTopic,
    NoArgs,
    Tool,
    ToolArgs,
    tool,
)
from bubbot.ports.turn import Turn
from bubbot.records import dataclass
from bubbot.tape.query import Span, fold_text
from bubbot.texts import Texts

ADVISED_MAX_BYTES = 4096
SHOWN_CHARS = 2_000
"""Characters of a long-term memory that `memory.show` prints; `memory.recall` prints all."""


def _check_storable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"character {error.start} is half of a surrogate pair: it is not valid text") from error
    return text


Storable: TypeAlias = Annotated[str, AfterValidator(_check_storable)]
"""Text that a tape accepts; JSON can spell texts that it does not."""


ScopeName: TypeAlias = Literal["chat", "user", "workspace"]


class ScopedArgs(ToolArgs):
    """The memory that a tool works on."""

    scope: ScopeName = Field(
        "chat",
        description="Whose: chat, user (this person, in direct chats), workspace (everybody)",
    )


class ReadMemoryArgs(ToolArgs):
    """The memory that a tool reads."""

    scope: Literal["", "chat", "user", "workspace"] = Field(
        "", description="Whose, as for memory.save; empty: all that may be shown here"
    )


class SaveArgs(ScopedArgs):
    """Arguments of `memory.save`."""

    content: Storable = Field(description="The whole long-term text: every line that still holds, and what is new")
    confirm: bool = Field(default=False, description="True only once the person has agreed to the lines that go")
    positional: ClassVar[tuple[str, ...]] = ("content",)


class RememberArgs(ScopedArgs):
    """Arguments of `memory.remember`."""

    text: Storable = Field(description="What to remember, besides what is remembered already")
    positional: ClassVar[tuple[str, ...]] = ("text",)


class DailyArgs(ScopedArgs):
    """Arguments of `memory.daily`."""

    content: Storable = Field(description="What to add to the notes of the day")
    date: str | None = Field(None, description="The day as YYYY-MM-DD; default: today")
    positional: ClassVar[tuple[str, ...]] = ("content",)


class RecallArgs(ReadMemoryArgs):
    """Arguments of `memory.recall`."""

    query: str = Field(
        "", description="Words to look for, in any order, spelling mistakes forgiven, or a date; everything if empty"
    )
    days: int = Field(7, ge=0, le=36_500, description="How many days before today to look through")
    positional: ClassVar[tuple[str, ...]] = ("query",)


class ForgetArgs(ScopedArgs):
    """Arguments of `memory.forget`."""

    text: str = Field(description="Every line of memory that contains this text goes")
    positional: ClassVar[tuple[str, ...]] = ("text",)


class RestoreArgs(ScopedArgs):
    """Arguments of `memory.restore`."""

    version: int = Field(description="The number of the version to bring back, as memory.show lists them")
    positional: ClassVar[tuple[str, ...]] = ("version",)


class ClearArgs(ScopedArgs):
    """Arguments of `memory.clear`."""

    confirm: bool = Field(default=False, description="True only once the person has agreed to what goes")
    positional: ClassVar[tuple[str, ...]] = ("confirm",)


@dataclass(frozen=True, slots=True)
class PlannedBlock:
    """The memory block of a turn's next request, and what it rests on.

    Attributes:
        memories: what the turn may see, by scope.
        nodes: what of it is shown, and what is left out.
        access: why the turn sees no more.
        limit: characters that it may have.
    """

    memories: tuple[ScopedMemory, ...]
    nodes: tuple[BlockNode, ...]
    access: ZoneAccess
    limit: int


class OpensMemory(Protocol):
    """The memories of a bot, as the tools use them.

    Attributes:
        settings: the current settings.
    """

    settings: MemorySettings

    def choose(self, turn: Turn) -> ZoneAccess:
        """Decide which memory a turn may see and change."""
        ...

    async def open_scope(self, turn: Turn, scope: Scope) -> AnyZone:
        """Open a memory that the turn has access to."""
        ...

    async def plan(self, turn: Turn) -> PlannedBlock:
        """Choose what the model is shown of the memory that the turn may see."""
        ...


def memory_tools(memory: OpensMemory) -> list[Tool]:
    """Build the tools for the memories that a turn has access to."""
    return [
        _make_remember(memory),
        _make_save(memory),
        _make_daily(memory),
        _make_recall(memory),
        _make_show(memory),
        _make_forget(memory),
        _make_restore(memory),
        _make_clear(memory),
        _make_why(memory),
    ]


async def _plan_loss(
    memory: OpensMemory, turn: Turn, args: ScopedArgs, find_lost: Callable[[MemorySnapshot], Sequence[str]]
) -> CallPlan:
    """Say which lines a call would take away; one that takes none only adds."""
    lost = find_lost(await (await _open_to_write(memory, turn, args.scope)).read())
    details = write_given(args, indent=2)
    if not lost:
        return CallPlan(INSIDE, details)
    lines = _bullet_list(lost)
    state = sha256(lines.encode()).hexdigest()
    return CallPlan(CLEARS_MEMORY, f"{details}\n{turn.texts.say('memory_goes')}\n{lines}", state=state)


def _alert_loss(turn: Turn, scope: Scope, before: MemorySnapshot, lost: Sequence[str]) -> None:
    """Tell people that lines went, whatever the model says of it."""
    if lost:
        way_back = _undo_hint(scope, before, turn.texts)
        zone = _zone_name(scope, turn.texts)
        turn.alert(turn.texts.say("memory_alert", count=len(lost), zone=zone, way_back=way_back))


def _list_lines(memory: MemorySnapshot) -> list[str]:
    texts = [memory.long_term, *(note.content for note in memory.dailies)]
    return [line for text in texts for line in text.splitlines() if line.strip()]


async def _open_to_write(memory: OpensMemory, turn: Turn, name: ScopeName) -> AnyZone:
    """Open the memory that a tool changes. Raise `ToolRetry` with the reason if this turn may not."""
    scope = Scope(name)
    if denial := memory.choose(turn).unwritten.get(scope):
        raise ToolRetry(turn.result_texts.say(f"zone_unwritten_{denial}", zone=_zone_name(scope, turn.result_texts)))
    return await memory.open_scope(turn, scope)


async def _open_to_read(memory: OpensMemory, turn: Turn, name: str) -> list[tuple[Scope, AnyZone]]:
    """Open the memories that a tool reads: one, or all that may be shown. Raise `ToolRetry` if it may not be shown."""
    access = memory.choose(turn)
    if name and (denial := access.unread.get(Scope(name))):
        raise ToolRetry(turn.result_texts.say(f"zone_unread_{denial}", zone=_zone_name(Scope(name), turn.result_texts)))
    scopes = [Scope(name)] if name else [scope for scope in memory.settings.scopes if scope in access.reads]
    zones = [(scope, await memory.open_scope(turn, scope)) for scope in scopes]
    if name:
        return zones
    return [(scope, zone) for scope, zone in zones if scope is Scope.CHAT or not (await zone.read()).is_empty]


def _make_remember(memory: OpensMemory) -> Tool:
    @tool(
        "memory.remember",
        effect=INSIDE,
        commands=("remember",),
        for_model=False,
        help=CommandHelp(
            HelpTopic.MEMORY,
            "Remember something for good",
            (",remember Ann is allergic to nuts.", ',remember scope=user text="I like short answers."'),
            in_menu=True,
        ),
    )
    async def remember(turn: Turn, args: RememberArgs) -> str:
        """Add lines to the long-term memory; what is there stays."""
        if not args.text.strip():
            raise ToolRetry(turn.result_texts.say("save_empty"))
        scope, zone = Scope(args.scope), await _open_to_write(memory, turn, args.scope)
        before = await zone.read()
        with _report_limits(turn):
            await zone.save_long_term(f"{before.long_term}\n{args.text.strip()}")
        return turn.texts.say("memory_saved", version=_name_version(scope, await zone.read(), turn.texts))

    return remember


def _make_save(memory: OpensMemory) -> Tool:
    async def plan(turn: Turn, args: SaveArgs) -> CallPlan:
        return await _plan_loss(memory, turn, args, lambda before: find_lost_lines(before.long_term, args.content))

    @tool(
        "memory.save",
        effect=INSIDE,
        plan=plan,
        help=CommandHelp(
            HelpTopic.MEMORY,
            "Replace what I remember",
            (",memory.save Ann is allergic to nuts.", ",memory.save scope=user I like short answers."),
        ),
    )
    async def save(turn: Turn, args: SaveArgs) -> str:
        """Replace the long-term memory of this chat: lasting preferences and facts. Lines you leave out are lost."""
        if not args.content.strip():
            raise ToolRetry(turn.result_texts.say("save_empty"))
        scope, zone = Scope(args.scope), await _open_to_write(memory, turn, args.scope)
        before = await zone.read()
        going = find_lost_lines(before.long_term, args.content)
        if going and turn.runs_command and not args.confirm:  # of a model, a card asks
            option = f"{_scope_option(scope)} confirm=true"
            return turn.texts.say("memory_would_go", lines=_bullet_list(going), option=option)
        with _report_limits(turn):
            lost = await zone.save_long_term(args.content)
        after = await zone.read()
        if after.seal_id == before.seal_id:
            return turn.texts.say("memory_same", cited=_cite(scope, after, turn.texts))
        answer = turn.texts.say("memory_saved", version=_name_version(scope, after, turn.texts))
        _alert_loss(turn, scope, before, lost)
        if lost:
            answer += turn.texts.say("memory_lost", lines=_bullet_list(lost))
            answer += turn.texts.say("memory_lost_hint", way_back=_undo_hint(scope, before, turn.texts))
        if (size := len(after.long_term.encode())) > ADVISED_MAX_BYTES:
            answer += turn.texts.say("memory_large", size=size, advised=ADVISED_MAX_BYTES)
        return answer

    return save


def _make_daily(memory: OpensMemory) -> Tool:
    @tool(
        "memory.daily",
        effect=INSIDE,
        help=CommandHelp(
            HelpTopic.MEMORY,
            "Add to a day's notes",
            (",memory.daily Paid the rent.", ',memory.daily date=2026-11-20 content="Ann called."'),
        ),
    )
    async def daily(turn: Turn, args: DailyArgs) -> str:
        """Add to the notes of a day, today by default: what was done, decided or left open."""
        if not args.content.strip():
            raise ToolRetry(turn.result_texts.say("note_empty"))
        retention_days = memory.settings.retention_days
        scope, zone = Scope(args.scope), await _open_to_write(memory, turn, args.scope)
        day = parse_day(args.date) if args.date else zone.today().isoformat()
        if day is None:
            raise ToolRetry(turn.result_texts.say("note_no_date", text=args.date))
        if day > zone.last_day():
            raise ToolRetry(turn.result_texts.say("note_too_far", day=day, number=retention_days))
        with _report_limits(turn):
            await zone.append_daily(args.content, day)
        after = await zone.read()
        answer = turn.texts.say("note_added", day=day, version=_name_version(scope, after, turn.texts))
        if day < (zone.today() - timedelta(days=retention_days)).isoformat():
            answer += turn.texts.say("note_goes", count=retention_days)
        content = next((note.content for note in after.dailies if note.date == day), "")
        if (size := len(content.encode())) > ADVISED_MAX_BYTES:
            answer += turn.texts.say("note_large", size=size, advised=ADVISED_MAX_BYTES)
        return answer

    return daily


def _make_recall(memory: OpensMemory) -> Tool:
    @tool(
        "memory.recall",
        effect=READS_PEOPLE,
        help=CommandHelp(
            HelpTopic.MEMORY, "Search memory and recent notes", (",memory.recall", ",memory.recall allergic")
        ),
    )
    async def recall_tool(turn: Turn, args: RecallArgs) -> str:
        """Search long-term memory and the notes of the last days; without a query it gives all of them."""
        zones = await _open_to_read(memory, turn, args.scope)
        if len(zones) > 1:  # a memory without an answer is worth a line only if it is the only one
            snapshots = [(scope, zone, await zone.read()) for scope, zone in zones]
            found = [
                (scope, zone)
                for scope, zone, snapshot in snapshots
                if recall(snapshot, since=zone.today() - timedelta(days=args.days), query=args.query)
            ]
            zones = found or zones[:1]
        return "\n\n".join([await _recall_from(turn, scope, zone, args) for scope, zone in zones])

    return recall_tool


async def _recall_from(turn: Turn, scope: Scope, zone: AnyZone, args: RecallArgs) -> str:
    snapshot, texts = await zone.read(), turn.result_texts
    cited = _cite(scope, snapshot, texts)
    if snapshot.is_empty:
        return texts.say("recall_empty", cited=cited)
    since = zone.today() - timedelta(days=args.days)
    passages = recall(snapshot, since=since, query=args.query)
    older = sum(note.date < since.isoformat() for note in snapshot.dailies)
    if passages:
        titles = [texts.say("recall_note", day=day) if day else texts.say("recall_long_term") for day, _ in passages]
        answer = texts.say("recall_found", cited=cited, since=since)
        answer += "".join(f"\n\n{title}\n{text}" for title, (_, text) in zip(titles, passages, strict=True))
    else:
        condition = texts.say("recall_condition", query=args.query) if args.query.strip() else ""
        answer = texts.say("recall_nothing", condition=condition, cited=cited, since=since)
    if older:
        oldest = (zone.today() - date.fromisoformat(snapshot.dailies[0].date)).days
        answer += texts.say("recall_older", days=texts.say("days", count=older), oldest=oldest)
    return answer


def _make_show(memory: OpensMemory) -> Tool:
    @tool(
        "memory.show",
        effect=READS_PEOPLE,
        is_rare=True,
        commands=("memory",),
        help=CommandHelp(HelpTopic.MEMORY, "What I remember here", (",memory", ",memory scope=user"), in_menu=True),
    )
    async def show(turn: Turn, args: ReadMemoryArgs) -> str:
        """Show what memory holds: its long-term text, the days it has notes of, and the versions on the tape."""
        zones = await _open_to_read(memory, turn, args.scope)
        parts = [await _describe_zone(turn, scope, zone, memory.settings) for scope, zone in zones]
        return "\n".join([*parts, turn.texts.say("memory_recall")])

    return show


async def _describe_zone(turn: Turn, scope: Scope, zone: AnyZone, settings: MemorySettings) -> str:
    texts, snapshot = turn.texts, await zone.read()
    versions = {entry.version for entry in await zone.versions()}
    lines = [texts.say("memory_shown", cited=_cite(scope, snapshot, texts))]
    lines += [texts.say("memory_long_term", size=_describe_size(snapshot.long_term, texts))]
    text = snapshot.long_term.strip()
    lines += [text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"] if text else []
    dates = ", ".join(note.date for note in snapshot.dailies)
    notes = "\n".join(note.content for note in snapshot.dailies)
    days = texts.say("days", count=len(snapshot.dailies))
    days = texts.say("days_listed", days=days, listed=dates) if dates else days
    lines += [texts.say("memory_notes", days=days, size=_describe_size(notes, texts))]
    kept = texts.say("memory_kept", count=settings.retention_days)
    lines += [texts.say("memory_reach", count=settings.recent_days, kept=kept)]
    if versions:
        lines += [texts.say("memory_versions", versions=format_versions(versions, texts), scope=_scope_option(scope))]
    return "\n".join(lines)


def _make_forget(memory: OpensMemory) -> Tool:
    async def plan(turn: Turn, args: ForgetArgs) -> CallPlan:
        needle = fold_text(args.text).strip()
        return await _plan_loss(
            memory, turn, args, lambda before: forget_lines(before, needle, "")[1] if needle else ()
        )

    @tool(
        "memory.forget",
        effect=INSIDE,
        plan=plan,
        commands=("memory.forget", "forget"),
        help=CommandHelp(
            HelpTopic.MEMORY,
            "Forget every line with a text",
            (",memory.forget nuts", ",memory.forget allergic to"),
        ),
    )
    async def forget(turn: Turn, args: ForgetArgs) -> str:
        """Remove every line of long-term memory and of the daily notes that contains a text."""
        if not fold_text(args.text).strip():
            raise ToolRetry(turn.result_texts.say("forget_empty"))
        scope, zone = Scope(args.scope), await _open_to_write(memory, turn, args.scope)
        before = await zone.read()
        removed = await zone.forget(args.text)
        after = await zone.read()
        if not removed:
            hint = turn.texts.say("forget_by_line") if "\n" in args.text.strip() else ""
            for other in await _find_scopes_with(memory, turn, args.text):
                zone_name = _zone_name(other, turn.texts)
                hint += turn.texts.say("forget_elsewhere", zone=zone_name, scope=_scope_option(other))
            cited = _cite(scope, after, turn.texts)
            return turn.texts.say("forgot_nothing", text=repr(args.text), cited=cited) + hint
        _alert_loss(turn, scope, before, removed)
        return turn.texts.say(
            "forgot",
            count=len(removed),
            version=_name_version(scope, after, turn.texts),
            lines=_bullet_list(removed),
            way_back=_undo_hint(scope, before, turn.texts),
        )

    return forget


async def _find_scopes_with(memory: OpensMemory, turn: Turn, text: str) -> list[Scope]:
    """Find the memories that this turn may change and that have a line with a text."""
    needle, writes = fold_text(text).strip(), memory.choose(turn).writes
    zones = [(scope, await zone.read()) for scope, zone in await _open_to_read(memory, turn, "") if scope in writes]
    return [scope for scope, snapshot in zones if forget_lines(snapshot, needle, "")[1]]


def _make_restore(memory: OpensMemory) -> Tool:
    async def plan(turn: Turn, args: RestoreArgs) -> CallPlan:
        return await _plan_loss(memory, turn, args, _list_lines)  # any of them may be missing in the older version

    @tool(
        "memory.restore",
        effect=INSIDE,
        plan=plan,
        is_rare=True,
        help=CommandHelp(
            HelpTopic.MEMORY,
            "Bring back an older memory",
            (",memory.restore 3", ",memory.restore version=3"),
            words=("undo",),
        ),
    )
    async def restore(turn: Turn, args: RestoreArgs) -> str:
        """Bring an older version of memory back as the newest one."""
        scope, zone = Scope(args.scope), await _open_to_write(memory, turn, args.scope)
        before = await zone.read()
        try:
            with _report_limits(turn):
                await zone.restore(args.version)
        except EntryNotFound as error:
            others = {item.version for item in await zone.versions()} - {args.version}
            raise ToolRetry(missing_version_text(args.version, others, turn.result_texts)) from error
        after = await zone.read()
        if after.seal_id == before.seal_id:
            return turn.texts.say("restored_same", number=args.version, cited=_cite(scope, after, turn.texts))
        version, way_back = _name_version(scope, after, turn.texts), _undo_hint(scope, before, turn.texts)
        kept = {line.strip() for line in _list_lines(after)}
        _alert_loss(turn, scope, before, [line for line in _list_lines(before) if line.strip() not in kept])
        return turn.texts.say("restored", number=args.version, version=version, way_back=way_back)

    return restore


async def _plan_clear(_turn: Turn, args: ClearArgs) -> CallPlan:
    """Say whether a call clears anything: without `confirm` it only tells what would go."""
    details = write_given(args, indent=2)
    return CallPlan(CLEARS_MEMORY if args.confirm else READS_PEOPLE, details)


def _make_clear(memory: OpensMemory) -> Tool:
    @tool(
        "memory.clear",
        effect=CLEARS_MEMORY,
        plan=_plan_clear,
        is_rare=True,
        help=CommandHelp(HelpTopic.MEMORY, "Forget everything", (",memory.clear", ",memory.clear confirm=true")),
    )
    async def clear(turn: Turn, args: ClearArgs) -> str:
        """Empty the memory. Call it without confirm first: it shows what would be removed, and the person has to agree."""
        scope, zone, texts = Scope(args.scope), await _open_to_write(memory, turn, args.scope), turn.texts
        before = await zone.read()
        if before.is_empty:
            return texts.say("cleared_already", cited=_cite(scope, before, texts))
        days = texts.say("days", count=len(before.dailies))
        content = texts.say("memory_holds", size=_describe_size(before.long_term, texts), days=days)
        if not args.confirm:
            return texts.say("clear_asks", cited=_cite(scope, before, texts), what=content, scope=_scope_option(scope))
        await zone.clear()
        after = await zone.read()
        _alert_loss(turn, scope, before, _list_lines(before))
        way_back = _undo_hint(scope, before, texts)
        return texts.say("cleared", version=_name_version(scope, after, texts), what=content, way_back=way_back)

    return clear


def _make_why(memory: OpensMemory) -> Tool:
    @tool(
        "memory.why",
        effect=READS_PEOPLE,
        for_model=False,
        help=CommandHelp(HelpTopic.MEMORY, "What of it the model is shown", (",memory.why",)),
    )
    async def why(turn: Turn, args: NoArgs) -> str:
        """Say what of memory the model is shown here, from which entries, and what is left out and why."""
        planned, texts = await memory.plan(turn), turn.texts
        shown = [node for node in planned.nodes if node.text]
        lines = [texts.say("why_memory", number=sum(len(node.text) for node in shown), limit=planned.limit)]
        cited = {each.scope: _cite(each.scope, each.memory, texts) for each in planned.memories}
        for node in shown:
            count = texts.say("lines", count=len(node.text.splitlines()))
            lines.append(texts.say("why_node", part=_name_part(node, texts), lines=count, cited=cited[node.scope]))
            if node.left_out:
                lines.append(texts.say("why_cut_node", part=_name_part(node, texts), number=node.total))
        if not shown:
            lines.append(texts.say("why_no_node"))
        for node in [node for node in planned.nodes if not node.text]:
            reason = texts.say(f"why_left_{node.left_out}", count=memory.settings.recent_days)
            lines.append(texts.say("why_left_out", part=_name_part(node, texts), reason=reason))
        for scope, denial in planned.access.unread.items():
            lines.append(
                texts.say("why_unread", denial=texts.say(f"zone_unread_{denial}", zone=_zone_name(scope, texts)))
            )
        for each in planned.memories:
            if each.scope is not Scope.CHAT:
                lines += [
                    texts.say("why_entries", tape=tape, spans=_write_spans(spans))
                    for tape, spans in each.entries.items()
                ]
        return "\n".join(lines)

    return why


def _write_spans(spans: Sequence[Span]) -> str:
    return ", ".join(f"#{low}" if low == high else f"#{low}-{high}" for low, high in spans)


def _name_part(node: BlockNode, texts: Texts) -> str:
    """Name a part of one memory, with the days of its notes."""
    part = texts.say(f"part_{node.part}", zone=_zone_name(node.scope, texts))
    return texts.say("part_days", part=part, days=", ".join(node.days)) if node.days else part


def _zone_name(scope: Scope, texts: Texts) -> str:
    return texts.say(f"zone_{scope}")


@contextmanager
def _report_limits(turn: Turn) -> Iterator[None]:
    """Turn `MemoryTooLarge` into a `ToolRetry` in the language of the chat."""
    try:
        yield
    except MemoryTooLarge as error:
        names = {"long_term": "too_large_long_term", "all": "too_large_all"}
        part = turn.texts.say(names.get(error.part, "too_large_note"), day=error.part)
        raise ToolRetry(turn.texts.say("memory_too_large", what=part, size=error.size, limit=error.limit)) from error


def _cite(scope: Scope, snapshot: MemorySnapshot, texts: Texts) -> str:
    """Name the version and its entry, for use in brackets."""
    if scope is not Scope.CHAT:
        zone = _zone_name(scope, texts)
        return texts.say("cited_zone", zone=zone, number=snapshot.version) if snapshot.seal_id else zone
    if not snapshot.seal_id:
        return texts.say("no_version")
    if not snapshot.version:
        return texts.say("cited_entry", entry=snapshot.seal_id)
    return texts.say("cited_version", number=snapshot.version, entry=snapshot.seal_id)


def _name_version(scope: Scope, snapshot: MemorySnapshot, texts: Texts) -> str:
    """Name a new version, for use in a sentence; that of a shared memory gets its number when the turn is merged."""
    if scope is not Scope.CHAT:
        return texts.say("new_zone_version", zone=_zone_name(scope, texts))
    return texts.say("new_version", number=snapshot.version, entry=snapshot.seal_id)


def _undo_hint(scope: Scope, before: MemorySnapshot, texts: Texts) -> str:
    """Say how to undo, as the end of a sentence; return an empty text if there is nothing to bring back."""
    if before.is_empty or not before.version:
        return ""
    return texts.say("way_back", number=before.version, scope=_scope_option(scope))


def _scope_option(scope: Scope) -> str:
    """Write the option of a command that names a scope; nothing for the usual one."""
    return "" if scope is Scope.CHAT else f" scope={scope}"


def _bullet_list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line.strip()}" for line in lines)


def _describe_size(text: str, texts: Texts) -> str:
    if not text:
        return texts.say("nothing")
    return texts.say("bytes", count=len(text.encode()), lines=texts.say("lines", count=len(text.splitlines())))
