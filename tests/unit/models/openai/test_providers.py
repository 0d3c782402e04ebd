"""Where the providers of the OpenAI protocol are, compared with litellm's code."""

from __future__ import annotations

import os
from typing import Any

import pytest

from bubbot.errors import ModelRefused
from bubbot.models.catalogue.keys import PROVIDER_KEY_VARIABLES
from bubbot.models.catalogue.sizes import find_mode
from bubbot.models.openai.providers import PROVIDERS, is_direct, resolve_endpoint

OLLAMA = {"ollama", "ollama_chat"}
NO_USUAL_ADDRESS = {"hosted_vllm", "lm_studio", "azure"}
"""Those for which litellm has none."""


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.endswith(("_API_KEY", "_API_BASE", "_BASE_URL", "_TOKEN")):
            monkeypatch.delenv(name)


def resolved(name: str, api_base: str | None = None, api_key: str | None = None, **variables: str) -> Any:
    return resolve_endpoint(name, api_base=api_base, api_key=api_key, variables=variables)


def by_litellm(name: str) -> tuple[str | None, str | None]:
    """Its key and its address."""
    from bubbot.models.litellm.quiet import litellm

    _, _, key, address = litellm.get_llm_provider(name)
    return key, address


@pytest.mark.usefixtures("loaded_litellm", "no_variables")
class TestTheTable:
    """OpenAI, OpenRouter and Azure are resolved in other places of litellm; `test_openai_bodies` asks those for real."""

    @pytest.mark.parametrize("name", sorted(PROVIDERS.keys() - {"openai", "openrouter", "azure"} - OLLAMA))
    def test_the_address_is_litellms(self, name: str) -> None:
        _, address = by_litellm(f"{name}/x")
        assert address is None if name in NO_USUAL_ADDRESS else address == PROVIDERS[name].address

    @pytest.mark.parametrize("name", sorted(PROVIDERS.keys() - {"openai", "openrouter", "azure"} - OLLAMA))
    def test_the_variables_are_litellms(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        provider = PROVIDERS[name]
        for variable in reversed(provider.key_variables):  # the first one counts
            monkeypatch.setenv(variable, f"key-of-{variable}")
            assert by_litellm(f"{name}/x")[0] == f"key-of-{variable}"
        for variable in reversed(provider.address_variables):
            monkeypatch.setenv(variable, f"http://{variable}/v1")
            assert by_litellm(f"{name}/x")[1] == f"http://{variable}/v1"
            assert resolved(f"{name}/x", **os.environ).address == f"http://{variable}/v1"

    def test_openais_names_are_those_of_its_own_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from openai import OpenAI

        with OpenAI(api_key="k") as client:
            assert str(client.base_url).rstrip("/") == PROVIDERS["openai"].address
        monkeypatch.setenv("OPENAI_BASE_URL", "http://elsewhere/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "from-variable")
        with OpenAI() as client:
            assert (str(client.base_url).rstrip("/"), client.api_key) == ("http://elsewhere/v1", "from-variable")
        assert resolved("openai/x", **os.environ).address == "http://elsewhere/v1"

    def test_both_tables_of_keys_agree(self) -> None:
        for name in PROVIDER_KEY_VARIABLES.keys() & PROVIDERS.keys():
            assert set(PROVIDER_KEY_VARIABLES[name]) <= set(PROVIDERS[name].key_variables)


@pytest.mark.parametrize(
    ("name", "address", "model", "url"),
    [
        ("openai/gpt-4o", None, "gpt-4o", "https://api.openai.com/v1/chat/completions"),
        ("openai/a/b", "http://h:1/v1/", "a/b", "http://h:1/v1/chat/completions"),
        ("openai/x", "http://h/v1?api-version=2", "x", "http://h/v1/chat/completions?api-version=2"),
        ("ollama_chat/qwen3", None, "qwen3", "http://localhost:11434/v1/chat/completions"),
        ("ollama_chat/qwen3", "http://h:11434", "qwen3", "http://h:11434/v1/chat/completions"),
        ("ollama/qwen3", "http://h:11434/v1", "qwen3", "http://h:11434/v1/chat/completions"),
        ("mistral/m", "http://h", "m", "http://h/v1/chat/completions"),
        ("openrouter/openai/gpt-4o", None, "openai/gpt-4o", "https://openrouter.ai/api/v1/chat/completions"),
        (
            "fireworks_ai/qwen3", None, "accounts/fireworks/models/qwen3",
            "https://api.fireworks.ai/inference/v1/chat/completions",
        ),
        (
            "fireworks_ai/accounts/me/models/x", None, "accounts/me/models/x",
            "https://api.fireworks.ai/inference/v1/chat/completions",
        ),
        (
            "azure/mine", "https://me.openai.azure.com/openai/v1/", "mine",
            "https://me.openai.azure.com/openai/v1/chat/completions",
        ),
    ],
)  # fmt: skip
def test_a_call_goes_there(name: str, address: str | None, model: str, url: str) -> None:
    endpoint = resolved(name, address, "sk-1")
    assert (endpoint.model, endpoint.url("/chat/completions")) == (model, url)


@pytest.mark.parametrize(
    ("name", "address", "key", "header", "source"),
    [
        ("openai/x", None, None, "Bearer from-variable", "OPENAI_API_KEY"),
        ("openai/x", None, "sk-1", "Bearer sk-1", "[model] api_key"),
        ("openai/x", "http://h/v1", None, "Bearer none", "[model] api_key"),  # never the one of OpenAI
        ("groq/x", "http://h/v1", None, "Bearer groq-variable", "GROQ_API_KEY"),  # a proxy in front of Groq
        ("hosted_vllm/x", "http://h/v1", None, None, "HOSTED_VLLM_API_KEY"),
        ("ollama/x", "http://me:secret@h", None, None, "OLLAMA_API_KEY"),  # the address has its own credentials
        ("openai/x", "http://me@h/v1", "sk-1", None, "[model] api_key"),
        ("openai/x", "http://:secret@h/v1", "sk-1", None, "[model] api_key"),
    ],
)
def test_the_key_is_the_one_of_its_provider(
    name: str, address: str | None, key: str | None, header: str | None, source: str
) -> None:
    endpoint = resolved(name, address, key, OPENAI_API_KEY="from-variable", GROQ_API_KEY="groq-variable")
    assert (endpoint.headers.get("authorization"), endpoint.key_source) == (header, source)


def test_azure_has_a_header_of_its_own_and_openai_knows_who_pays() -> None:
    azure = resolved("azure/x", "https://h/openai/v1", None, AZURE_API_KEY="sk-planted")
    assert azure.headers == {"api-key": "sk-planted"}
    assert "sk-planted" not in repr(azure)
    ours = resolved("openai/x", None, "k", OPENAI_ORG_ID="org-1", OPENAI_PROJECT_ID="p-1")
    assert ours.headers == {"authorization": "Bearer k", "openai-organization": "org-1", "openai-project": "p-1"}
    assert resolved("openai/x", "http://h", "k", OPENAI_ORG_ID="org-1").headers == {"authorization": "Bearer k"}


@pytest.mark.parametrize("address", ["http://[::1", "http://h:65536", "h:x/v1"])
def test_a_variable_with_no_address_is_told(address: str) -> None:
    with pytest.raises(ModelRefused, match=r"^The address of groq/x is not a web address \(GROQ_API_BASE\)$"):
        resolved("groq/x", None, "k", GROQ_API_BASE=address)


@pytest.mark.parametrize("key", ["sk-\n1", "sk-ü"])
def test_a_key_that_no_header_can_carry_is_told_without_it(key: str) -> None:
    with pytest.raises(ModelRefused, match=r"^The key of openai/x cannot be sent \(\[model\] api_key\)") as caught:
        resolved("openai/x", None, key)
    assert "sk-" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "address", "expected"),
    [
        ("openai/gpt-4o", None, True),
        ("openai/gpt-5", None, True),
        ("openai/gpt-5.1", None, True),
        ("openai/gpt-4.1", None, True),
        ("openai/gpt-5.4", None, False),  # there OpenAI takes tools on its other protocol only
        ("openai/gpt-5.4", "http://h/v1", True),
        ("openai/gpt-5-pro", None, False),  # offered on its other protocol only
        ("openai/responses/gpt-5", None, False),
        ("openai/anything", "http://h/v1", True),
        ("openai/whisper-1", None, True),
        ("groq/x", None, True),
        ("ollama/x", None, True),
        ("azure/x", "https://h/openai/v1/", True),
        ("azure/x", "https://h", False),
        ("azure/x", None, False),
        ("anthropic/claude-sonnet-4-5", None, False),
        ("anthropic/claude-sonnet-4-5", "http://h/v1", False),
    ],
)
def test_only_what_speaks_the_protocol_is_called_with_it(name: str, address: str | None, *, expected: bool) -> None:
    assert is_direct(name, mode=find_mode(name), api_base=address) is expected


@pytest.mark.parametrize(
    ("name", "is_newer"),
    [
        ("openai/gpt-4o", False),
        ("openai/gpt-5-mini", True),
        ("openai/o3-mini", True),
        ("openai/gpt-5-chat-latest", False),
        ("openrouter/openai/gpt-5", False),
        ("openai/oscar", False),
    ],
)
def test_reasoning_models_of_openai_know_the_newer_limit_only(name: str, *, is_newer: bool) -> None:
    rules = ("rename:max_tokens:max_completion_tokens@1",) if is_newer else ()
    assert resolved(name, None, "k").rules == rules
