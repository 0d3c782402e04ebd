"""The daemon's side of the pages of auditors: for each a child in a sandbox, and a database with the granted tapes.

The database is made again as the tapes grow, and goes, with the child, once the auditor has not looked for a while.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import IO

import msgspec
from msgspec import Struct

import bubbot
from bubbot.errors import AccessError, BubbotError, ConfigError, EntryNotFound, StoreUnavailable
from bubbot.formatting import clean, replace_controls
from bubbot.home import Home
from bubbot.ports.pages import PageAnswer, PageRequest
from bubbot.sandbox.sandbox import (
    ProgramLimits,
    Sandbox,
    SandboxKind,
    SandboxUnusable,
    choose_sandbox,
    end_program,
    program_environment,
)
from bubbot.stores.sqlite.excerpt import write_excerpt
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.boundary import SharedTape, TapeBoundary, Viewer
from bubbot.tape.entry import timestamp
from bubbot.tape.query import IdRanges, TapeQuery

CHILD = "bubbot.app.audit_child"
FOLDER = "audit"
DATABASE = "tapes.db"
ANSWER_SECONDS = 60.0
"""Seconds that an answer may take, with the start of the child."""
IDLE_SECONDS = 60.0
"""Seconds after which the child and the database of an auditor who does not look go."""
REFRESH_SECONDS = 2.0
"""Seconds between two looks for what is new or erased."""
NEWEST_SHARED_ENTRIES = 20_000
"""How many of the newest entries of a shared tape are searched for facts about granted sessions to copy."""
LIMITS = ProgramLimits(seconds=3_600, memory_bytes=2 << 30, processes=64)
LENGTH_BYTES = 4
MAX_ANSWER_BYTES = 64 << 20


class AuditRequest(Struct, frozen=True):
    """A request for a page, as the child gets it."""

    path: tuple[str, ...]
    query: dict[str, str]
    name: str
    sessions: tuple[str, ...]
    account: str


class AuditAnswer(Struct, frozen=True):
    """The answer of the child; `error` is the name of an error class, and `text` its words."""

    body: bytes = b""
    content_type: str = "text/html"
    status: int = 200
    filename: str = ""
    policy: str = ""
    error: str = ""
    text: str = ""


class SandboxChoice(Struct, frozen=True):
    """The rules of the sandbox; see `SandboxRules`."""

    sandbox: SandboxKind
    network: bool = False
    readable: Sequence[str] = ()


class SandboxedAuditors:
    """The pages of auditors, each from a child that can open nothing but a database with the granted tapes."""

    def __init__(
        self,
        store: SqliteStore,
        home: Home,
        *,
        kind: SandboxKind,
        open_reader: Callable[[Viewer], TapeBoundary],
        shared: Sequence[SharedTape],
        now: Callable[[], datetime],
        language: str,
        zone: str,
    ) -> None:
        """Set what the databases are made from, and how pages are written."""
        self._store, self._home, self._kind = store, home, kind
        self._open_reader, self._shared, self._now = open_reader, shared, now
        self._words = language, zone
        self._folder = home.path / FOLDER
        self._opened: dict[str, AuditorChild] = {}
        self._lock = asyncio.Lock()
        self._tending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Remove what an earlier process left, and begin to look for what is new."""
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        self._tending = asyncio.create_task(self._tend())

    async def answer(self, request: PageRequest) -> PageAnswer:
        """Answer an auditor. Raise what `Pages.answer` raises, and `ConfigError` if no sandbox works."""
        viewer = request.viewer
        async with self._lock:
            auditor = self._opened.get(viewer.name)
            if auditor is None:
                sandbox = await self._choose_sandbox()
                folder = self._folder / sha256(viewer.name.encode()).hexdigest()[:16]
                auditor = self._opened[viewer.name] = AuditorChild(
                    folder, sandbox, self._write, self._store.newest_position, self._words
                )
            auditor.note_look(viewer)
        return await auditor.answer(request)

    async def aclose(self) -> None:
        """End the children, and remove their databases."""
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.gather(self._tending, return_exceptions=True)
        for auditor in self._opened.values():
            await auditor.aclose()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _choose_sandbox(self) -> Sandbox:
        readable = list_code_folders()
        home = self._home.path.resolve()
        for folder in map(Path, readable):
            if home.is_relative_to(folder):
                raise ConfigError(
                    f"[trace] sandbox: pages of auditors are off, because the home {home} is inside {folder}, where the program "
                    "of the bot is: move the home elsewhere"
                )
        try:
            return await choose_sandbox(SandboxChoice(self._kind, readable=readable))
        except SandboxUnusable as error:
            raise ConfigError(
                f"[trace] sandbox: pages of auditors are off, because no sandbox works here ({error}): install bubblewrap, or "
                'write "none" to serve them from the bot itself'
            ) from error

    async def _write(self, database: Path, viewer: Viewer) -> None:
        """Write the database of an auditor."""
        reader, part = self._open_reader(viewer), dict[str, list[int]]()
        for tape in await self._store.tapes():
            if any(shared.covers(tape.name) for shared in self._shared):
                span = (max(tape.head - NEWEST_SHARED_ENTRIES + 1, 1), tape.head)
                (found,) = await reader.fetch([TapeQuery(tape.name, IdRanges((span,)))])
                part[tape.name] = [entry.id for entry in found]
        tapes = [reader.open_session(session).name for session in sorted(viewer.sessions or ())]
        now = timestamp(self._now())
        await asyncio.to_thread(partial(write_excerpt, self._store.path, database, tapes, part, now=now))

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            async with self._lock:
                for name, auditor in [*self._opened.items()]:
                    if auditor.is_idle:
                        del self._opened[name]
                        await auditor.aclose()
                    else:
                        with suppress(BubbotError):  # the next request tells it
                            await auditor.refresh()


