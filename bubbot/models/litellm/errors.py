"""Errors of litellm as ours: by type, then by the status the provider really sent, then by tested wording."""

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
"""Statuses after which the same request may succeed (424 is Bedrock's for a model that failed); 429 is a kind of its own."""
MAX_PROVIDER_CHARS = 300
"""Characters of a provider's own words that are passed on."""

_known = litellm.exceptions
ERROR_KINDS: Mapping[type[BaseException], Kind] = {
    _known.ContextWindowExceededError: "overflow",
    _known.RateLimitError: "rate",
    litellm.RouterRateLimitErrorBasic: "rate",
    litellm.RouterRateLimitError: "rate",
    _known.APIConnectionError: "unavailable",
    _known.APIError: "unavailable",
    _known.APIResponseValidationError: "unavailable",
    _known.BadGatewayError: "unavailable",
    _known.InternalServerError: "unavailable",
    _known.JSONSchemaValidationError: "unavailable",
    _known.MidStreamFallbackError: "unavailable",
    _known.MockException: "unavailable",
    _known.OpenAIError: "unavailable",
    _known.ServiceUnavailableError: "unavailable",
    _known.Timeout: "unavailable",
    _known.AuthenticationError: "refused",
    _known.BadRequestError: "refused",
    _known.BlockedPiiEntityError: "refused",
    _known.BudgetExceededError: "refused",
    _known.ContentPolicyViolationError: "refused",
    _known.GuardrailRaisedException: "refused",
    _known.ImageFetchError: "refused",
    _known.InvalidRequestError: "refused",
    _known.LiteLLMUnknownProvider: "refused",
    _known.ModelNotMappedError: "refused",
    _known.ModifyResponseException: "refused",
    _known.NotFoundError: "refused",
    _known.PaymentRequiredError: "refused",
    _known.PermissionDeniedError: "refused",
    _known.RejectedRequestError: "refused",
    _known.SensitiveDataRouteException: "refused",
    _known.UnprocessableEntityError: "refused",
    _known.UnsupportedParamsError: "refused",
    _known.VectorStoreSearchError: "refused",
    litellm.ToolLoopMaxRoundsExceeded: "refused",
}
"""Every exception class that litellm exports, and what it is for us."""

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
"""What `RetryInfo` says, in the body of an error of Google's; there is no header."""
_TRANSPORTS = frozenset({"aiohttp", "anyio", "httpcore", "httpx", "ssl"})
"""Libraries that raise errors of connections."""
_PRINTED = re.compile(r"""\bb(['"])\s*(\{|\\n).*\1""", re.DOTALL)
_VENDOR_WORD = re.compile(r"^\s*(litellm\.\w+|\w+(Error|Exception))\s*(:|-)\s*")


def is_overflow(text: str, status: int | None = None) -> bool:
    """Whether an untyped error says that the request is too long; never for a rate limit, whatever its words."""
    if status == 413:
        return True
    return status != 429 and _OVERFLOW.search(text) is not None and _RATE.search(text) is None


def translated(error: BaseException, model: str, redact: Callable[[str], str]) -> ModelError:
    """The error of ours that stands for `error`, with a sentence that names the model and holds no secret."""
    chain = tuple(_chain(error))
    found = _translated(chain, model, redact)
    found.status = _status(_below(chain))
    return found


def _translated(chain: tuple[BaseException, ...], model: str, redact: Callable[[str], str]) -> ModelError:
    error = chain[0]
    kind, words = _kind(chain), redact(_words(chain))[:MAX_PROVIDER_CHARS]
    match kind:
        case "overflow":
            return ModelOverflow(f"The request is too long for {model}: {words}")
        case "rate":
            return ModelRateLimited(f"{model} asks for fewer requests: {words}", retry_after=retry_after(chain))
        case "refused" if "LLM Provider NOT provided" in words or isinstance(error, _known.LiteLLMUnknownProvider):
            provider = model.partition("/")[0]
            return ModelRefused(f"[model] name is {model!r}, and litellm knows no provider {provider!r}")
        case "refused" if _status(chain) in (401, 403):
            return ModelRefused(f"{model} refused the credentials ([model] api_key): {words}")
        case "refused":
            return ModelRefused(f"{model} refused the request: {words}")
        case _:
            return ModelUnavailable(f"{model} could not be reached or failed: {words}", retry_after=retry_after(chain))


def is_cut(error: BaseException) -> bool:
    """Return true if the connection broke and the provider itself said nothing: all words there are a library's."""
    chain = tuple(_chain(error))
    broken = any(isinstance(one, OSError) or type(one).__module__.partition(".")[0] in _TRANSPORTS for one in chain)
    return broken and _status(_below(chain)) is None


