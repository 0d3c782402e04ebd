"""What should have come to an end: turns that are open and messages that were not delivered, for too long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from bubbot.errors import StoreError, TapeCorrupt
from bubbot.home import Home
from bubbot.ops.doctor.finding import Finding
from bubbot.outbox import outbox_tape
from bubbot.stores.sqlite.store import SqliteStore, open_readonly
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.views.checkpoint import CheckpointView
from bubbot.views.outbox import OUTBOX_CHECKPOINT, OutboxView

LATE = timedelta(hours=1)
"""A running bot repeats a delivery that fails every 12 seconds or so."""
STUCK = timedelta(days=1)
PATIENT = outbox_tape("stdin")
"""What is said in a terminal waits until somebody opens that conversation again."""


@dataclass(frozen=True, slots=True)
class _Backlog:
    """How many of something wait on a tape, and since when the oldest does."""

    tape: str
    count: int
    since: datetime


def check_stuck(home: Home, *, now: datetime, running: bool, pid: int | None) -> Iterator[Finding]:
    """Beside a running bot it is its fault where something waits; without one, the next start takes it up."""
    try:
        turns, messages = asyncio.run(_open(home))
    except TapeCorrupt as error:
        cause = f"A tape cannot be read: {error}. Each fault is named by the command."
        yield Finding("tape.damaged", "problem", cause, "bubbot tape verify")
        return
    except StoreError:
        return  # told with the database
    findings = [*_turns_found(turns, now, running=running, pid=pid), *_messages_found(messages, now, running=running)]
    yield from findings
    if all(one.level == "ok" for one in findings):
        waiting = sum(one.count for one in messages)
        yield Finding("delivery.ok", "ok", f"Nothing is stuck; {waiting} messages wait to be delivered.")


def _turns_found(turns: list[_Backlog], now: datetime, *, running: bool, pid: int | None) -> Iterator[Finding]:
    old = [one for one in turns if now - one.since > STUCK]
    what = "No bot runs; the next start records it as interrupted and takes it up."
    if running:
        what = "Stop the bot and start it again: then it is recorded as interrupted, and taken up."
    mend = f"kill {pid}" if running and pid is not None else "bubbot run"
    for one in old:
        cause = f"A turn on the tape {one.tape} is open since {one.since:%Y-%m-%d %H:%M} UTC. {what}"
        yield Finding("turn.stuck", "warning", cause, mend)
    if turns and not old and not running:
        cause = f"{len(turns)} turns were interrupted; the next start records that and answers what is open."
        yield Finding("turn.interrupted", "ok", cause)


def _messages_found(messages: list[_Backlog], now: datetime, *, running: bool) -> Iterator[Finding]:
    for one in messages:
        channel = one.tape.removeprefix(outbox_tape(""))
        since = f"the oldest since {one.since:%Y-%m-%d %H:%M} UTC"
        said = f"{one.count} messages of the channel {channel} are not delivered, {since}"
        if running and now - one.since > LATE:
            cause = f"{said}, though the bot runs: its platform does not take them, and the log says why."
            yield Finding("delivery.late", "warning", cause, "bubbot ask ,status")
        elif not running and now - one.since > STUCK:
            cause = f"{said}. No bot runs; the next start tries again, where they are not too old by then."
            yield Finding("delivery.stuck", "warning", cause, "bubbot run")


async def _open(home: Home) -> tuple[list[_Backlog], list[_Backlog]]:
    store = await open_readonly(home.database)
    try:
        turns = [one for one in await _turns(store) if one is not None]
        tapes = [
            one.name for one in await store.tapes() if one.name.startswith(outbox_tape("")) and one.name != PATIENT
        ]
        messages = [one for tape in tapes if (one := await _messages(store, tape)) is not None]
    finally:
        await store.aclose()
    return turns, messages


async def _turns(store: SqliteStore) -> list[_Backlog | None]:
    """Each open fork is a turn; it began when its first entry was staged."""
    found: list[_Backlog | None] = []
    for fork in await store.forks():
        dates = [entry.date for batch in fork.staged for entry in batch.entries if entry.date]
        if not dates:
            (newest,) = await store.fetch([TapeQuery(fork.tape, newest=True, limit=1)])
            dates = [entry.date for entry in newest]
        found.append(_Backlog(fork.tape, 1, datetime.fromisoformat(min(dates))) if any(dates) else None)
    return found


async def _messages(store: SqliteStore, tape: str) -> _Backlog | None:
    service = TapeService(store, tape, now=never, new_id=str, session="")
    found = await service.read(OutboxView(await service.read(CheckpointView(OUTBOX_CHECKPOINT))))
    dates = [datetime.fromisoformat(one.date) for one in found if one.date]
    return _Backlog(tape, len(found), min(dates)) if dates else None


def never() -> datetime:
    """The clock of those who write nothing."""
    raise AssertionError("nothing is written here, so nobody asks for the time")
