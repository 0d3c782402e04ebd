"""What bubbot costs beside an older revision of it: python -m benchmarks.ratios BASE [--rounds 11] [--json FILE].

BASE is a revision of this repository; it is checked out into a temporary folder, which is removed at the end. Both take
turns in each round, in changing order, so that noise meets both. Daemons are real processes of `bubbot run`; the
platform and the model are servers on loopback, the same for both. Processor seconds and memory are those of the daemon
with its threads and children. A goal that is missed is no failure: the exit code is 0 if everything was measured.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.bench import tapes
from benchmarks.bench.children import ROOT
from benchmarks.bench.measure import Figures, ratio
from benchmarks.bench.plan import machine
from benchmarks.bench.report import SAID, table
from benchmarks.soak.measure import MB
from benchmarks.soak.parts import UNLIMITED, Bench, configured
from benchmarks.soak.process import START, TICKS, ProcessFailed, started
from bubbot.stores.sqlite.store import open_readonly
from bubbot.tape.service import session_tape

PLATFORM = "telegram"
BASE, CURRENT = "base", "current"
CONTEXT_TOKENS = 1_000_000
"""What the model reads at once: it never tells people that the beginning of a conversation is left out."""
TALK_SECONDS = 120.0
"""A round of messages may take so long."""
COMMAND_SECONDS = 60.0


class CannotMeasure(Exception):
    """The revision cannot be checked out, or its code does not run as it should."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the shell, the processor seconds that it may take, and the exit code that it has to have."""

    name: str
    arguments: Sequence[str]
    wanted: float
    code: int = 0


COMMANDS = (
    Command("bubbot --help", ["--help"], 0.25),
    Command("bubbot ask hi, in a fresh home", ["ask", "hi"], 1.0),
    Command("bubbot status, no bot runs", ["status"], 0.7, code=1),
)
"""They run in this order in a fresh home."""
STATUS = Command("bubbot status, a bot runs", ["status"], 0.7)


