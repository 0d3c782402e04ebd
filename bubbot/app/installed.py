"""Extensions by installed packages: features, commands of the shell and context strategies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TypeVar

from msgspec import Struct, field

from bubbot import plugins
from bubbot.app.command_table import COMMANDS
from bubbot.app.events import OWN_REFERENCES
from bubbot.app.guard import guard_strategy
from bubbot.app.own_features import FEATURES, settings_schema
from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.errors import ConfigError, EntryInvalid
from bubbot.feature import FeatureFactory
from bubbot.plugins import FEATURE_GROUP
from bubbot.ports.checks import Check
from bubbot.ports.memory import MEMORY_GROUP, InstalledMemory, MemoryNode, MemoryStrategy
from bubbot.ports.settings import SettingsSection
from bubbot.runtime.context.strategy import ContextStrategies, ContextStrategy
from bubbot.settings.loader import FEATURE_NAME, Settings
from bubbot.shell_command import CommandGroup
from bubbot.tape.references import ReferenceRegistry, declared_references
from bubbot.tape.store import SYSTEM_TAPE_PREFIX

STRATEGY_GROUP = "bubbot.context"
COMMAND_GROUP = "bubbot.commands"


S = TypeVar("S", MemoryStrategy, ContextStrategy)


class InstalledFeatures(Struct, frozen=True):
    """The features of installed packages.

    Attributes:
        factories: the features that can be built.
        broken: a sentence about each other feature, by name.
        references: the references of their entries and of bubbot's.
    """

    factories: tuple[FeatureFactory, ...] = ()
    broken: Mapping[str, str] = field(default_factory=dict)
    references: ReferenceRegistry = OWN_REFERENCES

    def sections(self) -> dict[str, type[SettingsSection] | None]:
        """Return the sections that they add to the settings; None for a broken feature."""
        found: dict[str, type[SettingsSection] | None] = dict.fromkeys(self.broken)
        return found | {factory.name: factory.settings for factory in self.factories if factory.settings is not None}


def load_features(given: Sequence[FeatureFactory] = ()) -> InstalledFeatures:
    """Load the features that installed packages offer, after the given ones; list unusable ones in `broken`.

    Raise `ConfigError` if a given one is unusable.
    """
    factories, broken, references = list[FeatureFactory](), dict[str, str](), OWN_REFERENCES
    for factory in given:
        label = f"The feature {factory.name!r}"
        try:
            references = references.with_events(check_factory(factory, label).events)
        except EntryInvalid as error:
            raise ConfigError(f"{label}: {error}.") from error
        factories.append(factory)
    for name in plugins.list_names(FEATURE_GROUP):
        if name in [factory.name for factory in given]:
            raise ConfigError(f"The feature {name!r} has a name that is taken: give it another one.")
        try:
            factory = load_feature(name)
            references = references.with_events(factory.events)
            factories.append(factory)
        except (ConfigError, EntryInvalid) as error:
            broken[name] = str(error) if isinstance(error, ConfigError) else f"{_label(name)}: {error}."
    return InstalledFeatures(tuple(factories), broken, references)


def _label(name: str) -> str:
    return f"The plugin {name!r} of {FEATURE_GROUP}"


def load_feature(name: str) -> FeatureFactory:
    """Load the feature that a package offers under this name. Raise `ConfigError` if it is unusable."""
    label = _label(name)
    factory = plugins.load_object(FEATURE_GROUP, name)
    if not isinstance(factory, FeatureFactory):
        raise ConfigError(f"{label} is {type(factory).__name__}, not a FeatureFactory.")
    if factory.name != name:
        raise ConfigError(f"{label} makes a feature with another name: {factory.name!r}.")
    return check_factory(factory, label)


def check_factory(factory: FeatureFactory, label: str) -> FeatureFactory:
    """Return a feature. Raise `ConfigError`, which begins with the label, if it is unusable."""
    name = factory.name
    if name in FEATURES or name in settings_schema().tables or hasattr(settings_schema().model, name):
        raise ConfigError(f"{label} has a name that bubbot uses itself.")
    if not FEATURE_NAME.fullmatch(name):
        raise ConfigError(f"{label} needs another name: small letters, digits and single underscores.")
    checks: object = factory.checks
    if not isinstance(checks, Sequence) or not all(isinstance(check, Check) for check in checks):
        raise ConfigError(f"{label} has checks that are no sequence of Check.")
    if factory.settings is not None:
        section: object = factory.settings
        if not (isinstance(section, type) and issubclass(section, SettingsSection)):
            raise ConfigError(f"{label} has settings that are no SettingsSection.")
        try:
            factory.settings()
        except ValueError:
            raise ConfigError(f"{label} has a setting without a default.") from None
        except Exception as error:  # a package is third-party code
            raise ConfigError(f"{label} has settings that fail: {type(error).__name__}: {error}") from error
    _check_events(factory, label)
    _check_panels(factory, label)
    return factory


def _check_events(factory: FeatureFactory, label: str) -> None:
    """Raise `ConfigError` unless the events map names to readable payload models."""
    events: object = factory.events
    if not isinstance(events, Mapping):
        raise ConfigError(f"{label} has events that are {type(events).__name__}, not payload models by name.")
    for event, model in events.items():
        try:
            declared_references(model)
        except (EntryInvalid, TypeError) as error:  # an unhashable value is not a class
            raise ConfigError(f"{label} has the event {event!r}, whose references cannot be read: {error}.") from error


def _check_panels(factory: FeatureFactory, label: str) -> None:
    """Raise `ConfigError` if the panels are not a sequence of `Panel` with templates, or let auditors see tapes of
    others.
    """
    panels: object = factory.panels
    if panels == ():
        return
    # Imported here: few packages have panels, and every command loads the features of packages.
    from bubbot.panel import Panel, find_template

    if not isinstance(panels, Sequence) or not all(isinstance(panel, Panel) for panel in panels):
        raise ConfigError(f"{label} has panels that are no sequence of Panel.")
    for template in (panel.template for panel in factory.panels):
        try:
            is_there = find_template(template).is_file()
        except (ImportError, ValueError):
            is_there = False
        if not is_there:
            raise ConfigError(f"{label} has a panel whose template {template!r} does not exist.")
    own = f"{SYSTEM_TAPE_PREFIX}{factory.name}"
    for tape in (shared.name for panel in factory.panels for shared in panel.shared):
        if tape.removesuffix("/") != own and not tape.startswith(f"{own}/"):
            raise ConfigError(
                f"{label} has a panel that shares the tape {tape!r}: it may share those below {own} only."
            )


def load_strategies(given: Sequence[ContextStrategy] = ()) -> ContextStrategies:
    """Return bubbot's context strategies, the given ones, and those of installed packages, which load on first use.

    Raise `ConfigError` if a given one has the name of another.
    """
    guarded = {strategy.name: guard_strategy(strategy) for strategy in given}
    installed = plugins.list_names(STRATEGY_GROUP)
    taken = [*(strategy.name for strategy in OWN_STRATEGIES.own), *installed]
    if clashes := sorted({*taken} & {*guarded}):
        raise ConfigError(f"The context strategy {clashes[0]!r} has a name that is taken: give it another one.")

    def find(name: str) -> ContextStrategy:
        return guarded[name] if name in guarded else load_strategy(name)

    return OWN_STRATEGIES.extend([*guarded, *installed], find)


def find_memory_strategies() -> InstalledMemory:
    """Return what installed packages offer that chooses for memory views; each loads on first use."""
    return InstalledMemory(tuple(plugins.list_names(MEMORY_GROUP)), cache(load_memory_strategy))


def load_memory_strategy(name: str) -> MemoryStrategy:
    """Load what a package offers under this name for memory views. Raise `ConfigError` if it is unusable."""
    strategy = _load_named(MEMORY_GROUP, name, MemoryStrategy)
    nodes: object = strategy.nodes
    if not isinstance(nodes, Sequence) or not all(isinstance(node, MemoryNode) for node in nodes):
        raise ConfigError(f"{_label_plugin(MEMORY_GROUP, name)} has nodes that are no sequence of MemoryNode.")
    return strategy


def load_strategy(name: str) -> ContextStrategy:
    """Load the context strategy that a package offers under this name. Raise `ConfigError` if it is unusable."""
    return guard_strategy(_load_named(STRATEGY_GROUP, name, ContextStrategy))


def _load_named(group: str, name: str, kind: type[S]) -> S:
    """Load what a package offers in a group under a name. Raise `ConfigError` if it is no `kind` with this name."""
    strategy = plugins.load_object(group, name)
    if not isinstance(strategy, kind):
        raise ConfigError(f"{_label_plugin(group, name)} is {type(strategy).__name__}, not a {kind.__name__}.")
    if strategy.name != name:
        raise ConfigError(f"{_label_plugin(group, name)} is a strategy with another name: {strategy.name!r}.")
    return strategy


def _label_plugin(group: str, name: str) -> str:
    return f"The plugin {name!r} of {group}"


def load_command_group(name: str) -> CommandGroup:
    """Load the commands that a package offers under this name. Raise `ConfigError` if they are unusable."""
    label = f"The plugin {name!r} of {COMMAND_GROUP}"
    if name in COMMANDS:
        raise ConfigError(f"{label} has a name that bubbot uses itself.")
    group = plugins.load_object(COMMAND_GROUP, name)
    if not isinstance(group, CommandGroup):
        raise ConfigError(f"{label} is {type(group).__name__}, not a CommandGroup.")
    if group.name != name or any(command.name.partition(" ")[0] != name for command in group.commands):
        raise ConfigError(f"{label} has commands with another first word.")
    return group


def feature_section(factory: FeatureFactory, settings: Settings) -> SettingsSection | None:
    """Return the settings of a package's feature: its section, or the defaults if there is none."""
    if factory.settings is None:
        return None
    return settings.section(factory.settings)
