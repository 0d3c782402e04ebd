"""What litellm's price list knows of a model, read from its file: litellm itself takes seconds to import."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

from bubbot.model import ModelTraits

_FILE = "model_prices_and_context_window_backup.json"
_ASSISTANT_FIRST = ("openai", "azure")
"""Providers that take a conversation which opens with an assistant message; others refuse it, or their templates do."""


def traits(name: str, *, context_tokens: int | None = None, own_address: bool = False) -> ModelTraits:
    """What a request for `provider/model` may look like. `own_address`: whatever answers is not the usual provider."""
    first = name.partition("/")[0] in _ASSISTANT_FIRST and not own_address
    return ModelTraits(first_assistant=first, context_tokens=context_tokens or known_size(name))


def known_size(name: str) -> int | None:
    """The tokens `provider/model` reads at once; None where the list does not say."""
    provider, _, model = name.partition("/")
    text = _price_list()
    for key in (name, model):
        at = text.find(f"\n    {json.dumps(key)}: {{")
        if at < 0:
            continue
        found, _ = json.JSONDecoder().raw_decode(text, text.index("{", at + len(json.dumps(key))))
        size = found.get("max_input_tokens")
        if isinstance(size, int) and size > 0 and (key == name or found.get("litellm_provider") == provider):
            return size
    return None


def _price_list() -> str:
    spec = find_spec("litellm")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        path = Path(folder) / _FILE
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return ""
