"""Calls of the OpenAI chat protocol, over httpx: one request, one stream of server-sent events.

An answer is over if its provider says so: a stream without a finish reason was cut. What the network does after that
changes nothing.
"""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import httpx

from bubbot.errors import ModelError, ModelRefused, ModelUnavailable
from bubbot.log import Redactor, redact
from bubbot.models.catalogue import sizes
from bubbot.models.failures import build_failure, classify_status, read_google_delay, read_retry_headers
from bubbot.models.openai.events import EventParser
from bubbot.models.openai.providers import Endpoint
from bubbot.models.openai.request import encode_request
from bubbot.models.provider import CallLimits
from bubbot.models.reply import ReplyAssembler, make_usage
from bubbot.models.usage import UsageMeter
from bubbot.ports.model import ModelReply, ModelRequest, TextDelta, Transcript, Usage
from bubbot.runtime.context.compact import estimate_tokens

T = TypeVar("T")

MAX_ERROR_BYTES = 64 * 1024
"""Bytes of an error body that are read."""
KEEPALIVE_SECONDS = 60.0
"""Seconds an idle connection stays open: people answer each other within them."""
MAX_IDLE_CONNECTIONS = 32
DRAIN_SECONDS = 0.5
"""Seconds to wait for the end of a finished stream; without it the connection cannot be used again."""
_DONE = b"[DONE]"
_FAILED_FINISHES = frozenset({"error", "insufficient_system_resource"})
"""Finish reasons of OpenRouter, Mistral and DeepSeek for an answer that failed; a retry may succeed."""
_FINISHES: Mapping[str, str] = {
    "eos": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_length": "length",
}
"""Finish reasons in the words of single providers."""


