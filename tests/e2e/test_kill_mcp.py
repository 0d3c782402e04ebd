"""The process is killed at every boundary of effects that are calls of a server of MCP: none happens twice, no answer is doubled."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from bubbot.app.settings import load
from bubbot.app.tapes import open_tapes
from bubbot.command import Caller
from bubbot.features.mcp.host import McpHost
from bubbot.features.mcp.results import PinArgs, SentServerArgs
from bubbot.features.mcp.secrets import McpSecrets
from bubbot.features.mcp.service import McpRules, McpService
from bubbot.features.mcp.settings import McpSettings
from bubbot.home import Home
from bubbot.shell_command import CommandContext
from tests.doubles import SteppingClock
from tests.e2e.effect_harness import EffectBench
from tests.e2e.kill_harness import KILLED
from tests.e2e.test_kill_effects import MESSAGES, POINTS, SAMPLE, points
from tests.fakes.effect_server import effect_server
from tests.mcp.benches import READABLE, ROOT

SETTINGS = McpSettings(enabled=True, sandbox="none")
PINS = (
    {"tool": "act_key", "once": "key", "key": "key"},
    {"tool": "act_probe", "once": "probe", "key": "key", "probe": "was_done"},
    {"tool": "act_never"},
)
AT_SERVER = [point for point in POINTS if not point.startswith("act-")]
"""Points inside of a tool are those of the service here: the bot only waits."""


@dataclass
class McpEffectBench(EffectBench):
    """A bench whose bot acts through a server of MCP."""

    CHILD: ClassVar[str] = "tests.e2e.mcp_child:run"

    def __post_init__(self) -> None:
        super().__post_init__()
        (self.home / "config.toml").write_text('[mcp]\nenabled = true\nsandbox = "none"\n')
        asyncio.run(self._pin())

    async def _pin(self) -> None:
        """Add the server and pin its tools, as an owner does in a shell."""
        home = Home(self.home)
        home.ensure()
        async with open_tapes(home, load(home=self.home).store, write=True) as (store, workspace):
            context = CommandContext(store, workspace, SteppingClock(), lambda: "id", home=self.home)
            host = McpHost(self.home, lambda: SETTINGS, McpSecrets(self.home))
            service = McpService(context.open_tape, McpRules(self.home, lambda: SETTINGS), host=host)
            await service.load()
            command = f"{sys.executable} {ROOT}/tests/mcp/effect_server.py {self.service.address}"
            await service.add(Caller(), SentServerArgs("effects", command, network=True, read=READABLE))
            for pin in PINS:
                args = PinArgs("effects", **pin)  # type: ignore[arg-type]
                shown = await service.pin(Caller(), args)
                await service.pin(Caller(), PinArgs("effects", **pin, digest=shown.digest))  # type: ignore[arg-type]
            await host.close()


@contextmanager
def mcp_bench(home: Path) -> Iterator[McpEffectBench]:
    with effect_server() as service:
        yield McpEffectBench(home, service=service)


@pytest.mark.sampled(8)
@pytest.mark.law("T19", "T20")
@pytest.mark.parametrize("point", [each for each in points(SAMPLE) if each.values[0] in AT_SERVER])
def test_a_kill_at_any_boundary_repeats_no_effect(tmp_path: Path, point: str) -> None:
    with mcp_bench(tmp_path / "home") as bench:
        assert bench.run(MESSAGES, point) == KILLED, (bench.home / "errors").read_text()
        assert bench.run(bench.missing(MESSAGES)) == 0, (bench.home / "errors").read_text()
        assert bench.faults(MESSAGES) == []


@pytest.mark.parametrize("point", ["service-never:after"])
def test_without_a_begin_the_matrix_fails(tmp_path: Path, point: str) -> None:
    """The negative control."""
    with mcp_bench(tmp_path / "home") as bench:
        assert bench.run(MESSAGES, point, "no-begin") == KILLED
        assert bench.run(bench.missing(MESSAGES), "", "no-begin") == 0
        assert "act 1: never happened 2 times" in bench.faults(MESSAGES)
