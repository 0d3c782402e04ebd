"""The list of models that a provider offers. Reading it costs nothing and shows whether the provider takes the key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from bubbot.errors import ModelError, ModelUnavailable
from bubbot.log import Redactor, redact
from bubbot.models.catalogue.keys import describe_key_source
from bubbot.models.failures import build_failure, classify_status
from bubbot.models.messages import provider_of
from bubbot.models.openai.http import ConnectionFailed, HttpClient
from bubbot.models.openai.providers import PROVIDERS, resolve_endpoint
from bubbot.models.openai.proxies import open_http
from bubbot.ports.model import ListedModel

MAX_LIST_BYTES = 8 * 1024 * 1024
"""Bytes of a list at most; that of OpenRouter has one megabyte."""
NO_LIST_STATUSES = frozenset({404, 405, 410, 501})
"""Statuses of a server that offers no list."""
_BAD_KEY_WORDS = ("API_KEY_INVALID", "API key not valid")
"""What Google says of a wrong key, with the status 400."""


@dataclass(frozen=True, slots=True)
class ModelList:
    """Where a provider offers its list.

    Attributes:
        urls: fetched in this order; the last one is the list.
        key_source: the setting or the variables that the key came from; empty if unknown.
    """

    urls: tuple[str, ...]
    headers: Mapping[str, str] = field(repr=False)
    key_source: str = ""


def find_list(
    name: str, *, api_base: str | None, api_key: str | None, variables: Mapping[str, str]
) -> ModelList | None:
    """Return where a model's provider offers its list; None if bubbot knows no such place.

    Args:
        name: the model, `provider/model`.
        api_base: the configured address of its provider; None for the usual one.
        api_key: the configured key of its provider; None to take it from the environment.

    Raises:
        ModelRefused: the key cannot be sent.
    """
    provider = provider_of(name)
    if provider in PROVIDERS:
        endpoint = resolve_endpoint(name, api_base=api_base, api_key=api_key, variables=variables)
        if not urlsplit(endpoint.address).hostname:  # Azure has no usual address
            return None
        urls: tuple[str, ...] = (endpoint.url("/models"),)
        if provider == "openrouter":  # it shows its list to anybody
            urls = (endpoint.url("/key"), *urls)
        elif provider == "deepseek" and api_base is None:
            urls = (urls[0].replace("/beta/", "/"),)
        return ModelList(urls, endpoint.headers, endpoint.key_source)
    source = describe_key_source(provider, is_set=api_key is not None)
    # Addresses and keys as litellm takes them for a call, or a key would go where no call sends it.
    if provider == "anthropic":
        address = api_base or _first(variables, "ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL")
        key, token = api_key or variables.get("ANTHROPIC_API_KEY", ""), variables.get("ANTHROPIC_AUTH_TOKEN")
        headers = {"authorization": f"Bearer {token}"} if token and not key else {"x-api-key": key}
        url = f"{(address or 'https://api.anthropic.com').rstrip('/')}/v1/models?limit=1000"
        return ModelList((url,), {**headers, "anthropic-version": "2023-06-01"}, source)
    if provider == "gemini" and not (api_base or variables.get("GEMINI_API_BASE")):
        url = "https://generativelanguage.googleapis.com/v1beta/models?pageSize=1000"
        key = api_key or _first(variables, "GOOGLE_API_KEY", "GEMINI_API_KEY")
        return ModelList((url,), {"x-goog-api-key": key}, source)
    return None


def _first(variables: Mapping[str, str], *names: str) -> str:
    return next(filter(None, map(variables.get, names)), "")


async def read_list(
    name: str, where: ModelList, variables: Mapping[str, str], *, seconds: float
) -> tuple[ListedModel, ...] | None:
    """Read the list of a provider; None if the server there offers none.

    Args:
        name: a model or a provider, for errors.
        seconds: the time limit for all requests together.

    Raises:
        ModelRefused: the provider refused the key.
        ModelRateLimited: the provider limits the rate.
        ModelUnavailable: it could not be reached, failed, or did not answer in time.
    """
    client = await asyncio.to_thread(
        open_http, where.urls[-1], variables, connect_seconds=seconds, follows_redirects=False
    )
    try:
        async with asyncio.timeout(seconds):
            for url in where.urls:
                status, body = await _get(client, url, where.headers)
                if status in NO_LIST_STATUSES:
                    return None
                if not 200 <= status < 300:
                    raise _build_failure(name, where, status, body)
            return _parse_list(body)
    except TimeoutError:
        raise ModelUnavailable(f"{name} did not answer within {seconds:g} seconds") from None
    except ConnectionFailed as error:
        raise ModelUnavailable(f"{name} could not be reached: {error}") from None
    finally:
        await client.aclose()


async def _get(client: HttpClient, url: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
    response = await client.send("GET", url, {**headers, "accept": "application/json", "user-agent": "bubbot"})
    try:
        body = bytearray()
        while len(body) <= MAX_LIST_BYTES and (piece := await response.read()):
            body += piece
        return response.status, bytes(body)
    finally:
        await response.aclose()


def _build_failure(name: str, where: ModelList, status: int, body: bytes) -> ModelError:
    text = body.decode(errors="replace")
    data = _parse_json(body)
    error = data.get("error") if isinstance(data, Mapping) else None
    words = error.get("message") if isinstance(error, Mapping) else error
    message = " ".join((words if isinstance(words, str) else text).split()) or f"HTTP status {status}"
    if any(word in text for word in _BAD_KEY_WORDS):
        status = 401
    own_secrets = Redactor([value.removeprefix("Bearer ") for value in where.headers.values()])
    kind = classify_status(status, message)
    failure = build_failure(kind, name, redact(own_secrets(message)), status=status, key_source=where.key_source)
    failure.status = status
    return failure


def _parse_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _parse_list(body: bytes) -> tuple[ListedModel, ...] | None:
    """Parse a list in any known form; None for any other body."""
    data = _parse_json(body)
    if isinstance(data, Mapping):
        data = data.get("data", data.get("models"))
    if not isinstance(data, list):
        return None
    models = []
    for row in data:
        name = (row.get("id") or row.get("name")) if isinstance(row, Mapping) else None
        if isinstance(name, str) and name.isprintable():
            created = row.get("created")
            models.append(ListedModel(name.removeprefix("models/"), created if isinstance(created, int) else 0))
    return tuple(models)
