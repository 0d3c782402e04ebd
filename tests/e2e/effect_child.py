"""A bot whose tools act on a service over HTTP, and that ends itself with SIGKILL at one point of a turn.

Arguments: as those of `kill_child`; the address of the service is in `HOME/service`. Further points: `act-KIND:before`
and `act-KIND:after`, around the request to the service. BREAK=`no-begin` removes one guard: no begin is written.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import aiohttp

from bubbot.arguments.fields import Args
from bubbot.middleware import ToolInvocation
from bubbot.ports.model import Model, ModelEvent, ModelReply, ModelRequest, ToolCall, Usage
from bubbot.ports.turn import Turn
from bubbot.runtime.effects import EffectRun
from bubbot.tool import Effect, Repeat, Tool, ToolOutput, tool
from tests.e2e.kill_child import Killer, main

KINDS = [str(once) for once in Repeat]
FINAL = ("did ", "had done ")
MAX_STEPS = 6


class ActArgs(Args, frozen=True):
    """What to do."""

    text: str


def acting(address: str, killer: Killer) -> list[Tool]:
    """The tools, one for each way in which an effect may be repeated."""

    def build(once: Repeat) -> Tool:
        async def look(turn: Turn, args: ActArgs) -> str | None:
            async with aiohttp.ClientSession() as client, client.get(address, params={"key": turn.effect_key}) as reply:
                return f"had done {args.text}" if reply.status == 200 else None

        @tool(f"act.{once}", effect=Effect(once=once), probe=look if once is Repeat.PROBE else None)
        async def act(turn: Turn, args: ActArgs) -> str:
            """Act on the service."""
            killer.at(f"act-{once}:before")
            body = {"kind": str(once), "text": args.text, "key": turn.effect_key}
            async with aiohttp.ClientSession(raise_for_status=True) as client, client.post(address, json=body):
                pass
            killer.at(f"act-{once}:after")
            return f"did {args.text}"

        return act

    return [build(once) for once in Repeat]


class SensibleModel:
    """A model that does each kind of thing for a message `act N`, and again what it is told has not happened or is unknown,
    until it is told that nobody knows."""

    def __init__(self, model: Model, prefix: str = "act_") -> None:
        self._model = model
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        prompt = max(place for place, message in enumerate(request.messages) if message["role"] == "user")
        found = re.search(r"(act|say) \d+$", str(request.messages[prompt]["content"]))
        text, after = found[0] if found else "", request.messages[prompt + 1 :]
        asked = [call for message in after for call in message.get("tool_calls", ())]
        kinds = {call["id"]: call["function"]["name"].removeprefix(self._prefix) for call in asked}
        told = [(kinds[message["tool_call_id"]], message["content"]) for message in after if message["role"] == "tool"]
        settled = {kind for kind, content in told if _is_final(content) or "was not run again" in content}
        left = [kind for kind in KINDS if kind not in settled] if text.startswith("act") else []
        steps = sum("tool_calls" in message for message in after)
        if left and steps < MAX_STEPS:
            calls = [ToolCall(f"c{steps}{kind}", f"{self._prefix}{kind}", json.dumps({"text": text})) for kind in left]
            yield ModelReply("", tuple(calls), "tool_calls", Usage(1, 1), "sensible")
        else:
            yield ModelReply(f"answer to <{text}>", usage=Usage(1, 1), model="sensible")


def _is_final(content: str) -> bool:
    """Return true for a result that says that it happened; below the line about its source if it is a server's."""
    head, _, rest = content.partition("\n  ")
    return head.startswith(FINAL) or rest.startswith(FINAL)


async def run_without_begin(_: EffectRun, call: ToolInvocation) -> ToolOutput:
    """What `EffectRun.run` would be without its guard."""
    return await call.tool.run(call.turn, call.args)


def run(arguments: Sequence[str]) -> int:
    """The process."""
    home, script, point, broken, features = [*arguments, "", "", ""][:5]
    killer, address = Killer(point), (Path(home) / "service").read_text()
    tools = acting(address, killer)
    work = main(Path(home), script, killer, tools, features=features, wrap_model=SensibleModel)
    if broken == "no-begin":
        with patch.object(EffectRun, "run", run_without_begin):
            asyncio.run(work)
    else:
        asyncio.run(work)
    return 0
