"""The settings of bubbot, its features, and the features of installed packages."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from bubbot.app.own_features import settings_schema
from bubbot.errors import ConfigError
from bubbot.features.agents.settings import AgentsSettings
from bubbot.features.attachments.settings import AttachmentSettings
from bubbot.features.memory.settings import MemorySettings
from bubbot.features.search.settings import SearchSettings
from bubbot.features.strategies.settings import ContextSettings
from bubbot.formatting import did_you_mean
from bubbot.ports.agents import BOT_SPEAKER, NO_MEMORY
from bubbot.ports.memory import ZONES_VIEW
from bubbot.ports.settings import AUTO_SELECTOR, SettingsSection, format_errors, quote_value
from bubbot.settings import loader
from bubbot.settings.loader import SettingProblem, Settings, SettingsExtensions
from bubbot.settings.sections import SettingDescription
from bubbot.settings.sources import describe_unknown_section
from bubbot.tape.words import fold_text


def describe_settings() -> Iterator[SettingDescription]:
    """Yield every setting in the order of the reference; the tables of channels appear as `channels.<name>`."""
    return loader.describe_settings(settings_schema())


def load(*, home: Path, config: Path | None = None) -> Settings:
    """Load the settings of the home folder `home`, or of the file `config`, which must then exist.

    Raise `ConfigError` with one line for each problem. It only reads files.
    """
    return loader.load(home=home, config=config, extensions=_extensions())


def build_settings(
    tables: Mapping[str, Any], sections: Mapping[str, type[SettingsSection] | None] = MappingProxyType({})
) -> Settings:
    """Build settings from tables as in config.toml; everything else has its default. No file or variable is read.

    Args:
        sections: those of further features.

    Raises:
        ConfigError: with one line for each problem.
    """
    schema = settings_schema().extend(sections)
    if not {*tables} <= {*schema.tables}:
        schema = schema.extend(_find_sections())
    problems = [
        describe_unknown_section(name, schema.tables) for name in tables if name not in schema.model.model_fields
    ]
    if problems:
        raise ConfigError("\n".join(problems))
    try:
        return schema.model(**tables)
    except ValidationError as error:
        # The cause is dropped: it holds the values, and among them the secrets.
        problems = format_errors(error, schema.model, tables)
    raise ConfigError("\n".join(problems))


def load_with_missing_secrets(*, home: Path, config: Path | None = None, credentials: Path | None = None) -> Settings:
    """Load the settings like `load`, but without secrets whose files are unusable, for work that needs no secret.

    `Settings.missing_secrets` names them. `credentials`: systemd's folder, if the environment names none. Raise
    `ConfigError` for every other problem.
    """
    return loader.load_with_missing_secrets(home=home, config=config, credentials=credentials, extensions=_extensions())


def _extensions() -> SettingsExtensions:
    return SettingsExtensions(settings_schema(), _find_sections, _find_problems)


def _find_sections() -> Mapping[str, type[SettingsSection] | None]:
    # Imported here: finding entry points takes ten milliseconds, and importing features many more.
    from bubbot.app.installed import load_features

    return load_features().sections()


def find_strategy(settings: Settings) -> str:
    """Return the name of the configured context strategy."""
    return settings.section(ContextSettings).selector


def uses_embeddings(settings: Settings) -> bool:
    """Return true if recall by meaning is enabled."""
    return settings.section(ContextSettings).embeddings


def has_search_index(settings: Settings) -> bool:
    """Return true if words are indexed."""
    return settings.section(SearchSettings).index


def find_attachment_limit(settings: Settings) -> int:
    """Return the maximum bytes of one attachment."""
    return settings.section(AttachmentSettings).max_bytes


def list_agent_models(settings: Settings) -> dict[str, str]:
    """Return the models of agents, by the setting that names each."""
    named = settings.section(AgentsSettings).named.items()
    return {f"[agents.{name}] model": agent.model for name, agent in named if agent.model}


def find_transcriber(settings: Settings) -> str:
    """Return the name of the model that transcribes voice messages; empty if none."""
    return settings.section(AttachmentSettings).transcription or ""


def _find_problems(settings: Settings) -> Iterator[SettingProblem]:
    selector = find_strategy(settings)
    if reason := _describe_unknown_selector(selector):
        yield SettingProblem(("context", "selector"), f"is {reason}")
    yield from _find_view_problems(settings.section(MemorySettings))
    yield from _find_agent_problems(settings)


def _find_agent_problems(settings: Settings) -> Iterator[SettingProblem]:
    """Find strategies and memory views of agents that do not exist, and names and places that two agents share."""
    taken, keepers = dict.fromkeys((fold_text(settings.bot.name), BOT_SPEAKER), "the bot itself"), dict[str, str]()
    agents = settings.section(AgentsSettings).named
    taken |= {name: f"[agents.{name}]" for name in agents}
    for name, agent in agents.items():
        own = f"[agents.{name}]"
        if agent.strategy and (reason := _describe_unknown_selector(agent.strategy)):
            yield SettingProblem(("agents", name, "strategy"), f"is {reason}")
        if agent.memory != NO_MEMORY and (reason := _describe_unknown_view(agent.memory, settings)):
            yield SettingProblem(("agents", name, "memory"), f"is {reason}")
        for known in agent.spoken_names(name):
            if (other := taken.setdefault(fold_text(known), own)) != own:
                key = "names" if known in agent.names else "title"
                yield SettingProblem(
                    ("agents", name, key), f"has {quote_value(known)}, which calls {other}; choose another name"
                )
        for place in agent.answers:
            if (other := keepers.setdefault(fold_text(place), own)) != own:
                yield SettingProblem(
                    ("agents", name, "answers"),
                    f"has {quote_value(place)}, where {other} answers; only one agent can answer messages that call nobody",
                )


def _describe_unknown_view(name: str, settings: Settings) -> str:
    """Return why the name of an agent's memory view is wrong, to follow "memory is"; empty if it is right."""
    views = settings.section(MemorySettings).views
    if name in ("", ZONES_VIEW, *views):
        return ""
    # Imported here: see `_find_view_problems`.
    from bubbot.app.installed import find_memory_strategies

    installed = find_memory_strategies().names
    return "" if name in installed else _describe_unknown_name(name, [NO_MEMORY, ZONES_VIEW, *views, *installed])


