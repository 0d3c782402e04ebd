"""Translation of litellm's errors: by type, then by the status that the provider really sent, then by tested wording."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from bubbot.errors import ModelError, ModelRefused
from bubbot.models.failures import (
    RETRYABLE_STATUSES,
    FailureKind,
    build_failure,
    classify_limit,
    is_of_template,
    is_overflow,
    mentions_rate,
    read_error,
    read_google_delay,
    read_retry_headers,
)
from bubbot.models.litellm.quiet import litellm

_exceptions = litellm.exceptions
ERROR_KINDS: Mapping[type[BaseException], FailureKind] = {
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

_TRANSPORTS = frozenset({"aiohttp", "anyio", "httpcore", "httpx", "ssl"})
"""Libraries that raise connection errors."""
_PRINTED_BYTES = re.compile(r"""\bb(['"])\s*(\{|\\n).*\1""", re.DOTALL)
_VENDOR_PREFIX = re.compile(r"^\s*(litellm\.\w+|\w+(Error|Exception))\s*(:|-)\s*")


def translate(error: BaseException, model: str, redact: Callable[[str], str], *, key_source: str = "") -> ModelError:
    """Translate `error` to our tree, with a sentence that names the model and holds no secret.

    `key_source` is the setting or variable that the key came from; empty if unknown.
    """
    chain = tuple(_error_chain(error))
    model_error = _build_error(chain, model, redact, key_source)
    model_error.status = http_status(_underlying(chain))
    return model_error


def _build_error(
    chain: tuple[BaseException, ...], model: str, redact: Callable[[str], str], key_source: str
) -> ModelError:
    kind, message = _classify(chain), redact(_provider_message(chain))
    is_unknown = "LLM Provider NOT provided" in message or isinstance(chain[0], _exceptions.LiteLLMUnknownProvider)
    if kind == "refused" and is_unknown:
        provider = model.partition("/")[0]
        return ModelRefused(f"[model] name is {model!r}, and litellm knows no provider {provider!r}")
    status, retry_after = http_status(chain), read_retry_after(chain)
    return build_failure(kind, model, message, status=status, retry_after=retry_after, key_source=key_source)


def is_cut(error: BaseException) -> bool:
    """Return true if the connection broke before the provider sent an error: the only message is a library's."""
    chain = tuple(_error_chain(error))
    broken = any(isinstance(link, OSError) or type(link).__module__.partition(".")[0] in _TRANSPORTS for link in chain)
    # litellm gives a broken connection a status of its own making.
    return (
        broken and http_status(tuple(link for link in chain if not type(link).__module__.startswith("litellm"))) is None
    )


def read_retry_after(chain: tuple[BaseException, ...]) -> float | None:
    """Return the seconds that a provider asks to wait; None if it does not say."""
    for headers in filter(None, map(_retry_headers, chain)):
        if (seconds := read_retry_headers(headers)) is not None:
            return seconds
    return next((delay for delay in map(read_google_delay, map(_full_text, chain)) if delay is not None), None)


def _classify(chain: tuple[BaseException, ...]) -> FailureKind:
    kind: FailureKind = next(
        (ERROR_KINDS[cls] for link in chain for cls in type(link).__mro__ if cls in ERROR_KINDS), "unavailable"
    )
    status, text = http_status(chain), " ".join(map(_full_text, chain))
    if kind == "overflow" and (status == 429 or mentions_rate(text)):
        return "rate"
    if kind == "rate" or status == 429:
        return classify_limit(text)
    if kind != "overflow" and is_overflow(text, status):
        return "overflow"
    if is_of_template(text):
        return "refused"
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


def http_status(chain: tuple[BaseException, ...]) -> int | None:
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
    return read_error(body)[0] if isinstance(body, Mapping) else ""


def _unwrap_json(text: str) -> str:
    """Return the message inside a JSON body if the text holds one; for Google's errors litellm prints the bytes."""
    printed = _PRINTED_BYTES.search(text)
    if printed:
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):  # the last two of a deep one
            text = ast.literal_eval(printed.group()).decode("utf-8", "replace")
    start = text.find("{")
    if start < 0:
        return text
    try:
        body, _ = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return text
    error = body.get("error", body) if isinstance(body, Mapping) else body
    message = error.get("message") if isinstance(error, Mapping) else error
    return message if isinstance(message, str) and message else text
