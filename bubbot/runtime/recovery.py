"""Start-up: what an earlier process left open is merged as it is, and what it owed is queued again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bubbot.errors import TapeConflict
from bubbot.inbox import Inbox, interrupted
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
    """What a start-up found: turns that were cut off, the inbounds that still need an answer, and the changes that
    are not on their tapes yet, oldest first."""

    interrupted: int
    open: tuple[AcceptedInbound, ...]
    changes: tuple[TapeChange, ...] = ()


async def recover(store: TapeStore, inboxes: Sequence[Inbox], service: Callable[[str], TapeService]) -> RecoveryResult:
    """Merges every open fork of these channels whole, then reads what their inboxes still owe.

    `service` makes the tape service of a tape name. Merging marks no inbound done; a turn that was cut off
    counts as an attempt for its inbounds.
    """
    names = {inbox.name for inbox in inboxes}
    count = 0
    for record in await store.forks():
        start = _start(record)
        owed = [(tape, inbound_id) for tape, inbound_id in start if tape in names]
        if start and not owed:
            continue  # another process runs that channel
        await _merge(store, service(record.tape), record, owed)
        count += 1
    still_open = [accepted for inbox in inboxes for accepted in await inbox.open()]
    if count or still_open:
        log.info(
            "taking up what was left open",
            extra={"action": "recovery", "interrupted": count, "open": len(still_open)},
        )
    changes = [change for inbox in inboxes for change in await inbox.changes()]
    return RecoveryResult(count, tuple(still_open), tuple(changes))


async def merge_left(store: TapeStore, tape: TapeService, record: ForkRecord) -> None:
    """Merges one fork that no process will go on with, whatever channel it is of."""
    await _merge(store, tape, record, _start(record))


async def _merge(store: TapeStore, tape: TapeService, record: ForkRecord, owed: Sequence[tuple[str, int]]) -> None:
    fork = tape.reopen_fork(record)
    try:
        await _close(fork, owed)
    except TapeConflict:
        # The parent grew since: the delta goes to its end, with other ids than its own entries may cite.
        await _close(tape.reopen_fork(replace(record, base=await store.head(record.tape))), owed)


async def _close(fork: ForkedTape, owed: Sequence[tuple[str, int]]) -> None:
    turn = next((str(entry.meta["turn"]) for entry in fork.delta if "turn" in entry.meta), "")
    meta = {"turn": turn} if turn else {}
    facts = [*_unfinished(fork.delta), make.event("turn/interrupted", {"turn": turn})]
    await fork.append([replace(entry, meta=meta) for entry in facts])
    for tape in {name for name, _ in owed}:
        fork.stage(tape, [interrupted([one for name, one in owed if name == tape], turn=turn)])
    await fork.merge()


def _start(record: ForkRecord) -> list[tuple[str, int]]:
    """The inbounds of the turn whose fork this is, joined ones too: (inbox tape, id) each."""
    return [
        (tape, inbound_id)
        for batch in record.staged
        for entry in batch.entries
        if entry.name in ("turn/start", "turn/joined")
        for tape, inbound_id in entry.payload["data"]["inbounds"]
    ]


def _unfinished(delta: Sequence[TapeEntry]) -> list[TapeEntry]:
    """Results that say that nothing is known, for the calls that have none."""
    missing: list[str] = []
    for entry in delta:
        if entry.kind == Kind.TOOL_CALL:
            missing += [call["id"] for call in entry.payload["calls"]]
        elif entry.kind == Kind.TOOL_RESULT:
            for answered in (result["tool_call_id"] for result in entry.payload["results"]):
                if answered in missing:
                    missing.remove(answered)  # once: models use an id again
    if not missing:
        return []
    return [
        make.tool_result([{"tool_call_id": call, "content": OUTCOME_UNKNOWN, "is_error": True} for call in missing])
    ]
