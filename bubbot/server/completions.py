"""The protocol of OpenAI's chat completions, for programs of the owner.

The last message of a request becomes an inbound of a session, durable before the bot answers it. The session has its own memory,
so the messages before it are ignored.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeAlias

from aiohttp import web
from msgspec import Struct

from bubbot.errors import BubbotError, ControlError, DeliveryFailed, RequestInvalid, StoreError
from bubbot.ports.channel import (
    ForeignWordsShown,
    Inbound,
    MessagePart,
    Preview,
    Sender,
    StepFinished,
    TextDiscarded,
    TextStreamed,
)
from bubbot.runtime.quiet import quieten
from bubbot.runtime.shown import MAX_TOKEN_CHARS, list_addresses
from bubbot.runtime.turns import TurnTokensView
from bubbot.server.api import Api
from bubbot.server.listener import read_body, suspend_deadline
from bubbot.server.remote import RECEIPT_TIMEOUT_SECONDS, AskResult, ChatService, RemoteChannel
from bubbot.tape.entry import timestamp
from bubbot.tape.service import TapeService

COMPLETIONS_PATH = "/v1/chat/completions"
SESSION_HEADER, IDEMPOTENCY_HEADER = "X-Bubbot-Session", "Idempotency-Key"
TAINTED_HEADER = "X-Bubbot-Tainted"
"""Tells that the model was shown words from anywhere. A stream begins before that is known; its last chunk says it."""
DEFAULT_CHAT = "default"
NAME_LIMIT = 200
"""Characters of a session's name, or of an idempotency key."""
KEEP_ALIVE_SECONDS = 15.0
"""Seconds of silence in a stream after which a comment shows that it is alive."""
STREAM_WRITE_TIMEOUT_SECONDS = 30.0
"""Seconds a client may pause reading."""
UNSUPPORTED: Mapping[str, Sequence[object]] = {
    "n": (None, 1),
    "tools": (None, []),
    "functions": (None, []),
    "response_format": (None, {"type": "text"}),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "logprobs": (None, False),
}
"""Fields that would change what an answer is, with the values that do not. Others, such as `temperature`, are ignored."""
NO_RETRY = {"x-should-retry": "false"}
"""OpenAI's clients repeat failed requests; here that would be said twice."""
HTTP_BAD_GATEWAY, HTTP_SERVER_ERROR = 502, 500
ENDED = "the bot was stopped before it answered; it answers after its next start, in the session's next chat"
_TYPES = {401: "authentication_error", 403: "permission_error", 413: "invalid_request_error"}


def completion_error(status: int, error: BubbotError) -> web.Response:
    """Return an error in OpenAI's form."""
    return web.json_response(_error_body(status, error), status=status, headers=NO_RETRY)


def _error_body(status: int, error: BubbotError) -> dict[str, Any]:
    kind = _TYPES.get(status, "invalid_request_error" if status < HTTP_SERVER_ERROR else "server_error")
    field = error.field if isinstance(error, RequestInvalid) else None
    return {"error": {"message": str(error), "type": kind, "param": field, "code": error.kind}}


class _Answer(Struct, frozen=True):
    """The answer of a turn.

    Attributes:
        taken: set by the request once its client has the answer.
        is_tainted: the model read words from outside.
    """

    result: AskResult
    taken: asyncio.Future[None]
    is_tainted: bool


class _ShownText:
    """The text for the client of a request. In a tainted turn it is changed so that no client fetches its addresses.

    Attributes:
        is_tainted: the model read words from outside.
    """

    def __init__(self) -> None:
        self.is_tainted = False
        self._addresses: set[str] = set()
        self._line = ""

    def read(self, event: _Event) -> str:
        """Return the client's part of an event."""
        if isinstance(event, ForeignWordsShown):
            self.is_tainted = True
            return ""
        if isinstance(event, TextDiscarded):
            self._line = ""
            return ""
        if event.quiet is None:
            return event.text if isinstance(event, TextStreamed) else ""
        self.is_tainted = True
        self._line += event.quiet
        self._addresses |= list_addresses(self._line)
        self._line = self._line[-MAX_TOKEN_CHARS:]
        return event.quiet

    def finish(self, text: str) -> str:
        """Return the whole answer for the client. Addresses that were streamed already stay."""
        return quieten(text, self._addresses.__contains__) if self.is_tainted else text


