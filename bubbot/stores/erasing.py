"""Merges of forks, archiving of tapes, erasure of content, and removal of unreferenced blobs.

The functions run in a write transaction.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TypeAlias

from msgspec import Struct

from bubbot.errors import EntryNotFound
from bubbot.stores.names import SELECT_FIRST, SELECT_NAME_FACT, parse_name_fact
from bubbot.stores.transaction import Contents, Fetch, Transaction, encode_staged
from bubbot.tape import erasure
from bubbot.tape.entry import TapeEntry
from bubbot.tape.store import Batch, ForkRecord, ResetBatch

Traces: TypeAlias = Sequence[tuple[str, tuple[int, ...]]]
"""Single entries of several tapes: (tape, ids) each."""
BlobTraces: TypeAlias = Sequence[tuple[str, tuple[str, ...]]]
"""Blobs of several tapes: (tape, digests) each."""


async def merge_fork(
    transaction: Transaction,
    fork: str,
    batches: Sequence[Batch],
    contents: Contents,
    reset: tuple[str, ResetBatch] | None,
) -> list[tuple[TapeEntry, ...]]:
    """Merge a fork into its parent, the tape or another fork; see `TapeStore.merge_fork`.

    `contents`: those of the batches for tapes, encoded already.
    """
    await transaction.refuse_lost_leases(batches)
    opened = await transaction.find_fork(fork)
    if parent := ForkRecord(fork, opened.tape, opened.base, ()).parent:
        await transaction.drop_fork(fork)
        await transaction.extend_fork(parent, batches, encode_staged(batches), None)
        return [batch.entries for batch in batches]
    if reset is None:
        stored = await transaction.append(batches, contents)  # first: a conflict leaves nothing to undo
        await transaction.drop_fork(fork)
        return stored
    if reset[0] == opened.tape:
        # A reset must not archive entries that the fork has not seen.
        await transaction.require_head(opened.tape, opened.base)
    await transaction.drop_fork(fork)
    return await put_aside(transaction, *reset, batches)


async def put_aside(
    transaction: Transaction, tape: str, reset_batch: ResetBatch, batches: Sequence[Batch]
) -> list[tuple[TapeEntry, ...]]:
    """Archive the tape, append the batches that restart it, and erase if `reset_batch` requires it."""
    old_tape = await transaction.find_tape(tape)
    if old_tape is not None:
        await transaction.append([Batch(tape, (erasure.build_rename(tape, reset_batch.archive, batches),))])
        await transaction.rename(old_tape.tape, reset_batch.archive, tape)
    if not reset_batch.erase:
        return await transaction.append(batches)
    rows = await transaction.fetch("SELECT name FROM tapes WHERE archived_from = ? ORDER BY name", (tape,))
    targets = await _find_targets(transaction.fetch, [name for (name,) in rows], reset_batch.erase_also)
    return await _erase(transaction, tape, targets, batches)


async def erase_archive(transaction: Transaction, archive: str, fact: Batch, also: Traces) -> None:
    """Erase one archive and single entries of other tapes by the event `tape/erased` on a system tape.

    Raises:
        EntryNotFound: there is no such archive.
    """
    if not await transaction.fetch("SELECT 1 FROM tapes WHERE name = ? AND archived_from IS NOT NULL", (archive,)):
        raise EntryNotFound(f"{archive} is not an archive")
    await _erase(transaction, fact.tape, await _find_targets(transaction.fetch, [archive], also), [fact])


async def erase_entries(
    transaction: Transaction, batches: Sequence[Batch], entries: Traces, blobs: BlobTraces
) -> list[tuple[TapeEntry, ...]]:
    """Append the batches and erase single entries, with the blobs that only these cite; see `TapeStore.erase`."""
    tape, date = erasure.require_erasure(batches).tape, erasure.erasure_date(batches)
    targets = await _find_targets(transaction.fetch, (), entries)
    stored = await _erase(transaction, tape, targets, batches)
    for name, digests in blobs:
        present = await _stored_blobs(transaction.fetch, name)
        await remove_blobs(transaction, name, sorted(present.intersection(digests)), ("erased", date))
    return stored


async def _stored_blobs(fetch: Fetch, name: str) -> set[str]:
    rows = await fetch("SELECT digest FROM blobs WHERE tape = (SELECT tape FROM tapes WHERE name = ?)", (name,))
    return {digest for (digest,) in rows}


async def _cited_blobs(fetch: Fetch, name: str, ids: Collection[int]) -> set[str]:
    """Return the stored blobs of a tape that some of these entries cite."""
    if not (stored := await _stored_blobs(fetch, name)):
        return set()
    found: set[str] = set()
    for entry_id in ids:
        rows = await fetch(
            "SELECT payload, meta FROM entries WHERE tape = (SELECT tape FROM tapes WHERE name = ?) AND id = ?",
            (name, entry_id),
        )
        found |= stored.intersection(digest for row in rows for text in row for digest in erasure.find_digests(text))
    return found


async def _named_blobs(fetch: Fetch, name: str) -> set[str]:
    """Return the digests in the entries of a tape and in the open forks."""
    rows = await fetch(
        "SELECT payload, meta FROM entries WHERE tape = (SELECT tape FROM tapes WHERE name = ?) AND payload IS NOT NULL",
        (name,),
    )
    rows += await fetch("SELECT entries, NULL FROM fork_batches")
    return {digest for row in rows for text in row for digest in erasure.find_digests(text)}


async def count_erasable(fetch: Fetch, archive: str) -> int:
    """Count the entries of an archive that an erasure would blank."""
    return len((await _find_targets(fetch, [archive], ())).ids[archive])


class _ErasureTargets(Struct, frozen=True):
    """The scope of an erasure: ids of entries by tape, and the archives that lose their blobs."""

    ids: dict[str, set[int]]
    archives: tuple[str, ...]


async def _find_targets(fetch: Fetch, archives: Sequence[str], also: Traces) -> _ErasureTargets:
    """Find the entries to erase, before the facts about the erasure are written.

    It skips blank entries and entries about names of the tape and about erasures.
    """
    ids: dict[str, set[int]] = {}
    for name, only in [*((archive, None) for archive in archives), *also]:
        rows = await fetch("SELECT tape, archived_from FROM tapes WHERE name = ?", (name,))
        for number, archived_from in rows:
            found = await _with_content(fetch, number, only) - await _protected_ids(fetch, number, name, archived_from)
            ids[name] = ids.get(name, set()) | found
    return _ErasureTargets(ids, tuple(archives))


async def _with_content(fetch: Fetch, tape: int, only: Sequence[int] | None) -> set[int]:
    sql = "SELECT id FROM entries INDEXED BY entries_id WHERE tape = ? AND payload IS NOT NULL"
    if only is None:
        return {entry_id for (entry_id,) in await fetch(sql, (tape,))}
    return {entry_id for entry_id in only if await fetch(f"{sql} AND id = ?", (tape, entry_id))}


async def _protected_ids(fetch: Fetch, tape: int, name: str, archived_from: str | None) -> set[int]:
    """Find the entries that erasures must not blank: those about the tape's names, and facts of erasures."""
    facts = await fetch(
        "SELECT id FROM entries INDEXED BY entries_name WHERE tape = ? AND name = ? AND kind = 'event' "
        "AND EXISTS (SELECT 1 FROM erased WHERE fact = entries.seq)",
        (tape, erasure.TAPE_ERASED),
    )
    ids = {entry_id for (entry_id,) in facts}
    newest = "SELECT id, kind, payload FROM entries INDEXED BY entries_id WHERE tape = ? ORDER BY id DESC LIMIT 1"
    for entry_id, kind, payload in await fetch(newest, (tape,)) if archived_from is not None else ():
        if payload is not None and erasure.is_rename(kind, json.loads(payload), archived_from or name, name):
            ids.add(entry_id)
    first, fact = await fetch(SELECT_FIRST, (tape,)), await fetch(SELECT_NAME_FACT, (tape, erasure.TAPE_NAMED))
    if named := parse_name_fact(first, fact):
        ids.add(named[0])
    return ids


