"""The model port: what every model promises, whatever answers behind it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bubbot.errors import ModelError, ModelUnconfigured
from bubbot.models.scripted import ScriptedModel
from bubbot.models.unconfigured import UnconfiguredModel
from bubbot.ports.model import Model, ModelReply, ModelRequest, ModelTraits, TextDelta, ToolSpec

SEARCH = ToolSpec("tape_search", "Searches.", {"type": "object", "properties": {"query": {"type": "string"}}})
CALL = {"id": "c", "type": "function", "function": {"name": "tape_search", "arguments": "{}"}}
REQUESTS = (
    ModelRequest("", ({"role": "user", "content": "hello"},)),
    ModelRequest("Be kind.", ({"role": "user", "content": [{"type": "text", "text": "hello"}]},), (SEARCH,)),
    ModelRequest("Be kind.", ({"role": "assistant", "content": "[Anchor created: x]: {}"}, {"role": "user", "content": "é漢👍"})),
    ModelRequest("", ({"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c", "content": "r"}), (SEARCH,)),
    ModelRequest("", (), parameters={"temperature": 0}),
)  # fmt: skip
SCRIPT = {"default": [{"text": "two words", "calls": [{"name": "tape_search"}]}]}
MODELS: dict[str, Callable[[], Model]] = {
    "scripted": ScriptedModel,
    "scripted with calls": lambda: ScriptedModel(SCRIPT),
    "scripted failing": lambda: ScriptedModel({"default": [{"error": "unavailable"}]}),
    "unconfigured": UnconfiguredModel,
}


@pytest.fixture(params=list(MODELS))
def model(request: pytest.FixtureRequest) -> Model:
    """Each model in turn."""
    return MODELS[request.param]()


@pytest.mark.parametrize("request_", REQUESTS)
async def test_a_stream_is_deltas_then_one_reply_or_a_model_error(model: Model, request_: ModelRequest) -> None:
    items = []
    try:
        async for item in model.stream(request_):
            items.append(item)  # noqa: PERF401 - what came before an error counts too
    except ModelError:
        assert not any(isinstance(item, ModelReply) for item in items)
        return
    *deltas, last = items
    assert all(isinstance(item, TextDelta) for item in deltas)
    assert isinstance(last, ModelReply)
    assert "".join(item.text for item in deltas if isinstance(item, TextDelta)) == last.text
    assert (last.finish == "tool_calls") == bool(last.calls)
    assert last.usage.input_tokens >= 0


async def test_a_request_is_not_changed(model: Model) -> None:
    for request in REQUESTS:
        before = request.as_bytes()
        try:
            async for _ in model.stream(request):
                pass
        except ModelError:
            pass
        assert request.as_bytes() == before


async def test_a_stream_may_be_closed_early_and_the_model_used_again(model: Model) -> None:
    for _ in range(2):
        stream = model.stream(REQUESTS[0])
        try:
            await anext(stream)
        except ModelError:
            continue
        await stream.aclose()  # type: ignore[attr-defined]


async def test_nothing_is_asked_before_the_first_item_is_awaited() -> None:
    model = ScriptedModel()
    stream = model.stream(REQUESTS[0])
    assert model.requests == []
    await anext(stream)
    assert len(model.requests) == 1
    await stream.aclose()  # type: ignore[attr-defined]


async def test_closing_twice_is_fine(model: Model) -> None:
    await model.aclose()
    await model.aclose()


def test_name_and_traits_are_constant(model: Model) -> None:
    assert model.name
    assert isinstance(model.traits, ModelTraits)
    assert model.traits == model.traits


async def test_without_a_model_every_request_says_how_to_get_one() -> None:
    with pytest.raises(ModelUnconfigured, match="No model is configured"):
        await anext(UnconfiguredModel().stream(REQUESTS[0]))
    assert UnconfiguredModel().traits.notice


class TestRequests:
    def test_equal_requests_have_equal_bytes(self) -> None:
        one = ModelRequest("s", ({"role": "user", "content": "é"},), (SEARCH,), {"a": 1, "b": 2})
        two = ModelRequest("s", ({"content": "é", "role": "user"},), (SEARCH,), {"b": 2, "a": 1})
        assert one.as_bytes() == two.as_bytes()
        assert one.digest() == two.digest()

    @pytest.mark.parametrize(
        "other",
        [
            ModelRequest("S", ({"role": "user", "content": "x"},)),
            ModelRequest("s", ({"role": "user", "content": "y"},)),
            ModelRequest("s", ({"role": "user", "content": "x"},), (SEARCH,)),
            ModelRequest("s", ({"role": "user", "content": "x"},), (), {"temperature": 0}),
        ],
    )
    def test_every_part_counts(self, other: ModelRequest) -> None:
        assert ModelRequest("s", ({"role": "user", "content": "x"},)).digest() != other.digest()
