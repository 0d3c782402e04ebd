"""Parts of a run in processes of their own: with a slower fsync, or fresh for each time."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from ctypes import CDLL, c_ulong
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).parent / "slow_fsync.c"
KEPT = ("PATH", "LANG", "TMPDIR")


class ChildFailed(Exception):
    """A process of the benchmarks failed."""


async def compiled(folder: Path) -> Path | None:
    """The library that makes fsync slow and counts it; None where there is no C compiler, or it cannot make it."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    made = folder / "slow_fsync.so"
    command = (compiler, "-O2", "-shared", "-fPIC", "-o", str(made), str(SOURCE))
    child = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
    return made if await child.wait() == 0 else None


def fsyncs() -> int:
    """How many durable writes this process has asked for; 0 where nobody counts."""
    try:
        counter = CDLL(None).bench_fsyncs
    except AttributeError:
        return 0
    counter.restype = c_ulong
    return int(counter())


async def child(
    module: str, *arguments: str, log: Path, library: Path | None = None, slow: float = 0.0, seconds: float = 900.0
) -> Any:
    """What a module of this package says on standard output, as JSON. Raises `ChildFailed`."""
    given: Mapping[str, str] = os.environ  # noqa: TID251 - what a process needs to start
    kept = {key: given[key] for key in KEPT if key in given}
    if library is not None:
        kept |= {"LD_PRELOAD": str(library), "BENCH_FSYNC_MS": f"{slow:g}"}
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"benchmarks.bench.{module}", *arguments),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=errors,
            cwd=ROOT,
            env=kept,
        )
    try:
        async with asyncio.timeout(seconds):
            said, _ = await process.communicate()
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    if process.returncode != 0:
        raise ChildFailed(f"{module} ended with {process.returncode}: {log.read_text(errors='replace')[-2000:]}")
    return json.loads(said)
