"""A real `bubbot run` in a process of its own, with a Bot API server of ours as its platform."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e import forked
from tests.e2e.bot import environment
from tests.e2e.platforms import OnTelegram
from tests.fakes.botapi.server import Server

WAIT = 60.0
"""Seconds any wait may take."""


def configure(home: Path, tables: Mapping[str, Mapping[str, Any]], script: Mapping[str, Any] | None = None) -> None:
    """Writes the home's `config.toml` with these channels, and the model's script. A key may hold tables by name."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "script.json").write_text(json.dumps(script or {}))
    lines = ["[model]", 'name = "scripted"', f"script = {json.dumps(str(home / 'script.json'))}"]
    for name, table in tables.items():
        lines += [f"[channels.{name}]", *_keys({key: value for key, value in table.items() if not _is_table(value)})]
        for key, tables_of in table.items():
            for inner, values in tables_of.items() if _is_table(tables_of) else ():
                lines += [f"[channels.{name}.{key}.{inner}]", *_keys(values)]
    (home / "config.toml").write_text("\n".join(lines) + "\n")


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping)


def _keys(table: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {json.dumps(value)}" for key, value in table.items()]


def configured(home: Path, server: Server, script: Mapping[str, Any] | None = None, **keys: Any) -> None:
    """The same with a channel `telegram` alone."""
    configure(home, {"telegram": {**OnTelegram(server).table(), "debounce": 0.05, **keys}}, script)


@dataclass
class Daemon:
    """A process; `errors` is what it logs, over all processes of its home."""

    home: Path
    process: forked.Child

    @property
    def errors(self) -> str:
        """Everything logged so far."""
        return (self.home / "errors").read_text()

    async def quiet(self, server: Server) -> None:
        """Waits until everything that was sent has been taken, and the bot polls in vain."""
        taken = len(server.calls("getUpdates")) + 2
        await server.until(lambda: len(server.calls("getUpdates")) >= taken, WAIT)

    async def ended(self) -> int:
        """Waits for the end; the exit code."""
        async with asyncio.timeout(WAIT):
            return await self.process.ended()

    async def end(self) -> int:
        """Ends it in an orderly way."""
        self.process.terminate()
        return await self.ended()

    async def kill(self) -> None:
        """Ends it at once."""
        self.process.kill()
        await self.ended()


async def started(
    home: Path, *, target: str = forked.BOT, arguments: Sequence[str] = ("run",), env: Mapping[str, str] | None = None
) -> Daemon:
    """A bot for this home: `bubbot run`, or another target. What it prints goes to a file, so a kill loses nothing."""
    given = {**environment(home, **(env or {})), "PATH": os.environ["PATH"]}
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        with (home / "errors").open("ab") as errors:
            streams = (nothing, errors.fileno(), errors.fileno())
            return Daemon(home, forked.start(target, arguments, env=given, cwd=home.parent, streams=streams))
    finally:
        os.close(nothing)


@asynccontextmanager
async def running(home: Path, **how: Any) -> AsyncIterator[Daemon]:
    """A bot for the block; ended in an orderly way, and killed where that takes too long."""
    daemon = await started(home, **how)
    try:
        yield daemon
        if daemon.process.returncode is None:
            assert await daemon.end() == 0, daemon.errors
    finally:
        if daemon.process.returncode is None:
            await daemon.kill()
