"""The memory tools: every answer says what is remembered now and names the entry that says so."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field

from bubbot.errors import EntryNotFound, ToolRetry
from bubbot.memory import MemoryZone, spelled
from bubbot.tool import NoArgs, Tool, ToolArgs, tool
from bubbot.turn import Turn
from bubbot.views.memory import MemorySnapshot, MemoryVersionsView, iso_day, recall

ADVISED_BYTES = 4096


def _storable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"character {error.start} is half of a surrogate pair: it is not valid text") from error
    return text


Storable: TypeAlias = Annotated[str, AfterValidator(_storable)]
"""Text that a tape takes; JSON can spell texts that it does not."""


class SaveArgs(ToolArgs):
    """Arguments of `memory.save`."""

    content: Storable = Field(description="The whole long-term text: every line that still holds, and what is new")


class DailyArgs(ToolArgs):
    """Arguments of `memory.daily`."""

    content: Storable = Field(description="What to add to the notes of the day")
    date: str | None = Field(None, description="The day as YYYY-MM-DD; today where left out")


class RecallArgs(ToolArgs):
    """Arguments of `memory.recall`."""

    query: str = Field("", description="Words to look for, as they stand in the text; everything where left out")
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


def memory_tools(*, retention_days: int, recent_days: int) -> list[Tool]:
    """The tools over the memory of the turn's chat.

    `retention_days`: how long notes are kept; `recent_days`: how many days of them the prompt shows.
    """
    return [_save, _daily(retention_days), _recall, _show(retention_days, recent_days), _forget, _restore, _clear]


@tool("memory.save")
async def _save(turn: Turn, args: SaveArgs) -> str:
    """Replaces the long-term memory of this chat: lasting preferences and facts. Lines you leave out are lost."""
    if not args.content.strip():
        raise ToolRetry("content is empty; memory.forget removes lines, memory.clear removes everything")
    zone = _zone(turn)
    before = await zone.read()
    lost = await zone.save_long_term(args.content)
    after = await zone.read()
    if after.seal_id == before.seal_id:
        return f"Long-term memory says exactly this already ({_cited(after)}); nothing was written."
    answer = f"Saved to long-term memory as {_new(after)}."
    if lost:
        answer += f" Lines that were there before and are not any more:\n{_listed(lost)}"
        answer += f"\nIf one of them still holds, save again with it{_way_back(before)}."
    return answer + _advice(after.long_term, "Long-term memory", "Shorten it: save it again with what matters")


def _daily(retention_days: int) -> Tool:
    @tool("memory.daily")
    async def daily(turn: Turn, args: DailyArgs) -> str:
        """Adds to the notes of a day, today where no date is given: what was done, decided or left open."""
        if not args.content.strip():
            raise ToolRetry("content is empty: give the text to note")
        zone = _zone(turn)
        try:
            await zone.append_daily(args.content, args.date or None)
        except ValueError as error:
            raise ToolRetry(f"date: {error}") from error
        after = await zone.read()
        day = iso_day(args.date) or zone.today().isoformat()
        answer = f"Added to the notes of {day} as {_new(after)}."
        if day < (zone.today() - timedelta(days=retention_days)).isoformat():
            answer += f" Notes are kept for {retention_days} days: these go when old notes are next cleared away."
        content = next(note.content for note in after.dailies if note.date == day)
        return answer + _advice(content, "The note of this day", "Add only what matters")

    return daily


@tool("memory.recall")
async def _recall(turn: Turn, args: RecallArgs) -> str:
    """Searches long-term memory and the notes of the last days; without a query it gives all of them."""
    zone = _zone(turn)
    snapshot = await zone.read()
    if snapshot.empty:
        return f"Memory is empty ({_cited(snapshot)})."
    since = zone.today() - timedelta(days=args.days)
    found = recall(snapshot, since=since, query=args.query)
    older = sum(note.date < since.isoformat() for note in snapshot.dailies)
    wanted = f" that contains {args.query!r}" if args.query.strip() else ""
    if found:
        answer = f"From memory ({_cited(snapshot)}), notes since {since}:"
        answer += "".join(f"\n\n{place}:\n{text}" for place, text in found)
    else:
        answer = f"There is nothing{wanted} in memory ({_cited(snapshot)}), notes since {since}."
    if older:
        oldest = (zone.today() - date.fromisoformat(snapshot.dailies[0].date)).days
        answer += f"\n\nOlder notes were not looked at ({_days(older)}); days={oldest} reaches all of them."
    return answer


def _show(retention_days: int, recent_days: int) -> Tool:
    @tool("memory.show", commands=("memory",))
    async def show(turn: Turn, args: NoArgs) -> str:
        """Shows what memory holds: its version, sizes, the days it has notes of, and the versions on the tape."""
        snapshot = await _zone(turn).read()
        versions = {one.version for one in await turn.tape.read(MemoryVersionsView())}
        lines = [f"Memory: {_cited(snapshot)}."]
        lines += [f"Long-term memory: {_size(snapshot.long_term)}."]
        days = [note.date for note in snapshot.dailies]
        notes = "\n".join(note.content for note in snapshot.dailies)
        span = f" ({', '.join(days)})" if days else ""
        lines += [f"Daily notes: {_days(len(days))}{span}, {_size(notes)}."]
        lines += [f"The prompt shows those of today and {recent_days} days before; {retention_days} days are kept."]
        if versions:
            lines += [f"On the tape: {spelled(versions)}; `,memory.restore N` brings one back."]
        return "\n".join([*lines, "memory.recall gives the text."])

    return show


@tool("memory.forget")
async def _forget(turn: Turn, args: ForgetArgs) -> str:
    """Removes every line of long-term memory and of the daily notes that contains a text."""
    zone = _zone(turn)
    before = await zone.read()
    try:
        removed = await zone.forget(args.text)
    except ValueError as error:
        raise ToolRetry(str(error)) from error
    after = await zone.read()
    if not removed:
        hint = " Lines are looked at one by one: give words of a single line." if "\n" in args.text.strip() else ""
        return f"No line of memory contains {args.text!r} ({_cited(after)}); nothing was removed.{hint}"
    lines = "1 line" if len(removed) == 1 else f"{len(removed)} lines"
    return (
        f"Removed {lines} from memory, now {_new(after)}:\n{_listed(removed)}\n"
        f"Older versions remain on the tape with them, and so does what was said{_way_back(before)}."
    )


@tool("memory.restore")
async def _restore(turn: Turn, args: RestoreArgs) -> str:
    """Brings an older version of memory back as the newest one."""
    zone = _zone(turn)
    before = await zone.read()
    try:
        await zone.restore(args.version)
    except EntryNotFound as error:
        raise ToolRetry(str(error)) from error
    after = await zone.read()
    if after.seal_id == before.seal_id:
        return f"Memory says what version {args.version} said already ({_cited(after)}); nothing was written."
    return f"Brought version {args.version} back as {_new(after)}{_way_back(before)}."


@tool("memory.clear")
async def _clear(turn: Turn, args: ClearArgs) -> str:
    """Empties memory. Call it without confirm first: it says what would go, and the person has to agree."""
    zone = _zone(turn)
    before = await zone.read()
    if before.empty:
        return f"Memory is empty already ({_cited(before)}); nothing was written."
    what = f"long-term memory ({_size(before.long_term)}) and the notes of {_days(len(before.dailies))}"
    if not args.confirm:
        return (
            f"Nothing was removed yet. This would empty memory ({_cited(before)}): {what}. Older versions would "
            "remain on the tape. To do it: `,memory.clear confirm=true`; a model asks the person first."
        )
    await zone.clear()
    after = await zone.read()
    return f"Emptied memory, now {_new(after)}: {what}. Older versions remain on the tape{_way_back(before)}."


def _zone(turn: Turn) -> MemoryZone:
    return MemoryZone(turn.tape, now=turn.now, zone=turn.zone)


def _cited(snapshot: MemorySnapshot) -> str:
    """Which version, for use in brackets."""
    if not snapshot.seal_id:
        return "no version yet"
    return ", ".join(([f"version {snapshot.version}"] if snapshot.version else []) + [f"entry {snapshot.seal_id}"])


def _new(snapshot: MemorySnapshot) -> str:
    """Which version, in a sentence."""
    return f"version {snapshot.version} (entry {snapshot.seal_id})"


def _way_back(before: MemorySnapshot) -> str:
    """How to undo, as the end of a sentence; nothing where there is nothing to bring back."""
    if before.empty or not before.version:
        return ""
    return f"; `,memory.restore {before.version}` brings back all of version {before.version}"


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line.strip()}" for line in lines)


def _days(count: int) -> str:
    return "1 day" if count == 1 else f"{count} days"


def _size(text: str) -> str:
    return f"{len(text.encode())} bytes in {len(text.splitlines())} lines" if text else "nothing"


def _advice(text: str, what: str, how: str) -> str:
    size = len(text.encode())
    if size <= ADVISED_BYTES:
        return ""
    return f"\n{what} is now {size} bytes, and every prompt carries it; {ADVISED_BYTES} are plenty. {how}."
