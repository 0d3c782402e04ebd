"""The memory tools: every answer says what memory holds now and cites the entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field

from bubbot.errors import EntryNotFound, MemoryTooLarge, ToolRetry
from bubbot.features.memory.settings import MemorySettings
from bubbot.features.memory.views import MemorySnapshot, MemoryVersionsView, parse_day, recall
from bubbot.features.memory.zone import MemoryZone, format_versions, missing_version_text
from bubbot.ports.tool import INSIDE, READS_PEOPLE, CommandHelp, HelpTopic, NoArgs, Tool, ToolArgs, tool
from bubbot.ports.turn import Turn
from bubbot.tape.query import fold_text
from bubbot.texts import Texts

ADVISED_MAX_BYTES = 4096


def _check_storable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"character {error.start} is half of a surrogate pair: it is not valid text") from error
    return text


Storable: TypeAlias = Annotated[str, AfterValidator(_check_storable)]
"""Text that a tape accepts; JSON can spell texts that it does not."""


class SaveArgs(ToolArgs):
    """Arguments of `memory.save`."""

    content: Storable = Field(description="The whole long-term text: every line that still holds, and what is new")


class DailyArgs(ToolArgs):
    """Arguments of `memory.daily`."""

    content: Storable = Field(description="What to add to the notes of the day")
    date: str | None = Field(None, description="The day as YYYY-MM-DD; default: today")


class RecallArgs(ToolArgs):
    """Arguments of `memory.recall`."""

    query: str = Field(
        "", description="Words to look for, in any order, spelling mistakes forgiven, or a date; everything if empty"
    )
    days: int = Field(7, ge=0, le=36_500, description="How many days before today to look through")


class ForgetArgs(ToolArgs):
    """Arguments of `memory.forget`."""

    text: str = Field(description="Every line of memory that contains this text goes")


class RestoreArgs(ToolArgs):
    """Arguments of `memory.restore`."""

    version: int = Field(description="The number of the version to bring back, as memory.show lists them")


class ClearArgs(ToolArgs):
    """Arguments of `memory.clear`."""

    confirm: bool = Field(default=False, description="True only once the person has agreed to what goes")


def memory_tools(read_settings: Callable[[], MemorySettings]) -> list[Tool]:
    """Build the tools for the memory of the turn's chat, under the current settings."""
    daily, show = _make_daily(read_settings), _make_show(read_settings)
    return [_save, daily, _recall, show, _forget, _restore, _clear]


@tool(
    "memory.save",
    effect=INSIDE,
    help=CommandHelp(
        HelpTopic.MEMORY,
        "Replace what I remember",
        (",memory.save Ann is allergic to nuts.", ',memory.save content="We speak German."'),
    ),
)
async def _save(turn: Turn, args: SaveArgs) -> str:
    """Replace the long-term memory of this chat: lasting preferences and facts. Lines you leave out are lost."""
    if not args.content.strip():
        raise ToolRetry(turn.result_texts.say("save_empty"))
    zone = _open_zone(turn)
    before = await zone.read()
    with _report_limits(turn):
        lost = await zone.save_long_term(args.content)
    after = await zone.read()
    if after.seal_id == before.seal_id:
        return turn.texts.say("memory_same", cited=_cite(after, turn.texts))
    answer = turn.texts.say("memory_saved", version=_name_version(after, turn.texts))
    if lost:
        answer += turn.texts.say("memory_lost", lines=_bullet_list(lost))
        answer += turn.texts.say("memory_lost_hint", way_back=_undo_hint(before, turn.texts))
    if (size := len(after.long_term.encode())) > ADVISED_MAX_BYTES:
        answer += turn.texts.say("memory_large", size=size, advised=ADVISED_MAX_BYTES)
    return answer


