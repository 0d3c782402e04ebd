"""Answers of the OpenAI protocol, from events or from one body."""

from __future__ import annotations

from typing import Any

import pytest

from bubbot.models.openai.answer import StreamedAnswer
from bubbot.ports.model import ModelReply, ModelRequest, Usage

REQUEST = ModelRequest("", ({"role": "user", "content": "hi"},))


def event(delta: Any = None, finish: Any = None, **more: Any) -> dict[str, Any]:
    return {"id": "r", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def read(*events: dict[str, Any]) -> tuple[StreamedAnswer, list[str]]:
    answer = StreamedAnswer("openai/test", server="own.test")
    return answer, [answer.add(one) for one in events]


def reply(*events: dict[str, Any]) -> ModelReply:
    return read(*events)[0].build_reply("stop", REQUEST, None)


@pytest.mark.parametrize(
    ("delta", "text"),
    [
        ({"content": "Yes"}, "Yes"), ({"content": None}, ""), ({}, ""), (None, ""), ({"role": "assistant"}, ""),
        ({"refusal": "No."}, "No."), ({"refusal": None, "content": "Yes"}, "Yes"), ({"refusal": ["odd"]}, ""),
        ({"content": "Well. ", "refusal": "No."}, "Well. No."), ({"reasoning": "hm"}, ""),
        ({"content": [{"type": "text", "text": "Yes"}, {"type": "thinking", "thinking": [{"text": "hm"}]}]}, "Yes"),
    ],
)  # fmt: skip
def test_the_words_of_a_piece_are_its_text(delta: Any, text: str) -> None:
    answer, pieces = read(event({"content": "Oh. "}), event(delta))
    assert (pieces, answer.text) == (["Oh. ", text], f"Oh. {text}")


@pytest.mark.parametrize(
    ("delta", "reasoning"),
    [({"reasoning": "hm"}, "hm"), ({"reasoning_content": "hm"}, "hm"), ({"reasoning_content": ["odd"]}, None),
     ({"reasoning_content": None, "reasoning": "hm"}, "hm"), ({"content": "x"}, None)],
)  # fmt: skip
def test_reasoning_is_kept_apart(delta: Any, reasoning: str | None) -> None:
    assert reply(event(delta)).reasoning == reasoning


@pytest.mark.parametrize(
    ("events", "finish"),
    [
        ([event({"content": "x"})], None),
        ([event({}, "stop")], "stop"),
        ([event({}, "stop"), event({}, None), {"choices": []}, {"usage": None}], "stop"),
        ([event({}, "stop"), event({}, "length")], "length"),
        ([event({}, 7)], "7"),
    ],
)
def test_the_last_reason_stands(events: list[dict[str, Any]], finish: str | None) -> None:
    assert read(*events)[0].finish == finish


def test_a_whole_message_counts_if_nothing_came_before_it() -> None:
    whole = {"id": "r", "choices": [{"message": {"content": "all of it"}, "finish_reason": "stop"}]}
    answer, pieces = read(whole)
    assert (answer.text, answer.finish, pieces) == ("all of it", "stop", ["all of it"])
    later, pieces = read(event({"content": "all of it"}), whole)
    assert (later.text, later.finish, pieces) == ("all of it", "stop", ["all of it", ""])


@pytest.mark.parametrize(
    ("arguments", "text"), [('{"x": 1}', '{"x": 1}'), ({"x": 1}, '{"x": 1}'), (None, ""), ({}, ""), ("", "")]
)
def test_arguments_are_a_text(arguments: Any, text: str) -> None:
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": arguments}}
    (made,) = reply(event({"tool_calls": [call]})).calls
    assert (made.id, made.name, made.arguments) == ("a", "f", text)


def test_a_call_without_a_number_has_that_of_its_place() -> None:
    pieces = [{"function": {"name": name, "arguments": "{"}} for name in ("f", "g")]
    ends = [{"function": {"arguments": "}"}}, {"function": None}]
    made = reply(event({"tool_calls": pieces}), event({"tool_calls": ends}), event({"tool_calls": None}))
    assert [(call.name, call.arguments) for call in made.calls] == [("f", "{}"), ("g", "{")]
    numbered = [{"index": 1, "id": "b", "function": {"name": "g"}}, {"index": 0, "id": "a", "function": {"name": "f"}}]
    made = reply(
        event({"tool_calls": numbered}), event({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]})
    )
    assert [(call.name, call.arguments) for call in made.calls] == [("g", ""), ("f", "{}")]


def test_what_goes_back_with_a_call_is_kept() -> None:
    extra = {"extra_content": {"google": {"thought_signature": "U0"}}}
    first = {
        "index": 0,
        "id": "a",
        "function": {"name": "f", "arguments": "{}"},
        "provider_specific_fields": None,
        **extra,
    }
    second = {"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}}
    details = [{"type": "reasoning.encrypted", "data": "U0"}]
    made = reply(event({"tool_calls": [first], "reasoning_details": details}), event({"tool_calls": [second]}))
    assert made.replay == {
        "provider": "openai", "model": "openai/test", "server": "own.test", "calls": [extra, {}], "reasoning_details": details,
    }  # fmt: skip
    assert reply(event({"tool_calls": [second]})).replay is None


def test_counts_and_the_id_come_with_any_event() -> None:
    counts = {"prompt_tokens": 9, "completion_tokens": 2}
    answer, _ = read({"id": "", "choices": []}, event({"content": "x"}, usage=counts), {"id": "s", "usage": None})
    assert (answer.response_id, answer.usage) == ("r", Usage(9, 2))
    groq, _ = read(event({}, "stop", x_groq={"usage": counts}))
    assert groq.usage == Usage(9, 2)
