"""The gateway over discord.py: one connection, kept for ever, that hands on every event as Discord sent it.

The library does the protocol (heartbeats, compression, resuming). Its loop is replaced: it ends at the first event it
cannot read, waits as long after a good connection as after a bad one, and writes tracebacks about every outage. Its
models are not used at all: an event of a form they do not know would be lost.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp
import discord
import yarl
from discord.gateway import DiscordWebSocket, ReconnectWebSocket, WebSocketClosure
from discord.http import HTTPClient

from bubbot.errors import ChannelRefused
from bubbot.ports.channel import ChannelHealth
from channels.discord.errors import refused_token
from channels.discord.retry import DiscordReceiveTiming
from channels.discord.settings import DiscordSettings

log = logging.getLogger(__name__)
HOUR_SECONDS = 3600.0
SESSIONS_AN_HOUR = 20
"""New sessions that may be asked for without a long wait."""

Hear = Callable[[str, Any, str], None]
"""Takes an event: its name, its content, and what it is called in its session."""


class ConnectionBroken(Exception):
    """The connection cannot go on; the text is for people."""

    def __init__(self, text: str, *, resume: bool = True) -> None:
        super().__init__(text)
        self.resume = resume


@dataclass
class _GatewaySession:
    """What is needed to take up a session again."""

    id: str | None = None
    sequence: int | None = None
    gateway: yarl.URL | None = None

    @property
    def lasts(self) -> bool:
        return self.id is not None and self.sequence is not None


class _GatewaySocket(DiscordWebSocket):
    """The library's socket, which tells its owner what it gets and does not end over it. Subclassed for each client,
    since the library keeps the gateway's address in the class."""

    owner: DiscordGateway

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(socket, loop=loop)
        self.owner.opened(self)

    async def received_message(self, msg: Any, /) -> None:
        try:
            text = self._decompressor.decompress(msg) if isinstance(msg, bytes) else msg
        except Exception as error:  # noqa: BLE001 - whatever the decompressor raises, its stream is lost
            raise ConnectionBroken(f"what Discord sends cannot be unpacked ({type(error).__name__})") from None
        self.owner.heard_something()
        if text is None:
            return  # the rest of it comes
        try:
            await super().received_message(text)
        except (
            ReconnectWebSocket,
            WebSocketClosure,
            discord.ConnectionClosed,
            OSError,
            aiohttp.ClientError,
            ConnectionBroken,
        ):
            raise
        except Exception as error:  # noqa: BLE001 - the library reads what comes without looking
            self.owner.unread(text, error)

    async def leave(self, seconds: float, code: int) -> None:
        """Ends the connection within some seconds."""
        if self._keep_alive is not None:
            self._keep_alive.stop()
            self._keep_alive = None
        try:
            async with asyncio.timeout(seconds):
                await self.socket.close(code=code)
        except (TimeoutError, OSError, aiohttp.ClientError):
            return  # what was cut off in closing is closed


class _RawEventParsers(dict[str, Callable[[Any], None]]):
    """In place of the library's parsers: every event goes to us."""

    def __init__(self, hear: Callable[[str, Any], None]) -> None:
        super().__init__()
        self._hear = hear

    def __missing__(self, event: str) -> Callable[[Any], None]:
        return partial(self._hear, event)


