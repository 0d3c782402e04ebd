"""The commands `,config`: an owner shows and changes settings from a direct chat."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, TypeVar

from pydantic import Field

from bubbot.errors import ConfigError, ToolRetry
from bubbot.ports.channel import Role
from bubbot.ports.settings import ChangesSettings, EditsSettings, SettingValue
from bubbot.ports.tool import ADMINISTERS, CommandHelp, CommandPlace, HelpTopic, NoArgs, Tool, ToolArgs, tool
from bubbot.ports.turn import Turn

T = TypeVar("T")


class KeyArgs(ToolArgs):
    """The arguments of `config.get` and `config.unset`."""

    key: str = Field(description="the setting, such as bot.name or channels.telegram.groups", max_length=200)
    positional: ClassVar[tuple[str, ...]] = ("key",)


class SetArgs(KeyArgs):
    """The arguments of `config.set`."""

    value: str = Field(description="the value; a list as 1,2 or [1, 2]", max_length=4_000)
    positional: ClassVar[tuple[str, ...]] = ("key", "value")


def config_tools(settings: ChangesSettings) -> tuple[Tool, ...]:
    """Build the commands, over the settings of the running bot."""

    @tool(
        "config.list",
        effect=ADMINISTERS,
        commands=("config",),
        for_model=False,
        role=Role.OWNER,
        help=CommandHelp(
            HelpTopic.ADMIN, "Which settings are not the default", (",config",), place=CommandPlace.DIRECT
        ),
    )
    async def config_list(turn: Turn, args: NoArgs) -> str:
        """List the settings that are not the default. Secrets are not shown."""
        values = await _in_thread(turn, settings.edit, lambda editor: editor.list_values())
        return "\n".join(value.line for value in values) or turn.texts.say("config_defaults")

    @tool(
        "config.get",
        effect=ADMINISTERS,
        for_model=False,
        role=Role.OWNER,
        help=CommandHelp(HelpTopic.ADMIN, "Show one setting", (",config.get bot.name",), place=CommandPlace.DIRECT),
    )
    async def config_get(turn: Turn, args: KeyArgs) -> str:
        """Show one setting, and where its value comes from. A secret is not shown."""
        return (await _in_thread(turn, settings.edit, lambda editor: editor.read(args.key))).line

    @tool(
        "config.set",
        effect=ADMINISTERS,
        for_model=False,
        role=Role.OWNER,
        help=CommandHelp(
            HelpTopic.ADMIN,
            "Change a setting",
            (",config.set tools.web.enabled true", ",config.set bot.name Rosi"),
            place=CommandPlace.DIRECT,
        ),
    )
    async def config_set(turn: Turn, args: SetArgs) -> str:
        """Change a setting. It is checked before it is written, and applied at once or at the next start."""
        return await _change(turn, args.key, lambda editor: editor.set(args.key, args.value))

    @tool(
        "config.unset",
        effect=ADMINISTERS,
        for_model=False,
        role=Role.OWNER,
        help=CommandHelp(
            HelpTopic.ADMIN,
            "Take a setting back to its default",
            (",config.unset bot.name",),
            place=CommandPlace.DIRECT,
        ),
    )
    async def config_unset(turn: Turn, args: KeyArgs) -> str:
        """Take a setting back to its default."""
        return await _change(turn, args.key, lambda editor: editor.unset(args.key))

    async def _change(turn: Turn, key: str, change: Callable[[EditsSettings], None]) -> str:
        def write(editor: EditsSettings) -> tuple[SettingValue, str]:
            before = editor.read(key)
            change(editor)
            return before, editor.find_override(key)

        before, variable = await _in_thread(turn, settings.edit, write)
        with _explain_refusal(turn):
            result = await settings.reload()
        now = await _in_thread(turn, settings.edit, lambda editor: editor.read(key))
        say, lines = turn.texts.say, [now.line]
        if before.origin == "file":
            lines.append(say("config_before", line=before.line))
        if variable:
            lines.append(say("config_overridden", variable=variable))
        for name, keys in (
            ("config_applied", result.now),
            ("config_later", result.later),
            ("config_restarted", result.begun),
            ("config_stopped", result.ended),
        ):
            if keys:
                lines.append(say(name, names=", ".join(keys)))
        return "\n".join(lines)

    return config_list, config_get, config_set, config_unset


async def _in_thread(turn: Turn, edit: Callable[[], EditsSettings], work: Callable[[EditsSettings], T]) -> T:
    """Read or write the file, beside the event loop. Raise `ToolRetry` outside of a direct chat, and for what is refused."""
    if not turn.has_power_over_other_chats:
        raise ToolRetry(turn.texts.say("only_direct", command=turn.texts.format_commands(",config")))
    with _explain_refusal(turn):
        return await asyncio.to_thread(lambda: work(edit()))


@contextmanager
def _explain_refusal(turn: Turn) -> Iterator[None]:
    """Tell the owner why a setting is refused."""
    try:
        yield
    except ConfigError as error:
        raise ToolRetry(turn.texts.reason(error)) from error
