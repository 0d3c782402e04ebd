"""A child process that answers JSON lines, one request at a time: heavy libraries run there and not in the bot."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field

from bubbot.errors import ModelUnavailable

# Seconds a child has to exit by itself after its stdin is closed.
_GRACE_SECONDS = 2.0
# The line in which Python says why a process ended.
_EXCEPTION = rb"[A-Za-z_.]+(Error|Exception): "
# Bytes buffered from the child; far more than one answer, so that reading is never paused.
_BUFFER_BYTES = 2**20
_NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


class WorkerProcess(Struct, frozen=True):
    """A running worker.

    Attributes:
        subject: names the program in sentences, such as `The local model`.
        tail: the last line of its stderr.
        stderr_task: the task that reads its stderr.
        end_lock: held while it is being ended.
    """

    subject: str
    process: asyncio.subprocess.Process
    tail: deque[bytes]
    stderr_task: asyncio.Task[None]
    end_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def has_exited(self) -> bool:
        """Return true if it has exited; the end of its output arrives before its exit code."""
        stdout = self.process.stdout
        return self.process.returncode is not None or (stdout is not None and stdout.at_eof())

    async def ask(self, line: bytes, seconds: float) -> None:
        """Send a line. After the time limit, kill the child and raise `ModelUnavailable`."""
        stdin = self.process.stdin
        assert stdin is not None
        try:
            async with asyncio.timeout(seconds):
                stdin.write(line)
                await stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            return  # it died: `answer` finds the end of its output and reports the reason
        except TimeoutError as error:
            raise self._kill_silent(seconds) from error

    async def answer(self, seconds: float) -> dict[str, Any]:
        """Read the next line. Raise `ModelUnavailable` if the child ends or says nothing."""
        stdout = self.process.stdout
        assert stdout is not None
        try:
            async with asyncio.timeout(seconds):
                line = await stdout.readline()
        except TimeoutError as error:
            raise self._kill_silent(seconds) from error
        if line.endswith(b"\n"):
            answer: dict[str, Any] = json.loads(line)
            return answer
        await self.end()
        raise ModelUnavailable(self._describe_exit())

    async def end(self) -> None:
        """Close its stdin, which ends it at once; kill it if that fails. Leave no zombie and no open pipe."""
        stdin = self.process.stdin
        assert stdin is not None
        async with self.end_lock:
            try:
                stdin.close()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_GRACE_SECONDS):
                        await self.process.wait()
            finally:
                if self.process.returncode is None:
                    with suppress(ProcessLookupError):
                        self.process.kill()
            with suppress(TimeoutError):
                async with asyncio.timeout(_GRACE_SECONDS):
                    await self._drain()

    async def _drain(self) -> None:
        """Wait for the exit, the end of both pipes and the close of stdin: only then is the transport closed."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        await self.process.wait()
        with suppress(BrokenPipeError, ConnectionResetError):
            await stdin.wait_closed()
        await asyncio.wait([self.stderr_task])
        while not stdout.at_eof():
            # A stream that still waits for a line notices the end by itself; two readers are not allowed.
            with suppress(RuntimeError):
                await stdout.read(_BUFFER_BYTES)
            await asyncio.sleep(0)

    def _kill_silent(self, seconds: float) -> ModelUnavailable:
        with suppress(ProcessLookupError):
            self.process.kill()  # a child that does not answer does not notice a closed pipe either
        return ModelUnavailable(f"{self.subject} gave no sign of life for {seconds:g} seconds and was ended.")

    def _describe_exit(self) -> str:
        status = self.process.returncode
        last_line = self.tail[-1].decode(errors="replace").strip(" .\n") if self.tail else ""
        return f"{self.subject}'s process {describe_status(status)}{f': {last_line}' if last_line else ''}."


async def start_worker(
    program: Path, options: Mapping[str, object], subject: str, variables: Mapping[str, str] = _NO_VARIABLES
) -> WorkerProcess:
    """Start a program that imports nothing of bubbot, with its options as a JSON object.

    It runs by path with -P, so that Python searches neither the working directory nor a folder of bubbot for modules,
    and inherits nothing of this process's environment: it has `variables`.

    Raises:
        ModelUnavailable: it could not be started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", str(program), json.dumps(options)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_BUFFER_BYTES,
            close_fds=True,
            start_new_session=True,
            env={"LANG": "C.UTF-8", **variables},
        )
    except OSError as error:
        raise ModelUnavailable(f"{subject}'s process could not be started: {error}") from error
    assert process.stderr is not None
    tail: deque[bytes] = deque(maxlen=1)
    return WorkerProcess(subject, process, tail, asyncio.create_task(keep_tail(process.stderr, tail)))


async def keep_tail(stderr: asyncio.StreamReader, tail: deque[bytes]) -> None:
    """Keep the last line of a process, or the last one with an exception: llama.cpp's own log may follow that."""
    async for line in stderr:
        # llama.cpp logs `send_error` for a request that is too long: that says nothing about how the process ends.
        is_known = not line.strip() or b"send_error" in line
        has_reason = bool(tail) and re.match(_EXCEPTION, tail[-1]) is not None
        if not is_known and (re.match(_EXCEPTION, line) or not has_reason):
            tail.append(line[-300:])


def describe_status(status: int | None) -> str:
    if status is None:
        return "closed its output"
    if status >= 0:
        return f"ended with exit status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