def _find_view_problems(memory: MemorySettings) -> Iterator[SettingProblem]:
    """Find configured memory views and strategies of packages that do not exist."""
    strategies = {name: view.strategy for name, view in memory.views.items() if view.strategy}
    if memory.view in (ZONES_VIEW, *memory.views) and not strategies:
        return
    # Imported here: every command reads the settings, and few homes name a package.
    from bubbot.app.installed import find_memory_strategies

    installed = find_memory_strategies().names
    names = dict.fromkeys((ZONES_VIEW, *memory.views, *installed))
    if memory.view not in names:
        yield SettingProblem(("memory", "view"), f"is {_describe_unknown_name(memory.view, names)}")
    for name, strategy in strategies.items():
        if strategy not in installed:
            key = ("memory", "views", name, "strategy")
            yield SettingProblem(key, f"is {_describe_unknown_name(strategy, installed)}")


def _describe_unknown_name(name: str, names: Collection[str]) -> str:
    hint = did_you_mean(name, names, before="; ")
    return f"{quote_value(name)}, but must be one of {', '.join(names) or '(no package offers one)'}{hint}"


def _describe_unknown_selector(name: str) -> str:
    """Return why the name of a context strategy is wrong, to follow "selector is"; empty if it is right."""
    if name == AUTO_SELECTOR:
        return ""
    # Imported here: every command reads the settings, and few homes name a strategy.
    from bubbot.runtime.context.strategy import KERNEL_STRATEGIES

    if any(strategy.matches(name) for strategy in KERNEL_STRATEGIES.own):
        return ""
    from bubbot.app.installed import load_strategies

    installed = load_strategies().selectors
    if name.partition(":")[0] in installed:
        return ""
    names = dict.fromkeys((AUTO_SELECTOR, *KERNEL_STRATEGIES.selectors, *installed))
    return f"{quote_value(name)}, but must be one of {', '.join(names)}{did_you_mean(name, names, before='; ')}"
