"""The daemon's side of the child that speaks MCP: it starts at first use, and ends when nobody used it for a while."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from bubbot.concurrency import run_uninterrupted
from bubbot.features.mcp.child.messages import MAX_LINE_BYTES, ChildAnswer, ChildRequest, read_line, write_line
from bubbot.features.mcp.child.values import JsonObject, McpFailed, ServerPlace, ToolReply
from bubbot.features.mcp.facts import ServerAdded
from bubbot.features.mcp.offers import OfferedTools
from bubbot.features.mcp.secrets import McpSecrets
from bubbot.features.mcp.settings import McpSettings
from bubbot.log import Redactor
from bubbot.sandbox.sandbox import (
    ProgramLimits,
    Sandbox,
    SandboxKind,
    SandboxUnusable,
    choose_sandbox,
    make_workspace,
    program_environment,
)
from bubbot.settings.environment import network_variables

log = logging.getLogger(__name__)

FOLDERS, LOGINS = "mcp", "mcp_logins"
"""The folders of the home with one folder for each server that we start, and with the logins of servers."""
CHILD = "bubbot.features.mcp.child.main"
START_SECONDS = 15.0
"""Time for the child to import the SDK, on top of that of its first request."""
MARGIN_SECONDS = 10.0
"""More than the timeouts of a request: the child ends it first. A child that does not is killed."""
END_SECONDS = 8.0
LIST_SECONDS = 30.0
MAX_REASON_CHARS = 300


class ServerSandbox(msgspec.Struct, frozen=True):
    """What the program of a server may do; see `SandboxRules`."""

    sandbox: SandboxKind
    network: bool
    readable: tuple[str, ...]


class McpHost:
    """Reaches servers through one child process.

    Attributes:
        starts: how many children it has started.
    """

    def __init__(self, home: Path, find_settings: Callable[[], McpSettings], secrets: McpSecrets) -> None:
        """Start nothing yet. `find_settings` returns the settings in force."""
        self._home = home
        self._find_settings = find_settings
        self._secrets = secrets
        self._child: _Child | None = None
        self._starting = asyncio.Lock()
        self._sandboxes: dict[ServerSandbox, Sandbox] = {}
        self._redactors: dict[str, Redactor] = {}
        self._idle: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self.starts = 0

    @property
    def pid(self) -> int | None:
        """The process id of the child; None if none runs."""
        return None if self._child is None or self._child.has_ended else self._child.pid

    @property
    def is_busy(self) -> bool:
        """True while a request waits for its answer."""
        return self._child is not None and self._child.is_busy

    async def list_tools(self, server: ServerAdded) -> OfferedTools:
        """Ask a server for its tools. Raise `McpFailed`."""
        settings = self._find_settings()
        request = ChildRequest(
            id=0,
            do="list",
            place=await self.find_place(server),
            connect_timeout=settings.connect_timeout,
            timeout=LIST_SECONDS,
        )
        answer = await self._ask(request)
        return OfferedTools(answer.protocol, answer.server, answer.tools)

    async def call(
        self,
        server: ServerAdded,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        meta: Mapping[str, Any],
        answers: Mapping[str, JsonObject] | None = None,
        state: str = "",
    ) -> ToolReply:
        """Call a tool. Raise `McpFailed`: it may have happened nevertheless."""
        settings = self._find_settings()
        request = ChildRequest(
            id=0,
            do="call",
            place=await self.find_place(server),
            connect_timeout=settings.connect_timeout,
            timeout=settings.timeout,
            tool=tool,
            arguments=arguments,
            meta=meta,
            answers=answers or {},
            state=state,
        )
        answer = await self._ask(request)
        reply = answer.reply or ToolReply()
        return msgspec.structs.replace(reply, text=self._redact(server.name, reply.text))

    async def drop(self, name: str) -> None:
        """Close the connection to a server, if there is one."""
        if self._child is not None and not self._child.has_ended:
            with suppress(McpFailed):
                await self._ask(ChildRequest(id=0, do="close", place=ServerPlace(name)))

    async def close(self) -> None:
        """End the child, with all that it has started."""
        if self._idle is not None:
            self._idle.cancel()
        child, self._child = self._child, None
        if child is not None:
            await run_uninterrupted(child.end())
        if self._ending:
            await asyncio.wait({*self._ending})

    async def find_place(self, server: ServerAdded) -> ServerPlace:
        """Return how a server is reached, with its secrets. Raise `McpFailed`."""
        secrets = await asyncio.to_thread(self._secrets.find, server.name)
        self._redactors[server.name] = Redactor(tuple(secrets.values))
        kept = {"header": (server.headers, secrets.headers), "variable": (server.env, secrets.env)}
        for kind, (names, values) in kept.items():
            if missing := [name for name in names if name not in values]:
                raise McpFailed(f"the value of its {kind} {missing[0]} is not in this home: add the server again")
        if server.url:
            tokens = ""
            if server.login:
                (self._home / LOGINS).mkdir(mode=0o700, exist_ok=True)
                tokens = str(self._home / LOGINS / f"{server.name}.json")
            headers = {name: secrets.headers[name] for name in server.headers}
            return ServerPlace(
                server.name, url=server.url, transport=server.transport, headers=headers, tokens_file=tokens
            )
        settings = self._find_settings()
        folder = self._home / FOLDERS / server.name
        try:
            sandbox = await self._find_sandbox(ServerSandbox(settings.sandbox, server.network, server.readable))
            await asyncio.to_thread(make_workspace, folder)
        except SandboxUnusable as error:
            raise McpFailed(f"its program cannot run in a sandbox: {error}") from None
        limits = ProgramLimits(settings.cpu_seconds, settings.memory * 2**20, settings.max_processes)
        argv = sandbox.build_command(server.argv, folder, limits)
        env = program_environment(folder) | {name: secrets.env[name] for name in server.env}
        return ServerPlace(server.name, argv=tuple(argv), env=env, folder=str(folder))

    async def _find_sandbox(self, rules: ServerSandbox) -> Sandbox:
        """Return a sandbox that has run a program; it is asked again only if it did not work."""
        if rules not in self._sandboxes:
            self._sandboxes[rules] = await choose_sandbox(rules)
        return self._sandboxes[rules]

    async def _ask(self, request: ChildRequest) -> ChildAnswer:
        """Ask the child. Raise `McpFailed`, also if it dies meanwhile; the next request starts another one."""
        if self._idle is not None:
            self._idle.cancel()
        child = await self._find_child()
        try:
            seconds = request.connect_timeout + request.timeout + MARGIN_SECONDS + child.start_seconds
            answer = await child.ask(request, seconds)
        finally:
            if child is self._child and not child.is_busy:
                self._idle = asyncio.get_running_loop().call_later(self._find_settings().idle, self._end_idle)
        if (failure := answer.failure) is not None:
            reason = self._redact(request.place.name if request.place is not None else "", failure.reason)
            raise McpFailed(reason, is_gone=failure.is_gone, needs_login=failure.needs_login)
        return answer

    def _redact(self, name: str, text: str) -> str:
        """Return words of a server without the secrets that it got: they would reach the tape, and whoever serves the model."""
        redactor = self._redactors.get(name)
        return text if redactor is None else redactor(text)

    async def _find_child(self) -> _Child:
        async with self._starting:
            if self._child is None or self._child.has_ended:
                if self._child is not None:
                    await self._child.end()
                self._child = await _start_child()
                self.starts += 1
                log.info("the process for MCP has started", extra={"action": "mcp.started", "pid": self._child.pid})
            return self._child

    def _end_idle(self) -> None:
        child = self._child
        if child is None or child.is_busy:
            return
        self._child = None
        log.info("the process for MCP ends: nobody used it", extra={"action": "mcp.idle", "pid": child.pid})
        task = asyncio.get_running_loop().create_task(child.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


class _Child:
    """A running child."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._began = time.monotonic()
        self._waiting: dict[int, asyncio.Future[ChildAnswer]] = {}
        self._next_id = 1
        self._lines: deque[str] = deque(maxlen=5)
        self._reason = ""
        self._reading = asyncio.create_task(self._read())
        self._errors = asyncio.create_task(self._read_errors())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None or self._reading.done()

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting)

    @property
    def start_seconds(self) -> float:
        """The time that it may still need to start."""
        return max(0.0, START_SECONDS - (time.monotonic() - self._began))

    async def ask(self, request: ChildRequest, seconds: float) -> ChildAnswer:
        """Send a request and wait for its answer. Raise `McpFailed` if the child ends, or does not answer."""
        number, self._next_id = self._next_id, self._next_id + 1
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        is_answered = False
        try:
            async with asyncio.timeout(seconds):
                await self._send(msgspec.structs.replace(request, id=number))
                answer: ChildAnswer = await future
                is_answered = True
                return answer
        except TimeoutError:
            is_answered = True
            self._kill(f"it did not answer within {seconds:g} seconds and was ended")
            raise McpFailed(f"no answer within {seconds:g} seconds", is_gone=True) from None
        finally:
            self._waiting.pop(number, None)
            if not is_answered and not self.has_ended:
                with suppress(OSError, RuntimeError):
                    self._write(ChildRequest(id=number, do="cancel"))

    async def end(self) -> None:
        """Close its input, which ends it; kill it if that does not help. Leave no zombie and no open pipe."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await self._process.wait()
        self._kill("it was ended")
        await self._process.wait()
        await asyncio.wait({self._reading, self._errors}, timeout=END_SECONDS)
        self._reading.cancel()
        self._errors.cancel()
        await asyncio.gather(self._reading, self._errors, return_exceptions=True)

    async def _send(self, request: ChildRequest) -> None:
        self._write(request)
        with suppress(OSError):  # it has died: the end of its output says so
            assert self._process.stdin is not None
            await self._process.stdin.drain()

    def _write(self, request: ChildRequest) -> None:
        assert self._process.stdin is not None
        if self.has_ended:
            raise McpFailed(self._describe_end(), is_gone=True)
        self._process.stdin.write(write_line(request))

    def _kill(self, reason: str) -> None:
        self._reason = self._reason or reason
        with suppress(ProcessLookupError, PermissionError):
            if self._process.returncode is None:
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _read(self) -> None:
        """Hand out the answers until its output ends; then no request waits any more."""
        output = self._process.stdout
        assert output is not None
        try:
            while line := await output.readline():
                answer = read_line(line, ChildAnswer)
                future = self._waiting.get(answer.id)
                if future is not None and not future.done():
                    future.set_result(answer)
        except ValueError as error:  # a line that is too long, or is none of ours
            self._kill(f"it wrote what is no answer ({type(error).__name__})")
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._process.wait()
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(McpFailed(self._describe_end(), is_gone=True))

    async def _read_errors(self) -> None:
        errors = self._process.stderr
        assert errors is not None
        while True:
            try:
                line = await errors.readline()
            except ValueError:
                continue
            if not line:
                return
            self._lines.append(line.decode(errors="replace").strip())

    def _describe_end(self) -> str:
        status = self._process.returncode
        words = [self._reason or f"it ended with status {status}"]
        if not self._reason and self._lines:
            words.append(self._lines[-1])
        return f"the process that holds the connections ended: {': '.join(words)}"[:MAX_REASON_CHARS]


async def _start_child() -> _Child:
    """Start a child: its own group, of our environment proxies and certificates only, and killed by the kernel if this process dies."""
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", CHILD, str(os.getpid())),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=MAX_LINE_BYTES,
            close_fds=True,
            start_new_session=True,
            env={"LANG": "C.UTF-8", "PYTHONIOENCODING": "utf-8", **network_variables()},
        )
    except OSError as error:
        raise McpFailed(f"the process that holds the connections could not be started: {error.strerror}") from error
    return _Child(process)
