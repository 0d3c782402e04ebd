"""Errors of litellm become ours: each class it exports, and the words of providers it does not know."""

from __future__ import annotations

import inspect
from typing import Any

import httpx
import pytest

from bubbot.errors import ModelError, ModelOverflow, ModelRateLimited, ModelRefused, ModelUnavailable

pytestmark = pytest.mark.usefixtures("loaded_litellm")

MODEL = "openai/test"
ASKED = httpx.Request("POST", "http://test/v1/chat/completions")

OVERFLOWS = {
    "OpenAI": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.",
    "OpenAI, code": "Input too long (context_length_exceeded)",
    "Azure": "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens.",
    "Anthropic": "prompt is too long: 210543 tokens > 200000 maximum",
    "Anthropic, output": "input length and `max_tokens` exceed context limit: 179413 + 32768 > 200000",
    "Gemini": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "Bedrock": "Input is too long for requested model.",
    "OpenRouter": "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens",
    "llama.cpp": "the request exceeds the available context size, try increasing it (exceed_context_size_error)",
    "Ollama": "prompt too long; exceeded max context length by 4 tokens",
    "Ollama, embedded": "the input length exceeds the context length",
    "Mistral": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    "xAI": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Groq": "Please reduce the length of the messages or completion.",
    "Cohere": "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292. Try using a "
    "shorter prompt, or enable prompt truncating.",
    "DashScope": "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]",
    "Zhipu": "Prompt exceeds max length",
    "Moonshot": "Invalid request: Your request exceeded model token limit: 8192",
    "MiniMax": "invalid params, context window exceeds limit (2013)",
    "litellm's proxy": "litellm.ContextWindowExceededError: litellm.BadRequestError: ContextWindowExceededError: no",
    "sglang": "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
}
NOT_OVERFLOWS = {
    "Bedrock throttles": "Too many tokens, please wait before trying again.",
    "Anthropic's rate": "This request would exceed your organization's rate limit of 40,000 input tokens per minute",
    "OpenAI's rate": "Request too large for gpt-4o on tokens per min (TPM): Limit 30000. Please reduce the length of the messages.",
    "Gemini's quota": "Quota exceeded: input token count exceeds the limit per minute",
    "another field": "Invalid 'user': string too long. Expected a string with maximum length 64",
    "an ordinary one": "Unknown parameter: 'frobnicate'.",
}


def exported() -> set[type[BaseException]]:
    from bubbot.models.litellm.quiet import litellm

    found = {**vars(litellm.exceptions), **{name: getattr(litellm, name) for name in dir(litellm)}}
    classes = {one for one in found.values() if inspect.isclass(one) and issubclass(one, BaseException)}
    return {one for one in classes if one.__module__.startswith("litellm")}


def ours(error: BaseException) -> ModelError:
    from bubbot.models.litellm.errors import translate

    return translate(error, MODEL, lambda text: text)


def bad_request(text: str, status: int = 400, **headers: str) -> BaseException:
    """What litellm raises for an answer of that status, with the answer below it."""
    from bubbot.models.litellm.quiet import litellm

    answer = httpx.Response(status, request=ASKED, headers={name.replace("_", "-"): headers[name] for name in headers})
    error = litellm.exceptions.BadRequestError(f"OpenAIException - {text}", MODEL, "openai")
    error.__cause__ = httpx.HTTPStatusError(text, request=ASKED, response=answer)
    assert isinstance(error, BaseException)
    return error


def test_every_exception_that_litellm_exports_is_mapped() -> None:
    from bubbot.models.litellm.errors import ERROR_KINDS

    assert len(exported()) >= 30
    assert {one.__name__ for one in exported()} == {one.__name__ for one in ERROR_KINDS}


@pytest.mark.parametrize("text", OVERFLOWS.values(), ids=OVERFLOWS)
def test_an_overflow_is_known_by_the_words_of_each_provider(text: str) -> None:
    assert isinstance(ours(bad_request(text)), ModelOverflow)


@pytest.mark.parametrize("text", NOT_OVERFLOWS.values(), ids=NOT_OVERFLOWS)
def test_a_rate_limit_is_never_an_overflow(text: str) -> None:
    assert not isinstance(ours(bad_request(text)), ModelOverflow)


@pytest.mark.parametrize("text", OVERFLOWS.values(), ids=OVERFLOWS)
def test_a_429_is_never_an_overflow_whatever_it_says(text: str) -> None:
    assert isinstance(ours(bad_request(text, 429)), ModelRateLimited)