_Event: TypeAlias = TextStreamed | TextDiscarded | StepFinished | ForeignWordsShown
_Item: TypeAlias = _Event | _Answer | ControlError | None


class CompletionClient:
    """A request that waits for its answer; see `ChatClient`.

    Attributes:
        items: previews, the answer, the end of the bot; None once the turn has ended.
    """

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._is_closed = False
        self.items: asyncio.Queue[_Item] = asyncio.Queue()

    @property
    def is_closed(self) -> bool:
        """See `ChatClient`."""
        transport = self._request.transport
        return self._is_closed or transport is None or transport.is_closing()

    def close(self) -> None:
        """See `ChatClient`."""
        self._is_closed = True
        if self._request.transport is not None:
            self._request.transport.abort()

    async def show(self, part: MessagePart, data: bytes | None, result: AskResult | None) -> str:  # noqa: ARG002
        """See `ChatClient`."""
        if part.file or result is None:
            raise DeliveryFailed("a chat completion carries one text and no files", permanent=True)
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.items.put_nowait(_Answer(result, taken, part.has_no_link_previews))
        try:
            async with asyncio.timeout(RECEIPT_TIMEOUT_SECONDS):
                await taken
        except TimeoutError as error:
            raise ControlError("it was not read") from error
        return ""

    def copy(self, part: MessagePart, data: bytes | None) -> None:
        """See `ChatClient`."""

    def preview(self, event: Preview) -> None:
        """See `ChatClient`."""
        if isinstance(event, _Event):
            self.items.put_nowait(event)


