"""What a decision about a call costs among many grants: `python -m benchmarks.approvals`.

`--home HOME` measures the whole gate on the longest tape of a copy of that home, among 10,000 grants that it adds to the copy: in a
turn of a real bot, with the facts that it collects, for a call that no fact names afterwards and for one that a grant allows.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace as replace_fields

from bubbot.app.bot import Bot, PortWrappers, open_app
from bubbot.arguments.fields import NoArguments
from bubbot.features.approvals.decision import CallFacts, Place, decide
from bubbot.features.approvals.facts import ToolGranted
from bubbot.features.approvals.service import find_window
from bubbot.features.approvals.state import APPROVALS_TAPE, ApprovalState
from bubbot.home import Home
from bubbot.middleware import ToolInvocation
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Inbound, Role, Sender
from bubbot.ports.model import ToolCall
from bubbot.ports.turn import Turn
from bubbot.settings.loader import ModelSettings, Settings
from bubbot.tape.entry import TapeEntry, timestamp
from bubbot.tape.query import OpeningAnchor, TapeQuery
from bubbot.tool import INSIDE, READS_OWN, CallPlan, Effect, GrantKind, GrantTarget, Tool, ToolOutput, tool

DEPTH = 8
"""Folders between a call and the one that a grant names."""
MOST = 10_000
TOOL = "bench.probe"
TARGET = GrantTarget(GrantKind.FOLDER, "/srv/77" + "/deeper" * DEPTH)


def grant_entry(number: int) -> TapeEntry:
    """Make the fact of a grant for a folder of its own."""
    fact = ToolGranted(tool=TOOL, kind="folder", value=f"/srv/{number}", approval="22222", by="1", channel="telegram")
    return replace(fact.to_entry(), date="2026-11-24T00:00:00+00:00").with_id(number)


def measure(work: Callable[[], object], rounds: int) -> float:
    """Return microseconds of one round."""
    started = time.perf_counter()
    for _ in range(rounds):
        work()
    return (time.perf_counter() - started) / rounds * 1e6


class GateBench:
    """Measures the gate of a bot from within a turn."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.bot: Bot | None = None
        self.figures: dict[str, float] = {}

    async def measure_gate(self, turn: Turn) -> None:
        """Measure microseconds of processor time for a decision."""
        assert self.bot is not None
        assert self.bot.features.approvals is not None
        (around,) = self.bot.features.approvals.feature().around.tool

        async def run(_call: ToolInvocation) -> ToolOutput:
            return ""

        for name, effect in (("read or inside", INSIDE), ("outside, by a grant of this chat", Effect())):
            plan = CallPlan(effect, "what would happen", TARGET)
            call = ToolInvocation(turn, self.probe, NoArguments(), ToolCall("c1", "bench_probe", "{}"), plan)
            await around(call, run)
            started = time.process_time()
            for _ in range(self.rounds):
                await around(call, run)
            self.figures[name] = (time.process_time() - started) / self.rounds * 1e6
        started = time.process_time()
        for _ in range(self.rounds):
            await find_window(turn)
        self.figures["of it the query for the window"] = (time.process_time() - started) / self.rounds * 1e6

    @property
    def probe(self) -> Tool:
        """A tool that measures when it is called."""

        @tool(TOOL, effect=READS_OWN)
        async def probe(turn: Turn, args: NoArguments) -> str:
            """Measure."""
            await self.measure_gate(turn)
            return "measured"

        return probe


async def measure_home(home: Path, rounds: int) -> None:
    """Print what the gate costs in a home."""
    bench = GateBench(rounds)
    script = {"default": [{"calls": [{"name": "bench_probe", "arguments": {}}]}, {"text": "done"}]}
    wrappers = PortWrappers(model=lambda _: ScriptedModel(script, keep_requests=False), tools=[bench.probe])
    async with open_app(Settings(model=ModelSettings(name="scripted")), Home(home), wrappers=wrappers) as bot:
        bench.bot = bot
        tape = bot.tape("stdin:default")
        (window,) = (await tape.fetch([TapeQuery(tape.name, OpeningAnchor())]))[0]
        grants = [grant_entry(number) for number in range(1, MOST + 1)]
        place = {"session": "stdin:default", "window": (tape.name, window.id)}
        grants[76] = replace_fields(ToolGranted.of(grants[76]), value=TARGET.value, **place).to_entry()
        for start in range(0, MOST, 500):
            await bot.channel_factory.open_tape(APPROVALS_TAPE).append(grants[start : start + 500])
        await bot.recover_all()
        now = timestamp(datetime.fromtimestamp(time.time(), UTC))
        await bot.ask(Inbound("stdin", f"bench:{now}", "default", Sender("1", "Ann"), "measure", now))
        print(f"{await tape.head()} entries on {tape.name}, {MOST} grants:")
    for name, microseconds in bench.figures.items():
        print(f"  {microseconds:7.1f} µs of processor time: {name}")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20_000)
    parser.add_argument("--home", type=Path)
    options = parser.parse_args()
    rounds = options.rounds
    if options.home:
        with tempfile.TemporaryDirectory(dir=options.home.parent) as folder:
            copy = Path(folder, "home")
            shutil.copytree(options.home, copy)
            asyncio.run(measure_home(copy, min(rounds, 500)))
        return
    for count in (0, 100, MOST):
        entries = [grant_entry(number) for number in range(1, count + 1)]
        state = ApprovalState().apply(entries)

        def check(state: ApprovalState = state) -> object:
            found = [matched for _, matched in state.find_grants(TOOL, TARGET)]
            grant = found[0] if found else None
            return decide(CallFacts(Effect(), Role.OWNER, Place.DIRECT, world=("chat", 7), grant=grant))

        fold = measure(lambda entries=entries: ApprovalState().apply(entries), 1) / 1000  # type: ignore[misc]
        print(f"{count:6} grants: {measure(check, rounds):6.1f} µs a decision, {fold:8.1f} ms to fold all")


if __name__ == "__main__":
    main()
