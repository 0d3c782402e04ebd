"""Writing of memory: a zone of entries on the tape, sealed again with every change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, timedelta, tzinfo

from msgspec.structs import replace

from bubbot.errors import EntryNotFound, MemoryTooLarge
from bubbot.features.memory.block import MAX_SECTION_CHARS, build_memory_block
from bubbot.features.memory.changes import find_lost_lines, forget_lines
from bubbot.features.memory.facts import DayText, LongTermText
from bubbot.features.memory.views import (
    DailyNote,
    MemorySnapshot,
    MemoryVersion,
    MemoryVersionsView,
    MemoryVersionView,
    MemoryView,
    format_memory_page,
    parse_day,
    sort_by_day,
    tidy_text,
)
from bubbot.tape.anchor import MEMORY_OPEN, MEMORY_SEAL, anchor
from bubbot.tape.entry import TapeEntry, timestamp
from bubbot.tape.handle import Clock, TapeHandle, spans_of
from bubbot.tape.provenance import PROVENANCE, Source, most_foreign
from bubbot.tape.words import fold_text
from bubbot.texts import Texts

TEXT_LIMIT_BYTES = 65_536
"""The largest long-term text, or note of a day."""
MEMORY_LIMIT_BYTES = 1_048_576
"""The largest size of all of memory: every change stores all of it again."""


class DatedZone:
    """What days mean to a memory.

    Attributes:
        retention_days: how long the notes of a day are kept, and how far ahead.
    """

    def __init__(self, now: Clock, zone: tzinfo, retention_days: int) -> None:
        self._now = now
        self._zone = zone
        self.retention_days = retention_days

    def today(self) -> date:
        """Return the date in the chat's time zone."""
        return self._now().astimezone(self._zone).date()

    def last_day(self) -> str:
        """Return the last day that may have a note: as far ahead as old notes are kept."""
        return (self.today() + timedelta(days=self.retention_days)).isoformat()

    def check_day(self, date: str | None) -> str:
        """Return the day of a note, by default today.

        Raise `ValueError` for a text that is not an ISO date, or a day further ahead than notes are kept.
        """
        day = self.today().isoformat() if date is None else parse_day(date)
        if day is None:
            raise ValueError(f"{date!r} is not a date such as 2026-11-21")
        if day > self.last_day():
            raise ValueError(
                f"{day} is more than {self.retention_days} days ahead, and notes are not kept so far: schedule a reminder"
            )
        return day


def check_needle(text: str) -> str:
    """Return a text to look for in lines, folded. Raise `ValueError` for an empty one: it would be in every line."""
    if needle := fold_text(text).strip():
        return needle
    raise ValueError("the text to forget is empty: give words of the line that is to go")


class MemoryZone(DatedZone):
    """The memory of one tape: a long-term text and a note for each day.

    Give it the fork inside a turn and the tape outside. A change reads the newest version and appends a complete new
    one in one batch; older ones stay. A change without an effect writes nothing. As for all appends to a tape, one
    writer at a time: two changes that overlap would both build on the same version. A change that makes a text too
    large raises `MemoryTooLarge`; a text that was already too large may stay and shrink. `zone` is the time zone that
    decides which day it is.
    """

    def __init__(self, tape: TapeHandle, *, now: Clock, zone: tzinfo, retention_days: int = 30) -> None:
        super().__init__(now, zone, retention_days)
        self._tape = tape

    async def ensure(self) -> None:
        """Append an empty zone if the tape has none."""
        current = await self.read()
        if not current.seal_id:
            await self._seal(current)

    async def read(self) -> MemorySnapshot:
        """Return the newest version; an empty one (version 0) if there is none."""
        return await self._tape.read(MemoryView())

    async def versions(self) -> tuple[MemoryVersion, ...]:
        """Return the versions on the tape, newest first."""
        return await self._tape.read(MemoryVersionsView())

    async def get_context(self, recent_days: int = 7, *, limit: int = MAX_SECTION_CHARS) -> str:
        """Return the `<memory>` block of the system prompt; `limit` characters for each of its sections."""
        return build_memory_block(await self.read(), today=self.today(), recent_days=recent_days, limit=limit)

    async def export(self) -> str:
        """Return everything remembered, as Markdown."""
        return format_memory_page(await self.read())

    async def save_long_term(self, content: str) -> list[str]:
        """Replace the long-term text. Return the lost lines: those that the new text does not have."""
        current = await self.read()
        text = tidy_text(content)
        saved = replace(current, long_term=text, long_term_updated_at=self._stamp(), provenance=self._tape.source)
        await self._update(current, saved)
        return find_lost_lines(current.long_term, text)

    async def append_daily(self, content: str, date: str | None = None) -> None:
        """Add lines to the note of a day, by default today. Raise `ValueError` as `check_day` does."""
        day = self.check_day(date)
        text = tidy_text(content)
        if not text:
            return
        current = await self.read()
        notes = {note.date: note for note in current.dailies}
        joined, source = text, self._tape.source
        if day in notes:
            joined, source = f"{notes[day].content}\n{text}", most_foreign(notes[day].provenance, source)
        notes[day] = DailyNote(day, joined, self._stamp(), source)
        await self._update(current, replace(current, dailies=sort_by_day(notes.values())))

    async def forget(self, text: str) -> list[str]:
        """Remove every line that contains the text, after NFKC and casefold. Return the removed lines.

        Raise `ValueError` for an empty text: it would be in every line.
        """
        current = await self.read()
        changed, removed = forget_lines(current, check_needle(text), self._stamp())
        await self._update(current, changed)
        return removed

    async def restore(self, version: int) -> None:
        """Append an older version as a new one. Raise `EntryNotFound`, naming the existing versions."""
        versions = await self.versions()
        older = await self._find(version, versions)
        if older is None:
            others = {item.version for item in versions} - {version}
            raise EntryNotFound(missing_version_text(version, others))
        await self._update(await self.read(), older)

    async def import_snapshot(self, content: MemorySnapshot) -> None:
        """Append content from elsewhere as a new version that replaces everything remembered.

        It is as foreign as everything that comes in a file.
        """
        stamp = self._stamp()
        notes = sort_by_day(
            replace(note, content=tidy_text(note.content), updated_at=stamp, provenance=Source.WORLD)
            for note in content.dailies
        )
        long_term = tidy_text(content.long_term)
        adopted = MemorySnapshot(
            long_term=long_term,
            long_term_updated_at=stamp if long_term else "",
            dailies=notes,
            provenance=Source.WORLD,
        )
        await self._update(await self.read(), adopted)

    async def clear(self) -> None:
        """Append an empty version; older ones stay."""
        await self._update(await self.read(), MemorySnapshot())

    async def prune(self) -> int:
        """Drop the notes of days that are more than `retention_days` ago, or ahead. Return how many.

        A note that was written later than now stays: the clock is behind, and its day only seems to be ahead.
        """
        current, now = await self.read(), self._stamp()
        oldest, last = (self.today() - timedelta(days=self.retention_days)).isoformat(), self.last_day()
        notes = tuple(
            note for note in current.dailies if oldest <= note.date and (note.date <= last or note.updated_at > now)
        )
        await self._update(current, replace(current, dailies=notes))
        return len(current.dailies) - len(notes)

    async def _find(self, version: int, versions: Sequence[MemoryVersion]) -> MemorySnapshot | None:
        """Find a version between its seal and the one before, else on the whole tape (odd imports)."""
        seals = [item.seal_id for item in versions]
        place = next((place for place, item in enumerate(versions) if item.version == version), None)
        if place is not None:
            span = ([*seals, 0][place + 1] + 1, seals[place])
            snapshot = await self._tape.read(MemoryVersionView(version, span))
            if snapshot is not None:
                return snapshot
        return await self._tape.read(MemoryVersionView(version))

    async def _update(self, current: MemorySnapshot, changed: MemorySnapshot) -> None:
        if not changed.has_same_content(current):
            check_size(current, changed)
            await self._seal(replace(changed, version=current.version))

    async def _seal(self, content: MemorySnapshot) -> None:
        """Append a version after the one that `content` names, in one batch."""
        newest = content.version
        if not newest:  # no zone, or an imported one without a number
            newest = max((item.version for item in await self._tape.read(MemoryVersionsView())), default=0)
        await self._tape.append(build_version(replace(content, version=newest + 1)))

    def _stamp(self) -> str:
        return timestamp(self._now())


