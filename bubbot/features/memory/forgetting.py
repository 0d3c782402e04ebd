"""What stays in the memories of others if a person is forgotten: the lines that others brought."""

from __future__ import annotations

from collections.abc import Sequence, Set

from msgspec.structs import replace

from bubbot.features.memory.changes import ZONE_EVENTS, LineOrigin, restate_without, trace_lines
from bubbot.features.memory.scopes import ZONE_TAPES, user_tape
from bubbot.features.memory.views import DailyNote, MemorySnapshot, list_zones, sort_by_day, tidy_text
from bubbot.features.memory.zone import build_version
from bubbot.ports.forgetting import ForgottenPerson, Restatement
from bubbot.tape.entry import TapeEntry


def restate_shared(tape: str, entries: Sequence[TapeEntry], person: ForgottenPerson, _erased: Set[int]) -> Restatement:
    """Erase a memory that is the person's own; of another one, say again the lines that did not come from them."""
    changes = [entry for entry in entries if entry.name in ZONE_EVENTS]
    if tape in {user_tape(account) for account in person.accounts}:
        return Restatement(frozenset(entry.id for entry in entries))

    def is_theirs(origin: LineOrigin) -> bool:
        return (bool(origin.by) and person.has_account(origin.channel, origin.by)) or person.has_chat(origin.session)

    lines = trace_lines(changes)[1]
    origins = {origin for found in lines.values() for origin in found}
    facts = [ZONE_EVENTS[entry.name or ""].of(entry) for entry in changes]
    origins |= {LineOrigin(fact.session, fact.channel, fact.by) for fact in facts}
    if not any(map(is_theirs, origins)):
        return Restatement()
    words = tuple(line for (_, line), found in lines.items() if any(map(is_theirs, found)))
    return Restatement(frozenset(entry.id for entry in changes), tuple(restate_without(changes, is_theirs)), words)


def restate_chat(_tape: str, entries: Sequence[TapeEntry], _person: ForgottenPerson, erased: Set[int]) -> Restatement:
    """Write the newest memory of a chat again without the lines of the erased versions, and erase what has these.

    A version stores all of the memory, so a line is the person's if a version of theirs was the first to have it.
    """
    zones = list(list_zones([entry for entry in entries if not entry.erased]))
    seen, theirs = set[tuple[str, str]](), set[tuple[str, str]]()
    for zone in zones:
        lines = _lines(zone)
        if zone.seal_id in erased:
            theirs |= lines - seen
        seen |= lines
    gone = {zone.seal_id: zone for zone in zones if zone.seal_id in erased or _lines(zone) & theirs}
    if not gone:
        return Restatement()
    spans = [range(zone.open_id, zone.seal_id + 1) for zone in gone.values()]
    ids = {entry.id for entry in entries if any(entry.id in span for span in spans)}
    newest = zones[-1]
    added = build_version(_without(newest, theirs)) if newest.seal_id in gone else []
    return Restatement(frozenset(ids - erased), tuple(added), tuple(line for _, line in sorted(theirs)))


def _lines(zone: MemorySnapshot) -> set[tuple[str, str]]:
    """Return the day of the note, empty for the long-term text, and the text of each line."""
    texts = [("", zone.long_term), *((note.date, note.content) for note in zone.dailies)]
    return {(day, line.strip()) for day, text in texts for line in text.splitlines() if line.strip()}


def _without(zone: MemorySnapshot, lines: set[tuple[str, str]]) -> MemorySnapshot:
    """Return the next version, without these lines."""

    def rest(day: str, text: str) -> str:
        return tidy_text("\n".join(line for line in text.splitlines() if (day, line.strip()) not in lines))

    notes = [
        DailyNote(note.date, rest(note.date, note.content), note.updated_at, note.provenance) for note in zone.dailies
    ]
    return replace(zone, version=zone.version + 1, long_term=rest("", zone.long_term), dailies=sort_by_day(notes))


FORGETTING = {ZONE_TAPES: restate_shared, "": restate_chat}
