"""A real Phoenix, in an environment of its own, as a receiver of traces: `make phoenix` installs it.

`python -m tests.e2e.phoenix` draws the picture of the documentation again.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from bubbot.app.bot import Bot
from tests.docs.pages import ROOT
from tests.traced import say, settings_for, traced, written

CHROMIUM = Path("/usr/bin/chromium")
PICTURE = ROOT / "docs" / "pictures" / "phoenix.png"
PICTURE_SIZE = (1280, 720)
START_SECONDS = 120.0
WAIT = 60.0
SCRIPT: Mapping[str, Any] = {
    "rules": [
        {
            "when": "Which of my notes",
            "steps": [
                {
                    "text": "Let me look.",
                    "calls": [
                        {"name": "memory_show", "arguments": {}},
                        {"name": "tape_search", "arguments": {"query": "Lisbon"}},
                    ],
                },
                {"calls": [{"name": "agent_run", "arguments": {"task": "Count the notes that name a place.", "name": "counter"}}]},
                {"text": "Two of them: the flight to Lisbon, and the hotel near the river."},
            ],
        },
        {"when": "Count the notes", "steps": [{"calls": [{"name": "tape_info"}]}, {"text": "Two notes name a place."}]},
        {"when": "refuse", "steps": [{"error": "refused"}]},
    ]
}  # fmt: skip


def phoenix_folder() -> Path:
    """Return where `make phoenix` installs it: `$PHOENIX_FOLDER`, else a folder of the cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("PHOENIX_FOLDER") or Path(cache, "bubbot", "phoenix"))


def phoenix_is_installed() -> bool:
    """Return true if it is there."""
    return (phoenix_folder() / "bin" / "phoenix").exists()


@dataclass(frozen=True)
class Phoenix:
    """A running Phoenix. `log` is the file of what it prints."""

    url: str
    log: Path
    session: aiohttp.ClientSession

    async def get(self, path: str) -> list[dict[str, Any]]:
        """Read a list over its REST interface, all of it."""
        found: list[dict[str, Any]] = []
        cursor = ""
        while True:
            async with self.session.get(f"{self.url}/v1/{path}", params={"limit": 100, "cursor": cursor}) as answer:
                if answer.status == 404:  # no project yet
                    return []
                assert answer.status == 200, await answer.text()
                page = await answer.json()
            found += page["data"]
            if not (cursor := page.get("next_cursor") or ""):
                return found

    async def spans(self, count: int = 0) -> list[dict[str, Any]]:
        """Return all spans, once there are so many: it takes them before it stores them."""
        async with asyncio.timeout(WAIT):
            while len(found := await self.get("projects/default/spans")) < count:  # noqa: ASYNC110 - elsewhere
                await asyncio.sleep(0.2)
        return found


@asynccontextmanager
async def running_phoenix(folder: Path) -> AsyncIterator[Phoenix]:
    """A Phoenix for the block, with its data in this folder. It reaches nothing outside of this machine."""
    port, grpc = _free_ports()
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(grpc),
        "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    log = folder / "phoenix.log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            phoenix_folder() / "bin" / "phoenix", "serve", env=variables, stdout=out, stderr=out, cwd=folder
        )
    try:
        async with aiohttp.ClientSession() as session:
            found = Phoenix(f"http://127.0.0.1:{port}", log, session)
            await _wait_until_up(found, process)
            yield found
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(WAIT):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def _wait_until_up(phoenix: Phoenix, process: asyncio.subprocess.Process) -> None:
    soon = aiohttp.ClientTimeout(5)  # a request that comes too early is never answered
    async with asyncio.timeout(START_SECONDS):
        while True:
            assert process.returncode is None, phoenix.log.read_text()
            try:
                async with phoenix.session.get(f"{phoenix.url}/healthz", timeout=soon) as answer:
                    if answer.status == 200:
                        return
            except (aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(0.2)


def _free_ports() -> list[int]:
    with socket.socket() as first, socket.socket() as second:
        for each in (first, second):
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in (first, second)]


@asynccontextmanager
async def shown(home: Path, phoenix: Phoenix, **otel: Any) -> AsyncIterator[tuple[Bot, str]]:
    """A bot of whose two turns the second is worth seeing: with the id of that."""
    settings = settings_for(home, SCRIPT, endpoint=phoenix.url, **otel)
    async with traced(settings, home) as bot:
        await say(bot, "Remember: the flight to Lisbon leaves on Friday.")
        result = await say(bot, "Which of my notes are about the trip?")
        await written(bot, "otel/exported")
        yield bot, result.turn_id


async def draw_trace(phoenix: Phoenix, turn: str, file: Path) -> None:
    """Draw a trace as Phoenix shows it, with Debian's chromium."""
    (project,) = [one for one in await phoenix.get("projects") if one["name"] == "default"]
    width, height = PICTURE_SIZE
    with tempfile.TemporaryDirectory() as profile:
        process = await asyncio.create_subprocess_exec(
            CHROMIUM,
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"),
            *(f"--window-size={width},{height}", "--virtual-time-budget=15000", f"--screenshot={file}"),
            f"{phoenix.url}/projects/{project['id']}/traces/{turn}",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(START_SECONDS):
            assert await process.wait() == 0
    from PIL import Image

    with Image.open(file) as picture:
        few = picture.convert("RGB").quantize(64, dither=Image.Dither.NONE)
    few.save(file, optimize=True)


async def main() -> None:
    """Draw the picture of the documentation."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with (
            running_phoenix(folder) as phoenix,
            shown(folder / "home", phoenix, content="redacted") as (bot, turn),
        ):
            await phoenix.spans(10)
            await say(bot, ",rate 4 It found the notes.")
            await written(bot, "otel/annotated")
            await draw_trace(phoenix, turn, PICTURE)
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size} bytes")


if __name__ == "__main__":
    if not phoenix_is_installed():
        sys.exit("Phoenix is not installed: make phoenix")
    asyncio.run(main())
