"""Calls that were cut off: what their cards show, that "run again" runs them, and what is said of what had begun."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bubbot.arguments.fields import NoArguments
from bubbot.features.shell.commands import shell_tools
from bubbot.features.shell.service import ShellService
from bubbot.features.shell.settings import ShellSettings
from bubbot.ports.turn import Turn
from bubbot.tape.provenance import Source
from bubbot.tool import READS_OWN, CallPlan, Effect, Tool, tool
from tests.approving import ApprovalBench, approving
from tests.sandboxes import require
from tests.turns import Played, calls, says

SECONDS = 20.0
SLOW = 'read x < number; echo $((x + 1)) > number; test "$x" -gt 0 || exec sleep 60'
"""It counts its runs in a file; the first one does not end."""


class Acting:
    """A tool that acts outside, counts what it did in a file, and whose plan rests on another file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "number").write_text("0\n")
        (folder / "base").write_text("1")

    def tools(self) -> Sequence[Tool]:
        """Make the tool."""

        async def plan(_turn: Turn, _args: NoArguments) -> CallPlan:
            return CallPlan(Effect(source=Source.OWN), "add one, and rest on base", state=self._read("base"))

        @tool("number.add", plan=plan, effect=Effect(source=Source.OWN))
        async def number_add(turn: Turn, args: NoArguments) -> str:
            """Add one."""
            number = int(self._read("number"))
            (self.folder / "number").write_text(f"{number + 1}\n")
            if not number:
                await asyncio.Event().wait()
            return "added"

        return [number_add]

    def _read(self, name: str) -> str:
        return (self.folder / name).read_text()


async def until(condition: Callable[[], object]) -> None:
    """Wait for another process, which tells nobody."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class CutOff:
    """A home whose owner has allowed a call, and whose bot ended while that ran.

    Attributes:
        home: the home.
        counted: the file in which the call counts its runs.
        base: a file that its plan rests on.
    """

    def __init__(self, home: Path, kind: str) -> None:
        self.home, self._kind = home / "home", kind
        shell = ShellService(ShellSettings(enabled=True, sandbox="bwrap"), self.home, asyncio.get_running_loop().time)
        workspace = shell.find_workspace("stdin:default")
        workspace.mkdir(parents=True, mode=0o700)
        self.counted, self.base = workspace / "number", workspace / "base"
        if kind == "own":
            self._tools: Sequence[Tool] = Acting(workspace).tools()
            self._call = calls("number_add")
            return
        self.counted.write_text("0\n")
        self.base.write_text(SLOW)
        self._tools = shell_tools(shell, shell.settings)
        self._call = calls("shell_run", **({"argv": ["sh", "base"]} if kind == "argv" else {"script": ". ./base"}))

    @property
    def runs(self) -> int:
        """How often the call began."""
        return int(self.counted.read_text() or "0")

    async def cut_off_again(self) -> None:
        """End the bot once more, while the turn that goes on is asking its model."""
        waiting = asyncio.Event()

        @tool("wait.long", effect=READS_OWN)
        async def wait_long(turn: Turn, args: NoArguments) -> str:
            """Wait."""
            waiting.set()
            await asyncio.Event().wait()
            return ""

        async def live() -> None:
            async with self.bot(calls("wait_long"), tools=[wait_long]) as bench:
                await bench.settle()

        await self._end(live(), waiting.is_set)

    @staticmethod
    async def _end(living: Coroutine[Any, Any, None], condition: Callable[[], object]) -> None:
        life = asyncio.ensure_future(living)
        await until(lambda: condition() or life.done())
        life.cancel()
        await asyncio.wait([life])
        assert life.cancelled()

    @asynccontextmanager
    async def bot(self, *steps: Any, tools: Sequence[Tool] = (), **settings: Any) -> AsyncIterator[ApprovalBench]:
        """Open the bot."""
        async with approving(self.home, Played(*steps), tools=[*self._tools, *tools], **settings) as bench:
            yield bench

    async def cut_off(self) -> str:
        """Allow the call, and end the bot in the middle of it; return the card."""
        cards: list[str] = []

        async def live() -> None:
            async with self.bot(self._call, says("I asked.")) as bench:
                await bench.say("do it")
                cards.append(bench.card)
                await bench.say(f",approve {bench.card}")

        await self._end(live(), lambda: self.runs)
        return cards[0]


KINDS = ("argv", "script", "own")


@pytest.mark.parametrize("kind", KINDS)
async def test_run_again_runs_it_if_what_it_rests_on_is_as_the_card_said(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind != "own":
        require("bwrap", request)
    world = CutOff(tmp_path, kind)
    first = await world.cut_off()
    async with world.bot(says("It was cut off."), says("It ran.")) as bench:
        await bench.settle()
        first_asked, asked = await bench.facts("approval.asked")
        assert (asked["cut_off"], world.runs) == (True, 1)
        for one, other in zip(first_asked["calls"], asked["calls"], strict=True):
            assert {**one, "id": "", "target": None} == {**other, "id": "", "target": None}
        assert asked["calls"][0]["details"] in bench.channel.texts[-2]
        assert bench.card != first
        await bench.say(f",approve {bench.card}")
        assert (world.runs, bench.channel.texts[-1]) == (2, "It ran.")


@pytest.mark.parametrize("kind", ["argv", "own"])
async def test_what_has_changed_since_the_card_is_not_run_again(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind != "own":
        require("bwrap", request)
    world = CutOff(tmp_path, kind)
    await world.cut_off()
    async with world.bot(says("It was cut off."), says("It did not run.")) as bench:
        await bench.settle()
        world.base.write_text("something else")
        await bench.say(f",approve {bench.card}")
        assert world.runs == 1
        assert "has changed since" in (await bench.results())[-1]


class TestWords:
    """What began is never said not to have been done."""

    async def test_too_late_after_it_began(self, tmp_path: Path) -> None:
        world = CutOff(tmp_path, "own")
        card = await world.cut_off()
        async with world.bot(says("never"), hours=1e-6) as bench:
            await bench.settle()
            said = bench.channel.texts[-1]
            assert f"{card} was allowed on" in said
            assert "This began and may have happened: number.add." in said
            assert "Nothing was done" not in str(bench.channel.texts)
            assert world.runs == 1

    @pytest.mark.parametrize("hours", [24, 1e-6])
    async def test_given_up_after_two_interruptions(self, tmp_path: Path, hours: float) -> None:
        world = CutOff(tmp_path, "own")
        card = await world.cut_off()
        await world.cut_off_again()
        async with world.bot(says("never"), hours=hours) as bench:
            await bench.settle()
            said = bench.channel.texts[-1]
            assert f"{card} was allowed, and I was interrupted twice" in said
            assert "This began and may have happened: number.add." in said
            assert "send it again" not in said
            assert world.runs == 1
