"""The routes of the API over HTTP: commands and queries as JSON, chats as WebSockets, errors whole."""

from __future__ import annotations

import logging
import os
import socket
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import TypeAlias

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from bubbot.errors import AccessError, BubbotError, ConfigError, ConfirmationNeeded, ControlError, RequestInvalid
from bubbot.ports.channel import MessagePart, Preview, TextStreamed, ToolFinished, ToolStarted
from bubbot.server.api import Api
from bubbot.server.listener import (
    CONNECTIONS,
    HttpConnections,
    HttpLimits,
    HttpRefused,
    listen,
    read_body,
    suspend_deadline,
)
from bubbot.server.peer import HEARTBEAT_SECONDS, ChatPeer
from bubbot.server.protocol import (
    CHAT_PATH,
    COMMAND_PATH,
    HELLO_PATH,
    MESSAGE_LIMIT,
    PROTOCOL,
    PROTOCOL_HEADER,
    JsonObject,
    describe_mismatch,
    encode,
    encode_error,
    encode_message,
    parse_message,
)
from bubbot.server.remote import RECEIPT_TIMEOUT_SECONDS, AskResult

log = logging.getLogger(__name__)

Admit: TypeAlias = Callable[[web.Request], None]
"""Raise `HttpRefused` for a request of somebody who may not ask here; called before the body is read."""
MAX_CHATS = 200
"""Chats that are open at once."""
ID_LIMIT = 200
"""Characters of the id that a client gives a part."""
HTTP_BAD_REQUEST, HTTP_FORBIDDEN, HTTP_CONFLICT, HTTP_SERVER_ERROR, HTTP_UNAVAILABLE = 400, 403, 409, 500, 503
SOCKET_LIMITS = HttpLimits(connections=256, request_seconds=30.0, shutdown_seconds=1.0, body_bytes=MESSAGE_LIMIT)


def admission(admit: Admit) -> Middleware:
    """Build a middleware that refuses a request before its body is read."""

    @web.middleware
    async def refuse_strangers(request: web.Request, handler: Handler) -> web.StreamResponse:
        admit(request)
        return await handler(request)

    return refuse_strangers


RenderError: TypeAlias = Callable[[web.Request, int, BubbotError], web.Response]
"""Return an error as the answer to a request."""


_STATUSES: Mapping[type[BubbotError], int] = MappingProxyType(
    {AccessError: HTTP_FORBIDDEN, ConfirmationNeeded: HTTP_CONFLICT, ControlError: HTTP_UNAVAILABLE}
)
"""The status of the answer with an error of these classes."""


def errors_as(render: RenderError) -> Middleware:
    """Build a middleware that turns a handler's error into a response."""

    @web.middleware
    async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except HttpRefused as refused:
            log.warning("request refused: %s", refused, extra={"action": "server.refused", "status": refused.status})
            response = render(request, refused.status, ConfigError(refused.reason))
            response.force_close()
            return response
        except (ConfigError, RequestInvalid) as error:
            return render(request, HTTP_BAD_REQUEST, error)
        except BubbotError as error:
            found = next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), HTTP_SERVER_ERROR)
            return render(request, found, error)
        except web.HTTPClientError as error:  # the library's: no such path or method, or no WebSocket
            response = render(request, error.status, ControlError(error.text or error.reason))
            if allowed := error.headers.get("Allow"):
                response.headers["Allow"] = allowed
            return response
        except ConnectionError:
            raise
        except Exception as error:  # a defect of ours must not cost other clients the bot
            log.exception("request failed", extra={"action": "server.failed", "path": request.path})
            reason = f"something went wrong in the running bot ({type(error).__name__}); see its log"
            return render(request, HTTP_SERVER_ERROR, BubbotError(reason))

    return answer_errors


def error_response(_request: web.Request, status: int, error: BubbotError) -> web.Response:
    """Return an error whole, for bubbot's own clients."""
    text = encode_message({"error": encode_error(error)})
    return web.Response(status=status, text=text, content_type="application/json")