@dataclass(frozen=True, slots=True)
class Tree:
    """The code of a revision, and the interpreter that runs it."""

    name: str
    path: Path
    python: str

    def run(self, arguments: Sequence[str], folder: Path, code: int = 0) -> str:
        """Run Python with this code in a folder; return standard output.

        Raises `CannotMeasure` if it ends with another exit code, or says nothing.
        """
        command = [self.python, *arguments]
        environment = {"PYTHONPATH": str(self.path), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotMeasure(f"{self.name}: {error}") from error
        if done.returncode != code or not done.stdout:
            said = (done.stderr or done.stdout)[-2000:]
            raise CannotMeasure(f"{self.name}: {' '.join(arguments)} ended with {done.returncode}: {said}")
        return done.stdout

    def check(self, folder: Path) -> None:
        """Raise `CannotMeasure` unless Python finds this code before an installed copy."""
        found = Path(self.run(["-c", "import bubbot; print(bubbot.__file__)"], folder).strip())
        if not found.is_relative_to(self.path):
            raise CannotMeasure(f"{self.name}: Python imports {found} instead of the code in {self.path}")

    def processor_of(self, command: Command, folder: Path) -> float:
        """Run a command with the home in a folder; return processor seconds, those of its children included.

        No other child of this process may end meanwhile.
        """
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.run(["-m", "bubbot", "--home", str(folder / "home"), *command.arguments], folder, command.code)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured in a round.

    Attributes:
        chats: that write one after another, `spacing` seconds apart, `turns` messages each.
        crowd: chats that write at the same moment, `crowd_turns` messages each.
        sizes: entries of the tapes that are compared; `flat_turns` messages to each.
    """

    rounds: int = 11
    chats: int = 20
    turns: int = 2
    spacing: float = 0.1
    crowd: int = 50
    crowd_turns: int = 5
    sizes: tuple[int, int] = (1_000, 100_000)
    flat_turns: int = 10


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: `figure` is the ratio of the two, or what the current code takes; `wanted` is None without a goal."""

    name: str
    unit: str
    base: float
    current: float
    figure: float
    wanted: float | None = None
    least: bool = False

    @property
    def met(self) -> bool | None:
        """None without a goal."""
        if self.wanted is None:
            return None
        return self.figure >= self.wanted if self.least else self.figure <= self.wanted


@dataclass
class Rounds:
    """Figures of every round, by what was measured and of which code."""

    taken: dict[str, dict[str, list[float]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))

    def add(self, what: str, name: str, value: float) -> None:
        """Keep one round's figure."""
        self.taken[what][name].append(value)

    def compare(self, what: str, unit: str, wanted: float | None = None, *, least: bool = False) -> Row:
        """Compare the current code with the base, round by round."""
        base, current = self.taken[what][BASE], self.taken[what][CURRENT]
        times = ratio({"rounds": current}, {"rounds": base})
        return Row(what, unit, statistics.median(base), statistics.median(current), times, wanted, least)

    def limit(self, what: str, unit: str, wanted: float) -> Row:
        """Hold the current code to a figure; the base stands beside it."""
        base, current = (statistics.median(self.taken[what][name]) for name in (BASE, CURRENT))
        return Row(what, unit, base, current, current, wanted)


def alternate(rounds: int, trees: Sequence[Tree]) -> Iterator[Tree]:
    """Yield each tree once a round; who was last in a round is first in the next."""
    for number in range(rounds):
        yield from trees if number % 2 == 0 else reversed(trees)


@contextmanager
def worktree(repository: Path, revision: str, folder: Path) -> Iterator[Path]:
    """Check a revision out for the block. Raises `CannotMeasure`."""
    commit = git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    path = folder / "tree"
    git(repository, "worktree", "add", "--quiet", "--detach", str(path), commit)
    try:
        yield path
    finally:
        git(repository, "worktree", "remove", "--force", str(path))


def git(repository: Path, *arguments: str) -> str:
    """Run git; return what it says. Raises `CannotMeasure`."""
    done = subprocess.run(["git", *arguments], cwd=repository, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotMeasure(f"git {' '.join(arguments)} failed: {done.stderr.strip() or 'there is no such revision'}")
    return done.stdout.strip()


def processor_seconds(pid: int) -> float:
    """Return what a process took so far: its threads, its children that run, and those that ended."""
    clock = ctypes.c_int()
    if error := ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock)):
        raise ProcessFailed(f"the clock of process {pid} cannot be read: error {error}")
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ended = (int(fields[13]) + int(fields[14])) / TICKS
    return time.clock_gettime(clock.value) + ended + sum(processor_seconds(child) for child in children(pid))


def memory_of(pid: int) -> int:
    """Return the bytes that a process and its children hold; each has its part of what they share with others."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    own = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return 1024 * own + sum(memory_of(child) for child in children(pid))


def children(pid: int) -> list[int]:
    """Return the processes that a process started and that still run."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for one in lists for child in one.read_text().split()]


@asynccontextmanager
async def running(
    tree: Tree, folder: Path, chats: int, model: Mapping[str, Any], sizes: Sequence[int] = ()
) -> AsyncIterator[tuple[Bench, list[str]]]:
    """A daemon of this code, and people who write to it, for the block; also the tapes of the first chats.

    `sizes` are the entries that these tapes have at the start. Each chat has had one answer.
    """
    folder.mkdir(parents=True)
    async with AsyncExitStack() as stack:
        people = await stack.enter_async_context(
            started("people", folder, "benchmarks.soak.people", [PLATFORM, str(chats)])
        )
        channel = await people.said("table", START)
        home, names = folder / "home", [_tape(owner) for owner in channel["owners"]]
        configured(home, {}, {PLATFORM: {**UNLIMITED, **channel, "debounce": 0}}, model)
        if sizes:
            with (home / "config.toml").open("a") as settings:
                settings.write("[search]\nindex = false\n")
            await tapes.fill(home, dict(zip(names, sizes, strict=False)))
        daemon = await stack.enter_async_context(
            started("daemon", folder, "benchmarks.soak.serve", [str(home)], python=tree.python, tree=tree.path)
        )
        bench = Bench(daemon, {PLATFORM: people})
        await talk(bench, 1)
        yield bench, names
        if found := await bench.faults():
            raise CannotMeasure(f"{tree.name}: {'; '.join(found[:3])}")


def _tape(owner: object) -> str:
    return session_tape(tapes.WORKSPACE, f"{PLATFORM}:{owner}")


