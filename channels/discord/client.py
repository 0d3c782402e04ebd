"""The gateway over discord.py: one permanent connection that passes on every event as Discord sent it.

The library handles the protocol (heartbeats, compression, resuming). Its loop is replaced: it ends at the first event
it cannot read, waits as long after a good connection as after a bad one, and logs tracebacks for every outage. Its
models are not used at all: an event in a form they do not expect would be lost.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import discord
import yarl
from discord.gateway import DiscordWebSocket, ReconnectWebSocket, WebSocketClosure
from discord.http import HTTPClient

from bubbot.errors import ChannelRefused
from bubbot.ports.channel import ChannelHealth
from channels.discord.errors import token_refused_error
from channels.discord.retry import DiscordReceiveTiming
from channels.discord.settings import DiscordSettings

log = logging.getLogger(__name__)
HOUR_SECONDS = 3600.0
MAX_SESSIONS_PER_HOUR = 20
"""New sessions per hour without a long wait."""
SIGN_OF_LIFE_SHARE = 1 / 16
"""The share of the longest silence within which one event says that the connection lives: in a busy minute each one would
cost as much as reading it."""

OnGatewayEvent = Callable[[str, Any, str], None]
"""Takes an event: its name, its content, and its serial within the session."""


class ConnectionBroken(Exception):
    """The connection cannot continue; the text is for people."""

    def __init__(self, text: str, *, resume: bool = True) -> None:
        super().__init__(text)
        self.resume = resume


@dataclass
class GatewaySession:
    """The state needed to resume a session."""

    id: str | None = None
    sequence: int | None = None
    gateway: yarl.URL | None = None

    @property
    def is_resumable(self) -> bool:
        return self.id is not None and self.sequence is not None


_NAMELESS_EVENT = '{"op": 0}'
"""An event that the library takes as a sign of life, and for which it has no parser."""


class _EventReceived(Exception):
    """Keeps the library from parsing the frame that it is about to read."""


class _GatewaySocket(DiscordWebSocket):
    """The library's socket, except that its owner gets events, and frames that it cannot read.

    Each client has its own subclass, since the library keeps the gateway's address in the class.
    """

    owner: DiscordGateway

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(socket, loop=loop)
        self._text: str | None = None
        self._frame: Any = None
        self.owner.on_socket_open(self)

    async def received_message(self, msg: Any, /) -> None:
        self._text = self._frame = None
        self.owner.on_frame()
        try:
            await super().received_message(msg)
        except _EventReceived:
            if self.owner.is_sign_of_life_due():
                await super().received_message(_NAMELESS_EVENT)
            self.owner.on_event_frame(self, self._frame)
        except (ReconnectWebSocket, WebSocketClosure, discord.ConnectionClosed, OSError, aiohttp.ClientError):
            raise
        except Exception as error:  # noqa: BLE001 - the library does not validate what it reads
            if self._text is None:  # after any error of the decompressor its stream is lost
                raise ConnectionBroken(f"what Discord sends cannot be unpacked ({type(error).__name__})") from None
            if isinstance(self._frame, dict):
                raise ConnectionBroken(f"what Discord sends cannot be read ({type(error).__name__})") from None
            self.owner.on_unreadable_frame(self._text)

    def on_raw_frame(self, text: str) -> None:
        """Take a frame that the library is about to read. Raise `_EventReceived` if it is an event."""
        if text is _NAMELESS_EVENT:
            return
        self._text = text
        try:
            self._frame = json.loads(text)
        except (ValueError, RecursionError):
            return  # the library cannot read it either
        if isinstance(self._frame, dict) and self._frame.get("op") == self.DISPATCH:
            raise _EventReceived

    async def leave(self, seconds: float, code: int) -> None:
        """Close the connection within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self.close(code)
        except (TimeoutError, OSError, aiohttp.ClientError):
            return  # an interrupted close is closed, too


