"""Translation of litellm's errors: by type, then by the status that the provider really sent, then by tested wording."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from bubbot.errors import ModelError, ModelOverflow, ModelRateLimited, ModelRefused, ModelUnavailable
from bubbot.models.litellm.quiet import litellm

Kind = Literal["overflow", "rate", "refused", "unavailable"]

RETRYABLE_STATUSES = frozenset({408, 409, 424, 425, 500, 502, 503, 504, 529})
"""Statuses after which the same request may succeed (424 is Bedrock's for a model that failed); 429 has its own kind."""
MAX_PROVIDER_CHARS = 300
"""Characters of a provider's own message that are passed on."""

_exceptions = litellm.exceptions
ERROR_KINDS: Mapping[type[BaseException], Kind] = {
    _exceptions.ContextWindowExceededError: "overflow",
    _exceptions.RateLimitError: "rate",
    litellm.RouterRateLimitErrorBasic: "rate",
    litellm.RouterRateLimitError: "rate",
    _exceptions.APIConnectionError: "unavailable",
    _exceptions.APIError: "unavailable",
    _exceptions.APIResponseValidationError: "unavailable",
    _exceptions.BadGatewayError: "unavailable",
    _exceptions.InternalServerError: "unavailable",
    _exceptions.JSONSchemaValidationError: "unavailable",
    _exceptions.MidStreamFallbackError: "unavailable",
    _exceptions.MockException: "unavailable",
    _exceptions.OpenAIError: "unavailable",
    _exceptions.ServiceUnavailableError: "unavailable",
    _exceptions.Timeout: "unavailable",
    _exceptions.AuthenticationError: "refused",
    _exceptions.BadRequestError: "refused",
    _exceptions.BlockedPiiEntityError: "refused",
    _exceptions.BudgetExceededError: "refused",
    _exceptions.ContentPolicyViolationError: "refused",
    _exceptions.GuardrailRaisedException: "refused",
    _exceptions.ImageFetchError: "refused",
    _exceptions.InvalidRequestError: "refused",
    _exceptions.LiteLLMUnknownProvider: "refused",
    _exceptions.ModelNotMappedError: "refused",
    _exceptions.ModifyResponseException: "refused",
    _exceptions.NotFoundError: "refused",
    _exceptions.PaymentRequiredError: "refused",
    _exceptions.PermissionDeniedError: "refused",
    _exceptions.RejectedRequestError: "refused",
    _exceptions.SensitiveDataRouteException: "refused",
    _exceptions.UnprocessableEntityError: "refused",
    _exceptions.UnsupportedParamsError: "refused",
    _exceptions.VectorStoreSearchError: "refused",
    litellm.ToolLoopMaxRoundsExceeded: "refused",
}
"""Every exception class that litellm exports, with our kind for it."""

_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size_error"
    r"|maximum (context|prompt) length (is|of)|maximum context length was exceeded"  # OpenAI, OpenRouter, vLLM, xAI
    r"|too large for model with \d+ maximum context"  # Mistral
    r"|(prompt|input) is too long|exceeds? (the )?context (limit|length|window|size)"  # Anthropic, Bedrock, Ollama
    r"|exceeds the (available context size|maximum number of tokens|model's (maximum )?context)"  # llama.cpp, Gemini
    r"|input token count.{0,40}exceeds|input tokens exceed the configured limit"  # Gemini, Azure
    r"|longer than the model's context length|exceeded max context length|request_too_large"  # sglang, Ollama, Anthropic
    r"|reduce the length of the (messages|prompt|input)|greater than the context length"  # Groq, LM Studio
    r"|too many (input )?tokens in (the )?(request|prompt|input)"
    r"|total number of tokens in the prompt cannot exceed|range of input length should be"  # Cohere, DashScope
    r"|prompt exceeds max(imum)? length|exceeded model token limit"  # Zhipu, Moonshot
    r"|context window exceeds( the)? limit|ContextWindowExceededError",  # MiniMax, a proxy of litellm
    re.IGNORECASE,
)
_RATE = re.compile(
    r"rate[ _-]?limit|too many requests|per[ -](minute|min|day|hour)|\b[tr]p[md]\b|throttl|please wait|quota|overloaded",
    re.IGNORECASE,
)
_NO_MONEY = re.compile(
    r"insufficient_quota|exceeded your current quota|credit balance|insufficient (credits|balance)", re.I
)
_GOOGLE_DELAY = re.compile(r"retryDelay\W+(\d+(?:\.\d+)?)s")
"""The delay of `RetryInfo` in the body of a Google error; there is no header for it."""
_TRANSPORTS = frozenset({"aiohttp", "anyio", "httpcore", "httpx", "ssl"})
"""Libraries that raise connection errors."""
_PRINTED_BYTES = re.compile(r"""\bb(['"])\s*(\{|\\n).*\1""", re.DOTALL)
_VENDOR_PREFIX = re.compile(r"^\s*(litellm\.\w+|\w+(Error|Exception))\s*(:|-)\s*")


