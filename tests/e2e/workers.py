"""Several real `bubbot run`, each with a home of its own, that share the turns of one PostgreSQL database."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from tests.e2e.bot import run
from tests.e2e.daemon import WAIT, Daemon, configure, started
from tests.e2e.platforms import Platform

LEASE = 3
"""Seconds of silence after which others take a worker's chats over; in use it is ten times as long."""


@dataclass
class Fleet:
    """Workers of one database.

    Attributes:
        address: of the database, for its owner.
        workers: the running ones, by name.
    """

    folder: Path
    address: str
    platforms: Sequence[Platform]
    script: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    workers: dict[str, Daemon] = field(default_factory=dict)

    async def start(self, name: str) -> Daemon:
        """Start a worker, or start it again."""
        home = self.folder / name
        if not home.exists():
            tables = {
                each.name: {**each.table(), "debounce": 0, "messages_per_minute": 0, **self.settings}
                for each in self.platforms
            }
            configure(home, tables, self.script)
        more = {"BUBBOT_STORE__URL": self.address, "BUBBOT_STORE__LEASE": str(LEASE), **self.env}
        worker = self.workers[name] = await started(home, env=more)
        return worker

    def freeze(self, name: str) -> None:
        """Stop a worker where it is."""
        os.kill(self.workers[name].process.pid, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """Let a frozen worker go on."""
        os.kill(self.workers[name].process.pid, signal.SIGCONT)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        with psycopg.connect(self.address, autocommit=True) as conn:
            conn.execute("SET search_path = bubbot_jobs")
            return conn.execute(statement.encode()).fetchall()

    async def found(self, statement: str) -> list[tuple[Any, ...]]:
        """Wait until a statement has rows; return them."""
        async with asyncio.timeout(WAIT):
            while True:
                if rows := self.rows(statement):
                    return rows
                await asyncio.sleep(0.05)

    async def logged(self, name: str, text: str) -> None:
        """Wait until a worker has logged a text."""
        async with asyncio.timeout(WAIT):
            while True:
                if text in self.workers[name].errors:
                    return
                await asyncio.sleep(0.05)

    def bubbot(self, name: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        """Run a command at the home of a worker."""
        return run(self.folder / name, *arguments, env={"BUBBOT_STORE__URL": self.address})

    @property
    def log(self) -> str:
        """What all workers have logged."""
        return "\n".join(f"--- {name}\n{worker.errors}" for name, worker in self.workers.items())


@asynccontextmanager
async def fleet(
    folder: Path, address: str, platforms: Sequence[Platform], script: Mapping[str, Any], **more: Any
) -> AsyncIterator[Fleet]:
    """Hold workers for a block; kill those that run at its end."""
    found = Fleet(folder, address, platforms, script, **more)
    try:
        yield found
    finally:
        for worker in found.workers.values():
            if worker.process.returncode is None:
                os.kill(worker.process.pid, signal.SIGCONT)
                await worker.kill()
