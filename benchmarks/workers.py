"""SQLite and PostgreSQL beside each other, and one worker beside several: python -m benchmarks.workers [--small] [--json FILE].

Everything is a ratio of one run: in each round all stores, and all numbers of workers, take their turn, in changing order, so
that noise meets all of them. The server is that of the tests, with fsync, on the disk of the SQLite files. Workers are real
processes of `bubbot run`; platforms and model are servers on loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.bench import tapes, words
from benchmarks.bench.report import table
from benchmarks.bench.talk import Talk, talking
from benchmarks.soak.measure import MB
from benchmarks.soak.parts import configured
from benchmarks.soak.process import PAGE, TICKS
from bubbot.app.tapes import now
from bubbot.stores import group
from bubbot.stores.postgres.store import open_store
from tests.e2e.chaos import Chaos, Seat, chaos
from tests.postgres_server import copied_database, make_template, own_server

SQLITE, EACH, GROUPED = "SQLite", "a transaction each", "grouped"
STORES = (SQLITE, EACH, GROUPED)
TURN_SECONDS = 300.0
"""One round of messages may take so long."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes:
        rounds: in which everything takes its turn.
        sessions: at once, on each store.
        merges: of all sessions together in a round; as many whole turns.
        workers: numbers of workers that are compared.
        turns_at_once: of each worker, each of which waits a second for the model.
        turns: of each chat in a round.
        sizes: entries of the tapes in memory.
    """

    rounds: int = 5
    sessions: tuple[int, ...] = (1, 16, 100)
    merges: int = 200
    workers: tuple[int, ...] = (1, 2, 4)
    turns_at_once: int = 8
    turns: int = 4
    sizes: tuple[int, ...] = (1_000, 100_000)


SMALL = Plan(rounds=3, merges=100, turns=3, sizes=(1_000, 20_000))
TINY = Plan(rounds=1, sessions=(1, 2), merges=2, workers=(1, 2), turns_at_once=1, turns=1, sizes=(100, 400))
"""For the test: everything is measured, and nothing of it means anything."""


@dataclass(slots=True)
class Taken:
    """What was measured of one thing, by round: milliseconds each, and processor milliseconds of bot and server."""

    wall: list[float]
    processor: list[float]
    server: list[float]

    @classmethod
    def empty(cls) -> Taken:
        """Nothing yet."""
        return cls([], [], [])

    @property
    def middle(self) -> float:
        """The middle round."""
        return statistics.median(self.wall)


def ratio(one: Taken, other: Taken) -> float:
    """The middle of the ratios of the rounds."""
    return statistics.median(mine / theirs for mine, theirs in zip(one.wall, other.wall, strict=True))


async def measure_stores(plan: Plan, folder: Path, url: str, server: int) -> dict[str, dict[str, Taken]]:
    """Merges and whole turns on each store, by what was done and by store; `server` is the first process of PostgreSQL."""
    found: dict[str, dict[str, Taken]] = defaultdict(lambda: defaultdict(Taken.empty))
    async with AsyncExitStack() as stack:
        most = max(plan.sessions)
        small = await stack.enter_async_context(_bot(folder / "sqlite", ""))
        large = await stack.enter_async_context(_bot(folder / "postgres", url))
        talks = {SQLITE: small, EACH: large, GROUPED: large}
        for talk in (small, large):
            await asyncio.gather(*(talk.say(chat) for chat in range(most)))  # windows are read, statements prepared
        for number in range(plan.rounds):
            for sessions in plan.sessions:
                for store in turned(STORES, number):
                    with _group_size(1 if store == EACH else group.MAX_GROUP_JOBS):
                        work = _Work(talks[store], sessions, -(-plan.merges // sessions), server)
                        await work.take(found[f"merges, {sessions}"][store], work.merge)
                        await work.take(found[f"turns, {sessions}"][store], work.turn)
    return found


@asynccontextmanager
async def _bot(home: Path, url: str) -> AsyncIterator[Talk]:
    """A bot without a channel on a new home; the tapes are at `url` if there is one."""
    configured(home, words.script(), {})
    with (home / "config.toml").open("a") as settings:
        settings.write("[search]\nindex = false\n")
        if url:
            settings.write(f'[store]\nurl = "{url}"\n')
    await _label(home, url)
    async with talking(home) as talk:
        yield talk


async def _label(home: Path, url: str, sizes: Mapping[str, int] = MappingProxyType({})) -> None:
    """Give the tapes the names that the benchmark expects, and fill some."""
    if url:
        await tapes.fill_store(await open_store(url, salt=os.urandom, now=now), sizes)
    else:
        await tapes.fill(home, sizes)


@contextmanager
def _group_size(jobs: int) -> Iterator[None]:
    """Let a transaction hold at most so many jobs."""
    before = group.MAX_GROUP_JOBS
    setattr(group, "MAX_GROUP_JOBS", jobs)  # noqa: B010 - the type checker rightly minds
    try:
        yield
    finally:
        setattr(group, "MAX_GROUP_JOBS", before)  # noqa: B010


@dataclass
class _Work:
    """What so many sessions of a bot do at once, `each` times one after another."""

    talk: Talk
    sessions: int
    each: int
    server: int

    async def take(self, taken: Taken, work: Callable[[int], Awaitable[object]]) -> None:
        """One round."""

        async def session(chat: int) -> None:
            for _ in range(self.each):
                await work(chat)

        count = self.each * self.sessions
        server, processor, begun = server_seconds(self.server), time.process_time(), time.perf_counter()
        await asyncio.gather(*(session(chat) for chat in range(self.sessions)))
        taken.wall.append(1000 * (time.perf_counter() - begun) / count)
        taken.processor.append(1000 * (time.process_time() - processor) / count)
        taken.server.append(1000 * (server_seconds(self.server) - server) / count)

    async def merge(self, chat: int) -> None:
        """A fork with a message, and its merge with the rest of a turn: eight entries."""
        first, *rest = self.talk.words.turn(chat)
        opened = await self.talk.tape(chat).open_fork([first])
        await opened.append(rest)
        await opened.merge()

    async def turn(self, chat: int) -> None:
        """A whole turn without a channel."""
        await self.talk.say(chat)


async def measure_workers(plan: Plan, folder: Path) -> dict[int, dict[str, Taken]]:
    """Turns with a model that takes a second, by number of workers: `turns` a second, and processor milliseconds of all workers.

    `first` are milliseconds from a message to the first word of its answer beyond the model's second, while nothing else runs.
    """
    found: dict[int, dict[str, Taken]] = {count: defaultdict(Taken.empty) for count in plan.workers}
    for number in range(plan.rounds):
        for count in turned(plan.workers, number):
            run = folder / f"workers{count}-{number}"
            run.mkdir()
            most = max(plan.workers) * plan.turns_at_once
            async with chaos(run, workers=count, chats=most, turns_at_once=plan.turns_at_once) as stage:
                stage.provider.seconds = 1.0
                await asyncio.gather(*(worker.run() for worker in stage.workers))
                await _say_all(
                    stage.seats[: 2 * count], 1
                )  # whoever receives is connected, every worker has been asked
                seats = stage.seats[: count * plan.turns_at_once]
                before, begun = processor_seconds(stage), time.perf_counter()
                await _say_all(seats, plan.turns)
                seconds, turns = time.perf_counter() - begun, len(seats) * plan.turns
                found[count]["turns"].wall.append(turns / seconds)
                found[count]["turns"].processor.append(1000 * (processor_seconds(stage) - before) / turns)
                begun = time.perf_counter()
                await _say_all(stage.seats[:1], 1)
                found[count]["first"].wall.append(1000 * (time.perf_counter() - begun - 1.0))
    return found


async def measure_take_over(plan: Plan, folder: Path) -> list[float]:
    """Seconds from the kill of the worker that answers a message until another has answered it, beyond the model's."""
    found = []
    for number in range(plan.rounds):
        run = folder / f"taken{number}"
        run.mkdir()
        async with chaos(run, workers=2, chats=1) as stage:
            stage.provider.seconds = 1.0
            await asyncio.gather(*(worker.run() for worker in stage.workers))
            [seat] = stage.seats
            await _say_all([seat], 1)
            stage.provider.seconds = 2.0
            seat.say("say late")
            await seat.platform.until(lambda: stage.provider.calls["say late"], TURN_SECONDS)
            await (await stage.find_busy(seat)).kill()
            killed = time.perf_counter()
            await seat.platform.until(lambda: "answer to <say late>" in seat.texts(), TURN_SECONDS)  # noqa: B023
            found.append(time.perf_counter() - killed - stage.provider.seconds)
    return found