def is_overflow(text: str, status: int | None = None) -> bool:
    """Return true if an untyped error says that the request is too long; a rate limit never does, whatever its text."""
    if status == 413:
        return True
    return status != 429 and _OVERFLOW.search(text) is not None and _RATE.search(text) is None


def translate(error: BaseException, model: str, redact: Callable[[str], str], *, key_source: str = "") -> ModelError:
    """Translate `error` to our tree, with a sentence that names the model and holds no secret.

    `key_source` is the setting or variable that the key came from; empty if unknown.
    """
    chain = tuple(_error_chain(error))
    model_error = _build_error(chain, model, redact, key_source)
    model_error.status = _http_status(_underlying(chain))
    return model_error


def _build_error(
    chain: tuple[BaseException, ...], model: str, redact: Callable[[str], str], key_source: str
) -> ModelError:
    error = chain[0]
    kind, message = _classify(chain), redact(_provider_message(chain))[:MAX_PROVIDER_CHARS]
    match kind:
        case "overflow":
            return ModelOverflow(f"The request is too long for {model}: {message}")
        case "rate":
            return ModelRateLimited(f"{model} asks for fewer requests: {message}", retry_after=read_retry_after(chain))
        case "refused" if "LLM Provider NOT provided" in message or isinstance(
            error, _exceptions.LiteLLMUnknownProvider
        ):
            provider = model.partition("/")[0]
            return ModelRefused(f"[model] name is {model!r}, and litellm knows no provider {provider!r}")
        case "refused" if _http_status(chain) in (401, 403):
            return ModelRefused(f"{model} refused the credentials{key_source and f' ({key_source})'}: {message}")
        case "refused":
            return ModelRefused(f"{model} refused the request: {message}")
        case _:
            return ModelUnavailable(
                f"{model} could not be reached or failed: {message}", retry_after=read_retry_after(chain)
            )


def is_cut(error: BaseException) -> bool:
    """Return true if the connection broke before the provider sent an error: the only message is a library's."""
    chain = tuple(_error_chain(error))
    broken = any(isinstance(link, OSError) or type(link).__module__.partition(".")[0] in _TRANSPORTS for link in chain)
    return broken and _http_status(_underlying(chain)) is None


def read_retry_after(chain: tuple[BaseException, ...]) -> float | None:
    """Return the seconds that a provider asks to wait; None if it does not say. A date counts from the response's own."""
    for headers in filter(None, map(_retry_headers, chain)):
        for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
            value = headers.get(name)
            if value is None:
                continue
            try:
                return max(0.0, float(value) / scale)
            except ValueError:
                pass
            try:
                until, sent = parsedate_to_datetime(value), parsedate_to_datetime(headers.get("date") or "")
                return max(0.0, (until - sent).total_seconds())
            except (TypeError, ValueError):
                continue
    delay = next(filter(None, map(_GOOGLE_DELAY.search, map(_full_text, chain))), None)
    return float(delay.group(1)) if delay else None


