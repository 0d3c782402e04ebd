"""Start-up: merge what an earlier process left open, and queue the inbounds it left unanswered."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bubbot.ports.inbox import InboxReader, interrupted_entry
from bubbot.ports.turn import AcceptedInbound, TapeChange
from bubbot.tape import entry as make
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.fork import ForkedTape
from bubbot.tape.service import TapeService
from bubbot.tape.store import ForkRecord, TapeStore
from bubbot.texts import OUTCOME_UNKNOWN

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """The result of a recovery.

    Attributes:
        interrupted_turns: turns that were cut off.
        open_inbounds: the inbounds that still need an answer, oldest first.
        changes: the changes that are not on their tapes yet, oldest first.
    """

    interrupted_turns: int
    open_inbounds: tuple[AcceptedInbound, ...]
    changes: tuple[TapeChange, ...] = ()


async def recover(
    store: TapeStore, inboxes: Sequence[InboxReader], open_tape: Callable[[str], TapeService]
) -> RecoveryResult:
    """Merge every open fork of these channels completely, then read what their inboxes still have to process.

    Merging marks no inbound done; a turn that was cut off counts as an attempt for its inbounds.

    Args:
        store: the store with the forks.
        inboxes: the inboxes of the channels that this process runs.
        open_tape: makes the tape service of a tape name.
    """
    names = {inbox.name for inbox in inboxes}
    count = 0
    records = await store.forks()
    for record in records:
        if record.parent:
            continue  # it is merged with the fork that it is a fork of
        start = _turn_inbounds(record)
        inbounds = [(tape, inbound_id) for tape, inbound_id in start if tape in names]
        if start and not inbounds:
            continue  # another process runs that channel
        await _merge_fork(open_tape(record.tape).reopen_fork(record), records, inbounds)
        count += 1
    still_open = [accepted for inbox in inboxes for accepted in await inbox.open_inbounds()]
    if count or still_open:
        log.info(
            "resuming interrupted work",
            extra={"action": "recovery", "interrupted": count, "open": len(still_open)},
        )
    changes = [change for inbox in inboxes for change in await inbox.open_changes()]
    return RecoveryResult(count, tuple(still_open), tuple(changes))


async def merge_orphan(store: TapeStore, tape: TapeService, record: ForkRecord) -> None:
    """Merge one fork that no process will continue, whatever its channel; a fork of a fork goes with that one."""
    if not record.parent:
        await _merge_fork(tape.reopen_fork(record), await store.forks(), _turn_inbounds(record))


async def _merge_fork(fork: ForkedTape, records: Sequence[ForkRecord], inbounds: Sequence[tuple[str, int]]) -> None:
    """Merge the forks of a fork into it, innermost first, then the fork as an interrupted turn."""
    await _merge_forks_of(fork, records)
    meta = _turn_meta(fork)
    turn = meta.get("turn", "")
    facts = [*_unknown_results(fork.delta), make.event("turn/interrupted", {"turn": turn})]
    await fork.append([replace(entry, meta=meta) for entry in facts])
    for tape in {name for name, _ in inbounds}:
        fork.stage(tape, [interrupted_entry([inbound_id for name, inbound_id in inbounds if name == tape], turn=turn)])
    await fork.merge()


async def _merge_forks_of(fork: ForkedTape, records: Sequence[ForkRecord]) -> None:
    for record in records:
        if record.parent == fork.id:
            inner = fork.reopen_fork(record)
            await _merge_forks_of(inner, records)
            await inner.append([replace(entry, meta=_turn_meta(inner)) for entry in _unknown_results(inner.delta)])
            await inner.merge()


def _turn_meta(fork: ForkedTape) -> dict[str, str]:
    """Build the meta of what the recovery adds: the turn that wrote the fork, if one did."""
    turn = next((str(entry.meta["turn"]) for entry in fork.delta if "turn" in entry.meta), "")
    return {"turn": turn} if turn else {}


def _turn_inbounds(record: ForkRecord) -> list[tuple[str, int]]:
    """List the inbounds of the fork's turn, joined ones too, as (inbox tape, id)."""
    return [
        (tape, inbound_id)
        for batch in record.staged
        for entry in batch.entries
        if entry.name in ("turn/start", "turn/joined")
        for tape, inbound_id in entry.payload["data"]["inbounds"]
    ]


def _unknown_results(delta: Sequence[TapeEntry]) -> list[TapeEntry]:
    """Build results that say that the outcome is unknown, for the calls that have no result."""
    missing: list[str] = []
    for entry in delta:
        if entry.kind == Kind.TOOL_CALL:
            missing += [call["id"] for call in entry.payload["calls"]]
        elif entry.kind == Kind.TOOL_RESULT:
            for answered in (result["tool_call_id"] for result in entry.payload["results"]):
                if answered in missing:
                    missing.remove(answered)  # once: models reuse ids
    if not missing:
        return []
    return [
        make.tool_result([{"tool_call_id": call, "content": OUTCOME_UNKNOWN, "is_error": True} for call in missing])
    ]
