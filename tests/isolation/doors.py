"""The doors for programs of the owner: a chat over the socket of the home for each of their sessions, and HTTP with a token."""

from __future__ import annotations

import asyncio
import json
import socket
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import aiohttp
from pydantic import SecretStr

from bubbot.app.daemon import Daemon
from bubbot.app.reload import Reloader
from bubbot.cli.run.server import serve
from bubbot.errors import BubbotError
from bubbot.home import Home
from bubbot.ports.channel import ChannelEvent, Inbound, MessagePart
from bubbot.server.address import socket_path
from bubbot.server.client import connect_chat
from bubbot.server.completions import COMPLETIONS_PATH, IDEMPOTENCY_HEADER, SESSION_HEADER
from bubbot.server.peer import ChatPeer, ignore_notice
from bubbot.server.protocol import COMMAND_PATH, PROTOCOL, PROTOCOL_HEADER, JsonObject, decode, encode
from bubbot.settings.environment import runtime_folder
from bubbot.settings.loader import Settings
from bubbot.settings.sections import HealthSettings, ServerSettings

TOKEN = "zt0123456789abcdef"
"""The owner's token."""
Show = Callable[[str, str, str], None]
"""Notes what a door shows: which door (`sent`, `preview` or `door`), to whom in which session, and the text."""


