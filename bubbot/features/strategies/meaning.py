"""Recall by meaning: passages of a chat that are about what a message is about, in other words.

The index is derived from the tape and follows it in the background, for chats whose strategy is `retrieval`. It is asked
in the turn, and never waited for: what it does not have yet is found by its words.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

from bubbot.concurrency import Backoff, supervise
from bubbot.errors import BubbotError, StoreError
from bubbot.features.strategies.retrieval import EVIDENCE_KINDS, QueriedTape, evidence_text, is_evidence
from bubbot.ports.passages import Coverage, Passage, PassageIndex
from bubbot.tape.entry import TapeEntry
from bubbot.tape.handle import TapeHandle, spans_of
from bubbot.tape.query import IdRanges, TapeQuery

log = logging.getLogger(__name__)

BATCH_PASSAGES = 16
"""Passages that are added at once; the message of a turn waits for one batch at most."""
MAX_PASSAGE_CHARS = 1_000
"""Characters of a passage that are read; the model takes some hundred words."""
MIN_LIKENESS = 0.3
"""What is less like a message says nothing about it."""
MAX_ALIKE = 64
"""Passages found for a message."""
FIND_SECONDS = 5.0
"""Seconds a turn waits for an answer."""


class MeaningSearch:
    """Finds passages by their meaning, while it is switched on."""

    def __init__(
        self, index: PassageIndex, open_tape: Callable[[str], TapeHandle], *, is_on: Callable[[], bool]
    ) -> None:
        self._index = index
        self._open_tape = open_tape
        self._is_on = is_on
        self._waiting: dict[str, None] = {}
        self._wake = asyncio.Event()

    async def find(self, tape: QueriedTape, text: str, before: int) -> Mapping[int, float]:
        """Find the passages before an entry that are most like a text, each with its likeness; empty if that fails."""
        if not self._is_on() or not text.strip():
            return {}
        self._waiting[tape.name] = None
        self._wake.set()
        try:
            async with asyncio.timeout(FIND_SECONDS):
                name = await lasting_name(tape)
                found = await self._index.find(name, text[:MAX_PASSAGE_CHARS], before, MAX_ALIKE)
        except (BubbotError, TimeoutError) as error:
            log.warning(
                "nothing recalled by meaning: %s", str(error) or "no answer", extra={"action": "context.meaning"}
            )
            return {}
        return {passage.id: passage.likeness for passage in found if passage.likeness >= MIN_LIKENESS}

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Let the index follow in the background until the block ends, also in a bot of one chat."""
        task = asyncio.create_task(supervise("embeddings", self.run, Backoff(lambda: 0.5, max_seconds=600.0)))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def run(self) -> None:
        """Let the index follow the tapes that were asked about, until cancelled."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting:
                    name = next(iter(self._waiting))
                    del self._waiting[name]
                    await self.follow(self._open_tape(name))
        finally:
            await self._index.aclose()

    async def follow(self, tape: TapeHandle) -> None:
        """Add what the index lacks of a tape."""
        name = await lasting_name(tape)
        coverage = await self._index.coverage(name)
        if coverage.entry and await _mark_of(tape, coverage.entry) != coverage.mark:
            await self._index.forget(name)  # the tape is another one, such as one of a backup
            coverage = Coverage()
        while self._is_on() and (entries := await _read_after(tape, coverage.entry)):
            coverage = Coverage(entries[-1].id, entries[-1].date)
            passages = [
                Passage(entry.id, evidence_text(entry)[:MAX_PASSAGE_CHARS]) for entry in entries if is_evidence(entry)
            ]
            await self._index.add(name, passages, coverage)
            if not await _is_unchanged(tape, entries):  # erased meanwhile
                await self._index.forget(name)
                return


async def lasting_name(tape: QueriedTape) -> str:
    """Return a name that a tape which begins anew does not share."""
    return f"{tape.name} {await _mark_of(tape, 1)}"


async def _mark_of(tape: QueriedTape, entry_id: int) -> str:
    (found,) = await tape.fetch([TapeQuery(tape.name, IdRanges(((entry_id, entry_id),)))])
    return found[0].date if found else ""


async def _read_after(tape: TapeHandle, entry_id: int) -> Sequence[TapeEntry]:
    query = TapeQuery(tape.name, IdRanges(((entry_id + 1, None),)), kinds=EVIDENCE_KINDS, limit=BATCH_PASSAGES)
    return (await tape.fetch([query]))[0]


async def _is_unchanged(tape: TapeHandle, entries: Sequence[TapeEntry]) -> bool:
    try:
        query = TapeQuery(tape.name, IdRanges(tuple(spans_of([entry.id for entry in entries]))), kinds=EVIDENCE_KINDS)
        return [*(await tape.fetch([query]))[0]] == [*entries]
    except StoreError:
        return False
