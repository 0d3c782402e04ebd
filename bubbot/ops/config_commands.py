"""The commands `,config`: owners read and change settings from a direct chat, with the checks of `bubbot config`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from pydantic import Field

from bubbot.app.reload import ReloadResult
from bubbot.errors import ConfigError, ToolRetry
from bubbot.features.access.tools import explain_refusal, owner_of
from bubbot.ops.configuration import ConfigEditor, SettingValue, format_line, is_secret, parse_key
from bubbot.ports.channel import Role
from bubbot.ports.tool import (
    ADMINISTERS,
    READS_PEOPLE,
    CommandHelp,
    CommandPlace,
    HelpTopic,
    NoArgs,
    Tool,
    ToolArgs,
    tool,
)
from bubbot.ports.turn import Turn


class SettingArgs(ToolArgs):
    """The arguments of `config.get` and `config.unset`."""

    key: str = Field(description="the setting, such as bot.name or channels.telegram.groups")
    positional: ClassVar[tuple[str, ...]] = ("key",)


class SetSettingArgs(SettingArgs):
    """The arguments of `config.set`."""

    value: str = Field(description="the value; a list as 1,2 or [1, 2]")
    positional: ClassVar[tuple[str, ...]] = ("key", "value")


def config_tools(
    open_editor: Callable[[], ConfigEditor], reload: Callable[[str], Awaitable[ReloadResult]]
) -> tuple[Tool, ...]:
    """Build the commands.

    Args:
        open_editor: reads the configuration as it is now.
        reload: applies it; called with who changed it.
    """

    async def change(turn: Turn, key: str, edit: Callable[[ConfigEditor], None]) -> str:
        """Write a change, apply it, and say what it did."""
        by, say = owner_of(turn, ",config"), turn.texts.say
        with explain_refusal(turn):
            if is_secret(*parse_key(key)):
                raise ToolRetry(say("config_secret", key=key))
            editor = await asyncio.to_thread(open_editor)
            before = await asyncio.to_thread(editor.read, key)
            await asyncio.to_thread(edit, editor)
            after = await asyncio.to_thread(lambda: open_editor().read(key))
        lines = [say("config_written", setting=format_line(after))]
        if before.origin == "file":
            lines.append(say("config_before", setting=format_line(before)))
        if variable := editor.find_override(key):
            lines.append(say("config_overridden", variable=variable))
        try:
            result = await reload(by)
        except ConfigError as error:
            return "\n".join([*lines, say("config_not_applied", reason=turn.texts.reason(error))])
        if result.now:
            lines.append(say("config_applied", keys=", ".join(result.now)))
        if result.later:
            lines.append(say("config_later", keys=", ".join(result.later)))
        return "\n".join(lines)

    @tool(
        "config.list",
        effect=READS_PEOPLE,
        commands=("config",),
        for_model=False,
        role=Role.OWNER,
        help=CommandHelp(
            HelpTopic.ADMIN,
            "The settings that are not the default",
            (",config", ",config.set bot.name Robin"),
            place=CommandPlace.DIRECT,
            words=("settings",),
        ),
    )
    async def config_list(turn: Turn, args: NoArgs) -> str:
        """List the settings that are not the default, without secrets."""
        owner_of(turn, ",config")
        with explain_refusal(turn):
            values: Sequence[SettingValue] = await asyncio.to_thread(lambda: open_editor().list_values())
        return "\n".join(map(format_line, values)) or turn.texts.say("config_none")

    @tool(
        "config.get",
        effect=READS_PEOPLE,
        for_model=False,
        role=Role.OWNER,
        help=CommandHelp(HelpTopic.ADMIN, "Show a setting", (",config.get bot.name",), place=CommandPlace.DIRECT),
    )
    async def config_get(turn: Turn, args: SettingArgs) -> str:
        """Show a setting, and whether it is from the file, the environment, or the default."""
        owner_of(turn, ",config")
        with explain_refusal(turn):
            return format_line(await asyncio.to_thread(lambda: open_editor().read(args.key)))

    @tool(
        "config.set",
        effect=ADMINISTERS,
        for_model=False,
        role=Role.OWNER,
        help=CommandHelp(
            HelpTopic.ADMIN, "Change a setting", (",config.set bot.name Robin",), place=CommandPlace.DIRECT
        ),
    )
    async def config_set(turn: Turn, args: SetSettingArgs) -> str:
        """Write a setting to the file if it loads, and apply it."""
        return await change(turn, args.key, lambda editor: editor.set(args.key, args.value))

    @tool(
        "config.unset",
        effect=ADMINISTERS,
        for_model=False,
        role=Role.OWNER,
        help=CommandHelp(
            HelpTopic.ADMIN, "Take a setting back", (",config.unset bot.name",), place=CommandPlace.DIRECT
        ),
    )
    async def config_unset(turn: Turn, args: SettingArgs) -> str:
        """Take a setting back to its default, and apply it."""
        return await change(turn, args.key, lambda editor: editor.unset(args.key))

    return config_list, config_get, config_set, config_unset