async def measure_memory(plan: Plan, folder: Path, url: str) -> dict[int, float]:
    """Megabytes of a bot on the server after twenty turns on a tape of so many entries, each in a process of its own."""
    found = {}
    for chat, size in enumerate(plan.sizes, 1_000):
        home, code = (
            folder / f"memory{size}",
            "import asyncio; from benchmarks.workers import talk_on; asyncio.run(talk_on())",
        )
        configured(home, words.script(), {})
        with (home / "config.toml").open("a") as settings:
            settings.write(f'[search]\nindex = false\n[store]\nurl = "{url}"\n')
        await _label(home, url, {tapes.name(chat): size})
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", code, str(home), str(chat)), stdout=asyncio.subprocess.PIPE
        )
        out, _ = await child.communicate()
        assert child.returncode == 0, home
        found[size] = float(out)
    return found


async def talk_on() -> None:
    """Answer twenty messages in a chat of a home, and print the megabytes of this process. The arguments are both."""
    home, chat = Path(sys.argv[1]), int(sys.argv[2])
    async with talking(home) as talk:
        for _ in range(20):
            await talk.say(chat)
        print(int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / MB)


async def _say_all(seats: Sequence[Seat], messages: int) -> None:
    """Let each seat say messages one after another, each once the last one was answered; return once all are."""

    async def talk(place: int, seat: Seat) -> None:
        for _ in range(messages):
            text = f"say {place}-{next(_NUMBERS)}"
            seat.say(text)
            await seat.platform.until(lambda: f"answer to <{text}>" in seat.texts(), TURN_SECONDS)  # noqa: B023

    await asyncio.gather(*(talk(place, seat) for place, seat in enumerate(seats)))


