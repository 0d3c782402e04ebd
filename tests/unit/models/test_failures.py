"""Failures of providers: what their statuses, words and headers mean."""

from __future__ import annotations

from typing import Any

import pytest

from bubbot.errors import ModelError, ModelOverflow, ModelRateLimited, ModelRefused, ModelUnavailable
from bubbot.models.failures import (
    FailureKind,
    build_failure,
    classify_status,
    find_error,
    read_error,
    read_error_status,
    read_google_delay,
    read_retry_headers,
)

MAX_PROVIDER_CHARS = 300


TEN = "Sun, 22 Nov 2026 10:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "nan"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": "Sun, 22 Nov 2026 10:00:30 GMT", "date": TEN}, 30.0),
        ({"retry-after": "Sun, 22 Nov 2026 09:59:30 GMT", "date": TEN}, 0.0),
        ({"retry-after": "Sun, 22 Nov 2026 10:00:30 -0000", "date": TEN}, None),  # a time without a zone
        ({"retry-after": TEN}, None),
        ({"retry-after": TEN, "date": "today"}, None),
        ({"retry-after": "Sun, 99999999999999999999 Nov 2026 10:00:00 GMT", "date": TEN}, None),
        ({"retry-after": "soon", "date": TEN}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_the_wait_that_headers_ask_for_is_read_and_never_negative(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert read_retry_headers(headers) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"), [('{"retryDelay": "7.5s"}', 7.5), ('{"retryDelay": "30s"}', 30.0), ("later", None)]
)
def test_the_wait_that_google_asks_for_is_read(text: str, seconds: float | None) -> None:
    assert read_google_delay(text) == seconds


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (400, "no", "refused"),
        (499, "no", "refused"),
        (500, "Conversation roles must alternate user/assistant/user/assistant/...", "refused"),
        (500, "jinja2.exceptions.TemplateError: System role not supported", "refused"),
        (None, "Unexpected role 'user' after role 'tool'", "refused"),
        (500, "image input is not supported by this server", "refused"),
        (402, "no", "refused"),
        (404, "no", "refused"),
        (408, "no", "unavailable"),
        (424, "no", "unavailable"),
        (500, "no", "unavailable"),
        (302, "no", "unavailable"),
        (None, "no", "unavailable"),
        (429, "no", "rate"),
        (429, "prompt is too long", "rate"),
        (429, "You exceeded your current quota", "refused"),
        (429, "You exceeded your current quota RESOURCE_EXHAUSTED", "rate"),  # Google calls every limit so
        (413, "rate limit", "overflow"),
        (400, "prompt is too long", "overflow"),
        (500, "prompt is too long", "overflow"),
        (None, "prompt is too long", "overflow"),
        (400, "prompt is too long: 9 tokens per minute", "refused"),
    ],
)
def test_a_failure_is_known_by_its_status_and_its_words(status: int | None, text: str, kind: FailureKind) -> None:
    assert classify_status(status, text) == kind


@pytest.mark.parametrize(
    ("kind", "status", "error", "sentence"),
    [
        ("overflow", 400, ModelOverflow, "The request is too long for a/b: bad"),
        ("rate", 429, ModelRateLimited, "a/b asks for fewer requests: bad"),
        ("refused", 401, ModelRefused, "a/b refused the credentials (A_KEY): bad"),
        ("refused", 403, ModelRefused, "a/b refused the credentials (A_KEY): bad"),
        ("refused", 404, ModelRefused, "a/b refused the request: bad"),
        ("unavailable", 503, ModelUnavailable, "a/b could not be reached or failed: bad"),
    ],
)
def test_an_error_is_a_sentence_with_the_wait(
    kind: FailureKind, status: int, error: type[ModelError], sentence: str
) -> None:
    failure = build_failure(kind, "a/b", "bad", status=status, retry_after=7.0, key_source="A_KEY")
    assert (type(failure), str(failure)) == (error, sentence)
    if isinstance(failure, ModelRateLimited | ModelUnavailable):
        assert failure.retry_after == 7.0


def test_the_words_of_a_provider_are_cut_and_can_be_stored() -> None:
    """A provider that cuts what people wrote leaves half a character."""
    assert str(build_failure("overflow", "a/b", "so \ud83d")).endswith(": so \N{REPLACEMENT CHARACTER}")
    assert str(build_failure("overflow", "a/b", "x" * 5_000)).endswith(": " + "x" * MAX_PROVIDER_CHARS)


@pytest.mark.parametrize(
    ("event", "words", "codes", "status"),
    [
        ({"error": {"message": "no", "code": 503}}, "no", "503", 503),
        ({"error": {"message": "no", "code": "429"}}, "no", "429", 429),
        ({"error": {"message": "no", "code": "rate_limit_exceeded"}}, "no", "rate_limit_exceeded", 429),
        (
            {"error": {"message": "no", "type": "invalid_request_error", "code": None}},
            "no",
            "invalid_request_error",
            400,
        ),
        ({"error": {"message": "no", "code": "odd", "type": "NotFoundError"}}, "no", "odd NotFoundError", 404),
        ({"error": {"message": "no", "status": "RESOURCE_EXHAUSTED"}}, "no", "RESOURCE_EXHAUSTED", 429),
        ({"error": {"detail": "no"}}, "no", "", None),
        ({"error": "no", "status_code": 500}, "no", "", None),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "no"}}, "no", "overloaded_error", None),
        (
            {"object": "error", "message": "no", "type": "BadRequestError", "code": 400},
            "no",
            "400 BadRequestError",
            400,
        ),
        ({"type": "error", "message": "no"}, "no", "error", None),
        ({"detail": "no"}, "no", "", None),
        ({"detail": [{"loc": ["body"], "msg": "no"}]}, '[{"loc": ["body"], "msg": "no"}]', "", None),
        ({"error": None, "message": "no"}, "no", "", None),
        ({"message": "no", "status_code": 401}, "no", "", 401),
        ({"object": "error"}, "", "", None),
    ],
)
def test_an_error_that_comes_with_a_success_is_read_in_every_form(
    event: dict[str, Any], words: str, codes: str, status: int | None
) -> None:
    error = find_error(event)
    assert error is not None
    assert (*read_error(error), read_error_status(error)) == (words, codes, status)


@pytest.mark.parametrize(
    "event",
    [
        {}, {"choices": []}, {"choices": [], "message": "no"}, {"type": "ping"}, {"error": None, "choices": []},
        {"message": {"role": "assistant", "content": "hi"}}, {"type": "message_start", "message": {"id": "x"}},
        {"usage": {"prompt_tokens": 1}}, {"detail": ""},
    ],
)  # fmt: skip
def test_what_is_no_error_is_not_taken_for_one(event: dict[str, Any]) -> None:
    assert find_error(event) is None


@pytest.mark.parametrize("body", [{"error": "no"}, {"error": {"message": "no"}}, {"message": "no"}, {"detail": "no"}])
def test_the_words_of_an_error_body_are_found(body: dict[str, Any]) -> None:
    assert read_error(body) == ("no", "")
