"""Answers that are nearly those of the OpenAI protocol, on both ways: read as they were meant, whole or told to be cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bubbot.errors import ModelError, ModelOverflow, ModelRateLimited, ModelRefused, ModelUnavailable
from bubbot.texts import Texts
from tests.e2e.model_paths import model_path  # noqa: F401 - a fixture
from tests.e2e.openai_server import OpenaiServer, Step, calls, fails, says
from tests.e2e.provider_server import listening
from tests.e2e.test_openai_protocol import answer, failure, turn

pytestmark = [
    pytest.mark.usefixtures("model_path"),
    *(pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "UserWarning")),
]


def body(*, finish: str | None = "stop", usage: bool = True, **message: Any) -> Step:
    """An answer in one piece, to a request for a stream."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    counts = {"usage": {"prompt_tokens": 21, "completion_tokens": 3, "total_tokens": 24}} if usage else {}
    return Step(body={"id": "x", "object": "chat.completion", "choices": [choice], **counts})


def call(name: str, arguments: Any, *, given: str | None = "a", index: int | None = 0, **more: Any) -> dict[str, Any]:
    """A call, or a piece of one."""
    parts = {"index": index, "id": given, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {key: value for key, value in parts.items() if value is not None} | more


def piece(*of: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": list(of)}


ENDED: dict[str, Any] = {"finish": None, "done": True}
WHOLE: dict[str, tuple[Step, str, str]] = {
    "an end without a reason": (says("all of it", **ENDED), "all of it", "stop"),
    "one piece": (body(content="all of it"), "all of it", "stop"),
    "one piece without a reason": (body(content="all of it", finish=None), "all of it", "stop"),
    "one piece, refused": (body(content=None, refusal="I can't."), "I can't.", "stop"),
    "one piece, cut": (body(content="half", finish="length"), "half", "length"),
    "the whole message at the end": (
        Step(events=({"id": "x", "choices": [{"index": 0, "message": {"content": "all"}, "finish_reason": "stop"}]},)),
        "all", "stop",
    ),
    "a refusal": (Step(chunks=({"refusal": "I can't "}, {"refusal": "help."})), "I can't help.", "stop"),
    "a refusal after words": (Step(chunks=({"content": "Well. "}, {"refusal": "No."})), "Well. No.", "stop"),
    "capitals": (says("all of it", finish="STOP"), "all of it", "stop"),
    "another word": (says("all of it", finish="eos"), "all of it", "stop"),
    "a limit": (says("half", finish="model_length"), "half", "length"),
    "a filter": (says("half", finish="content_filter"), "half", "content_filter"),
    "safety": (says("half", finish="SAFETY"), "half", "content_filter"),
    "a refusal as the reason": (says("half", finish="refusal"), "half", "content_filter"),
    "a pause": (says("half", finish="pause_turn"), "half", "unknown"),
    "other": (says("half", finish="other"), "half", "unknown"),
}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("step", "text", "finish"), WHOLE.values(), ids=WHOLE)
async def test_an_answer_is_read_as_it_was_meant(step: Step, text: str, finish: str) -> None:
    reply, server = await answer(step)
    assert (reply.text, reply.finish, len(server.requests)) == (text, finish, 1)


async def test_an_answer_in_one_piece_has_all_its_parts() -> None:
    step = body(content="Look.", reasoning_content="hm", tool_calls=[call("f", {"x": 1}, index=None)], finish=None)
    reply, _ = await answer(step)
    assert (reply.text, reply.reasoning, reply.finish, reply.response_id) == ("Look.", "hm", "tool_calls", "x")
    assert [(made.id, made.name, made.arguments) for made in reply.calls] == [("a", "f", '{"x": 1}')]
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (21, 3)
    uncounted, _ = await answer(body(content="Look.", usage=False))
    assert uncounted.usage.input_tokens > 0


ONE = [("a", "f", '{"x": 1}')]
TWO = [*ONE, ("b", "g", "{}")]
CALLS: dict[str, tuple[tuple[dict[str, Any], ...], list[tuple[str, str, str]]]] = {
    "one id and one number": (
        (piece(call("f", '{"x": 1}')), piece(call("g", "{}"))), [*ONE, ("a_1", "g", "{}")],
    ),
    "no numbers, in one piece": ((piece(call("f", '{"x": 1}', index=None), call("g", "{}", given="b", index=None)),), TWO),
    "no numbers, in two pieces": (
        (piece(call("f", '{"x": 1}', index=None)), piece(call("g", "{}", given="b", index=None))), TWO,
    ),
    "all of them number 0": ((piece(call("f", '{"x": 1}')), piece(call("g", "{}", given="b"))), TWO),
    "an object": ((piece(call("f", {"x": 1})),), ONE),
    "the name with each piece": ((piece(call("f", '{"x"')), piece(call("f", ": 1}"))), ONE),
    "an empty object first": ((piece(call("f", "{}")), piece({"index": 0, "function": {"arguments": '{"x": 1}'}})), ONE),
    "without an end": ((piece(call("f", '{"x": 1}')),), ONE),
}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("chunks", "made"), CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("end", [{"finish": "tool_calls"}, ENDED], ids=["an end", "no reason"])
async def test_calls_in_other_pieces_are_the_calls_that_were_meant(
    chunks: tuple[dict[str, Any], ...], made: list[tuple[str, str, str]], end: dict[str, Any]
) -> None:
    reply, _ = await answer(Step(chunks=chunks, **end))
    assert [(one.id, one.name, one.arguments) for one in reply.calls] == made
    assert reply.finish == "tool_calls"


BAD = {"message": "bad thing"}
FAILING: dict[str, tuple[Step, type[ModelError], str]] = {
    "half a call and no reason": (Step(chunks=(piece(call("f", '{"x"')),), **ENDED), ModelUnavailable, "broke off"),
    "no word and no reason": (Step(**ENDED), ModelUnavailable, "broke off"),
    "a malformed call": (Step(finish="MALFORMED_FUNCTION_CALL"), ModelUnavailable, "not an answer: MALFORMED"),
    "one piece, malformed": (body(content="", finish="MALFORMED_FUNCTION_CALL"), ModelUnavailable, "not an answer: MALFORMED"),
    "a filter at the first word": (Step(finish="SAFETY"), ModelRefused, "content filter"),
    "vLLM, earlier": (Step(events=({"object": "error", "code": 400, **BAD},), finish=None), ModelRefused, "refused the request: bad thing"),
    "a body of vLLM, earlier": (Step(body={"object": "error", "code": 400, **BAD}), ModelRefused, "refused the request: bad thing"),
    "an event of an error": (Step(events=({"type": "error", **BAD},), finish=None), ModelUnavailable, "failed: bad thing"),
    "an error in one": (
        Step(events=({"type": "error", "error": {"type": "overloaded_error", **BAD}},), finish=None), ModelUnavailable, "failed: bad thing",
    ),
    "a detail": (Step(events=({"detail": "bad thing"},), finish=None), ModelUnavailable, "failed: bad thing"),
    "a body with a detail": (Step(body={"detail": "bad thing"}), ModelUnavailable, "failed: bad thing"),
    "a rate in words": (Step(events=({"error": {"code": "rate_limit_exceeded", **BAD}},), finish=None), ModelRateLimited, "bad thing"),
    "a refusal in words": (
        Step(events=({"error": {"type": "invalid_request_error", **BAD}},), finish=None), ModelRefused, "refused the request: bad thing",
    ),
    "a key in words": (
        Step(body={"error": {"code": "invalid_api_key", **BAD}}), ModelRefused, "refused the credentials ([model] api_key): bad thing",
    ),
    "too long in words": (
        Step(events=({"error": {"code": "context_length_exceeded", **BAD}},), finish=None), ModelOverflow, "bad thing",
    ),
    "400 with a detail": (Step(400, {"detail": "bad thing"}), ModelRefused, "refused the request: bad thing"),
    "400 with details": (Step(400, {"detail": [{"msg": "bad thing"}]}), ModelRefused, 'refused the request: [{"msg": "bad thing"}]'),
    "400 with a message": (Step(400, BAD), ModelRefused, "refused the request: bad thing"),
    "500 with a message": (Step(500, BAD), ModelUnavailable, "failed: bad thing"),
    "400 with an object": (Step(400, {"object": "error", **BAD}), ModelRefused, "refused the request: bad thing"),
}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("step", "kind", "words"), FAILING.values(), ids=FAILING)
async def test_a_failure_keeps_its_reason(step: Step, kind: type[ModelError], words: str) -> None:
    error, _ = await failure(step, retries=0)
    assert type(error) is kind
    assert words in str(error)
    assert "bad thing" not in words or "bad thing" in error.words


