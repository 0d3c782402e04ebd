"""The commands `,config`: an owner shows and changes settings from a direct chat."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct

from bubbot.arguments.fields import Args
from bubbot.command import Caller, command, make_tools
from bubbot.concurrency import run_uninterrupted
from bubbot.ports.channel import Role
from bubbot.ports.settings import ChangesSettings, EditsSettings, ReloadResult, SettingValue
from bubbot.tool import ADMINISTERS, CommandHelp, HelpTopic, Tool

T = TypeVar("T")


class SettingArgs(Args, frozen=True):
    """A setting."""

    key: Annotated[str, Meta(description="the setting, such as bot.name or channels.telegram.groups", max_length=200)]


class SetArgs(SettingArgs, frozen=True):
    """A setting and its new value."""

    value: Annotated[str, Meta(description="the value; a list as 1,2 or [1, 2]", max_length=4_000)]


class SettingsShown(Struct, frozen=True):
    """Settings as they hold now.

    Attributes:
        settings: in the order of the reference.
    """

    settings: tuple[SettingValue, ...]

    def describe(self, caller: Caller) -> str:
        """Write a line for each."""
        return "\n".join(setting.line for setting in self.settings) or caller.texts.say("SettingsShown.none")


class SettingChange(Struct, frozen=True):
    """A setting after a change.

    Attributes:
        before: the setting before.
        now: the setting now.
        variable: the variable of the environment that counts more than the file; empty if there is none.
        reload: the effect of the change.
    """

    before: SettingValue
    now: SettingValue
    variable: str
    reload: ReloadResult

    def describe(self, caller: Caller) -> str:
        """Write what holds now, what held before, and when the change takes effect."""
        say, lines, reload = caller.texts.say, [self.now.line], self.reload
        if self.before.origin == "file":
            lines.append(say("SettingChange.before", line=self.before.line))
        if self.variable:
            lines.append(say("SettingChange.overridden", variable=self.variable))
        effects = {"applied": reload.now, "later": reload.later, "restarted": reload.begun, "stopped": reload.ended}
        lines += [say(f"SettingChange.{effect}", names=", ".join(names)) for effect, names in effects.items() if names]
        return "\n".join(lines)


_OF_OWNERS: Mapping[str, Any] = MappingProxyType(
    {"effect": ADMINISTERS, "role": Role.OWNER, "is_direct": True, "in_shell": False, "writes": False}
)
"""They may be interrupted: a reload asks platforms, and makes only what it applies uninterrupted itself."""


def _help(brief: str, *examples: str) -> CommandHelp:
    return CommandHelp(HelpTopic.ADMIN, brief, examples)


class ConfigCommands:
    """The settings of a running bot. Every command may raise `ConfigError`, and has changed nothing then."""

    def __init__(self, settings: ChangesSettings) -> None:
        self._settings = settings

    @command(
        "config list",
        chat=("config.list", "config"),
        help=_help("Which settings are not the default", ",config"),
        **_OF_OWNERS,
    )
    async def list_settings(self) -> SettingsShown:
        """List the settings that are not the default. Secrets are not shown."""
        return SettingsShown(tuple(await self._edit(lambda editor: editor.list_values())))

    @command("config get", chat=("config.get",), help=_help("Show one setting", ",config.get bot.name"), **_OF_OWNERS)
    async def get_setting(self, args: SettingArgs) -> SettingsShown:
        """Show one setting, and where its value comes from. A secret is not shown."""
        return SettingsShown((await self._edit(lambda editor: editor.read(args.key)),))

    @command(
        "config set",
        chat=("config.set",),
        help=_help("Change a setting", ",config.set tools.web.enabled true", ",config.set bot.name Rosi"),
        **_OF_OWNERS,
    )
    async def set_setting(self, args: SetArgs) -> SettingChange:
        """Change a setting. It is checked before it is written, and applied at once or at the next start."""
        return await self._change(args.key, lambda editor: editor.set(args.key, args.value))

    @command(
        "config unset",
        chat=("config.unset",),
        help=_help("Take a setting back to its default", ",config.unset bot.name"),
        **_OF_OWNERS,
    )
    async def unset_setting(self, args: SettingArgs) -> SettingChange:
        """Take a setting back to its default."""
        return await self._change(args.key, lambda editor: editor.unset(args.key))

    async def _change(self, key: str, change: Callable[[EditsSettings], None]) -> SettingChange:
        def write(editor: EditsSettings) -> tuple[SettingValue, str]:
            before = editor.read(key)
            change(editor)
            return before, editor.find_override(key)

        before, variable = await run_uninterrupted(self._edit(write))
        result = await self._settings.reload()
        return SettingChange(before, await self._edit(lambda editor: editor.read(key)), variable, result)

    async def _edit(self, work: Callable[[EditsSettings], T]) -> T:
        """Read or write the file, beside the event loop."""
        return await asyncio.to_thread(lambda: work(self._settings.edit()))


def config_tools(settings: ChangesSettings) -> list[Tool]:
    """Build the commands, over the settings of the running bot."""
    commands = ConfigCommands(settings)
    return make_tools(ConfigCommands, lambda: commands)
