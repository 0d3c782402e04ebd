"""Copies: entries that are made of other entries, by declared references. An erasure looks for them.

An entry is a copy of those that its meta names as its `source`, a summary or a handoff of its `source_ids`, a correction of
the entry that it corrects. Features add their events that quote what they cite. An entry that only names another one (a
turn its inbounds, a step what was shown) holds no words of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec import Struct

from bubbot.tape.anchor import find_sources
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.events import STEP_EVENT, Correction, Handoff
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.references import ReferenceRegistry
from bubbot.tape.store import SYSTEM_TAPE_PREFIX, TapeStore, TapeSummary

COPYING_EVENTS = (*Correction.EVENTS, *Handoff.EVENTS)
"""The events of the kernel that hold words of the entries that they name."""
PAGE_ENTRIES = 2_000
CurrentName: TypeAlias = Callable[[str, str], str]
"""Return the name that a tape has now, of a name that an entry cited and the date of that entry."""


class KnownCopies(Struct, frozen=True):
    """What another tape holds of a tape that is to be erased.

    Attributes:
        tape: the other tape.
        entries: its entries that are made of entries of the erased one, ascending.
        prompts: its model calls that were shown some: their prompts are kept as blobs.
    """

    tape: str
    entries: tuple[int, ...]
    prompts: tuple[int, ...] = ()


@dataclass
class CopyIndex:
    """Which entries of all tapes are made of which, to find the copies of entries that are to be erased.

    Attributes:
        references: the declared references.
        events: the events of features that hold words of the entries that they name.
        current_name: finds the archive that a tape has become since an entry cited it.
    """

    references: ReferenceRegistry
    events: Collection[str] = ()
    current_name: CurrentName = lambda name, _date: name
    _copies: dict[str, list[tuple[int, int, str, int]]] = field(default_factory=dict)

    def add(self, tape: str, entries: Iterable[TapeEntry]) -> None:
        """Take in entries of a tape."""
        for entry in entries:
            for source, low, high in self._find_originals(tape, entry):
                name = self.current_name(source, entry.date)
                self._copies.setdefault(name, []).append((low, high, tape, entry.id))

    def find_copies(self, erased: Mapping[str, Collection[int]]) -> dict[str, set[int]]:
        """Return the entries that are copies of these entries, or copies of such copies, without these themselves."""
        known = {tape: set(ids) for tape, ids in erased.items()}
        found: dict[str, set[int]] = {}
        fresh = {tape: set(ids) for tape, ids in erased.items()}
        while fresh:
            newest: dict[str, set[int]] = {}
            for source, ids in fresh.items():
                for low, high, tape, entry_id in self._copies.get(source, ()):
                    if entry_id not in known.get(tape, ()) and _has_any(ids, low, high):
                        known.setdefault(tape, set()).add(entry_id)
                        newest.setdefault(tape, set()).add(entry_id)
            for tape, ids in newest.items():
                found.setdefault(tape, set()).update(ids)
            fresh = newest
        return found

    def _find_originals(self, tape: str, entry: TapeEntry) -> Iterator[tuple[str, int, int]]:
        yield from self.references.find_sources(tape, entry)
        if entry.kind == Kind.ANCHOR:
            yield from ((name, number, number) for name, number in find_sources(entry.payload.get("state"), tape))
        elif entry.kind == Kind.EVENT and entry.name in Handoff.EVENTS:
            yield from ((name, number, number) for name, number in find_sources(entry.data.get("state"), tape))
        elif entry.kind == Kind.EVENT and entry.name in (*Correction.EVENTS, *self.events):
            yield from self.references.find_cited(tape, entry)


async def find_copies_of_tape(
    store: TapeStore, tape: str, references: ReferenceRegistry, events: Collection[str] = ()
) -> list[KnownCopies]:
    """Find what the tapes of other chats hold of a tape and its archives, by their names.

    It reads every tape of a chat.

    Args:
        events: see `CopyIndex`.
    """
    own = {each.name for each in await store.tapes() if tape in (each.name, each.archived_from)}
    return (await find_copies_of_tapes(store, {tape: own}, references, events))[tape]


async def find_copies_of_tapes(
    store: TapeStore,
    erased: Mapping[str, Collection[str]],
    references: ReferenceRegistry,
    events: Collection[str] = (),
) -> dict[str, list[KnownCopies]]:
    """Find what the other tapes of chats hold of tapes, in one pass over all of them.

    Args:
        erased: the tapes that are erased together, by a name for them, which the result has, too.
        events: see `CopyIndex`.
    """
    summaries = await store.tapes()
    current_name = await find_current_names(store, summaries)
    index, prompts = CopyIndex(references, events, current_name), dict[str, list[tuple[int, frozenset[str]]]]()
    every = {name for names in erased.values() for name in names}
    chats = [each.name for each in summaries if not each.name.startswith(SYSTEM_TAPE_PREFIX)]
    for name in chats:
        after = 0
        while page := (await store.fetch([TapeQuery(name, IdRanges(((after + 1, None),)), limit=PAGE_ENTRIES)]))[0]:
            entries = [entry for entry in page if not entry.erased]
            index.add(name, entries)
            for step in (entry for entry in entries if entry.kind == Kind.EVENT and entry.name == STEP_EVENT):
                cited = {current_name(place, step.date) for place, _, _ in references.find_cited(name, step)}
                if shown := frozenset(cited & every):
                    prompts.setdefault(name, []).append((step.id, shown))
            after = page[-1].id
    heads, found = {each.name: each.head for each in summaries}, dict[str, list[KnownCopies]]()
    for key, names in erased.items():
        copies = index.find_copies({name: range(1, heads[name] + 1) for name in names})
        known = (
            KnownCopies(
                name,
                tuple(sorted(copies.get(name, ()))),
                tuple(step for step, shown in prompts.get(name, ()) if not shown.isdisjoint(names)),
            )
            for name in chats
            if name not in names
        )
        found[key] = [each for each in known if each.entries or each.prompts]
    return found


async def find_current_names(store: TapeStore, tapes: Sequence[TapeSummary]) -> CurrentName:
    """Return what finds the archive that a tape has become since it was cited: its name is that of a new tape now."""
    archives: dict[str, list[tuple[str, str]]] = {}
    for tape in tapes:
        if tape.archived_from is not None:
            last = (await store.fetch([TapeQuery(tape.name, newest=True, limit=1)]))[0]
            archives.setdefault(tape.archived_from, []).append((last[0].date if last else "", tape.name))
    for ended in archives.values():
        ended.sort()

    def find_current_name(name: str, date: str) -> str:
        if not date:
            return name
        return next((archive for until, archive in archives.get(name, ()) if date <= until), name)

    return find_current_name


def _has_any(ids: Collection[int], low: int, high: int) -> bool:
    if high - low < len(ids):
        return any(number in ids for number in range(low, high + 1))
    return any(low <= number <= high for number in ids)
