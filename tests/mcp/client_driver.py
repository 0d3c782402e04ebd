"""The client that the conformance tool of MCP runs: our own connection and login, as the daemon's child uses them.

`python -m tests.mcp.client_driver URL`, with MCP_CONFORMANCE_SCENARIO, MCP_CONFORMANCE_CONTEXT and
MCP_CONFORMANCE_PROTOCOL_VERSION in the environment. It plays the daemon (connects, lists, calls every tool), the person at the
browser (opens the address of a login and goes where it leads) and the person who fills in forms.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
from mcp_types import Implementation

from bubbot.features.mcp.child.connection import Connection, connect
from bubbot.features.mcp.child.oauth import ClientIdentity, login
from bubbot.features.mcp.child.values import ACCEPTED, McpFailed, OfferedTool, ServerPlace, ToolReply, accept

CLIENT = Implementation(name="bubbot", version="1")
SECONDS = 20.0
MAX_LOGINS = 3
"""How often a person logs in before they stop: a server may want further rights for each tool."""
DOCUMENT_URL = "https://conformance-test.local/client-metadata.json"
"""Where the tool expects our Client ID Metadata Document."""
SAMPLES: dict[str, Any] = {
    "string": "test",
    "number": 1,
    "integer": 1,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}


async def main() -> None:
    """Do what the daemon would do with a new server."""
    with TemporaryDirectory() as folder:
        place = ServerPlace("judge", url=sys.argv[1], tokens_file=str(Path(folder) / "tokens.json"))
        for attempt in range(MAX_LOGINS + 1):
            try:
                await use_server(place)
                return
            except McpFailed as failure:
                if not failure.needs_login or attempt == MAX_LOGINS:
                    raise
                print(f"needs a login: {failure.reason}", file=sys.stderr)
            await login(place, show_url=Browser().open, identity=read_identity(), timeout=SECONDS)


async def use_server(place: ServerPlace) -> None:
    """List all tools and call each."""
    async with connect(place, client_info=CLIENT, timeout=SECONDS) as connection:
        print(f"{connection.server_name} speaks {connection.protocol_version}", file=sys.stderr)
        try:
            tools = await connection.list_tools()
        except McpFailed as failure:
            if failure.needs_login or failure.is_gone:
                raise
            print(f"no tools: {failure.reason}", file=sys.stderr)
            return
        for tool, arguments in choose_calls(tools):
            try:
                print(f"{tool.name}: {(await call(connection, tool, arguments)).text}", file=sys.stderr)
            except McpFailed as failure:
                if failure.needs_login or failure.is_gone:
                    raise
                print(f"{tool.name} failed: {failure.reason}", file=sys.stderr)  # it costs this call alone


def choose_calls(tools: tuple[OfferedTool, ...]) -> list[tuple[OfferedTool, dict[str, Any]]]:
    """Choose calls: those that the tool names, or one of each tool with values that its schema allows."""
    by_name = {tool.name: tool for tool in tools}
    if (named := read_context().get("toolCalls")) is not None:
        return [(by_name[each["name"]], each.get("arguments") or {}) for each in named if each["name"] in by_name]
    return [(tool, sample(tool.schema)) for tool in tools]


def sample(schema: dict[str, Any]) -> dict[str, Any]:
    """Make arguments for a schema."""
    properties = schema.get("properties", {})
    return {
        name: field.get("default", SAMPLES.get(field.get("type", ""), "test"))
        for name, field in properties.items()
        if isinstance(field, dict)
    }


async def call(connection: Connection, tool: OfferedTool, arguments: dict[str, Any]) -> ToolReply:
    """Call a tool, and answer its questions as a person would who agrees to everything."""
    answers: dict[str, Any] = {}
    reply = await connection.call(tool.name, arguments, timeout=SECONDS, meta={})
    for _ in range(10):
        if not reply.questions:
            break
        answers |= {
            each.key: ACCEPTED if each.url else accept(fill_in(each.schema), each.schema) for each in reply.questions
        }
        reply = await connection.call(
            tool.name, arguments, timeout=SECONDS, meta={}, answers=answers, state=reply.state
        )
    return reply


def fill_in(schema: dict[str, Any]) -> dict[str, Any]:
    """Fill in what has no default."""
    required = schema.get("required", [])
    return {
        name: sample({"properties": {name: field}})[name]
        for name, field in schema.get("properties", {}).items()
        if name in required and "default" not in field
    }


class Browser:
    """A browser that is logged in everywhere: it opens an address and goes where that leads."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, url: str) -> None:
        """Open an address; do not wait for what it shows."""
        task = asyncio.create_task(self._visit(url))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _visit(self, url: str) -> None:
        async with httpx2.AsyncClient(follow_redirects=True, timeout=SECONDS) as client:
            await client.get(url)


def read_context() -> dict[str, Any]:
    """Return what the tool says beyond the address."""
    context: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    return context


def read_identity() -> ClientIdentity:
    """Return what an owner would have configured: a registration by hand, or the address of our document."""
    context = read_context()
    if "client_id" in context:
        return ClientIdentity(context["client_id"], context.get("client_secret", ""))
    return ClientIdentity(document_url=DOCUMENT_URL)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except McpFailed as failed:
        sys.exit(f"failed: {failed.reason}")
