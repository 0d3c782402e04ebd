"""The commands `,access`: admins and owners let people in from a direct chat, up to their own role."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from bubbot.errors import AccessError, ConfigError, ToolRetry
from bubbot.features.access.service import TERMINAL, AccessService
from bubbot.features.access.state import RoleGrant
from bubbot.ports.channel import TERMINAL_CHANNEL, Role
from bubbot.ports.text import clean
from bubbot.ports.tool import INSIDE, READS_PEOPLE, CommandHelp, CommandPlace, HelpTopic, NoArgs, Tool, ToolArgs, tool
from bubbot.ports.turn import Turn
from bubbot.runtime.context.quoting import clean_label

MAX_NAME_CHARS = 64
"""Characters of a stranger's name that are shown."""


class ApproveArgs(ToolArgs):
    """The arguments of `access.approve`."""

    code: str = Field(description="the code that the person got from me; it works once, within an hour")
    role: Literal["member", "admin", "owner"] = Field(default="member", description="member, admin or owner")
    positional: ClassVar[tuple[str, ...]] = ("code", "role")


class PersonArgs(ToolArgs):
    """The arguments of `access.revoke`."""

    id: str = Field(description="the numeric id of the account; ,access lists those of people who wrote")
    channel: str = Field(default="", description="the name of the channel (default: this one)")
    positional: ClassVar[tuple[str, ...]] = ("id",)


class ReadingArgs(ToolArgs):
    """The arguments of `grant.add` and `grant.revoke`."""

    source: str = Field(description="the chat that is read, such as telegram:42", max_length=1_000)
    reader: str = Field(description="the chat that reads it", max_length=1_000)
    positional: ClassVar[tuple[str, ...]] = ("source", "reader")

    @field_validator("reader")
    @classmethod
    def _drop_joining_word(cls, value: str) -> str:
        """Read `telegram:42 to discord:7` as it is meant."""
        return value.removeprefix("to ").strip()


class GrantArgs(PersonArgs):
    """The arguments of `access.grant`."""

    role: Literal["member", "admin", "owner"] = Field(default="member", description="member, admin or owner")
    positional: ClassVar[tuple[str, ...]] = ("id", "role")


def access_tools(find_access: Callable[[], AccessService]) -> tuple[Tool, ...]:
    """Build the commands. `find_access` returns the people of the running bot."""

    @tool(
        "access.list",
        effect=READS_PEOPLE,
        commands=("access",),
        for_model=False,
        role=Role.ADMIN,
        help=CommandHelp(HelpTopic.ADMIN, "Who may talk to me, and who waits", (",access",), place=CommandPlace.DIRECT),
    )
    async def access_list(turn: Turn, args: NoArgs) -> str:
        """List who was let in, and who got a code that still works."""
        access, texts = find_access(), turn.texts
        lines = [texts.say("access_pending")] if (codes := access.pending_codes()) else [texts.say("access_no_code")]
        lines += [
            texts.say(
                "access_pending_line",
                channel=code.channel,
                id=code.id,
                name=_shown_name(code.name),
                until=code.expires.astimezone(turn.zone).strftime("%H:%M"),
            )
            for code in codes
        ]
        grants = sorted(access.state.grants.values(), key=lambda grant: (grant.channel, int(grant.id)))
        lines += [texts.say("access_granted"), *(_describe(grant, turn) for grant in grants)] if grants else []
        return "\n".join([*lines, texts.say("access_how")])

    @tool(
        "access.approve",
        effect=INSIDE,
        for_model=False,
        role=Role.ADMIN,
        help=CommandHelp(
            HelpTopic.ADMIN,
            "Let the person with a code in",
            (",access.approve 7KQ2M9XB", ",access.approve 7KQ2M9XB admin"),
            place=CommandPlace.DIRECT,
        ),
    )
    async def access_approve(turn: Turn, args: ApproveArgs) -> str:
        """Let the person in who was given this code."""
        with _explain_refusal(turn):
            grant = await find_access().approve(args.code, Role(args.role), _giver(turn))
        return turn.texts.say("access_changed", person=_describe(grant, turn), id=grant.id, channel=grant.channel)

    @tool(
        "access.grant",
        effect=INSIDE,
        for_model=False,
        role=Role.ADMIN,
        help=CommandHelp(
            HelpTopic.ADMIN,
            "Give a person a role",
            (",access.grant 4242", ",access.grant 4242 admin channel=telegram"),
            place=CommandPlace.DIRECT,
        ),
    )
    async def access_grant(turn: Turn, args: GrantArgs) -> str:
        """Give a person a role, in place of the one granted before."""
        with _explain_refusal(turn):
            grant = await find_access().grant(_channel(turn, args), args.id, Role(args.role), _giver(turn))
        return turn.texts.say("access_changed", person=_describe(grant, turn), id=grant.id, channel=grant.channel)

    @tool(
        "access.revoke",
        effect=INSIDE,
        for_model=False,
        role=Role.ADMIN,
        help=CommandHelp(
            HelpTopic.ADMIN,
            "Take a role back",
            (",access.revoke 4242", ",access.revoke 4242 channel=telegram"),
            place=CommandPlace.DIRECT,
        ),
    )
    async def access_revoke(turn: Turn, args: PersonArgs) -> str:
        """Take back what was granted."""
        channel = _channel(turn, args)
        with _explain_refusal(turn):
            await find_access().revoke(channel, args.id, _giver(turn))
        return turn.texts.say("access_revoked", id=args.id, channel=channel)

    return access_list, access_approve, access_grant, access_revoke, *reading_tools(find_access)