def check_size(current: MemorySnapshot, changed: MemorySnapshot) -> None:
    """Raise `MemoryTooLarge` if a text is larger than it may be and than it was."""
    before = _sizes(current)
    for part, size in _sizes(changed).items():
        limit = MEMORY_LIMIT_BYTES if part == "all" else TEXT_LIMIT_BYTES
        if size > limit and size > before.get(part, 0):
            raise MemoryTooLarge(part, size, limit)


def _sizes(snapshot: MemorySnapshot) -> dict[str, int]:
    """Return the bytes of each text, and of all of them."""
    sizes = {note.date: _bytes(note.content) for note in snapshot.dailies}
    sizes["long_term"] = _bytes(snapshot.long_term)
    return {**sizes, "all": sum(sizes.values())}


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))  # the tape refuses lone surrogates


def format_versions(versions: Iterable[int], texts: Texts) -> str:
    """Write version numbers in words: `version 3`, or `the versions 1 to 4 and 7`."""
    spans = [
        str(low) if low == high else texts.say("versions_range", first=low, last=high)
        for low, high in spans_of(list(versions))
    ]
    listed = texts.say("and").join(part for part in (texts.say("list_comma").join(spans[:-1]), spans[-1]) if part)
    return texts.say("version", number=listed) if listed.isdecimal() else texts.say("versions", listed=listed)


def missing_version(number: int, others: Iterable[int], texts: Texts) -> tuple[str, dict[str, object]]:
    """Return the name of the sentence that there is no such version, and its values: which ones there are."""
    versions = set(others)
    if not versions:
        return "restore_none", {"number": number}
    return "restore_unknown", {"number": number, "versions": format_versions(versions, texts)}


def missing_version_text(number: int, others: Iterable[int]) -> str:
    """Say in English that there is no such version, and which ones there are."""
    name, values = missing_version(number, others, Texts())
    return Texts().say(name, **values)


def build_version(snapshot: MemorySnapshot) -> list[TapeEntry]:
    """Build the entries of a version, from its opening to its seal.

    Each says how foreign its words are: most are copied from an earlier version, and the rest of the turn has no part in
    them. The anchors are as foreign as the version.
    """
    state = {"version": snapshot.version}
    long_term = LongTermText(snapshot.long_term, snapshot.long_term_updated_at)
    notes = [
        DayText(note.date, note.content, note.updated_at).to_entry(**_mark(note.provenance))
        for note in snapshot.dailies
    ]
    mark = _mark(snapshot.most_foreign)
    return [
        anchor(MEMORY_OPEN, state, window=False, meta=mark),
        *([long_term.to_entry(**_mark(snapshot.provenance))] if snapshot.long_term else []),
        *notes,
        anchor(MEMORY_SEAL, state, window=False, meta=mark),
    ]


def _mark(source: Source) -> dict[str, str]:
    return {PROVENANCE: str(source)}
