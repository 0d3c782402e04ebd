"""The retries around the single calls of a client."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator

import pytest

from bubbot.errors import ModelError, ModelOverflow, ModelRateLimited, ModelRefused, ModelUnavailable
from bubbot.models.fit import ModelFit
from bubbot.models.provider import CallLimits, ProviderModel, read_limits
from bubbot.models.usage import UsageMeter
from bubbot.ports.model import (
    FailedAttempt,
    ModelEvent,
    ModelReply,
    ModelRequest,
    ModelTraits,
    TextDelta,
    Transcript,
)

REQUEST = ModelRequest("", ({"role": "user", "content": "hi"},))
REPLY = ModelReply("hello")
GONE = ModelUnavailable("gone")


class PlayedClient:
    """A `ProviderClient` whose calls play their events or raise their error, one after the other."""

    def __init__(self, *calls: tuple[TextDelta | ModelReply | ModelError, ...]) -> None:
        self.calls = [*calls]
        self.media_types: list[str] = []
        self.closed = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelReply, None]:
        try:
            for event in self.calls.pop(0):
                if isinstance(event, ModelError):
                    raise event
                yield event
        finally:
            self.closed += 1

    async def transcribe(self, data: bytes, name: str, media_type: str) -> Transcript:
        self.media_types.append(media_type)
        (event,) = self.calls.pop(0)
        if isinstance(event, ModelError):
            raise event
        return Transcript("hello")

    async def connect(self) -> None:
        """Nothing to connect."""

    async def aclose(self) -> None:
        """Nothing to close."""


async def play(
    *calls: tuple[TextDelta | ModelReply | ModelError, ...], retries: int = 3, jitter: float = 0.5, record: bool = False
) -> tuple[list[ModelEvent | ModelError | Transcript], list[float], PlayedClient]:
    """The events of one request, or the transcript of a recording, and its error; the waits; the client."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    client = PlayedClient(*calls)
    limits = CallLimits(retries=retries, retry_wait=8.0)
    meter, fit = UsageMeter("openai/test", own_address=True), ModelFit("a/b")
    model = ProviderModel(
        "a/b", ModelTraits(), limits, client, meter=meter, fit=fit, sleep=sleep, jitter=lambda: jitter
    )
    events: list[ModelEvent | ModelError | Transcript] = []
    try:
        if record:
            events.append(await model.transcribe(b"x", "a.ogg", ""))
        else:
            async for event in model.stream(REQUEST):
                events.append(event)  # noqa: PERF401 - an error may come in between
    except ModelError as error:
        events.append(error)
    return events, waits, client


def attempts(events: list[ModelEvent | ModelError | Transcript]) -> list[tuple[str, str, float, str]]:
    """Of each failed attempt: its kind, its error, the wait after it, and who is called next."""
    return [
        (event.kind, event.error, event.wait, event.next_model) for event in events if isinstance(event, FailedAttempt)
    ]


@pytest.mark.parametrize("record", [False, True])
@pytest.mark.parametrize(
    ("jitter", "waits"),
    [(0.5, [8.0, 16.0, 32.0, 60.0, 60.0]), (0.0, [6.0, 12.0, 24.0, 48.0, 60.0]), (1.0, [10.0, 20.0, 40.0, 60.0, 60.0])],
)
async def test_waits_double_give_or_take_a_quarter_up_to_a_minute(
    *, record: bool, jitter: float, waits: list[float]
) -> None:
    failed = [(GONE,)] * 5
    events, waited, _ = await play(*failed, (REPLY,), retries=5, jitter=jitter, record=record)
    assert waited == waits
    assert events[-1] == (Transcript("hello") if record else REPLY)


async def test_every_failed_call_is_told_with_what_comes_next() -> None:
    slow = ModelRateLimited("slow", retry_after=7.0)
    events, waits, _ = await play((slow,), (GONE,), (TextDelta("hel"), TextDelta("lo"), REPLY))
    assert attempts(events) == [("model_rate_limited", "slow", 7.0, "a/b"), ("model_unavailable", "gone", 16.0, "a/b")]
    assert all(0 <= event.elapsed < 60 for event in events if isinstance(event, FailedAttempt))
    assert (events[2:], waits) == ([TextDelta("hel"), TextDelta("lo"), REPLY], [7.0, 16.0])


@pytest.mark.parametrize("record", [False, True])
@pytest.mark.parametrize("error", [ModelRateLimited, ModelUnavailable])
@pytest.mark.parametrize(("asked", "waits"), [(0.0, [0.0]), (60.0, [60.0]), (60.5, []), (float("inf"), [])])
async def test_a_provider_that_asks_for_more_than_a_minute_has_failed(
    *, record: bool, error: type[ModelRateLimited | ModelUnavailable], asked: float, waits: list[float]
) -> None:
    failure = error("slow", retry_after=asked)
    events, waited, client = await play((failure,), (REPLY,), record=record)
    assert (waited, len(client.calls)) == (waits, 0 if waits else 1)
    assert events[-1] == (failure if not waits else Transcript("hello") if record else REPLY)
    if not waits and not record:
        assert attempts(events) == [(failure.kind, "slow", 0.0, "")]


@pytest.mark.parametrize("record", [False, True])
@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_the_last_failure_is_raised_after_so_many_retries(*, record: bool, retries: int) -> None:
    failures = [ModelUnavailable(str(number)) for number in range(5)]
    events, waits, client = await play(*((one,) for one in failures), retries=retries, record=record)
    assert (events[-1], len(waits), len(client.calls)) == (failures[retries], retries, 4 - retries)
    if not record:
        assert [told[2:] for told in attempts(events)] == [*((wait, "a/b") for wait in waits), (0.0, "")]


@pytest.mark.parametrize("record", [False, True])
@pytest.mark.parametrize("error", [ModelRefused("no"), ModelOverflow("long")])
async def test_a_refusal_is_not_tried_again(*, record: bool, error: ModelError) -> None:
    events, waits, client = await play((error,), (REPLY,), record=record)
    assert (events[-1], waits, len(client.calls)) == (error, [], 1)
    if not record:
        assert attempts(events) == [(error.kind, str(error), 0.0, "")]


async def test_an_answer_that_began_is_not_tried_again() -> None:
    events, waits, client = await play((TextDelta("hel"), GONE), (REPLY,))
    assert (events[0], events[-1], attempts(events)) == (
        TextDelta("hel"),
        GONE,
        [("model_unavailable", "gone", 0.0, "")],
    )
    assert (waits, len(client.calls)) == ([], 1)


async def test_each_call_is_closed_and_a_recording_without_a_type_has_one() -> None:
    *_, client = await play((GONE,), (REPLY,))
    assert client.closed == 2
    *_, client = await play((REPLY,), record=True)
    assert client.media_types == ["application/octet-stream"]


@pytest.mark.parametrize("record", [False, True])
async def test_a_retry_is_logged_with_its_wait(*, record: bool, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "bubbot.models.provider"):
        await play((GONE,), (REPLY,), record=record)
    (line,) = caplog.records
    assert (line.getMessage(), vars(line)["seconds"]) == ("model call failed: gone", "8.00")


def test_limits_come_from_the_settings_of_the_model() -> None:
    settings = {"connect_timeout": 1.0, "first_token_timeout": 2.0, "idle_timeout": 3.0, "retries": 4, "name": "x"}
    assert read_limits(settings) == CallLimits(1.0, 2.0, 3.0, 4)
    assert read_limits({"retry_wait": 5.0}) == CallLimits(retry_wait=5.0)
