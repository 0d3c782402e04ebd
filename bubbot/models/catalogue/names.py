"""The `provider/model` names that litellm takes, read from its files: importing litellm takes seconds."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from bubbot.errors import ConfigError
from bubbot.formatting import did_you_mean

_CLASS = r"(?ms)^class LlmProviders\b.*?(?=^\S)"
_VALUE = r"""(?m)^ {4}\w+ *= *(["'][^"'\n]+["'])"""
_EXAMPLES = ". Among those it knows are anthropic, gemini, ollama_chat, openai and openrouter"


def read_providers() -> frozenset[str]:
    """Return the providers that litellm knows; empty if its files cannot be read or have another form.

    They stand in the two places that litellm itself reads: an enumeration, and a list of OpenAI-compatible addresses.
    The price file does not count: half of the providers in it are price groups that no call may name.
    """
    folder = _litellm_folder()
    if folder is None:
        return frozenset()
    try:
        source = re.search(_CLASS, (folder / "types" / "utils.py").read_text(encoding="utf-8"))
        enumerated = {ast.literal_eval(value) for value in re.findall(_VALUE, source[0])} if source else set()
        compatible = json.loads((folder / "llms" / "openai_like" / "providers.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return frozenset()
    return frozenset({*enumerated, *compatible}) if enumerated and isinstance(compatible, dict) else frozenset()


def check_model_name(name: str, field: str, own_models: Iterable[str] = ()) -> None:
    """Raise `ConfigError` if `name` cannot be a `provider/model` of litellm.

    Only the provider is checked; the model's part is up to the provider and may be anything.

    Args:
        field: the setting or argument that holds the name, for the error message.
        own_models: models that need no provider.
    """
    provider, slash, model = name.partition("/")
    own = sorted(own_models)
    form = f"it has to be 'provider/model', such as 'openai/gpt-4o'{', or one of ' + ', '.join(own) if own else ''}"
    if not slash or not model.strip() or not name.isprintable():
        raise ConfigError(f"{field} is {name!r}; {form}{did_you_mean(name, own, before=' (', after='?)')}")
    supported = read_providers()
    if supported and provider not in supported:
        hint = did_you_mean(
            provider, sorted(supported), rest=slash + model, before=" (", after="?)", otherwise=_EXAMPLES
        )
        raise ConfigError(f"{field} is {name!r}, and litellm knows no provider {provider!r}; {form}{hint}")


def check_fallbacks(names: Iterable[str]) -> None:
    """Raise `ConfigError` if a name of `[model] fallback` is not a litellm name; our own models are not allowed there."""
    for name in names:
        check_model_name(name, "[model] fallback")


def _litellm_folder() -> Path | None:
    spec = find_spec("litellm")
    return next((Path(folder) for folder in (spec and spec.submodule_search_locations) or ()), None)
