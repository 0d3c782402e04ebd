"""What a turn costs in a long chat: `python -m benchmarks.context [--sizes 1000,10000,100000] [--turns 100]`.

One chat for each size and a model of a small context, which answers at once. All entries are in one window, except for
`summary`, which opens a window with each summary: there they are in windows of 250 entries. `retrieval` has the search
index, which follows the tape as in a bot. Each message asks for one old entry by a word that no other has. The chats
take turns, so that noise meets all of them. What counts is the ratio of the processor time to that of the smallest size.

`--topics 1000` measures something else: what it costs to find the current topic of a chat with so many, at each size.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from bubbot.app.search import open_indexing
from bubbot.features.search.settings import SearchSettings
from bubbot.features.topics.view import CurrentTopicView
from bubbot.runtime.compose import ContextPolicy
from bubbot.stores.sqlite.store import SqliteStore, open_store
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, event, message
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, SteppingClock
from tests.long_talk import RECALLING, TalkCase
from tests.summarising import summary_case
from tests.turns import HOME, Bench, Options, running

BATCH = 1_000
"""Entries that are written at once."""
WARM_UP = 20
"""Turns before the clock runs: the first ones cut the window."""
TEXT = "How do things stand with the garden, and is there news of the fence? "


def rare_word(number: int) -> str:
    """A word that only one turn says."""
    return f"item{number}x"


def made_turn(number: int) -> list[TapeEntry]:
    """The entries of a turn, as many as a plain one has."""
    return [
        event("turn/start", {"inbounds": []}),
        message("user", f"{number}: {TEXT} {rare_word(number)}"),
        message("assistant", f"{number}: Noted. {TEXT}"),
        event("note", {"number": number}),
        event("turn/end", {"status": "answered"}),
    ]


async def fill(stack: AsyncExitStack, folder: Path, entries: Sequence[TapeEntry], per_window: int = 0) -> SqliteStore:
    """A database of its own with a chat of these entries; its search index is up to date, and follows."""
    folder.mkdir()
    clock = SteppingClock()
    store = await open_store(folder / "bubbot.db", salt=os.urandom, now=clock)
    stack.push_async_callback(store.aclose)
    tape = TapeService(store, HOME, now=clock, new_id=CountingIds("fill"), session=HOME)
    await tape.ensure_bootstrap_anchor()
    step = per_window or BATCH
    for start in range(0, len(entries), step):
        await tape.append(entries[start : start + step])
        if per_window:
            await tape.handoff("auto_handoff/summary", {"summary": "They talked.", "owner": "agent"})
    indexer = store.build_indexer()
    await indexer.fill()
    await indexer.aclose()
    group = await stack.enter_async_context(asyncio.TaskGroup())
    await stack.enter_async_context(open_indexing(store, SearchSettings(), group))
    return store


async def open_chat(stack: AsyncExitStack, folder: Path, size: int, selector: str) -> Bench:
    """A bot with a chat of so many entries."""
    entries = [entry for number in range(size // 5) for entry in made_turn(number)]
    store = await fill(stack, folder, entries, per_window=250 if selector == "summary" else 0)
    policy = ContextPolicy(selector, strategies=RECALLING)
    case = summary_case(0.0) if selector == "summary" else TalkCase(selector, 0.0)
    options = Options(compose=policy, features=case.features())
    bench = await stack.enter_async_context(running(store, case.make_model(), options))
    case.on_running(bench)
    return bench


async def measure(sizes: list[int], turns: int, selector: str) -> dict[int, list[float]]:
    """The processor milliseconds of each turn, by size."""
    spent: dict[int, list[float]] = {size: [] for size in sizes}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        chats = {size: await open_chat(stack, folder / str(size), size, selector) for size in sizes}
        for turn in range(WARM_UP + turns):
            for size, chat in chats.items():
                text = f"{turn}: {TEXT} {rare_word(turn * 7 % (size // 5))}"
                started = time.process_time()
                await (await chat.post(text))
                await chat.quiet()
                if turn >= WARM_UP:
                    spent[size].append(1000 * (time.process_time() - started))
    return spent


async def measure_topics(sizes: list[int], topics: int, reads: int) -> dict[int, list[float]]:
    """The processor milliseconds of finding the current topic, by size."""
    spent: dict[int, list[float]] = {size: [] for size in sizes}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for size in sizes:
            entries = [entry for number in range(size // 5) for entry in made_turn(number)]
            gap = max(len(entries) // topics, 1)
            for number in range(topics):  # each is taken up once, spread over the chat
                entries.insert(number * (gap + 1), anchor(f"topic/subject {number}", {"title": f"Subject {number}"}))
            store = await fill(stack, folder / str(size), entries)
            tape = TapeService(store, HOME, now=SteppingClock(), new_id=CountingIds("read"), session=HOME)
            for _ in range(reads):
                started = time.process_time()
                found = await tape.read(CurrentTopicView())
                spent[size].append(1000 * (time.process_time() - started))
                assert found is not None
                assert found.name == f"topic/subject {topics - 1}"
    return spent


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", default="1000,10000,100000", help="entries of the chat, with commas")
    parser.add_argument("--turns", type=int, default=100, help="turns of each chat")
    parser.add_argument("--selector", default="compact", help="the strategy")
    parser.add_argument("--topics", type=int, default=0, help="find the current one of so many topics instead")
    asked = parser.parse_args()
    sizes = [int(size) for size in asked.sizes.split(",")]
    if asked.topics:
        spent = asyncio.run(measure_topics(sizes, asked.topics, asked.turns))
        print(f"processor time to find the current one of {asked.topics} topics, {asked.turns} times")
    else:
        spent = asyncio.run(measure(sizes, asked.turns, asked.selector))
        print(f"{asked.selector}: processor time of a turn, {asked.turns} turns")
    first = statistics.median(spent[sizes[0]])
    for size in sizes:
        middle, mean = statistics.median(spent[size]), statistics.mean(spent[size])
        print(f"{size:>8} entries  median {middle:6.2f} ms  mean {mean:6.2f} ms  ratio {middle / first:.2f}")


if __name__ == "__main__":
    main()
