"""A gateway with the OpenAI protocol on loopback: a teacher, who follows a script, and every model that a server behind it has."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

TEACHER = "teacher"


class Gateway:
    """Answers requests for the teacher, and passes on all others.

    `behind` is the address that gets those, `lengths` the tokens of their prompts, as it counted them.
    """

    def __init__(self, answers: Mapping[str, str], otherwise: str) -> None:
        """Take what the teacher says to messages with a word, by that, and to all others."""
        self.behind = ""
        self._answers = answers
        self._otherwise = otherwise
        self.lengths: list[int] = []

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Answer `chat/completions`."""
        body = await request.json()
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        if body["model"] == TEACHER:
            await response.write(_speak(self._answer(body["messages"])))
        else:
            await self._pass_on(body, response)
        await response.write_eof()
        return response

    async def _pass_on(self, body: Mapping[str, Any], response: web.StreamResponse) -> None:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(None)) as session,
            session.post(f"{self.behind}/chat/completions", json=body) as answer,
        ):
            async for line in answer.content:
                await response.write(line)
                if found := re.search(rb'"prompt_tokens":\s*(\d+)', line):
                    self.lengths.append(int(found[1]))

    def _answer(self, messages: list[dict[str, Any]]) -> str:
        asked = str(messages[-1]["content"])
        return next((answer for word, answer in self._answers.items() if word in asked), self._otherwise)


def _speak(text: str) -> bytes:
    """Return an answer as a stream of events."""
    chunk = {"id": "taught", "object": "chat.completion.chunk", "created": 1, "model": TEACHER}
    said = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    ended = {"index": 0, "delta": {}, "finish_reason": "stop"}
    events = [{**chunk, "choices": [said]}, {**chunk, "choices": [ended]}, {**chunk, "choices": [], "usage": usage}]
    return "".join(f"data: {each}\n\n" for each in [*map(json.dumps, events), "[DONE]"]).encode()


@asynccontextmanager
async def opened(gateway: Gateway) -> AsyncIterator[str]:
    """Open the gateway for the block; give its address."""
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/v1/chat/completions", gateway.complete)
    runner = web.AppRunner(app, shutdown_timeout=1, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()
