"""The work of `bubbot tape gc`, in this process or in the running bot.

It deletes nothing from a tape: a fact erases the content of old archives, as everywhere. It removes for good only bytes
that no entry names.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count

from bubbot.app.events import OWN_REFERENCES
from bubbot.app.tapes import tape_service
from bubbot.cli.tape.results import CollectedArchive, GcResult
from bubbot.features.replay.events import REPLAY_TAPE, REPLAYED
from bubbot.gateway.inbox_views import SessionTraceView
from bubbot.ports.command import Command, CommandContext, CommandResult
from bubbot.ports.session_names import read_session
from bubbot.ports.store import UnreferencedBlobs, require_garbage_collection
from bubbot.ports.text import format_bytes
from bubbot.ports.tool import ToolArgs
from bubbot.records import dataclass, json_data
from bubbot.runtime.recovery import merge_orphan
from bubbot.settings.loader import Settings
from bubbot.tape.entry import EMPTY_OBJECT, Kind, timestamp
from bubbot.tape.erasure import HOME_TAPE
from bubbot.tape.events import TapeErased
from bubbot.tape.query import TapeQuery, parse_moment
from bubbot.tape.store import Batch, ForkRecord, TapeStore, TapeSummary

ABANDONED_FORK_AGE = timedelta(days=30)
"""The age from which no turn can still be running in a fork."""
_LONG_AGO = "1970-01-01T00:00:00+00:00"


class CollectTapes(ToolArgs):
    """The arguments of a collection.

    Attributes:
        older: the minimum age of archives in days; None for that of the settings.
    """

    older: int | None = None


@dataclass(frozen=True, slots=True)
class ExpiredTape:
    """An archive to erase.

    Attributes:
        name: its name.
        session: its session id; empty if it has none.
        at: the time at which it was archived.
        entries: the number of entries that still have content.
    """

    name: str
    session: str
    at: datetime
    entries: int


@dataclass(frozen=True, slots=True)
class GcPlan:
    """The data that a collection would remove.

    Attributes:
        days: the minimum age of archives; None to keep them all.
        archives: the archives to erase.
        forks: abandoned turns to merge.
        blobs: blobs that no entry names.
    """

    days: int | None
    archives: tuple[ExpiredTape, ...]
    forks: tuple[ForkRecord, ...]
    blobs: UnreferencedBlobs


async def plan_gc(store: TapeStore, settings: Settings, older: int | None, at: datetime) -> GcPlan:
    """Find the data to remove; write nothing."""
    garbage = require_garbage_collection(store)
    days = older if older is not None else settings.store.archive_days or None
    archives: list[ExpiredTape] = []
    for tape in await store.tapes() if days is not None else ():
        since = await _archived_at(store, tape)
        if since is None or days is None or since > at - timedelta(days=days):
            continue
        if entries := await garbage.count_erasable(tape.name):
            archives.append(ExpiredTape(tape.name, await read_session(store, tape.name), since, entries))
    turns = [fork for fork in await store.forks() if not fork.parent]  # forks of these are merged with them
    forks = tuple(fork for fork in turns if _last_activity(fork) <= at - ABANDONED_FORK_AGE)
    return GcPlan(days, tuple(archives), forks, await garbage.find_unreferenced_blobs())


async def _archived_at(store: TapeStore, tape: TapeSummary) -> datetime | None:
    """Return the time a tape was archived, by its name; by its newest entry if another program named it."""
    if tape.archived_from is None:
        return None
    stamp = tape.name.rpartition("@")[2]
    if date := parse_moment(f"{stamp}+00:00"):
        return date
    newest = (await store.fetch([TapeQuery(tape.name, newest=True, limit=2)]))[0]
    dates = [date for entry in newest if (date := parse_moment(entry.date or ""))]  # the newest entry may have no date
    return dates[0] if dates else None


def _last_activity(record: ForkRecord) -> datetime:
    dates = [entry.date or "" for batch in record.staged for entry in batch.entries]
    newest = parse_moment(max(dates, default=_LONG_AGO)) or parse_moment(_LONG_AGO)
    assert newest is not None
    return newest


async def collect(context: CommandContext, arguments: CollectTapes) -> CommandResult:
    """Remove the data of the plan, and return the free space to the disk."""
    at, garbage = context.now(), require_garbage_collection(context.store)
    before = await garbage.measure_size()
    gc_plan = await plan_gc(context.store, context.settings, arguments.older, at)
    references = OWN_REFERENCES
    if gc_plan.forks:
        # Imported here: features of packages may need all of the kernel, and every command of tapes loads this file.
        from bubbot.app.installed import load_features

        references = load_features().references
    done, total = count(1), len(gc_plan.forks) + len(gc_plan.archives) + len(gc_plan.blobs.tapes)
    for record in gc_plan.forks:
        tape = tape_service(context.store, record.tape, references=references)
        await merge_orphan(tape, record)
        context.on_progress(next(done), total)
    for archive in gc_plan.archives:
        await _erase(context, archive, at)
        context.on_progress(next(done), total)
    blobs = 0
    for name in gc_plan.blobs.tapes:
        blobs += await _drop_blobs(context, name, gc_plan.blobs, at)
        context.on_progress(next(done), total)
    await garbage.release_pages(allow_rewrite=not context.is_running)
    after = await garbage.measure_size()
    report = describe_gc(gc_plan, blobs, "erased", "merged", "removed")
    freed = max(0, before.file + before.wal - after.file - after.wal)
    lines = [
        *report,
        f"The database takes {format_bytes(after.file + after.wal)}, {format_bytes(freed)} less than before.",
    ]
    if not after.gives_back:
        lines.append(
            "It is from an earlier version: with the bot stopped, bubbot tape gc gives its free room back, too."
        )
    result = gc_result(gc_plan, blobs, size=after.file + after.wal, freed=freed)
    return CommandResult("\n".join(lines) + "\n", data=json_data(result))


def gc_result(
    gc_plan: GcPlan, blobs: int, *, dry_run: bool = False, size: int | None = None, freed: int | None = None
) -> GcResult:
    """Return a collection, done or planned, for programs."""
    archives = tuple(CollectedArchive(archive.name, archive.session, archive.entries) for archive in gc_plan.archives)
    return GcResult(dry_run, gc_plan.days, archives, len(gc_plan.forks), blobs, size, freed)


def describe_gc(gc_plan: GcPlan, blobs: int, erased: str, merged: str, removed: str) -> list[str]:
    """Describe a collection, done or planned.

    Args:
        gc_plan: the data that it removes.
        blobs: the number of blobs.
        erased: the verb for archives.
        merged: the verb for turns.
        removed: the verb for blobs.
    """
    entries = sum(archive.entries for archive in gc_plan.archives)
    if gc_plan.days is None:
        archives = "Archives are kept for ever ([store] archive_days = 0)."
    else:
        archives = f"Archives of at least {gc_plan.days} days {erased}: {len(gc_plan.archives)}, with {entries} {'entry' if entries == 1 else 'entries'}."
    return [
        archives,
        f"Turns cut off at least {ABANDONED_FORK_AGE.days} days ago {merged}: {len(gc_plan.forks)}.",
        f"Blobs that nothing names {removed}: {blobs}.",
    ]


async def _erase(context: CommandContext, archive: ExpiredTape, at: datetime) -> None:
    """Erase the archive, the traces of its session in inboxes and outboxes of that time, and its replays, in one transaction."""
    traces = [
        (tape.name, await _traces(context.store, tape.name, archive))
        for tape in await context.store.tapes()
        if archive.session and tape.name.startswith(("bubbot/inbox/", "bubbot/outbox/"))
    ]
    traces.append((REPLAY_TAPE, await _find_replays(context.store, archive)))
    erased = TapeErased(archive=archive.name, entries=archive.entries, reason="retention")
    fact = erased.to_entry().with_meta(EMPTY_OBJECT, timestamp(at))
    await require_garbage_collection(context.store).erase_archive(
        archive.name, Batch(HOME_TAPE, (fact,)), tuple(traces)
    )


async def _traces(store: TapeStore, tape: str, archive: ExpiredTape) -> tuple[int, ...]:
    view = SessionTraceView(archive.session)
    traces, ends = view.queries(tape)
    return view.fold(await store.fetch([replace(traces, until=archive.at), ends]))


async def _find_replays(store: TapeStore, archive: ExpiredTape) -> tuple[int, ...]:
    """Find the replays that quote the archive: those of its session of that time, and those of it under its present name."""
    every = TapeQuery(REPLAY_TAPE, kinds=(Kind.EVENT,), names=(REPLAYED,))
    facts, earlier = await store.fetch([every, replace(every, until=archive.at)])
    early = {entry.id for entry in earlier}
    return tuple(
        entry.id
        for entry in facts
        if entry.data["tape"] == archive.name
        or (entry.id in early and archive.session and entry.data["session"] == archive.session)
    )


async def _drop_blobs(context: CommandContext, tape: str, loose: UnreferencedBlobs, at: datetime) -> int:
    """Drop the blobs of a tape while no turn runs: a turn stores its blobs before it names them."""
    session = await read_session(context.store, tape)
    if context.is_running and not session:  # its first turn may be running
        return 0
    async with context.lock_tape(tape, session):
        return await require_garbage_collection(context.store).drop_blobs(tape, loose, timestamp(at))


COLLECT_TAPES = Command(
    name="tape gc", run=collect, args=CollectTapes, writes=True, result=GcResult, progress=("Collecting", "tapes")
)
