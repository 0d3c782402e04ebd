"""Sizes and prices of models from litellm's price list, read from its file: importing litellm takes seconds."""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bubbot.ports.model import ModelPrice, ModelTraits, PriceTier

ASSUMED_CONTEXT_TOKENS = 32_768
"""The size of a context that nobody knows: that of the smallest models which call tools well. A request may have three fourths of it.
A server that reads less refuses, and says how much, or is noticed by its counts; with less there is hardly room for a talk beside the
prompt and the tools."""
_FILE = "model_prices_and_context_window_backup.json"
_ENTRY_END = b"\n    }"
_GROUPED = ("bedrock", "fireworks_ai", "vertex_ai")
_OPEN_PROTOCOL = "openai"
"""The provider whose protocol every self-hosted server speaks: with an own address it says nothing about the price."""
_OUTPUT = "output_cost_per_token"
_COSTS = ("input_cost_per_token", _OUTPUT, "cache_read_input_token_cost")
_TIER = r"input_cost_per_token(_above_(\d+)k_tokens)"
_ASSISTANT_FIRST = ("openai", "azure")
"""Providers that accept an assistant message first; the others, or their chat templates, refuse it."""


def find_traits(
    name: str, *, context_tokens: int | None = None, own_address: bool = False, server: str = ""
) -> ModelTraits:
    """Return what a request for `provider/model` may look like.

    Args:
        name: the model, `provider/model`.
        context_tokens: the configured context size; None to take it from the list.
        own_address: `api_base` is set, so the usual provider is not the one that answers.
        server: host and port of that address.
    """
    first = name.partition("/")[0] in _ASSISTANT_FIRST and not own_address
    entry = _find_entry(name)
    size = context_tokens or _input_size(entry)
    return ModelTraits(
        first_assistant=first,
        context_tokens=size or ASSUMED_CONTEXT_TOKENS,
        images=entry.get("supports_vision") is True,
        assumes_size=size is None,
        server=server,
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
    entry = next((entry for entry in map(_spread_tiers, _entries(name)) if _costs(entry) is not None), {})
    costs = _costs(entry)
    if costs is None:
        return None
    tiers = sorted(
        PriceTier(int(match[2]) * 1000, *_tier_costs(entry, match[1], costs))
        for match in (re.fullmatch(_TIER, key) for key in entry)
        if match
    )
    return ModelPrice(*costs, tuple(tiers))


def is_own_server(name: str, *, own_address: bool) -> bool:
    """Return true if the server at an own address only borrows the model's name, so that its price is unknown.

    Any server may speak the protocol of OpenAI. For another provider it is a proxy, and that provider is paid.
    """
    return own_address and name.partition("/")[0] == _OPEN_PROTOCOL


def _spread_tiers(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry with its list of tiers, as Qwen and Doubao have one, in the keys that all others use.

    Some have another price for reasoning: a reservation takes the higher one.
    """
    spread = dict(entry)
    for tier in entry.get("tiered_pricing") or ():
        above = int(tier["range"][0]) // 1000 if "range" in tier else 0
        costs = {kind: tier[kind] for kind in _COSTS if kind in tier}
        if _OUTPUT in costs:
            costs[_OUTPUT] = max(costs[_OUTPUT], tier.get("output_cost_per_reasoning_token", 0))
        spread |= {kind + (f"_above_{above}k_tokens" if above else ""): cost for kind, cost in costs.items()}
    return spread


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


def find_mode(name: str) -> str | None:
    """Return how `provider/model` is called, such as `chat` or `responses`; None if the list does not say."""
    return next((mode for entry in _entries(name) if isinstance(mode := entry.get("mode"), str)), None)


def find_provider(model: str, providers: Iterable[str]) -> str:
    """Return the first of the providers whose `model` is in the list; empty if none is."""
    return next((provider for provider in providers if next(_entries(f"{provider}/{model}"), None)), "")


def find_second_price(name: str) -> float | None:
    """Return the US dollars for a second of a recording that `provider/model` writes down; None if the list has none."""
    entry = next(_entries(name), {})
    costs = (entry.get(f"{side}_cost_per_second") for side in ("output", "input"))
    return next((float(cost) for cost in costs if isinstance(cost, int | float) and cost > 0), None)


def _input_size(entry: dict[str, Any]) -> int | None:
    size = entry.get("max_input_tokens")
    return size if isinstance(size, int) and size > 0 else None


def _find_entry(name: str) -> dict[str, Any]:
    """Return the list's entry for `provider/model`; empty if the list lacks it or its size."""
    return next((entry for entry in _entries(name) if _input_size(entry) is not None), {})


def _entries(name: str) -> Iterator[dict[str, Any]]:
    """Yield the list's entries for `provider/model`, the one under its full name first."""
    provider, _, model = name.partition("/")
    if not model:  # of no provider, such as `local`
        return
    for key, entry in _read_entries(dict.fromkeys((name, model))).items():
        if key == name or _is_same_provider(provider, entry.get("litellm_provider", "")):
            yield entry


def _read_entries(keys: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the list's entries under these keys, as far as there are any."""
    if (path := find_size_list()) is None:
        return {}
    changed_at = path.stat().st_mtime_ns
    texts = {key: _read_entry(path, changed_at, key) for key in keys}
    return {key: json.JSONDecoder().raw_decode(text)[0] for key, text in texts.items() if text}


@lru_cache(maxsize=64)
def _read_entry(path: Path, _changed_at: int, key: str) -> str:
    """Return the list's entry under this key as it stands there; empty if there is none.

    Only the entry is decoded, out of the mapped file: as a whole it has three megabytes, and a search of it takes a
    millisecond.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        head = f"\n    {json.dumps(key)}: ".encode()
        at = text.find(head)
        end = text.find(_ENTRY_END, at) if at >= 0 else -1
        return text[at + len(head) : end + len(_ENTRY_END)].decode() if end >= 0 else ""


def _is_same_provider(provider: str, listed: str) -> bool:
    """Return true if a model listed under `listed` is the provider's; three providers have groups of models."""
    return listed == provider or (provider in _GROUPED and listed.startswith(provider))


def find_size_list() -> Path | None:
    """Return the file of the list; None without litellm."""
    spec = find_spec("litellm")
    paths = (Path(folder) / _FILE for folder in (spec.submodule_search_locations if spec else None) or ())
    return next((path for path in paths if path.is_file()), None)
