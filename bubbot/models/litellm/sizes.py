"""What litellm's price list knows of a model, read from its file: litellm itself takes seconds to import."""

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
"""The provider whose protocol every server of one's own speaks: behind an address it says nothing about the price."""
_COSTS = ("input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost")
_TIER = re.compile(r"input_cost_per_token(_above_(\d+)k_tokens)")
_ASSISTANT_FIRST = ("openai", "azure")
"""Providers that take a conversation which opens with an assistant message; others refuse it, or their templates do."""


def traits(name: str, *, context_tokens: int | None = None, own_address: bool = False) -> ModelTraits:
    """What a request for `provider/model` may look like. `own_address`: whatever answers is not the usual provider."""
    first = name.partition("/")[0] in _ASSISTANT_FIRST and not own_address
    known = _listed(name)
    return ModelTraits(
        first_assistant=first,
        context_tokens=context_tokens or _size(known),
        images=known.get("supports_vision") is True,
    )


def known_size(name: str) -> int | None:
    """The tokens `provider/model` reads at once; None where the list does not say."""
    return _size(_listed(name))


def price(name: str, *, own_address: bool = False) -> ModelPrice | None:
    """Look up what a call of `provider/model` costs; None if nobody knows.

    The one look-up for before the call (what is reserved) and after it (what is settled): what has no price in one
    has none in the other. `own_address`: `api_base` sends the call elsewhere (see `is_own_server`).
    """
    if is_own_server(name, own_address=own_address):
        return None
    known = next((one for one in _entries(name) if _costs(one) is not None), {})
    costs = _costs(known)
    if costs is None:
        return None
    tiers = sorted(
        PriceTier(int(found[2]) * 1000, *_tier_costs(known, found[1], costs))
        for found in map(_TIER.fullmatch, known)
        if found
    )
    return ModelPrice(*costs, tuple(tiers))


def is_own_server(name: str, *, own_address: bool) -> bool:
    """Return true if what answers at an own address only goes by the name, and nobody knows what it costs.

    The protocol of OpenAI is spoken by any server. Of another provider a proxy stands there, and the provider is paid.
    """
    return own_address and name.partition("/")[0] == _OPEN_PROTOCOL


def _costs(known: dict[str, Any]) -> tuple[float, float, float | None] | None:
    """Dollars for a million tokens: read, written, and read from the provider's cache if that has a price."""
    read, write, cached = (_million(known.get(kind)) for kind in _COSTS)
    return (read, write, cached) if read is not None and write is not None and (read or write) else None


def _tier_costs(
    known: dict[str, Any], tier: str, base: tuple[float, float, float | None]
) -> tuple[float, float, float | None]:
    """The same costs above a number of tokens; what the tier does not name stays as it is below."""
    read, write, cached = (_million(known.get(kind + tier)) for kind in _COSTS)
    return (
        base[0] if read is None else read,
        base[1] if write is None else write,
        base[2] if cached is None else cached,
    )


def _million(cost: Any) -> float | None:
    return cost * 1e6 if isinstance(cost, int | float) else None


def longest_answer(name: str) -> int | None:
    """The tokens `provider/model` writes at most; None where the list does not say."""
    size = _listed(name).get("max_output_tokens")
    return size if isinstance(size, int) and size > 0 else None


def _size(known: dict[str, Any]) -> int | None:
    size = known.get("max_input_tokens")
    return size if isinstance(size, int) and size > 0 else None


def _listed(name: str) -> dict[str, Any]:
    """What the list says of `provider/model`; empty where it does not have it, or not its size."""
    return next((one for one in _entries(name) if _size(one) is not None), {})


def _entries(name: str) -> Iterator[dict[str, Any]]:
    """The entries of the list for `provider/model`, under its whole name first."""
    provider, _, model = name.partition("/")
    text = _price_list()
    for key in (name, model):
        at = text.find(f"\n    {json.dumps(key)}: {{")
        if at < 0:
            continue
        found: dict[str, Any]
        found, _ = json.JSONDecoder().raw_decode(text, text.index("{", at + len(json.dumps(key))))
        if key == name or _same(provider, found.get("litellm_provider", "")):
            yield found


def _same(provider: str, listed: str) -> bool:
    """Whether a model listed under `listed` is one of the provider's; three providers have groups of models."""
    return listed == provider or (provider in _GROUPED and listed.startswith(provider))


def _price_list() -> str:
    spec = find_spec("litellm")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        path = Path(folder) / _FILE
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return ""
