"""What is heard on the wire; litellm itself is not needed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from bubbot.models.litellm.wire import StreamEnding
from bubbot.models.openai.answer import StreamedAnswer

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


def choice(delta: Any = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": "r", "choices": [{"delta": delta, "finish_reason": finish, **more}]}


async def test_what_litellm_drops_of_openais_protocol_is_heard() -> None:
    pieces = (choice({"refusal": "I can't "}), choice({"refusal": "help."}), choice({"refusal": None}))
    ending = await heard(*events(*pieces, {"choices": [{"delta": {"refusal": " No."}}]}), "data: [DONE]", "")
    assert (ending.refusal, ending.is_done, ending.stop_reason, ending.error) == ("I can't help. No.", True, None, None)
    ending = await heard(*events(choice({"content": "x"}), choice({}, "odd"), choice({}), {"choices": []}))
    assert (ending.refusal, ending.is_done, ending.stop_reason, ending.error) == ("", False, "odd", None)


async def test_the_first_error_in_a_stream_is_kept() -> None:
    first, second = {"object": "error", "message": "bad"}, {"detail": "worse"}
    ending = await heard(*events(choice({"content": "x"}), first, second, {"type": "ping"}))
    assert ending.error == first


WHOLE = choice(finish="stop", message={"content": "all of it"})


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (json.dumps(WHOLE, indent=1).splitlines(), "all of it"),
        (["", json.dumps(WHOLE)], "all of it"),
        (events(WHOLE), "all of it"),
        (["<html>"], None),
        (["[]"], None),
        ([json.dumps({"choices": []})], None),
        ([json.dumps(WHOLE), *events(choice({"content": "x"}))], None),
        ([], None),
    ],
)
async def test_an_answer_in_one_piece_is_heard(lines: list[str], text: str | None) -> None:
    ending, answer = await heard(*lines), StreamedAnswer("openai/test")
    assert ending.read_body(answer) is (text is not None)
    assert answer.text == (text or "")


async def test_a_body_without_a_word_counts_if_it_says_why() -> None:
    ending, answer = (
        await heard(json.dumps(choice(finish="odd", message={"content": ""}))),
        StreamedAnswer("openai/test"),
    )
    assert ending.read_body(answer)
    assert answer.finish == "odd"


async def test_the_error_of_a_body_is_kept() -> None:
    ending = await heard(json.dumps({"object": "error", "message": "bad"}))
    assert not ending.read_body(StreamedAnswer("openai/test"))
    assert ending.error == {"object": "error", "message": "bad"}


async def test_the_bytes_of_openais_own_library_are_heard_and_passed_on() -> None:
    text = "".join(f"{line}\r\n" for line in events(choice({"refusal": "Não."}), choice({}, "stop"))) + "data: [DONE]"
    raw = text.encode()
    chunks = [raw[at : at + 7] for at in range(0, len(raw), 7)]

    async def below() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    ending, response = StreamEnding(), SimpleNamespace(aiter_bytes=below)
    ending.listen(SimpleNamespace(completion_stream=SimpleNamespace(response=response)))
    assert [chunk async for chunk in response.aiter_bytes()] == chunks
    assert (ending.refusal, ending.stop_reason, ending.is_done) == ("Não.", "stop", True)
