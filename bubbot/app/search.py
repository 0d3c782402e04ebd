"""Search for other parts of a bot: the index, and a function for features that look for entries."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime

from bubbot.concurrency import Backoff, supervise
from bubbot.features.search.settings import SearchSettings
from bubbot.features.search.words import WordsView
from bubbot.features.strategies.retrieval import EVIDENCE_KINDS
from bubbot.ports.store import IndexesTexts
from bubbot.tape.fork import ForkedTape
from bubbot.tape.store import TapeStore


@asynccontextmanager
async def open_indexing(store: TapeStore, settings: SearchSettings, group: asyncio.TaskGroup) -> AsyncIterator[None]:
    """Fill the index until the block ends, if the store has one.

    Errors are logged and the work is retried; they affect nothing else.
    """
    if not isinstance(store, IndexesTexts):
        yield
        return
    if not settings.index:
        await store.forget_index()
        yield
        return
    indexer = store.build_indexer()
    task = group.create_task(supervise("search index", indexer.run, Backoff(random.random, max_seconds=600.0)))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await indexer.aclose()


async def find_entries(
    tape: ForkedTape, words: Sequence[str], until: datetime | None, limit: int
) -> Sequence[Sequence[int]]:
    """Find the entries with each word, like search. See `FindEntries` of the strategies."""
    return await tape.read(WordsView(tuple(words), EVIDENCE_KINDS, until, limit))
