"""The facts that say what a tape was called and what was taken away: entries by `tape/erased`, blobs by `blob/removed`.

Every store writes them the same way. They are what the database and an audit check erased entries against.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bubbot.tape.entry import EMPTY_OBJECT, Kind, TapeEntry, event, thaw
from bubbot.tape.handle import spans_of
from bubbot.tape.store import Batch

HOME_TAPE = "bubbot/home"
"""The system's tape about the home itself; facts that belong to no session stand there."""
NAMED = "tape/named"
"""Says what a tape was called when the database learned to check names: once, on tapes that are older."""
RENAMED = "tape/renamed"
"""The last entry of an archive: what the tape was called, and what it is called from then on."""
TAPE_ARCHIVED = "tape/archived"
TAPE_ERASED = "tape/erased"
BLOB_REMOVED = "blob/removed"
SPANS_PER_FACT = 100
"""Id ranges in one fact. The database reads a fact anew for each entry that it covers, so a long one would be slow."""
BLOBS_PER_FACT = 500

Span = tuple[int, int]


def renamed(tape: str, archive: str, batches: Sequence[Batch]) -> TapeEntry:
    """Build the last entry of a tape that is put aside, with the date of the fact that says why."""
    entries = [entry for batch in batches if batch.tape == tape for entry in batch.entries]
    told = [entry.date for entry in entries if entry.name in (TAPE_ARCHIVED, TAPE_ERASED)]
    date = told[-1] if told else entries[0].date if entries else ""
    return event(RENAMED, {"from": tape, "to": archive}).stamped(EMPTY_OBJECT, date)


def is_rename(kind: str, payload: Mapping[str, Any], old: str, new: str) -> bool:
    """Return true if this entry says that its tape `old` is called `new` from then on."""
    data = payload.get("data")
    if kind != Kind.EVENT or payload.get("name") != RENAMED or not isinstance(data, Mapping):
        return False
    return data.get("from") == old and data.get("to") == new


def chunks(ids: Mapping[str, Iterable[int]]) -> list[dict[str, list[list[int]]]]:
    """Split ids of tapes into the `covers` of as many facts as it takes; there is always a first one."""
    made: list[dict[str, list[list[int]]]] = [{}]
    count = 0
    for tape, some in ids.items():
        for low, high in spans_of(list(some)):
            if count == SPANS_PER_FACT:
                made.append({})
                count = 0
            made[-1].setdefault(tape, []).append([low, high])
            count += 1
    return made


def with_covers(batches: Sequence[Batch], tape: str, covers: Mapping[str, Any]) -> list[Batch]:
    """Put `covers` into the newest fact `tape/erased` among the batches of a tape; unchanged if there is none."""
    made = list(batches)
    for place in reversed(range(len(made))):
        entries = list(made[place].entries)
        for index in reversed(range(len(entries))):
            entry = entries[index]
            if made[place].tape == tape and (entry.kind, entry.name) == (Kind.EVENT, TAPE_ERASED):
                data = thaw(entry.payload).get("data") or {}
                entries[index] = replace(entry, payload=event(TAPE_ERASED, {**data, "covers": covers}).payload)
                made[place] = replace(made[place], entries=tuple(entries))
                return made
    return made


def date_of(batches: Sequence[Batch]) -> str:
    """Return the date of the newest fact `tape/erased` among the batches."""
    found = [entry.date for batch in batches for entry in batch.entries if entry.name == TAPE_ERASED]
    return found[-1] if found else ""


def further(covers: Mapping[str, Any], date: str) -> TapeEntry:
    """Build a fact for what the first one had no room for. It stands on the tape of the home."""
    return event(TAPE_ERASED, {"covers": covers}).stamped(EMPTY_OBJECT, date)


def removals(tape: str, digests: Iterable[str], reason: str, date: str) -> Iterator[TapeEntry]:
    """Build the facts about blobs of a tape that go, for the tape of the home."""
    some = sorted(digests)
    for start in range(0, len(some), BLOBS_PER_FACT):
        data = {"tape": tape, "digests": some[start : start + BLOBS_PER_FACT], "reason": reason}
        yield event(BLOB_REMOVED, data).stamped(EMPTY_OBJECT, date)