@pytest.mark.parametrize("first", [Step(finish="MALFORMED_FUNCTION_CALL"), Step(finish="error"), Step(**ENDED)])
async def test_what_is_not_an_answer_is_asked_for_again(first: Step) -> None:
    reply, server = await answer(first, says("better now"))
    assert (reply.text, len(server.requests)) == ("better now", 2)


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [("pause_turn", "answer_unfinished"), ("SAFETY", "answer_filtered"), ("MAX_TOKENS", "answer_cut")],
)
async def test_people_are_told_that_an_answer_may_be_unfinished(tmp_path: Path, reason: str, sentence: str) -> None:
    server = OpenaiServer((says("I will look", finish=reason),))
    async with listening(server.serve) as address:
        server.address = f"{address}/v1"
        result, (step,) = await turn(tmp_path / "home", server)
    assert result.text == f"I will look\n\n{Texts('en').say(sentence, reason=reason)}"
    assert step.get("finish_reason") == (None if reason == "MAX_TOKENS" else reason)


class Wants(OpenaiServer):
    """A server that refuses each later request unless a check of its messages passes."""

    def __init__(self, check: Any, refusal: str, *steps: Step) -> None:
        super().__init__(steps)
        self.check, self.refusal, self.left = check, refusal, list(steps)

    def _step(self) -> Step:
        return self.left.pop(0) if self.check(self.requests[-1]["messages"]) else fails(400, self.refusal)


