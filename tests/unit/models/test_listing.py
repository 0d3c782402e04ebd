"""The list of a provider's models, over HTTP on loopback: what is asked for, and what is understood."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bubbot.errors import ModelError, ModelRateLimited, ModelRefused, ModelUnavailable
from bubbot.models.listing import ModelList, find_list, read_list
from bubbot.ports.model import ListedModel
from tests.e2e.key_server import KEY, WRONG_KEY, KeyServer, key_server
from tests.e2e.provider_server import Answer, Asked, serving


class Says:
    """A server with one answer to everything."""

    def __init__(self, body: Any, status: int = 200) -> None:
        self.address, self.requests = "", list[Asked]()
        self.fixed = Answer((json.dumps(body).encode(),), status, "application/json")

    def answer(self, asked: Asked) -> Answer:
        return self.fixed


async def listed(name: str, base: str, key: str = KEY, *, seconds: float = 10) -> list[ListedModel] | None:
    where = find_list(name, api_base=base, api_key=key, variables={})
    assert where is not None
    models = await read_list(name, where, {}, seconds=seconds)
    return None if models is None else [*models]


async def failure(name: str, base: str, key: str = KEY, *, seconds: float = 10) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await listed(name, base, key, seconds=seconds)
    return caught.value


async def test_the_list_is_read_with_the_key() -> None:
    async with key_server(KeyServer(models=("a", "b"))) as server:
        assert await listed("openai/x", server.base) == [ListedModel("a", 0), ListedModel("b", 1)]
        assert await listed("anthropic/x", server.address) == [ListedModel("a", 0), ListedModel("b", 1)]
        assert server.paths == ["/v1/models", "/v1/models?limit=1000"]
        assert server.requests[1].headers["anthropic-version"] == "2023-06-01"


async def test_a_refused_key_is_an_error_without_the_key() -> None:
    async with key_server() as server:
        error = await failure("openai/x", server.base, WRONG_KEY)
    assert isinstance(error, ModelRefused)
    assert error.status == 401
    assert WRONG_KEY not in str(error)
    assert str(error).startswith("openai/x refused the credentials ([model] api_key): Incorrect API key")


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"error": {"message": "API key not valid. Please pass one."}}, 400, ModelRefused),
        ({"error": {"message": "slower"}}, 429, ModelRateLimited),
        ({"error": "down"}, 503, ModelUnavailable),
    ],
)
async def test_other_failures_have_their_kinds(body: object, status: int, kind: type[ModelError]) -> None:
    async with serving(Says(body, status)) as server:
        error = await failure("openai/x", f"{server.address}/v1")
    assert type(error) is kind
    assert (error.status == 401) is (status == 400)


async def test_a_server_that_is_slow_or_not_there_is_unavailable() -> None:
    async with key_server(KeyServer(hangs=True)) as server:
        slow = await failure("openai/x", server.base, seconds=0.2)
    assert str(slow) == "openai/x did not answer within 0.2 seconds"
    nobody = await failure("openai/x", "http://127.0.0.1:9/v1")
    assert str(nobody) == "openai/x could not be reached: nothing listens at its address"
    assert {type(slow), type(nobody)} == {ModelUnavailable}


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ([{"id": "m"}, {"id": 5}, "odd"], ["m"]),
        ({"models": [{"name": "models/gemini-9"}]}, ["gemini-9"]),
        ({"data": []}, []),
        ({"hello": 1}, None),
        ("text", None),
    ],
)
async def test_lists_have_several_forms(body: object, names: list[str] | None) -> None:
    async with serving(Says(body)) as server:
        models = await listed("openai/x", f"{server.address}/v1")
    assert (models if models is None else [model.name for model in models]) == names


async def test_a_server_without_a_list_is_no_failure() -> None:
    async with key_server(KeyServer(models=None)) as server:
        assert await listed("openai/x", server.base) is None


def urls(name: str, **variables: str) -> tuple[str, ...]:
    where = find_list(name, api_base=None, api_key=None, variables=variables)
    return where.urls if isinstance(where, ModelList) else ()


def test_each_provider_has_its_place() -> None:
    assert urls("openai/x", OPENAI_API_KEY=KEY) == ("https://api.openai.com/v1/models",)
    assert urls("openrouter/x") == ("https://openrouter.ai/api/v1/key", "https://openrouter.ai/api/v1/models")
    assert urls("deepseek/x") == ("https://api.deepseek.com/models",)
    assert urls("ollama_chat/x") == ("http://localhost:11434/v1/models",)
    assert urls("gemini/x") == ("https://generativelanguage.googleapis.com/v1beta/models?pageSize=1000",)
    assert urls("bedrock/x") == urls("azure/x") == ()


ANTHROPIC = "https://api.anthropic.com"


@pytest.mark.parametrize(
    ("variables", "address", "header"),
    [
        ({"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_AUTH_TOKEN": "token"}, ANTHROPIC, ("x-api-key", KEY)),
        ({"ANTHROPIC_AUTH_TOKEN": "token"}, ANTHROPIC, ("authorization", "Bearer token")),
        ({"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": "http://h/"}, "http://h", ("x-api-key", KEY)),
        (
            {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": "http://other", "ANTHROPIC_API_BASE": "http://h"},
            "http://h",
            ("x-api-key", KEY),
        ),
    ],
)
def test_the_key_of_anthropic_goes_where_its_calls_send_it(
    variables: dict[str, str], address: str, header: tuple[str, str]
) -> None:
    where = find_list("anthropic/x", api_base=None, api_key=None, variables=variables)
    assert where is not None
    assert where.urls == (f"{address}/v1/models?limit=1000",)
    assert {*where.headers.items()} == {header, ("anthropic-version", "2023-06-01")}
    assert where.key_source == "ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN"
    set_key = find_list("anthropic/x", api_base="http://own", api_key="sk-own", variables=variables)
    assert set_key is not None
    assert (set_key.headers["x-api-key"], set_key.key_source) == ("sk-own", "[model] api_key")
    assert set_key.urls == ("http://own/v1/models?limit=1000",)


def test_the_key_of_google_goes_to_google_alone() -> None:
    both = {"GEMINI_API_KEY": "second", "GOOGLE_API_KEY": "first"}
    where = find_list("gemini/x", api_base=None, api_key=None, variables=both)
    assert where is not None
    assert where.headers == {"x-goog-api-key": "first"}
    assert urls("gemini/x", GEMINI_API_KEY="k", GEMINI_API_BASE="http://h") == ()
    assert find_list("gemini/x", api_base="http://h", api_key="k", variables={}) is None


def test_an_own_address_of_deepseek_is_taken_as_it_is() -> None:
    where = find_list("deepseek/x", api_base="http://h/beta/v1", api_key="k", variables={})
    assert where is not None
    assert where.urls == ("http://h/beta/v1/models",)


@pytest.mark.parametrize("status", [301, 302, 307])
async def test_no_redirect_takes_a_key_elsewhere(status: int) -> None:
    async with serving(Says({"data": []})) as other:
        moved = Answer((b"moved",), status, headers=(("location", f"{other.address}/v1/models"),))
        server = Says({})
        server.fixed = moved
        async with serving(server):
            error = await failure("anthropic/x", server.address)
        assert (type(error), error.status, other.requests) == (ModelUnavailable, status, [])


def test_no_key_is_in_its_repr() -> None:
    assert KEY not in repr(find_list("anthropic/x", api_base=None, api_key=KEY, variables={}))