_NUMBERS = itertools.count(1)


def processor_seconds(stage: Chaos) -> float:
    """Processor seconds of all workers so far."""
    total = 0.0
    for worker in stage.workers:
        assert worker.daemon is not None
        fields = Path(f"/proc/{worker.daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / TICKS
    return total


def server_seconds(pid: int) -> float:
    """Processor seconds so far of a process, its children, and those of them that ended."""
    total = 0.0
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal():
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if pid in (int(entry.name), int(fields[1])):
                    total += sum(map(int, fields[11:15] if int(entry.name) == pid else fields[11:13])) / TICKS
    return total


def turned(items: Sequence[Any], by: int) -> list[Any]:
    """The same items, beginning with another one each round."""
    place = by % len(items)
    return [*items[place:], *items[:place]]


def report(plan: Plan, figures: Mapping[str, Any]) -> str:
    """All figures, as tables."""
    parts = [
        f"{figures['machine']}, load {figures['load']}, {figures['date']}, medians of {plan.rounds} rounds in turns"
    ]
    if stores := figures.get("stores"):
        head = ["ms each (processor ms: bot, server)", *STORES, "grouped to each", "SQLite to grouped"]
        lines = [
            [
                what,
                *(_cell(by_store[store]) for store in STORES),
                _times(by_store, EACH),
                _times(by_store, GROUPED, SQLITE),
            ]
            for what, by_store in stores.items()
        ]
        parts.append(table([head, *lines]))
    if workers := figures.get("workers"):
        one = workers[min(workers)]
        lines = [
            [
                str(count),
                f"{found['turns'].middle:.1f}",
                f"{ratio(found['turns'], one['turns']):.2f}",
                f"{statistics.median(found['turns'].processor):.0f}",
                f"{statistics.median(found['turns'].processor) / statistics.median(one['turns'].processor):.2f}",
                f"{found['first'].middle:.0f}",
            ]
            for count, found in workers.items()
        ]
        head = ["workers", "turns a second", "to one", "processor ms a turn", "to one", "ms beyond the model's second"]
        parts.append(table([head, *lines]))
    if taken := figures.get("take over"):
        parts.append(
            f"answered by another after a kill, seconds beyond the model's: {', '.join(f'{one:.1f}' for one in taken)}"
        )
    if memory := figures.get("memory"):
        parts.append(table([["entries", "MB"], *([f"{size:,}", f"{found:.0f}"] for size, found in memory.items())]))
    return "\n\n".join(parts)


def _cell(taken: Taken) -> str:
    processor = [statistics.median(taken.processor), *([statistics.median(taken.server)] if any(taken.server) else [])]
    return f"{taken.middle:.2f} ({', '.join(f'{one:.2f}' for one in processor)})"


def _times(by_store: Mapping[str, Taken], slow: str, fast: str = GROUPED) -> str:
    return f"{ratio(by_store[slow], by_store[fast]):.2f}"


async def measure(plan: Plan, folder: Path, parts: Sequence[str]) -> dict[str, Any]:
    """Measure the parts: `stores`, `workers`, `take over`, `memory`."""
    figures: dict[str, Any] = {
        "machine": f"{os.cpu_count()} processors, Python {platform.python_version()}",
        "date": now().date().isoformat(),
        "load": f"{os.getloadavg()[0]:.0f}",
    }
    with own_server() as server:
        make_template(server)
        if "stores" in parts:
            with copied_database(server) as url:
                figures["stores"] = await measure_stores(plan, folder, url, server.pid)
        if "memory" in parts:
            with copied_database(server) as url:
                figures["memory"] = await measure_memory(plan, folder, url)
    if "workers" in parts:
        figures["workers"] = await measure_workers(plan, folder)
    if "take over" in parts:
        figures["take over"] = await measure_take_over(plan, folder)
    return figures


PARTS = ("stores", "memory", "workers", "take over")


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="fewer rounds and shorter tapes")
    parser.add_argument("--part", action="append", choices=PARTS, help="measure only this; may be given again")
    parser.add_argument("--json", type=Path, help="write all figures into this file")
    options = parser.parse_args()
    plan = SMALL if options.small else Plan()
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(measure(plan, Path(folder), options.part or PARTS))
    print(report(plan, figures))
    if options.json:
        options.json.write_text(json.dumps(figures, default=asdict, indent=1))


if __name__ == "__main__":
    main()
