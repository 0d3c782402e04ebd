"""A provider of OpenAI's protocol that takes one key: its list of models, and a short answer to everything."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.e2e.provider_server import Answer, Asked, Held, refusal, serving

KEY, WRONG_KEY = "sk-right-1234567890", "sk-wrong-0987654321"


@dataclass
class KeyServer:
    """`paths` are those it was asked for, in order. `hangs`: it never answers a request for its list."""

    models: Sequence[str] | None = ("gpt-5-mini", "gpt-4.9-turbo", "gpt-4.1-2025-04-14", "text-embedding-4")
    text: str = "OK"
    call_status: int = 200
    call_error: Mapping[str, str] = field(default_factory=lambda: {"message": "You have no credit left."})
    hangs: bool = False
    address: str = ""
    requests: list[Asked] = field(default_factory=list)

    @property
    def base(self) -> str:
        """The address as settings have it."""
        return f"{self.address}/v1"

    @property
    def paths(self) -> list[str]:
        return [asked.path for asked in self.requests]

    def answer(self, asked: Asked) -> Answer:
        """Refuse another key; list the models, or answer a call."""
        if self.hangs:
            return Answer((), held=Held())
        if asked.headers.get("authorization", asked.headers.get("x-api-key")) not in (f"Bearer {KEY}", KEY):
            return refusal(401, {"error": {"message": f"Incorrect API key provided: {WRONG_KEY}."}})
        if asked.path.partition("?")[0].endswith("/models"):
            if self.models is None:
                return refusal(404, {"error": {"message": "no such path"}})
            rows = [{"id": name, "created": place} for place, name in enumerate(self.models)]
            return Answer((json.dumps({"object": "list", "data": rows}).encode(),), media="application/json")
        if self.call_status != 200:
            return refusal(self.call_status, {"error": self.call_error})
        chunks = (
            {"choices": [{"index": 0, "delta": {"content": self.text}, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        )
        usage = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
        events = [
            json.dumps({"id": "r", "model": "m", **chunk}) for chunk in (*chunks, {"choices": [], "usage": usage})
        ]
        return Answer(tuple(f"data: {event}\n\n".encode() for event in (*events, "[DONE]")))


@asynccontextmanager
async def key_server(server: KeyServer | None = None) -> AsyncIterator[KeyServer]:
    """The server, until the block ends."""
    async with serving(server or KeyServer()) as running:
        yield running
