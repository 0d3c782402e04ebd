"""The gateway, version 10: who is let in, heartbeats, resumes, and what a test can break."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import WSMsgType, web

from tests.fakes.discordapi import shapes
from tests.fakes.discordapi.errors import Json
from tests.fakes.discordapi.events import CONTENT, KNOWN, MEMBERS, PRESENCES
from tests.fakes.discordapi.frames import packer
from tests.fakes.discordapi.sessions import ACK, HEARTBEAT, HELLO, INVALID, RECONNECT, Connection, Session
from tests.fakes.discordapi.world import Event, World

REASONS = {
    4000: "Unknown error.",
    4001: "Unknown opcode.",
    4002: "Error while decoding payload.",
    4003: "Not authenticated.",
    4004: "Authentication failed.",
    4005: "Already authenticated.",
    4007: "Invalid seq.",
    4008: "Rate limited.",
    4009: "Session timed out.",
    4010: "Invalid shard.",
    4012: "Invalid API version.",
    4013: "Invalid intent(s).",
    4014: "Disallowed intent(s).",
}


@dataclass(slots=True, eq=False)
class Gateway:
    """All connections and sessions.

    `interval` is the time between heartbeats in seconds, `patience` how many intervals a client may be silent,
    `lifetime` how long a session without a connection can be resumed, `commands` how many payloads a client may send
    in a minute. `refuse_resume` answers every RESUME as if its session were gone.
    """

    world: World
    interval: float = 41.25
    patience: float = 1.5
    lifetime: float = 180.0
    commands: int = 120
    refuse_resume: bool = False
    connections: list[Connection] = field(default_factory=list)
    sessions: dict[str, Session] = field(default_factory=dict)
    received: list[Json] = field(default_factory=list)
    identified: int = 0
    closes: list[int] = field(default_factory=list)
    resume_url: Callable[[], str] = str

    # What happens

    def tell(self, event: Event) -> None:
        """Gives an event to every session that may have it."""
        for session in self.sessions.values():
            session.tell(event)

    @property
    def connected(self) -> list[Session]:
        """The sessions that have a connection now."""
        return [session for session in self.sessions.values() if session.connected]

    # What a test breaks

    def drop(self) -> None:
        """Every connection ends below the websocket."""
        for connection in [*self.connections]:
            connection.abort()

    def close(self, code: int) -> None:
        """Every connection is closed with a code."""
        for connection in [*self.connections]:
            connection.close(code, REASONS.get(code, ""))

    def reconnect(self) -> None:
        """Asks every client to connect again and resume."""
        for session in self.connected:
            if session.connection is not None:
                session.connection.send(RECONNECT)

    def invalidate(self, *, resumable: bool = False) -> None:
        """Tells every client that its session is invalid; a resumable one can be taken up again."""
        for session in self.connected:
            if session.connection is not None:
                session.connection.send(INVALID, resumable)
            if not resumable:
                del self.sessions[session.id]

    def deaf(self) -> None:
        """The connections of now stay open and say nothing any more, not even to a heartbeat."""
        for connection in self.connections:
            connection.deaf = True

    def ask_beat(self) -> None:
        """Asks every client for a heartbeat at once."""
        for connection in self.connections:
            connection.send(HEARTBEAT)

    def odd(self, name: str, data: Json) -> None:
        """An event as it is, numbered like any other."""
        for session in self.sessions.values():
            session.dispatch(name, data)

    def raw(self, frame: str | bytes) -> None:
        """A frame as it is: no JSON, or a broken stream."""
        for connection in self.connections:
            connection.raw(frame)

    def hold(self) -> None:
        """Events wait from now on."""
        for session in self.sessions.values():
            session.held = True

    def release(self) -> None:
        """What waited goes out."""
        for session in self.sessions.values():
            session.held = False
            waiting, session.waiting = session.waiting, []
            for event in waiting:
                session.tell(event)

    # The protocol

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One connection, from HELLO to its end."""
        if request.headers.get("Upgrade", "").lower() != "websocket":
            return web.Response(status=400, text="Expected a websocket\n")
        chosen = packer(request.query.get("compress", ""))
        if chosen is None:
            return web.Response(status=400, text="This compression is not to be had\n")
        socket = web.WebSocketResponse(compress=False, max_msg_size=16 * 1024, autoping=True, timeout=0.2)
        await socket.prepare(request)
        connection = Connection(request, socket, chosen)
        connection.last_beat = asyncio.get_running_loop().time()
        self.connections.append(connection)
        writer = asyncio.create_task(connection.write())
        guard = asyncio.create_task(self._guard(connection))
        connection.send(HELLO, {"heartbeat_interval": int(self.interval * 1000), "_trace": ["[]"]})
        if request.query.get("v") != "10" or request.query.get("encoding", "json") != "json":
            self._end(connection, 4012)
        try:
            await self._listen(connection)
        finally:
            self._gone(connection)
            guard.cancel()
            connection.frames.put_nowait(None)
            await asyncio.gather(writer, guard, return_exceptions=True)
        return socket

    async def _listen(self, connection: Connection) -> None:
        async for frame in connection.socket:
            if connection.ended:
                continue
            if frame.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                continue
            now = asyncio.get_running_loop().time()
            connection.received.append(now)
            while connection.received[0] <= now - 60:
                connection.received.popleft()
            if len(connection.received) > self.commands:
                self._end(connection, 4008)
                continue
            try:
                payload = json.loads(frame.data)
                op, data = payload["op"], payload.get("d")
            except (ValueError, KeyError, TypeError):
                self._end(connection, 4002)
                continue
            self.received.append(payload)
            self._payload(connection, op, data)
            self.world.changed.set()

    def _payload(self, connection: Connection, op: int, data: object) -> None:
        given = data if isinstance(data, dict) else {}
        if op == HEARTBEAT:
            connection.last_beat = asyncio.get_running_loop().time()
            connection.send(ACK)
        elif op == 2:
            self._identify(connection, given)
        elif op == 6:
            self._resume(connection, given)
        elif connection.session is None:
            self._end(connection, 4003)
        elif op == 8:
            self._members(connection.session, given)
        elif op not in (3, 4, 31):
            self._end(connection, 4001)

    def _identify(self, connection: Connection, given: Json) -> None:
        bot, intents = self.world.bot, given.get("intents")
        if connection.session is not None:
            return self._end(connection, 4005)
        if str(given.get("token", "")).removeprefix("Bot ") != bot.token:
            return self._end(connection, 4004)
        if not isinstance(given.get("properties"), dict):
            return self._end(connection, 4002)
        if not isinstance(intents, int) or isinstance(intents, bool) or intents < 0 or intents & ~KNOWN:
            return self._end(connection, 4013)
        shard = given.get("shard", [0, 1])
        if not isinstance(shard, list) or len(shard) != 2 or not 0 <= shard[0] < shard[1]:
            return self._end(connection, 4010)
        allowed = ((PRESENCES, bot.presence_intent), (MEMBERS, bot.members_intent), (CONTENT, bot.content_intent))
        if any(intents & bit and not on for bit, on in allowed):
            return self._end(connection, 4014)
        session = Session(uuid.uuid4().hex, self.world, intents, connection=connection)
        connection.session = session
        self.sessions[session.id] = session
        self.identified += 1
        session.begin(self.resume_url())
        return None

    def _resume(self, connection: Connection, given: Json) -> None:
        if connection.session is not None:
            return self._end(connection, 4005)
        if str(given.get("token", "")).removeprefix("Bot ") != self.world.bot.token:
            return self._end(connection, 4004)
        session, seq = self.sessions.get(str(given.get("session_id"))), given.get("seq")
        now = asyncio.get_running_loop().time()
        if session is not None and not session.connected and now - session.left_at > self.lifetime:
            session = None
        if session is None or self.refuse_resume:
            self.sessions.pop(str(given.get("session_id")), None)
            return connection.send(INVALID, data=False)
        if not isinstance(seq, int) or seq > session.seq:
            return self._end(connection, 4007)
        if not session.can_resume(seq):
            del self.sessions[session.id]
            return connection.send(INVALID, data=False)
        if session.connection is not None and session.connected:
            session.connection.close(4000, REASONS[4000])
        session.connection, connection.session = connection, session
        session.resume(seq)
        return None

    def _members(self, session: Session, given: Json) -> None:
        """Answers a request for members in one chunk."""
        guild = self.world.guilds.get(int(given.get("guild_id", 0)))
        if guild is None or self.world.bot.id not in guild.members:
            return
        wanted, query = given.get("user_ids"), str(given.get("query", "")).lower()
        numbers = {str(one) for one in (wanted if isinstance(wanted, list) else [wanted])} if wanted else None
        people = [
            one
            for one in guild.members.values()
            if (str(one.user.id) in numbers if numbers is not None else one.user.username.startswith(query))
        ]
        if limit := given.get("limit"):
            people = people[:limit]
        shown: Json = {
            "guild_id": str(guild.id),
            "members": [shapes.member(one) for one in people],
            "chunk_index": 0,
            "chunk_count": 1,
            "not_found": sorted((numbers or set()) - {str(one.user.id) for one in people}),
        }
        session.dispatch("GUILD_MEMBERS_CHUNK", shown | ({"nonce": given["nonce"]} if "nonce" in given else {}))

    async def _guard(self, connection: Connection) -> None:
        """Ends a connection whose client does not beat."""
        loop, limit = asyncio.get_running_loop(), self.interval * self.patience
        while not connection.ended:
            await asyncio.sleep(max(0.01, connection.last_beat + limit - loop.time()))
            if loop.time() - connection.last_beat >= limit:
                self._end(connection, 4009)

    def _end(self, connection: Connection, code: int) -> None:
        self.closes.append(code)
        connection.close(code, REASONS[code])

    def _gone(self, connection: Connection) -> None:
        """Takes a connection out; its session waits for a resume, unless the client said goodbye."""
        goodbye = not connection.ended and connection.socket.close_code in (1000, 1001)
        connection.ended = True
        self.connections.remove(connection)
        session = connection.session
        if session is not None and session.connection is connection:
            session.connection = None
            session.left_at = asyncio.get_running_loop().time()
            if goodbye:
                self.sessions.pop(session.id, None)
        self.world.changed.set()
