"""The part of a soak in which somebody tends the daemon: restarts, reloads and backups while people talk with it.

The daemon is `bubbot run`, as a service manager starts and ends it. Every backup is restored to a home of its own, where
every hash is checked, and thrown away.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.soak import words
from benchmarks.soak.measure import MB
from benchmarks.soak.parts import FAULTS_KEPT, UNLIMITED, Plan, configured
from benchmarks.soak.process import START, Process, started

SAMPLED = 1.0
"""Seconds between two looks at the daemon."""
WITHIN = 60.0
"""Seconds that the daemon may take to start or end."""
COMMAND = 300.0
"""Seconds that a command may take: to check every hash of what some hours of a large bot left takes a minute."""
ROUND = 4
"""Messages that each chat says before all wait for each other."""
PAUSE = 3.0
"""Seconds between two rounds."""


@dataclass
class Tended:
    """A daemon that is ended and started again. `faults` are sentences; `looks` are (life, megabytes, files)."""

    home: Path
    folder: Path
    stack: AsyncExitStack
    daemon: Process | None = None
    lives: int = 0
    seconds: dict[str, list[float]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    looks: list[tuple[int, float, int]] = field(default_factory=list)

    async def start(self) -> None:
        """A further life; returns when it receives."""
        self.lives += 1
        begun = time.monotonic()
        start = started(f"life-{self.lives}", self.folder, "benchmarks.soak.serve", [str(self.home)])
        self.daemon = await self.stack.enter_async_context(start)
        await self._until("action=run.started", 1)
        self._took("start", begun)

    async def end(self) -> None:
        """As a service manager ends it."""
        daemon, begun = self._daemon(), time.monotonic()
        daemon.child.send_signal(signal.SIGTERM)
        async with asyncio.timeout(WITHIN):
            code = await daemon.child.wait()
        if code:
            self.faults.append(f"{daemon.name} ended with the exit code {code}")
        self._took("end", begun)

    async def restart(self) -> None:
        """Ends it and starts it again."""
        await self.end()
        await self.start()

    async def reload(self) -> None:
        """SIGHUP after a change of the settings."""
        config, begun = self.home / "config.toml", time.monotonic()
        text = config.read_text()
        days = 3 + (text.count("recent_days = 3") > 0)
        config.write_text(text.partition("[memory]")[0] + f"[memory]\nrecent_days = {days}\n")
        before = self._log().count("action=config.loaded")
        self._daemon().child.send_signal(signal.SIGHUP)
        await self._until("action=config.loaded", before + 1)
        self._took("reload", begun)

    async def back_up(self) -> None:
        """A backup, restored elsewhere and checked."""
        target, copy = self.folder / "backup", self.folder / "restored"
        for name, command in (
            ("backup", ["--home", str(self.home), "backup", str(target)]),
            ("restore", ["--home", str(copy), "restore", str(target)]),
            ("verify", ["--home", str(copy), "tape", "verify"]),
        ):
            begun = time.monotonic()
            if not await self._command(name, command):
                break
            self._took(name, begun)
        for left in (target, copy):
            shutil.rmtree(left, ignore_errors=True)

    async def look(self) -> None:
        """Goes on until cancelled."""
        while True:
            with suppress(Exception):  # between two lives there is nothing to look at
                seen = self._daemon().look()
                self.looks.append((self.lives, seen.memory / MB, seen.files))
            await asyncio.sleep(SAMPLED)

    async def _command(self, name: str, arguments: Sequence[str]) -> bool:
        command = [sys.executable, "-m", "bubbot", *arguments]
        child = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            async with asyncio.timeout(COMMAND):
                said, _ = await child.communicate()
        except TimeoutError:
            child.kill()
            await child.wait()
            self.faults.append(f"{name} took longer than {COMMAND:g} seconds")
            return False
        if child.returncode:
            self.faults.append(f"{name} ended with {child.returncode}: {said.decode(errors='replace')[-300:]}")
        return not child.returncode

    async def _until(self, said: str, times: int) -> None:
        end = time.monotonic() + WITHIN
        while self._log().count(said) < times:
            if time.monotonic() > end or self._daemon().child.returncode is not None:
                raise TimeoutError(f"{self._daemon().name} did not say {said}: {self._log()[-1000:]}")
            await asyncio.sleep(0.05)

    def _daemon(self) -> Process:
        assert self.daemon is not None
        return self.daemon

    def _log(self) -> str:
        return self._daemon().errors.read_text(errors="replace")

    def _took(self, what: str, begun: float) -> None:
        self.seconds.setdefault(what, []).append(round(time.monotonic() - begun, 3))


async def tended(given: Plan, folder: Path) -> dict[str, Any]:
    """People talk for `minutes`; every `every` seconds the daemon is backed up, reloaded and started again."""
    folder = folder / "tended"
    folder.mkdir()
    async with _people(given, folder) as (people, tables), AsyncExitStack() as stack:
        configured(folder / "home", words.script(), tables)
        bot = Tended(folder / "home", folder, stack)
        await bot.start()
        ending = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(bot.look())
            talking = group.create_task(_talk(people, ending))
            await _tend(bot, given)
            ending.set()
            answered = await talking
            looking.cancel()
        bot.faults += [fault for one in people.values() for fault in await one.ask({"faults": True})]
        await bot.end()
        return {"answered": answered, **_figures(bot)}


@asynccontextmanager
async def _people(given: Plan, folder: Path) -> AsyncIterator[tuple[dict[str, Process], dict[str, Mapping[str, Any]]]]:
    async with AsyncExitStack() as stack:
        people, tables = dict[str, Process](), dict[str, Mapping[str, Any]]()
        for name, share in given.shared(given.chats).items():
            start = started(name, folder, "benchmarks.soak.people", [name, str(share)])
            people[name] = await stack.enter_async_context(start)
            tables[name] = {**await people[name].said("table", START), **UNLIMITED, "debounce": 0}
        yield people, tables


async def _talk(people: Mapping[str, Process], ending: asyncio.Event) -> int:
    """Round after round until the end is near; the number of answers."""
    answered = 0
    while not ending.is_set():
        question = {"messages": ROUND, "ahead": 2, "spread": 2.0}
        replies = await asyncio.gather(*(one.ask(question) for one in people.values()))
        answered += sum(len(one["ends"]) for one in replies)
        await asyncio.sleep(PAUSE)
    return answered


async def _tend(bot: Tended, given: Plan) -> None:
    end = time.monotonic() + 60 * given.minutes
    while (begun := time.monotonic()) < end:
        await bot.back_up()
        await bot.reload()
        await asyncio.sleep(max(0.0, min(given.every, end - begun) / 2))
        await bot.restart()
        await asyncio.sleep(max(0.0, min(end - begun, given.every) - (time.monotonic() - begun)))
        print(f"life {bot.lives}: {json.dumps({what: took[-1] for what, took in bot.seconds.items()})}", flush=True)


def _figures(bot: Tended) -> dict[str, Any]:
    """`memory` and `files` have the most of each life that was looked at long enough."""
    lives = [[look for look in bot.looks if look[0] == life] for life in range(1, bot.lives + 1)]
    whole = [life for life in lives if len(life) > 2]
    return {
        "lives": bot.lives,
        "seconds": bot.seconds,
        "memory": [round(max(look[1] for look in life), 1) for life in whole],
        "files": [max(look[2] for look in life) for life in whole],
        "faults": bot.faults[:FAULTS_KEPT],
    }