def reading_tools(find_access: Callable[[], AccessService]) -> tuple[Tool, ...]:
    """Build the commands about which chat may read which; see `access_tools`."""

    @tool(
        "grant.add",
        effect=INSIDE,
        commands=("grant",),
        for_model=False,
        role=Role.OWNER,
        help=CommandHelp(
            HelpTopic.ADMIN,
            "Let one chat read in another",
            (",grant telegram:42 to discord:7", ",grant source=telegram:42 reader=discord:7"),
            place=CommandPlace.DIRECT,
        ),
    )
    async def grant_add(turn: Turn, args: ReadingArgs) -> str:
        """Let everybody in one chat read what was said in another one. Both are ids of sessions; ,grants lists them."""
        with _explain_refusal(turn):
            grant = await find_access().grant_reading(args.source, args.reader, _owner(turn))
        return turn.texts.say("reading_granted", source=grant.source, reader=grant.reader)

    @tool(
        "grant.list",
        effect=READS_PEOPLE,
        commands=("grants",),
        for_model=False,
        role=Role.OWNER,
        help=CommandHelp(HelpTopic.ADMIN, "Which chats may read in others", (",grants",), place=CommandPlace.DIRECT),
    )
    async def grant_list(turn: Turn, args: NoArgs) -> str:
        """List which chats may read what was said in which others."""
        readings = find_access().list_readings()
        lines = [turn.texts.say("reading_line", source=grant.source, reader=grant.reader) for grant in readings]
        return "\n".join(lines) or turn.texts.say("readings_none")

    @tool(
        "grant.revoke",
        effect=INSIDE,
        for_model=False,
        role=Role.OWNER,
        help=CommandHelp(
            HelpTopic.ADMIN,
            "Take such a grant back",
            (",grant.revoke telegram:42 to discord:7", ",grant.revoke source=telegram:42 reader=discord:7"),
            place=CommandPlace.DIRECT,
        ),
    )
    async def grant_revoke(turn: Turn, args: ReadingArgs) -> str:
        """Take back that one chat reads what was said in another one; answers under way read no further."""
        with _explain_refusal(turn):
            await find_access().revoke_reading(args.source, args.reader, _owner(turn))
        return turn.texts.say("reading_revoked", source=args.source, reader=args.reader)

    return grant_add, grant_list, grant_revoke


@contextmanager
def _explain_refusal(turn: Turn) -> Iterator[None]:
    """Tell the person why the service refuses."""
    try:
        yield
    except (AccessError, ConfigError) as error:
        raise ToolRetry(turn.texts.reason(error)) from error


def _giver(turn: Turn) -> str:
    return f"{turn.session.partition(':')[0]}:{turn.sender.id}"


def _owner(turn: Turn) -> str:
    """Return the giver of what only owners give: in a terminal that is the owner of the operating system's account.

    Raises:
        ToolRetry: nobody typed it in a direct chat.
    """
    if not turn.has_power_over_other_chats:
        raise ToolRetry(turn.texts.say("only_direct", command=turn.texts.format_commands(",grant")))
    return TERMINAL if turn.session.partition(":")[0] == TERMINAL_CHANNEL else _giver(turn)


def _channel(turn: Turn, args: PersonArgs) -> str:
    return args.channel or turn.session.partition(":")[0]


def _describe(grant: RoleGrant, turn: Turn) -> str:
    name, role = _shown_name(grant.name), turn.texts.role(grant.role)
    return turn.texts.say("access_person", id=grant.id, name=name, role=role, channel=grant.channel)


def _shown_name(name: str) -> str:
    """Return a name in brackets, after a space; people choose their names themselves."""
    return f" ({clean_label(clean(name), MAX_NAME_CHARS)})" if name.strip() else ""
