"""Requests as litellm takes them, and answers put together from pieces; litellm itself is not needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bubbot.models.litellm.messages import LitellmReply, convert_usage
from bubbot.models.messages import build_messages
from bubbot.models.reply import FinishReader
from bubbot.ports.model import ModelReply, ModelRequest, ToolCall, Usage

REQUEST = ModelRequest("sys", ({"role": "user", "content": "hi"},))


def chunk(**delta: Any) -> Any:
    calls = [
        SimpleNamespace(index=place, id=given, function=SimpleNamespace(name=name, arguments=arguments))
        for place, given, name, arguments in delta.pop("calls", ())
    ]
    return SimpleNamespace(id="r1", choices=[SimpleNamespace(delta=SimpleNamespace(tool_calls=calls, **delta))])


def reply(*chunks: Any, finish: str = "stop", model: str = "openai/test") -> ModelReply:
    answer = LitellmReply(model)
    for one in chunks:
        answer.add(one)
    return answer.build_reply(FinishReader(model).read(finish, answer), REQUEST, None)


def test_parallel_calls_are_put_together_by_their_place() -> None:
    made = reply(
        chunk(calls=[(0, "a", "f", '{"x"')]),
        chunk(calls=[(1, "b", "g", ""), (0, None, None, ": 1}")]),
        chunk(calls=[(1, None, None, "{}")]),
        finish="tool_calls",
    )
    assert made.calls == (ToolCall("a", "f", '{"x": 1}'), ToolCall("b", "g", "{}"))
    assert made.finish == "tool_calls"


def test_calls_that_share_a_place_are_told_apart_by_their_ids() -> None:
    made = reply(chunk(calls=[(0, "a", "f", "{}")]), chunk(calls=[(0, "b", "g", "{}")]))
    assert [call.id for call in made.calls] == ["a", "b"]


def test_calls_without_an_id_get_one_each() -> None:
    pieces = chunk(calls=[(0, None, "f", "{}"), (1, None, "f", "{}")])
    assert [call.id for call in reply(pieces).calls] == ["call_r1_0", "call_r1_1"]
    pieces.id = None
    assert [call.id for call in reply(pieces).calls] == ["call_own_0", "call_own_1"]


def test_calls_without_an_id_that_share_a_place_are_told_apart_by_their_names() -> None:
    made = reply(
        chunk(calls=[(0, None, "f", "{"), (0, None, "f", "}")]),
        chunk(calls=[(0, None, "g", "{"), (0, None, None, "}")]),
    )
    assert [(call.name, call.arguments) for call in made.calls] == [("f", "{}"), ("g", "{}")]


@pytest.mark.parametrize(
    ("delta", "text"),
    [
        ({"content": "Yes"}, "Yes"),
        ({"reasoning_content": "so"}, ""),
        ({"calls": [(0, "a", "f", "")]}, ""),
        ({"thinking_blocks": [{"type": "redacted_thinking", "data": "xx"}]}, ""),
    ],
)
def test_an_answer_has_begun_with_its_first_part_of_any_kind(delta: dict[str, Any], text: str) -> None:
    answer = LitellmReply("openai/test")
    assert (answer.add(SimpleNamespace(id=None, choices=[])), answer.add(chunk()), answer.has_output) == ("", "", False)
    assert (answer.add(chunk(**delta)), answer.has_output, answer.response_id) == (text, True, "r1")
    later = chunk(content=" ")
    later.id = "r2"
    answer.add(later)
    assert answer.response_id == "r1"


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        ((11, 7, 5), Usage(11, 7, 5, 0.5)),
        ((11, 7, 12), Usage(11, 7, 11, 0.5)),
        ((11, 7, -1), Usage(11, 7, 0, 0.5)),
        ((11, None, None), Usage(11, 0, 0, 0.5)),
        ((None, 7, 5), Usage(0, 7, 0, 0.5)),
    ],
)
def test_counts_that_are_missing_are_none_and_no_more_was_cached_than_read(
    counts: tuple[int | None, int | None, int | None], usage: Usage
) -> None:
    read, written, cached = counts
    details = SimpleNamespace(cached_tokens=cached)
    sent = SimpleNamespace(prompt_tokens=read, completion_tokens=written, prompt_tokens_details=details)
    assert convert_usage(sent, 0.5) == usage


def test_reasoning_is_not_part_of_the_answer() -> None:
    made = reply(chunk(reasoning_content="because "), chunk(reasoning_content="so"), chunk(content="Yes"))
    assert (made.text, made.reasoning, made.replay) == ("Yes", "because so", None)


def test_reasoning_in_an_unknown_form_costs_no_answer() -> None:
    made = reply(chunk(reasoning_content=[{"text": "so"}], content="Yes"))
    assert (made.text, made.reasoning) == ("Yes", None)


def test_reasoning_with_calls_comes_back_to_its_provider_and_to_no_other() -> None:
    made = reply(
        chunk(reasoning_content="so"), chunk(calls=[(0, "a", "f", "{}")]), finish="tool_calls", model="deepseek/r"
    )
    said: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [], "replay": made.replay, "surplus": 1}
    request = ModelRequest("", (said,))
    assert build_messages(request, "deepseek") == [
        {"role": "assistant", "content": "", "tool_calls": [], "reasoning_content": "so"}
    ]
    assert build_messages(request, "openai") == [{"role": "assistant", "content": "", "tool_calls": []}]


def test_reasoning_of_one_maker_is_not_sent_to_another_behind_the_same_protocol() -> None:
    answer = LitellmReply("openai/deepseek-reasoner", reasoning="so")
    answer.add_call(0, "c", "f", "{}")
    replay = answer.build_reply("tool_calls", REQUEST, None).replay
    message = {"role": "assistant", "content": "", "tool_calls": [{"id": "c"}], "replay": replay}
    request = ModelRequest("", (message,))
    assert build_messages(request, "openai/deepseek-reasoner")[0]["reasoning_content"] == "so"
    assert "reasoning_content" not in build_messages(request, "openai/mistral-large-latest")[0]


SIGNED = {"extra_content": {"google": {"thought_signature": "U0lH"}}}


def test_what_a_provider_wants_back_with_a_call_goes_to_its_server_and_to_no_other() -> None:
    answer = LitellmReply("openai/gemini", server="google.test")
    for place, extra in enumerate([SIGNED, {}]):
        answer.add_call(place, f"c{place}", "f", "{}", extra)
    replay = answer.build_reply("tool_calls", REQUEST, None).replay
    assert replay == {
        "provider": "openai",
        "model": "openai/gemini",
        "server": "google.test",
        "calls": [SIGNED, {}],
    }
    calls = [
        {"id": f"c{place}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for place in range(2)
    ]
    request = ModelRequest("", ({"role": "assistant", "content": "", "tool_calls": calls, "replay": replay},))
    (sent,) = build_messages(request, "openai/gemini", "google.test")
    assert sent["tool_calls"] == [{**calls[0], **SIGNED}, calls[1]]
    elsewhere = [
        ("openai/gemini", "else.test"),
        ("openai/gemini", ""),
        ("openai/gpt-4o", "google.test"),
        ("gemini/x", "google.test"),
    ]
    for name, server in elsewhere:
        (other,) = build_messages(request, name, server)
        assert other["tool_calls"] == calls
    fewer = {"role": "assistant", "content": "", "tool_calls": calls[:1], "replay": replay}
    assert build_messages(ModelRequest("", (fewer,)), "openai/gemini", "google.test")[0]["tool_calls"] == calls[:1]


def test_pieces_of_reasoning_details_are_joined_by_their_number() -> None:
    pieces: list[Any] = [
        {"type": "reasoning.text", "text": "Let", "index": 0, "signature": None},
        {"type": "reasoning.text", "text": " me", "index": 0},
        {"type": "reasoning.text", "signature": "sig", "index": 0},
        {"type": "reasoning.encrypted", "data": "xx", "index": 0},
        {"type": "reasoning.encrypted", "data": "yy", "index": 0},
        {"type": "reasoning.text", "text": "on", "index": 1},
        "odd",
    ]
    details = [
        {"type": "reasoning.text", "text": "Let me", "index": 0, "signature": "sig"},
        {"type": "reasoning.encrypted", "data": "xx", "index": 0},
        {"type": "reasoning.encrypted", "data": "yy", "index": 0},
        {"type": "reasoning.text", "text": "on", "index": 1},
    ]
    made = reply(*(chunk(reasoning_details=[one]) for one in pieces), chunk(calls=[(0, "a", "f", "{}")]))
    assert made.replay == {"provider": "openai", "model": "openai/test", "reasoning_details": details}
    said = {"role": "assistant", "content": "", "tool_calls": [], "replay": made.replay}
    assert build_messages(ModelRequest("", (said,)), "openai/test")[0]["reasoning_details"] == details
    assert "reasoning_details" not in build_messages(ModelRequest("", (said,)), "openai/test", "else.test")[0]


@pytest.mark.parametrize(
    ("provider", "server", "content"),
    [
        ("openai", "", None), ("azure", "x.test", None), ("anthropic", "", None), ("litellm_proxy", "x.test", None),
        ("openai", "x.test", ""), ("ollama", "", ""), ("deepseek", "", ""), ("openrouter", "", ""),
    ],
)  # fmt: skip
def test_no_text_beside_calls_is_left_out_for_those_who_document_it(
    provider: str, server: str, content: str | None
) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = {"role": "assistant", "content": "", "tool_calls": [call]}
    assert build_messages(ModelRequest("", (said,)), provider, server)[0]["content"] == content
    silent = {"role": "assistant", "content": ""}
    assert build_messages(ModelRequest("", (silent,)), provider, server)[0]["content"] == ""


def test_pieces_of_thinking_become_signed_blocks() -> None:
    pieces = [
        {"type": "thinking", "thinking": "one \ud83d", "signature": None},
        {"type": "thinking", "thinking": "\ude00 two", "signature": ""},
        {"type": "thinking", "thinking": "", "signature": "sig"},
        {"type": "redacted_thinking", "data": "xx"},
        {"type": "thinking", "thinking": "three"},
    ]
    made = reply(*(chunk(thinking_blocks=[one]) for one in pieces), chunk(calls=[(0, "a", "f", "{}")]))
    assert made.replay is not None
    assert made.replay["thinking_blocks"] == [
        {"type": "thinking", "thinking": "one 😀 two", "signature": "sig"},
        {"type": "redacted_thinking", "data": "xx"},
        {"type": "thinking", "thinking": "three"},
    ]


def test_images_pass_as_they_are() -> None:
    parts = [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,xx"}}]
    request = ModelRequest("sys", ({"role": "user", "content": parts},))
    assert build_messages(request, "openai")[1] == {"role": "user", "content": parts}


def test_a_provider_that_counts_nothing_is_estimated_without_a_price() -> None:
    usage = reply(chunk(content="twelve letters")).usage
    assert usage.input_tokens > 0
    assert usage.output_tokens == 5
    assert usage.cost is None


def test_an_unknown_finish_reason_is_unknown() -> None:
    assert reply(chunk(content="x"), finish="odd").finish == "unknown"


def test_a_name_that_comes_with_every_piece_is_taken_once() -> None:
    made = reply(chunk(calls=[(0, "a", "find", '{"x"')]), chunk(calls=[(0, "a", "find", ": 1}")]))
    assert made.calls == (ToolCall("a", "find", '{"x": 1}'),)
    torn = reply(chunk(calls=[(0, "a", "find", "")]), chunk(calls=[(0, None, "_all", "{}")]))
    assert torn.calls == (ToolCall("a", "find_all", "{}"),)
    late = reply(chunk(calls=[(0, "a", "find", "{")]), chunk(calls=[(0, "a", "_all", "}")]))
    assert late.calls == (ToolCall("a", "find_all", "{}"),)


DATA = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
WORDS = {"type": "text", "text": "see https://example.org"}


@pytest.mark.parametrize(
    ("part", "sent"),
    [
        (DATA, DATA),
        (WORDS, WORDS),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, None),
        (
            {"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x.png\nx"}},
            {"type": "text", "text": "[image, not fetched: http://127.0.0.1:1/x.png x]"},
        ),
        (
            {"type": "image_url", "image_url": "file:///etc/passwd"},
            {"type": "text", "text": "[image, not fetched: file:///etc/passwd]"},
        ),
        (
            {"type": "image", "source": {"type": "url", "url": "https://example.org/x"}},
            {"type": "text", "text": "[image, not fetched: https://example.org/x]"},
        ),
        (
            {"type": "file", "file": {"file_id": "gs://bucket/x.pdf"}},
            {"type": "text", "text": "[file, not fetched: gs://bucket/x.pdf]"},
        ),
    ],
)
def test_an_address_in_a_part_is_put_in_words(part: dict[str, Any], sent: dict[str, Any] | None) -> None:
    request = ModelRequest("", ({"role": "user", "content": [WORDS, part]},))
    (message,) = build_messages(request, "anthropic")
    assert message["content"] == [WORDS, part if sent is None else sent]