def called(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [made for message in messages for made in message.get("tool_calls") or ()]


EXTRA: dict[str, Any] = {"extra_content": {"google": {"thought_signature": "U0lHTkVE"}}}
DETAILS = [{"type": "reasoning.encrypted", "data": "U0lHTkVE", "id": "a", "index": 0}]
WANTS: dict[str, tuple[dict[str, Any], Any]] = {
    "a signature with the call": (
        piece(call("memory_show", "{}", **EXTRA)),
        lambda messages: all(made.get("extra_content") == EXTRA["extra_content"] for made in called(messages)),
    ),
    "details of its reasoning": (
        piece(call("memory_show", "{}")) | {"reasoning_details": DETAILS},
        lambda messages: all(
            message.get("reasoning_details") == DETAILS for message in messages if message.get("tool_calls")
        ),
    ),
    "a name for each call": (
        piece(call("", "{}")), lambda messages: all(made["function"]["name"] for made in called(messages)),
    ),
    "no empty text": (
        piece(call("memory_show", "{}")),
        lambda messages: all(message.get("content") != "" for message in messages),
    ),
    "a text": (
        piece(call("memory_show", "{}")),
        lambda messages: all(isinstance(message.get("content"), str) for message in messages),
    ),
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("chunk", "check"), WANTS.values(), ids=WANTS)
async def test_a_call_goes_back_as_its_server_wants_it(tmp_path: Path, chunk: dict[str, Any], check: Any) -> None:
    refusal = "messages.2.content: text content blocks must be non-empty"  # what is learned from, if anything
    asked = Step(chunks=(chunk,), finish="tool_calls")
    server = Wants(check, refusal, asked, says("Done."), asked, says("Done."))
    async with listening(server.serve) as address:
        server.address = f"{address}/v1"
        for name in ("1", "2"):
            result, _ = await turn(tmp_path / "home", server, name=name)
            assert result.text.endswith("Done."), result.text
            assert check(server.requests[-1]["messages"])
            assert called(server.requests[-1]["messages"])


async def test_what_a_server_wants_back_goes_to_no_other(tmp_path: Path) -> None:
    chunk = piece(call("memory_show", "{}", **EXTRA)) | {"reasoning_details": DETAILS}
    for name, steps in (("1", (Step(chunks=(chunk,), finish="tool_calls"), says("Done."))), ("2", (says("Done."),))):
        server = OpenaiServer(steps)
        async with listening(server.serve) as address:
            server.address = f"{address}/v1"
            await turn(tmp_path / "home", server, name=name)
    (made,) = called(server.requests[-1]["messages"])
    assert made.keys() == {"id", "type", "function"}
    assert not any("reasoning_details" in message for message in server.requests[-1]["messages"])


async def test_a_call_without_a_name_is_an_error_that_the_model_can_read(tmp_path: Path) -> None:
    server = OpenaiServer((calls(("a", "", "{}")), says("Done.")))
    async with listening(server.serve) as address:
        server.address = f"{address}/v1"
        result, _ = await turn(tmp_path / "home", server)
    assert result.text == "Done."
    assert "there is no tool without a name" in server.requests[-1]["messages"][-1]["content"]
