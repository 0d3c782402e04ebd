"""Which `provider/model` names litellm takes, read from its files: litellm itself takes seconds to import."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from bubbot.errors import ConfigError

_CLASS = re.compile(r"^class LlmProviders\b.*?(?=^\S)", re.MULTILINE | re.DOTALL)
_VALUE = re.compile(r"""^ {4}\w+ *= *(["'][^"'\n]+["'])""", re.MULTILINE)
_EXAMPLES = ". Among those it knows are anthropic, gemini, ollama_chat, openai and openrouter"


def providers() -> frozenset[str]:
    """The providers litellm knows; empty where its files cannot be read or have another form.

    The two places litellm itself looks at: an enumeration, and a list of addresses that speak as OpenAI does. Its
    price file is none: half of the providers it names are price groups that no call may name.
    """
    folder = _folder()
    if folder is None:
        return frozenset()
    try:
        found = _CLASS.search((folder / "types" / "utils.py").read_text(encoding="utf-8"))
        named = {ast.literal_eval(value) for value in _VALUE.findall(found[0])} if found else set()
        listed = json.loads((folder / "llms" / "openai_like" / "providers.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return frozenset()
    return frozenset({*named, *listed}) if named and isinstance(listed, dict) else frozenset()


def check(name: str, field: str, ours: Iterable[str] = ()) -> None:
    """Raises `ConfigError` where `name` cannot be a `provider/model` of litellm.

    `field` is what the sentence calls the name; `ours` are the models that need no provider. The model's part is
    the provider's business and may be anything.
    """
    provider, slash, model = name.partition("/")
    own = sorted(ours)
    form = f"it has to be 'provider/model', such as 'openai/gpt-4o'{', or one of ' + ', '.join(own) if own else ''}"
    if not slash or not model.strip() or not name.isprintable():
        raise ConfigError(f"{field} is {name!r}; {form}{_near(name, own)}")
    known = providers()
    if known and provider not in known:
        raise ConfigError(
            f"{field} is {name!r}, and litellm knows no provider {provider!r}; {form}"
            f"{_near(provider, known, slash + model) or _EXAMPLES}"
        )


def check_fallbacks(names: Iterable[str]) -> None:
    """Raises `ConfigError` where one of `[model] fallback` is no name of litellm's; the models of ours are none."""
    for name in names:
        check(name, "[model] fallback")


def _near(name: str, known: Iterable[str], rest: str = "") -> str:
    close = get_close_matches(name.lower(), sorted(known), 1)
    return f" (did you mean {close[0] + rest!r}?)" if close else ""


def _folder() -> Path | None:
    spec = find_spec("litellm")
    return next((Path(one) for one in (spec and spec.submodule_search_locations) or ()), None)
