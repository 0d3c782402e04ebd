"""The facts about renamed tapes and removed content: entries by `tape/erased`, blobs by `blob/removed`.

All stores write them the same way. The database and audits check erased entries against them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from bubbot.errors import EntryNotFound
from bubbot.tape.entry import EMPTY_OBJECT, Kind, TapeEntry, event, thaw
from bubbot.tape.events import BlobsRemoved, TapeErased, TapeRenamed
from bubbot.tape.handle import spans_of
from bubbot.tape.store import Batch

HOME_TAPE = "bubbot/home"
"""The system's tape about the home itself; holds facts that belong to no session."""
TAPE_NAMED = "tape/named"
"""The name of a tape that is older than the database's check of names; once per tape."""
TAPE_RENAMED = "tape/renamed"
"""The last entry of an archive: the old and the new name of the tape."""
TAPE_ARCHIVED = "tape/archived"
TAPE_ERASED = "tape/erased"
BLOB_REMOVED = "blob/removed"
SPANS_PER_FACT = 100
"""Id ranges in one fact; the database reads a fact again for each entry it covers, so long ones are slow."""
BLOBS_PER_FACT = 500
_DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


def build_rename(tape: str, archive: str, batches: Sequence[Batch]) -> TapeEntry:
    """Build the last entry of an archived tape, dated like the fact that gives the reason."""
    entries = [entry for batch in batches if batch.tape == tape for entry in batch.entries]
    dates = [entry.date for entry in entries if entry.name in (TAPE_ARCHIVED, TAPE_ERASED)]
    date = dates[-1] if dates else entries[0].date if entries else ""
    return TapeRenamed(tape, archive).to_entry().with_meta(EMPTY_OBJECT, date)


def is_rename(kind: str, payload: Mapping[str, Any], old: str, new: str) -> bool:
    """Return true if this entry renames its tape from `old` to `new`."""
    data = payload.get("data")
    if kind != Kind.EVENT or payload.get("name") != TAPE_RENAMED or not isinstance(data, Mapping):
        return False
    return data.get("from") == old and data.get("to") == new


def split_covers(ids: Mapping[str, Iterable[int]]) -> list[dict[str, list[list[int]]]]:
    """Split the ids of tapes into the `covers` of as many facts as needed; there is at least one."""
    covers: list[dict[str, list[list[int]]]] = [{}]
    count = 0
    for tape, entry_ids in ids.items():
        for low, high in spans_of(list(entry_ids)):
            if count == SPANS_PER_FACT:
                covers.append({})
                count = 0
            covers[-1].setdefault(tape, []).append([low, high])
            count += 1
    return covers


def with_covers(batches: Sequence[Batch], tape: str, covers: Mapping[str, Any]) -> list[Batch]:
    """Put `covers` into the newest `tape/erased` of a tape's batches, if there is one."""
    result = list(batches)
    for position in reversed(range(len(result))):
        entries = list(result[position].entries)
        for index in reversed(range(len(entries))):
            entry = entries[index]
            if result[position].tape == tape and (entry.kind, entry.name) == (Kind.EVENT, TAPE_ERASED):
                data = thaw(entry.payload).get("data") or {}
                entries[index] = replace(entry, payload=event(TAPE_ERASED, {**data, "covers": covers}).payload)
                result[position] = structs.replace(result[position], entries=tuple(entries))
                return result
    return result


def erasure_date(batches: Sequence[Batch]) -> str:
    """Return the date of the newest `tape/erased` in the batches; empty if there is none."""
    dates = [entry.date for batch in batches for entry in batch.entries if entry.name == TAPE_ERASED]
    return dates[-1] if dates else ""


def build_further_erasure(covers: Mapping[str, Any], date: str) -> TapeEntry:
    """Build a fact for the home's tape about ids that did not fit into the first fact."""
    return TapeErased(covers=covers).to_entry().with_meta(EMPTY_OBJECT, date)


def build_blob_removals(tape: str, digests: Iterable[str], reason: str, date: str) -> Iterator[TapeEntry]:
    """Build the facts about removed blobs of a tape, for the home's tape."""
    names = sorted(digests)
    for start in range(0, len(names), BLOBS_PER_FACT):
        fact = BlobsRemoved(tape, tuple(names[start : start + BLOBS_PER_FACT]), reason)
        yield fact.to_entry().with_meta(EMPTY_OBJECT, date)


def find_digests(text: str | None) -> set[str]:
    """Return what stands in a stored text like the digest of a blob; nothing for an erased text."""
    return set(_DIGEST.findall(text)) if text else set()


def require_erasure(batches: Sequence[Batch]) -> Batch:
    """Return the first batch. Raise `EntryNotFound` if it holds no `tape/erased`, or if there is none."""
    if not batches or all(entry.name != TAPE_ERASED for entry in batches[0].entries):
        raise EntryNotFound("nothing was erased: the first batch holds no fact of it")
    return batches[0]
