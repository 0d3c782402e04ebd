"""The commands of access in chats and in a shell. Only chats have the list with the open codes, groups, and the accounts of one person."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Literal, TypeAlias, get_args

from msgspec import Meta, Struct

from bubbot.arguments.fields import Args, NoArguments
from bubbot.command import Caller, command, explain_refusals, make_group, make_tools
from bubbot.errors import ChannelError, CommandRefused, ConfigError, ToolRetry
from bubbot.features.access.arguments import AudienceArgs
from bubbot.features.access.facts import GroupAudience, LinkCode, RoleGranted
from bubbot.features.access.results import MAX_NAME_CHARS, format_name, parse_role
from bubbot.features.access.service import ACCESS_TAPE, LINK_CODE_LIFETIME, AccessService, LinkRefusal
from bubbot.features.access.state import AccountKey, expires_at
from bubbot.formatting import clean, clean_label
from bubbot.ports.access import Audience
from bubbot.ports.channel import Button, ButtonSet, Outbound, Role
from bubbot.ports.turn import Turn
from bubbot.shell_command import CommandContext
from bubbot.tape.entry import TapeEntry
from bubbot.tape.fact import Cited
from bubbot.texts import COMMAND_PREFIX, Texts
from bubbot.tool import ADMINISTERS, INSIDE, READS_PEOPLE, CommandHelp, CommandPlace, HelpTopic, Tool, tool


class GroupArgs(Args, frozen=True):
    """A group, and what is to happen there."""

    group: Annotated[
        str,
        Meta(
            description="the id of the group or server, or such as telegram:-1001234567; empty: list them",
            max_length=200,
        ),
    ] = ""
    who: Annotated[
        Literal["everybody", "known", "nobody", "leave"] | None,
        Meta(
            description="who may talk to me there: everybody, known (people with a role) or nobody; leave: nobody, and I leave"
        ),
    ] = None
    channel: Annotated[str, Meta(description="the name of the channel (default: this one)")] = ""


class LinkArgs(Args, frozen=True):
    """A code or an answer."""

    code: Annotated[
        str,
        Meta(
            description="the code that I gave your other account; yes or no to answer a request; empty for a new code"
        ),
    ] = ""


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
    async def access_list(turn: Turn, args: NoArguments) -> str:
        """List who was let in, and who got a code that still works."""
        access, texts = find_access(), turn.texts
        lines = [texts.say("access_pending")] if (codes := access.pending_codes()) else [texts.say("access_no_code")]
        lines += [
            texts.say(
                "access_pending_line",
                channel=code.fact.channel,
                id=code.fact.id,
                name=format_name(code.fact.name),
                until=expires_at(code).astimezone(turn.zone).strftime("%H:%M"),
            )
            for code in codes
        ]
        grants = sorted(access.state.grants, key=lambda grant: (grant.fact.channel, int(grant.fact.id)))
        lines += [texts.say("access_granted"), *(_describe(grant.fact, texts) for grant in grants)] if grants else []
        groups = access.list_groups()
        lines += (
            [texts.say("access_groups"), *(_describe_group(group.fact, texts) for group in groups)] if groups else []
        )
        return "\n".join([*lines, texts.say("access_how")])

    links = LinkCommands(find_access, send)
    return (
        access_list,
        _group_tool(find_access, leave),
        *make_tools(AccessService, find_access),
        *make_tools(LinkCommands, lambda: links),
    )


def _group_tool(find_access: Callable[[], AccessService], leave: LeaveGroup | None) -> Tool:
    """Build the command about groups; see `access_tools`."""

    @tool(
        "access.group",
        form="[group] [who]",
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
        access, say, caller = find_access(), turn.texts.say, Caller.of_turn(turn)
        if not caller.has_power:
            raise ToolRetry(say("only_direct", command=turn.texts.format_commands(",access.group")))
        if not args.group or args.who is None:
            lines = [_describe_group(group.fact, turn.texts) for group in access.list_groups()]
            return "\n".join([*lines, say("access_group_how")])
        named, _, number = args.group.strip().rpartition(":")
        audience: Audience = "nobody" if args.who == "leave" else args.who
        with explain_refusals(turn, ",access.group"):
            decided = await access.set_audience(caller, AudienceArgs(number, audience, named or args.channel))
        group = access.state.groups.find((decided.channel, decided.group))
        title = _group_name(group.fact) if group else decided.group
        name = {"group": title, "channel": decided.channel, "id": decided.group}
        if args.who != "leave":
            return say(f"access_group_{audience}", **name)
        try:
            if leave is None:
                raise ConfigError(f"no channel {decided.channel} runs here")
            await leave(decided.channel, decided.group)
        except (ChannelError, ConfigError) as error:
            return say("access_group_stayed", reason=turn.texts.reason(error), **name)
        return say("access_group_left", **name)

    return access_group


def _group_name(group: GroupAudience) -> str:
    return clean_label(clean(group.title), MAX_NAME_CHARS) or group.group


def _describe_group(group: GroupAudience, texts: Texts) -> str:
    audience = texts.say(f"access_audience_{group.audience}")
    return texts.say(
        "access_group_line", channel=group.channel, id=group.group, group=_group_name(group), audience=audience
    )


class LinkAnswer(Struct, frozen=True):
    """What came of a link between two accounts of a person.

    Attributes:
        variant: `code` if one was made, `asks` if the other account asked for this one, `claimed` if the other one is asked,
            `done`, or `declined`.
        other: the other account; empty for a code.
        code: the code; empty without one.
        name: what the other account is called; empty in its own chat.
        count: the minutes for which the code works; 0 without one.
    """

    variant: Literal["code", "asks", "claimed", "done", "declined"]
    other: str = ""
    code: str = ""
    name: str = ""
    count: int = 0


class Unlinked(Struct, frozen=True):
    """The accounts that a person's account was linked with."""

    others: tuple[AccountKey, ...]

    def values(self, caller: Caller) -> Mapping[str, object]:
        """Return them as the sentence lists them."""
        return {"others": caller.texts.say("list_comma").join(map(_account_label, self.others))}


