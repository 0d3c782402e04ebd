"""What people are told of the commands: lists by topic, the explanation of one, and the lines of menus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from bubbot.command import Caller
from bubbot.ports.channel import CommandInfo, Role
from bubbot.runtime.router import command_usage, format_command
from bubbot.texts import Texts
from bubbot.tool import HelpTopic, Tool, Toolbox

ALL = "all"
"""What `,help` is asked for to list every command."""
PRIVATE_TOPICS = (HelpTopic.SETTINGS, HelpTopic.ADMIN)
"""The topics whose commands are not in the menus of groups."""


class CommandOverview(Struct, frozen=True, kw_only=True):
    """The commands of a chat, under their topics.

    Attributes:
        offered: those that its person may type there.
        is_complete: all of them are listed, and not only those that people need most.
    """

    offered: Sequence[Tool]
    is_complete: bool

    def describe(self, caller: Caller) -> str:
        """Write a line for each command, and what else to ask for."""
        texts, topics, listed = caller.texts, list[str](), self.offered
        if not self.is_complete:
            listed = [each for each in self.offered if each.help.in_menu and each.name != "session.help"]
        for topic in HelpTopic:
            lines = [
                texts.say("help_line", command=format_command(each, texts), brief=brief_summary(each, texts))
                for each in sorted(listed, key=lambda each: not each.help.in_menu)
                if each.help.topic is topic
            ]
            if lines:
                topics.append("\n".join([texts.topic(topic), *lines]))
        example = next((each for each in listed if each.help.topic is HelpTopic.TIMES), listed[0])
        closing = "help_more" if self.is_complete else "help_all"
        return "\n\n".join([*topics, texts.say(closing, example=format_command(example, texts)[1:])])


class CommandExplained(Struct, frozen=True):
    """A command.

    Attributes:
        tool: the command.
    """

    tool: Tool

    def describe(self, caller: Caller) -> str:
        """Say how it is typed, what it does, its arguments, examples, and who may use it."""
        texts, tool, fields = caller.texts, self.tool, self.tool.fields
        lines = [command_usage(tool, texts), texts.summary(tool.name, tool.summary)]
        lines += [
            texts.say("help_argument", name=name, meaning=texts.meaning(tool.name, name, fields[name].description))
            for name in dict.fromkeys([*tool.words, *fields])
        ]
        if examples := [texts.format_commands(example) for example in tool.help.examples]:
            lines.append("\n".join([texts.say("help_examples"), *examples]))
        users = {Role.OWNER: "help_owner", Role.ADMIN: "help_admin"}
        return "\n".join([*lines, texts.say(users.get(tool.role, "help_everybody"))])


def brief_summary(tool: Tool, texts: Texts) -> str:
    """Return the meaning of a command in a few words; of one that has none, the beginning of its summary."""
    if tool.help.brief:
        return texts.brief(tool.name, tool.help.brief)
    return texts.summary(tool.name, tool.summary).partition(". ")[0].rstrip(".")


def list_commands(toolbox: Toolbox, texts: Texts, translations: Mapping[str, Texts]) -> list[CommandInfo]:
    """List the commands as people type them, for menus and completion.

    Args:
        toolbox: the commands.
        texts: the language of the bot.
        translations: the languages of the menus, by tag.
    """
    return [
        CommandInfo(
            name,
            brief_summary(command, texts),
            tuple(dict.fromkeys([*command.words, *command.fields])),
            in_menu=command.help.in_menu and name == command.typed_name,
            is_shared=command.help.topic not in PRIVATE_TOPICS,
            translations={tag: brief_summary(command, other) for tag, other in translations.items()},
            further_names=tuple(other for other in command.names if other != name),
        )
        for command in toolbox
        if not command.is_reserved
        for name in command.commands or (command.name,)
    ]
