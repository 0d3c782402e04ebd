"""Models whose providers speak the OpenAI chat protocol, called without litellm."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping

from bubbot.models.catalogue import sizes
from bubbot.models.catalogue.keys import KEY_PROVIDER
from bubbot.models.fit import ModelFit, limit_output
from bubbot.models.messages import provider_of
from bubbot.models.openai.client import OpenaiClient
from bubbot.models.openai.providers import resolve_endpoint
from bubbot.models.provider import ProviderModel, read_limits
from bubbot.models.usage import UsageMeter
from bubbot.ports.model import ModelOptions


def make_model(
    options: ModelOptions,
    variables: Mapping[str, str],
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    jitter: Callable[[], float] = random.random,
) -> ProviderModel:
    """Make the model. It loads certificates: call it in a thread.

    Args:
        options: name and settings. Address and key are for the provider `key_provider`, by default the model's own.
        jitter: random numbers from 0 to 1, for these waits.
    """
    name, settings = options.name, options.settings
    is_configured = provider_of(name) == settings.get(KEY_PROVIDER, provider_of(name))
    api_base, api_key = ((settings.get(key) or None) if is_configured else None for key in ("api_base", "api_key"))
    endpoint = resolve_endpoint(name, api_base=api_base, api_key=api_key, variables=variables)
    limits, meter = read_limits(settings), UsageMeter(name, own_address=endpoint.is_own)
    traits = sizes.find_traits(name, context_tokens=settings.get("context_tokens"), own_address=endpoint.is_own)
    client = OpenaiClient(name, endpoint, limits, meter, variables=variables)
    fit = ModelFit(
        name,
        options.lessons,
        server=endpoint.server,
        rules=endpoint.rules,
        parameters=endpoint.parameters | limit_output(settings),
    )
    return ProviderModel(name, traits, limits, client, meter=meter, fit=fit, sleep=sleep, jitter=jitter)