class Completions:
    """Answers chat completions.

    Args:
        api: tells whether the bot is shutting down.
        model: the name under which the bot is a model.
        commands: run a message that begins with a comma as the owner's command.
    """

    def __init__(
        self,
        api: Api,
        remote: RemoteChannel,
        service: ChatService,
        *,
        model: str,
        commands: bool,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
    ) -> None:
        self._api = api
        self._remote = remote
        self._service = service
        self._model = model
        self._commands = commands
        self._now = now
        self._new_id = new_id
        self._clients: set[CompletionClient] = set()

    def end_all(self) -> None:
        """Notify all waiting programs that the bot ends before their turns."""
        for client in self._clients:
            client.items.put_nowait(ControlError(ENDED))

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/models", self._list_models),
            web.post(COMPLETIONS_PATH, self._complete),
        ]

    async def _list_models(self, _request: web.Request) -> web.StreamResponse:
        model = {"id": self._model, "object": "model", "created": 0, "owned_by": "bubbot"}
        return web.json_response({"object": "list", "data": [model]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        chat = self._read_chat(request)
        external_id = _header(request, IDEMPOTENCY_HEADER, "") or self._new_id()
        body = await read_body(request)
        with suspend_deadline(request):
            self._api.require_open()
            text, is_streaming, has_usage = _read_request(body)
            inbound = Inbound(
                self._remote.name,
                external_id,
                chat,
                Sender("0", "owner"),
                text,
                timestamp(self._now()),
                message=external_id,
                is_one_shot=True,
                is_plain_text=not self._commands,
            )
            client, accepted = CompletionClient(request), asyncio.Event()
            asking = asyncio.create_task(self._remote.ask(client, inbound, self._service, accepted.set))

            def end(_: object) -> None:
                accepted.set()
                client.items.put_nowait(None)

            asking.add_done_callback(end)
            self._clients.add(client)
            try:
                await accepted.wait()
                if asking.done():
                    await asking  # raises if the message was not accepted
                tape = self._service.tape_of(inbound.session)
                if is_streaming:
                    return await self._stream(request, client, asking, tape if has_usage else None)
                return await self._answer(request, client, asking, tape)
            finally:  # the turn goes on; what is not delivered waits for the next chat
                self._clients.discard(client)
                self._remote.forget_client(client)
                asking.cancel()
                with suppress(asyncio.CancelledError, BubbotError):
                    await asking

    def _read_chat(self, request: web.Request) -> str:
        """Return the chat of the session that the request names."""
        chat = _header(request, SESSION_HEADER, DEFAULT_CHAT).removeprefix(f"{self._remote.name}:") or DEFAULT_CHAT
        if ":" in chat:  # else it would quietly be another session, without that one's memory
            raise RequestInvalid(
                f"{SESSION_HEADER} is a name such as work, without a colon: the sessions of other channels cannot be "
                "reached from here",
                SESSION_HEADER,
            )
        return chat

    async def _answer(
        self, request: web.Request, client: CompletionClient, asking: asyncio.Task[AskResult], tape: TapeService
    ) -> web.StreamResponse:
        """Answer when the turn has ended. The answer counts as delivered once the client has all of it."""
        shown = _ShownText()
        while isinstance(item := await client.items.get(), _Event):
            shown.read(item)
        result, text = await _result_of(item, asking, shown)
        if result.status == "failed":
            response = completion_error(HTTP_BAD_GATEWAY, ControlError(text))
        else:
            message = {"role": "assistant", "content": text, "refusal": None}
            choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
            completion = self._object("chat.completion", result.turn, choice)
            response = web.json_response(completion | {"usage": await _read_usage(tape, result)})
        if shown.is_tainted:
            response.headers[TAINTED_HEADER] = "true"
        await response.prepare(request)
        await _within_time(client, response.write_eof())
        await _settle(item, asking)
        return response

    async def _stream(
        self,
        request: web.Request,
        client: CompletionClient,
        asking: asyncio.Task[AskResult],
        tape: TapeService | None,
    ) -> web.StreamResponse:
        """Answer in server-sent events, while the turn runs; the last one has the usage if `tape` is given."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        completion, shown = self._new_id(), _ShownText()

        async def send(data: bytes) -> None:
            await _within_time(client, response.write(data))

        async def send_delta(delta: dict[str, str], finish: str | None = None) -> None:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            mark = {"bubbot_tainted": True} if finish and shown.is_tainted else {}
            await send(_sse(self._object("chat.completion.chunk", completion, choice) | mark))

        await send_delta({"role": "assistant", "content": ""})
        earlier, step = "", ""
        while isinstance(item := await _next(client.items, send), _Event):
            if piece := shown.read(item):
                if earlier and not step:
                    await send_delta({"content": "\n\n"})
                step += piece
                await send_delta({"content": piece})
            if isinstance(item, TextDiscarded) or (isinstance(item, StepFinished) and item.calls):
                earlier, step = earlier + step, ""
        result, text = await _result_of(item, asking, shown)
        if result.status == "failed":
            await send(_sse(_error_body(HTTP_BAD_GATEWAY, ControlError(text))))
        else:
            # What was shown may not be what is said in the end.
            rest = text[len(step) :] if text.startswith(step) else f"\n\n{text}"
            if rest and text:
                await send_delta({"content": rest if step or not earlier else f"\n\n{rest}"})
            await send_delta({}, "stop")
            if tape is not None:
                last = self._object("chat.completion.chunk", completion)
                await send(_sse(last | {"usage": await _read_usage(tape, result)}))
        await send(b"data: [DONE]\n\n")
        await _within_time(client, response.write_eof())
        await _settle(item, asking)
        return response

    def _object(self, kind: str, completion: str, *choices: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{completion}",
            "object": kind,
            "created": int(self._now().timestamp()),
            "model": self._model,
            "choices": list(choices),
        }


async def _next(items: asyncio.Queue[_Item], send: Callable[[bytes], Any]) -> _Item:
    """Return the next item; send comments to keep the stream alive until it comes."""
    while True:
        try:
            async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                return await items.get()
        except TimeoutError:
            await send(b": still at work\n\n")


async def _result_of(
    item: _Answer | ControlError | None, asking: asyncio.Task[AskResult], shown: _ShownText
) -> tuple[AskResult, str]:
    """Return the turn's result and its text for the client; a failure if the bot ends first."""
    if isinstance(item, ControlError):
        return AskResult("", "failed", str(item)), str(item)
    shown.is_tainted = shown.is_tainted or (item is not None and item.is_tainted)
    result = item.result if item else await asking
    return result, shown.finish(result.text)


async def _read_usage(tape: TapeService, result: AskResult) -> dict[str, int] | None:
    """Sum the tokens of a turn's model calls; None if the turn has no entries, as for a command in a new session."""
    if not result.entries:
        return None
    try:
        tokens = await tape.read(TurnTokensView(result.entries[0], result.entries[-1]))
    except StoreError:
        return None  # the answer counts more
    total = tokens.read + tokens.written
    return {"prompt_tokens": tokens.read, "completion_tokens": tokens.written, "total_tokens": total}


async def _settle(item: _Item, asking: asyncio.Task[AskResult]) -> None:
    """Record that the client has the answer."""
    if isinstance(item, _Answer) and not item.taken.done():
        item.taken.set_result(None)
    with suppress(BubbotError):
        await asking


async def _within_time(client: CompletionClient, writing: Any) -> None:
    """Write to a client; disconnect it if it does not read in time."""
    try:
        async with asyncio.timeout(STREAM_WRITE_TIMEOUT_SECONDS):
            await writing
    except TimeoutError as error:
        client.close()
        raise ConnectionResetError("the client does not read") from error


def _sse(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


def _header(request: web.Request, name: str, default: str) -> str:
    value = request.headers.get(name, default).strip()
    if len(value) > NAME_LIMIT or not value.isprintable():
        raise RequestInvalid(f"{name} has to be a line of at most {NAME_LIMIT} characters", name)
    return value


def _read_request(body: bytes) -> tuple[str, bool, bool]:
    """Return the text, true if the client wants a stream, and true if the stream has to end with the usage.

    Raises:
        RequestInvalid: the request does not follow OpenAI's protocol, or asks for something that the bot cannot do.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestInvalid("the body is not JSON", "body") from error
    if not isinstance(data, dict):
        raise RequestInvalid("the body is not a JSON object", "body")
    for field, harmless in UNSUPPORTED.items():
        if field in data and data[field] not in harmless:
            raise RequestInvalid(f"{field} is not supported: the bot answers once, in text, by its own tools", field)
    messages = data.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestInvalid("messages has to be a list that is not empty", "messages")
    last, field = messages[-1], f"messages[{len(messages) - 1}]"
    if not isinstance(last, dict) or last.get("role") != "user":
        raise RequestInvalid("the last message has to be of the role user: it is what is said to the bot", field)
    text = _read_text(last.get("content"), f"{field}.content")
    if not text.strip():
        raise RequestInvalid("the last message is empty", f"{field}.content")
    stream = data.get("stream")
    if stream not in (None, True, False):
        raise RequestInvalid("stream has to be true or false", "stream")
    options = data.get("stream_options")
    return text, bool(stream), isinstance(options, dict) and options.get("include_usage") is True


def _read_text(content: object, field: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestInvalid(f"{field} has to be a text or a list of parts", field)
    texts: list[str] = []
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text" or not isinstance(part.get("text"), str):
            raise RequestInvalid(
                f"{field}[{index}] is of the type {kind!r}, and only text can be said here", f"{field}[{index}]"
            )
        texts.append(part["text"])
    return "\n".join(texts)
