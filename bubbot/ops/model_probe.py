"""Trial calls to the provider of the configured model, for `bubbot init` and `bubbot doctor`."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit, urlunsplit

from bubbot.app.models import choose_model
from bubbot.errors import ModelRefused, ModelUnavailable
from bubbot.home import Home
from bubbot.ports.model import FailedAttempt, ListedModel, ModelRequest
from bubbot.settings.environment import read_variables
from bubbot.settings.loader import Settings

PROBE_TOKENS = 64
"""Tokens of the answer to a probe at most; a model that thinks needs some before the first word."""


async def list_models(settings: Settings, name: str, *, seconds: float) -> tuple[ListedModel, ...] | None:
    """Read the model list of the configured provider, with its key; None if it offers none.

    Args:
        name: a model or a provider, for errors.
        seconds: the time for the answer.

    Raises:
        ModelRefused: the provider refused the key.
        ModelError: the provider could not be reached, or failed.
    """
    from bubbot.models.listing import find_list, read_list  # loads an HTTP client

    key = settings.model.api_key.get_secret_value() if settings.model.api_key is not None else None
    variables = read_variables()
    where = await asyncio.to_thread(
        find_list, settings.model.name, api_base=settings.model.api_base, api_key=key, variables=variables
    )
    return None if where is None else await read_list(name, where, variables, seconds=seconds)


async def call_model(settings: Settings, home: Home, *, seconds: float) -> None:
    """Call the configured model once, with a message of a few tokens and no retry.

    A refusal of the request's form counts as an answer: it proves the key and the address.

    Raises:
        ConfigError: no model can have this name.
        ModelError: the call failed.
    """
    limits = {"fallback": [], "retries": 0, "max_tokens": PROBE_TOKENS}
    model = choose_model(settings.model_copy(update={"model": settings.model.model_copy(update=limits)}), home)
    request = ModelRequest("", ({"role": "user", "content": "Answer with the word OK."},))
    has_taught = False
    try:
        async with asyncio.timeout(seconds):
            async for event in model.stream(request):
                has_taught = isinstance(event, FailedAttempt) and event.lesson is not None
    except ModelRefused:
        if not has_taught:
            raise
    except TimeoutError:
        raise ModelUnavailable(f"{model.name} did not answer within {seconds:g} seconds") from None
    finally:
        await model.aclose()


def describe_address(url: str) -> str:
    """Return scheme, host and port of an address, without its possibly secret parts."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], "", "", ""))
