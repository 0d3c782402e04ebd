"""Sizes and prices of models from litellm's price list, read from its file: importing litellm takes seconds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bubbot.ports.model import ModelPrice, ModelTraits, PriceTier

_FILE = "model_prices_and_context_window_backup.json"
_GROUPED = ("bedrock", "fireworks_ai", "vertex_ai")
_OPEN_PROTOCOL = "openai"
"""The provider whose protocol every self-hosted server speaks: with an own address it says nothing about the price."""
_COSTS = ("input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost")
_TIER = re.compile(r"input_cost_per_token(_above_(\d+)k_tokens)")
_ASSISTANT_FIRST = ("openai", "azure")
"""Providers that accept an assistant message first; the others, or their chat templates, refuse it."""


def find_traits(name: str, *, context_tokens: int | None = None, own_address: bool = False) -> ModelTraits:
    """Return what a request for `provider/model` may look like.

    Args:
        name: the model, `provider/model`.
        context_tokens: the configured context size; None to take it from the list.
        own_address: `api_base` is set, so the usual provider is not the one that answers.
    """
    first = name.partition("/")[0] in _ASSISTANT_FIRST and not own_address
    entry = _find_entry(name)
    return ModelTraits(
        first_assistant=first,
        context_tokens=context_tokens or _input_size(entry),
        images=entry.get("supports_vision") is True,
    )


def find_input_limit(name: str) -> int | None:
    """Return the tokens that `provider/model` reads at once; None if the list does not say."""
    return _input_size(_find_entry(name))


def find_price(name: str, *, own_address: bool = False) -> ModelPrice | None:
    """Look up the price of `provider/model`; None if unknown.

    The reservation before a call and the settlement after it share this look-up: a model without a price in one has
    none in the other. `own_address`: `api_base` sends the call elsewhere (see `is_own_server`).
    """
    if is_own_server(name, own_address=own_address):
        return None
    entry = next((entry for entry in _entries(name) if _costs(entry) is not None), {})
    costs = _costs(entry)
    if costs is None:
        return None
    tiers = sorted(
        PriceTier(int(match[2]) * 1000, *_tier_costs(entry, match[1], costs))
        for match in map(_TIER.fullmatch, entry)
        if match
    )
    return ModelPrice(*costs, tuple(tiers))


def is_own_server(name: str, *, own_address: bool) -> bool:
    """Return true if the server at an own address only borrows the model's name, so that its price is unknown.

    Any server may speak the protocol of OpenAI. For another provider it is a proxy, and that provider is paid.
    """
    return own_address and name.partition("/")[0] == _OPEN_PROTOCOL


def _costs(entry: dict[str, Any]) -> tuple[float, float, float | None] | None:
    """Return dollars for a million tokens: read, written, and read from the provider's cache if that has a price."""
    read, write, cached = (_per_million(entry.get(kind)) for kind in _COSTS)
    return (read, write, cached) if read is not None and write is not None and (read or write) else None


def _tier_costs(
    entry: dict[str, Any], tier: str, base: tuple[float, float, float | None]
) -> tuple[float, float, float | None]:
    """Return the costs above a tier's number of tokens; a cost that the tier does not name stays as in `base`."""
    read, write, cached = (_per_million(entry.get(kind + tier)) for kind in _COSTS)
    return (
        base[0] if read is None else read,
        base[1] if write is None else write,
        base[2] if cached is None else cached,
    )


def _per_million(cost: Any) -> float | None:
    return cost * 1e6 if isinstance(cost, int | float) else None


def find_output_limit(name: str) -> int | None:
    """Return the tokens that `provider/model` writes at most; None if the list does not say."""
    size = _find_entry(name).get("max_output_tokens")
    return size if isinstance(size, int) and size > 0 else None


def _input_size(entry: dict[str, Any]) -> int | None:
    size = entry.get("max_input_tokens")
    return size if isinstance(size, int) and size > 0 else None


def _find_entry(name: str) -> dict[str, Any]:
    """Return the list's entry for `provider/model`; empty if the list lacks it or its size."""
    return next((entry for entry in _entries(name) if _input_size(entry) is not None), {})


def _entries(name: str) -> Iterator[dict[str, Any]]:
    """Yield the list's entries for `provider/model`, the one under its full name first."""
    provider, _, model = name.partition("/")
    text = _price_list()
    for key in (name, model):
        at = text.find(f"\n    {json.dumps(key)}: {{")
        if at < 0:
            continue
        entry: dict[str, Any]
        entry, _ = json.JSONDecoder().raw_decode(text, text.index("{", at + len(json.dumps(key))))
        if key == name or _is_same_provider(provider, entry.get("litellm_provider", "")):
            yield entry


def _is_same_provider(provider: str, listed: str) -> bool:
    """Return true if a model listed under `listed` is the provider's; three providers have groups of models."""
    return listed == provider or (provider in _GROUPED and listed.startswith(provider))


def _price_list() -> str:
    spec = find_spec("litellm")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        path = Path(folder) / _FILE
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return ""