class DiscordGateway(discord.Client):
    """A permanent connection. `on_event` is called with every event, in order; it must not raise."""

    def __init__(
        self,
        http: HTTPClient,
        settings: DiscordSettings,
        timing: DiscordReceiveTiming,
        *,
        on_event: OnGatewayEvent,
        now: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._timing = timing
        self._on_event = on_event
        self._now = now
        self._socket: _GatewaySocket | None = None
        self._sessions: deque[float] = deque()
        self._is_ready = False
        self._last_frame_at = ""
        self._last_sign_of_life = -math.inf
        self._problem = "not connected yet"
        logger = logging.getLogger("discord.client")
        logger.addFilter(_is_not_voice_notice)
        super().__init__(
            intents=gateway_intents(settings),
            max_messages=None,
            member_cache_flags=discord.MemberCacheFlags.none(),
            chunk_guilds_at_startup=False,
            heartbeat_timeout=timing.silence_timeout,
            enable_debug_events=True,
        )
        logger.removeFilter(_is_not_voice_notice)
        self.http = http  # one client counts the rate limits of the bot
        self._socket_class: type[_GatewaySocket] = type(
            "_Own", (_GatewaySocket,), {"owner": self, "DEFAULT_GATEWAY": yarl.URL(settings.gateway_url)}
        )

    def dispatch(self, event: str, /, *args: Any, **_kwargs: Any) -> None:
        """Handle every raw frame, which the library dispatches if debug events are enabled; ignore all else."""
        if event == "socket_raw_receive" and self._socket is not None:
            self._socket.on_raw_frame(*args)

    async def before_identify_hook(self, shard_id: int | None, *, initial: bool = False) -> None:
        """Count a new session; its wait was before the connection."""
        del shard_id, initial
        self._sessions.append(self._timing.monotonic())

    def health(self) -> ChannelHealth:
        """Return the current state of the connection."""
        return ChannelHealth(self._is_ready, self._last_frame_at, "" if self._is_ready else self._problem)

    def on_frame(self) -> None:
        """Note the time of a frame."""
        self._last_frame_at = self._now()

    def on_socket_open(self, socket: _GatewaySocket) -> None:
        """Take a new connection, which this client has to close."""
        self._socket = socket

    def on_unreadable_frame(self, text: str) -> None:
        """Pass on a frame that is not JSON, or not an object."""
        self._on_event("", text, "")

    def on_event_frame(self, socket: _GatewaySocket, frame: dict[str, Any]) -> None:
        """Pass an event on, and keep what resuming needs. Raise `ConnectionBroken` if it is an unreadable READY."""
        name, data = str(frame.get("t") or ""), frame.get("d")
        if frame.get("s") is not None:
            socket.sequence = frame["s"]
        if name == "READY":
            try:
                socket.sequence, socket.session_id = frame["s"], frame["d"]["session_id"]
                socket.gateway = yarl.URL(frame["d"]["resume_gateway_url"])
                self._emit(socket, name, data)
            except Exception as error:  # noqa: BLE001 - nothing of it is validated yet
                reason = f"what Discord sends cannot be read ({type(error).__name__})"
                raise ConnectionBroken(reason, resume=False) from None
        elif name == "RESUMED":
            self._emit(socket, name, data if isinstance(data, dict) else {})
        else:
            self._emit(socket, name, data)

    def _emit(self, socket: _GatewaySocket, name: str, data: Any) -> None:
        self._on_event(name, data, f"{socket.session_id}:{socket.sequence}")
        if name in ("READY", "RESUMED"):
            self._is_ready = True

    async def keep_connected(self) -> None:
        """Connect and reconnect until cancelled. Raise `ChannelRefused` if only the operator can fix the cause."""
        self.loop = asyncio.get_running_loop()  # the library does it at login
        session, failures = GatewaySession(), 0
        while True:
            began = self._timing.monotonic()
            try:
                await self._run_connection(session)
            except ReconnectWebSocket as error:
                reason, resume = "the connection ended", error.resume
            except discord.ConnectionClosed as error:
                if (fatal := close_code_error(self._settings, error.code)) is not None:
                    raise fatal from None
                reason, resume = f"Discord ended the connection ({error.code})", False
            except ConnectionBroken as error:
                reason, resume = str(error), error.resume
            except TimeoutError:
                reason, resume = "nothing more came", True
            except (OSError, aiohttp.ClientError, RuntimeError) as error:
                reason, resume = f"it cannot be reached ({type(error).__name__})", True
            finally:
                was_ready, was_open = self._is_ready, self._socket is not None
                await self._disconnect(session)
            was_stable = was_ready and self._timing.monotonic() - began >= self._timing.stable_after
            failures = 0 if was_stable else failures + 1
            if not resume or (was_open and not was_ready and failures > 2):
                session.id = None
            elif not was_open and failures > 2:
                session.gateway = None  # the address that Discord gave for resuming may be gone
            self._report_disconnect(reason, failures)
            await asyncio.sleep(self.seconds_before_connecting(session, failures))

    def is_sign_of_life_due(self) -> bool:
        """Return true if the library's count of silent seconds has to be reset now: once in a while, not at each event."""
        now = self._timing.monotonic()
        if now - self._last_sign_of_life < self._timing.silence_timeout * SIGN_OF_LIFE_SHARE:
            return False
        self._last_sign_of_life = now
        return True

    async def _run_connection(self, session: GatewaySession) -> None:
        """Run one connection; always end with an exception."""
        loop = asyncio.get_running_loop()
        silent = self._timing.silence_timeout + self._timing.silence_margin
        self._last_sign_of_life = -math.inf
        async with asyncio.timeout(self._timing.ready_timeout) as limit:
            ws = await self._socket_class.from_client(
                self,
                initial=False,
                gateway=session.gateway if session.is_resumable else None,
                session=session.id if session.is_resumable else None,
                sequence=session.sequence if session.is_resumable else None,
                resume=session.is_resumable,
            )
            while True:
                await ws.poll_event()
                end = loop.time() + silent
                is_late = abs(end - (limit.when() or 0.0)) >= silent * SIGN_OF_LIFE_SHARE
                if self._is_ready and is_late and not limit.expired():
                    limit.reschedule(end)

    async def _disconnect(self, session: GatewaySession) -> None:
        """Close the connection and keep what resuming needs."""
        self._is_ready = False
        socket, self._socket = self._socket, None
        if socket is None:
            return
        session.id, session.sequence, session.gateway = socket.session_id, socket.sequence, socket.gateway
        task = asyncio.current_task()
        # If cancelled, 1000 ends the session and Discord shows the bot as offline. Otherwise the session has to stay.
        await socket.leave(self._timing.close_timeout, 1000 if task is not None and task.cancelling() else 4000)

    def seconds_before_connecting(self, session: GatewaySession, failures: int) -> float:
        """Return the seconds to wait before the next connection."""
        wait = (
            self._timing.backoff_seconds(failures) if failures else self._timing.initial_backoff * self._timing.jitter()
        )
        if session.is_resumable:
            return wait
        now = self._timing.monotonic()
        while self._sessions and now - self._sessions[0] > HOUR_SECONDS:
            self._sessions.popleft()
        rationed = len(self._sessions) >= MAX_SESSIONS_PER_HOUR
        identify = (
            self._timing.rationed_identify_wait
            if rationed
            else self._timing.identify_wait * (0.2 + 0.8 * self._timing.jitter())
        )
        return max(wait, identify)

    def _report_disconnect(self, reason: str, failures: int) -> None:
        self._problem = reason
        level = logging.WARNING if failures == 2 else logging.INFO
        log.log(
            level, "discord disconnected, reconnecting: channel=%s reason=%s", self._settings.channel, reason,
            extra={"action": "discord.disconnected"},
        )  # fmt: skip


def _is_not_voice_notice(record: logging.LogRecord) -> bool:
    """Return false for the library's notice that voice support is not installed: bubbot does not use it."""
    return "voice will NOT" not in str(record.msg)


def gateway_intents(settings: DiscordSettings) -> discord.Intents:
    """Return the gateway intents: the fewest that suffice."""
    return discord.Intents(
        guilds=True,
        guild_messages=True,
        dm_messages=True,
        guild_reactions=True,
        dm_reactions=True,
        message_content=settings.content == "all",
    )


def content_intent_error(channel: str) -> ChannelRefused:
    """Return the error for an application without the Message Content Intent."""
    return ChannelRefused(
        f'[channels.{channel}] content = "all" needs the Message Content Intent: turn it on at '
        f'discord.com/developers, on the page Bot of your application, or set content = "mentions".'
    )


def close_code_error(settings: DiscordSettings, code: int | None) -> ChannelRefused | None:
    """Return the error for a close code that only the operator can fix; None for any other code."""
    channel = settings.channel
    if code == 4004:
        return token_refused_error(channel)
    if code == 4014 and settings.content == "all":
        return content_intent_error(channel)
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
