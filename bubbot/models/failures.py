"""Failures of providers: their kind, by status and by tested wording, and the sentence for people. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any, Literal

from bubbot.errors import ModelError, ModelOverflow, ModelRateLimited, ModelRefused, ModelUnavailable
from bubbot.formatting import clean

FailureKind = Literal["overflow", "rate", "refused", "unavailable"]

RETRYABLE_STATUSES = frozenset({408, 409, 424, 425, 500, 502, 503, 504, 529})
"""Statuses after which the same request may succeed (424 is Bedrock's for a model that failed); 429 has its own kind."""
MAX_PROVIDER_CHARS = 300
"""Characters of a provider's own message that people see."""
MAX_WORDS = 2_000
"""Characters of it in which the reason of a refusal is looked for."""

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
    r"insufficient_quota|exceeded your current quota|credit balance|insufficient (credits|balance)", re.IGNORECASE
)
_TEMPLATE = re.compile(
    r"roles? must alternate|TemplateError|jinja|system role not supported|unexpected role|only user,? (and )?assistant"
    r"|image input is not supported|unsupported content part",
    re.IGNORECASE,
)
"""What servers say, often with status 500, if their model cannot be told a conversation."""
_CODE_STATUSES: Mapping[str, int] = MappingProxyType(
    {
        "authenticationerror": 401,
        "badrequest": 400,
        "badrequesterror": 400,
        "insufficientquota": 429,
        "invalidapikey": 401,
        "invalidargument": 400,
        "invalidrequest": 400,
        "invalidrequesterror": 400,
        "modelnotfound": 404,
        "notfound": 404,
        "notfounderror": 404,
        "permissiondenied": 403,
        "permissionerror": 403,
        "ratelimiterror": 429,
        "ratelimitexceeded": 429,
        "requesttoolarge": 413,
        "resourceexhausted": 429,
        "toomanyrequests": 429,
        "unauthenticated": 401,
        "unauthorized": 401,
        "unprocessableentityerror": 422,
    }
)
"""The statuses of errors that name themselves by a word, small and without its other signs."""
_GOOGLE_DELAY = re.compile(r"retryDelay\W+(\d+(?:\.\d+)?)s")
"""The delay of `RetryInfo` in the body of a Google error; there is no header for it."""


def mentions_rate(text: str) -> bool:
    """Return true if an error speaks of a rate or a quota."""
    return _RATE.search(text) is not None


def is_of_template(text: str) -> bool:
    """Return true if an error says that the model's template cannot express this conversation; a retry would fail, too."""
    return _TEMPLATE.search(text) is not None


def is_overflow(text: str, status: int | None = None) -> bool:
    """Return true if an untyped error, with another status than 429, says that the request is too long."""
    return status == 413 or (_OVERFLOW.search(text) is not None and not mentions_rate(text))


def classify_limit(text: str) -> FailureKind:
    """Return the kind of a 429: an empty account is not a rate limit. Google calls every limit a quota."""
    return "refused" if _NO_MONEY.search(text) and "RESOURCE_EXHAUSTED" not in text else "rate"


def classify_status(status: int | None, text: str) -> FailureKind:
    """Return the kind of an error with this status (None: it came inside a stream) and this text."""
    if status == 429:
        return classify_limit(text)
    if is_overflow(text, status):
        return "overflow"
    is_final = status is not None and 400 <= status < 500 and status not in RETRYABLE_STATUSES
    return "refused" if is_final or is_of_template(text) else "unavailable"


def find_error(event: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the error in an event or in the body of a success, in any known form; None if there is none."""
    if error := event.get("error"):
        return error if isinstance(error, Mapping) else {"message": str(error)}
    if event.get("choices") is not None:
        return None
    is_marked = "error" in (event.get("object"), event.get("type"))
    return event if is_marked or event.get("detail") or isinstance(event.get("message"), str) else None


def read_error(body: Mapping[str, Any]) -> tuple[str, str]:
    """Return the message of an error body, and its codes and types in one text; each empty if there is none."""
    error = body.get("error") or body
    if not isinstance(error, Mapping):
        return str(error), ""
    message = error.get("message") or error.get("detail")
    codes = " ".join(str(error[key]) for key in ("code", "type", "status") if error.get(key))
    return message if isinstance(message, str) else json.dumps(message) if message else "", codes


def read_error_status(error: Mapping[str, Any]) -> int | None:
    """Return the status that an error inside a stream names by its number or by a word; None if it names none."""
    for key in ("code", "status_code", "status", "type"):
        code = str(error.get(key))  # a proxy of litellm writes the number as a text
        status = int(code) if re.fullmatch("[45][0-9][0-9]", code) else _CODE_STATUSES.get(_letters(code))
        if status is not None:
            return status
    return None


def _letters(code: str) -> str:
    return re.sub("[^a-z]", "", code.lower())


def build_failure(
    kind: FailureKind,
    model: str,
    message: str,
    *,
    status: int | None = None,
    retry_after: float | None = None,
    key_source: str = "",
) -> ModelError:
    """Build the error, with a sentence that names the model.

    Args:
        model: `provider/model`.
        message: the provider's own words, without secrets; `words` keeps `MAX_WORDS` of their characters, the sentence `MAX_PROVIDER_CHARS`.
        status: the HTTP status, None if there was none.
        retry_after: the seconds that the provider asks to wait; None if it does not say.
        key_source: the setting or variable that the key came from; empty if unknown.
    """
    words = clean(message)[:MAX_WORDS]
    sentence = words[:MAX_PROVIDER_CHARS]
    failure = _build_error(kind, model, sentence, status=status, retry_after=retry_after, key_source=key_source)
    failure.words = words
    return failure


def _build_error(
    kind: FailureKind, model: str, message: str, *, status: int | None, retry_after: float | None, key_source: str
) -> ModelError:
    match kind:
        case "overflow":
            return ModelOverflow(f"The request is too long for {model}: {message}")
        case "rate":
            return ModelRateLimited(f"{model} asks for fewer requests: {message}", retry_after=retry_after)
        case "refused" if status in (401, 403):
            return ModelRefused(f"{model} refused the credentials{key_source and f' ({key_source})'}: {message}")
        case "refused":
            return ModelRefused(f"{model} refused the request: {message}")
        case _:
            return ModelUnavailable(f"{model} could not be reached or failed: {message}", retry_after=retry_after)


def read_retry_headers(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the headers ask to wait; None if they do not say. A date counts from the response's own."""
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
        except (TypeError, ValueError, OverflowError):
            continue
    return None


def read_google_delay(text: str) -> float | None:
    """Return the seconds that the body of a Google error asks to wait; None if it does not say."""
    delay = _GOOGLE_DELAY.search(text)
    return float(delay[1]) if delay else None
