"""Overdue work: turns that have been open, and messages that have waited for delivery, for too long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta

from msgspec import Struct

from bubbot.app.stores import open_home_store, unused_clock
from bubbot.errors import StoreError, TapeCorrupt
from bubbot.gateway.outbox import Outbox, outbox_tape
from bubbot.home import Home
from bubbot.ports.checks import Finding
from bubbot.settings.sections import DEFAULT_STORE, StoreSettings
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore

LATE_DELIVERY_AGE = timedelta(hours=1)
"""A running bot retries a failed delivery every 12 seconds or so."""
STUCK_AGE = timedelta(days=1)
TERMINAL_OUTBOX = outbox_tape("stdin")
"""The outbox of terminals: its messages wait until somebody opens the conversation again."""


class _Backlog(Struct, frozen=True):
    """Waiting items on a tape.

    Attributes:
        since: the time at which the oldest began to wait.
    """

    tape: str
    count: int
    since: datetime


def check_stuck(
    home: Home, *, now: datetime, running: bool, pid: int | None, store: StoreSettings = DEFAULT_STORE
) -> Iterator[Finding]:
    """Report overdue turns and messages: a fault while the bot runs, else work for its next start."""
    try:
        turns, messages = asyncio.run(_read_open(home, store))
    except TapeCorrupt as error:
        cause = f"A tape cannot be read: {error}. Each fault is named by the command."
        yield Finding("tape.damaged", "problem", cause, "bubbot tape verify")
        return
    except StoreError:
        return  # the check of the database reports it
    findings = [*_check_turns(turns, now, running=running, pid=pid), *_check_messages(messages, now, running=running)]
    yield from findings
    if all(finding.level == "ok" for finding in findings):
        waiting = sum(backlog.count for backlog in messages)
        yield Finding("delivery.ok", "ok", f"Nothing is stuck; {waiting} messages wait to be delivered.")


def _check_turns(turns: list[_Backlog], now: datetime, *, running: bool, pid: int | None) -> Iterator[Finding]:
    old = [turn for turn in turns if now - turn.since > STUCK_AGE]
    advice = "No bot runs; the next start records it as interrupted and takes it up."
    if running:
        advice = "Stop the bot and start it again: then it is recorded as interrupted, and taken up."
    fix = f"kill {pid}" if running and pid is not None else "bubbot run"
    for backlog in old:
        cause = f"A turn on the tape {backlog.tape} is open since {backlog.since:%Y-%m-%d %H:%M} UTC. {advice}"
        yield Finding("turn.stuck", "warning", cause, fix)
    if turns and not old and not running:
        cut_off = "1 turn was" if len(turns) == 1 else f"{len(turns)} turns were"
        cause = f"{cut_off} interrupted; the next start records that and answers what is open."
        yield Finding("turn.interrupted", "ok", cause)


def _check_messages(messages: list[_Backlog], now: datetime, *, running: bool) -> Iterator[Finding]:
    for backlog in messages:
        channel = backlog.tape.removeprefix(outbox_tape(""))
        since = f"the oldest since {backlog.since:%Y-%m-%d %H:%M} UTC"
        summary = f"{backlog.count} messages of the channel {channel} are not delivered, {since}"
        if running and now - backlog.since > LATE_DELIVERY_AGE:
            cause = f"{summary}, though the bot runs: its platform does not take them, and the log says why."
            yield Finding("delivery.late", "warning", cause, "bubbot ask ,status")
        elif not running and now - backlog.since > STUCK_AGE:
            cause = f"{summary}. No bot runs; the next start tries again, where they are not too old by then."
            yield Finding("delivery.stuck", "warning", cause, "bubbot run")


async def _read_open(home: Home, store_settings: StoreSettings) -> tuple[list[_Backlog], list[_Backlog]]:
    store = await open_home_store(store_settings, home, now=unused_clock, readonly=True)
    try:
        turns = [turn for turn in await _read_turns(store) if turn is not None]
        names = [tape.name for tape in await store.tapes() if tape.name.startswith(outbox_tape(""))]
        outboxes = dict.fromkeys("/".join(name.split("/")[:3]) for name in names)  # without shards
        tapes = [tape for tape in outboxes if tape != TERMINAL_OUTBOX]
        messages = [backlog for tape in tapes if (backlog := await _read_messages(store, tape)) is not None]
    finally:
        await store.aclose()
    return turns, messages


async def _read_turns(store: TapeStore) -> list[_Backlog | None]:
    """Read the open turns: each is a fork, and began when its first entry was staged."""
    backlogs: list[_Backlog | None] = []
    for fork in await store.forks():
        if fork.parent:
            continue  # part of a turn
        dates = [entry.date for batch in fork.staged for entry in batch.entries if entry.date]
        if not dates:
            (newest,) = await store.fetch([TapeQuery(fork.tape, newest=True, limit=1)])
            dates = [entry.date for entry in newest]
        backlogs.append(_Backlog(fork.tape, 1, datetime.fromisoformat(min(dates))) if any(dates) else None)
    return backlogs


async def _read_messages(store: TapeStore, tape: str) -> _Backlog | None:
    messages = await Outbox(TapeService(store, tape, now=unused_clock, new_id=str, session="")).pending()
    dates = [datetime.fromisoformat(message.date) for message in messages if message.date]
    return _Backlog(tape, len(messages), min(dates)) if dates else None
