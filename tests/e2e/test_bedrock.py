"""The real litellm against Bedrock's event streams on loopback, with keys that are not real."""

from __future__ import annotations

import pytest

from bubbot.errors import ModelError, ModelOverflow, ModelRateLimited, ModelRefused, ModelUnavailable
from tests.e2e.bedrock_server import MODEL, BedrockServer, Fails, Says, text, uses
from tests.e2e.provider_asking import HI, asked, exchange, outcome_of
from tests.e2e.provider_server import serving

# Warnings of pydantic about litellm's own code, and of the signer's: not ours to mend.
pytestmark = [
    pytest.mark.usefixtures("loaded_litellm"),
    *(pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "UserWarning")),
]

NAME = f"bedrock/{MODEL}"
BETTER = Says((text("better ", "now"),))


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAPLANTED")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
    monkeypatch.setenv("AWS_REGION_NAME", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


async def test_calls_and_their_results_go_there_and_back() -> None:
    looks = Says((text("Look", "ing."), uses("t1", "f", '{"x"', ": 1}"), uses("t2", "f")), stop="tool_use")
    async with serving(BedrockServer([looks, BETTER])) as server:
        first = (await asked(NAME, server.address, api_key=None)).answered
        assert (first.text, first.finish) == ("Looking.", "tool_calls")
        assert [(call.id, call.name) for call in first.calls] == [("t1", "f"), ("t2", "f")]
        assert first.calls[0].arguments == '{"x": 1}'
        assert (first.usage.input_tokens, first.usage.output_tokens, first.usage.cached_tokens) == (17, 9, 5)
        then = await asked(NAME, server.address, HI, *exchange(first, "1", "2", content=""), api_key=None)
    assert then.answered.text == "better now"
    _, said, results = server.requests[1].body["messages"]
    assert [part["toolUse"]["toolUseId"] for part in said["content"]] == ["t1", "t2"]
    assert [part["toolResult"]["toolUseId"] for part in results["content"]] == ["t1", "t2"]


LONG = "Input is too long for requested model."
THROTTLED = ("throttlingException", "Too many requests, please wait before trying again.")
FAILING: dict[str, tuple[Says | Fails, type[ModelError] | None, int]] = {
    "too long": (Fails(400, "ValidationException", LONG), ModelOverflow, 1),
    "too long, in the stream": (Says((), exception=("validationException", LONG)), ModelOverflow, 1),
    "throttled": (Fails(429, "ThrottlingException", "Too many tokens, please wait before trying again."), None, 2),
    "throttled, in the stream": (Says((), exception=THROTTLED), None, 2),
    "throttled in mid-answer": (Says((text("half"),), exception=THROTTLED), ModelRateLimited, 1),
    "not ready": (Fails(503, "ServiceUnavailableException", "Bedrock is unable to process your request."), None, 2),
    "the model failed": (Fails(424, "ModelErrorException", "The model failed"), None, 2),
    "the model broke the stream": (Says((), exception=("modelStreamErrorException", "it broke")), None, 2),
    "no access": (Fails(403, "AccessDeniedException", "You don't have access to the model."), ModelRefused, 1),
    "ended in mid-answer": (Says((text("half"),), stop=None), ModelUnavailable, 1),
    "a torn frame": (Says((text("half"),), torn=True), ModelUnavailable, 1),
    "a guardrail before the first word": (Says((), stop="guardrail_intervened"), ModelRefused, 1),
}


@pytest.mark.parametrize(("step", "kind", "cost"), FAILING.values(), ids=FAILING)
async def test_its_failures_are_ours(step: Says | Fails, kind: type[ModelError] | None, cost: int) -> None:
    """None as the kind: asked again, and answered."""
    outcome, requests = await outcome_of(NAME, BedrockServer([step, BETTER]), api_key=None)
    found = type(outcome.error) if outcome.error else None
    assert (found, requests) == (kind, cost), outcome
    assert kind or outcome.answered.text == "better now"


async def test_the_words_before_a_guardrail_are_kept() -> None:
    outcome, requests = await outcome_of(
        NAME, BedrockServer([Says((text("half"),), stop="guardrail_intervened")]), api_key=None
    )
    assert (outcome.answered.text, outcome.answered.finish, requests) == ("half", "content_filter", 1)
