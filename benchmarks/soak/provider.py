"""A model provider that fails now and then: python -m benchmarks.soak.provider SECONDS [steady].

It speaks the OpenAI protocol over HTTP, keeps connections open as providers do, and answers after SECONDS. Of every
twenty requests, unless it is `steady`, one is refused with 401, one with 429 and `Retry-After`, one answer is cut in the middle, one before its
first word, and one request is never answered. It says `{"address": ...}` at once; asked anything, it tells how often it
did what.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from benchmarks.soak import words
from benchmarks.soak.talk import asked, tell

FAULTS = {3: "401", 7: "429", 11: "cut", 15: "dropped", 19: "hung"}
"""Which of twenty requests go wrong, and how."""
CYCLE = 20


class Provider:
    """Answers each request with the last message of its user, and counts."""

    def __init__(self, seconds: float, faults: Mapping[int, str] = FAULTS) -> None:
        self._seconds = seconds
        self._faults = faults
        self.counts: Counter[str] = Counter()

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Answer one request, or fail at it."""
        body = await request.json()
        fault = self._faults.get(self.counts["requests"] % CYCLE, "")
        self.counts["requests"] += 1
        self.counts[fault or "answered"] += 1
        await asyncio.sleep(self._seconds)
        if fault == "401":
            return web.json_response(_error("Incorrect API key provided.", "invalid_api_key"), status=401)
        if fault == "429":
            return web.json_response(_error("Slow down.", "rate_limit"), status=429, headers={"Retry-After": "0.2"})
        if fault == "hung":
            await asyncio.Event().wait()  # until the client goes away
        if fault == "dropped":
            return self._dropped(request)
        return await self._stream(request, _answer(body), cut=fault == "cut")

    async def _stream(self, request: web.Request, text: str, *, cut: bool) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        pieces = text.split(" ")
        for place, piece in enumerate(pieces):
            if cut and place == len(pieces) // 2:
                return self._dropped(request)
            await response.write(_chunk({"content": piece + " " * (place + 1 < len(pieces))}))
        await response.write(_chunk({}, finish="stop"))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    @staticmethod
    def _dropped(request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()


def _answer(body: dict[str, Any]) -> str:
    said = next(str(one["content"]) for one in reversed(body["messages"]) if one["role"] == "user")
    [chat, number] = words.named(said)[-1]
    return words.answer(chat, number)


def _error(message: str, code: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "error", "param": None, "code": code}}


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "chat-1", "object": "chat.completion.chunk", "created": 1, "model": "soak", "choices": [choice]}
    if finish:
        chunk["usage"] = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    return f"data: {json.dumps(chunk)}\n\n".encode()


async def main(seconds: float, *, steady: bool) -> None:
    """Serve until standard input closes."""
    provider = Provider(seconds, {} if steady else FAULTS)
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/chat/completions", provider.complete)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    tell({"address": f"http://127.0.0.1:{runner.addresses[0][1]}/v1"})
    async for _ in asked():
        tell({"reply": dict(provider.counts)})
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]), steady="steady" in sys.argv[2:]))
