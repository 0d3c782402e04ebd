"""One tape, from short to long: what each thing costs that a turn is made of, and the whole turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.bench import tapes, words
from benchmarks.bench.baselines import Jsonl, RawSqlite
from benchmarks.bench.measure import Figures, Row
from benchmarks.bench.plan import Plan
from benchmarks.bench.talk import WITH_TOOLS, Talk, talking
from bubbot.features.conversation.info import InfoView
from bubbot.features.memory.views import MemoryView
from bubbot.runtime.context.view import ContextView
from bubbot.tape.service import TapeService

LINES_AT_MOST = 100_000
"""Entries of a file of JSON lines that is still read whole; beyond it one turn takes seconds."""


@dataclass
class OneTape:
    """A tape of one size with its baselines, each on a copy of its own."""

    size: int
    talk: Talk
    raw: RawSqlite
    lines: Jsonl | None
    rows: dict[str, Row] = field(default_factory=lambda: defaultdict(Row))

    async def round(self, times: int) -> None:
        """Everything once round, each thing beside its baseline."""
        await self.talk.new_window()
        tape = self.talk.tape()
        await self._reads(tape, times)
        await self._writes(tape, times)
        await self.talk.new_window()
        await self.talk.say()  # reads the window anew, which the daemon does once
        await self.rows["turn"].take(times, self.talk.say)
        if file := self.lines:
            batch = self._lines()
            few = times if self.size <= LINES_AT_MOST // 10 else 1
            self.rows["turn, JSON lines"].take_plain(few, lambda: file.turn(batch))
        await self.talk.new_window()
        await self.talk.say()
        await self.rows["turn with two tools"].take(times, lambda: self.talk.say(text=WITH_TOOLS))

    async def _reads(self, tape: TapeService, times: int) -> None:
        name = tapes.name(0)
        await self.rows["context"].take(times, lambda: tape.read(ContextView()))
        self.rows["context, raw"].take_plain(times, lambda: self.raw.window(name))
        await self.rows["memory"].take(times, lambda: tape.read(MemoryView()))
        await self.rows["info"].take(times, lambda: tape.read(InfoView()))

    async def _writes(self, tape: TapeService, times: int) -> None:
        turns = [self.talk.words.turn(number) for number in range(times)]
        made = iter(turns)
        await self.rows["append"].take(times, lambda: tape.append(next(made)))
        ready = iter([self.raw.rows(tape.name, turn) for turn in turns])
        self.rows["append, raw"].take_plain(times, lambda: self.raw.write(next(ready)))
        if file := self.lines:
            batch = self._lines()
            self.rows["append, JSON lines"].take_plain(times, lambda: file.append(batch))
        made = iter(turns)

        async def fork() -> None:
            first, *rest = next(made)
            opened = await tape.open_fork([first])
            await opened.append(rest)
            await opened.merge()

        await self.rows["fork and merge"].take(times, fork)

    def _lines(self) -> list[bytes]:
        return [words.line(entry) for entry in self.talk.words.turn(1)]

    def figures(self) -> Figures:
        """Of every row."""
        return {name: row.figures() for name, row in self.rows.items()}


@asynccontextmanager
async def one_tape(built: Path, size: int, folder: Path) -> AsyncIterator[OneTape]:
    """A bot and baselines on copies of a home."""
    async with AsyncExitStack() as stack:
        raw = RawSqlite(tapes.copied(built, folder / f"raw-{size}") / "bubbot.db")
        stack.callback(raw.close)
        lines = None
        if size <= LINES_AT_MOST:
            tapes.write_lines(folder / f"{size}.jsonl", size)
            lines = Jsonl(folder / f"{size}.jsonl")
            stack.callback(lines.close)
        talk = await stack.enter_async_context(talking(tapes.copied(built, folder / f"talk-{size}")))
        yield OneTape(size, talk, raw, lines)


async def single(plan: Plan, built: dict[int, Path], folder: Path) -> Figures:
    """Every size in every round, so that all of them meet the same machine."""
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(one_tape(built[size], size, folder)) for size in plan.sizes]
        for one in opened:
            await one.round(2)
            one.rows.clear()
        for _ in range(plan.rounds):
            for one in opened:
                await one.round(plan.times)
        return {str(one.size): one.figures() for one in opened}