def _classify(chain: tuple[BaseException, ...]) -> Kind:
    kind: Kind = next(
        (ERROR_KINDS[cls] for link in chain for cls in type(link).__mro__ if cls in ERROR_KINDS), "unavailable"
    )
    status, text = _http_status(chain), " ".join(map(_full_text, chain))
    if kind == "overflow" and (status == 429 or _RATE.search(text)):
        return "rate"
    if kind == "rate" or status == 429:
        # Google calls every limit a quota, even a limit of requests per minute.
        return "refused" if _NO_MONEY.search(text) and "RESOURCE_EXHAUSTED" not in text else "rate"
    if kind != "overflow" and is_overflow(text, status):
        return "overflow"
    # litellm calls a 404 and some 503 a bad request, and an unknown status a connection error.
    if kind == "refused" and status in RETRYABLE_STATUSES:
        return "unavailable"
    if kind == "unavailable" and status is not None and 400 <= status < 500 and status not in RETRYABLE_STATUSES:
        return "refused"
    return kind


def _error_chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, each once; litellm's stream wrapper comes last."""
    seen: list[BaseException] = []
    pending: list[BaseException | None] = [error]
    while pending and len(seen) < 12:
        link = pending.pop(0)
        if link is None or any(link is other for other in seen):
            continue
        seen.append(link)
        pending += [getattr(link, "original_exception", None), link.__cause__, link.__context__]
    # litellm's wrapper around errors in a stream says nothing itself.
    yield from sorted(seen, key=lambda link: isinstance(link, _exceptions.MidStreamFallbackError))


def _http_status(chain: tuple[BaseException, ...]) -> int | None:
    """Return the status that the provider sent.

    The errors below litellm's own come first: the status of a litellm error only stands for its class.
    """
    for link in (*_underlying(chain), *chain):
        status = getattr(link, "status_code", None)
        if status is None:
            status = getattr(getattr(link, "response", None), "status_code", None)
        if isinstance(status, int) and not isinstance(status, bool) and status >= 400:
            return status
    return None


def _underlying(chain: tuple[BaseException, ...]) -> tuple[BaseException, ...]:
    return tuple(link for link in chain if not type(link).__module__.startswith("litellm.exceptions"))


def _retry_headers(error: BaseException) -> Mapping[str, str] | None:
    for headers in (
        getattr(error, "litellm_response_headers", None),
        getattr(getattr(error, "response", None), "headers", None),
        getattr(error, "headers", None),
    ):
        if headers is None or not hasattr(headers, "get"):
            continue
        if headers.get("retry-after") or headers.get("retry-after-ms"):
            return headers  # type: ignore[no-any-return]  # litellm types nothing here
    return None


def _full_text(error: BaseException) -> str:
    return " ".join(filter(None, (str(error), _error_code(error))))


def _error_code(error: BaseException) -> str:
    code = getattr(error, "code", None)
    return code if isinstance(code, str) else ""


def _provider_message(chain: tuple[BaseException, ...]) -> str:
    """Return the provider's own message, on one line."""
    text = next(filter(None, map(_body_message, chain)), "") or str(chain[0])
    while (shorter := _VENDOR_PREFIX.sub("", text, count=1)) != text and shorter:
        text = shorter
    return " ".join(_unwrap_json(text).split()) or type(chain[0]).__name__


def _body_message(error: BaseException) -> str:
    body: Any = getattr(error, "body", None)
    if isinstance(body, Mapping):
        body = body.get("error", body)
        message = body.get("message") if isinstance(body, Mapping) else body
        return message if isinstance(message, str) else ""
    return ""


def _unwrap_json(text: str) -> str:
    """Return the message inside a JSON body if the text holds one; for Google's errors litellm prints the bytes."""
    printed = _PRINTED_BYTES.search(text)
    if printed:
        with suppress(ValueError, SyntaxError):
            text = ast.literal_eval(printed.group()).decode("utf-8", "replace")
    start = text.find("{")
    if start < 0:
        return text
    try:
        body, _ = json.JSONDecoder().raw_decode(text, start)
    except ValueError:
        return text
    error = body.get("error", body) if isinstance(body, Mapping) else body
    message = error.get("message") if isinstance(error, Mapping) else error
    return message if isinstance(message, str) and message else text