def free_port() -> int:
    """Return a port that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def with_doors(settings: Settings) -> Settings:
    """Return the settings of a bot whose server listens."""
    server = ServerSettings(port=free_port(), token=SecretStr(TOKEN), openai=True, commands=True)
    return settings.model_copy(update={"server": server, "health": HealthSettings(port=free_port())})


@dataclass
class Doors:
    """The programs that are connected to the running bot.

    Attributes:
        show: called with everything that comes out.
        port: at which the server listens.
        health_port: at which everybody may ask how the bot is.
        address: the socket of the home.
        chats: those that are open, by session.
        waiting: programs that wait for an answer.
    """

    show: Show
    port: int
    health_port: int
    address: str
    chats: dict[str, ChatPeer] = field(default_factory=dict)
    waiting: set[asyncio.Task[None]] = field(default_factory=set)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, daemon: Daemon, settings: Settings, home: Home, sessions: Sequence[str], show: Show
    ) -> AsyncIterator[Doors]:
        """Serve as `bubbot run` does, with one chat open for each session, until the block ends."""
        path = socket_path(home.path, runtime_folder(), Path(gettempdir()))
        remote, reloader = daemon.remote, Reloader(daemon, settings, lambda: settings)
        receiving = asyncio.create_task(remote.run(daemon.bot.channel_runtimes[remote.name].gate.receive))
        try:
            async with serve(daemon, reloader, settings, home, path), AsyncExitStack() as stack:
                doors = cls(show, settings.server.port or 0, settings.health.port or 0, str(path))
                for session in sessions:
                    chat = connect_chat(
                        doors.address, partial(doors._show_part, session), partial(doors._notice, session)
                    )
                    doors.chats[session] = peer = await stack.enter_async_context(chat)
                    await peer.request("open", {"session": session})
                    await peer.request("owed", {"session": session})
                yield doors
                await doors.quiet()
        finally:
            receiving.cancel()

    async def quiet(self) -> None:
        """Return when no program waits."""
        while self.waiting:
            await asyncio.gather(*self.waiting)

    async def receive(self, event: ChannelEvent, session: str) -> None:
        """Let the chat of a session report an event; it is durable then."""
        await self.chats[session].request("event", {"event": encode(event)})

    def ask(self, inbound: Inbound, files: Mapping[str, bytes]) -> None:
        """Let a program ask over the chat of its session, and wait for the answer."""
        encoded = {reference: b64encode(data).decode() for reference, data in files.items()}
        body = {"inbound": encode(inbound), "files": encoded}

        async def ask() -> None:
            with suppress(BubbotError):  # accepted before, perhaps
                await self.chats[inbound.session].request("ask", body)

        self._wait(ask())

    def complete(self, inbound: Inbound, *, stream: bool) -> None:
        """Let a program ask at the door for OpenAI's protocol, and wait for the answer."""

        async def complete() -> None:
            headers = {SESSION_HEADER: inbound.chat, IDEMPOTENCY_HEADER: inbound.external_id}
            body = {"messages": [{"role": "user", "content": inbound.text}], "stream": stream}
            _, text = await self.request(COMPLETIONS_PATH, body, TOKEN, headers)
            self.show("sent", inbound.session, _words_of(text) if stream else text)

        self._wait(complete())

    async def request(
        self, path: str, body: Mapping[str, Any], token: str, headers: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """Send a request with this token; return the status and the answer."""
        sent = {"Authorization": f"Bearer {token}", PROTOCOL_HEADER: str(PROTOCOL), **(headers or {})}
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{self.port}", headers=sent) as client,
            client.post(path, json=body) as answer,
        ):
            return answer.status, await answer.text()

    async def knock(self, token: str, chat: str, text: str) -> list[tuple[str, str]]:
        """Return the paths and answers that somebody with this token gets."""
        named = {SESSION_HEADER: chat}
        asked = {"messages": [{"role": "user", "content": text}]}
        requests: Sequence[tuple[str, Mapping[str, Any]]] = (
            (COMPLETIONS_PATH, asked), (f"{COMMAND_PATH}status", {}), (f"{COMMAND_PATH}command", {"name": "access grant-reading", "arguments": {"source": "tg:5", "reader": "stdin:home"}}),
        )  # fmt: skip
        return [(path, (await self.request(path, body, token, named))[1]) for path, body in requests]

    async def read_health(self) -> list[tuple[str, str]]:
        """Return the paths and texts of what the bot tells everybody of itself."""
        async with aiohttp.ClientSession(f"http://127.0.0.1:{self.health_port}") as client:
            return [(path, await (await client.get(path)).text()) for path in ("/live", "/ready", "/metrics")]

    async def try_request(self, session: str, name: str, body: JsonObject) -> JsonObject:
        """Send a request that is perhaps refused over the chat of a session; return the answer."""
        try:
            return await self.chats[session].request(name, body)
        except BubbotError as error:
            return {"error": str(error)}

    async def leave_behind(self, event: Inbound) -> None:
        """Let a program that does not stay report an event."""

        async def refuse(_name: str, _body: JsonObject) -> JsonObject:
            return {}

        async with connect_chat(self.address, refuse, ignore_notice) as peer:
            await peer.request("event", {"event": encode(event)})

    def _wait(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self.waiting.add(task)
        task.add_done_callback(self.waiting.discard)

    async def _show_part(self, session: str, _name: str, body: JsonObject) -> JsonObject:
        """Show a part to whoever has this session open."""
        self.show("sent", session, _text_of(body))
        return {"external_id": ""}

    def _notice(self, session: str, name: str, body: JsonObject) -> None:
        """Show a preview, or the copy of what another program got."""
        self.show(*(("preview", session, str(body)) if name == "preview" else ("sent", session, _text_of(body))))


def _text_of(body: JsonObject) -> str:
    part = decode(body["part"], MessagePart)
    data = b64decode(body.get("bytes", "")).decode(errors="replace")
    labels = [button.label for button in part.buttons.buttons] if part.buttons else []
    return " ".join([part.text, part.file.text if part.file else "", data, *(f"[{label}]" for label in labels)])


def _words_of(stream: str) -> str:
    """Return the text of a stream of server-sent events."""
    chunks = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
    said = [choice["delta"].get("content", "") for chunk in chunks for choice in chunk.get("choices", ())]
    return "".join(said) + " ".join(str(chunk["error"]) for chunk in chunks if "error" in chunk)
