"""What `bubbot tape gc` removes, in this process or in the bot that runs for the home.

Nothing is deleted from a tape: the content of old archives is erased, by a fact, as everywhere. What goes for good are
bytes that no entry names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from bubbot.cli.session_names import service, session_of
from bubbot.cli.write_command import CommandContext, CommandResult
from bubbot.quarantine import HOME_TAPE
from bubbot.runtime.recovery import merge_left
from bubbot.settings.loader import Settings
from bubbot.stores.sqlite.sizes import UnreferencedBlobs
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.entry import EMPTY_OBJECT, event, timestamp
from bubbot.tape.query import TapeQuery, moment
from bubbot.tape.store import Batch, ForkRecord, TapeSummary
from bubbot.views.inbox import SessionTraceView
from bubbot.wiring.app import now

LEFT = timedelta(days=30)
"""Age of a fork from which on no turn can be going on in it."""
_LONG_AGO = "1970-01-01T00:00:00+00:00"


@dataclass(frozen=True, slots=True)
class CollectTapes:
    """`older`: days that count for archives; None for those of the settings."""

    older: int | None


@dataclass(frozen=True, slots=True)
class ExpiredTape:
    """An archive to be erased: its name, its session, when it was put aside, its entries that have content still."""

    name: str
    session: str
    at: datetime
    entries: int


@dataclass(frozen=True, slots=True)
class GcPlan:
    """What there is to remove. `days`: the age of archives that counted, 0 for none."""

    days: int | None
    archives: tuple[ExpiredTape, ...]
    forks: tuple[ForkRecord, ...]
    blobs: UnreferencedBlobs


async def plan(store: SqliteStore, settings: Settings, older: int | None, at: datetime) -> GcPlan:
    """Looks for what there is to remove, and writes nothing."""
    days = older if older is not None else settings.store.archive_days or None
    archives: list[ExpiredTape] = []
    for one in await store.tapes() if days is not None else ():
        since = await _archived_at(store, one)
        if since is None or days is None or since > at - timedelta(days=days):
            continue
        if entries := await store.erasable(one.name):
            archives.append(ExpiredTape(one.name, await session_of(store, one.name), since, entries))
    forks = tuple(one for one in await store.forks() if _touched(one) <= at - LEFT)
    return GcPlan(days, tuple(archives), forks, await store.loose_blobs())


async def _archived_at(store: SqliteStore, one: TapeSummary) -> datetime | None:
    """When a tape was put aside, as its name says; by its newest entry where another program named it."""
    if one.archived_from is None:
        return None
    stamp = one.name.rpartition("@")[2]
    if found := moment(f"{stamp}+00:00"):
        return found
    newest = (await store.fetch([TapeQuery(one.name, newest=True, limit=2)]))[0]
    dates = [found for entry in newest if (found := moment(entry.date or ""))]  # the last one may have none of its own
    return dates[0] if dates else None


def _touched(record: ForkRecord) -> datetime:
    dates = [entry.date or "" for batch in record.staged for entry in batch.entries]
    found = moment(max(dates, default=_LONG_AGO)) or moment(_LONG_AGO)
    assert found is not None
    return found


async def collect(desk: CommandContext, given: CollectTapes) -> CommandResult:
    """Removes it, and gives the room back to the disk."""
    at = now()
    before = await desk.store.room()
    found = await plan(desk.store, desk.settings, given.older, at)
    for record in found.forks:
        await merge_left(desk.store, service(desk.store, record.tape), record)
    for doomed in found.archives:
        await _erase(desk, doomed, at)
    blobs = sum([await _drop(desk, tape, found.blobs, at) for tape in found.blobs.tapes])
    await desk.store.give_back(whole=desk.schedules is None)
    after = await desk.store.room()
    done = words(found, blobs, "erased", "merged", "removed")
    freed = max(0, before.file + before.wal - after.file - after.wal)
    lines = [*done, f"The database takes {_bytes(after.file + after.wal)}, {_bytes(freed)} less than before."]
    if not after.gives_back:
        lines.append(
            "It is from an earlier version: with the bot stopped, bubbot tape gc gives its free room back, too."
        )
    return CommandResult("\n".join(lines) + "\n")


def words(found: GcPlan, blobs: int, erased: str, merged: str, removed: str) -> list[str]:
    """What was done, or would be."""
    entries = sum(one.entries for one in found.archives)
    if found.days is None:
        archives = "Archives are kept for ever ([store] archive_days = 0)."
    else:
        archives = f"Archives of at least {found.days} days {erased}: {len(found.archives)}, with {entries} {'entry' if entries == 1 else 'entries'}."
    return [
        archives,
        f"Turns cut off at least {LEFT.days} days ago {merged}: {len(found.forks)}.",
        f"Blobs that nothing names {removed}: {blobs}.",
    ]


async def _erase(desk: CommandContext, doomed: ExpiredTape, at: datetime) -> None:
    """The archive, and what inboxes and outboxes hold of its session from that time: one transaction."""
    traces = [
        (one.name, await _traces(desk.store, one.name, doomed))
        for one in await desk.store.tapes()
        if doomed.session and one.name.startswith(("bubbot/inbox/", "bubbot/outbox/"))
    ]
    data = {"archive": doomed.name, "entries": doomed.entries, "reason": "retention"}
    fact = event("tape/erased", data).stamped(EMPTY_OBJECT, timestamp(at))
    await desk.store.erase_archive(doomed.name, Batch(HOME_TAPE, (fact,)), tuple(traces))


async def _traces(store: SqliteStore, tape: str, doomed: ExpiredTape) -> tuple[int, ...]:
    view = SessionTraceView(doomed.session)
    queries: Sequence[TapeQuery] = [replace(query, until=doomed.at) for query in view.queries(tape)]
    return view.fold(await store.fetch(queries))


async def _drop(desk: CommandContext, tape: str, loose: UnreferencedBlobs, at: datetime) -> int:
    """A turn keeps its blobs before it names them, so no turn may be going on."""
    session = await session_of(desk.store, tape)
    if desk.schedules is not None and not session:  # its first turn may be under way
        return 0
    async with desk.alone(tape, session):
        return await desk.store.drop_blobs(tape, loose, timestamp(at))


def _bytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
