"""Models that stand in for each other."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence

import pytest

from bubbot.errors import ModelError, ModelRateLimited, ModelRefused, ModelUnavailable
from bubbot.models.fallback import FallbackModel
from bubbot.ports.model import (
    FailedAttempt,
    ModelEvent,
    ModelReply,
    ModelRequest,
    ModelTraits,
    TextDelta,
    TokenCount,
)

REQUEST = ModelRequest("", ({"role": "user", "content": "hi"},))
REPLY = ModelReply("hello")


class Played:
    """A model that yields these events; an error is raised after its attempt."""

    def __init__(self, name: str, *events: ModelEvent | ModelError) -> None:
        self.name, self.traits, self._events = name, ModelTraits(), events
        self.closed = self.warmed = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        for event in self._events:
            if isinstance(event, ModelError):
                yield FailedAttempt(self.name, event.kind, str(event), 0.0)
                raise event
            yield event

    async def count(self, request: ModelRequest) -> TokenCount | None:
        return TokenCount(1, self.name)

    def warm(self) -> None:
        self.warmed += 1

    async def aclose(self) -> None:
        self.closed += 1


async def collect(models: Sequence[Played], heard: list[ModelEvent]) -> None:
    async for event in FallbackModel("a/x", ModelTraits(), models).stream(REQUEST):
        heard.append(event)  # noqa: PERF401 - an error may come in between


@pytest.mark.parametrize("error", [ModelUnavailable("gone"), ModelRateLimited("slow")])
async def test_the_next_answers_and_the_failure_names_it(error: ModelError, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[ModelEvent] = []
    with caplog.at_level(logging.INFO, "bubbot.models.fallback"):
        await collect([Played("a/x", error), Played("b/y", REPLY), Played("c/z")], heard)
    assert [(line.getMessage(), vars(line)["next"]) for line in caplog.records] == [
        (f"model call failed: {error}", "b/y")
    ]
    failed, reply = heard
    assert isinstance(failed, FailedAttempt)
    assert (failed.model, failed.next_model, reply) == ("a/x", "b/y", REPLY)


async def test_the_last_failure_is_raised_and_names_nobody() -> None:
    heard: list[ModelEvent] = []
    models = [Played("a/x", ModelUnavailable("one")), Played("b/y", ModelUnavailable("two"))]
    with pytest.raises(ModelUnavailable, match="two"):
        await collect(models, heard)
    assert [event.next_model for event in heard if isinstance(event, FailedAttempt)] == ["b/y", ""]


async def test_a_refusal_and_an_answer_that_began_ask_nobody_else() -> None:
    for first in (
        [ModelRefused("no")],
        [TextDelta("half"), ModelUnavailable("cut")],
    ):
        heard: list[ModelEvent] = []
        with pytest.raises(ModelError):
            await collect([Played("a/x", *first), Played("b/y", REPLY)], heard)
        assert REPLY not in heard
        assert [event.next_model for event in heard if isinstance(event, FailedAttempt)] == [""]


async def test_only_the_configured_model_counts_and_only_the_first_is_loaded() -> None:
    first, second = Played("a/x", REPLY), Played("b/y", REPLY)
    model = FallbackModel("a/x", ModelTraits(), [first, second])
    assert await model.count(REQUEST) == TokenCount(1, "a/x")
    assert await FallbackModel("a/x", ModelTraits(), [second]).count(REQUEST) is None
    model.warm()
    await model.aclose()
    assert (first.warmed, second.warmed, first.closed, second.closed) == (1, 0, 1, 1)


def test_its_traits_are_what_is_known_of_the_configured_model_now() -> None:
    first, other = Played("a/x"), Played("b/y")
    model = FallbackModel("a/x", ModelTraits(context_tokens=5), [first, other])
    first.traits = ModelTraits(context_tokens=7)
    assert model.traits.context_tokens == 7
    assert FallbackModel("a/x", ModelTraits(context_tokens=5), [other]).traits.context_tokens == 5  # without its key