class OpenaiClient:
    """A `ProviderClient` for one model. Making one loads certificates: do it in a thread."""

    def __init__(
        self, name: str, endpoint: Endpoint, limits: CallLimits, meter: UsageMeter, *, max_tokens: int | None = None
    ) -> None:
        """Prepare the connections.

        Args:
            name: the model, `provider/model`.
            endpoint: where it is called.
            limits: of a call.
            meter: checks and prices usages.
            max_tokens: the configured limit of an answer; None for the provider's own.
        """
        self._name = name
        self._endpoint = endpoint
        self._limits = limits
        self._meter = meter
        self._max_tokens = max_tokens
        self._own_secrets = Redactor([value.removeprefix("Bearer ") for value in endpoint.headers.values()])
        self._client = make_http_client(endpoint, limits)
        self._chat_url = httpx.URL(endpoint.url("/chat/completions"))

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelReply, None]:
        """See `ProviderClient.stream`."""
        name, limits = self._name, self._limits
        body = encode_request(request, name, self._endpoint, max_tokens=self._max_tokens)
        answer = StreamedAnswer(name)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limits.first_token
        late = f"{name} sent nothing for {limits.first_token:g} seconds"
        silent = f"{name} fell silent for {limits.idle:g} seconds in the middle of its answer"
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "accept-encoding": "identity",
        }
        post = self._client.build_request("POST", self._chat_url, content=body, headers=headers)
        response = await self._await_step(limits.first_token, late, self._client.send(post, stream=True))
        try:
            if not response.is_success:
                raise await self._read_failure(response)
            is_plain = "content-encoding" not in response.headers
            chunks = response.aiter_raw() if is_plain else response.aiter_bytes()
            while not answer.is_done:
                seconds, sentence = (limits.idle, silent) if answer.has_output else (deadline - loop.time(), late)
                try:
                    chunk = await self._await_step(seconds, sentence, anext(chunks, None), answer=answer)
                except ModelUnavailable:
                    if answer.finish is None:
                        raise
                    break  # the provider has said that the answer is over
                if text := self._read_chunk(answer, chunk):
                    yield TextDelta(text)
                if chunk is None:
                    break
            yield await self._build_reply(answer, request)
            await _drain(chunks)
        except ModelError as error:
            error.heard = estimate_tokens(answer.collect_text()) if answer.has_output else 0
            raise
        finally:
            with suppress(Exception):  # the connection may be closed already, which is the goal
                await response.aclose()

    async def transcribe(self, data: bytes, name: str, media_type: str) -> Transcript:
        """See `ProviderClient.transcribe`."""
        model, seconds = self._endpoint.model, self._limits.first_token
        form = {"model": model}
        if "whisper" in model:
            form["response_format"] = "verbose_json"  # with the duration, by which it is paid
        url = self._endpoint.url("/audio/transcriptions")
        post = self._client.post(url, data=form, files={"file": (name, data, media_type)})
        response = await self._await_step(seconds, f"{self._name} sent nothing for {seconds:g} seconds", post)
        if not response.is_success:
            raise await self._read_failure(response)
        answer = _parse_object(response.content)
        text = answer.get("text")
        if not isinstance(text, str):
            raise ModelUnavailable(f"{self._name} sent something that is not a transcription")
        return Transcript(text, self._transcription_usage(answer))

    async def connect(self) -> None:
        """See `ProviderClient.connect`. An address that is not encrypted is near: it needs no connection in advance."""
        if self._chat_url.scheme != "https":
            return
        with suppress(Exception):  # the first call reports what is wrong
            async with asyncio.timeout(self._limits.connect):
                origin = self._chat_url.copy_with(userinfo=b"", raw_path=b"/")
                await self._client.send(httpx.Request("HEAD", origin))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _await_step(
        self, seconds: float, late: str, step: Awaitable[T], *, answer: StreamedAnswer | None = None
    ) -> T:
        """Wait for one step of a call and translate its errors.

        Args:
            seconds: the time limit.
            late: the error message if the step takes longer.
            step: what to wait for.
            answer: the answer so far; None before the provider has begun one.

        Raises:
            ModelUnavailable: the step took too long, or the connection failed.
        """
        limit = asyncio.timeout(max(seconds, 0.0))
        try:
            async with limit:
                return await step
        except TimeoutError:
            if limit.expired():
                raise ModelUnavailable(late) from None
            raise ModelUnavailable(f"{self._name} could not be reached or failed: it took too long") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
            # The cause is dropped: its text and its frames hold headers, and with them the key.
            if answer is not None:
                place = "in the middle of" if answer.has_output else "before"
                raise ModelUnavailable(f"{self._name} broke off {place} its answer") from None
            reason = describe_connection_error(error, self._limits.connect)
            raise ModelUnavailable(f"{self._name} could not be reached or failed: {reason}") from None

    async def _read_failure(self, response: httpx.Response) -> ModelError:
        """Read the body of an error response, as far as it arrives in time."""
        body = b""
        with suppress(httpx.HTTPError, httpx.StreamError, TimeoutError):
            async with asyncio.timeout(self._limits.idle):
                if response.is_closed:
                    body = response.content
                else:
                    async for chunk in response.aiter_bytes():
                        body += chunk
                        if len(body) > MAX_ERROR_BYTES:
                            break
        text = body[:MAX_ERROR_BYTES].decode(errors="replace")
        return self._build_failure(response.status_code, _parse_object(body), text, response.headers)

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

    def _read_chunk(self, answer: StreamedAnswer, chunk: bytes | None) -> str:
        """Read the events of a piece of the stream, None for its end; return their text."""
        text = ""
        try:
            for data in answer.parser.close() if chunk is None else answer.parser.feed(chunk):
                if data.strip() == _DONE:
                    answer.is_done = True
                    break
                event = json.loads(data)
                if error := event.get("error"):
                    body = error if isinstance(error, Mapping) else {"message": str(error)}
                    code = body.get("code", body.get("status_code"))
                    status = code if isinstance(code, int) and 400 <= code < 600 else None
                    raise self._build_failure(status, body, "", {})
                text += answer.add(event)
        except (ValueError, TypeError, AttributeError, LookupError):
            if answer.finish is None:
                raise ModelUnavailable(f"{self._name} sent something that is not an answer") from None
        return text

    async def _build_reply(self, answer: StreamedAnswer, request: ModelRequest) -> ModelReply:
        """Build the reply. Raise `ModelUnavailable` if the provider never said that the answer is over."""
        if answer.finish is None:
            place = "in the middle of" if answer.has_output else "before"
            raise ModelUnavailable(f"{self._name} broke off {place} its answer")
        if answer.finish in _FAILED_FINISHES:
            raise ModelUnavailable(f"{self._name} failed in the middle of its answer")
        usage = self._meter.check(answer.usage, request)
        if usage is None:
            usage = await self._meter.count_usage(request, answer.collect_text())
        else:
            usage = make_usage(usage.input_tokens, usage.output_tokens, usage.cached_tokens, self._meter.cost(usage))
        reply = answer.build_reply(answer.finish, request, usage)
        if reply.finish == "content_filter":
            raise ModelRefused(f"{self._name} stopped its answer: its content filter stepped in")
        return reply

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


class StreamedAnswer(ReplyAssembler):
    """A reply while its events arrive.

    `finish` is the provider's finish reason, None before it; `usage` what it counted, None before it; `is_done`: no
    more events follow.
    """

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self.parser = EventParser()
        self.finish: str | None = None
        self.usage: Usage | None = None
        self.is_done = False

    def add(self, event: Mapping[str, Any]) -> str:
        """Add one event and return its text."""
        self.response_id = self.response_id or event.get("id") or None
        counts = event.get("usage") or (event.get("x_groq") or {}).get("usage")
        if counts and (counts.get("prompt_tokens") or counts.get("completion_tokens")):
            self.usage = read_usage(counts)
        choices = event.get("choices")
        if not choices:
            return ""
        reason = choices[0].get("finish_reason")
        if reason:
            self.finish = _FINISHES.get(reason, reason)
        delta = choices[0].get("delta") or {}
        for call in delta.get("tool_calls") or ():
            function = call.get("function") or {}
            self.add_call(
                call.get("index") or 0,
                call.get("id") or "",
                function.get("name") or "",
                _as_text(function.get("arguments")),
            )
        content = delta.get("content")
        text = content if isinstance(content, str) else self._add_parts(content or ())
        self.reasoning += delta.get("reasoning_content") or delta.get("reasoning") or ""
        self.text += text
        return text

    def _add_parts(self, parts: Iterable[Mapping[str, Any]]) -> str:
        """Add the parts of a content of Mistral's reasoning models; return those that are text."""
        text = ""
        for part in parts:
            if part.get("type") == "thinking":
                self.reasoning += "".join(piece.get("text") or "" for piece in part.get("thinking") or ())
            else:
                text += part.get("text") or ""
        return text


