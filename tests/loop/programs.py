"""Programs that the loop starts: none of them outlives it, however it ends."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from pathlib import Path

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)
SHOWN_CHARACTERS = 4_000
"""How much of the end of what a program printed an error shows."""


def die_with_parent() -> None:
    """Let Linux kill this process as soon as the one that started it is gone: nobody ends it after a SIGKILL of that."""
    if sys.platform == "linux" and LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


async def start_program(*command: object, env: Mapping[str, str], folder: Path, out: int = PIPE) -> Process:
    """Start a program in a folder; what it prints goes to `out`, its errors too unless that is a pipe."""
    return await asyncio.create_subprocess_exec(
        *map(str, command),
        env=env,
        cwd=folder,
        stdout=out,
        stderr=PIPE if out == PIPE else out,
        preexec_fn=die_with_parent,
    )


async def run_program(*command: object, env: Mapping[str, str], folder: Path, seconds: float) -> str:
    """Run a program in a folder to its end; return what it printed.

    Raises:
        RuntimeError: it failed.
        TimeoutError: it took longer, and was killed.
    """
    process = await start_program(*command, env=env, folder=folder)
    try:
        async with asyncio.timeout(seconds):
            out, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        printed = "\n".join(each.decode()[-SHOWN_CHARACTERS:] for each in (out, errors))
        raise RuntimeError(f"{' '.join(map(str, command))} failed with {process.returncode}:\n{printed}")
    return out.decode()
