"""The environment of `make loop`, and the server of it: `transformers serve` on loopback, in which a folder is a model's name."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from tests.loop.programs import run_program, start_program

START_SECONDS = 180.0
"""Seconds until the server answers; a busy machine reads its libraries slowly."""
END_SECONDS = 30.0


def loop_folder() -> Path:
    """Return where `make loop` installs it: `$LOOP_FOLDER`, else a folder of the cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("LOOP_FOLDER") or Path(cache, "bubbot", "loop"))


def loop_is_installed() -> bool:
    """Return true if it is there, whole."""
    return (loop_folder() / ".installed").exists()


def offline(folder: Path) -> dict[str, str]:
    """Return the variables of a program of the environment: it downloads nothing, and writes into this folder."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "HF_HOME": str(folder / "hub"),
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "OMP_WAIT_POLICY": "PASSIVE",  # threads that wait for others leave the processor to them
        # large tensors get memory that is there, not new pages each time: a third of the time
        "MALLOC_MMAP_THRESHOLD_": str(1 << 32),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 33),
    }


async def run_script(folder: Path, script: Path, *arguments: object, seconds: float) -> str:
    """Run a script with the environment's Python; return what it printed. Raises `RuntimeError` if it fails."""
    python = loop_folder() / "bin" / "python"
    return await run_program(python, script, *arguments, env=offline(folder), folder=folder, seconds=seconds)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[str]:
    """Serve all folders of weights for the block; give the address. What it prints goes to `serve.log`."""
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = int(chosen.getsockname()[1])
    log = folder / "serve.log"
    with log.open("wb") as out:
        process = await start_program(
            loop_folder() / "bin" / "transformers",
            *("serve", "--host", "127.0.0.1", "--port", port, "--device", "cpu", "--dtype", "float32"),
            env=offline(folder),
            folder=folder,
            out=out.fileno(),
        )
    try:
        await _wait_until_up(f"http://127.0.0.1:{port}", process, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(END_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def _wait_until_up(address: str, process: asyncio.subprocess.Process, log: Path) -> None:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(5)) as session, asyncio.timeout(START_SECONDS):
        while True:
            if process.returncode is not None:
                raise RuntimeError(f"transformers serve ended: see {log}")
            try:
                async with session.get(f"{address}/health") as answer:
                    if answer.status == 200:
                        return
            except (aiohttp.ClientError, TimeoutError):
                pass  # it still reads its libraries
            await asyncio.sleep(0.2)
