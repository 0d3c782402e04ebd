"""discord.py's own client, sent to a server of ours: what its class keeps stays as it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import discord
from discord.gateway import DiscordWebSocket
from discord.http import Route
from discord.webhook.async_ import AsyncWebhookAdapter, async_context
from yarl import URL

from tests.fakes.discordapi.server import Server


def _redirected(route: Route, server: Server) -> Route:
    route.url = route.url.replace(Route.BASE, server.rest_url, 1)
    return route


class _Adapter(AsyncWebhookAdapter):
    """Answers to interactions go past the client's own requests."""

    def __init__(self, server: Server) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._server = server

    def request(self, route: Route, *args: Any, **named: Any) -> Any:
        return super().request(_redirected(route, self._server), *args, **named)


class Library(discord.Client):
    """A client that keeps what it gets: `seen` has (event, arguments) of those that tests look at."""

    def __init__(self, server: Server, intents: discord.Intents | None = None, **options: Any) -> None:
        chosen = intents or discord.Intents(
            guilds=True, members=True, messages=True, message_content=True, reactions=True, typing=True
        )
        options.setdefault("guild_ready_timeout", 0.05)
        super().__init__(intents=chosen, enable_debug_events=True, **options)
        self.server = server
        self.seen: list[tuple[str, tuple[Any, ...]]] = []
        self.raw: list[dict[str, Any]] = []
        request, connect = self.http.request, self.http.ws_connect

        def redirected(route: Route, **named: Any) -> Any:
            return request(_redirected(route, server), **named)

        def connected(url: str, *, compress: int = 0) -> Any:
            ours = url.replace(str(DiscordWebSocket.DEFAULT_GATEWAY).rstrip("/"), server.gateway_url, 1)
            return connect(ours.replace("/gateway/?", "/gateway?"), compress=compress)

        self.http.request = redirected  # type: ignore[method-assign]
        self.http.ws_connect = connected  # type: ignore[method-assign]

    async def setup_hook(self) -> None:
        async_context.set(_Adapter(self.server))

    async def before_identify_hook(self, shard_id: int | None, *, initial: bool = False) -> None:
        """The library waits five seconds before every IDENTIFY but the first; not here."""

    def dispatch(self, event: str, /, *args: Any, **named: Any) -> None:
        self.seen.append((event, args))
        if event == "socket_raw_receive":
            self.raw.append(discord.utils._from_json(args[0]))
        super().dispatch(event, *args, **named)
        self.server.world.changed.set()

    def events(self, name: str) -> list[tuple[Any, ...]]:
        """The arguments of every event of a name."""
        return [args for event, args in self.seen if event == name]

    def payloads(self, name: str) -> list[dict[str, Any]]:
        """The data of every dispatch of a name, as it came over the wire."""
        return [frame["d"] for frame in self.raw if frame.get("t") == name]

    async def wait_for_events(self, name: str, count: int = 1, seconds: float = 5.0) -> None:
        """Waits for so many events of a name."""
        await self.server.until(lambda: len(self.events(name)) >= count, seconds)

    async def wait_for_messages(self, count: int = 1, seconds: float = 5.0) -> list[discord.Message]:
        """The messages so far, when there are as many."""
        await self.wait_for_events("message", count, seconds)
        return [args[0] for args in self.events("message")]


@asynccontextmanager
async def running(server: Server, client: Library | None = None) -> AsyncIterator[Library]:
    """A client that is logged in and ready, and closed at the end."""
    chosen = client or Library(server)
    task = asyncio.create_task(chosen.start(server.bot.token))
    ready = asyncio.create_task(_ready(chosen))
    try:
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED, timeout=10)
        if task.done():
            task.result()
        yield chosen
    finally:
        ready.cancel()
        await chosen.close()
        await asyncio.gather(task, ready, return_exceptions=True)
        await asyncio.sleep(0)


async def _ready(client: Library) -> None:
    while not client.events("ready"):
        client.server.world.changed.clear()
        await client.server.world.changed.wait()


@asynccontextmanager
async def raw(server: Server) -> AsyncIterator[Raw]:
    """Requests without a library."""
    async with aiohttp.ClientSession() as session:
        yield Raw(server, session)


class Raw:
    """Plain requests with the bot's token: the status and the decoded body."""

    def __init__(self, server: Server, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.session = session

    async def ask(self, method: str, path: str, *, auth: str | None = None, **named: Any) -> tuple[int, Any]:
        """One request; `auth` replaces the header, and an empty one leaves it out."""
        chosen = f"Bot {self.server.bot.token}" if auth is None else auth
        headers = {**named.pop("headers", {}), **({"Authorization": chosen} if chosen else {})}
        async with self.session.request(
            method, URL(self.server.rest_url + path, encoded=True), headers=headers, **named
        ) as answer:
            return answer.status, await answer.json(content_type=None) if answer.status != 204 else None