class LinkCommands:
    """The commands with which people link their accounts."""

    def __init__(self, find_access: Callable[[], AccessService], send: SendMessage) -> None:
        """Build them; see `access_tools`."""
        self._find_access = find_access
        self._send = send

    @command(
        "access link",
        chat=("access.link", "link"),
        in_shell=False,
        is_direct=True,
        effect=INSIDE,
        help=CommandHelp(
            HelpTopic.MEMORY,
            "Link your accounts to share your memory",
            (",link", ",link 7KQ2M9XB", ",link yes"),
        ),
    )
    async def link(self, caller: Caller, args: LinkArgs) -> LinkAnswer:
        """Link two accounts of yours, so that your own memory is the same on both. It gives neither any rights."""
        turn, access, word = caller.required_turn, self._find_access(), args.code.strip()
        account = _own_account(turn)
        if word.casefold() in ("yes", "no"):
            is_yes = word.casefold() == "yes"
            answer = await (access.confirm_link(account) if is_yes else access.decline_link(account))
            if isinstance(answer, str):
                raise CommandRefused(f"link_{answer}")
            return LinkAnswer("done" if is_yes else "declined", _account_label(answer))
        if word:
            return await self._claim(turn, account, word)
        if (code := access.pending_claim(account)) is not None and code.claimant is not None:
            turn.buttons.append(_link_buttons(turn.texts))
            return LinkAnswer("asks", _account_label(code.claimant))
        text = await access.create_link_code(account, turn.session)
        if text in get_args(LinkRefusal):
            raise CommandRefused(f"link_{text}")
        return LinkAnswer("code", code=text, count=LINK_CODE_LIFETIME.seconds // 60)

    @command(
        "access unlink",
        chat=("access.unlink", "unlink"),
        in_shell=False,
        is_direct=True,
        effect=INSIDE,
        help=CommandHelp(HelpTopic.MEMORY, "Unlink this account", (",unlink",)),
    )
    async def unlink(self, caller: Caller) -> Unlinked:
        """Take this account out of your linked ones: it has its own memory again."""
        others = await self._find_access().unlink(_own_account(caller.required_turn))
        if isinstance(others, str):
            raise CommandRefused(f"link_{others}")
        return Unlinked(others)

    async def _claim(self, turn: Turn, account: AccountKey, word: str) -> LinkAnswer:
        """Claim the code of another account, and ask that account in its own chat."""

        async def ask(code: Cited[LinkCode], fact: TapeEntry) -> None:
            channel, _, place = code.fact.session.partition(":")
            chat, _, thread = place.partition(":")
            name = format_name(turn.sender.name)
            text = turn.texts.say("LinkAnswer.asks", other=_account_label(account), name=name)
            buttons = ButtonSet(
                _link_buttons(turn.texts), person=code.fact.id, lifetime_seconds=LINK_CODE_LIFETIME.seconds
            )
            question = Outbound(channel, chat, text, thread, buttons=buttons)
            await self._send(code.fact.session, f"link:{code.id}", question, {ACCESS_TAPE: [fact]})

        try:
            claimed = await self._find_access().claim_link(word, account, ask)
        except ConfigError as error:  # the channel of the other account does not run
            raise CommandRefused("link_unreachable") from error
        if isinstance(claimed, str):
            raise CommandRefused(f"link_{claimed}")
        return LinkAnswer("claimed", _account_label(claimed.fact.account))


def _link_buttons(texts: Texts) -> tuple[Button, ...]:
    return (
        Button(texts.say("link_button_yes"), f"{COMMAND_PREFIX}link yes"),
        Button(texts.say("link_button_no"), f"{COMMAND_PREFIX}link no"),
    )


def _own_account(turn: Turn) -> AccountKey:
    """Return the account of the one person who typed the command. Raise `CommandRefused` if there is none."""
    if turn.typing_account is None:
        raise CommandRefused("link_bot")
    return turn.typing_account


def _account_label(account: AccountKey) -> str:
    return f"{account[1]} ({account[0]})"


def _describe(grant: RoleGranted, texts: Texts) -> str:
    role = texts.role(parse_role(grant.role))
    return texts.say("access_person", id=grant.id, name=format_name(grant.name), role=role, channel=grant.channel)


async def open_access(context: CommandContext) -> AccessService:
    """Return the running bot's own people, so that a change takes effect at once, or those of the home."""
    access = context.service(AccessService) or AccessService(
        context.open_tape(ACCESS_TAPE),
        now=context.now,
        random=os.urandom,
        configured=context.settings,
        projections=context.make_projections(),
        first_session=context.first_session,
    )
    await access.load()
    return access


COMMANDS = make_group(
    "access",
    AccessService,
    open_access,
    "Manage who may talk to the bot. Nobody may until you allow it: a stranger who writes to the bot gets a "
    "pairing code and tells it to you, and you approve it here. Or list numeric ids under owners, admins and "
    "members of [channels.NAME] in config.toml. `list`, `role`, `pending`, `readings`, `audits`, `matrix`, `history`, "
    "`consents` and `export` are read-only and work while the bot runs.",
    help_line="manage who may talk to the bot",
)
