"""A session of the gateway: what it gets, what it missed, and the connection it has now."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from aiohttp import web

from tests.fakes.discordapi import shapes
from tests.fakes.discordapi.errors import Json
from tests.fakes.discordapi.events import CONTENT, GUILDS, MEMBERS, PRESENCES
from tests.fakes.discordapi.frames import Packer
from tests.fakes.discordapi.permissions import Permission, may
from tests.fakes.discordapi.world import Event, Guild, World

DISPATCH, HEARTBEAT, RECONNECT, INVALID, HELLO, ACK = 0, 1, 7, 9, 10, 11


@dataclass(slots=True, eq=False)
class Connection:
    """One websocket. Frames go out in order by a task of its own, so that what happens needs no waiting."""

    request: web.Request
    socket: web.WebSocketResponse
    packer: Packer
    frames: asyncio.Queue[str | bytes | tuple[int, str] | None] = field(default_factory=asyncio.Queue)
    session: Session | None = None
    received: deque[float] = field(default_factory=deque)
    deaf: bool = False
    last_beat: float = 0.0
    ended: bool = False

    def send(self, op: int, data: object = None, *, seq: int | None = None, name: str | None = None) -> None:
        """Queues one payload; a deaf connection says nothing any more."""
        if not self.deaf and not self.ended:
            self.frames.put_nowait(self.packer.pack({"t": name, "s": seq, "op": op, "d": data}))

    def raw(self, frame: str | bytes) -> None:
        """Queues a frame as it is."""
        self.frames.put_nowait(frame)

    def close(self, code: int, reason: str = "") -> None:
        """Closes after what is queued."""
        if not self.ended:
            self.ended = True
            self.frames.put_nowait((code, reason))

    def abort(self) -> None:
        """Ends the connection below the websocket, without a goodbye."""
        self.ended = True
        if self.request.transport is not None:
            self.request.transport.abort()
        self.frames.put_nowait(None)

    async def write(self) -> None:
        """The task that sends."""
        while (frame := await self.frames.get()) is not None:
            try:
                if isinstance(frame, str):
                    await self.socket.send_str(frame)
                elif isinstance(frame, bytes):
                    await self.socket.send_bytes(frame)
                else:
                    await self.socket.close(code=frame[0], message=frame[1].encode())
                    return
            except (ConnectionError, RuntimeError):
                return


@dataclass(slots=True, eq=False)
class Session:
    """What IDENTIFY began. It outlives its connections until it is invalidated or too old."""

    id: str
    world: World
    intents: int
    seq: int = 0
    kept: deque[tuple[int, str, Json]] = field(default_factory=lambda: deque(maxlen=5000))
    connection: Connection | None = None
    left_at: float = 0.0
    resumed: int = 0
    held: bool = False
    waiting: list[Event] = field(default_factory=list)

    @property
    def connected(self) -> bool:
        """Whether a client listens now."""
        return self.connection is not None and not self.connection.ended

    def wants(self, event: Event) -> bool:
        """Whether the intents and the permissions of the bot let it have an event."""
        if event.intents and not self.intents & event.intents:
            return False
        me = self.world.bot.user
        if event.guild is not None and (me.id not in event.guild.members or not event.guild.available):
            return False
        channel = event.channel
        if channel is None or event.name.startswith("CHANNEL_"):
            return True
        if channel.guild is None:
            return any(one.id == me.id for one in channel.recipients)
        private = channel.kind == 12 and me.id not in channel.joined
        return may(channel, me, Permission.VIEW_CHANNEL) and not private

    def tell(self, event: Event) -> None:
        """Sends an event now, or when it is released."""
        if not self.wants(event):
            return
        if self.held:
            self.waiting.append(event)
        else:
            self.dispatch(event.name, self.data(event))

    def data(self, event: Event) -> Json:
        """The event in the form that this session may have."""
        if event.message is not None:
            shown = shapes.message(self.world, event.message, content=bool(self.intents & CONTENT))
            return {**shown, **event.data}
        if event.name == "GUILD_CREATE" and event.guild is not None:
            shown = self.guild(event.guild)
            if event.data.get("joined"):
                del shown["unavailable"]  # that is how clients tell a new guild from one that is there again
            return shown
        return event.data

    def guild(self, guild: Guild) -> Json:
        """Without the intent for presences, only the bot itself is among the members."""
        everybody = bool(self.intents & MEMBERS and self.intents & PRESENCES)
        return shapes.guild_create(self.world, guild, everybody=everybody)

    def dispatch(self, name: str, data: Json) -> None:
        """Numbers an event and keeps it for a resume."""
        self.seq += 1
        self.kept.append((self.seq, name, data))
        if self.connection is not None:
            self.connection.send(DISPATCH, data, seq=self.seq, name=name)

    def begin(self, resume_url: str) -> None:
        """READY and the guilds."""
        world, me = self.world, self.world.bot
        guilds = [guild for guild in world.guilds.values() if me.id in guild.members]
        shown = {
            "v": 10,
            "user_settings": {},
            "user": {**shapes.user(me.user), "verified": True, "mfa_enabled": False, "email": None, "flags": 0},
            "session_type": "normal",
            "session_id": self.id,
            "resume_gateway_url": resume_url,
            "relationships": [],
            "private_channels": [],
            "presences": [],
            "guilds": [{"id": str(guild.id), "unavailable": True} for guild in guilds],
            "guild_join_requests": [],
            "geo_ordered_rtc_regions": [],
            "auth": {},
            "application": {"id": str(me.application_id), "flags": me.flags()},
            "_trace": ["[]"],
        }
        self.dispatch("READY", shown)
        for guild in guilds:
            if self.intents & GUILDS and guild.available:
                self.dispatch("GUILD_CREATE", self.guild(guild))

    def resume(self, seq: int) -> None:
        """What was missed, in order, then RESUMED."""
        assert self.connection is not None
        self.resumed += 1
        for number, name, data in [one for one in self.kept if one[0] > seq]:
            self.connection.send(DISPATCH, data, seq=number, name=name)
        self.seq += 1
        self.connection.send(DISPATCH, {"_trace": ["[]"]}, seq=self.seq, name="RESUMED")

    def can_resume(self, seq: int) -> bool:
        """Whether everything after a sequence number is still kept."""
        return seq <= self.seq and (not self.kept or seq >= self.kept[0][0] - 1)
