"""The conformance tests of MCP, which `make mcp-conformance` installs: they judge our client and our server."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

MISSING = "the conformance tests of MCP are not installed: make mcp-conformance"
RUN_SECONDS = 150.0
"""Time for one scenario on a busy machine."""
PASSED = re.compile(r"^Passed: (\d+)/(\d+), (\d+) failed", re.MULTILINE)


def judge_folder() -> Path:
    """Return where `make mcp-conformance` installs them: `$MCP_CONFORMANCE_FOLDER`, else a folder of the cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("MCP_CONFORMANCE_FOLDER") or Path(cache, "bubbot", "mcp-conformance"))


def require_judge(request: pytest.FixtureRequest) -> None:
    """Skip without them; fail in the proof."""
    if not (judge_folder() / ".installed").exists():
        (pytest.fail if request.config.getoption("--proof") else pytest.skip)(MISSING)


class Verdict(NamedTuple):
    """What the judge says of a scenario."""

    status: int
    passed: int
    checks: int
    words: str


async def judge(*arguments: str, folder: Path) -> Verdict:
    """Run the tool with these arguments; its files are written into a folder."""
    modules = judge_folder() / "node_modules"
    (node,) = modules.glob("node-linux-*/bin/node")
    process = await asyncio.create_subprocess_exec(
        node,
        modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js",
        *arguments,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(RUN_SECONDS):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    words = output.decode(errors="replace")
    counts = PASSED.search(words)
    passed, checks = (int(counts[1]), int(counts[2])) if counts else (0, 0)
    return Verdict(process.returncode or 0, passed, checks, words)


def read_requirements(revision: str, role: str) -> list[str]:
    """Return the frozen scenarios of a revision for `client` or `server`, as the tool has them."""
    lines = (
        judge_folder() / "node_modules/@modelcontextprotocol/conformance/requirements" / f"{revision}.yaml"
    ).read_text()
    section = re.search(rf"^{role}:\n((?:  - .*\n)+)", lines, re.MULTILINE)
    assert section is not None
    return [line.removeprefix("  - ") for line in section[1].splitlines()]


def read_version() -> str:
    """Return the version of the tool."""
    package: dict[str, Any] = json.loads(
        (judge_folder() / "node_modules/@modelcontextprotocol/conformance/package.json").read_text()
    )
    return str(package["version"])
