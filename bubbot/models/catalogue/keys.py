"""The providers that require a key, and the variables that may hold it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

PROVIDER_KEY_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "cerebras": ("CEREBRAS_API_KEY",),
    "cohere": ("COHERE_API_KEY", "CO_API_KEY"),
    "deepinfra": ("DEEPINFRA_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "fireworks_ai": ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY", "FIREWORKSAI_API_KEY", "FIREWORKS_AI_TOKEN"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "groq": ("GROQ_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
    "moonshot": ("MOONSHOT_API_KEY",),
    "nvidia_nim": ("NVIDIA_NIM_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY", "OR_API_KEY"),
    "together_ai": ("TOGETHER_API_KEY", "TOGETHER_AI_API_KEY", "TOGETHERAI_API_KEY", "TOGETHER_AI_TOKEN"),
    "xai": ("XAI_API_KEY",),
}
"""The variables that may hold a provider's key; any one will do. Providers with other ways are left out."""

PLACEHOLDER_KEY = "none"
"""The key for an own address of OpenAI's protocol if none is set: clients and some servers insist on one."""

KEY_PROVIDER = "key_provider"
"""In the settings of litellm's adapter: the provider that `api_key` and `api_base` are for, whichever model is called."""
SERVER = "server"
"""In the settings of litellm's adapter: what `find_server` says of the model, with the environment."""


def describe_key_source(provider: str, *, is_set: bool) -> str:
    """Return where the key for a provider comes from; empty if unknown.

    Args:
        provider: of the model that is called.
        is_set: the settings hold a key for this provider, or litellm must not look for one.
    """
    return "[model] api_key" if is_set else " or ".join(PROVIDER_KEY_VARIABLES.get(provider, ()))


def find_keyless_models(
    names: Iterable[str], *, provider: str, is_set: bool, variables: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """Return the models that lack a required key, each with the variables that could hold it.

    Args:
        names: models, `provider/model`.
        provider: the provider that `[model] api_key` and `api_base` are for.
        is_set: one of the two is set; a self-hosted server has its own rules about keys.
    """
    missing: dict[str, tuple[str, ...]] = {}
    for name in names:
        own_provider = name.partition("/")[0]
        candidates = PROVIDER_KEY_VARIABLES.get(own_provider, ())
        if candidates and not (is_set and own_provider == provider) and not any(map(variables.get, candidates)):
            missing[name] = candidates
    return missing
