"""Asks a server of ours the way a bot would, without a bot around it: see `model_paths`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bubbot.errors import ModelError
from bubbot.models.provider import ProviderModel
from bubbot.ports.model import ModelOptions, ModelReply, ModelRequest, TextDelta, ToolSpec
from tests.e2e.model_paths import make_model
from tests.e2e.provider_server import Speaks, serving

KEY = "sk-canary-2"
TOOL = ToolSpec("f", "does", {"type": "object", "properties": {}})
HI: Mapping[str, Any] = {"role": "user", "content": "hi"}


@dataclass
class Outcome:
    """What came of one request: a reply or an error, how long each wait between the tries would have been."""

    reply: ModelReply | None = None
    error: ModelError | None = None
    waits: list[float] = field(default_factory=list)

    @property
    def answered(self) -> ModelReply:
        """The reply; fails where there is none."""
        assert self.reply is not None, self.error
        return self.reply


@asynccontextmanager
async def asking(
    name: str, address: str, waits: list[float] | None = None, **more: Any
) -> AsyncIterator[ProviderModel]:
    """The model `name` at this address. It notes its waits and takes none. Its tests use the fixture `loaded_litellm`."""
    noted = [] if waits is None else waits

    async def sleep(seconds: float) -> None:
        noted.append(seconds)

    values = {"api_base": address, "api_key": KEY, "retry_wait": 0.01, **more}
    model = make_model(ModelOptions(name, Path("unused"), values), sleep=sleep)
    assert isinstance(model, ProviderModel)
    try:
        yield model
    finally:
        await model.aclose()


async def asked(
    name: str, address: str, *messages: Mapping[str, Any], parameters: Mapping[str, Any] | None = None, **more: Any
) -> Outcome:
    """One request, its deltas checked against its reply."""
    outcome = Outcome()
    request = ModelRequest("Be brief.", messages or (HI,), (TOOL,), parameters or {})
    said = ""
    try:
        async with asyncio.timeout(60), asking(name, address, outcome.waits, **more) as model:
            async for event in model.stream(request):
                if isinstance(event, TextDelta):
                    said += event.text
                elif isinstance(event, ModelReply):
                    outcome.reply = event
    except ModelError as error:
        outcome.error = error
    assert KEY not in str(outcome.error)
    if outcome.reply is not None:
        assert said == outcome.reply.text
    return outcome


def exchange(reply: ModelReply, *results: str, content: str | None = None) -> list[Mapping[str, Any]]:
    """The messages a tape makes of a reply with calls, and of their results."""
    made = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in reply.calls
    ]
    said = {"role": "assistant", "content": reply.text if content is None else content, "tool_calls": made}
    given = zip(reply.calls, results, strict=True)
    replay = {"replay": reply.replay} if reply.replay else {}
    return [{**said, **replay}, *({"role": "tool", "tool_call_id": one.id, "content": text} for one, text in given)]


async def outcome_of(
    name: str, speaks: Speaks, path: str = "", *, said: Sequence[Mapping[str, Any]] = (HI,), **more: Any
) -> tuple[Outcome, int]:
    """One request to this server, and how many it became."""
    async with serving(speaks):
        outcome = await asked(name, speaks.address + path, *said, **more)
        return outcome, len(speaks.requests)
