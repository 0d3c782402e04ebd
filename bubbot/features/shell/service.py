"""Programs of chats: the sandbox that works here, the folder of each chat, and what runs in the background."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from bubbot.command import Caller
from bubbot.features.shell.named_files import digest_named_files
from bubbot.features.shell.runner import ProgramEnd, RunningProgram, start_program
from bubbot.features.shell.settings import ShellSettings
from bubbot.ports.channel import workspace_folder
from bubbot.ports.folders import ListFolders, list_no_folders
from bubbot.sandbox.sandbox import ProgramLimits, Sandbox, SandboxUnusable, choose_sandbox

log = logging.getLogger(__name__)

MAX_ENDED_JOBS = 20
"""Programs of one chat that have ended and whose output is kept."""


class TooManyJobs(Exception):
    """A chat has as many programs in the background as it may."""


class ProgramResult(Struct, frozen=True):
    """A program that has ended.

    Attributes:
        end: how it ended.
        output: what it wrote.
        seconds: how long it ran.
        limit: the seconds that it might have run.
    """

    end: ProgramEnd
    output: str
    seconds: float
    limit: float

    def describe(self, caller: Caller) -> str:
        """Show its output below a line about its end."""
        texts = caller.result_texts
        head = texts.say("ProgramResult", how=self.end.describe(texts, self.limit), seconds=self.seconds)
        return f"[{head}]\n{self.output or texts.say('shell_no_output')}"


class ShellJob:
    """A program in the background.

    Attributes:
        id: its id in its chat.
        command: what runs, for people.
        end: how it ended; None while it runs.
    """

    def __init__(self, job_id: str, command: str, program: RunningProgram, seconds: float) -> None:
        self.id = job_id
        self.command = command
        self.end: ProgramEnd | None = None
        self._program = program
        self._task = asyncio.create_task(self._run(seconds))

    @property
    def output(self) -> str:
        """What it has written so far."""
        return self._program.output.text()

    async def stop(self) -> None:
        """End it, and wait until it has ended."""
        self._program.stop()
        await asyncio.wait({self._task})

    async def _run(self, seconds: float) -> None:
        self.end = await self._program.wait(seconds)


class ShellService:
    """Runs programs, once a sandbox has run one."""

    def __init__(
        self,
        settings: ShellSettings,
        home: Path,
        clock: Callable[[], float],
        list_folders: ListFolders = list_no_folders,
    ) -> None:
        """Build it.

        Args:
            clock: returns seconds that never go back.
            list_folders: returns the folders that a command may read besides.
        """
        self.settings = settings
        self.list_folders = list_folders
        self._home = home
        self._clock = clock
        self._choosing = asyncio.Lock()
        self._sandbox: Sandbox | SandboxUnusable | None = None
        self._jobs: dict[str, dict[str, ShellJob]] = {}
        self._next_job = 1

    def apply(self, settings: ShellSettings) -> None:
        """Put new settings into force; programs that run stay as they are."""
        self.settings = settings
        self._sandbox = None

    def find_workspace(self, session: str) -> Path:
        """Return the folder of a chat."""
        return workspace_folder(self._home, session)

    async def digest_named_files(self, session: str, command: Sequence[str]) -> Mapping[str, str]:
        """Return the digests of the files in the folder of a chat that a command names."""
        return await asyncio.to_thread(digest_named_files, self.find_workspace(session), command)

    async def find_sandbox(self) -> Sandbox:
        """Return the sandbox, which has run a program. Raise `SandboxUnusable` with the reason for which none may run."""
        async with self._choosing:
            if self._sandbox is None:
                try:
                    self._sandbox = await choose_sandbox(self.settings)
                except SandboxUnusable as error:
                    log.warning("no program can run: %s", error, extra={"action": "shell.unusable"})
                    self._sandbox = error
        if isinstance(self._sandbox, SandboxUnusable):
            raise SandboxUnusable(str(self._sandbox))
        return self._sandbox

    async def run(self, session: str, argv: Sequence[str]) -> ProgramResult:
        """Run a program of a chat to its end. Raise `SandboxUnusable`."""
        begun = self._clock()
        limit = self.settings.timeout
        program = await self._start(session, argv, limit)
        end = await program.wait(limit)
        return ProgramResult(end, program.output.text(), self._clock() - begun, limit)

    async def start(self, session: str, argv: Sequence[str], command: str) -> ShellJob:
        """Start a program of a chat in the background. Raise `SandboxUnusable` and `TooManyJobs`."""
        jobs = self._jobs.setdefault(session, {})
        if sum(job.end is None for job in jobs.values()) >= self.settings.max_jobs:
            raise TooManyJobs
        for old in [job.id for job in jobs.values() if job.end is not None][:-MAX_ENDED_JOBS]:
            del jobs[old]
        job_id, self._next_job = str(self._next_job), self._next_job + 1
        program = await self._start(session, argv, self.settings.job_timeout)
        jobs[job_id] = ShellJob(job_id, command, program, self.settings.job_timeout)
        return jobs[job_id]

    def list_jobs(self, session: str) -> Sequence[ShellJob]:
        """List the programs of a chat in the background, those that have ended too, oldest first."""
        return tuple(self._jobs.get(session, {}).values())

    async def end_jobs(self, session: str) -> None:
        """End the programs of a chat, and forget them."""
        await asyncio.gather(*(job.stop() for job in self._jobs.pop(session, {}).values()))

    async def close(self) -> None:
        """End all programs in the background."""
        await asyncio.gather(*(self.end_jobs(session) for session in [*self._jobs]))

    async def _start(self, session: str, argv: Sequence[str], seconds: float) -> RunningProgram:
        limits = ProgramLimits(int(seconds) + 1, self.settings.memory * 2**20, self.settings.max_processes)
        sandbox = await self.find_sandbox()
        readable = tuple(await self.list_folders(argv))
        workspace = self.find_workspace(session)
        return await start_program(argv, sandbox, workspace, limits, self.settings.max_output, readable=readable)
