"""The providers that speak the OpenAI chat protocol: addresses, variables of keys, differences. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from msgspec import Struct

from bubbot.errors import ModelRefused
from bubbot.models.catalogue.keys import PLACEHOLDER_KEY
from bubbot.models.messages import provider_of


class OpenaiProvider(Struct, frozen=True):
    """A provider of the protocol.

    Attributes:
        address: its usual address.
        key_variables: the environment variables that may hold its key; the first that is set counts.
        address_variables: the environment variables that may hold another address; the first that is set counts.
        path_suffix: every address of the provider ends with this; empty if nothing has to be appended.
        model_prefix: prepended to the name of a model that has no prefix.
        sends_usage_unasked: the provider reports usage without `stream_options`, and may refuse that key.
        key_header: the header with the key; empty for the usual one, `Authorization: Bearer`.
        is_openai: the models are OpenAI's, and OpenAI's rules for single models apply.
    """

    address: str
    key_variables: tuple[str, ...] = ()
    address_variables: tuple[str, ...] = ()
    path_suffix: str = ""
    model_prefix: str = ""
    sends_usage_unasked: bool = False
    key_header: str = ""
    is_openai: bool = False


_OLLAMA = OpenaiProvider("http://localhost:11434/v1", ("OLLAMA_API_KEY",), ("OLLAMA_API_BASE",), path_suffix="/v1")
PROVIDERS: Mapping[str, OpenaiProvider] = {
    "openai": OpenaiProvider(
        "https://api.openai.com/v1", ("OPENAI_API_KEY",), ("OPENAI_BASE_URL", "OPENAI_API_BASE"), is_openai=True
    ),
    "azure": OpenaiProvider("", ("AZURE_API_KEY",), key_header="api-key", is_openai=True),
    "deepseek": OpenaiProvider("https://api.deepseek.com/beta", ("DEEPSEEK_API_KEY",), ("DEEPSEEK_API_BASE",)),
    "fireworks_ai": OpenaiProvider(
        "https://api.fireworks.ai/inference/v1",
        ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY", "FIREWORKSAI_API_KEY", "FIREWORKS_AI_TOKEN"),
        ("FIREWORKS_API_BASE",),
        model_prefix="accounts/fireworks/models/",
    ),
    "groq": OpenaiProvider("https://api.groq.com/openai/v1", ("GROQ_API_KEY",), ("GROQ_API_BASE",)),
    "hosted_vllm": OpenaiProvider("http://localhost:8000/v1", ("HOSTED_VLLM_API_KEY",), ("HOSTED_VLLM_API_BASE",)),
    "llamafile": OpenaiProvider("http://127.0.0.1:8080/v1", ("LLAMAFILE_API_KEY",), ("LLAMAFILE_API_BASE",)),
    "lm_studio": OpenaiProvider("http://localhost:1234/v1", ("LM_STUDIO_API_KEY",), ("LM_STUDIO_API_BASE",)),
    "mistral": OpenaiProvider(
        "https://api.mistral.ai/v1",
        ("MISTRAL_AZURE_API_KEY", "MISTRAL_API_KEY"),
        ("MISTRAL_AZURE_API_BASE",),
        path_suffix="/v1",
        sends_usage_unasked=True,
    ),
    "ollama": _OLLAMA,
    "ollama_chat": _OLLAMA,
    "openrouter": OpenaiProvider(
        "https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY", "OR_API_KEY"), ("OPENROUTER_API_BASE",)
    ),
    "together_ai": OpenaiProvider(
        "https://api.together.ai/v1",
        ("TOGETHER_API_KEY", "TOGETHER_AI_API_KEY", "TOGETHERAI_API_KEY", "TOGETHER_AI_TOKEN"),
        ("TOGETHER_AI_API_BASE",),
    ),
    "xai": OpenaiProvider("https://api.x.ai/v1", ("XAI_API_KEY",), ("XAI_API_BASE",)),
}
"""The providers by their names in litellm; a test compares addresses and variables with it."""

_AZURE_PATH = "/openai/v1"
"""The path of Azure that speaks OpenAI's protocol; its older paths have another form, which litellm knows."""
_RESPONSES_VERSION = (5, 4)
"""The first version of GPT that OpenAI refuses tools on this protocol, unless the model is told not to reason."""
_GPT_VERSION = r"gpt-(\d+)(?:\.(\d+))?(?![\dk])"
_REASONING_MODEL = r"(.*/)?(o\d|gpt-[5-9])(?!.*-chat)"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is called.

    Attributes:
        model: its name as the provider knows it.
        address: without a trailing slash; paths of the protocol are appended.
        key_source: the setting or the variables that the key came from; empty if unknown.
        is_own: the address comes from the settings; the server there may only borrow the model's name.
    """

    model: str
    address: str
    headers: Mapping[str, str] = field(repr=False)
    key_source: str
    is_own: bool
    server: str
    provider: OpenaiProvider

    def url(self, path: str) -> str:
        """Return the URL of a path of the protocol, such as `/chat/completions`; a query of the address stays."""
        parts = urlsplit(self.address)
        return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path))

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules of its requests: OpenAI's reasoning models know only the newer name for the most tokens of an answer."""
        has_newer = self.provider.is_openai and re.match(_REASONING_MODEL, self.model)
        return ("rename:max_tokens:max_completion_tokens@1",) if has_newer else ()

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of every request of a chat."""
        return {} if self.provider.sends_usage_unasked else {"stream_options": {"include_usage": True}}


def is_direct(name: str, *, mode: str | None, api_base: str | None) -> bool:
    """Return true if a model is called with the OpenAI chat protocol.

    Args:
        name: the model, `provider/model`.
        mode: the mode of the model in litellm's list, such as `chat` or `responses`; None if the list lacks it.
        api_base: the configured address of the model's provider; None for the usual one.
    """
    provider, _, model = name.partition("/")
    if provider == "azure":
        is_compatible = api_base is not None and urlsplit(api_base).path.rstrip("/").endswith(_AZURE_PATH)
        return is_compatible and mode in (None, "chat", "audio_transcription") and not _needs_responses(model)
    if provider not in PROVIDERS or model.startswith("responses/"):
        return False
    if api_base is None and provider in ("openai", "xai"):
        return mode in (None, "chat", "audio_transcription") and not (provider == "openai" and _needs_responses(model))
    return True


def _needs_responses(model: str) -> bool:
    """Return true if OpenAI offers the model with tools only on its other protocol, "Responses"."""
    match = re.match(_GPT_VERSION, model)
    return match is not None and (int(match[1]), int(match[2] or 0)) >= _RESPONSES_VERSION


def resolve_endpoint(name: str, *, api_base: str | None, api_key: str | None, variables: Mapping[str, str]) -> Endpoint:
    """Choose the address and the key for a model.

    Args:
        name: the model, `provider/model`, for which `is_direct` is true.
        api_base: the configured address of its provider; None for the usual one.
        api_key: the configured key of its provider; None to take it from the environment.

    Raises:
        ModelRefused: the address or the key cannot be used.
    """
    provider = PROVIDERS[provider_of(name)]
    address = api_base or _first(variables, provider.address_variables) or provider.address
    parts = _split(address if "://" in address else f"https://{address}", name, provider)
    if provider.path_suffix and not parts.path.rstrip("/").endswith(provider.path_suffix):
        parts = parts._replace(path=parts.path.rstrip("/") + provider.path_suffix)
    is_placeholder = api_key is None and api_base is not None and provider_of(name) == "openai"
    key = PLACEHOLDER_KEY if is_placeholder else api_key or _first(variables, provider.key_variables)
    source = "[model] api_key" if api_key or is_placeholder else " or ".join(provider.key_variables)
    model = name.partition("/")[2]
    if provider.model_prefix and not model.startswith("accounts/"):
        model = provider.model_prefix + model
    if key is not None and not (key.isascii() and key.isprintable()):
        raise ModelRefused(f"The key of {name} cannot be sent ({source}): it holds a character that no key has")
    headers = _key_headers(provider, key, parts)
    if provider_of(name) == "openai" and api_base is None:
        headers |= _account_headers(variables)
    server = find_server(name, api_base=api_base, variables=variables)
    return Endpoint(model, urlunsplit(parts), headers, source, api_base is not None, server, provider)


def find_server(name: str, *, api_base: str | None, variables: Mapping[str, str]) -> str:
    """Return host and port of the address that the settings or the environment name for a model, without credentials.

    Empty for the provider's usual address. Lessons from refusals are kept for each server.

    Args:
        name: the model, `provider/model`.
        api_base: the configured address of its provider; None if none is configured.
    """
    provider = PROVIDERS.get(provider_of(name))
    address = api_base or (_first(variables, provider.address_variables) if provider else None)
    if not address:
        return ""
    place = urlsplit(address if "://" in address else f"https://{address}").netloc.rpartition("@")[2].lower()
    return "" if provider and place == urlsplit(provider.address).netloc else place


def _split(address: str, name: str, provider: OpenaiProvider) -> SplitResult:
    """Split an address. Raise `ModelRefused` for an invalid one of the environment; the settings have checked theirs."""
    try:
        parts = urlsplit(address)
        parts.port  # noqa: B018 - it is read here
    except ValueError:
        source = " or ".join(provider.address_variables)
        raise ModelRefused(f"The address of {name} is not a web address ({source})") from None
    return parts


def _first(variables: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next(filter(None, map(variables.get, names)), None)


def _key_headers(provider: OpenaiProvider, key: str | None, parts: SplitResult) -> dict[str, str]:
    """Return the header with the key; credentials in the address are sent in its place by the HTTP client."""
    if key is None or (parts.username or parts.password):
        return {}
    return {provider.key_header: key} if provider.key_header else {"authorization": f"Bearer {key}"}


def _account_headers(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of OpenAI that say which organization and project pay, if the environment does."""
    headers = {
        "openai-organization": _first(variables, ("OPENAI_ORG_ID", "OPENAI_ORGANIZATION")),
        "openai-project": _first(variables, ("OPENAI_PROJECT_ID",)),
    }
    return {name: value for name, value in headers.items() if value}
