"""A view of your own: a query that a store can answer through an index, and a pure fold over what it found."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime

from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import Kind, message
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tape.view import QueryAnswers


@dataclass(frozen=True, slots=True)
class WordsView:
    """How many words each role has said in the newest `limit` messages."""

    limit: int = 1000
    heavy: bool = False  # True would fold in a thread

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """The newest messages."""
        return (TapeQuery(tape, kinds=(Kind.MESSAGE,), newest=True, limit=self.limit),)

    def fold(self, found: QueryAnswers) -> dict[str, int]:
        """Words by role. No clock, no I/O: the same entries always give the same answer."""
        words: Counter[str] = Counter()
        for entry in found[0]:
            words[entry.payload["role"]] += len(str(entry.payload["content"]).split())
        return dict(words)


async def main() -> None:
    """The same view reads the tape, and a fork that will be merged into it."""
    moment = datetime(2026, 11, 21, tzinfo=UTC)
    tape = TapeService(InMemoryStore(), "example", now=lambda: moment, new_id=lambda: "fork-1")
    await tape.append([message("user", "How many words is this?"), message("assistant", "Five.")])
    async with tape.fork_tape() as fork:
        await fork.append([message("user", "And now?")])
        print("the tape:", await tape.read(WordsView()))
        print("the fork:", await fork.read(WordsView()))
    print("after the merge:", await tape.read(WordsView()))


if __name__ == "__main__":
    asyncio.run(main())

# prints: after the merge: {'user': 7, 'assistant': 1}
