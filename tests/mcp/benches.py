"""Bots with servers of MCP, for tests."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from bubbot.app.bot import PortWrappers, open_app
from bubbot.features.mcp.facts import ServerAdded
from bubbot.features.mcp.feature import McpFeature
from bubbot.features.mcp.service import McpService
from bubbot.features.mcp.settings import McpSettings
from bubbot.home import Home
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.settings import SettingsSection
from bubbot.settings.loader import ModelSettings
from tests.approving import ApprovalBench, acting_tools
from tests.made_settings import make_settings
from tests.turns import KeptChannel

ROOT = Path(__file__).parents[2]
ACTING = f"{sys.executable} {ROOT}/tests/mcp/acting_server.py"
LIGHT = (sys.executable, str(ROOT / "tests/mcp/light_server.py"))
SCRIPTED = f"{sys.executable} -I -S {ROOT}/tests/mcp/scripted_server.py"
_SITES = [path for path in sys.path if path.endswith("site-packages")]
READABLE = tuple(dict.fromkeys(str(Path(each).resolve()) for each in (str(ROOT), sys.prefix, sys.base_prefix, *_SITES)))
"""What a program of the tests needs besides the system: the interpreter, its packages and the tests."""


class McpBench(ApprovalBench):
    """A bot with servers of MCP, on a terminal's channel."""

    service: McpService
    feature: McpFeature
    model: ScriptedModel

    async def type(self, line: str) -> str:
        """Type a command in the direct chat, and return the answer."""
        return (await self.say(line)).text

    async def pin(self, tool: str, server: str = "acting", **options: str) -> str:
        """Pin a tool as it is now."""
        shown = await self.type(f",mcp.pin {server} {tool}")
        words = "".join(f" {name}={value}" for name, value in options.items())
        digest = shown.rpartition(f",mcp.pin {server} {tool} ")[2].split()[0]
        return await self.type(f",mcp.pin {server} {tool} digest={digest}{words}")

    async def add(self, command: str = ACTING, name: str = "acting", *, network: bool = False) -> str:
        """Add a program that may read what tests need."""
        read = ",".join(READABLE)
        flag = " network=yes" if network else ""
        return await self.type(f",mcp.add read={read}{flag} {name} {command}")


@asynccontextmanager
async def mcp_bench(
    home: Path,
    script: Mapping[str, Any] | ScriptedModel | None = None,
    *sections: SettingsSection,
    **settings: Any,
) -> AsyncIterator[McpBench]:
    """Open a bot whose tools of others are on; `settings` are those of `[mcp]`, `sections` those of other features.

    It also has the tools of `acting_tools`.
    """
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script or {})
    channel, acted = KeptChannel("stdin"), list[tuple[str, str]]()
    tools = acting_tools(lambda name, text: acted.append((name, text)))
    wrappers = PortWrappers(channel=lambda _: channel, model=lambda _: model, tools=tools)
    chosen = make_settings(
        *sections, McpSettings(**{"enabled": True, **settings}), model=ModelSettings(name="scripted")
    )
    async with open_app(chosen, Home(home), wrappers=wrappers) as app:
        await app.recover_all()
        bench = McpBench(app, channel, acted)
        bench.feature = next(
            service
            for feature in app.features.lasting
            for service in feature.services
            if isinstance(service, McpFeature)
        )
        bench.service = await bench.feature.open()
        bench.model = model
        yield bench


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    """A step of a scripted model that calls a tool."""
    return {"calls": [{"name": name, "arguments": arguments}]}


def rule(when: str, *steps: dict[str, Any]) -> dict[str, Any]:
    """A rule of a scripted model."""
    return {"when": when, "steps": [*steps]}


@contextmanager
def http_server(folder: Path) -> Iterator[str]:
    """Run a server over HTTP on this machine; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "tests/mcp/acting_server.py"), "http", str(port)],
        cwd=ROOT,
        env={"ACTING_FOLDER": str(folder), "PATH": "/usr/bin:/bin"},
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), 0.1).close()
                break
            except OSError:
                if process.poll() is not None:
                    raise
                import time

                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def program(*argv: str, name: str = "acting", network: bool = False, readable: Sequence[str] = READABLE) -> ServerAdded:
    """The fact of a program."""
    return ServerAdded(name, argv, "", "auto", network, tuple(readable), (), (), False, "terminal")


async def wait_for_end(pid: int, seconds: float = 10.0) -> None:
    """Wait until a process is gone."""
    async with asyncio.timeout(seconds):
        while Path(f"/proc/{pid}").exists():  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.02)
