"""Many sessions at once: python -m benchmarks.bench.sessions FOLDER PLAN, a process of its own.

FOLDER holds two copies of a home (`talk` and `raw`) and the tapes as files of JSON lines. PLAN is JSON. Standard output
gets the figures.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from benchmarks.bench import tapes, words
from benchmarks.bench.baselines import Jsonl, RawSqlite
from benchmarks.bench.children import fsyncs
from benchmarks.bench.measure import Figures, Rate
from benchmarks.bench.talk import Talk, talking
from bubbot.tape.fork import ForkedTape


class Crowd:
    """So many sessions of one bot, and the baselines doing the same work one after another."""

    def __init__(self, talk: Talk, raw: RawSqlite, lines: Sequence[Jsonl], sessions: int) -> None:
        self._talk = talk
        self._raw = raw
        self._lines = lines
        self._sessions = sessions
        self._tapes = [talk.tape(chat) for chat in range(sessions)]
        self.rows: dict[str, Rate] = defaultdict(Rate)

    async def round(self, turns: int) -> None:
        """So many turns over all sessions, of every sort."""
        each = -(-turns // self._sessions)
        await self._baseline("raw sqlite3", each)
        await self._new_windows()
        await self._merges(each)
        await self._store(each)
        await self._new_windows()
        await asyncio.gather(*(self._talk.say(chat) for chat in range(self._sessions)))
        await self._taken("whole turns", each, self._talk.say)
        if self._lines:
            await self._files(min(each, max(1, 50 // self._sessions)))

    async def _new_windows(self) -> None:
        await asyncio.gather(*(self._talk.new_window(chat) for chat in range(self._sessions)))

    async def _baseline(self, name: str, each: int) -> None:
        """One transaction a turn, over all tapes in turn; one after another, as one connection has to."""
        ready = [
            self._raw.rows(tapes.name(chat), self._talk.words.turn(number))
            for number, chat in itertools.product(range(each), range(self._sessions))
        ]

        async def write() -> None:
            for rows in ready:
                self._raw.write(rows)

        await self.rows[name].take(len(ready), write(), fsyncs)

    async def _merges(self, each: int) -> None:
        """The merges alone: the forks are open and filled before the clock runs, one of each session at a time."""
        rate = self.rows["merges"]
        await self._forks()  # reads the windows, which a bot at work has in memory
        for _ in range(min(each, 20)):
            forks = await self._forks()

            async def merge(opened: Sequence[ForkedTape] = forks) -> None:
                await asyncio.gather(*(fork.merge() for fork in opened))

            await rate.take(self._sessions, merge(), fsyncs)

    async def _forks(self) -> Sequence[ForkedTape]:
        return await asyncio.gather(*(self._fork(chat) for chat in range(self._sessions)))

    async def _fork(self, chat: int) -> ForkedTape:
        first, *rest = self._talk.words.turn(chat)
        opened = await self._tapes[chat].open_fork([first])
        await opened.append(rest)
        return opened

    async def _store(self, each: int) -> None:
        """Forks opened, filled and merged: all that a turn without a model asks of the store."""

        async def turn(chat: int) -> None:
            await (await self._fork(chat)).merge()

        await self._taken("forks and merges", each, turn)

    async def _taken(self, name: str, each: int, turn: Callable[[int], Awaitable[object]]) -> None:
        """Every session does one after another; all sessions at once."""

        async def session(chat: int) -> None:
            for _ in range(each):
                await turn(chat)

        async def all_of_them() -> None:
            await asyncio.gather(*(session(chat) for chat in range(self._sessions)))

        await self.rows[name].take(each * self._sessions, all_of_them(), fsyncs)

    async def _files(self, each: int) -> None:
        batch = [words.line(entry) for entry in self._talk.words.turn(1)]

        async def turns() -> None:
            for _, file in itertools.product(range(each), self._lines):
                file.turn(batch)

        await self.rows["JSON lines"].take(each * len(self._lines), turns(), fsyncs)

    def figures(self) -> Figures:
        """Of every row."""
        return {name: rate.figures() for name, rate in self.rows.items()}


async def main(folder: Path, plan: Figures) -> Figures:
    """Figures by number of sessions."""
    raw = RawSqlite(folder / "raw" / "bubbot.db")
    files = [Jsonl(path) for path in sorted(folder.glob("*.jsonl"))]
    try:
        async with talking(folder / "talk") as talk:
            crowds = {many: Crowd(talk, raw, files[:many], many) for many in plan["sessions"]}
            for many, crowd in crowds.items():
                await crowd.round(many)
                crowd.rows.clear()
            for _, crowd in itertools.product(range(plan["rounds"]), crowds.values()):
                await crowd.round(plan["turns"])
            return {str(many): crowd.figures() for many, crowd in crowds.items()}
    finally:
        raw.close()
        for file in files:
            file.close()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(Path(sys.argv[1]), json.loads(sys.argv[2])))))
