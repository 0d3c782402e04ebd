"""What a turn costs in a long window: `python -m benchmarks.context [--sizes 1000,10000,100000] [--turns 100]`.

One chat for each size, whose entries are all in one window; a model of a small context answers at once. The chats take
turns, so that noise meets all of them. What counts is the ratio of the processor time to that of the smallest size.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.runtime.compose import ContextPolicy
from bubbot.stores.sqlite.store import open_store
from bubbot.tape.entry import TapeEntry, event, message
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, SteppingClock
from tests.long_talk import RuleModel
from tests.turns import HOME, Bench, Options, running

BATCH = 1_000
"""Entries that are written at once."""
WARM_UP = 20
"""Turns before the clock runs: the first ones cut the window."""
TEXT = "How do things stand with the garden, and is there news of the fence? "


def made_turn(number: int) -> list[TapeEntry]:
    """The entries of a turn, as many as a plain one has."""
    return [
        event("turn/start", {"inbounds": []}),
        message("user", f"{number}: {TEXT}"),
        message("assistant", f"{number}: Noted. {TEXT}"),
        event("note", {"number": number}),
        event("turn/end", {"status": "answered"}),
    ]


async def open_chat(stack: AsyncExitStack, folder: Path, size: int, selector: str) -> Bench:
    """A bot on a database of its own, whose window has `size` entries."""
    folder.mkdir()
    clock = SteppingClock()
    store = await open_store(folder / "bubbot.db", salt=os.urandom, now=clock)
    stack.push_async_callback(store.aclose)
    tape = TapeService(store, HOME, now=clock, new_id=CountingIds("fill"), session=HOME)
    await tape.ensure_bootstrap_anchor()
    entries = [entry for number in range(size // 5) for entry in made_turn(number)]
    for start in range(0, len(entries), BATCH):
        await tape.append(entries[start : start + BATCH])
    options = Options(compose=ContextPolicy(selector, strategies=OWN_STRATEGIES))
    return await stack.enter_async_context(running(store, RuleModel(), options))


async def measure(sizes: list[int], turns: int, selector: str) -> dict[int, list[float]]:
    """The processor milliseconds of each turn, by size."""
    spent: dict[int, list[float]] = {size: [] for size in sizes}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        chats = {size: await open_chat(stack, folder / str(size), size, selector) for size in sizes}
        for turn in range(WARM_UP + turns):
            for size, chat in chats.items():
                started = time.process_time()
                await (await chat.post(f"{turn}: {TEXT}"))
                if turn >= WARM_UP:
                    spent[size].append(1000 * (time.process_time() - started))
    return spent


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", default="1000,10000,100000", help="entries of the window, with commas")
    parser.add_argument("--turns", type=int, default=100, help="turns of each chat")
    parser.add_argument("--selector", default="compact", help="the strategy")
    asked = parser.parse_args()
    sizes = [int(size) for size in asked.sizes.split(",")]
    spent = asyncio.run(measure(sizes, asked.turns, asked.selector))
    first = statistics.median(spent[sizes[0]])
    print(f"{asked.selector}: processor time of a turn, {asked.turns} turns")
    for size in sizes:
        middle, mean = statistics.median(spent[size]), statistics.mean(spent[size])
        print(f"{size:>8} entries  median {middle:6.2f} ms  mean {mean:6.2f} ms  ratio {middle / first:.2f}")


if __name__ == "__main__":
    main()