@pytest.mark.parametrize(
    ("text", "status", "kind"),
    [
        ("It is long.", 400, ModelOverflow),
        ("It is long.", 429, ModelRateLimited),
        ("Request too large for gpt-4o on tokens per min (TPM)", 400, ModelRateLimited),
    ],
)
def test_what_litellm_takes_for_an_overflow_may_be_a_rate_limit(text: str, status: int, kind: type[ModelError]) -> None:
    from bubbot.models.litellm.quiet import litellm

    error = litellm.exceptions.ContextWindowExceededError(text, MODEL, "openai")
    error.__cause__ = bad_request(text, status).__cause__
    assert type(ours(error)) is kind


@pytest.mark.parametrize(
    ("text", "seconds"), [('{"retryDelay": "7.5s"}', 7.5), ('{"retryDelay": "30s"}', 30.0), ("later", None)]
)
def test_the_wait_that_google_asks_for_is_read_from_its_body(text: str, seconds: float | None) -> None:
    limited = ours(bad_request(text, 429))
    assert isinstance(limited, ModelRateLimited)
    assert limited.retry_after == seconds


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (499, "no", ModelRefused),
        (500, "Conversation roles must alternate user/assistant/user/assistant/...", ModelRefused),
        (500, "jinja2.exceptions.TemplateError: System role not supported", ModelRefused),
        (500, "image input is not supported by this server", ModelRefused),
        (424, "no", ModelUnavailable),
        (429, "prompt is too long", ModelRateLimited),
        (429, "You exceeded your current quota RESOURCE_EXHAUSTED", ModelRateLimited),  # Google calls every limit so
        (413, "rate limit", ModelOverflow),
        (500, "prompt is too long", ModelOverflow),
        (400, "prompt is too long: 9 tokens per minute", ModelRefused),
    ],
)
def test_a_failure_is_known_by_its_status_and_its_words(status: int, text: str, kind: type[ModelError]) -> None:
    assert type(ours(bad_request(text, status))) is kind


def test_half_a_character_in_the_words_of_a_provider_can_be_stored() -> None:
    """A provider that cuts what people wrote leaves one."""
    assert str(ours(bad_request("so \ud83d", 413))).endswith(": so \N{REPLACEMENT CHARACTER}")


def test_a_413_is_an_overflow() -> None:
    assert isinstance(ours(bad_request("Payload Too Large", 413)), ModelOverflow)


@pytest.mark.parametrize("status", [408, 409, 500, 502, 503, 504, 529])
def test_a_status_that_may_pass_is_not_a_refusal(status: int) -> None:
    assert isinstance(ours(bad_request("odd", status)), ModelUnavailable)


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 422])
def test_a_status_that_stays_is_a_refusal(status: int) -> None:
    assert isinstance(ours(bad_request("odd", status)), ModelRefused)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ModelRefused),
        (404, ModelRefused),
        (408, ModelUnavailable),
        (500, ModelUnavailable),
        (520, ModelUnavailable),
    ],
)
def test_a_status_that_litellm_takes_for_a_broken_connection_counts(status: int, kind: type[ModelError]) -> None:
    from bubbot.models.litellm.quiet import litellm

    error = litellm.exceptions.APIConnectionError("no", "openai", MODEL)
    error.__cause__ = bad_request("no", status).__cause__
    assert type(ours(error)) is kind


def test_an_empty_account_is_a_refusal_and_not_a_rate_limit() -> None:
    refused = ours(bad_request("You exceeded your current quota (insufficient_quota)", 429))
    assert isinstance(refused, ModelRefused)
    error: Any = bad_request("no credit", 429)
    for code, kind in (("insufficient_quota", ModelRefused), (429, ModelRateLimited), (None, ModelRateLimited)):
        error.code = code
        assert type(ours(error)) is kind


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "2"}, 2.0),
        ({"retry_after": "1.5"}, 1.5),
        ({"retry_after": "0"}, 0.0),
        ({"retry_after": "-5"}, 0.0),
        ({"retry_after": "nan"}, 0.0),
        ({"retry_after_ms": "250", "retry_after": "9"}, 0.25),
        ({"retry_after_ms": "soon", "retry_after": "9"}, 9.0),
        ({"retry_after": "Sun, 22 Nov 2026 09:59:30 GMT", "date": "Sun, 22 Nov 2026 10:00:00 GMT"}, 0.0),
        (
            {"retry_after": "Sun, 22 Nov 2026 10:00:30 -0000", "date": "Sun, 22 Nov 2026 10:00:00 GMT"},
            None,
        ),  # without a zone
        ({"retry_after": "Sun, 22 Nov 2026 10:00:00 GMT"}, None),
        ({"retry_after": "Sun, 22 Nov 2026 10:00:00 GMT", "date": "today"}, None),
        ({"retry_after": "Sun, 99999999999999999999 Nov 2026 10:00:00 GMT", "date": "today"}, None),
        ({"retry_after": ""}, None),
        ({"retry_after": "Sun, 22 Nov 2026 10:00:30 GMT", "date": "Sun, 22 Nov 2026 10:00:00 GMT"}, 30.0),
        ({"retry_after": "soon"}, None),
        ({}, None),
    ],
)
def test_the_wait_a_provider_asks_for_is_read(headers: dict[str, str], seconds: float | None) -> None:
    limited = ours(bad_request("slow down", 429, **headers))
    assert isinstance(limited, ModelRateLimited)
    assert limited.retry_after == seconds


