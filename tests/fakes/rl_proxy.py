"""A proxy on the loopback interface with the routes and answers of AReaL's, which records what it is asked.

`second`: it answers as the gateway of AReaL's second inference service: a session has no end, and a reward ends a trajectory.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from aiohttp import web

Message = dict[str, Any]
ADMIN_KEY = "the-admin-key"


@dataclass
class Interaction:
    """A call, as the proxy keeps it."""

    id: str
    messages: list[Message]
    output: Message
    reward: float | None = None


@dataclass
class Session:
    """A recorded session. `trajectories`: its calls, cut where a reward ends one."""

    id: str
    key: str
    trajectories: list[list[Interaction]] = field(default_factory=lambda: [[]])
    is_ended: bool = False
    asked_rewards: int = 0

    @property
    def calls(self) -> list[Interaction]:
        return [call for part in self.trajectories for call in part]

    @property
    def is_chain(self) -> bool:
        """True if each call goes on from the one before, in each trajectory."""
        return all(
            later.messages[: len(call.messages) + 1] == [*call.messages, call.output]
            for part in self.trajectories
            for call, later in pairwise(part)
        )


def without_none(value: Any) -> Any:
    """A message as the proxy keeps it."""
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    return [without_none(item) for item in value] if isinstance(value, list) else value


def count_said(messages: Sequence[Message]) -> int:
    """How many messages come from people; the first one tells of the window."""
    return sum(each["role"] == "user" for each in messages[2:])


@dataclass
class RlProxy:
    """What it recorded.

    Attributes:
        answer: makes the answer of its model to messages: a text, or calls.
        capacity: how many sessions may begin.
        failures: the status and how far the next calls come: `before` anything, in the `middle` of the text.
        log: the routes that were asked, in order, with their status.
        bodies: of the calls of its model.
    """

    answer: Callable[[Sequence[Message]], str | list[Message]] = lambda messages: f"answer {count_said(messages)}"
    second: bool = False
    url: str = ""
    capacity: int = 1000
    sessions: list[Session] = field(default_factory=list)
    failures: list[tuple[int, str]] = field(default_factory=list)
    log: list[tuple[str, int]] = field(default_factory=list)
    bodies: list[Mapping[str, Any]] = field(default_factory=list)
    before_reward: Callable[[], None] = lambda: None

    def routes(self) -> web.Application:
        """The application."""
        app = web.Application(middlewares=[self._note])
        app.router.add_post("/rl/start_session", self._start)
        app.router.add_post("/rl/set_reward", self._reward)
        if not self.second:
            app.router.add_post("/rl/end_session", self._end)
        app.router.add_post("/chat/completions", self._complete)
        app.router.add_get("/health", self._health)
        return app

    @web.middleware
    async def _note(self, request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            response: web.StreamResponse = await handler(request)
        except web.HTTPException as error:
            self.log.append((request.path, error.status))
            raise
        self.log.append((request.path, response.status))
        return response

    def count(self, path: str) -> int:
        """How often a route was asked."""
        return sum(each == path for each, _ in self.log)

    def _find(self, request: web.Request) -> Session:
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        found = [each for each in self.sessions if each.key == key]
        if not found:
            raise web.HTTPUnauthorized
        return found[-1]

    async def _health(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _start(self, request: web.Request) -> web.Response:
        if request.headers.get("authorization") != f"Bearer {ADMIN_KEY}":
            raise web.HTTPForbidden
        body = await request.json()
        if self.capacity <= 0:
            raise web.HTTPTooManyRequests
        key = body.get("api_key") or f"key-{len(self.sessions)}"
        if any(each.key == key and not each.is_ended for each in self.sessions):
            raise web.HTTPConflict
        self.capacity -= 1
        session = Session(f"{body['task_id']}-{len(self.sessions)}", key)
        self.sessions.append(session)
        if self.second:
            found = {"session_id": session.id, "session_api_key": key}
            return web.json_response({"group_id": "grp-1", "sessions": [found]}, status=201)
        return web.json_response({"session_id": session.id, "api_key": key})

    async def _reward(self, request: web.Request) -> web.Response:
        session, body = self._find(request), await request.json()
        self.before_reward()
        session.asked_rewards += 1
        if session.is_ended:
            raise web.HTTPGone
        calls = session.trajectories[-1] if self.second else session.calls
        found = next((each for each in calls if each.id == body["interaction_id"]), None)
        if found is None:
            if self.second and not calls:  # the newest trajectory is sent again
                return web.json_response({"message": "success"})
            raise web.HTTPBadRequest
        found.reward = body["reward"]
        if self.second:
            session.trajectories.append([])
        return web.json_response({"message": "success"})

    async def _end(self, request: web.Request) -> web.Response:
        session = self._find(request)
        session.is_ended = True
        return web.json_response({"message": "success", "interaction_count": len(session.calls)})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        session, body = self._find(request), await request.json()
        if session.is_ended:
            raise web.HTTPGone
        self.bodies.append(body)
        status, place = self.failures.pop(0) if self.failures else (200, "")
        if place == "before":
            return web.json_response({"detail": "no"}, status=status)
        messages = without_none(body["messages"])
        said = self.answer(messages)
        output: Message = {"role": "assistant", "content": said if isinstance(said, str) else ""}
        if not isinstance(said, str):
            output["tool_calls"] = said
        number = sum(len(each.calls) for each in self.sessions)
        call = Interaction(f"chatcmpl-{number}", messages, output)
        session.trajectories[-1].append(call)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)

        async def send(delta: Message, finish: str | None = None, **more: Any) -> None:
            chunk = {"id": call.id, "object": "chat.completion.chunk", "created": 1, "model": "None", **more}
            chunk["choices"] = [{"index": 0, "delta": delta, "finish_reason": finish}]
            await response.write(f"data: {json.dumps(chunk)}\n\n".encode())

        await send({"role": "assistant", "content": ""})
        if output["content"]:
            await send({"content": output["content"]})
        if place == "middle":
            assert request.transport is not None
            request.transport.abort()
            return response
        for index, each in enumerate(output.get("tool_calls", ())):
            await send({"tool_calls": [{**each, "index": index}]})
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        await send({}, "tool_calls" if "tool_calls" in output else "stop", usage=usage)
        await response.write(b"data: [DONE]\n\n")
        return response


def call(name: str, arguments: str, number: int = 1) -> Message:
    """A call of a tool, as its model makes it."""
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


@asynccontextmanager
async def serving(proxy: RlProxy, port: int = 0) -> AsyncIterator[RlProxy]:
    """The proxy, listening; at another time it may do so at the same port."""
    runner = web.AppRunner(proxy.routes(), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        proxy.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield proxy
    finally:
        await runner.cleanup()
