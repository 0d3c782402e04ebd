"""Copies: entries that are made of other entries, by declared references. An erasure looks for them.

An entry is a copy of those that its meta names as its `source`, a summary or a handoff of its `source_ids`, a correction of
the entry that it corrects. Features add their events that quote what they cite. An entry that only names another one (a
turn its inbounds, a step what was shown) holds no words of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from bubbot.tape.anchor import find_sources
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.events import STEP_EVENT, Correction, Handoff
from bubbot.tape.query import TapeQuery
from bubbot.tape.references import ReferenceRegistry
from bubbot.tape.store import SYSTEM_TAPE_PREFIX, TapeStore

COPYING_EVENTS = (*Correction.EVENTS, *Handoff.EVENTS)
"""The events of the kernel that hold words of the entries that they name."""


@dataclass(frozen=True, slots=True)
class KnownCopies:
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
    """

    references: ReferenceRegistry
    events: Collection[str] = ()
    _copies: dict[str, list[tuple[int, int, str, int]]] = field(default_factory=dict)

    def add(self, tape: str, entries: Iterable[TapeEntry]) -> None:
        """Take in entries of a tape."""
        for entry in entries:
            for source, low, high in self._find_originals(tape, entry):
                self._copies.setdefault(source, []).append((low, high, tape, entry.id))

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
    summaries = await store.tapes()
    own = {each.name: range(1, each.head + 1) for each in summaries if tape in (each.name, each.archived_from)}
    others = [each.name for each in summaries if each.name not in own and not each.name.startswith(SYSTEM_TAPE_PREFIX)]
    index, prompts = CopyIndex(references, events), dict[str, list[int]]()
    for name in others:
        entries = [entry for entry in (await store.fetch([TapeQuery(name)]))[0] if not entry.erased]
        index.add(name, entries)
        steps = (entry for entry in entries if entry.kind == Kind.EVENT and entry.name == STEP_EVENT)
        shown = [step.id for step in steps if any(place in own for place, _, _ in references.find_cited(name, step))]
        if shown:
            prompts[name] = shown
    copies = index.find_copies(own)
    return [
        KnownCopies(name, tuple(sorted(copies.get(name, ()))), tuple(prompts.get(name, ())))
        for name in others
        if name in copies or name in prompts
    ]


def _has_any(ids: Collection[int], low: int, high: int) -> bool:
    if high - low < len(ids):
        return any(number in ids for number in range(low, high + 1))
    return any(low <= number <= high for number in ids)
