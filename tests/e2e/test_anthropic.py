"""The real litellm against the Messages protocol on loopback: streams, thinking, refusals, a bot and its restart."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from bubbot.app.bot import open_app
from bubbot.errors import ModelError, ModelOverflow, ModelRateLimited, ModelRefused, ModelUnavailable
from bubbot.home import Home
from bubbot.ports.channel import Inbound, Sender
from bubbot.ports.model import ModelRequest, TextDelta
from bubbot.ports.turn import TurnResult
from bubbot.settings.loader import ModelSettings, Settings
from tests.e2e.anthropic_server import (
    MODEL,
    AnthropicServer,
    Fails,
    Says,
    hides,
    says,
    signed,
    text,
    thinks,
    uses,
)  # fmt: skip
from tests.e2e.bot import BUBBOT, environment, run
from tests.e2e.provider_asking import HI, asked, asking, exchange, outcome_of
from tests.e2e.provider_server import Held, serving

# Warnings of pydantic about litellm's own code: not ours to mend. Everything else stays an error.
pytestmark = [
    pytest.mark.usefixtures("loaded_litellm"),
    *(pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "UserWarning")),
]

NAME = f"anthropic/{MODEL}"
THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
LOOKS = says(
    thinks("Let me look at it."), hides("xx"), text("Looking."), uses("toolu_1", "f", x=1), uses("toolu_2", "f")
)
BETTER = says(text("better now"))
EVENTS = 9
"""Events of a message that says `hello out there`: start, block start, three deltas, block stop, delta, stop, a ping."""


async def test_an_answer_streams_and_is_accounted_for() -> None:
    async with serving(AnthropicServer([says(text("hello out there"))])) as server:
        outcome = await asked(NAME, server.address)
    reply = outcome.answered
    assert (reply.text, reply.finish, reply.response_id) == ("hello out there", "stop", "msg_1")
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cached_tokens) == (20, 9, 5)
    assert reply.usage.cost
    [request] = server.requests
    assert request.headers["x-api-key"] == "sk-canary-2"
    assert request.body["system"] == [{"type": "text", "text": "Be brief."}]
    assert [tool["name"] for tool in request.body["tools"]] == ["f"]


async def test_parallel_calls_and_thinking_are_kept_apart_from_the_answer() -> None:
    outcome, _ = await outcome_of(NAME, AnthropicServer([LOOKS]), parameters=THINKING)
    reply = outcome.answered
    assert [(call.id, call.name, call.arguments) for call in reply.calls] == [
        ("toolu_1", "f", '{"x": 1}'), ("toolu_2", "f", "{}"),
    ]  # fmt: skip
    assert (reply.text, reply.reasoning, reply.finish) == ("Looking.", "Let me look at it.", "tool_calls")
    assert reply.replay is not None
    assert reply.replay["thinking_blocks"] == [LOOKS.blocks[0], LOOKS.blocks[1]]


@pytest.mark.parametrize("looks", [LOOKS, says(*LOOKS.blocks[:2], *LOOKS.blocks[3:])], ids=["text", "no text"])
async def test_thinking_goes_back_unchanged_before_its_calls(looks: Says) -> None:
    """Also without text: nothing of litellm's own making stands among the model's words."""
    async with serving(AnthropicServer([looks, BETTER])) as server:
        first = await asked(NAME, server.address, parameters=THINKING)
        then = await asked(NAME, server.address, HI, *exchange(first.answered, "1", "2"), parameters=THINKING)
    assert (then.answered.text, server.refused) == ("better now", [])
    sent = server.requests[1].body["messages"]
    assert sent[1] == {"role": "assistant", "content": list(looks.blocks)}
    assert [block["tool_use_id"] for block in sent[2]["content"]] == ["toolu_1", "toolu_2"]


FORGED = {
    "left out": ({}, "Expected `thinking`"),
    "another word": ({"thinking": "Let me look away."}, "Invalid `signature`"),
    "another signature": ({"signature": signed("else")}, "Invalid `signature`"),
}


@pytest.mark.parametrize(("change", "words"), FORGED.values(), ids=FORGED)
async def test_the_server_refuses_thinking_that_was_touched(change: dict[str, str], words: str) -> None:
    """What the tests above rest on: this server is as strict as the real one."""
    async with serving(AnthropicServer([LOOKS])) as server:
        first = await asked(NAME, server.address, parameters=THINKING)
        said, *results = exchange(first.answered, "1", "2")
        replay = {"provider": "anthropic", "thinking_blocks": [{**LOOKS.blocks[0], **change}]} if change else {}
        then = await asked(NAME, server.address, HI, {**said, "replay": replay}, *results, parameters=THINKING)
    assert type(then.error) is ModelRefused
    assert words in str(then.error)
    assert len(server.refused) == 1


PASSING = {
    "529": Fails(529, "overloaded_error", "Overloaded"),
    "500": Fails(500, "api_error", "Internal server error"),
    "429": Fails(429, "rate_limit_error", "This would exceed your rate limit of 30,000 input tokens per minute"),
    "an error event at once": says(text("x"), events=0, error=("overloaded_error", "Overloaded")),
    "an error event before the first word": says(text("x"), events=3, error=("overloaded_error", "Overloaded")),
}


@pytest.mark.parametrize("first", PASSING.values(), ids=PASSING)
async def test_what_passes_is_asked_again(first: Says | Fails) -> None:
    outcome, requests = await outcome_of(NAME, AnthropicServer([first, BETTER]))
    assert (outcome.answered.text, requests) == ("better now", 2)


TOO_LONG = "prompt is too long: 210000 tokens > 200000 maximum"
NO_ROOM = "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000, decrease input length"
STAYING: dict[str, tuple[Says | Fails, type[ModelError], int]] = {
    "too long": (Fails(400, "invalid_request_error", TOO_LONG), ModelOverflow, 1),
    "no room to answer": (Fails(400, "invalid_request_error", NO_ROOM), ModelOverflow, 1),
    "413": (Fails(413, "request_too_large", "Request exceeds the maximum size"), ModelOverflow, 1),
    "no money": (Fails(400, "invalid_request_error", "Your credit balance is too low"), ModelRefused, 1),
    "401": (Fails(401, "authentication_error", "invalid x-api-key"), ModelRefused, 1),
    "404": (Fails(404, "not_found_error", "model: claude-x"), ModelRefused, 1),
    "529 every time": (Fails(529, "overloaded_error", "Overloaded"), ModelUnavailable, 4),
    "429 every time": (
        Fails(429, "rate_limit_error", "slow down", (("retry-after", "2"),)), ModelRateLimited, 4,
    ),
    "overloaded in mid-answer": (
        says(text("half an answer"), events=4, error=("overloaded_error", "Overloaded")), ModelUnavailable, 1,
    ),
    "no stop reason": (says(text("half an"), stop=None), ModelUnavailable, 1),
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("step", "kind", "cost"), STAYING.values(), ids=STAYING)
async def test_what_stays_is_an_error_of_ours(step: Says | Fails, kind: type[ModelError], cost: int) -> None:
    outcome, requests = await outcome_of(NAME, AnthropicServer([step]))
    assert (type(outcome.error), requests) == (kind, cost), outcome
    if isinstance(step, Fails) and step.headers:
        assert outcome.waits == [2.0, 2.0, 2.0]


async def test_an_answer_that_was_refused_in_its_middle_says_so() -> None:
    """People are told below it that it may be unfinished."""
    outcome, _ = await outcome_of(NAME, AnthropicServer([says(text("half an"), stop="refusal")]))
    assert (outcome.answered.text, outcome.answered.finish, outcome.answered.reason) == (
        "half an",
        "content_filter",
        "refusal",
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("cut", [True, False], ids=["dropped", "closed"])
@pytest.mark.parametrize("events", range(EVENTS + 1))
async def test_a_stream_without_its_last_event_is_never_an_answer(events: int, cut: bool) -> None:
    """Cut after each event in turn; before the first word it is asked again, and that answer counts."""
    whole = says(text("hello out there"), events=events, cut=cut)
    outcome, requests = await outcome_of(NAME, AnthropicServer([whole, BETTER]))
    if events < 4:
        assert (outcome.answered.text, requests) == ("better now", 2)
    elif events < EVENTS:
        assert (type(outcome.error), requests) == (ModelUnavailable, 1)
    else:
        assert (outcome.answered.text, requests) == ("hello out there", 1)


@pytest.mark.parametrize(("stop", "finish"), [("max_tokens", "length"), ("model_context_window_exceeded", "length")])
async def test_an_answer_without_room_says_so(stop: str, finish: str) -> None:
    outcome, _ = await outcome_of(NAME, AnthropicServer([says(text("so far"), stop=stop)]))
    assert (outcome.answered.text, outcome.answered.finish) == ("so far", finish)


async def test_a_reader_who_leaves_closes_the_connection() -> None:
    held = Held()
    speaks = AnthropicServer([says(text("one two three"), events=4, held=held)])
    async with asyncio.timeout(60), serving(speaks) as server, asking(NAME, server.address) as model:
        events = model.stream(ModelRequest("", (HI,)))
        assert isinstance(await anext(events), TextDelta)
        await events.aclose()
        await held.gone.wait()


async def turn(home: Path, server: AnthropicServer, said: str) -> TurnResult:
    """A turn of a bot that is opened for it, and closed."""
    model = ModelSettings(name=NAME, api_base=server.address, retry_wait=0.01)
    async with open_app(Settings(model=model), Home(home), channel_settings={"write": lambda _: None}) as app:
        return await app.ask(Inbound("stdin", said, "default", Sender("0", "owner"), said, "2026-11-21T20:21:00Z"))


TWO_STEPS = (
    says(thinks("What do I know of them?"), uses("toolu_1", "memory_show")),
    says(thinks("Nothing; so I note it."), text("Noting."), uses("toolu_2", "memory_save", content="Likes tea.")),
    says(thinks("That is done."), text("Noted.")),
    says(text("You like tea.")),
)


async def test_a_bot_thinks_over_two_steps_and_its_tape_still_satisfies_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-x")
    async with serving(AnthropicServer(TWO_STEPS, thinking=True)) as server:
        first = await turn(tmp_path / "home", server, "I like tea.")
        again = await turn(tmp_path / "home", server, "What do I like?")
    assert (first.text, again.text, server.refused) == ("Noted.", "You like tea.", [])
    last = [message["content"] for message in server.requests[-1].body["messages"] if message["role"] == "assistant"]
    assert [list(step.blocks) for step in TWO_STEPS[:2]] == last[:2]
    assert "What do I know of them?" not in json.dumps(last[2])  # an answer is replayed without its thinking


def bot(server: AnthropicServer) -> dict[str, str]:
    """The environment of a bot that asks this server."""
    return {
        "BUBBOT_MODEL__NAME": NAME,
        "BUBBOT_MODEL__API_BASE": server.address,
        "BUBBOT_MODEL__API_KEY": "sk-x",
    }


async def test_the_window_after_an_overflow_begins_with_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-x")
    steps = (says(text("Hello.")), Fails(400, "invalid_request_error", TOO_LONG), says(text("Short now.")))
    async with serving(AnthropicServer(steps)) as server:
        await turn(tmp_path / "home", server, "Hi.")
        result = await turn(tmp_path / "home", server, "And now?")
    assert (result.text, server.refused, len(server.requests)) == ("Short now.", [], 3)
    opening = server.requests[2].body["messages"][0]
    assert opening["role"] == "user"
    assert "[Anchor created: " in json.dumps(opening)


async def test_the_server_refuses_a_conversation_that_begins_with_an_assistant() -> None:
    server = AnthropicServer([BETTER])
    outcome, _ = await outcome_of(NAME, server, said=({"role": "assistant", "content": "I am first."}, HI))
    assert type(outcome.error) is ModelRefused
    assert server.refused == ["messages: first message must use the `user` role"]


@pytest.mark.proof
async def test_a_bot_killed_in_mid_turn_replays_its_thinking_from_the_tape(tmp_path: Path) -> None:
    home, held = tmp_path / "home", Held()
    home.mkdir()
    steps = (TWO_STEPS[0], says(text("never"), events=3, held=held), says(text("Noted.")))
    async with serving(AnthropicServer(steps, thinking=True)) as server:
        env = environment(home, **bot(server))
        child = await asyncio.create_subprocess_exec(
            *BUBBOT, "ask", "I like tea.", env=env, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        async with asyncio.timeout(120):
            await held.begun.wait()
            child.kill()
            await child.wait()
            await held.gone.wait()
        done = await asyncio.to_thread(run, home, "chat", lines=["And coffee."], env=bot(server))
    assert done.returncode == 0, done.stderr.decode()
    assert server.refused == []
    replayed = [message for asked in server.requests[2:] for message in asked.body["messages"]]
    assert {"role": "assistant", "content": list(TWO_STEPS[0].blocks)} in replayed
    assert b"Noted." in done.stdout