class DiscordGateway(discord.Client):
    """A connection that is kept. `hear` is called with every event, in order; it must not raise."""

    def __init__(
        self,
        http: HTTPClient,
        settings: DiscordSettings,
        pace: DiscordReceiveTiming,
        *,
        hear: Hear,
        now: Callable[[], str],
    ) -> None:
        self._shared = http
        self._settings = settings
        self._pace = pace
        self._hear = hear
        self._now = now
        self._socket: _GatewaySocket | None = None
        self._sessions: deque[float] = deque()
        self._ready_now = False
        self._heard = ""
        self._note = "not connected yet"
        logger = logging.getLogger("discord.client")
        logger.addFilter(_no_voice)
        super().__init__(
            intents=intents(settings),
            max_messages=None,
            member_cache_flags=discord.MemberCacheFlags.none(),
            chunk_guilds_at_startup=False,
            heartbeat_timeout=pace.silent,
        )
        logger.removeFilter(_no_voice)
        self._connection.parsers = _RawEventParsers(self._event)
        self._kind: type[_GatewaySocket] = type(
            "_Own", (_GatewaySocket,), {"owner": self, "DEFAULT_GATEWAY": yarl.URL(settings.gateway_url)}
        )

    def _get_state(self, **options: Any) -> Any:
        self.http = self._shared  # the rate limits of one bot are counted in one place
        return super()._get_state(**options)

    async def before_identify_hook(self, shard_id: int | None, *, initial: bool = False) -> None:
        """A new session is asked for; it was waited before the connection was made."""
        del shard_id, initial
        self._sessions.append(self._pace.monotonic())

    def health(self) -> ChannelHealth:
        """As of now."""
        return ChannelHealth(self._ready_now, self._heard, "" if self._ready_now else self._note)

    def heard_something(self) -> None:
        """A frame came."""
        self._heard = self._now()

    def opened(self, socket: _GatewaySocket) -> None:
        """A connection was made; it is ours to end."""
        self._socket = socket

    def unread(self, text: str, error: Exception) -> None:
        """A frame that the library could not read. What the connection stands on ends it; anything else is handed on.

        Raises `ConnectionBroken`.
        """
        try:
            frame = json.loads(text)
        except (ValueError, RecursionError):
            frame = None
        if not isinstance(frame, dict):
            return self._hear("", text, "")
        name = frame.get("t")
        if frame.get("op") == 0 and name == "RESUMED":
            return self._event("RESUMED", {})
        if frame.get("op") != 0 or name == "READY":
            words = f"what Discord sends cannot be read ({type(error).__name__})"
            raise ConnectionBroken(words, resume=name != "READY") from None
        return self._hear(str(name), frame.get("d"), "")

    def _event(self, name: str, data: Any) -> None:
        socket = self._socket
        serial = f"{socket.session_id}:{socket.sequence}" if socket else ""
        self._hear(name, data, serial)
        if name in ("READY", "RESUMED"):
            self._ready_now = True

    async def stay(self) -> None:
        """Connects, and connects again, until cancelled. Raises `ChannelRefused` where only the operator can help."""
        await self._async_setup_hook()
        session, failures = _GatewaySession(), 0
        while True:
            began = self._pace.monotonic()
            try:
                await self._connection_of(session)
            except ReconnectWebSocket as error:
                words, resume = "the connection ended", error.resume
            except discord.ConnectionClosed as error:
                if (refused := refusal(self._settings, error.code)) is not None:
                    raise refused from None
                words, resume = f"Discord ended the connection ({error.code})", False
            except ConnectionBroken as error:
                words, resume = str(error), error.resume
            except TimeoutError:
                words, resume = "nothing came any more", True
            except (OSError, aiohttp.ClientError, RuntimeError) as error:
                words, resume = f"it cannot be reached ({type(error).__name__})", True
            finally:
                was_ready, was_there = self._ready_now, self._socket is not None
                await self._leave(session)
            good = was_ready and self._pace.monotonic() - began >= self._pace.settled
            failures = 0 if good else failures + 1
            if not resume or (was_there and not was_ready and failures > 2):
                session.id = None
            elif not was_there and failures > 2:
                session.gateway = None  # the one it was told to come back to may be gone
            self._say(words, failures)
            await asyncio.sleep(self._before(session, failures))

    async def _connection_of(self, session: _GatewaySession) -> None:
        """One connection, from its beginning to its end, which is always an exception."""
        loop = asyncio.get_running_loop()
        silent = self._pace.silent + self._pace.margin
        async with asyncio.timeout(self._pace.ready) as limit:
            ws = await self._kind.from_client(
                self,
                initial=False,
                gateway=session.gateway if session.lasts else None,
                session=session.id if session.lasts else None,
                sequence=session.sequence if session.lasts else None,
                resume=session.lasts,
            )
            while True:
                await ws.poll_event()
                if self._ready_now and not limit.expired():
                    limit.reschedule(loop.time() + silent)

    async def _leave(self, session: _GatewaySession) -> None:
        """The connection ends, and what is needed to resume is kept."""
        self._ready_now = False
        socket, self._socket = self._socket, None
        if socket is None:
            return
        session.id, session.sequence, session.gateway = socket.session_id, socket.sequence, socket.gateway
        task = asyncio.current_task()
        # Cancelled: the bot says goodbye, so that it is shown as away. Otherwise its session has to stay.
        await socket.leave(self._pace.close, 1000 if task is not None and task.cancelling() else 4000)

    def _before(self, session: _GatewaySession, failures: int) -> float:
        """Seconds to wait before the next connection."""
        wait = self._pace.wait(failures) if failures else self._pace.first_wait * self._pace.chance()
        if session.lasts:
            return wait
        now = self._pace.monotonic()
        while self._sessions and now - self._sessions[0] > HOUR_SECONDS:
            self._sessions.popleft()
        rationed = len(self._sessions) >= SESSIONS_AN_HOUR
        identify = self._pace.rationed if rationed else self._pace.identify * (0.2 + 0.8 * self._pace.chance())
        return max(wait, identify)

    def _say(self, words: str, failures: int) -> None:
        self._note = words
        level = logging.WARNING if failures == 2 else logging.INFO
        log.log(
            level, "channel %s: %s; connecting again", self._settings.channel, words,
            extra={"action": "discord.disconnected"},
        )  # fmt: skip


def _no_voice(record: logging.LogRecord) -> bool:
    """Whether a line of the library is not about the voice support that is not installed, and not used."""
    return "voice will NOT" not in str(record.msg)


def intents(settings: DiscordSettings) -> discord.Intents:
    """What Discord is to tell: as little as does."""
    return discord.Intents(
        guilds=True,
        guild_messages=True,
        dm_messages=True,
        guild_reactions=True,
        dm_reactions=True,
        message_content=settings.content == "all",
    )


def refused_content(channel: str) -> ChannelRefused:
    """For a text of messages that Discord does not give to this application."""
    return ChannelRefused(
        f'[channels.{channel}] content = "all" needs the Message Content Intent: turn it on at '
        f'discord.com/developers, on the page Bot of your application, or set content = "mentions".'
    )


def refusal(settings: DiscordSettings, code: int | None) -> ChannelRefused | None:
    """What only the operator can mend, by the code with which the gateway ended the connection."""
    channel = settings.channel
    if code == 4004:
        return refused_token(channel)
    if code == 4014 and settings.content == "all":
        return refused_content(channel)
    if code in (4013, 4014):
        return ChannelRefused(
            f"[channels.{channel}] Discord does not let this application have what bubbot asks for ({code}): look at "
            f"the intents on the page Bot of your application at discord.com/developers."
        )
    if code in (4010, 4011):
        return ChannelRefused(
            f"[channels.{channel}] the bot is in too many servers for one connection ({code}), and bubbot has no "
            f"more than one: take it out of some."
        )
    if code == 4012:
        return ChannelRefused(
            f"[channels.{channel}] Discord no longer speaks this version of its gateway (4012): update bubbot."
        )
    return None
