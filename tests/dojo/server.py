"""A server of MCP over stdio, on the `mcp` SDK, with the tools of one of AgentDojo's suites.

    python tests/dojo/server.py world AGENTDOJO_PYTHON SUITE     the world is AgentDojo's own, in a process of its environment
    python tests/dojo/server.py recorded FILE SUITE              the world is a file of plays that were recorded with the former

Three more tools are for the test alone, which pins none of them: `stage_list` lists tasks and attacks, `stage_begin` begins a task,
`stage_judge` says what came of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import anyio
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

Context = ServerRequestContext[Any, Any]
STAGE = ("stage_list", "stage_begin", "stage_judge")


class World(Protocol):
    """Answers the requests of `tests/dojo/world.py`."""

    def ask(self, **request: Any) -> Any:
        """Return the answer to a request."""


class AgentDojoWorld:
    """The world in a process of AgentDojo's environment."""

    def __init__(self, python: str, suite: str) -> None:
        program = str(Path(__file__).with_name("world.py"))
        self._process = subprocess.Popen(
            [python, program, suite], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **request: Any) -> Any:
        """See `World.ask`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())


class RecordedWorld:
    """Plays that were recorded: what a call gives is what it gave, and a task is done if its calls that act were made, and no other."""

    def __init__(self, file: str, suite: str) -> None:
        self._suite = json.loads(Path(file).read_text(encoding="utf-8"))["suites"][suite]
        self._play: Mapping[str, Any] = {}
        self._made: list[tuple[str, str]] = []

    def ask(self, **request: Any) -> Any:
        """See `World.ask`."""
        match request:
            case {"do": "tools"}:
                return self._suite["tools"]
            case {"do": "begin", "task": task, "attack": attack}:
                self._play, self._made = self._suite["plays"][f"{task} {attack}" if attack else task], []
                return self._play
            case {"do": "call", "tool": tool, "arguments": arguments}:
                self._made.append(_describe(tool, arguments))
                for call in (*self._play["calls"], *self._play["attack_calls"]):
                    if _describe(call["tool"], call["arguments"]) == self._made[-1]:
                        return {"text": call["result"], "is_error": False}
                return {"text": f"nothing is recorded for {self._made[-1]}", "is_error": True}
            case {"do": "judge"}:
                return {
                    name: self._has_all(part) for name, part in (("utility", "calls"), ("security", "attack_calls"))
                }
        raise ValueError(f"unknown request {request}")

    def _has_all(self, part: str) -> bool:
        wanted = [_describe(call["tool"], call["arguments"]) for call in self._play[part]]
        return bool(wanted) and all(call in self._made for call in wanted)


def _describe(tool: str, arguments: Mapping[str, Any]) -> tuple[str, str]:
    return tool, json.dumps(arguments, sort_keys=True)


def build(world: World) -> Server[Any]:
    """Build the server."""
    stage = [Tool(name=name, description="For the test.", input_schema={"type": "object"}) for name in STAGE]
    tools = [
        Tool(name=each["name"], description=each["description"], input_schema=each["schema"])
        for each in world.ask(do="tools")
    ]

    async def list_tools(_context: Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[*tools, *stage])

    async def call_tool(_context: Context, params: CallToolRequestParams) -> CallToolResult:
        arguments = params.arguments or {}
        if params.name in STAGE:
            answer = world.ask(do=params.name.removeprefix("stage_"), **arguments)
            return CallToolResult(content=[TextContent(text=json.dumps(answer))])
        reply = world.ask(do="call", tool=params.name, arguments=arguments)
        return CallToolResult(content=[TextContent(text=reply["text"])], is_error=reply["is_error"])

    return Server("dojo", on_list_tools=list_tools, on_call_tool=call_tool)


def main() -> None:
    """Serve."""
    match sys.argv[1:]:
        case ["world", python, suite]:
            server = build(AgentDojoWorld(python, suite))
        case ["recorded", file, suite]:
            server = build(RecordedWorld(file, suite))
        case _:
            sys.exit(__doc__)

    async def serve() -> None:
        async with stdio_server() as (reader, writer):
            await server.run(reader, writer, server.create_initialization_options())

    anyio.run(serve)


if __name__ == "__main__":
    main()
