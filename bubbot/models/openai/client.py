"""Calls of the OpenAI chat protocol: one request, one stream of server-sent events.

An answer is complete once the provider sends a finish reason; a stream without one was cut. Network errors after the finish
reason change nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import suppress
from io import BytesIO
from typing import Any, TypeVar
from urllib.parse import urlsplit

import aiohttp

from bubbot.errors import ModelError, ModelUnavailable
from bubbot.log import Redactor, redact
from bubbot.models.catalogue import sizes
from bubbot.models.failures import (
    build_failure,
    classify_status,
    find_error,
    read_error,
    read_error_status,
    read_google_delay,
    read_retry_headers,
)
from bubbot.models.openai.answer import StreamedAnswer
from bubbot.models.openai.events import MAX_EVENT_BYTES
from bubbot.models.openai.http import ConnectionFailed, HttpResponse
from bubbot.models.openai.providers import Endpoint
from bubbot.models.openai.proxies import open_http
from bubbot.models.openai.request import encode_request
from bubbot.models.provider import CallLimits
from bubbot.models.reply import FinishReader, make_usage
from bubbot.models.usage import UsageMeter
from bubbot.ports.model import ModelReply, ModelRequest, TextDelta, Transcript, Usage, read_call_headers
from bubbot.runtime.context.tokens import estimate_tokens

T = TypeVar("T")

MAX_ERROR_BYTES = 64 * 1024
"""Bytes of an error body that are read."""
MAX_TRANSCRIPTION_BYTES = 16 * 1024 * 1024
"""Bytes of a transcription at most; a server that sends more is not answering."""
DRAIN_SECONDS = 0.5
"""Seconds to wait for the end of a finished stream; without it the connection cannot be used again."""
READS_AT_ONCE = 8
"""Reads of a stream that wait for nothing but the next bytes. Whoever answers in more pieces writes a long answer."""
READ_INTERVAL_SECONDS = 0.1
"""Seconds between two further reads: an event of one word costs little if several come together, and nobody reads faster."""
_EVENT_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
"""What a line of an event stream may begin with."""
_DONE = "[DONE]"


class OpenaiClient:
    """A `ProviderClient` for one model. Making one loads certificates: do it in a thread."""

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        limits: CallLimits,
        meter: UsageMeter,
        *,
        variables: Mapping[str, str],
    ) -> None:
        """Prepare the connections.

        Args:
            name: the model, `provider/model`.

        Raises:
            ModelRefused: a proxy or certificates of the environment cannot be used.
        """
        self._name = name
        self._endpoint = endpoint
        self._limits = limits
        self._meter = meter
        self._finishes = FinishReader(name)
        self._own_secrets = Redactor([value.removeprefix("Bearer ") for value in endpoint.headers.values()])
        self._server = endpoint.server
        self._headers = {**endpoint.headers, "user-agent": "bubbot"}
        self._chat_headers = self._headers | {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "accept-encoding": "identity",
        }
        self._chat_url = endpoint.url("/chat/completions")
        self._host = urlsplit(self._chat_url).hostname or ""
        self._http = open_http(
            endpoint.address,
            variables,
            connect_seconds=limits.connect,
            # A redirect to another host is not sent the key, but only if that is in the usual header.
            follows_redirects=not endpoint.provider.key_header,
        )

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelReply, None]:
        """See `ProviderClient.stream`."""
        name, limits = self._name, self._limits
        body = encode_request(request, self._endpoint.model, name, self._server)
        answer = StreamedAnswer(name, server=self._server)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limits.first_token
        late = f"{name} sent nothing for {limits.first_token:g} seconds"
        silent = f"{name} fell silent for {limits.idle:g} seconds in the middle of its answer"
        headers = {**read_call_headers(self._host), **self._chat_headers}
        post = self._http.send("POST", self._chat_url, headers, body)
        response = await self._await_step(limits.first_token, late, post)
        try:
            if not 200 <= response.status < 300:
                raise await self._read_failure(response)
            reads = 0
            while not answer.is_done:
                if (reads := reads + 1) > READS_AT_ONCE:
                    await response.pause(READ_INTERVAL_SECONDS)
                seconds, sentence = (limits.idle, silent) if answer.has_output else (deadline - loop.time(), late)
                try:
                    chunk = await self._await_step(seconds, sentence, response.read(), answer=answer)
                except ModelUnavailable:
                    if answer.finish is None:
                        raise
                    break  # the provider has said that the answer is over
                if text := self._read_chunk(answer, chunk):
                    yield TextDelta(text)
                if not chunk:
                    break
            if text := self._read_body(answer):
                yield TextDelta(text)
            yield await self._build_reply(answer, request)
            await _drain(response)
        except ModelError as error:
            error.heard = estimate_tokens(answer.collect_text()) if answer.has_output else 0
            raise
        finally:
            await response.aclose()

    async def transcribe(self, data: bytes, name: str, media_type: str) -> Transcript:
        """See `ProviderClient.transcribe`."""
        form = aiohttp.FormData({"model": self._endpoint.model}, quote_fields=False)
        if "whisper" in self._endpoint.model:
            form.add_field("response_format", "verbose_json")  # with the duration, by which it is paid
        form.add_field("file", BytesIO(data), filename=name, content_type=media_type)
        seconds = self._limits.first_token
        late = f"{self._name} sent nothing for {seconds:g} seconds"
        answer = _parse_object(await self._await_step(seconds, late, self._post_form(form)))
        text = answer.get("text")
        if not isinstance(text, str):
            raise ModelUnavailable(f"{self._name} sent something that is not a transcription")
        return Transcript(text, self._transcription_usage(answer))

    async def connect(self) -> None:
        """See `ProviderClient.connect`. Do nothing for an unencrypted address: such servers are near."""
        parts = urlsplit(self._chat_url)
        if parts.scheme != "https":
            return
        origin = f"https://{parts.netloc.rpartition('@')[2]}/"
        with suppress(ConnectionFailed, TimeoutError):  # the first call reports what is wrong
            async with asyncio.timeout(self._limits.connect):
                # Not HEAD: aiohttp closes a connection after an answer to that which names no length.
                response = await self._http.send("OPTIONS", origin, {"user-agent": "bubbot"})
                await _collect(response, bytearray(), MAX_ERROR_BYTES)
                await response.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _post_form(self, form: aiohttp.FormData) -> bytearray:
        """Send a form for transcription and return the body of the response."""
        payload = form()
        headers = self._headers | {"content-type": payload.content_type}
        url = self._endpoint.url("/audio/transcriptions")
        response = await self._http.send("POST", url, headers, await payload.as_bytes())
        try:
            if not 200 <= response.status < 300:
                raise await self._read_failure(response)
            body = bytearray()
            await _collect(response, body, MAX_TRANSCRIPTION_BYTES)
            return body
        finally:
            await response.aclose()

    async def _await_step(
        self, seconds: float, late: str, step: Awaitable[T], *, answer: StreamedAnswer | None = None
    ) -> T:
        """Wait for one step of a call and translate its errors.

        Args:
            seconds: the time limit.
            late: the error message if the step takes longer.
            answer: the answer so far; None before the provider has begun one.

        Raises:
            ModelUnavailable: the step took too long, or the connection failed.
        """
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                return await step
        except TimeoutError:
            raise ModelUnavailable(late) from None
        except ConnectionFailed as error:
            if answer is not None:
                place = "in the middle of" if answer.has_output else "before"
                raise ModelUnavailable(f"{self._name} broke off {place} its answer") from None
            raise ModelUnavailable(f"{self._name} could not be reached or failed: {error}") from None

    async def _read_failure(self, response: HttpResponse) -> ModelError:
        """Read the part of an error response that arrives in time."""
        body = bytearray()
        with suppress(ConnectionFailed, TimeoutError):
            async with asyncio.timeout(self._limits.idle):
                await _collect(response, body, MAX_ERROR_BYTES)
        text = body[:MAX_ERROR_BYTES].decode(errors="replace")
        return self._build_failure(response.status, _parse_object(body), text, response.headers)

    def _build_failure(
        self, status: int | None, body: Mapping[str, Any], text: str, headers: Mapping[str, str]
    ) -> ModelError:
        """Build the error of a body in any of the forms of the protocol. `text`: the body as it came."""
        words, codes = read_error(body)
        message = " ".join((words or text).split()) or f"HTTP status {status}"
        delay = read_retry_headers(headers)
        failure = build_failure(
            classify_status(status, f"{message} {codes}"),
            self._name,
            redact(self._own_secrets(message)),
            status=status,
            retry_after=read_google_delay(text) if delay is None else delay,
            key_source=self._endpoint.key_source,
        )
        failure.status = status
        return failure

    def _build_event_failure(self, error: Mapping[str, Any]) -> ModelError:
        """Build the error that came with the status of a success."""
        return self._build_failure(read_error_status(error), error, "", {})

    def _read_chunk(self, answer: StreamedAnswer, chunk: bytes) -> str:
        """Read the events of a piece of the stream, an empty one at its end; return their text."""
        text = ""
        try:
            events = answer.parser.feed(chunk) if chunk else answer.parser.close()
            if events:
                answer.plain = None
            elif answer.plain is not None and len(answer.plain) < MAX_EVENT_BYTES:
                answer.plain += chunk
            for data in events:
                written = data.decode().strip()
                if written == _DONE:
                    answer.is_done = True
                    break
                event = json.loads(written)
                if (error := find_error(event)) is not None:
                    raise self._build_event_failure(error)
                text += answer.add(event)
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
            if answer.finish is None:
                raise ModelUnavailable(f"{self._name} sent something that is not an answer") from None
        return text

    def _read_body(self, answer: StreamedAnswer) -> str:
        """Read an answer in one piece, which some servers send in place of a stream; return its text."""
        if answer.finish is not None or not answer.plain or answer.plain.lstrip().startswith(_EVENT_FIELDS):
            return ""
        body = _parse_object(answer.plain)
        if (error := find_error(body)) is not None:
            raise self._build_event_failure(error)
        answer.is_done = True
        with suppress(TypeError, AttributeError, LookupError):
            text = answer.add(body)
            if answer.has_output or answer.finish is not None:
                return text
        raise ModelUnavailable(f"{self._name} sent something that is not an answer")  # such as a page to log in at

    async def _build_reply(self, answer: StreamedAnswer, request: ModelRequest) -> ModelReply:
        """Build the reply. Raise `ModelUnavailable` if the provider never said that the answer is over."""
        reason = answer.finish or (answer.natural_end if answer.is_done else None)
        if reason is None:
            place = "in the middle of" if answer.has_output else "before"
            raise ModelUnavailable(f"{self._name} broke off {place} its answer")
        finish = self._finishes.read(reason, answer)
        usage = self._meter.check(answer.usage, request)
        if usage is None:
            usage = await self._meter.count_usage(request, answer.collect_text())
        else:
            usage = make_usage(usage.input_tokens, usage.output_tokens, usage.cached_tokens, self._meter.cost(usage))
        return answer.build_reply(finish, request, usage)

    def _transcription_usage(self, answer: Mapping[str, Any]) -> Usage:
        """Return the provider's token counts, 0 if it sent none, and the cost by these or by the duration."""
        sent = answer.get("usage")
        counts: Mapping[str, Any] = sent if isinstance(sent, Mapping) else {}
        read, written = (
            count if isinstance(count := counts.get(key), int) else 0 for key in ("input_tokens", "output_tokens")
        )
        usage = Usage(read, written)
        if not sizes.is_own_server(self._name, own_address=self._endpoint.is_own):
            seconds = answer.get("duration", counts.get("seconds"))
            usage = Usage(read, written, cost=self._meter.transcription_cost(usage, seconds))
        return usage if usage.is_plausible() else Usage()


async def _collect(response: HttpResponse, body: bytearray, limit: int) -> None:
    """Add to `body` what arrives, until the response ends or `body` has more than `limit` bytes."""
    while len(body) <= limit and (piece := await response.read()):
        body += piece


async def _drain(response: HttpResponse) -> None:
    """Read a finished stream to its end, so that its connection can be used again."""
    with suppress(TimeoutError, ConnectionFailed):
        async with asyncio.timeout(DRAIN_SECONDS):
            while await response.read():
                pass


def _parse_object(body: bytes | bytearray) -> Mapping[str, Any]:
    """Return the JSON object, or the only one of a list; empty if the body is neither."""
    with suppress(ValueError, RecursionError):
        value = json.loads(body)
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, dict):
            return value
    return {}
