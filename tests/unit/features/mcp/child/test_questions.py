"""Questions of servers: a call ends with them, nobody waits, and the same call goes on with the answers."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from bubbot.features.mcp.child import connection as connections
from bubbot.features.mcp.child.values import ACCEPTED, DECLINED, ElicitedInput, McpFailed, ServerPlace, accept
from tests.mcp.hostile import ASKED_SCHEMA
from tests.mcp.places import call, connected, hostile
from tests.mcp.raw_http import Handler, RawRequest, misbehave, serving

QUESTION: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Really?", "requestedSchema": ASKED_SCHEMA},
}


async def test_an_old_server_waits_within_the_call_and_goes_on_with_the_answer() -> None:
    async with connected(hostile("asks")) as connection:
        asked = await call(connection)
        (question,) = asked.questions
        yes = accept({"sure": True}, question.schema)
        answered = await call(connection, answers={question.key: yes}, state=asked.state)

    assert (question.message, question.schema, question.url) == ("Really 0?", ASKED_SCHEMA, "")
    assert (asked.text, asked.structured) == ("", None)
    assert json.loads(answered.text)[1] == [{"action": "accept", "content": {"count": 3, "sure": True}}]
    assert answered.questions == ()


async def test_each_further_question_is_asked_for_itself() -> None:
    async with connected(hostile("asks_twice")) as connection:
        first = await call(connection)
        answers: dict[str, Any] = {first.questions[0].key: DECLINED}
        second = await call(connection, answers=answers, state=first.state)
        answers[second.questions[0].key] = accept({"sure": False}, {})
        reply = await call(connection, answers=answers, state=second.state)

    assert [question.message for question in (*first.questions, *second.questions)] == ["Really 0?", "Really 1?"]
    assert json.loads(reply.text)[1] == [{"action": "decline"}, {"action": "accept", "content": {"sure": False}}]


async def test_another_connection_makes_the_call_again_with_the_answers() -> None:
    async with connected(hostile("asks")) as connection:
        asked = await call(connection)
    answers = {question.key: accept({"sure": True}, question.schema) for question in asked.questions}
    async with connected(hostile("asks")) as connection:
        reply = await call(connection, answers=answers, state=asked.state)

    assert json.loads(reply.text)[1][0]["action"] == "accept"


async def test_a_question_that_nobody_answers_holds_up_the_server_for_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HOLD_SECONDS", 0.2)
    async with connected(hostile("asks")) as connection:
        asked = await call(connection)
        await connection.list_tools()  # this server answers when the call has ended
        answers = {question.key: accept({"sure": True}, question.schema) for question in asked.questions}
        reply = await call(connection, answers=answers, state=asked.state)

    assert json.loads(reply.text)[1][0]["action"] == "accept"


async def test_another_call_does_not_wait_for_the_answer_to_the_question_of_one() -> None:
    async with connected(hostile("asks")) as connection:
        first = await call(connection)
        second = await call(connection, arguments={"other": 1})
        answers = {question.key: accept({"sure": True}, question.schema) for question in first.questions}
        reply = await call(connection, answers=answers, state=first.state)

    assert second.questions == first.questions
    assert second.state != first.state
    assert json.loads(reply.text)[1][0]["action"] == "accept"


async def test_an_address_to_open_first_is_a_question_too() -> None:
    async with connected(hostile("wants_url")) as connection:
        asked = await call(connection)
        (question,) = asked.questions
        reply = await call(connection, answers={question.key: ACCEPTED}, meta={"n": 1})

    assert (question.message, question.url, question.schema) == ("Log in there.", "https://login.example/x", {})
    assert reply.text == '{"n": 1}'


def asking(*requests: dict[str, Any], state: str | None = "their state") -> Handler:
    """Ask at the first call, and tell at the second one what came back."""

    async def ask(request: RawRequest) -> None:
        params = request.message["params"]
        if "inputResponses" in params or "requestState" in params:
            told = json.dumps([params.get("inputResponses"), params.get("requestState")])
            await request.result(content=[{"type": "text", "text": told}])
        else:
            more = {"requestState": state} if state is not None else {}
            questions = (
                {"inputRequests": {f"q{number}": each for number, each in enumerate(requests)}} if requests else {}
            )
            await request.result(resultType="input_required", **questions, **more)

    return misbehave(ask)


async def test_a_server_of_2026_gives_its_questions_as_a_result() -> None:
    async with serving(asking(QUESTION)) as server, connected(ServerPlace("x", url=server.url())) as connection:
        asked = await call(connection)
        reply = await call(connection, answers={"q0": accept({"sure": True}, ASKED_SCHEMA)}, state=asked.state)

    assert asked.questions == (ElicitedInput(key="q0", message="Really?", schema=ASKED_SCHEMA),)
    assert asked.state == "their state"
    assert json.loads(reply.text) == [
        {"q0": {"action": "accept", "content": {"sure": True, "count": 3}}},
        "their state",
    ]


async def test_a_server_that_only_wants_the_call_again_gets_it() -> None:
    async with serving(asking()) as server, connected(ServerPlace("x", url=server.url())) as connection:
        reply = await call(connection)

    assert json.loads(reply.text) == [None, "their state"]


@pytest.mark.parametrize(
    ("method", "params"), [("sampling/createMessage", {"messages": [], "maxTokens": 1}), ("roots/list", {})]
)
async def test_sampling_and_roots_in_a_result_are_refused_in_words(method: str, params: dict[str, Any]) -> None:
    handler = asking({"method": method, "params": params})
    async with serving(handler) as server, connected(ServerPlace("x", url=server.url())) as connection:
        with pytest.raises(McpFailed, match=re.escape(f"it wants {method}, which is refused")):
            await call(connection)


async def test_a_form_or_a_state_without_measure_is_refused_in_words() -> None:
    long = {**QUESTION, "params": {**QUESTION["params"], "requestedSchema": {**ASKED_SCHEMA, "x": "y" * 70_000}}}
    for handler, reason in (
        (asking(long), "the form that it asks for is longer than 64 kB"),
        (asking(QUESTION, state="s" * 70_000), "the state of its question is longer than 64 kB"),
        (asking(*[QUESTION] * 21), "it asks more than 20 questions at once"),
    ):
        async with serving(handler) as server, connected(ServerPlace("x", url=server.url())) as connection:
            with pytest.raises(McpFailed, match=reason):
                await call(connection)


async def test_an_old_server_is_told_that_its_form_has_no_measure() -> None:
    async with connected(hostile("asks_much")) as connection:
        reply = await call(connection)

    assert "the form that it asks for is longer than" in reply.text


async def test_a_wrong_answer_is_refused_before_anything_is_sent() -> None:
    async with serving(asking(QUESTION)) as server, connected(ServerPlace("x", url=server.url())) as connection:
        with pytest.raises(McpFailed, match="an answer has an action"):
            await call(connection, answers={"q0": {"action": "perhaps"}})

        assert all(request.message["method"] != "tools/call" for request in server.requests)