def retry_after(chain: tuple[BaseException, ...]) -> float | None:
    """The seconds a provider asks to wait; None where it does not say. A date counts from the response's own date."""
    for headers in filter(None, map(_headers, chain)):
        for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
            given = headers.get(name)
            if given is None:
                continue
            try:
                return max(0.0, float(given) / scale)
            except ValueError:
                pass
            try:
                until, sent = parsedate_to_datetime(given), parsedate_to_datetime(headers.get("date") or "")
                return max(0.0, (until - sent).total_seconds())
            except (TypeError, ValueError):
                continue
    delay = next(filter(None, map(_GOOGLE_DELAY.search, map(_plain, chain))), None)
    return float(delay.group(1)) if delay else None


def _kind(chain: tuple[BaseException, ...]) -> Kind:
    kind: Kind = next(
        (ERROR_KINDS[cls] for one in chain for cls in type(one).__mro__ if cls in ERROR_KINDS), "unavailable"
    )
    status, text = _status(chain), " ".join(map(_plain, chain))
    if kind == "overflow" and (status == 429 or _RATE.search(text)):
        return "rate"
    if kind == "rate" or status == 429:
        # Google calls every limit a quota, also one of requests per minute.
        return "refused" if _NO_MONEY.search(text) and "RESOURCE_EXHAUSTED" not in text else "rate"
    if kind != "overflow" and is_overflow(text, status):
        return "overflow"
    # litellm calls a 404 and some 503 a bad request, and an unknown status a connection error.
    if kind == "refused" and status in RETRYABLE_STATUSES:
        return "unavailable"
    if kind == "unavailable" and status is not None and 400 <= status < 500 and status not in RETRYABLE_STATUSES:
        return "refused"
    return kind


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it came from, the wrapper of a stream first, each once."""
    seen: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting and len(seen) < 12:
        one = waiting.pop(0)
        if one is None or any(one is other for other in seen):
            continue
        seen.append(one)
        waiting += [getattr(one, "original_exception", None), one.__cause__, one.__context__]
    # The wrapper litellm puts around errors in a stream says nothing itself.
    yield from sorted(seen, key=lambda one: isinstance(one, _known.MidStreamFallbackError))


def _status(chain: tuple[BaseException, ...]) -> int | None:
    """The status the provider sent: of the errors below litellm's own, whose status stands for their class."""
    for one in (*_below(chain), *chain):
        status = getattr(one, "status_code", None)
        if status is None:
            status = getattr(getattr(one, "response", None), "status_code", None)
        if isinstance(status, int) and not isinstance(status, bool) and status >= 400:
            return status
    return None


def _below(chain: tuple[BaseException, ...]) -> tuple[BaseException, ...]:
    return tuple(one for one in chain if not type(one).__module__.startswith("litellm.exceptions"))


def _headers(error: BaseException) -> Mapping[str, str] | None:
    for found in (
        getattr(error, "litellm_response_headers", None),
        getattr(getattr(error, "response", None), "headers", None),
        getattr(error, "headers", None),
    ):
        if found is not None and hasattr(found, "get") and (found.get("retry-after") or found.get("retry-after-ms")):
            return found  # type: ignore[no-any-return]  # litellm types nothing here
    return None


def _plain(error: BaseException) -> str:
    return " ".join(filter(None, (str(error), _code(error))))


def _code(error: BaseException) -> str:
    code = getattr(error, "code", None)
    return code if isinstance(code, str) else ""


def _words(chain: tuple[BaseException, ...]) -> str:
    """What the provider itself said, on one line."""
    text = next((found for found in map(_message, chain) if found), "") or str(chain[0])
    while (shorter := _VENDOR_WORD.sub("", text, count=1)) != text and shorter:
        text = shorter
    return " ".join(_inner(text).split()) or type(chain[0]).__name__


def _message(error: BaseException) -> str:
    body: Any = getattr(error, "body", None)
    if isinstance(body, Mapping):
        body = body.get("error", body)
        message = body.get("message") if isinstance(body, Mapping) else body
        return message if isinstance(message, str) else ""
    return ""


def _inner(text: str) -> str:
    """The message inside a JSON body, where the text holds one; of Google's errors litellm prints the bytes."""
    printed = _PRINTED.search(text)
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
    found = body.get("error", body) if isinstance(body, Mapping) else body
    message = found.get("message") if isinstance(found, Mapping) else found
    return message if isinstance(message, str) and message else text