def _as_text(arguments: object) -> str:
    """Return the arguments of a call as text: some servers send them as an object, in one piece."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments) if arguments else ""


def read_usage(counts: Mapping[str, Any]) -> Usage:
    """Read the counts of a call.

    xAI counts the tokens of its reasoning beside those of its answer, which the total shows; others count them among
    them. DeepSeek has its own name for what its cache held.
    """
    read, written = counts.get("prompt_tokens") or 0, counts.get("completion_tokens") or 0
    thought = (counts.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
    if thought and counts.get("total_tokens") == read + written + thought:
        written += thought
    cached = (counts.get("prompt_tokens_details") or {}).get("cached_tokens")
    return Usage(read, written, counts.get("prompt_cache_hit_tokens") or 0 if cached is None else cached)


def read_error(body: Mapping[str, Any]) -> tuple[str, str]:
    """Return the message of an error body, and its codes and types in one text; each empty if there is none."""
    error = body.get("error", body)
    if not isinstance(error, Mapping):
        return str(error or ""), ""
    message = error.get("message", error.get("detail"))
    codes = " ".join(str(error[key]) for key in ("code", "type", "status") if error.get(key))
    return message if isinstance(message, str) else json.dumps(message) if message else "", codes


def _parse_object(body: bytes) -> Mapping[str, Any]:
    """Return the JSON object, or the only one of a list; empty if the body is neither."""
    with suppress(ValueError):
        value = json.loads(body)
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, dict):
            return value
    return {}


_REASONS: Mapping[int, str] = {
    errno.ECONNREFUSED: "nothing listens at its address",
    errno.EHOSTUNREACH: "there is no way to its address",
    errno.ENETUNREACH: "there is no way to its address",
    errno.ECONNRESET: "the connection broke",
}


def describe_connection_error(error: BaseException, connect_seconds: float) -> str:
    """Say in our words why no answer began. `connect_seconds`: the limit for a connection."""
    if isinstance(error, (httpx.ConnectTimeout, httpx.PoolTimeout)):
        return f"no connection within {connect_seconds:g} seconds"
    if isinstance(error, httpx.ProxyError):
        return "the proxy refused the connection"
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, ssl.SSLCertVerificationError):
            return "its certificate is not trusted"
        if isinstance(link, ssl.SSLError):
            return "no encrypted connection could be agreed on"
        if isinstance(link, socket.gaierror):
            return "the name of its address is unknown"
        if isinstance(link, OSError) and (reason := _REASONS.get(link.errno or 0)):
            return reason
        link = link.__cause__ or link.__context__
    return "no connection" if isinstance(error, (httpx.ConnectError, httpx.InvalidURL)) else "the connection broke"


def make_http_client(endpoint: Endpoint, limits: CallLimits) -> httpx.AsyncClient:
    """Make the client of one endpoint, with the proxies and certificates of the environment.

    Certificates are not loaded for an address that is not encrypted, because that takes a tenth of a second; a redirect
    from there to an encrypted one trusts nobody and fails.
    """
    is_encrypted = endpoint.address.startswith("https:")
    context = httpx.create_ssl_context() if is_encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.AsyncClient(
        headers={**endpoint.headers, "user-agent": "bubbot"},
        verify=context,
        timeout=httpx.Timeout(None, connect=limits.connect),  # the other waits have limits of ours
        limits=httpx.Limits(
            max_connections=None, max_keepalive_connections=MAX_IDLE_CONNECTIONS, keepalive_expiry=KEEPALIVE_SECONDS
        ),
        # A redirect to another host is not sent the key, but only if that is in the usual header.
        follow_redirects=not endpoint.provider.key_header,
    )


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read a finished stream to its end, so that its connection can be used again."""
    with suppress(TimeoutError, httpx.HTTPError, httpx.StreamError):
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in chunks:
                pass


async def rehearse() -> None:
    """Make a dry call, so that the first real one imports nothing while the event loop waits."""
    with socket.socket() as closed, suppress(httpx.HTTPError):
        closed.bind(("127.0.0.1", 0))  # bound but not listening: the connection is refused at once
        async with httpx.AsyncClient(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), trust_env=False) as client:
            await client.get(f"http://127.0.0.1:{closed.getsockname()[1]}/")