def _make_daily(read_settings: Callable[[], MemorySettings]) -> Tool:
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
        retention_days = read_settings().retention_days
        zone = MemoryZone(turn.tape, now=turn.now, zone=turn.zone, retention_days=retention_days)
        day = parse_day(args.date) if args.date else zone.today().isoformat()
        if day is None:
            raise ToolRetry(turn.result_texts.say("note_no_date", text=args.date))
        if day > zone.last_day():
            raise ToolRetry(turn.result_texts.say("note_too_far", day=day, number=retention_days))
        with _report_limits(turn):
            await zone.append_daily(args.content, day)
        after = await zone.read()
        answer = turn.texts.say("note_added", day=day, version=_name_version(after, turn.texts))
        if day < (zone.today() - timedelta(days=retention_days)).isoformat():
            answer += turn.texts.say("note_goes", count=retention_days)
        content = next(note.content for note in after.dailies if note.date == day)
        if (size := len(content.encode())) > ADVISED_MAX_BYTES:
            answer += turn.texts.say("note_large", size=size, advised=ADVISED_MAX_BYTES)
        return answer

    return daily


@tool(
    "memory.recall",
    effect=READS_PEOPLE,
    help=CommandHelp(HelpTopic.MEMORY, "Search memory and recent notes", (",memory.recall", ",memory.recall allergic")),
)
async def _recall(turn: Turn, args: RecallArgs) -> str:
    """Search long-term memory and the notes of the last days; without a query it gives all of them."""
    zone, texts = _open_zone(turn), turn.result_texts
    snapshot = await zone.read()
    cited = _cite(snapshot, texts)
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


def _make_show(read_settings: Callable[[], MemorySettings]) -> Tool:
    @tool(
        "memory.show",
        effect=READS_PEOPLE,
        commands=("memory",),
        help=CommandHelp(HelpTopic.MEMORY, "What I remember here", (",memory",), in_menu=True),
    )
    async def show(turn: Turn, args: NoArgs) -> str:
        """Show what memory holds: its version, sizes, the days it has notes of, and the versions on the tape."""
        texts, snapshot = turn.texts, await _open_zone(turn).read()
        versions = {entry.version for entry in await turn.tape.read(MemoryVersionsView())}
        lines = [texts.say("memory_shown", cited=_cite(snapshot, texts))]
        lines += [texts.say("memory_long_term", size=_describe_size(snapshot.long_term, texts))]
        dates = ", ".join(note.date for note in snapshot.dailies)
        notes = "\n".join(note.content for note in snapshot.dailies)
        days = texts.say("days", count=len(snapshot.dailies))
        days = texts.say("days_listed", days=days, listed=dates) if dates else days
        lines += [texts.say("memory_notes", days=days, size=_describe_size(notes, texts))]
        settings = read_settings()
        kept = texts.say("memory_kept", count=settings.retention_days)
        lines += [texts.say("memory_reach", count=settings.recent_days, kept=kept)]
        if versions:
            lines += [texts.say("memory_versions", versions=format_versions(versions, texts))]
        return "\n".join([*lines, texts.say("memory_recall")])

    return show


@tool(
    "memory.forget",
    effect=INSIDE,
    help=CommandHelp(
        HelpTopic.MEMORY, "Forget every line with a text", (",memory.forget nuts", ",memory.forget allergic to")
    ),
)
async def _forget(turn: Turn, args: ForgetArgs) -> str:
    """Remove every line of long-term memory and of the daily notes that contains a text."""
    zone = _open_zone(turn)
    before = await zone.read()
    if not fold_text(args.text).strip():
        raise ToolRetry(turn.result_texts.say("forget_empty"))
    removed = await zone.forget(args.text)
    after = await zone.read()
    if not removed:
        hint = turn.texts.say("forget_by_line") if "\n" in args.text.strip() else ""
        return turn.texts.say("forgot_nothing", text=repr(args.text), cited=_cite(after, turn.texts)) + hint
    return turn.texts.say(
        "forgot",
        count=len(removed),
        version=_name_version(after, turn.texts),
        lines=_bullet_list(removed),
        way_back=_undo_hint(before, turn.texts),
    )


