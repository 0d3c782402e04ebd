"""The real litellm against the protocol of Gemini on loopback; `api_base` is honoured there, with its version."""

from __future__ import annotations

import json

import pytest

from bubbot.errors import ModelError, ModelOverflow, ModelRateLimited, ModelRefused, ModelUnavailable
from tests.e2e.gemini_server import MODEL, Fails, GeminiServer, Says, calls, says, signed
from tests.e2e.openai_server import says as openai_says
from tests.e2e.openai_server import serving as serving_openai
from tests.e2e.provider_asking import HI, Outcome, asked, exchange, outcome_of
from tests.e2e.provider_server import serving

# Warnings of pydantic about litellm's own code: not ours to mend. Everything else stays an error.
pytestmark = [
    pytest.mark.usefixtures("loaded_litellm"),
    *(pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "UserWarning")),
]

NAME = f"gemini/{MODEL}"
VERSION = "/v1beta"
LOOKS = says({"text": "look it up", "thought": True}, "Looking.", calls("f", x=1), calls("g"))
BETTER = says("better now")
QUOTA = (
    "You exceeded your current quota, please check your plan and billing details.\n* Quota exceeded for metric: "
    "generativelanguage.googleapis.com/generate_content_free_tier_requests, limit: 10\nPlease retry in 3.5s."
)
WAIT = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3.5s"}


async def outcome(*steps: Says | Fails) -> tuple[Outcome, int]:
    return await outcome_of(NAME, GeminiServer(steps), VERSION)


async def test_an_answer_streams_and_is_accounted_for() -> None:
    async with serving(GeminiServer([says("hello ", "there")])) as server:
        reply = (await asked(NAME, server.address + VERSION)).answered
    assert (reply.text, reply.finish, reply.response_id) == ("hello there", "stop", "resp-g")
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cached_tokens) == (20, 9, 5)
    [request] = server.requests
    assert request.headers["x-goog-api-key"] == "sk-canary-2"
    assert "sk-canary-2" not in request.path


@pytest.mark.parametrize("content", ["Looking.", ""], ids=["text", "no text"])
async def test_calls_go_back_with_their_signatures_and_results(content: str) -> None:
    async with serving(GeminiServer([LOOKS, BETTER], signs=True)) as server:
        first = (await asked(NAME, server.address + VERSION)).answered
        assert [(call.name, json.loads(call.arguments)) for call in first.calls] == [("f", {"x": 1}), ("g", {})]
        assert (first.text, first.reasoning, first.finish) == ("Looking.", "look it up", "tool_calls")
        then = await asked(NAME, server.address + VERSION, HI, *exchange(first, "1", "2", content=content))
    assert (then.answered.text, server.refused) == ("better now", [])
    said = [part for part in server.requests[1].body["contents"][1]["parts"] if not part.get("thought")]
    assert said[0].get("text", "Looking.") == "Looking."  # no empty text, and none of litellm's own
    assert [part["thoughtSignature"] for part in said if "thoughtSignature" in part] == [signed("f"), signed("g")]


async def test_a_signature_is_not_sent_to_another_provider() -> None:
    """It makes the id of a call longer than OpenAI takes (40 characters); litellm takes it off again."""
    async with serving(GeminiServer([LOOKS])) as server:
        first = (await asked(NAME, server.address + VERSION)).answered
    async with serving_openai(openai_says("ok")) as other:
        await asked("openai/test", other.address, HI, *exchange(first, "1", "2"))
    _, _, said, *results = other.requests[0]["messages"]
    ids = [call["id"] for call in said["tool_calls"]]
    assert ids == [result["tool_call_id"] for result in results]
    assert max(map(len, ids)) <= 40
    assert len(set(ids)) == 2


PASSING = {
    "a quota of a minute, with how long to wait": (Fails(429, "RESOURCE_EXHAUSTED", QUOTA, (WAIT,)), 3.5),
    "a quota without": (Fails(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."), None),
    "503": (Fails(503, "UNAVAILABLE", "The model is overloaded. Please try again later."), None),
    "500": (Fails(500, "INTERNAL", "An internal error has occurred."), None),
    "an error in the stream": (says(finish=None, error={"code": 503, "message": "no", "status": "UNAVAILABLE"}), None),
    "no word at all": (says(finish=None), None),
    "a call without an end": (says(calls("f"), finish=None), None),
    "a malformed call": (says(finish="MALFORMED_FUNCTION_CALL"), None),
}


@pytest.mark.parametrize(("first", "wait"), PASSING.values(), ids=PASSING)
async def test_what_passes_is_asked_again(first: Says | Fails, wait: float | None) -> None:
    found, requests = await outcome(first, BETTER)
    assert (found.answered.text, requests) == ("better now", 2)
    assert wait is None or found.waits == [wait]


TOO_LONG = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
STAYING: dict[str, tuple[Says | Fails, type[ModelError], int]] = {
    "too long": (Fails(400, "INVALID_ARGUMENT", TOO_LONG), ModelOverflow, 1),
    "a wrong key": (Fails(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."), ModelRefused, 1),
    "403": (Fails(403, "PERMISSION_DENIED", "Your API key was reported as leaked."), ModelRefused, 1),
    "404": (Fails(404, "NOT_FOUND", "models/x is not found"), ModelRefused, 1),
    "429 every time": (Fails(429, "RESOURCE_EXHAUSTED", QUOTA, (WAIT,)), ModelRateLimited, 4),
    "429 for a day": (
        Fails(429, "RESOURCE_EXHAUSTED", QUOTA, ({**WAIT, "retryDelay": "86400s"},)), ModelRateLimited, 1,
    ),
    "blocked": (says(finish=None, blocked="PROHIBITED_CONTENT"), ModelRefused, 1),
    "stopped before the first word": (says(finish="SAFETY"), ModelRefused, 1),
    "ended in mid-answer": (says("half an", finish=None), ModelUnavailable, 1),
    "dropped in mid-answer": (says("half an", finish=None, cut=True), ModelUnavailable, 1),
    "an error in mid-answer": (
        says("half", finish=None, error={"code": 503, "message": "no", "status": "UNAVAILABLE"}), ModelUnavailable, 1,
    ),
    "malformed in mid-answer": (says("half an", finish="MALFORMED_FUNCTION_CALL"), ModelUnavailable, 1),
}  # fmt: skip


@pytest.mark.parametrize(("step", "kind", "cost"), STAYING.values(), ids=STAYING)
async def test_what_stays_is_an_error_of_ours(step: Says | Fails, kind: type[ModelError], cost: int) -> None:
    found, requests = await outcome(step)
    assert (type(found.error), requests) == (kind, cost), found


async def test_its_own_words_are_passed_on_as_it_wrote_them() -> None:
    found, _ = await outcome(Fails(404, "NOT_FOUND", 'The model "x" isn\'t\nfound – sorry'))
    assert str(found.error) == f'{NAME} refused the request: The model "x" isn\'t found – sorry'


async def test_an_answer_at_its_limit_says_so() -> None:
    found, _ = await outcome(says("so far", finish="MAX_TOKENS"))
    assert (found.answered.text, found.answered.finish) == ("so far", "length")


@pytest.mark.parametrize(
    ("finish", "read"),
    [("SAFETY", "content_filter"), ("RECITATION", "content_filter"), ("OTHER", "content_filter"), ("NEWER", "unknown")],
)
async def test_an_answer_that_was_stopped_keeps_its_words_and_says_why(finish: str, read: str) -> None:
    found, requests = await outcome(says("half an", finish=finish))
    assert (found.answered.text, found.answered.finish, found.answered.reason, requests) == ("half an", read, finish, 1)
