"""The providers that `bubbot init` offers: what each needs, and which of its models to suggest."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from bubbot.models.catalogue import sizes
from bubbot.ports.model import ListedModel
from bubbot.texts import Texts

MAX_SUGGESTIONS = 8
"""Models that are suggested at most."""


class ProviderOption(Struct, frozen=True):
    """A provider to choose.

    Attributes:
        name: its name in `provider/model`.
        title: its name for people; empty for a server of the person.
        keys_page: the page where people get a key; empty if it needs none.
        address: the suggested address; empty if `init` asks for none.
        takes_key: `init` asks for a key.
        words: the name of the sentence that describes it.
    """

    name: str
    title: str = ""
    keys_page: str = ""
    address: str = ""
    takes_key: bool = True
    models: tuple[str, ...] = ()
    words: str = ""

    def format_title(self, texts: Texts) -> str:
        """Return its name, or a description."""
        return texts.say(self.words) if self.words else self.title

    def describe(self, texts: Texts) -> str:
        """Return a sentence about what it needs."""
        title = self.format_title(texts)
        if self.keys_page:
            return texts.say("init_needs_key", title=title, page=self.keys_page)
        return texts.say("init_needs_address_and_key" if self.takes_key else "init_needs_address", title=title)


OLLAMA = ProviderOption("ollama_chat", "Ollama", words="init_ollama", address="http://localhost:11434", takes_key=False)
PROVIDER_OPTIONS: dict[str, ProviderOption] = {
    "openai": ProviderOption(
        "openai",
        "OpenAI",
        "https://platform.openai.com/api-keys",
        models=("gpt-5-mini", "gpt-5", "gpt-4.1-mini", "gpt-4.1", "gpt-4o-mini"),
    ),
    "anthropic": ProviderOption(
        "anthropic",
        "Anthropic",
        "https://console.anthropic.com/settings/keys",
        models=("claude-sonnet-5-5", "claude-haiku-4-5", "claude-opus-5-5", "claude-sonnet-4-5"),
    ),
    "gemini": ProviderOption(
        "gemini",
        "Google Gemini",
        "https://aistudio.google.com/apikey",
        models=("gemini-2.5-flash", "gemini-2.5-pro", "gemini-2.5-flash-lite"),
    ),
    "openrouter": ProviderOption("openrouter", "OpenRouter", "https://openrouter.ai/settings/keys"),
    "deepseek": ProviderOption(
        "deepseek", "DeepSeek", "https://platform.deepseek.com/api_keys", models=("deepseek-chat", "deepseek-reasoner")
    ),
    "mistral": ProviderOption(
        "mistral",
        "Mistral",
        "https://console.mistral.ai/api-keys",
        models=("mistral-small-latest", "mistral-medium-latest", "mistral-large-latest"),
    ),
    "groq": ProviderOption(
        "groq", "Groq", "https://console.groq.com/keys", models=("openai/gpt-oss-20b", "openai/gpt-oss-120b")
    ),
    "xai": ProviderOption("xai", "xAI", "https://console.x.ai", models=("grok-4.5", "grok-4.3")),
    "ollama": OLLAMA,
    "server": ProviderOption("openai", words="init_own_server", address="http://localhost:8000/v1"),
}
"""The providers by the names under which they are chosen."""

# A pinned version of a model (2025-08-07, 20250929, 0125, 2411); suggested only if there is no other.
_PINNED = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8}|\d{4})$")
_OTHER_USES = re.compile(
    r"embed|tts|whisper|dall-e|image|audio|realtime|moderation|transcribe|search|ocr|guard|davinci|babbage|instruct"
    r"|sora|codex|deep-research|computer-use|voxtral|live|robotics|^ft:"
)


def suggest_models(option: ProviderOption, listed: Iterable[ListedModel] | None) -> list[str]:
    """Return the models to suggest: of the provider's own list, or those that bubbot knows if it is None."""
    if listed is None and option.models:
        return list(option.models)
    created = {model.name: model.created for model in listed or ()}
    preferred = [name for name in option.models if name in created]
    others = [name for name in created if name not in preferred and not _OTHER_USES.search(name)]
    unpinned = [name for name in others if not _PINNED.search(name)]
    newest = sorted(unpinned or others, key=lambda name: -created[name])  # stable: else in the provider's order
    return [*preferred, *newest][:MAX_SUGGESTIONS]


def describe_model(option: ProviderOption, name: str, texts: Texts) -> str:
    """Return a model's name, with its size and price if the packaged list has them."""
    full, has_address = f"{option.name}/{name}", bool(option.address)
    size = None if has_address else sizes.find_input_limit(full)
    price = sizes.find_price(full, own_address=has_address)
    facts = [texts.say("init_reads", size=_format_tokens(size, texts))] if size else []
    if price is not None:
        facts.append(texts.say("init_price", input=price.input, output=price.output))
    return f"{name}: {', '.join(facts)}" if facts else name


def _format_tokens(count: int, texts: Texts) -> str:
    return texts.say("init_million", size=f"{count / 1e6:.3g}") if count >= 1_000_000 else f"{count:,}"