async def talk(
    bench: Bench, messages: int, spread: float = 0.0, chats: Sequence[int] | None = None
) -> dict[str, float]:
    """Let chats say so many messages, each after the answer to the one before; return figures of one turn.

    Raises `ProcessFailed` if the daemon ends meanwhile.
    """
    before = processor_seconds(bench.daemon.child.pid)
    talking = asyncio.create_task(bench.talk(messages, 1, spread, chats))
    ending = asyncio.create_task(bench.daemon.child.wait())
    try:
        await asyncio.wait([talking, ending], timeout=TALK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not talking.done():
            log = bench.daemon.errors.read_text(errors="replace")[-2000:]
            why = f"ended with {ending.result()}" if ending.done() else f"left people waiting for {TALK_SECONDS:.0f} s"
            raise ProcessFailed(f"a daemon {why}; the end of its log:\n{log}")
        found = talking.result()
    finally:
        talking.cancel()
        ending.cancel()
    turns = len(found["waits"])
    took = processor_seconds(bench.daemon.child.pid) - before
    return {"processor": 1000 * took / turns, "rate": turns / found["seconds"]}


def measure_commands(plan: Plan, trees: Sequence[Tree], folder: Path, rounds: Rounds) -> None:
    """Take the processor time of short commands, each time in a fresh home; the first time of each is left out."""
    for number, tree in enumerate(alternate(plan.rounds + 1, trees)):
        here = folder / f"{number}"
        configured(here / "home", {}, {}, {"name": "scripted"})
        for command in COMMANDS:
            took = tree.processor_of(command, here)
            if number >= len(trees):
                rounds.add(command.name, tree.name, took)


async def measure_daemons(
    plan: Plan, trees: Sequence[Tree], folder: Path, model: Mapping[str, Any], rounds: Rounds
) -> None:
    """Talk with a daemon of each code in turn; look at their memory when both have answered as many messages."""
    async with AsyncExitStack() as stack:
        benches: dict[str, Bench] = {}
        for tree in trees:
            opened = running(tree, folder / tree.name, plan.crowd, model)
            benches[tree.name], _ = await stack.enter_async_context(opened)
        for tree in alternate(plan.rounds, trees):
            bench = benches[tree.name]
            alone = await talk(bench, plan.turns, plan.chats * plan.spacing, range(plan.chats))
            rounds.add(TURN, tree.name, alone["processor"])
            crowd = await talk(bench, plan.crowd_turns)
            rounds.add(THROUGHPUT, tree.name, crowd["rate"])
            rounds.add(CROWDED, tree.name, crowd["processor"])
            rounds.add(STATUS.name, tree.name, tree.processor_of(STATUS, folder / tree.name))
        for tree in trees:
            rounds.add(MEMORY, tree.name, memory_of(benches[tree.name].daemon.child.pid) / MB)


async def measure_flat(
    plan: Plan, tree: Tree, folder: Path, model: Mapping[str, Any], rounds: Rounds
) -> tuple[int, int]:
    """Talk with the current code in a chat with a short tape and one with a long one; return their entries."""
    short, long = (_to_a_new_window(size) for size in plan.sizes)
    async with running(tree, folder, 2, model, (short, long)) as (bench, names):
        for number in range(plan.rounds):
            for chat in (0, 1) if number % 2 == 0 else (1, 0):
                took = await talk(bench, plan.flat_turns, chats=[chat])
                rounds.add(LENGTH, (BASE, CURRENT)[chat], took["processor"])
    store = await open_readonly(folder / "home" / "bubbot.db")
    try:
        heads = [await store.head(name) for name in names]
    finally:
        await store.aclose()
    if any(head < size + plan.flat_turns * plan.rounds for head, size in zip(heads, (short, long), strict=True)):
        raise CannotMeasure(f"the messages went to other tapes than {names}, which have {heads} entries")
    return short, long


def _to_a_new_window(size: int) -> int:
    """Return the number of entries nearest to this with which a tape of the benchmarks ends at a new window."""
    start, window = 4, 81
    return start + window * max(1, round((size - start) / window))


TURN = "a whole turn, processor"
THROUGHPUT = "50 chats at once, turns a second"
CROWDED = "50 chats at once, processor of a turn"
MEMORY = "memory of the daemon after the turns"
LENGTH = "a turn on a long tape to that on a short one, processor"


async def measure(
    plan: Plan, trees: Sequence[Tree], folder: Path, say: Callable[[str], None] = lambda _: None
) -> tuple[Rounds, list[Row]]:
    """Measure everything; return every round, and the lines of the table."""
    rounds, begun = Rounds(), time.monotonic()

    def progress(what: str) -> None:
        say(f"{what}: {time.monotonic() - begun:.0f} s")

    for tree in trees:
        tree.check(folder)
    measure_commands(plan, trees, folder / "commands", rounds)
    progress("commands")
    (folder / "provider").mkdir()
    async with started("provider", folder / "provider", "benchmarks.soak.provider", ["0", "steady"]) as server:
        address = await server.said("address", START)
        model = {"name": "openai/soak", "api_base": address, "api_key": "soak", "context_tokens": CONTEXT_TOKENS}
        await measure_daemons(plan, trees, folder / "daemons", model, rounds)
        progress("daemons")
        lengths = await measure_flat(plan, trees[-1], folder / "flat", model, rounds)
        progress("long tapes")
    return rounds, make_rows(rounds, lengths)


def make_rows(rounds: Rounds, lengths: tuple[int, int]) -> list[Row]:
    """Compare what was measured with the goals."""
    flat = rounds.compare(LENGTH, "ms", 1.3)
    named = f"a turn at {lengths[1]:,} entries to that at {lengths[0]:,}, processor"
    return [
        rounds.compare(TURN, "ms", 3.0 if uses_aiosqlite(ROOT) else 2.0),
        rounds.compare(CROWDED, "ms"),
        rounds.compare(THROUGHPUT, "/s", 0.8, least=True),
        rounds.compare(MEMORY, "MB", 1.3),
        *(rounds.limit(one.name, "s", one.wanted) for one in (*COMMANDS, STATUS)),
        Row(named, "ms", flat.base, flat.current, flat.figure, flat.wanted),
    ]


def uses_aiosqlite(tree: Path) -> bool:
    """Return true if the code depends on aiosqlite, with which a turn may take longer."""
    listed = tomllib.loads((tree / "pyproject.toml").read_text())["project"]["dependencies"]
    return any(one.startswith("aiosqlite") for one in listed)


def report(rows: Sequence[Row]) -> str:
    """Draw the table."""
    lines = [["", "base", "current", "figure", "goal", "met"]]
    for row in rows:
        goal = "" if row.wanted is None else f"{'at least' if row.least else 'at most'} {row.wanted:g}"
        met = "" if row.met is None else SAID[row.met]
        lines.append(
            [row.name, f"{row.base:.2f} {row.unit}", f"{row.current:.2f} {row.unit}", f"{row.figure:.2f}", goal, met]
        )
    return table(lines)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ratios", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("base", metavar="BASE", help="a revision of this repository")
    parser.add_argument("--rounds", type=int, default=Plan().rounds)
    parser.add_argument("--python", default=sys.executable, metavar="PATH", help="interpreter that runs both")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to this file")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds: at least 1")
    return options


def main(arguments: Sequence[str] | None = None, plan: Plan | None = None) -> int:
    """Measure and print the table; return the exit code."""
    options = parse(arguments)
    plan = plan or Plan(rounds=options.rounds)
    try:
        with tempfile.TemporaryDirectory(prefix="ratios-") as name:
            folder = Path(name)
            with worktree(ROOT, options.base, folder) as base:
                trees = [Tree(BASE, base, options.python), Tree(CURRENT, ROOT, options.python)]
                revisions = [git(base, "rev-parse", "--short", "HEAD"), git(ROOT, "describe", "--always", "--dirty")]
                rounds, rows = asyncio.run(measure(plan, trees, folder, _tell))
    except (CannotMeasure, ProcessFailed, TimeoutError) as failed:
        print(failed, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"{revisions[1]} beside {revisions[0]}, {plan.rounds} rounds\n{report(rows)}")
    if options.json is not None:
        made: Figures = {"machine": machine(), "base": revisions[0], "current": revisions[1], "plan": asdict(plan)}
        made |= {"rows": [{**asdict(row), "met": row.met} for row in rows], "rounds": rounds.taken}
        options.json.write_text(json.dumps(made, indent=1) + "\n")
    return 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
