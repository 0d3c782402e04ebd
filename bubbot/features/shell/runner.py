"""Running a program: its output within limits, and its end, with everything it has started."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from msgspec import Struct

from bubbot.formatting import clean, replace_controls
from bubbot.sandbox.sandbox import (
    ProgramLimits,
    Sandbox,
    SandboxUnusable,
    end_program,
    make_workspace,
    program_environment,
)
from bubbot.texts import Texts

CHUNK_BYTES = 65_536
MAX_READ_FACTOR = 100
"""A program that has written so many times what is kept is ended."""
PIPE_SECONDS = 3.0
"""Time for the pipe of a program that has ended to close."""


class ProgramOutput:
    """The first and the last bytes of an output: `limit` of the `size` that were written."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._half = max(limit // 2, 1)
        self._head, self._tail = bytearray(), bytearray()
        self.size = 0

    def add(self, data: bytes) -> None:
        """Add what was written."""
        self.size += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        del self._tail[: max(len(self._tail) - self._half, 0)]

    def text(self) -> str:
        """Return it as text without characters that a terminal obeys; what is left out in the middle is counted."""
        left_out = self.size - len(self._head) - len(self._tail)
        if not left_out:
            return _decode(bytes(self._head + self._tail))
        return f"{_decode(bytes(self._head))}\n… [{left_out} bytes left out]\n{_decode(bytes(self._tail))}"


def _decode(data: bytes) -> str:
    return replace_controls(clean(data.decode(errors="replace")))


class ProgramEnd(Struct, frozen=True):
    """How a program ended.

    Attributes:
        status: its exit status; that of a signal is 128 and its number.
        reason: why it was ended: `time`, `output`, `stopped`; empty if it ended by itself.
    """

    status: int
    reason: str = ""

    def describe(self, texts: Texts, limit: float) -> str:
        """Say it; `limit` is the seconds that it might have run."""
        match self.reason:
            case "time":
                return texts.say("shell_timeout", seconds=limit)
            case "output":
                return texts.say("shell_too_much_output")
            case "stopped":
                return texts.say("shell_stopped")
        return texts.say("shell_status", status=self.status)


class OutputPipe:
    """The pipe from a program. A pipe of asyncio's own would make the wait for the program one for its children as well."""

    def __init__(self, reader: asyncio.StreamReader, transport: asyncio.ReadTransport, writing_end: int) -> None:
        self.reader = reader
        self.writing_end = writing_end
        self._transport = transport

    @classmethod
    async def open(cls) -> Self:
        """Open the pipe."""
        reading_end, writing_end = os.pipe()
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading_end, "rb", buffering=0)
        )
        return cls(reader, transport, writing_end)

    def close_writing_end(self) -> None:
        """Leave the writing end to the program alone."""
        os.close(self.writing_end)

    def close(self) -> None:
        """Read no more."""
        self._transport.close()


class RunningProgram:
    """A program that runs, with everything it has started."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        pipe: OutputPipe,
        *,
        output: ProgramOutput,
    ) -> None:
        self._process = process
        self._pipe = pipe
        self._stopped = asyncio.Event()
        self.output = output

    async def wait(self, seconds: float) -> ProgramEnd:
        """Wait for its end, and end it after so many seconds; a caller that is cancelled ends it, too."""
        reading = asyncio.create_task(self._read())
        exiting = asyncio.create_task(self._process.wait())
        stopping = asyncio.create_task(self._stopped.wait())
        reason = ""
        try:
            pending = {reading, exiting, stopping}
            async with asyncio.timeout(seconds):
                while exiting in pending and not reason:
                    done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                    if stopping in done:
                        reason = "stopped"
                    elif reading in done and reading.result():
                        reason = "output"
        except TimeoutError:
            reason = "time"
        finally:
            stopping.cancel()
            await end_program(self._process)
            exiting.cancel()
            with suppress(TimeoutError):
                async with asyncio.timeout(PIPE_SECONDS):  # a process in no sandbox may hold the pipe open
                    await reading
            self._pipe.close()
        code = self._process.returncode or 0
        return ProgramEnd(code if code >= 0 else 128 - code, reason)

    def stop(self) -> None:
        """Ask for its end; `wait` returns soon."""
        self._stopped.set()

    async def _read(self) -> bool:
        """Read the output to its end. Return true if it is far too long."""
        most = MAX_READ_FACTOR * self.output.limit
        while data := await self._pipe.reader.read(CHUNK_BYTES):
            self.output.add(data)
            if self.output.size > most:
                return True
        return False


async def start_program(
    argv: Sequence[str],
    sandbox: Sandbox,
    workspace: Path,
    limits: ProgramLimits,
    max_output: int,
    *,
    readable: Sequence[str] = (),
) -> RunningProgram:
    """Start a program in a sandbox, in which it may read these folders besides.

    Raises:
        SandboxUnusable: the workspace or the sandbox cannot be used.
    """
    make_workspace(workspace)
    pipe = await OutputPipe.open()
    try:
        process = await asyncio.create_subprocess_exec(
            *sandbox.build_command(argv, workspace, limits, readable),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe.writing_end,
            stderr=asyncio.subprocess.STDOUT,
            cwd=workspace,
            env=program_environment(workspace),
            close_fds=True,
            start_new_session=True,
        )
    except OSError as error:  # also if the arguments are too long for the system
        pipe.close()
        raise SandboxUnusable(f"{sandbox.name} cannot be started: {error.strerror}") from None
    finally:
        pipe.close_writing_end()
    return RunningProgram(process, pipe, output=ProgramOutput(max_output))