async def _erase(
    transaction: Transaction, tape: str, targets: _ErasureTargets, batches: Sequence[Batch]
) -> list[tuple[TapeEntry, ...]]:
    """Append the batches, list the erased entries in their fact `tape/erased`, and blank these entries.

    If the fact would become too long, further facts go to the home tape, like those about blobs. The commit makes all
    existing search indexes stale.
    """
    await transaction.begin_erasure()
    # A batch may begin a tape with the same name again.
    numbers = {name: end.tape for name in targets.ids if (end := await transaction.find_tape(name)) is not None}
    first, *overflow = erasure.split_covers(targets.ids)
    stored = await transaction.append(erasure.with_covers(batches, tape, first))
    fact = await transaction.fetch(
        "SELECT seq FROM entries INDEXED BY entries_name WHERE tape = (SELECT tape FROM tapes WHERE name = ?) "
        "AND name = 'tape/erased' AND kind = 'event' ORDER BY id DESC LIMIT 1",
        (tape,),
    )
    if not fact:
        raise EntryNotFound(f"nothing was erased: {tape} would hold no fact of it")
    date = erasure.erasure_date(batches)
    singles = {name: ids for name, ids in targets.ids.items() if name not in targets.archives}
    cited = {name: await _cited_blobs(transaction.fetch, name, ids) for name, ids in singles.items()}
    await _blank(transaction, fact[0][0], first, numbers)
    for covers in overflow:
        await transaction.append([Batch(erasure.HOME_TAPE, (erasure.build_further_erasure(covers, date),))])
        await _blank(transaction, transaction.seq, covers, numbers)
    for archive in targets.archives:
        digests = await _stored_blobs(transaction.fetch, archive)
        await remove_blobs(transaction, archive, sorted(digests), ("erased", date))
    for name, digests in cited.items():
        lone = digests and digests - await _named_blobs(transaction.fetch, name)
        await remove_blobs(transaction, name, sorted(lone), ("erased", date))
    return stored


async def _blank(
    transaction: Transaction, fact: int, covers: dict[str, list[list[int]]], numbers: dict[str, int]
) -> None:
    rows = [
        (numbers[name], entry_id)
        for name, spans in covers.items()
        for low, high in spans
        for entry_id in range(low, high + 1)
    ]
    await transaction.blank(fact, rows)


async def remove_blobs(transaction: Transaction, tape: str, digests: Sequence[str], reason: tuple[str, str]) -> None:
    """Remove blobs of a tape, each after a fact on the home tape that names it.

    `reason`: one word, and the date of the facts.
    """
    for fact in erasure.build_blob_removals(tape, digests, *reason):
        await transaction.append([Batch(erasure.HOME_TAPE, (fact,))])
        await transaction.delete_blobs(tape, fact.payload["data"]["digests"])
