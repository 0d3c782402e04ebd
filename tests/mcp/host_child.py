"""A process that uses servers as the daemon does, until it is killed. Arguments: the home, the kind of sandbox, a seed, a number of acts.

It prints a line after each act, and then goes on for ever.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from contextlib import suppress
from pathlib import Path

from bubbot.features.mcp.child.values import McpFailed
from bubbot.features.mcp.facts import ServerAdded
from bubbot.features.mcp.host import McpHost
from bubbot.features.mcp.secrets import McpSecrets
from bubbot.features.mcp.settings import McpSettings
from tests.mcp.benches import LIGHT, READABLE

ACTS = ("call", "cancel", "kill_server", "kill_child", "drop", "idle")


async def run(home: Path, sandbox: str, seed: int, count: int) -> None:
    chance = random.Random(seed)
    settings = McpSettings.model_validate({"enabled": True, "sandbox": sandbox, "timeout": 20.0})
    host = McpHost(home, lambda: settings, McpSecrets(home))
    servers = [
        ServerAdded(
            f"s{number}", (*LIGHT, *(["stubborn"] * (number % 2))), "", "auto", False, READABLE, (), (), False, ""
        )
        for number in range(2)
    ]
    for number in range(count):
        server, act = chance.choice(servers), chance.choice(ACTS) if number else "call"
        match act:
            case "call":
                await say_hello(host, server)
            case "cancel":
                waiting = asyncio.create_task(host.call(server, "wait", {}, meta={}))
                await asyncio.sleep(chance.random() * 0.5)
                waiting.cancel()
                with suppress(asyncio.CancelledError, McpFailed):
                    await waiting
            case "kill_server":
                waiting = asyncio.create_task(host.call(server, "wait", {}, meta={}))
                await asyncio.sleep(0.5)
                for pid in list_servers(home, server.name):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                waiting.cancel()
                with suppress(asyncio.CancelledError, McpFailed):
                    await waiting
            case "kill_child":
                if host.pid is not None:
                    with suppress(ProcessLookupError):  # an earlier kill may not have been noticed yet
                        os.kill(host.pid, signal.SIGKILL)
            case "drop":
                await host.drop(server.name)
            case "idle":
                await host.close()
        print(act, host.pid or 0, flush=True)
    with suppress(McpFailed):
        await host.call(servers[seed % 2], "wait", {}, meta={})
    await asyncio.sleep(1_000)


async def say_hello(host: McpHost, server: ServerAdded) -> None:
    """Call a tool. The first call after a kill may meet what is dying, and fails with it; the next one does not."""
    try:
        reply = await host.call(server, "hello", {}, meta={})
    except McpFailed as error:
        if not error.is_gone:
            raise
        reply = await host.call(server, "hello", {}, meta={})
    assert reply.text == "hello"


def list_servers(home: Path, name: str) -> list[int]:
    """List the processes in the folder of a server."""
    folder = str(home / "mcp" / name)
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and str((entry / "cwd").readlink()) == folder:
                found.append(int(entry.name))
    return found


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