@tool(
    "memory.restore",
    effect=INSIDE,
    help=CommandHelp(
        HelpTopic.MEMORY, "Bring back an older memory", (",memory.restore 3", ",memory.restore version=3")
    ),
)
async def _restore(turn: Turn, args: RestoreArgs) -> str:
    """Bring an older version of memory back as the newest one."""
    zone = _open_zone(turn)
    before = await zone.read()
    try:
        with _report_limits(turn):
            await zone.restore(args.version)
    except EntryNotFound as error:
        others = {item.version for item in await turn.tape.read(MemoryVersionsView())} - {args.version}
        raise ToolRetry(missing_version_text(args.version, others, turn.result_texts)) from error
    after = await zone.read()
    if after.seal_id == before.seal_id:
        return turn.texts.say("restored_same", number=args.version, cited=_cite(after, turn.texts))
    version, way_back = _name_version(after, turn.texts), _undo_hint(before, turn.texts)
    return turn.texts.say("restored", number=args.version, version=version, way_back=way_back)


@tool(
    "memory.clear",
    effect=INSIDE,
    help=CommandHelp(HelpTopic.MEMORY, "Forget everything", (",memory.clear", ",memory.clear confirm=true")),
)
async def _clear(turn: Turn, args: ClearArgs) -> str:
    """Empty the memory. Call it without confirm first: it shows what would be removed, and the person has to agree."""
    zone, texts = _open_zone(turn), turn.texts
    before = await zone.read()
    if before.is_empty:
        return texts.say("cleared_already", cited=_cite(before, texts))
    days = texts.say("days", count=len(before.dailies))
    content = texts.say("memory_holds", size=_describe_size(before.long_term, texts), days=days)
    if not args.confirm:
        return texts.say("clear_asks", cited=_cite(before, texts), what=content)
    await zone.clear()
    after = await zone.read()
    return texts.say("cleared", version=_name_version(after, texts), what=content, way_back=_undo_hint(before, texts))


@contextmanager
def _report_limits(turn: Turn) -> Iterator[None]:
    """Turn `MemoryTooLarge` into a `ToolRetry` in the language of the chat."""
    try:
        yield
    except MemoryTooLarge as error:
        names = {"long_term": "too_large_long_term", "all": "too_large_all"}
        part = turn.texts.say(names.get(error.part, "too_large_note"), day=error.part)
        raise ToolRetry(turn.texts.say("memory_too_large", what=part, size=error.size, limit=error.limit)) from error


def _open_zone(turn: Turn) -> MemoryZone:
    return MemoryZone(turn.tape, now=turn.now, zone=turn.zone)


def _cite(snapshot: MemorySnapshot, texts: Texts) -> str:
    """Name the version and its entry, for use in brackets."""
    if not snapshot.seal_id:
        return texts.say("no_version")
    if not snapshot.version:
        return texts.say("cited_entry", entry=snapshot.seal_id)
    return texts.say("cited_version", number=snapshot.version, entry=snapshot.seal_id)


def _name_version(snapshot: MemorySnapshot, texts: Texts) -> str:
    """Name a new version, for use in a sentence."""
    return texts.say("new_version", number=snapshot.version, entry=snapshot.seal_id)


def _undo_hint(before: MemorySnapshot, texts: Texts) -> str:
    """Say how to undo, as the end of a sentence; return an empty text if there is nothing to bring back."""
    if before.is_empty or not before.version:
        return ""
    return texts.say("way_back", number=before.version)


def _bullet_list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line.strip()}" for line in lines)


def _describe_size(text: str, texts: Texts) -> str:
    if not text:
        return texts.say("nothing")
    return texts.say("bytes", count=len(text.encode()), lines=texts.say("lines", count=len(text.splitlines())))
