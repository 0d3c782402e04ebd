"""The commands `,access`: admins and owners let people in from a direct chat, up to their own role."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar, Literal, TypeAlias, get_args

from pydantic import Field, field_validator

from bubbot.errors import AccessError, ChannelError, ConfigError, ToolRetry
from bubbot.features.access.service import (
    ACCESS_TAPE,
    LINK_CODE_LIFETIME,
    TERMINAL,
    AccessService,
    LinkRefusal,
    parse_auditor,
)
from bubbot.features.access.state import AccountKey, GroupAudience, LinkCode, RoleGrant, format_auditor
from bubbot.identity import is_id
from bubbot.ports.access import Audience
from bubbot.ports.channel import TERMINAL_CHANNEL, Button, ButtonSet, Outbound, Role
from bubbot.ports.text import clean, clean_label
from bubbot.ports.tool import (
    ADMINISTERS,
    INSIDE,
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
from bubbot.tape.entry import TapeEntry
from bubbot.texts import COMMAND_PREFIX, Texts

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


class AuditArgs(ToolArgs):
    """The arguments of `audit.add` and `audit.revoke`."""

    auditor: str = Field(description="who looks: an account such as telegram:42, or a name", max_length=200)
    session: str = Field(description="the chat whose tape is shown, such as telegram:7", max_length=1_000)
    positional: ClassVar[tuple[str, ...]] = ("auditor", "session")

    @field_validator("session")
    @classmethod
    def _drop_joining_word(cls, value: str) -> str:
        """Read `anna of telegram:7` as it is meant."""
        return value.removeprefix("of ").strip()


class GrantArgs(PersonArgs):
    """The arguments of `access.grant`."""

    role: Literal["member", "admin", "owner"] = Field(default="member", description="member, admin or owner")
    positional: ClassVar[tuple[str, ...]] = ("id", "role")


class GroupArgs(ToolArgs):
    """The arguments of `access.group`."""

    group: str = Field(
        default="",
        description="the id of the group or server, or such as telegram:-1001234567; empty: list them",
        max_length=200,
    )
    who: Literal["everybody", "known", "nobody", "leave"] | None = Field(
        default=None,
        description="who may talk to me there: everybody, known (people with a role) or nobody; leave: nobody, and I leave",
    )
    channel: str = Field(default="", description="the name of the channel (default: this one)")
    positional: ClassVar[tuple[str, ...]] = ("group", "who")


class LinkArgs(ToolArgs):
    """The arguments of `access.link`."""

    code: str = Field(
        default="",
        description="the code that I gave your other account; yes or no to answer a request; empty for a new code",
    )


SendMessage: TypeAlias = Callable[[str, str, Outbound, Mapping[str, Sequence[TapeEntry]]], Awaitable[None]]
"""Send a message that no turn writes: session, key, message, and facts for the same transaction."""


LeaveGroup: TypeAlias = Callable[[str, str], Awaitable[None]]
"""Leave a group, by channel and id. Raise `ConfigError` if the channel does not run, `ChannelError` if the bot stays."""


def access_tools(
    find_access: Callable[[], AccessService], send: SendMessage, leave: LeaveGroup | None = None
) -> tuple[Tool, ...]:
    """Build the commands.

    Args:
        find_access: returns the people of the running bot.
        send: sends the question to the other account of a person.
        leave: leaves a group; None: the bot is in none.
    """

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
        groups = access.list_groups()
        lines += [texts.say("access_groups"), *(_describe_group(group, texts) for group in groups)] if groups else []
        return "\n".join([*lines, texts.say("access_how")])

    @tool(
        "access.approve",
        effect=ADMINISTERS,
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
        with explain_refusal(turn):
            grant = await find_access().approve(args.code, Role(args.role), _giver(turn))
        return turn.texts.say("access_changed", person=_describe(grant, turn), id=grant.id, channel=grant.channel)

    @tool(
        "access.grant",
        effect=ADMINISTERS,
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
        with explain_refusal(turn):
            grant = await find_access().grant(_channel(turn, args), args.id, Role(args.role), _giver(turn))
        return turn.texts.say("access_changed", person=_describe(grant, turn), id=grant.id, channel=grant.channel)

    @tool(
        "access.revoke",
        effect=ADMINISTERS,
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
        with explain_refusal(turn):
            await find_access().revoke(channel, args.id, _giver(turn))
        return turn.texts.say("access_revoked", id=args.id, channel=channel)

    @tool(
        "access.decline",
        effect=ADMINISTERS,
        for_model=False,
        role=Role.ADMIN,
        help=CommandHelp(
            HelpTopic.ADMIN,
            "Refuse a person who got a code",
            (",access.decline 4242", ",access.decline 4242 channel=telegram"),
            place=CommandPlace.DIRECT,
        ),
    )
    async def access_decline(turn: Turn, args: PersonArgs) -> str:
        """Void the codes of a person who waits; I ask about that person again after a day at the earliest."""
        channel = _channel(turn, args)
        with explain_refusal(turn):
            await find_access().decline(channel, args.id, _giver(turn))
        return turn.texts.say("access_declined", id=args.id, channel=channel)

    people = (access_list, access_approve, access_grant, access_revoke, access_decline)
    return (
        *people,
        _group_tool(find_access, leave),
        *reading_tools(find_access),
        *audit_tools(find_access),
        *_link_tools(find_access, send),
    )


def _group_tool(find_access: Callable[[], AccessService], leave: LeaveGroup | None) -> Tool:
    """Build the command about groups; see `access_tools`."""

    @tool(
        "access.group",
        effect=ADMINISTERS,
        for_model=False,
        role=Role.OWNER,
        help=CommandHelp(
            HelpTopic.ADMIN,
            "Who may talk to me in a group",
            (",access.group", ",access.group telegram:-1001234567 everybody", ",access.group -1001234567 leave"),
            place=CommandPlace.DIRECT,
        ),
    )
    async def access_group(turn: Turn, args: GroupArgs) -> str:
        """Let everybody in a group talk to me, or people with a role only, or nobody; without a group, list what was decided."""
        access, say = find_access(), turn.texts.say
        giver = owner_of(turn, ",access.group")
        if not args.group or args.who is None:
            lines = [_describe_group(group, turn.texts) for group in access.list_groups()]
            return "\n".join([*lines, say("access_group_how")])
        named, _, number = args.group.strip().rpartition(":")
        channel = named or args.channel or turn.session.partition(":")[0]
        audience: Audience = "nobody" if args.who == "leave" else args.who
        with explain_refusal(turn):
            group = await access.set_audience(channel, number, audience, giver, title=_press_value(turn))
        name = {"group": _group_name(group), "channel": channel, "id": group.group}
        if args.who != "leave":
            return say(f"access_group_{audience}", **name)
        try:
            if leave is None:
                raise ConfigError(f"no channel {channel} runs here")
            await leave(channel, group.group)
        except (ChannelError, ConfigError) as error:
            return say("access_group_stayed", reason=turn.texts.reason(error), **name)
        return say("access_group_left", **name)

    return access_group


def _press_value(turn: Turn) -> str:
    """Return the value of the button that was pressed; empty if the command was typed."""
    press = turn.inbounds[0].inbound.press if turn.inbounds else None
    return press.value if press else ""


def _group_name(group: GroupAudience) -> str:
    return clean_label(clean(group.title), MAX_NAME_CHARS) or group.group


def _describe_group(group: GroupAudience, texts: Texts) -> str:
    audience = texts.say(f"access_audience_{group.audience}")
    return texts.say(
        "access_group_line", channel=group.channel, id=group.group, group=_group_name(group), audience=audience
    )


def reading_tools(find_access: Callable[[], AccessService]) -> tuple[Tool, ...]:
    """Build the commands about which chat may read which; see `access_tools`."""

    @tool(
        "grant.add",
        effect=ADMINISTERS,
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
        with explain_refusal(turn):
            grant = await find_access().grant_reading(args.source, args.reader, owner_of(turn, ",grant"))
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
        effect=ADMINISTERS,
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
        with explain_refusal(turn):
            await find_access().revoke_reading(args.source, args.reader, owner_of(turn, ",grant"))
        return turn.texts.say("reading_revoked", source=args.source, reader=args.reader)

    return grant_add, grant_list, grant_revoke


def audit_tools(find_access: Callable[[], AccessService]) -> tuple[Tool, ...]:
    """Build the commands about auditors; `find_access` returns the people of the running bot."""

    @tool(
        "audit.add",
        effect=ADMINISTERS,
        commands=("audit",),
        for_model=False,
        role=Role.OWNER,
        help=CommandHelp(
            HelpTopic.ADMIN,
            "Let an auditor see a chat",
            (",audit telegram:42 of telegram:7", ",audit anna of telegram:-1001"),
            place=CommandPlace.DIRECT,
        ),
    )
    async def audit_add(turn: Turn, args: AuditArgs) -> str:
        """Let an auditor see the tape of one chat on the trace page. It gives no right to speak."""
        with explain_refusal(turn):
            grant = await find_access().grant_audit(args.auditor, args.session, owner_of(turn, ",audit"))
        return turn.texts.say("audit_granted", auditor=grant.auditor_name, session=grant.session)

    @tool(
        "audit.list",
        effect=READS_PEOPLE,
        commands=("audits",),
        for_model=False,
        role=Role.OWNER,
        help=CommandHelp(HelpTopic.ADMIN, "Which auditors see which chats", (",audits",), place=CommandPlace.DIRECT),
    )
    async def audit_list(turn: Turn, args: NoArgs) -> str:
        """List which auditors may see the tapes of which chats."""
        grants = find_access().list_audits()
        lines = [turn.texts.say("audit_line", auditor=each.auditor_name, session=each.session) for each in grants]
        return "\n".join(lines) or turn.texts.say("audits_none")

    @tool(
        "audit.revoke",
        effect=ADMINISTERS,
        for_model=False,
        role=Role.OWNER,
        help=CommandHelp(
            HelpTopic.ADMIN,
            "Take an audit back",
            (",audit.revoke telegram:42 of telegram:7", ",audit.revoke auditor=anna session=telegram:7"),
            place=CommandPlace.DIRECT,
        ),
    )
    async def audit_revoke(turn: Turn, args: AuditArgs) -> str:
        """Take back that an auditor sees the tape of a chat; the next page shows nothing of it."""
        with explain_refusal(turn):
            await find_access().revoke_audit(args.auditor, args.session, owner_of(turn, ",audit"))
        auditor = format_auditor(parse_auditor(args.auditor))
        return turn.texts.say("audit_revoked", auditor=auditor, session=args.session)

    return audit_add, audit_list, audit_revoke


def _link_tools(find_access: Callable[[], AccessService], send: SendMessage) -> tuple[Tool, ...]:
    """Build the commands with which people link their accounts."""

    @tool(
        "access.link",
        effect=INSIDE,
        commands=("link",),
        for_model=False,
        help=CommandHelp(
            HelpTopic.MEMORY,
            "Link your accounts to share your memory",
            (",link", ",link 7KQ2M9XB", ",link yes"),
            place=CommandPlace.DIRECT,
        ),
    )
    async def access_link(turn: Turn, args: LinkArgs) -> str:
        """Link two accounts of yours, so that your own memory is the same on both. It gives neither any rights."""
        access, account, word = find_access(), _own_account(turn), args.code.strip()
        if word.casefold() in ("yes", "no"):
            is_yes = word.casefold() == "yes"
            answer = await (access.confirm_link(account) if is_yes else access.decline_link(account))
            if isinstance(answer, str):
                raise ToolRetry(turn.texts.say(f"link_{answer}"))
            return turn.texts.say("link_done" if is_yes else "link_declined", other=_account_label(answer))
        if word:
            return await _claim_link(turn, access, account, word, send)
        if (code := access.pending_claim(account)) is not None and code.claimant is not None:
            turn.buttons.append(_link_buttons(turn.texts))
            return turn.texts.say("link_asks", other=_account_label(code.claimant), name="")
        text = await access.create_link_code(account, turn.session)
        if text in get_args(LinkRefusal):
            raise ToolRetry(turn.texts.say(f"link_{text}"))
        return turn.texts.say("link_code", code=text, count=LINK_CODE_LIFETIME.seconds // 60)

    @tool(
        "access.unlink",
        effect=INSIDE,
        commands=("unlink",),
        for_model=False,
        help=CommandHelp(HelpTopic.MEMORY, "Unlink this account", (",unlink",), place=CommandPlace.DIRECT),
    )
    async def access_unlink(turn: Turn, args: NoArgs) -> str:
        """Take this account out of your linked ones: it has its own memory again."""
        others = await find_access().unlink(_own_account(turn))
        if isinstance(others, str):
            raise ToolRetry(turn.texts.say(f"link_{others}"))
        return turn.texts.say("unlinked", others=turn.texts.say("list_comma").join(map(_account_label, others)))

    return access_link, access_unlink


async def _claim_link(turn: Turn, access: AccessService, account: AccountKey, word: str, send: SendMessage) -> str:
    """Claim the code of another account, and ask that account in its own chat."""

    async def ask(code: LinkCode, fact: TapeEntry) -> None:
        channel, _, place = code.session.partition(":")
        chat, _, thread = place.partition(":")
        name = _shown_name(turn.sender.name)
        text = turn.texts.say("link_asks", other=_account_label(account), name=name)
        buttons = ButtonSet(
            _link_buttons(turn.texts), person=code.account[1], lifetime_seconds=LINK_CODE_LIFETIME.seconds
        )
        question = Outbound(channel, chat, text, thread, buttons=buttons)
        await send(code.session, f"link:{code.entry}", question, {ACCESS_TAPE: [fact]})

    try:
        claimed = await access.claim_link(word, account, ask)
    except ConfigError as error:  # the channel of the other account does not run
        raise ToolRetry(turn.texts.say("link_unreachable")) from error
    if isinstance(claimed, str):
        raise ToolRetry(turn.texts.say(f"link_{claimed}"))
    return turn.texts.say("link_claimed", other=_account_label(claimed.account))


def _link_buttons(texts: Texts) -> tuple[Button, ...]:
    return (
        Button(texts.say("link_button_yes"), f"{COMMAND_PREFIX}link yes"),
        Button(texts.say("link_button_no"), f"{COMMAND_PREFIX}link no"),
    )


def _own_account(turn: Turn) -> AccountKey:
    """Return the account of the one person who typed the command. Raise `ToolRetry` if there is none."""
    people = {turn.sender.id, *(accepted.inbound.sender.id for accepted in turn.inbounds)}
    if turn.sender.bot or len(people) > 1 or not is_id(turn.sender.id) or not turn.is_typed:
        raise ToolRetry(turn.texts.say("link_bot"))
    return turn.session.partition(":")[0], turn.sender.id


def _account_label(account: AccountKey) -> str:
    return f"{account[1]} ({account[0]})"


@contextmanager
def explain_refusal(turn: Turn) -> Iterator[None]:
    """Tell the person why the service refuses."""
    try:
        yield
    except (AccessError, ConfigError) as error:
        raise ToolRetry(turn.texts.reason(error)) from error


def _giver(turn: Turn) -> str:
    return f"{turn.session.partition(':')[0]}:{turn.sender.id}"


def owner_of(turn: Turn, command: str) -> str:
    """Return the giver of what only owners give: in a terminal that is the owner of the operating system's account.

    Raises:
        ToolRetry: nobody typed it in a direct chat.
    """
    if not turn.has_power_over_other_chats:
        raise ToolRetry(turn.texts.say("only_direct", command=turn.texts.format_commands(command)))
    return TERMINAL if turn.session.partition(":")[0] == TERMINAL_CHANNEL else _giver(turn)


def _channel(turn: Turn, args: PersonArgs) -> str:
    return args.channel or turn.session.partition(":")[0]


def _describe(grant: RoleGrant, turn: Turn) -> str:
    name, role = _shown_name(grant.name), turn.texts.role(grant.role)
    return turn.texts.say("access_person", id=grant.id, name=name, role=role, channel=grant.channel)


def _shown_name(name: str) -> str:
    """Return a name in brackets, after a space; people choose their names themselves."""
    return f" ({clean_label(clean(name), MAX_NAME_CHARS)})" if name.strip() else ""
