"""Replies put together from pieces, and why they ended."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from bubbot.errors import ModelRefused, ModelUnavailable
from bubbot.models.reply import FinishReader, ReplyAssembler
from bubbot.ports.model import ModelRequest

REQUEST = ModelRequest("", ({"role": "user", "content": "hi"},))

Piece = tuple[object, str, str, str]
"""Index, id, name, arguments."""

ONE = [("a", "f", '{"x": 1}')]
TWO = [("a", "f", '{"x": 1}'), ("b", "g", "{}")]
ONE_ID = [("a", "f", '{"x": 1}'), ("a_1", "g", "{}")]
PIECES: dict[str, tuple[list[Piece], list[tuple[str, str, str]]]] = {
    "as the protocol has it": ([(0, "a", "f", ""), (0, "", "", '{"x"'), (0, "", "", ": 1}"), (1, "b", "g", "{}")], TWO),
    "in turns": ([(0, "a", "f", '{"x"'), (1, "b", "g", "{"), (0, "", "", ": 1}"), (1, "", "", "}")], TWO),
    "all of them number 0": ([(0, "a", "f", '{"x": 1}'), (0, "b", "g", "{}")], TWO),
    "all of them number 0, in turns": (
        [(0, "a", "f", '{"x"'), (0, "b", "g", "{"), (0, "a", "", ": 1}"), (0, "b", "", "}")], TWO,
    ),
    "one number and one id": ([(0, "a", "f", '{"x": 1}'), (0, "a", "g", "{}")], ONE_ID),
    "one number and one id, torn": (
        [(0, "a", "f", '{"x"'), (0, "a", "", ": 1}"), (0, "a", "g", "{"), (0, "a", "", "}")], ONE_ID,
    ),
    "one id, two numbers": ([(0, "a", "f", '{"x": 1}'), (1, "a", "g", "{}")], ONE_ID),
    "one number, one id, one name": (
        [(0, "a", "f", '{"x": 1}'), (0, "a", "f", '{"x": 2}')], [("a", "f", '{"x": 1}'), ("a_1", "f", '{"x": 2}')],
    ),
    "no id": ([(0, "", "f", '{"x": 1}'), (0, "", "g", "{}")], [("call_r_0", "f", '{"x": 1}'), ("call_r_1", "g", "{}")]),
    "no id, one name": (
        [(0, "", "f", '{"x": 1}'), (0, "", "f", '{"x": 2}')],
        [("call_r_0", "f", '{"x": 1}'), ("call_r_1", "f", '{"x": 2}')],
    ),
    "the name with each piece": ([(0, "a", "f", '{"x"'), (0, "a", "f", ": 1}"), (0, "a", "f", "")], ONE),
    "an id for each piece": ([(0, "a", "f", ""), (0, "b", "", '{"x"'), (0, "c", "", ": 1}"), (0, "d", "", "")], ONE),
    "id and name for each piece": ([(0, "a", "f", '{"x"'), (0, "b", "f", ": 1}")], ONE),
    "the name in pieces": ([(0, "a", "fi", ""), (0, "", "nd", ""), (0, "", "", "{}")], [("a", "find", "{}")]),
    "the name in pieces, with the id": ([(0, "a", "fi", "{"), (0, "a", "nd", "}")], [("a", "find", "{}")]),
    "the id late": ([(0, "", "f", ""), (0, "a", "", '{"x": 1}')], ONE),
    "the whole call once more": ([(0, "a", "f", '{"x"'), (0, "", "", ": 1}"), (0, "a", "f", '{"x": 1}')], ONE),
    "an empty object first": ([(0, "a", "f", "{}"), (0, "", "", '{"x"'), (0, "", "", ": 1}")], ONE),
    "an empty object first, with the name": ([(0, "a", "f", "{}"), (0, "a", "f", '{"x": 1}')], ONE),
    "white space after the end": ([(0, "a", "f", '{"x": 1}'), (0, "", "", "")], ONE),
    "new ids, no names": ([(0, "a", "f", '{"x": 1}'), (0, "b", "", "{}")], [ONE[0], ("b", "", "{}")]),
    "no arguments at all": ([(0, "a", "f", ""), (1, "b", "g", "")], [("a", "f", ""), ("b", "g", "")]),
    "a made id that a call has already": (
        [(0, "call_r_1", "f", "{}"), (1, "", "g", "{}")], [("call_r_1", "f", "{}"), ("call_r_1_1", "g", "{}")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("pieces", "calls"), PIECES.values(), ids=PIECES)
def test_pieces_become_the_calls_that_were_meant(pieces: list[Piece], calls: list[tuple[str, str, str]]) -> None:
    answer = ReplyAssembler("openai/test", response_id="r")
    for piece in pieces:
        answer.add_call(*piece)
    reply = answer.build_reply("tool_calls", REQUEST, None)
    assert [(call.id, call.name, call.arguments) for call in reply.calls] == calls


def test_long_arguments_cost_no_more_for_each_piece() -> None:
    """Whether they are whole is looked at only if they may be: 20,000 looks at half a megabyte would take minutes."""
    answer = ReplyAssembler("openai/test")
    arguments = json.dumps({"text": "twenty-five letters here " * 20_000})
    for at in range(0, len(arguments), 25):
        answer.add_call(0, "a", "f", arguments[at : at + 25])
    (call,) = answer.build_reply("tool_calls", REQUEST, None).calls
    assert call.arguments == arguments


@pytest.mark.parametrize(
    ("text", "pieces", "end"),
    [
        ("hi", [], "stop"),
        ("", [], None),
        ("hi", [(0, "a", "f", "{}")], "tool_calls"),
        ("hi", [(0, "a", "f", "")], "tool_calls"),
        ("hi", [(0, "a", "f", '{"x"')], None),
        ("hi", [(0, "a", "f", "{}"), (1, "b", "f", "{")], None),
    ],
)
def test_an_answer_without_an_end_looks_whole_or_cut(text: str, pieces: list[Piece], end: str | None) -> None:
    answer = ReplyAssembler("openai/test", text=text)
    for piece in pieces:
        answer.add_call(*piece)
    assert answer.natural_end == end


ENDS: list[tuple[str, str, Any, str]] = [
    ("stop", "", "stop", ""), ("STOP", "tool_calls", "tool_calls", ""), ("COMPLETE", "", "stop", ""),
    ("eos", "", "stop", ""), ("eos_token", "", "stop", ""), ("end_turn", "stop", "stop", ""),
    ("tool_use", "", "tool_calls", ""), ("function_call", "", "tool_calls", ""), ("stop", "length", "stop", ""),
    ("length", "", "length", ""), ("MAX_TOKENS", "", "length", ""), ("model_length", "", "length", ""),
    ("model_context_window_exceeded", "stop", "length", ""), ("length", "stop", "length", ""),
    ("content_filter", "", "content_filter", "content_filter"), ("refusal", "stop", "content_filter", "refusal"),
    ("SAFETY", "", "content_filter", "SAFETY"), ("RECITATION", "", "content_filter", "RECITATION"),
    ("pause_turn", "stop", "unknown", "pause_turn"), ("other", "", "unknown", "other"),
    ("OTHER", "content_filter", "content_filter", "OTHER"), ("odd", "length", "length", ""),
    ("\nodd **word**", "", "unknown", "odd"), ("(", "", "unknown", ""), ("x" * 99, "", "unknown", "x" * 60),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "reported", "finish", "noted"), ENDS)
def test_ends_are_known_by_the_words_of_all_providers(reason: str, reported: str, finish: Any, noted: str) -> None:
    answer = ReplyAssembler("openai/test", text="half")
    assert FinishReader("openai/test").read(reason, answer, reported) == finish
    assert answer.build_reply(finish, REQUEST, None).reason == noted


@pytest.mark.parametrize("reason", ["error", "ERROR", "insufficient_system_resource", "network_error", "abort"])
def test_a_failed_answer_may_be_asked_for_again(reason: str) -> None:
    with pytest.raises(ModelUnavailable, match="failed in the middle"):
        FinishReader("openai/test").read(reason, ReplyAssembler("openai/test", text="half"))


@pytest.mark.parametrize(
    "reason",
    ["MALFORMED_FUNCTION_CALL", "malformed_function_call", "MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE",
     "TOO_MANY_TOOL_CALLS", "UNEXPECTED_TOOL_CALL"],
)  # fmt: skip
def test_what_is_not_an_answer_may_be_asked_for_again(reason: str) -> None:
    with pytest.raises(ModelUnavailable, match=f"not an answer: {reason}"):
        FinishReader("openai/test").read(reason, ReplyAssembler("openai/test"), "stop")


def test_a_filter_that_left_nothing_is_a_refusal() -> None:
    reader, answer = FinishReader("openai/test"), ReplyAssembler("openai/test", reasoning="hm")
    with pytest.raises(ModelRefused, match="content filter"):
        reader.read("SAFETY", answer)
    answer = ReplyAssembler("openai/test", text="I call")
    answer.add_call(0, "a", "f", "{}")
    with pytest.raises(ModelRefused, match="content filter"):
        reader.read("SAFETY", answer)


def test_an_unknown_end_is_logged_once_for_each_word(caplog: pytest.LogCaptureFixture) -> None:
    reader = FinishReader("openai/test")
    with caplog.at_level(logging.WARNING):
        for word in ("odd", "stop", "odd", "other", "SAFETY", "odd"):
            reader.read(word, ReplyAssembler("openai/test", text="half"))
    records: list[Any] = [
        record for record in caplog.records if getattr(record, "action", "") == "model.unknown_finish"
    ]
    assert [record.args for record in records] == [("openai/test", "odd"), ("openai/test", "other")]
