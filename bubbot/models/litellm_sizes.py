"""What litellm's price list knows of a model, read from its file: litellm itself takes seconds to import."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bubbot.model import ModelTraits, Price

_FILE = "model_prices_and_context_window_backup.json"
_GROUPED = ("bedrock", "fireworks_ai", "vertex_ai")
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


def price(name: str) -> Price | None:
    """What the list says that `provider/model` costs; None where it says nothing."""
    known = _listed(name)
    kinds = ("input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost")
    read, write, cached = (known.get(kind) for kind in kinds)
    if not isinstance(read, int | float) or not isinstance(write, int | float) or not (read or write):
        return None
    return Price(read * 1e6, write * 1e6, cached * 1e6 if isinstance(cached, int | float) else None)


def longest_answer(name: str) -> int | None:
    """The tokens `provider/model` writes at most; None where the list does not say."""
    size = _listed(name).get("max_output_tokens")
    return size if isinstance(size, int) and size > 0 else None


def _size(known: dict[str, Any]) -> int | None:
    size = known.get("max_input_tokens")
    return size if isinstance(size, int) and size > 0 else None


def _listed(name: str) -> dict[str, Any]:
    """What the list says of `provider/model`; empty where it does not have it."""
    provider, _, model = name.partition("/")
    text = _price_list()
    for key in (name, model):
        at = text.find(f"\n    {json.dumps(key)}: {{")
        if at < 0:
            continue
        found: dict[str, Any]
        found, _ = json.JSONDecoder().raw_decode(text, text.index("{", at + len(json.dumps(key))))
        if _size(found) is not None and (key == name or _same(provider, found.get("litellm_provider", ""))):
            return found
    return {}


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
