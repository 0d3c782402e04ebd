"""The start of a bot in a big home: python -m benchmarks.bench.startup HOME [ENTRIES SESSIONS].

Builds the home if it is not there, then opens it in this process and prints figures. What it imports is loaded before
the clock runs. Half of the entries are on the tapes of the sessions, the others on those of the system, with the
checkpoints that a bot would have left there, and some facts after them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, cast

from benchmarks.bench import tapes
from benchmarks.bench.measure import Figures
from benchmarks.bench.talk import talking
from benchmarks.soak.direct import CHANNEL
from bubbot.app.bot import PortWrappers
from bubbot.app.tapes import new_id, now
from bubbot.features.access.facts import RoleGranted
from bubbot.features.access.service import ACCESS_TAPE, AccessService
from bubbot.features.access.state import ACCESS_PROJECTION
from bubbot.features.budget.state import BUDGET_PROJECTION
from bubbot.features.schedule.facts import SCHEDULE_TAPE, Actor, ChatRef, FiringRan, Job, JobFired
from bubbot.features.schedule.state import SCHEDULE_PROJECTION
from bubbot.gateway.inbox import inbox_tape
from bubbot.gateway.inbox_views import INBOX_PROJECTION, MIGRATIONS_PROJECTION, RECEIVED, inbound_data
from bubbot.gateway.outbox import outbox_tape
from bubbot.gateway.outbox_views import OUTBOX_PROJECTION
from bubbot.ports.channel import Inbound, MessagePart, Sender
from bubbot.ports.inbox import done_entry
from bubbot.ports.outbox import RECEIPT, intent_entry
from bubbot.ports.usage import BUDGET_TAPE, CallSettled
from bubbot.stores.sqlite.store import SqliteStore, open_store
from bubbot.tape.entry import EMPTY_OBJECT, TapeEntry, event
from bubbot.tape.projection import ProjectedTape, Projection
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tape.store import Batch, TapeStore

ENTRIES, SESSIONS = 1_000_000, 10_000
JOBS = 100
TAIL = 40
"""Messages after the checkpoints."""
DATE = "2026-11-22T10:00:00.000000+00:00"
DAYS = 20


async def build(home: Path, entries: int, sessions: int) -> None:
    """A home of so many entries and sessions."""
    await tapes.build(home, max(1, entries // 2 // sessions), sessions)
    messages = entries // 12  # each leaves six facts
    store = await open_store(home / "bubbot.db", salt=os.urandom, now=now)
    try:
        for first, count in ((0, messages), (messages, TAIL)):
            await _append(store, inbox_tape(CHANNEL), _inbox(first, count, sessions))
            await _append(store, outbox_tape(CHANNEL), _outbox(first, count, sessions))
            await _append(store, BUDGET_TAPE, _budget(first, count, sessions, messages))
            await _append(store, SCHEDULE_TAPE, _schedule(first, count))
            await _append(store, ACCESS_TAPE, _access(first, min(count, JOBS)))
            if first == 0:
                await _write_checkpoints(store)
    finally:
        await store.aclose()


async def _append(store: SqliteStore, tape: str, facts: Iterator[TapeEntry]) -> None:
    while batch := tuple(fact.with_meta(EMPTY_OBJECT, DATE) for fact in islice(facts, tapes.BATCH)):
        await store.append([Batch(tape, batch)])


async def _write_checkpoints(store: SqliteStore) -> None:
    projections: list[tuple[Projection[Any], str]] = [
        (INBOX_PROJECTION, inbox_tape(CHANNEL)),
        (MIGRATIONS_PROJECTION, inbox_tape(CHANNEL)),
        (OUTBOX_PROJECTION, outbox_tape(CHANNEL)),
        (BUDGET_PROJECTION, BUDGET_TAPE),
        (SCHEDULE_PROJECTION, SCHEDULE_TAPE),
        (ACCESS_PROJECTION, ACCESS_TAPE),
    ]
    for projection, tape in projections:
        service = TapeService(store, tape, now=now, new_id=new_id)
        await ProjectedTape(projection, service).write_checkpoint(force=True)


def _inbox(first: int, count: int, sessions: int) -> Iterator[TapeEntry]:
    for number in range(first, first + count):
        chat, place = str(number % sessions), 2 * number + (3 if first else 1)  # two checkpoints stand between
        inbound = Inbound(CHANNEL, str(number), chat, Sender(chat, "Ann"), f"message {number}", DATE)
        yield event(RECEIVED, inbound_data(inbound), key=str(number))
        yield done_entry([place], turn=f"t{number}", outcome="answered")


def _outbox(first: int, count: int, sessions: int) -> Iterator[TapeEntry]:
    for number in range(first, first + count):
        chat, place = str(number % sessions), 2 * number + (2 if first else 1)
        yield intent_entry(f"{CHANNEL}:{chat}", f"t{number}", (MessagePart(chat, f"answer {number}"),))
        yield event(RECEIPT, {"intent": place, "part": 0, "external_id": str(number)}, key=f"receipt:{place}:0")


def _budget(first: int, count: int, sessions: int, messages: int) -> Iterator[TapeEntry]:
    for number in range(first, first + count):
        chat, day = str(number % sessions), min(DAYS, 1 + DAYS * number // max(1, messages))
        settled = CallSettled(
            call=f"c{number}",
            session=f"{CHANNEL}:{chat}",
            turn=f"t{number}",
            user=f"{CHANNEL}:{chat}",
            model="scripted",
            day=f"2026-11-{day:02}",
            input_tokens=1000,
            output_tokens=100,
            nano=5_000,
            cached_tokens=0,
            status="answered",
            asked=DATE,
        )
        yield settled.to_entry(key=f"settled:c{number}")


def _schedule(first: int, count: int) -> Iterator[TapeEntry]:
    for number in range(min(count, JOBS) if first == 0 else 0):
        place, actor = ChatRef(CHANNEL, str(number)), Actor(CHANNEL, str(number), "Ann")
        job = Job(f"j{number}", place.session, place, actor, "text", "tea", "0 0 1 1 *", "UTC", DATE)
        yield job.to_entry()
    for number in range(first, first + count):
        job_id = f"j{number % JOBS}"
        if number % 2:
            yield FiringRan(job_id, DATE, f"t{number}", "answered").to_entry()
        else:
            yield JobFired(job_id, DATE).to_entry(key=f"fired:{number}")


def _access(first: int, count: int) -> Iterator[TapeEntry]:
    for number in range(first, first + count):
        yield RoleGranted(CHANNEL, str(number + 1), "member", "terminal", "command", "Ann").to_entry()


class CountingStore:
    """A store that counts the entries read through it."""

    def __init__(self, store: TapeStore) -> None:
        self._store = store
        self.read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.fetch`."""
        found = await self._store.fetch(queries)
        self.read += sum(map(len, found))
        return found


async def measure(home: Path) -> Figures:
    """Open the bot as the daemon does; entries read, and milliseconds of processor and clock."""
    counting: list[CountingStore] = []

    def wrap(store: TapeStore) -> TapeStore:
        counting.append(CountingStore(store))
        return cast("TapeStore", counting[0])

    used, begun = time.process_time(), time.perf_counter()
    async with talking(home, PortWrappers(store=wrap)) as talk:
        open_tape: Callable[[str], TapeService] = talk.app.channel_factory.open_tape
        access = AccessService(open_tape(ACCESS_TAPE), now=now, random=os.urandom)
        await access.load()
        await talk.app.recover_all()
        return {
            "processor": 1000 * (time.process_time() - used),
            "clock": 1000 * (time.perf_counter() - begun),
            "read": counting[0].read,
            "jobs": len(talk.app.schedule_store.state.jobs) if talk.app.schedule_store else 0,
            "people": len(access.state.grants),
        }


async def main(home: Path, entries: int = ENTRIES, sessions: int = SESSIONS) -> Figures:
    """The figures of a home, which is built if it is not there."""
    if not home.exists():
        await build(home, entries, sessions)
    return await measure(home)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(Path(sys.argv[1]), *map(int, sys.argv[2:])))))
