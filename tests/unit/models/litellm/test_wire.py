"""What is heard on the wire; litellm itself is not needed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from bubbot.models.litellm.wire import StreamEnding

STOPPED = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
BEGUN = {"type": "message_start", "message": {"id": "msg_1"}}


async def heard(*lines: str | bytes) -> StreamEnding:
    async def below() -> AsyncIterator[str | bytes]:
        for line in lines:
            yield line

    ending = StreamEnding()
    assert [line async for line in ending.pass_through(below())] == list(lines)
    return ending


def events(*given: Any) -> list[str]:
    return [line for one in given for line in (f"data: {json.dumps(one)}", "")]


@pytest.mark.parametrize("found", ["stop", "length", None])
async def test_a_protocol_it_does_not_know_is_litellms_business(found: str | None) -> None:
    ending = await heard(*events({"choices": [{"finish_reason": None}]}), "data: [DONE]", "")
    assert ending.resolve_finish(found) == found


async def test_an_end_counts_once_the_last_event_is_there() -> None:
    assert (await heard(*events(BEGUN))).resolve_finish("stop") is None
    assert (await heard(*events(BEGUN, STOPPED))).resolve_finish("stop") is None
    finished = {"candidates": [{"finishReason": "STOP"}]}
    assert (await heard(*events(finished, {"candidates": [{}]}))).resolve_finish("stop") == "stop"
    assert (await heard(*events(BEGUN, {"type": "message_stop"}))).resolve_finish("stop") is None
    assert (await heard(*events(BEGUN, STOPPED, {"type": "message_stop"}))).resolve_finish("stop") == "stop"


async def test_an_event_over_several_lines_and_one_without_an_empty_line_are_read() -> None:
    lines: list[str | bytes] = ['data: {"candidates":', b'data: [{"finishReason": "STOP"}]}']
    assert (await heard(*lines)).stop_reason == "STOP"
    assert (await heard('data:{"candidates": [{"finishReason": "STOP"}]}', "")).stop_reason == "STOP"


@pytest.mark.parametrize(
    ("lines", "found", "unread"),
    [
        (events(BEGUN, STOPPED, {"type": "message_stop"}, {"type": "ping"}), "stop", 2),
        (events(BEGUN, STOPPED), None, 0),
        (events({"choices": []}, {"choices": []}, {"choices": []}), "stop", 2),
    ],
    ids=["to the end", "cut", "unknown protocol"],
)
async def test_what_follows_the_end_that_litellm_saw_is_read_to_the_last_event(
    lines: list[str], found: str | None, unread: int
) -> None:
    left, closed = [*lines], False

    async def below() -> AsyncIterator[str]:
        nonlocal closed
        try:
            while left:
                yield left.pop(0)
        finally:
            closed = True

    stream = SimpleNamespace(streaming_response=below())
    ending = StreamEnding()
    ending.listen(SimpleNamespace(completion_stream=stream))
    for _ in range(4):  # the first two events
        await anext(stream.streaming_response)
    await ending.read_rest()
    assert (ending.resolve_finish("stop"), len(left)) == (found, unread)
    await ending.aclose()
    assert closed


async def test_half_an_event_says_nothing() -> None:
    ending = await heard(*events({"candidates": [{}]}), 'data: {"candidates": [{"finishReason": "STOP"')
    assert ending.resolve_finish("stop") is None


async def test_an_argument_that_is_called_like_an_end_is_none() -> None:
    part = {"functionCall": {"name": "f", "args": {"finishReason": "STOP"}}}
    ending = await heard(*events({"candidates": [{"content": {"parts": [part]}}]}))
    assert ending.resolve_finish("stop") is None


async def test_a_stream_that_is_made_later_is_listened_to() -> None:
    async def below() -> AsyncIterator[str]:
        for line in events({"candidates": [{"finishReason": "MAX_TOKENS"}]}):
            yield line

    async def make(client: str) -> Any:
        assert client == "c"
        return SimpleNamespace(streaming_response=below())

    chunks: Any = SimpleNamespace(completion_stream=None, make_call=make)
    ending = StreamEnding()
    ending.listen(chunks)
    made = await chunks.make_call(client="c")
    assert [line async for line in made.streaming_response]
    assert (ending.stop_reason, ending.resolve_finish("length")) == ("MAX_TOKENS", "length")