def test_google_asks_for_a_wait_in_its_body() -> None:
    limited = ours(bad_request('{"error": {"details": [{"retryDelay": "7.5s"}]}}', 429))
    assert isinstance(limited, ModelRateLimited)
    assert limited.retry_after == 7.5


def test_only_a_broken_connection_is_a_cut() -> None:
    from bubbot.models.litellm.errors import is_cut
    from bubbot.models.litellm.quiet import litellm

    broken = litellm.exceptions.InternalServerError("no connection", MODEL, "openai")  # a status of litellm's making
    broken.__cause__ = httpx.ReadError("reset")
    assert is_cut(broken)
    assert is_cut(ConnectionResetError())
    assert not is_cut(bad_request("no"))  # httpx raises that, too
    assert not is_cut(KeyError("choices"))


def test_the_wrapper_of_a_broken_stream_is_looked_through() -> None:
    from bubbot.models.litellm.quiet import litellm

    inner = litellm.exceptions.RateLimitError("slow down", "openai", MODEL)
    wrapper = litellm.exceptions.MidStreamFallbackError("broken", MODEL, "openai", original_exception=inner)
    assert isinstance(ours(wrapper), ModelRateLimited)


def test_anything_else_is_a_model_that_is_not_there() -> None:
    assert isinstance(ours(KeyError("choices")), ModelUnavailable)


def test_a_sentence_holds_the_providers_words_and_not_litellms() -> None:
    error = bad_request('Error code: 400 - {"error": {"message": "no such\\nthing", "type": "x"}}')
    assert str(ours(error)) == f"{MODEL} refused the request: no such thing"


@pytest.mark.parametrize(
    "text", ['{"error": ' * 20_000, "b'" + '{"error": ' * 20_000 + "'", "b'{" + "(" * 20_000 + "}'"]
)
def test_a_deep_body_is_an_error_as_any_other(text: str) -> None:
    assert str(ours(bad_request(text))).startswith(f"{MODEL} refused the request: ")


def test_a_sentence_is_short_and_redacted() -> None:
    from bubbot.models.litellm.errors import translate

    error = bad_request("the key sk-secret is wrong " + "x" * 5000, 401)
    text = str(translate(error, MODEL, lambda text: text.replace("sk-secret", "[redacted]")))
    assert "sk-secret" not in text
    assert len(text) < 400


def test_refused_credentials_are_named_by_their_origin() -> None:
    from bubbot.models.litellm.errors import translate

    error = bad_request("no such key", 401)
    variables = "GEMINI_API_KEY or GOOGLE_API_KEY"
    told = str(translate(error, "gemini/test", str, key_source=variables))
    assert told == "gemini/test refused the credentials (GEMINI_API_KEY or GOOGLE_API_KEY): no such key"
    told = str(translate(error, MODEL, str, key_source="[model] api_key"))
    assert told == f"{MODEL} refused the credentials ([model] api_key): no such key"
    assert str(translate(error, MODEL, str)) == f"{MODEL} refused the credentials: no such key"


@pytest.mark.parametrize("before", ["", "said "])
def test_the_words_inside_a_body_are_told(before: str) -> None:
    from bubbot.models.litellm.errors import translate

    found = translate(bad_request(f'{before}{{"error": {{"message": "no such"}}}}'), MODEL, str)
    assert (str(found), found.words) == ("openai/test refused the request: no such", "no such")


def test_an_unknown_provider_is_named() -> None:
    from bubbot.models.litellm.errors import translate
    from bubbot.models.litellm.quiet import litellm

    error = litellm.exceptions.BadRequestError("LLM Provider NOT provided. Pass in ...", "nowhere/x", "")
    assert str(translate(error, "nowhere/x", str)) == (
        "[model] name is 'nowhere/x', and litellm knows no provider 'nowhere'"
    )


class TestTheStatus:
    """What the provider answered, of the first error below litellm's own that tells."""

    class WithStatus(Exception):
        def __init__(self, status: object) -> None:
            self.status_code = status

    @pytest.mark.parametrize(
        ("statuses", "found"), [((400,), 400), ((399, 404), 404), ((True, "500", 503), 503), ((200,), None), ((), None)]
    )
    def test_it_is_that_of_a_failure(self, statuses: tuple[object, ...], found: int | None) -> None:
        from bubbot.models.litellm.errors import http_status

        assert http_status(tuple(map(self.WithStatus, statuses))) == found