def api_routes(api: Api) -> list[web.RouteDef]:
    peers: set[ChatPeer] = set()

    async def hello(request: web.Request) -> web.StreamResponse:
        _require_protocol(request)
        api.require_open()
        return _json({"protocol": PROTOCOL})

    async def command(request: web.Request) -> web.StreamResponse:
        _require_protocol(request)
        body = parse_message(await read_body(request))
        with suspend_deadline(request):
            return _json(await api.answer(request.match_info["name"], body))

    async def chat(request: web.Request) -> web.StreamResponse:
        _require_protocol(request)
        api.require_open()
        if len(peers) >= MAX_CHATS:
            raise ControlError(f"{MAX_CHATS} clients are connected to the running bot already")
        connection = web.WebSocketResponse(
            max_msg_size=request.app[CONNECTIONS].limits.body_bytes,
            compress=False,
            heartbeat=HEARTBEAT_SECONDS,
            writer_limit=0,
        )
        with suspend_deadline(request):
            await connection.prepare(request)
            transport = request.transport
            assert transport is not None
            transport.set_write_buffer_limits(high=0)  # so that what has been drained is with the system
            client = RemoteTerminal()
            peer = ChatPeer(connection, lambda name, body: api.answer_chat(client, name, body), abort=transport.abort)
            client.peer = peer
            peers.add(peer)
            try:
                await peer.run()
            finally:
                peers.discard(peer)
                api.on_disconnect(client)
        return connection

    return [web.get(HELLO_PATH, hello), web.post(COMMAND_PATH + "{name}", command), web.get(CHAT_PATH, chat)]


def serve_owner(
    api: Api, listener: socket.socket, uid_of: Callable[[socket.socket], int | None]
) -> AbstractAsyncContextManager[int]:
    """Serve the API on a Unix socket, for the user of this process and nobody else."""

    def admit(request: web.Request) -> None:
        connection = request.get_extra_info("socket")
        uid = None if connection is None else uid_of(connection)
        if uid not in (None, os.getuid()):
            raise HttpRefused(
                HTTP_FORBIDDEN,
                f"the running bot belongs to uid {os.getuid()}, and this is uid {uid}: "
                "run the command as the user of the bot",
            )

    connections = HttpConnections(SOCKET_LIMITS, _answer_older_client)
    return listen(listener, api_routes(api), connections, [errors_as(error_response), admission(admit)])


def _answer_older_client(data: bytes) -> bytes | None:
    """Return the answer to a client of version 1, which speaks in lines of JSON; None for any other."""
    if not data.startswith(b"{"):
        return None
    log.warning("client refused: it is older than this bot", extra={"action": "server.refused"})
    return encode_message({"error": encode_error(ConfigError(describe_mismatch(1)))}).encode() + b"\n"


def _require_protocol(request: web.Request) -> None:
    version = request.headers.get(PROTOCOL_HEADER)
    if version != str(PROTOCOL):
        raise ConfigError(describe_mismatch(version))


def _json(body: JsonObject) -> web.Response:
    return web.Response(text=encode_message(body), content_type="application/json")


class RemoteTerminal:
    """A terminal or a pipe whose adapter runs at the other end of a WebSocket; see `ChatClient`."""

    peer: ChatPeer

    @property
    def is_closed(self) -> bool:
        """See `ChatClient`."""
        return self.peer.closed.is_set()

    def close(self) -> None:
        """See `ChatClient`."""
        self.peer.close()

    async def show(self, part: MessagePart, data: bytes | None, result: AskResult | None) -> str:
        """See `ChatClient`."""
        body = _part_body(part, data) | ({} if result is None else {"result": encode(result)})
        reply = await self.peer.request("part", body, timeout=RECEIPT_TIMEOUT_SECONDS)
        external_id = reply.get("external_id", "")
        if not isinstance(external_id, str) or len(external_id) > ID_LIMIT or not external_id.isprintable():
            raise ControlError("its receipt cannot be read")
        return external_id

    def copy(self, part: MessagePart, data: bytes | None) -> None:
        """See `ChatClient`."""
        self.peer.notify("copy", _part_body(part, data))

    def preview(self, event: Preview) -> None:
        """See `ChatClient`. Pieces may be dropped; begin and end of a turn are not."""
        is_optional = isinstance(event, TextStreamed | ToolStarted | ToolFinished)
        self.peer.notify("preview", {"event": encode(event)}, droppable=is_optional)


def _part_body(part: MessagePart, data: bytes | None) -> JsonObject:
    return {"part": encode(part)} | ({} if data is None else {"bytes": b64encode(data).decode()})
