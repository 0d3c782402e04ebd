"""Both ways to the OpenAI protocol against a real HTTP server on loopback, and how many requests each failure costs."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bubbot.app.bot import open_app
from bubbot.errors import ModelError, ModelOverflow, ModelRateLimited, ModelRefused, ModelUnavailable
from bubbot.features.budget.settings import BudgetSettings, ModelLimitSettings
from bubbot.home import Home
from bubbot.models.fallback import FallbackModel
from bubbot.models.provider import ProviderModel
from bubbot.ports.channel import Inbound, Sender
from bubbot.ports.model import (
    CountsTokens,
    Model,
    ModelEvent,
    ModelOptions,
    ModelReply,
    ModelRequest,
    TextDelta,
    ToolSpec,
)
from bubbot.ports.turn import TurnResult
from bubbot.settings.loader import ModelSettings, Settings
from tests.e2e.model_paths import make_model, model_path, via  # noqa: F401 - a fixture among them
from tests.e2e.openai_server import OpenaiServer, Step, calls, fails, says, serving
from tests.made_settings import make_settings

# Warnings of pydantic about litellm's own code: not ours to mend. Everything else stays an error.
pytestmark = [
    pytest.mark.usefixtures("model_path"),
    *(pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "UserWarning")),
]

TOOL = ToolSpec("f", "does", {"type": "object", "properties": {}})
REQUEST = ModelRequest("Be brief.", ({"role": "user", "content": "hi"},), (TOOL,))


@asynccontextmanager
async def asking(
    server: OpenaiServer, name: str = "openai/test", **settings: Any
) -> AsyncIterator[ProviderModel | FallbackModel]:
    values = {"api_base": server.address, "api_key": "sk-canary-1", "retry_wait": 0.01, **settings}
    given = {key: value for key, value in values.items() if value is not None}
    model = make_model(ModelOptions(name, Path("unused"), given))
    try:
        yield model
    finally:
        await model.aclose()


async def heard(model: Model) -> list[ModelEvent]:
    async with asyncio.timeout(60):
        return [event async for event in model.stream(REQUEST)]


async def answer(*steps: Step, **settings: Any) -> tuple[ModelReply, OpenaiServer]:
    async with serving(*steps) as server, asking(server, **settings) as model:
        *deltas, reply = await heard(model)
        assert isinstance(reply, ModelReply)
        assert "".join(one.text for one in deltas if isinstance(one, TextDelta)) == reply.text
        return reply, server


async def failure(*steps: Step, **settings: Any) -> tuple[ModelError, int]:
    """The error, and the requests it cost."""
    async with serving(*steps) as server, asking(server, **settings) as model:
        with pytest.raises(ModelError) as caught:
            await heard(model)
        assert "sk-canary-1" not in str(caught.value)
        return caught.value, len(server.requests)


async def test_an_answer_arrives_in_pieces_and_is_accounted_for() -> None:
    reply, server = await answer(says("hello out there"))
    assert (reply.text, reply.finish, reply.response_id, reply.model) == (
        "hello out there", "stop", "resp-1", "openai/test",
    )  # fmt: skip
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cached_tokens) == (11, 7, 5)
    [asked] = server.requests
    assert asked["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert [tool["function"]["name"] for tool in asked["tools"]] == ["f"]
    assert server.keys == ["Bearer sk-canary-1"]


async def test_an_own_address_without_a_key_is_not_sent_the_key_of_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    _, server = await answer(says("hello"), api_key=None)
    assert server.keys == ["Bearer none"]


async def test_parallel_calls_are_put_together() -> None:
    reply, _ = await answer(calls(("a", "f", '{"x": 1}'), (None, "g", "{}")))
    assert [(call.name, call.arguments) for call in reply.calls] == [("f", '{"x": 1}'), ("g", "{}")]
    assert all(call.id for call in reply.calls)
    assert reply.finish == "tool_calls"


async def test_reasoning_is_kept_apart() -> None:
    reply, _ = await answer(Step(chunks=({"reasoning_content": "hm"}, {"content": "Yes"})))
    assert (reply.text, reply.reasoning) == ("Yes", "hm")


async def test_an_answer_at_its_limit_says_so() -> None:
    reply, _ = await answer(says("too long to", finish="length"))
    assert (reply.text, reply.finish) == ("too long to", "length")


async def test_a_provider_that_counts_nothing_is_estimated() -> None:
    reply, _ = await answer(says("hello", usage=False))
    assert reply.usage.input_tokens > 0
    assert reply.usage.cost is None


@pytest.mark.parametrize("counted", [(-5, 7, 0), (11, -5, 0), (10**12, 7, 0), (11, 10**12, 0), (10**6, 7, 0)])
async def test_a_usage_that_cannot_be_is_estimated(
    counted: tuple[int, int, int], caplog: pytest.LogCaptureFixture
) -> None:
    reply, _ = await answer(says("hello out there", counted=counted))
    assert 0 < reply.usage.input_tokens < 1_000
    assert 0 < reply.usage.output_tokens < 100
    assert [one for one in caplog.records if getattr(one, "action", "") == "model.odd_usage"]


@pytest.mark.parametrize(("cached", "believed"), [(-5, 0), (10**12, 11), (5, 5)])
async def test_no_more_was_cached_than_was_read(cached: int, believed: int) -> None:
    reply, _ = await answer(says("hello", counted=(11, 7, cached)))
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cached_tokens) == (11, 7, believed)


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (says("hello out there", cut=True), "openai/test broke off in the middle of its answer"),
        (Step(cut=True), "openai/test broke off before its answer"),
    ],
)
async def test_a_cut_stream_is_told_in_our_words(step: Step, told: str) -> None:
    error, _ = await failure(step, retries=0)
    assert isinstance(error, ModelUnavailable)
    assert str(error) == told


PASSING = {
    "429 with Retry-After": fails(429, retry_after="0.05"),
    "408": fails(408),
    "409": fails(409),
    "500": fails(500),
    "502": fails(502),
    "503": fails(503),
    "504": fails(504),
    "529": fails(529),
    "dropped before the answer": Step(drop=True),
    "cut before the first word": Step(cut=True),
    "ended before the first word": Step(finish=None),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("first", PASSING.values(), ids=PASSING)
async def test_what_passes_costs_one_more_request(first: Step) -> None:
    reply, server = await answer(first, says("better now"))
    assert reply.text == "better now"
    assert len(server.requests) == 2


STAYING: dict[str, tuple[Step, type[ModelError], int]] = {
    "400": (fails(400), ModelRefused, 1),
    "401": (fails(401), ModelRefused, 1),
    "402": (fails(402), ModelRefused, 1),
    "403": (fails(403), ModelRefused, 1),
    "404": (fails(404), ModelRefused, 1),
    "422": (fails(422), ModelRefused, 1),
    "an empty account": (fails(429, "no credit", code="insufficient_quota"), ModelRefused, 1),
    "413": (fails(413), ModelOverflow, 1),
    "overflow by code": (fails(400, "too big", code="context_length_exceeded"), ModelOverflow, 1),
    "overflow by text": (fails(400, "prompt is too long: 9 tokens > 8 maximum"), ModelOverflow, 1),
    "overflow of Cohere": (
        fails(400, "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292"),
        ModelOverflow,
        1,
    ),
    "overflow of DashScope": (fails(400, "Range of input length should be [1, 98304]"), ModelOverflow, 1),
    "overflow of Zhipu": (fails(400, "Prompt exceeds max length", code="1261"), ModelOverflow, 1),
    "overflow of Moonshot": (fails(400, "Your request exceeded model token limit: 8192"), ModelOverflow, 1),
    "overflow of MiniMax": (fails(400, "invalid params, context window exceeds limit (2013)"), ModelOverflow, 1),
    "overflow of a proxy": (
        fails(400, "litellm.ContextWindowExceededError: litellm.BadRequestError: it is too long", code="400"),
        ModelOverflow,
        1,
    ),
    "overflow with 500": (fails(500, "the request exceeds the available context size"), ModelOverflow, 1),
    "429 every time": (fails(429, "slow down", retry_after="0.01"), ModelRateLimited, 4),
    "429 for an hour": (fails(429, "slow down", retry_after="3600"), ModelRateLimited, 1),
    "500 every time": (fails(500), ModelUnavailable, 4),
    "dropped every time": (Step(drop=True), ModelUnavailable, 4),
    "cut in mid-answer": (says("half an", cut=True), ModelUnavailable, 1),
    "truncated in mid-answer": (says("half an", finish=None), ModelUnavailable, 1),
    "truncated in a call": (
        Step(chunks=calls(("a", "f", "{}")).chunks, finish=None), ModelUnavailable, 4,
    ),
    "filtered before the first word": (Step(finish="content_filter"), ModelRefused, 1),
    "filtered in a call": (Step(chunks=calls(("a", "f", "{}")).chunks, finish="content_filter"), ModelRefused, 1),
}  # fmt: skip


@pytest.mark.parametrize("status", [400, 422, 500])
async def test_a_refusal_of_what_a_request_holds_is_told_from_one_of_a_key(status: int) -> None:
    """Also a 422, whose words litellm keeps to itself."""
    error, _ = await failure(fails(status, "Conversation roles must alternate"))
    assert isinstance(error, ModelRefused)
    assert error.is_of_request


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("step", "kind", "cost"), STAYING.values(), ids=STAYING)
async def test_what_stays_is_an_error_of_ours_at_a_known_price(step: Step, kind: type[ModelError], cost: int) -> None:
    if step.status == 422 and via() == "litellm":
        cost += 1  # it sends it again without the sampling settings the answer may have complained of
    error, requests = await failure(step)
    assert (type(error), requests) == (kind, cost)


async def test_the_wait_a_provider_asks_for_is_kept() -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await answer(fails(429, retry_after="0.3"), says("ok"))
    assert loop.time() - begun >= 0.3


async def test_a_late_first_token_is_an_error() -> None:
    error, requests = await failure(says("late", first=5.0), first_token_timeout=0.2, retries=1)
    assert str(error) == "openai/test sent nothing for 0.2 seconds"
    assert requests == 2


async def test_silence_in_mid_answer_is_an_error_and_not_tried_again() -> None:
    error, requests = await failure(says("so far so", between=5.0), idle_timeout=0.2)
    assert str(error) == "openai/test fell silent for 0.2 seconds in the middle of its answer"
    assert requests == 1


async def test_a_connection_that_is_never_taken_is_given_up() -> None:
    loop = asyncio.get_running_loop()
    with socket.socket() as full, socket.socket() as waiting:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        others = []
        for _ in range(4):  # the queue of connections is full after these
            other = socket.socket()
            other.setblocking(False)
            other.connect_ex(full.getsockname())
            others.append(other)
        begun = loop.time()
        server = OpenaiServer((), address=f"http://127.0.0.1:{full.getsockname()[1]}/v1")
        async with asking(server, connect_timeout=0.2, retries=0) as model:
            with pytest.raises(ModelUnavailable):
                await heard(model)
        assert loop.time() - begun < 60  # the system's own limit is two minutes
        for other in (*others, waiting):
            other.close()


async def test_fallbacks_are_asked_in_their_order() -> None:
    fallback = ("openai/second", "openai/third")
    reply, server = await answer(fails(503), fails(503), says("third here"), retries=0, fallback=fallback)
    assert [asked["model"] for asked in server.requests] == ["test", "second", "third"]
    assert reply.model == "openai/third"


async def test_a_refusal_asks_no_fallback() -> None:
    error, requests = await failure(fails(400), fallback=("openai/second",))
    assert (type(error), requests) == (ModelRefused, 1)


async def test_a_reader_who_leaves_closes_the_connection() -> None:
    async with serving(says("one two three four", between=0.2)) as server, asking(server) as model:
        assert isinstance(model, ProviderModel)
        events = model.stream(REQUEST)
        assert isinstance(await anext(events), TextDelta)
        await events.aclose()
        assert len(server.requests) == 1


async def turn(home: Path, server: OpenaiServer, text: str = "hi", *, name: str = "1") -> tuple[TurnResult, list[Any]]:
    """A turn of a whole bot, and its `loop.step` events."""
    model = ModelSettings(name="openai/test", api_base=server.address, retry_wait=0.01, via=via())
    given = {"write": lambda _: None}
    async with open_app(Settings(model=model), Home(home), channel_settings=given) as app:
        inbound = Inbound("stdin", name, "default", Sender("0", "owner"), text, "2026-11-21T20:21:00Z")
        result = await app.ask(inbound)
    return result, [entry.payload["data"] for entry in result.merged_entries if entry.name == "loop.step"]


async def test_a_bot_uses_a_tool_and_records_every_step(tmp_path: Path) -> None:
    saves = ("a", "memory_save", json.dumps({"content": "Likes tea."}))
    async with serving(calls(saves), says("Noted.")) as server:
        result, steps = await turn(tmp_path / "home", server)
    assert (result.status, result.text) == ("answered", "Noted.")
    assert [(step["finish"], step["response_id"], step["usage"]["input_tokens"]) for step in steps] == [
        ("tool_calls", "resp-1", 11), ("stop", "resp-1", 11),
    ]  # fmt: skip
    assert server.requests[1]["messages"][-1]["role"] == "tool"


@pytest.mark.parametrize("wrong", [("a", "memory_save", '{"content": '), ("a", "no_such_tool", "{}")])
async def test_broken_arguments_and_unknown_tools_are_told_to_the_model(
    tmp_path: Path, wrong: tuple[str, str, str]
) -> None:
    async with serving(calls(wrong), says("Sorry.")) as server:
        result, _ = await turn(tmp_path / "home", server)
    assert (result.status, result.text) == ("answered", "Sorry.")
    assert len(server.requests) == 2
    json.loads(server.requests[1]["messages"][-2]["tool_calls"][0]["function"]["arguments"])


async def test_an_overflow_opens_a_new_window_once(tmp_path: Path) -> None:
    async with serving(fails(400, "too big", code="context_length_exceeded"), says("Short now.")) as server:
        result, steps = await turn(tmp_path / "home", server)
    assert (result.text, [step["status"] for step in steps]) == ("Short now.", ["auto_handoff", "ok"])
    assert len(server.requests) == 2


async def test_reasoning_goes_back_with_the_results(tmp_path: Path) -> None:
    """A thinking model of an OpenAI-compatible address is sent its reasoning, as keys of its own message."""
    asked = calls(("a", "memory_show", "{}"))
    thinking = Step(chunks=({"reasoning_content": "look it up"}, *asked.chunks), finish="tool_calls")
    async with serving(thinking, says("Done.")) as server:
        await turn(tmp_path / "home", server)
    assert server.requests[1]["messages"][-2]["reasoning_content"] == "look it up"


async def test_a_model_that_is_not_there_is_one_sentence_and_the_bot_goes_on(tmp_path: Path) -> None:
    async with serving(Step(drop=True)) as server:
        result, steps = await turn(tmp_path / "home", server)
    assert result.status == "failed"
    assert result.text.startswith("I could not answer this: openai/test could not be reached or failed: the connection")
    assert [step["status"] for step in steps] == ["error"]


async def test_a_bot_names_the_model_that_failed_the_one_that_answered_and_the_cost(tmp_path: Path) -> None:
    async with serving(fails(503, "overloaded"), fails(503, "overloaded still"), says("From the second.")) as server:
        model = ModelSettings(
            name="openai/test",
            api_base=server.address,
            retries=1,
            retry_wait=0.01,
            fallback=["openai/second"],
            via=via(),
        )
        prices = {"each": ModelLimitSettings(input_price=100.0, output_price=1000.0)}
        settings = make_settings(BudgetSettings(models=prices), model=model)
        given = {"write": lambda _: None}
        async with open_app(settings, Home(tmp_path / "home"), channel_settings=given) as app:
            made = [
                Inbound("stdin", text, "default", Sender("0", "owner"), text, "2026-11-21T20:21:00Z")
                for text in ("hi", ",why", ",usage")
            ]
            answered, why, usage = [await app.ask(inbound) for inbound in made]
    assert answered.text == "From the second."
    (step,) = [entry.payload["data"] for entry in answered.merged_entries if entry.name == "loop.step"]
    assert (step["model"], step["answered"]) == ("openai/test", "openai/second")
    assert [(one["model"], one["status"], one.get("kind")) for one in step["attempts"]] == [
        ("openai/test", "failed", "model_unavailable"),
        ("openai/test", "failed", "model_unavailable"),
        ("openai/second", "ok", None),
    ]
    assert step["cost"] == pytest.approx((11 * 100 + 7 * 1000) / 1_000_000)
    assert "openai/test asked, openai/second answered, 11 tokens in, 7 out, cost 0.0081 USD" in why.text
    assert len([line for line in why.text.splitlines() if line.startswith("  openai/test failed after")]) == 2
    assert "0.0081" in usage.text


async def test_another_model_that_loads_leaves_the_answer_of_the_first_alone() -> None:
    """A chat that switches to another provider must not end the answers of the others."""

    def create(options: ModelOptions) -> Model:
        if via() == "litellm":
            from bubbot.models.litellm.model import create

            return create(options)
        from bubbot.models.openai.model import make_model as make_direct

        return make_direct(options, {})

    async with serving(says("a b c", between=0.05), says("again")) as server, asking(server) as model:
        heard_before: list[ModelEvent] = []
        async for event in model.stream(REQUEST):
            if not heard_before:
                await asyncio.to_thread(create, ModelOptions("openai/second", Path("unused")))
            heard_before.append(event)
        assert isinstance(heard_before[-1], ModelReply)
        assert heard_before[-1].text == "a b c"
        *_, reply = await heard(model)
        assert isinstance(reply, ModelReply)
        assert reply.text == "again"
        assert len(server.requests) == 2


async def test_without_usage_the_own_tokenizer_counts_where_the_model_is_certain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At an address of the settings the name says nothing; OpenAI's own address may be a proxy of the environment."""
    async with serving(says("hello out there", usage=False)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.address)
        async with asking(server, "openai/gpt-4o", api_base=None) as model:
            count = await model.count(REQUEST)
            *_, reply = await heard(model)
        async with asking(server, "openai/gpt-4o") as elsewhere:
            assert isinstance(elsewhere, CountsTokens)
            assert await elsewhere.count(REQUEST) is None
            *_, guessed = await heard(elsewhere)
    assert isinstance(reply, ModelReply)
    assert isinstance(guessed, ModelReply)
    assert count
    assert count.is_approximate
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (count.tokens, 3)
    assert guessed.usage.output_tokens == len("hello out there") // 3 + 1


async def test_a_model_that_was_closed_leaves_no_closed_client_to_the_next() -> None:
    async with serving(says("hello")) as server:
        for _ in range(2):
            async with asking(server) as model:
                *_, reply = await heard(model)
            assert isinstance(reply, ModelReply)
        assert len(server.requests) == 2
