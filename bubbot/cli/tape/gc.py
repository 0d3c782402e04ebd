"""Garbage collection of the tapes.

It deletes nothing from a tape: a fact erases the content of old archives, like every erasure. It permanently removes
only bytes that no entry names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count

from msgspec import Struct, structs

from bubbot.app.events import OWN_REFERENCES
from bubbot.app.own_features import copying_events, quoting_events
from bubbot.app.tapes import tape_service
from bubbot.cli.tape.results import CollectedArchive, Collection, CopiesElsewhere
from bubbot.gateway.inbox_views import SessionTraceView
from bubbot.ports.session_names import read_session
from bubbot.ports.store import UnreferencedBlobs, require_garbage_collection
from bubbot.runtime.recovery import merge_orphan
from bubbot.settings.loader import Settings
from bubbot.shell_command import CommandContext
from bubbot.tape.copies import KnownCopies, find_copies_of_tapes
from bubbot.tape.entry import EMPTY_OBJECT, Kind, timestamp
from bubbot.tape.erasure import HOME_TAPE
from bubbot.tape.events import TapeErased
from bubbot.tape.query import TapeQuery, parse_moment
from bubbot.tape.store import Batch, ForkRecord, TapeStore, TapeSummary

ABANDONED_FORK_AGE = timedelta(days=30)
"""The age at which no turn can still be running in a fork."""
_LONG_AGO = "1970-01-01T00:00:00+00:00"


class ExpiredTape(Struct, frozen=True):
    """An archive to erase.

    Attributes:
        name: its name.
        session: its session id; empty if it has none.
        at: the time at which it was archived.
        entries: the number of entries that still have content.
        copies: what other chats hold of it; that stays.
    """

    name: str
    session: str
    at: datetime
    entries: int
    copies: tuple[CopiesElsewhere, ...] = ()


class GcPlan(Struct, frozen=True):
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

    def describe_run(
        self,
        *,
        blobs: int | None = None,
        size: int | None = None,
        freed: int | None = None,
        gives_back: bool | None = None,
    ) -> Collection:
        """Return the collection for a report; without arguments it was only planned.

        Args:
            blobs: the number of removed blobs.
            size: bytes of the database afterwards.
            freed: bytes freed.
            gives_back: the database returns free space to the disk.
        """
        return Collection(
            blobs is None,
            self.days,
            tuple(CollectedArchive(each.name, each.session, each.entries, each.copies) for each in self.archives),
            len(self.forks),
            sum(map(len, self.blobs.tapes.values())) if blobs is None else blobs,
            size,
            freed,
            fork_days=ABANDONED_FORK_AGE.days,
            gives_back=gives_back,
        )


async def plan_gc(store: TapeStore, settings: Settings, older: int | None, at: datetime) -> GcPlan:
    """Find the data to remove without writing anything."""
    garbage = require_garbage_collection(store)
    days = older if older is not None else settings.store.archive_days or None
    archives: list[ExpiredTape] = []
    for tape in await store.tapes() if days is not None else ():
        since = await _archived_at(store, tape)
        if since is None or days is None or since > at - timedelta(days=days):
            continue
        if entries := await garbage.count_erasable(tape.name):
            archives.append(ExpiredTape(tape.name, await read_session(store, tape.name), since, entries))
    if archives:
        archives = await _add_copies(store, archives)
    turns = [fork for fork in await store.forks() if not fork.parent]  # nested forks are merged with them
    forks = tuple(fork for fork in turns if _last_activity(fork) <= at - ABANDONED_FORK_AGE)
    return GcPlan(days, tuple(archives), forks, await garbage.find_unreferenced_blobs())


async def _add_copies(store: TapeStore, archives: Sequence[ExpiredTape]) -> list[ExpiredTape]:
    """Add to each archive what other chats hold of it: it outlives the archive, as after `,reset erase copies=keep`."""
    # Imported here: features of packages may load the whole kernel, and every command of tapes loads this file.
    from bubbot.app.installed import load_features

    references, together = load_features().references, {each.name: (each.name,) for each in archives}
    found = await find_copies_of_tapes(store, together, references, copying_events())

    async def name(copies: KnownCopies) -> CopiesElsewhere:
        session = await read_session(store, copies.tape)
        return CopiesElsewhere(copies.tape, session, len(copies.entries), len(copies.prompts))

    return [
        structs.replace(each, copies=tuple([await name(copies) for copies in found[each.name]])) for each in archives
    ]


async def _archived_at(store: TapeStore, tape: TapeSummary) -> datetime | None:
    """Return the time of archiving, by the tape's name, or by its newest entry if another program named it."""
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


async def collect(context: CommandContext, gc_plan: GcPlan, at: datetime) -> Collection:
    """Remove the data of a fresh plan and return the free space to the disk."""
    garbage = require_garbage_collection(context.store)
    before = await garbage.measure_size()
    references = OWN_REFERENCES
    if gc_plan.forks:
        # Imported here: features of packages may load the whole kernel, and every command of tapes loads this file.
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
    freed = max(0, before.file + before.wal - after.file - after.wal)
    return gc_plan.describe_run(blobs=blobs, size=after.file + after.wal, freed=freed, gives_back=after.gives_back)


async def _erase(context: CommandContext, archive: ExpiredTape, at: datetime) -> None:
    """Erase in one transaction the archive, its session's traces of that time in inboxes and outboxes, and its replays."""
    traces = [
        (tape.name, await _traces(context.store, tape.name, archive))
        for tape in await context.store.tapes()
        if archive.session and tape.name.startswith(("bubbot/inbox/", "bubbot/outbox/"))
    ]
    for tape, names in quoting_events().items():
        traces.append((tape, await _find_quotes(context.store, tape, names, archive)))
    erased = TapeErased(archive=archive.name, entries=archive.entries, reason="retention")
    fact = erased.to_entry().with_meta(EMPTY_OBJECT, timestamp(at))
    await require_garbage_collection(context.store).erase_archive(
        archive.name, Batch(HOME_TAPE, (fact,)), tuple(traces)
    )


async def _traces(store: TapeStore, tape: str, archive: ExpiredTape) -> tuple[int, ...]:
    view = SessionTraceView(archive.session)
    traces, ends = view.queries(tape)
    return view.fold(await store.fetch([replace(traces, until=archive.at), ends]))


async def _find_quotes(store: TapeStore, tape: str, names: tuple[str, ...], archive: ExpiredTape) -> tuple[int, ...]:
    """Find the facts that quote the archive: under its session's name of that time, and under its current name."""
    every = TapeQuery(tape, kinds=(Kind.EVENT,), names=names)
    facts, earlier = await store.fetch([every, replace(every, until=archive.at)])
    early = {entry.id for entry in earlier}
    return tuple(
        entry.id
        for entry in facts
        if entry.data["tape"] == archive.name
        or (entry.id in early and archive.session and entry.data["session"] == archive.session)
    )


async def _drop_blobs(context: CommandContext, tape: str, loose: UnreferencedBlobs, at: datetime) -> int:
    """Drop the blobs of a tape while no turn runs, since a turn stores its blobs before it names them."""
    session = await read_session(context.store, tape)
    if context.is_running and not session:  # its first turn may be running
        return 0
    async with context.lock_tape(tape, session):
        return await require_garbage_collection(context.store).drop_blobs(tape, loose, timestamp(at))
