"""The commands of features and of installed packages: which there are, and what they run on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from bubbot import plugins
from bubbot.app.feature_settings import feature_settings
from bubbot.errors import ConfigError, ToolRetry
from bubbot.ports.command import Command, CommandContext, CommandGroup
from bubbot.ports.settings import SettingsSection
from bubbot.ports.tool import Tool, ToolArgs
from bubbot.ports.turn import Turn
from bubbot.records import dataclass
from bubbot.settings.loader import Settings
from bubbot.texts import Texts

if TYPE_CHECKING:
    from bubbot.feature import Feature

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OwnCommands:
    """The commands of a feature of bubbot.

    Attributes:
        module: the module with its `CommandGroup`; only that of the requested command is imported.
        pick: takes the feature's settings from all of them.
        group: the name of the group there; empty for `USAGE_COMMANDS` of the word `usage`.
    """

    module: str
    pick: Callable[[Settings], Any]
    group: str = ""

    def load(self, word: str) -> CommandGroup:
        """Import the group of a word."""
        group: CommandGroup = getattr(import_module(self.module), self.group or f"{word.upper()}_COMMANDS")
        return group


OWN_COMMANDS: Mapping[str, OwnCommands] = MappingProxyType(
    {
        "tape search": OwnCommands("bubbot.features.search.commands", partial(feature_settings, "search")),
        "tape anchors": OwnCommands("bubbot.features.conversation.tape", lambda _: None),
        "tape graph": OwnCommands("bubbot.features.conversation.tape", lambda _: None),
        "memory": OwnCommands("bubbot.features.memory.shell", partial(feature_settings, "memory")),
        "schedule": OwnCommands("bubbot.features.schedule.shell", partial(feature_settings, "schedule")),
        "approvals": OwnCommands("bubbot.features.approvals.commands", partial(feature_settings, "approvals")),
        "access": OwnCommands("bubbot.features.access.shell", partial(feature_settings, "access")),
        "context": OwnCommands("bubbot.features.strategies.commands", partial(feature_settings, "strategies")),
        "why": OwnCommands("bubbot.features.why.commands", lambda _: None),
        "explain": OwnCommands("bubbot.features.explain.commands", lambda _: None),
        "replay": OwnCommands("bubbot.features.replay.commands", lambda _: None),
        "usage": OwnCommands("bubbot.features.usage.commands", partial(feature_settings, "usage")),
    }
)
"""The commands of our features by their word; `bubbot.cli.main` lists the same words with a line of help. Behind a word that
several features share, each command has its line."""


def _find_own(name: str) -> OwnCommands | None:
    return OWN_COMMANDS.get(name) or OWN_COMMANDS.get(name.partition(" ")[0])


def load_shared(word: str) -> Sequence[Command]:
    """Import the commands behind a word that several features share, in the order of the table."""
    names = [name for name in OWN_COMMANDS if name.startswith(f"{word} ")]
    found = (OWN_COMMANDS[name].load(word).find(name) for name in names)
    return [command for command in found if command is not None]


def find_command(name: str) -> Command | None:
    """Find a command of a feature by its whole name; None if there is none. Raise `ConfigError` for a broken package."""
    word = name.partition(" ")[0]
    if (own := _find_own(name)) is not None:
        return own.load(word).find(name)
    # Imported here, as below: features of packages may need all of the kernel, and few homes have any.
    from bubbot.app.installed import COMMAND_GROUP, load_command_group

    return load_command_group(word).find(name) if word in plugins.list_names(COMMAND_GROUP) else None


def bind_context(context: CommandContext, name: str, settings: Settings) -> CommandContext:
    """Return the context with what the command of this name gets of the settings."""
    word = name.partition(" ")[0]
    own = _find_own(name)
    section = own.pick(settings) if own is not None else _package_section(word, settings)
    return replace(context, settings=section, zone=ZoneInfo(settings.bot.timezone), texts=Texts(settings.bot.language))


def _package_section(word: str, settings: Settings) -> SettingsSection | None:
    from bubbot.app.installed import feature_section, load_feature
    from bubbot.plugins import FEATURE_GROUP

    return feature_section(load_feature(word), settings) if word in plugins.list_names(FEATURE_GROUP) else None


def typed_tools(features: Sequence[Feature], context: CommandContext, settings: Settings) -> list[Tool]:
    """Make comma commands of the features' commands that have typed names.

    One whose name another tool has is left out with a warning: a package must not keep the bot from starting.
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
    async def run(turn: Turn, args: ToolArgs) -> str:
        try:
            return (await command.run(replace(context, turn=turn), args)).text.rstrip("\n")
        except ConfigError as error:  # what a shell would report
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
    )
