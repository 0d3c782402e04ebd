"""Servers of MCP for tests, written with the SDK: each is a program of its own. `python -m tests.mcp.servers NAME [http|sse PORT]`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("probe", version="1.2.3")


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool()
async def echo_meta(context: Context[Any, Any]) -> str:
    """Return the metadata of the request."""
    return str(context.request_context.meta)


@server.tool()
async def hang() -> str:
    """Never return."""
    await asyncio.Event().wait()
    return ""


def main() -> None:
    """Run the server."""
    match sys.argv[1:]:
        case []:
            server.run("stdio")
        case ["http", port]:
            server.run("streamable-http", port=int(port))
        case ["sse", port]:
            server.run("sse", port=int(port))


if __name__ == "__main__":
    main()
