"""The commands of features and installed packages: find them and bind them to their context."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from msgspec import structs

from bubbot import plugins
from bubbot.app.command_table import COMMANDS, SHARED
from bubbot.app.feature_settings import feature_settings
from bubbot.app.own_features import find_part
from bubbot.errors import ConfigError, ToolRetry
from bubbot.ports.settings import SettingsSection
from bubbot.ports.turn import Turn
from bubbot.settings.loader import Settings
from bubbot.shell_command import Command, CommandContext, CommandGroup
from bubbot.texts import Texts
from bubbot.tool import Tool

if TYPE_CHECKING:
    from bubbot.feature import Feature

log = logging.getLogger(__name__)


_FEATURE = re.compile(r"bubbot\.features\.([\w.]+)\.commands")


def find_feature(name: str) -> str:
    """Return the feature of bubbot with the command of this full name; empty for other commands."""
    row = COMMANDS.get(name.partition(" ")[0])
    found = _FEATURE.fullmatch(row.module) if row else None
    return SHARED.get(name) or (found[1] if found else "")


def load_shared(word: str) -> Sequence[Command]:
    """Import the features' commands that begin with a word of the command line, in the order of the table."""
    found = (find_command(name) for name in SHARED if name.startswith(f"{word} "))
    return [command for command in found if command is not None]


def find_command(name: str) -> Command | None:
    """Find a command of a feature by its full name, if any. Raise `ConfigError` for a broken package."""
    if feature := find_feature(name):
        group: CommandGroup = find_part(feature, "commands", "COMMANDS")
        return group.find(name)
    word = name.partition(" ")[0]
    # Imported here, as below: features of packages may load the whole kernel, and few homes have any.
    from bubbot.app.installed import COMMAND_GROUP, load_command_group

    return load_command_group(word).find(name) if word in plugins.list_names(COMMAND_GROUP) else None


def bind_context(context: CommandContext, name: str, settings: Settings) -> CommandContext:
    """Return the context with the settings for the command with this name."""
    feature = find_feature(name)
    section = feature_settings(feature, settings) if feature else _package_section(name.partition(" ")[0], settings)
    return structs.replace(
        context, settings=section, zone=ZoneInfo(settings.bot.timezone), texts=Texts(settings.bot.language)
    )


def _package_section(word: str, settings: Settings) -> SettingsSection | None:
    from bubbot.app.installed import feature_section, load_feature
    from bubbot.plugins import FEATURE_GROUP

    return feature_section(load_feature(word), settings) if word in plugins.list_names(FEATURE_GROUP) else None


def typed_tools(features: Sequence[Feature], context: CommandContext, settings: Settings) -> list[Tool]:
    """Make comma commands of the features' commands with typed names.

    Skip, with a warning, a command whose name is taken: a package must not keep the bot from starting.
    """
    names = {name for feature in features for tool in feature.tools for name in (tool.name, *tool.commands)}
    tools: list[Tool] = []
    for command in (command for feature in features for command in feature.commands if command.typed):
        tool = _typed_tool(command, bind_context(context, command.name, settings))
        if clash := names.intersection((tool.name, *tool.commands)):
            log.warning(
                "command left out: %r, since another one answers to ,%s",
                command.name,
                min(clash),
                extra={"action": "plugin.broken"},
            )
            continue
        names.update((tool.name, *tool.commands))
        tools.append(tool)
    return tools


def _typed_tool(command: Command, context: CommandContext) -> Tool:
    async def run(turn: Turn, args: Any) -> str:
        try:
            return (await command.run(structs.replace(context, turn=turn), args)).text.rstrip("\n")
        except ConfigError as error:  # a shell would report it
            raise ToolRetry(str(error)) from error

    name = command.name.replace(" ", ".")
    return Tool(
        name,
        command.description,
        command.args,
        run,
        command.typed,
        for_model=False,
        role=command.role,
        help=command.typed_help,
        effect=command.effect,
        form=command.form,
    )