class AuditorChild:
    """The child of one auditor, and its database. One request at a time."""

    def __init__(
        self,
        folder: Path,
        sandbox: Sandbox,
        write: Callable[[Path, Viewer], Awaitable[None]],
        newest_position: Callable[[], Awaitable[int]],
        words: tuple[str, str],
    ) -> None:
        """Set where it lives, what writes its database, and the language and the time zone of its pages."""
        self._database, self._work, self._folder = folder / "data" / DATABASE, folder / "work", folder
        self._sandbox, self._write, self._newest_position, self._words = sandbox, write, newest_position, words
        self._viewer: Viewer | None = None
        self._written: tuple[Viewer, int] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._errors: IO[bytes] | None = None
        self._looked = 0.0
        self._lock = asyncio.Lock()

    @property
    def is_idle(self) -> bool:
        return not self._lock.locked() and asyncio.get_running_loop().time() - self._looked > IDLE_SECONDS

    def note_look(self, viewer: Viewer) -> None:
        """Note that the auditor looks, and what is granted now."""
        self._viewer, self._looked = viewer, asyncio.get_running_loop().time()

    async def answer(self, request: PageRequest) -> PageAnswer:
        """Ask the child. Raise what `Pages.answer` raises, and `StoreUnavailable` if the child ends or does not answer."""
        async with self._lock:
            await self._refresh()
            process = await self._find_process()
            viewer = request.viewer
            asked = AuditRequest(
                request.path, dict(request.query), viewer.name, tuple(sorted(viewer.sessions or ())), viewer.account
            )
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    answer = await self._ask(process, msgspec.json.encode(asked))
            except (TimeoutError, OSError, asyncio.IncompleteReadError, msgspec.DecodeError) as error:
                reason = await self._end()
                raise StoreUnavailable(
                    f"the process of this page ended ({reason or type(error).__name__}): try again"
                ) from error
            except asyncio.CancelledError:  # its answer would be taken for the next one
                await self._end()
                raise
        if answer.error:
            raise _ERRORS.get(answer.error, StoreUnavailable)(answer.text)
        return PageAnswer(
            answer.body, answer.content_type, answer.status, filename=answer.filename, policy=answer.policy
        )

    async def refresh(self) -> None:
        """Write the database again if something was written or erased since. Raise `StoreError`."""
        async with self._lock:
            await self._refresh()

    async def aclose(self) -> None:
        """End the child, and remove its database."""
        async with self._lock:
            await self._end()
            self._written = None
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _refresh(self) -> None:
        assert self._viewer is not None
        wanted = self._viewer, await self._newest_position()
        if wanted == self._written:
            return
        data, temporary = self._database.parent, self._work / ".tmp"
        for folder in (self._folder.parent, self._folder, data, self._work, temporary):
            folder.mkdir(mode=0o700, exist_ok=True)
        await self._write(self._database, self._viewer)
        self._written = wanted

    async def _find_process(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            await self._end()
            readable = [*list_code_folders(), str(self._database.parent)]
            program = [sys.executable, "-P", "-m", CHILD, str(self._database), *self._words]
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - `_end` closes it
            self._process = await asyncio.create_subprocess_exec(
                *self._sandbox.build_command(program, self._work, LIMITS, readable),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=self._errors,
                cwd=self._work,
                env=program_environment(self._work),
                close_fds=True,
                start_new_session=True,
            )
        return self._process

    @staticmethod
    async def _ask(process: asyncio.subprocess.Process, asked: bytes) -> AuditAnswer:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(len(asked).to_bytes(LENGTH_BYTES) + asked)
        await process.stdin.drain()
        length = int.from_bytes(await process.stdout.readexactly(LENGTH_BYTES))
        if length > MAX_ANSWER_BYTES:
            raise OSError("its answer is too long")
        return msgspec.json.decode(await process.stdout.readexactly(length), type=AuditAnswer)

    async def _end(self) -> str:
        """End the child; return its last words."""
        process, self._process = self._process, None
        errors, self._errors = self._errors, None
        if process is None:
            return ""
        await end_program(process)
        if errors is None:
            return ""
        with errors:
            errors.seek(0)
            lines = replace_controls(clean(errors.read()[-4_000:].decode(errors="replace"))).strip().splitlines()
        return lines[-1][:200] if lines else ""


_ERRORS: Mapping[str, type[BubbotError]] = MappingProxyType(
    {kind.__name__: kind for kind in (AccessError, EntryNotFound, ConfigError)}
)


def list_code_folders() -> list[str]:
    """List the folders with the program of this process: Python, its packages, and bubbot."""
    folders = [sys.prefix, sys.base_prefix, str(Path(bubbot.__file__).resolve().parents[1])]
    return list(dict.fromkeys(os.path.realpath(folder) for folder in folders))
