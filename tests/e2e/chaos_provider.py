"""A model over HTTP for many workers: it speaks the OpenAI protocol, does what messages name, and counts what each scope used.

A message `act N` makes it call the tools `act_key`, `act_probe` and `act_never` until each has an outcome; `ask N` calls `act_post`
once; `say N` and `spend SCOPE-N` are answered at once. Every answer is `answer to <MESSAGE>`; a turn that goes on after a card
says `followed <MESSAGE>`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from bubbot.tool import Repeat

KINDS = [str(once) for once in Repeat]
MESSAGE = re.compile(r"\b(say|act|ask|spend) ([\w-]+)$")
ASKED = re.compile(r"\bask [\w-]+")
READ_TOKENS, WRITTEN_TOKENS = 500, 50
"""What each call uses."""
CALL_TOKENS = READ_TOKENS + WRITTEN_TOKENS
MAX_STEPS = 6
_FINAL = ("did ", "had done ")


@dataclass
class ChaosProvider:
    """The server.

    Attributes:
        seconds: until the first word of an answer.
        pause: seconds between words.
        address: for `[model] api_base`.
        calls: how often each message was sent to the model.
        used: tokens of each scope of `spend`.
    """

    seconds: float = 0.0
    pause: float = 0.0
    address: str = ""
    calls: Counter[str] = field(default_factory=Counter)
    used: Counter[str] = field(default_factory=Counter)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        body = await request.json()
        text, calls = decide(body["messages"])
        message = text.partition("<")[2].rstrip(">")
        self.calls[message] += 1
        if message.startswith("spend "):
            self.used[message.removeprefix("spend ").partition("-")[0]] += CALL_TOKENS
        await asyncio.sleep(self.seconds)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if calls:
            await response.write(_chunk({"tool_calls": calls}))
        else:
            for word in re.findall(r"\S+\s*", text):
                await response.write(_chunk({"content": word}))
                await asyncio.sleep(self.pause)
        await response.write(_chunk({}, finish="tool_calls" if calls else "stop"))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


def decide(messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """Return the text of an answer, and the calls that it makes instead."""
    prompt = max(place for place, message in enumerate(messages) if message["role"] == "user")
    found = MESSAGE.search(_text(messages[prompt]))
    if found is None:  # a card was answered
        asked = ASKED.findall(json.dumps(list(messages[prompt:])))
        return f"followed <{asked[-1] if asked else '?'}>", []
    text, after = found[0], messages[prompt + 1 :]
    kinds = {"act": KINDS, "ask": ["post"]}.get(found[1], [])
    asked = [call for message in after for call in message.get("tool_calls") or ()]
    names = {call["id"]: call["function"]["name"].removeprefix("act_") for call in asked}
    told = [(names[message["tool_call_id"]], _text(message)) for message in after if message["role"] == "tool"]
    settled = {kind for kind, content in told if _is_final(content)}
    left = [kind for kind in kinds if kind not in settled]
    steps = sum(bool(message.get("tool_calls")) for message in after)
    if not left or steps >= (1 if found[1] == "ask" else MAX_STEPS):
        return f"answer to <{text}>", []
    arguments = json.dumps({"text": text})
    return f"answer to <{text}>", [
        {"index": place, "id": f"c{steps}{kind}", "type": "function", "function": {"name": f"act_{kind}", "arguments": arguments}}
        for place, kind in enumerate(left)
    ]  # fmt: skip


def _text(message: Mapping[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else " ".join(str(part.get("text", "")) for part in content or ())


def _is_final(content: str) -> bool:
    """Return true for a result that says that it happened, or that nobody will ever know."""
    return content.startswith(_FINAL) or "was not run again" in content


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk: dict[str, Any] = {
        "id": "chat-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "chaos",
        "choices": [choice],
    }
    if finish:
        chunk["usage"] = {
            "prompt_tokens": READ_TOKENS, "completion_tokens": WRITTEN_TOKENS, "total_tokens": CALL_TOKENS,
        }  # fmt: skip
    return f"data: {json.dumps(chunk)}\n\n".encode()


@asynccontextmanager
async def chaos_provider(seconds: float = 0.0, pause: float = 0.0) -> AsyncIterator[ChaosProvider]:
    """A provider for the block."""
    provider = ChaosProvider(seconds, pause)
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/chat/completions", provider.complete)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        provider.address = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        yield provider
    finally:
        await runner.cleanup()
