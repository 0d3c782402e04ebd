"""Recovery: find the work that an earlier process left open, and merge a session's open forks when it is taken up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct, structs

from bubbot.ports.inbox import InboxReader, interrupted_entry
from bubbot.ports.turn import AcceptedInbound, TapeChange
from bubbot.runtime.effects import missing_results
from bubbot.tape.entry import JsonObject, freeze
from bubbot.tape.events import TurnInterrupted, TurnJoined, TurnStart
from bubbot.tape.fork import ForkedTape, MergeResult
from bubbot.tape.service import TapeService
from bubbot.tape.store import ForkRecord, TapeStore

log = logging.getLogger(__name__)


class OpenWork(Struct, frozen=True):
    """The open work of an earlier process.

    Attributes:
        sessions: the sessions with open forks; taking one up recovers it.
        inbounds: the inbounds without an answer, oldest first; turns of open forks do not count as attempts yet.
        changes: the changes not written to their tapes yet, oldest first.
    """

    sessions: tuple[str, ...] = ()
    inbounds: tuple[AcceptedInbound, ...] = ()
    changes: tuple[TapeChange, ...] = ()


class InterruptedTurn(Struct, frozen=True):
    """A turn whose fork was merged after its process ended.

    Attributes:
        turn: its id; empty for a fork that no turn wrote.
        inbounds: the answered ones, joined ones included, as (inbox tape, id).
        merged: the stored entries.
    """

    turn: str
    inbounds: tuple[tuple[str, int], ...]
    merged: MergeResult


async def find_open_work(
    store: TapeStore,
    inboxes: Mapping[str, InboxReader],
    open_tape: Callable[[str], TapeService],
    tape_of: Callable[[str], str],
) -> OpenWork:
    """Find the open work of the channels of this process. Merge forks that no session will take up.

    Args:
        inboxes: by channel.
        open_tape: opens a tape by its name.
        tape_of: returns the tape name of a session.
    """
    sessions: list[str] = []
    for tape, session in await _forked_tapes(store):
        if session and session.partition(":")[0] not in inboxes:
            continue  # another process runs that channel
        if session and tape_of(session) == tape:
            sessions.append(session)
        else:
            await merge_open_forks(open_tape(tape))
    inbounds = [accepted for inbox in inboxes.values() for accepted in await inbox.open_inbounds()]
    if sessions or inbounds:
        log.info(
            "resuming interrupted work",
            extra={"action": "recovery", "interrupted": len(sessions), "open": len(inbounds)},
        )
    changes = [change for inbox in inboxes.values() for change in await inbox.open_changes()]
    return OpenWork(tuple(sessions), tuple(inbounds), tuple(changes))


async def merge_forks_of_channels(
    store: TapeStore, channels: Collection[str], open_tape: Callable[[str], TapeService]
) -> None:
    """Merge the open forks of these channels' sessions and of no session. No session may be taken up meanwhile."""
    for tape, session in await _forked_tapes(store):
        if not session or session.partition(":")[0] in channels:
            await merge_open_forks(open_tape(tape))


async def _forked_tapes(store: TapeStore) -> list[tuple[str, str]]:
    """List the tapes with open forks, each with its session; empty for none.

    A fork of an earlier version names its session only in what its turn wrote.
    """
    sessions: dict[str, str] = {}
    for forked in await store.forked_sessions():
        session = forked.session or next(filter(None, map(_turn_session, await store.forks(forked.tape))), "")
        sessions[forked.tape] = session or sessions.get(forked.tape, "")
    return list(sessions.items())


async def merge_open_forks(tape: TapeService) -> list[InterruptedTurn]:
    """Merge all open forks of a tape, oldest first; an interrupted turn counts as an attempt.

    It marks no inbound done. Nested forks are merged first, innermost first.
    """
    records = await tape.open_forks()
    roots = [_without_own_inbounds(record) for record in records if not record.parent]
    return [await _merge_fork(tape.reopen_fork(record), records) for record in roots]


async def merge_orphan(tape: TapeService, record: ForkRecord) -> None:
    """Merge one fork that no process will continue, whatever its channel. A nested fork is merged with its outer one."""
    if not record.parent:
        await _merge_fork(tape.reopen_fork(_without_own_inbounds(record)), await tape.open_forks())


def _without_own_inbounds(record: ForkRecord) -> ForkRecord:
    """Exclude the inbounds of an interrupted turn from its erasure: they are open, and the next turn needs them."""
    if record.reset is None:
        return record
    own = set(_turn_inbounds(record))
    erased = [(tape, tuple(each for each in ids if (tape, each) not in own)) for tape, ids in record.reset.erase_also]
    return structs.replace(record, reset=structs.replace(record.reset, erase_also=tuple(erased)))


async def _merge_fork(fork: ForkedTape, records: Sequence[ForkRecord]) -> InterruptedTurn:
    """Merge the nested forks of a fork, innermost first, then the fork as an interrupted turn."""
    inbounds = [inbound for record in records if record.id == fork.id for inbound in _turn_inbounds(record)]
    await _merge_forks_of(fork, records)
    meta = _turn_meta(fork)
    turn = meta.get("turn", "")
    facts = [*missing_results(fork.delta, ""), TurnInterrupted(turn).to_entry()]
    await fork.append([entry.with_meta(meta, "") for entry in facts])
    for tape in dict.fromkeys(name for name, _ in inbounds):
        fork.stage(tape, [interrupted_entry([inbound_id for name, inbound_id in inbounds if name == tape], turn=turn)])
    return InterruptedTurn(turn, tuple(inbounds), await fork.merge())


async def _merge_forks_of(fork: ForkedTape, records: Sequence[ForkRecord]) -> None:
    for record in records:
        if record.parent == fork.id:
            inner = fork.reopen_fork(record)
            await _merge_forks_of(inner, records)
            meta = _turn_meta(inner)
            await inner.append([entry.with_meta(meta, "") for entry in missing_results(inner.delta, inner.id)])
            await inner.merge()


def _turn_meta(fork: ForkedTape) -> JsonObject:
    """Build the meta of recovery's entries: the turn that wrote the fork, if any."""
    turn = next((str(entry.meta["turn"]) for entry in fork.delta if "turn" in entry.meta), "")
    meta: JsonObject = freeze({"turn": turn} if turn else {}, "meta")
    return meta


def _turn_session(record: ForkRecord) -> str:
    """Return the session that the fork's turn names; empty if no turn wrote it."""
    starts = (entry for batch in record.staged for entry in batch.entries if entry.name in TurnStart.EVENTS)
    return next((str(start.payload["data"].get("session", "")) for start in starts), "")


def _turn_inbounds(record: ForkRecord) -> list[tuple[str, int]]:
    """List the inbounds of the fork's turn, joined ones too, as (inbox tape, id)."""
    return [
        (tape, inbound_id)
        for batch in record.staged
        for entry in batch.entries
        if entry.name in (*TurnStart.EVENTS, *TurnJoined.EVENTS)
        for tape, inbound_id in entry.payload["data"]["inbounds"]
    ]
