"""Doctor findings of servers of tools. Each is planted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bubbot.features.mcp.checks import check_mcp
from bubbot.features.mcp.facts import MCP_TAPE, ServerAdded, ToolChanged, ToolPinned
from bubbot.features.mcp.health import mcp_health
from bubbot.features.mcp.secrets import SECRETS_FILE, McpSecrets, ServerSecrets
from bubbot.features.mcp.settings import McpSettings
from bubbot.features.mcp.state import McpState
from bubbot.ports.checks import Finding, HomeReader
from bubbot.ports.health import HealthContext
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.fact import Fact
from bubbot.tape.service import TapeService
from bubbot.texts import Texts
from tests.doubles import SteppingClock
from tests.planting import found, plants

DOCS = ServerAdded(
    "docs", (), "https://docs.example.org/mcp", "auto", False, (), (), ("Authorization",), False, "terminal"
)
NOTES = ServerAdded("notes", ("notes",), "", "auto", False, (), (), (), False, "terminal")
SEARCH = ToolPinned("docs", "search", "mcp.docs.search", "ab" * 32, "Find.", {}, {}, True, "never", "", "", "terminal")


def open_memory_tape() -> TapeService:
    return TapeService(InMemoryStore(), MCP_TAPE, now=SteppingClock(), new_id=lambda: "id", session="")


async def check(home: Path, *facts: Fact, **settings: Any) -> dict[str, Finding]:
    """What is found in a home with these facts."""
    tape = open_memory_tape()
    if facts:
        await tape.append([fact.to_entry() for fact in facts])

    @asynccontextmanager
    async def open_tape(_name: str) -> AsyncIterator[TapeService]:
        yield tape

    section = McpSettings.model_validate({"enabled": True, **settings})
    reader = HomeReader(home, home / "config.toml", section, SteppingClock(), ZoneInfo("UTC"), open_tape)
    return found(await check_mcp(reader))


async def test_nothing_is_said_of_what_is_off(tmp_path: Path) -> None:
    assert await check(tmp_path, DOCS, enabled=False) == {}


@plants("mcp.no_servers", "mcp.nothing_pinned", "mcp.ok", "mcp.changed")
async def test_servers_and_tools(tmp_path: Path) -> None:
    McpSecrets(tmp_path).put("docs", ServerSecrets({"Authorization": "Bearer 12345678"}))
    assert "mcp.no_servers" in await check(tmp_path)
    assert "bubbot mcp tools docs" in (await check(tmp_path, DOCS))["mcp.nothing_pinned"].fix
    assert "1 tools of others, of these servers: docs" in (await check(tmp_path, DOCS, SEARCH))["mcp.ok"].cause
    changed = ToolChanged("docs", "search", "cd" * 32, ("- Find.", "+ Send."))
    findings = await check(tmp_path, DOCS, SEARCH, changed)
    assert findings["mcp.changed"].fix == "bubbot mcp pin docs search"
    assert "not as you pinned it" in findings["mcp.changed"].cause
    gone = await check(tmp_path, DOCS, SEARCH, ToolChanged("docs", "search", "", ()))
    assert "does not offer it any more" in gone["mcp.changed"].cause


@plants("mcp.secret_missing", "mcp.secrets_unreadable")
async def test_secrets(tmp_path: Path) -> None:
    assert "Authorization" in (await check(tmp_path, DOCS, SEARCH))["mcp.secret_missing"].cause
    (tmp_path / SECRETS_FILE).write_text("[]")
    assert "is damaged" in (await check(tmp_path, DOCS, SEARCH))["mcp.secrets_unreadable"].cause


@plants("mcp.sandbox_unusable", "mcp.no_sandbox")
async def test_sandboxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "mcp.no_sandbox" in await check(tmp_path, NOTES, sandbox="none")
    monkeypatch.setattr("bubbot.sandbox.sandbox.find_bubblewrap", lambda: None)
    assert (
        "bubblewrap is not installed" in (await check(tmp_path, NOTES, sandbox="bwrap"))["mcp.sandbox_unusable"].cause
    )


def test_the_health_names_what_is_off() -> None:
    tape = open_memory_tape()
    changed = ToolChanged("docs", "search", "", ())

    async def fold() -> McpState:
        return McpState().apply(await tape.append([fact.to_entry() for fact in (DOCS, SEARCH, changed)]))

    report = mcp_health(HealthContext(Texts(), "2026-11-30T12:00:00+00:00", "UTC"), asyncio.run(fold()))
    assert report.rows[0].is_trouble
    assert "docs/search" in report.rows[0].lines[1]
