"""A store that works until it is stopped: it prints the number of each entry when that is acknowledged."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from datetime import UTC, datetime
from pathlib import Path

from bubbot.home import Home
from bubbot.stores.sqlite.sizes import WalLimits
from bubbot.stores.sqlite.store import SqliteStore, open_store
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import event
from bubbot.tape.store import ResetBatch
from tests.tapes import batch, note

LIMITS = WalLimits(short=1 << 17, long=1 << 18, step=1 << 16, note_seconds=0.0)
"""Short, so that checkpoints come often; and each commit is noted."""


async def say(store: SqliteStore, number: int, length: int) -> None:
    await store.append([batch(note(f"{number} {'x' * length}"), tape=f"tape {number % 3}")])
    os.write(1, b"%d\n" % number)


async def work(home: Home, seed: int) -> None:
    chance = random.Random(seed)
    store = await open_store(
        home.database, salt=os.urandom, now=lambda: datetime.now(UTC), on_newest=home.mark_database, limits=LIMITS
    )
    home.mark_database()
    number, resets = 0, 0
    while True:
        count = chance.choice((1, 1, 2, 5))
        await asyncio.gather(*(say(store, number + one, chance.choice((10, 200, 9000))) for one in range(count)))
        number += count
        if chance.random() < 0.05:  # an erasure truncates the log
            resets += 1
            await store.append([batch(note("gone"), tape="gone")])
            fact = event("tape/erased").with_meta({}, "2026-11-21T20:21:00.000000+00:00")
            await store.reset("gone", ResetBatch(f"gone@{resets}", erase=True), [anchor("session/start"), fact])


if __name__ == "__main__":
    asyncio.run(work(Home(Path(sys.argv[1])), int(sys.argv[2])))
