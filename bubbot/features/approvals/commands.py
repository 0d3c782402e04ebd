"""The commands with which people answer cards, and see and take back what runs without asking."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import datetime, tzinfo
from types import MappingProxyType
from typing import Annotated, Any, Literal

from msgspec import Meta

from bubbot.arguments.fields import Args
from bubbot.command import TERMINAL, Caller, command, explain_refusals, make_group, make_tools
from bubbot.errors import CommandRefused, ValueInvalid
from bubbot.features.approvals.card import format_details
from bubbot.features.approvals.decider import Decider
from bubbot.features.approvals.facts import Card, Grant, Scope
from bubbot.features.approvals.results import CardAnswer, CardDetails, CardRow, GrantList, GrantRow
from bubbot.features.approvals.service import ApprovalService, read_id
from bubbot.features.approvals.settings import ApprovalSettings
from bubbot.formatting import code, show_details
from bubbot.ports.channel import Role
from bubbot.ports.turn import Turn
from bubbot.shell_command import CommandContext
from bubbot.texts import Texts
from bubbot.tool import ADMINISTERS, READS_PEOPLE, CommandHelp, HelpTopic, Tool, tool

MAX_LISTED_VALUE_CHARS = 120
MAX_LISTED = 30
"""Cards, and grants, that a chat is shown at once: the newest."""


class CardArgs(Args, frozen=True):
    """A card."""

    id: Annotated[str, Meta(description="the five characters on the card", max_length=32)]


class ApproveArgs(CardArgs, frozen=True):
    """A card, and what the yes covers."""

    scope: Annotated[
        Scope, Meta(description="once, chat (until a new conversation begins there) or always (default: once)")
    ] = "once"


class DenyArgs(CardArgs, frozen=True):
    """A card, and why not."""

    reason: Annotated[str, Meta(description="why not, which I am told", max_length=2_000)] = ""


class GrantNumberArgs(Args, frozen=True):
    """A grant."""

    number: Annotated[int, Meta(description="the number of the grant; grants shows them")]


class ApprovalListArgs(Args, frozen=True):
    """What to do with what is listed."""

    action: Annotated[Literal["list", "revoke"], Meta(description="list, or revoke to take a grant back")] = "list"
    number: Annotated[int, Meta(description="the number of the grant to take back", ge=0)] = 0


_LISTS: MappingProxyType[str, Any] = MappingProxyType({"effect": READS_PEOPLE})


class ApprovalCommands:
    """What people do about cards and grants.

    Attributes:
        service: open cards and grants.
    """

    def __init__(self, service: ApprovalService) -> None:
        self.service = service

    @command("approvals list", rows="cards", **_LISTS)
    async def list_cards(self) -> list[CardRow]:
        """Show what waits for an answer, in every chat."""
        return [_card_row(card) for card in await self.service.list_open()]

    @command("approvals show <id>", example="7KQ2M", **_LISTS)
    async def show(self, args: CardArgs) -> CardDetails:
        """Show exactly what a card asks for."""
        number = read_id(args.id)
        card = next((each for each in self.service.list_unanswered() if each.fact.id == number), None)
        asked = await self.service.read_asked(card.fact) if card else None
        if card is None or asked is None:
            raise ValueInvalid("approval_unknown", id=args.id)
        return CardDetails(_card_row(card), format_details(asked))

    @command(
        "approvals approve <id> [scope]",
        chat=("approval.approve", "approve"),
        form="<id> [scope]",
        example="7KQ2M",
        effect=ADMINISTERS,
        help=CommandHelp(HelpTopic.SETTINGS, "Allow what a card asks for", (",approve 7KQ2M", ",approve 7KQ2M always")),
    )
    async def approve(self, caller: Caller, args: ApproveArgs) -> CardAnswer:
        """Allow what a card asks for: once, in its chat until a new conversation begins there, or always."""
        decider = Decider.of_caller(caller)
        return await self.service.answer(args.id, "approved", decider, scope=args.scope)

    @command(
        "approvals deny <id> [reason]",
        chat=("approval.deny", "deny"),
        form="<id> [reason]",
        example="7KQ2M 'not today'",
        effect=ADMINISTERS,
        help=CommandHelp(HelpTopic.SETTINGS, "Refuse what a card asks for", (",deny 7KQ2M", ",deny 7KQ2M not today")),
    )
    async def deny(self, caller: Caller, args: DenyArgs) -> CardAnswer:
        """Refuse what a card asks for; I am told why, if you say so."""
        decider = Decider.of_caller(caller)
        return await self.service.answer(args.id, "denied", decider, reason=args.reason)

    @command("approvals grants", rows="grants", **_LISTS)
    async def list_grants(self) -> list[GrantRow]:
        """Show what may run without asking."""
        return await self.read_rows(self.service.state.grants)

    @command("approvals revoke <number>", example="12", effect=ADMINISTERS)
    async def revoke(self, args: GrantNumberArgs) -> GrantList:
        """Take a grant back; the next call under it asks again."""
        if not await self.service.revoke(args.number, TERMINAL, TERMINAL):
            raise ValueInvalid("approval_no_grant", number=args.number)
        return GrantList(tuple(await self.read_rows(self.service.state.grants)))

    async def read_rows(self, grants: Iterable[Grant]) -> list[GrantRow]:
        """Describe grants, with the exact arguments that they are for."""
        return [_grant_row(grant, await self.service.read_arguments(grant.fact)) for grant in [*grants]]

    async def list_visible(self, caller: Caller, session: str, zone: tzinfo) -> str:
        """List what waits in a chat and what runs without asking there; for an owner in a direct chat those of all chats."""
        cards = [
            card
            for card in await self.service.list_open()
            if caller.has_power or session in (card.fact.session, card.fact.card)
        ]
        grants = [grant for grant in self.service.state.grants if caller.has_power or grant.fact.session == session]
        rows = await self.read_rows(grants[-MAX_LISTED:])
        lines = format_cards(list(map(_card_row, cards)), caller.texts, zone)
        return "\n".join([*lines, *format_grants(rows, len(grants), caller.texts)])

    async def take_back(self, caller: Caller, number: int, session: str) -> str:
        """Take a grant back: any for an owner in a direct chat, else one of this chat for the role that may allow calls."""
        service, decider = self.service, Decider.of_caller(caller)
        grant = service.state.by_number.get(number)
        is_here = grant is not None and grant.fact.session == session
        may_revoke = caller.has_power or (is_here and caller.role.at_least(Role(service.settings.role)))
        if grant is None or not may_revoke:
            raise CommandRefused("approval_no_grant", number=number)
        await service.revoke(number, decider.id, decider.channel)
        return caller.texts.say("approval_revoked", number=number)


def _card_row(card: Card) -> CardRow:
    fact = card.fact
    return CardRow(fact.id, fact.session, fact.account, fact.tools, fact.scopes, card.date, fact.expires)


def _grant_row(grant: Grant, arguments: str) -> GrantRow:
    fact = grant.fact
    return GrantRow(
        grant.id,
        fact.tool,
        fact.kind,
        fact.value,
        fact.session or None,
        fact.giver,
        grant.date,
        show_details(arguments),
    )


def approval_tools(commands: ApprovalCommands) -> tuple[Tool, ...]:
    """Build the commands of chats."""

    @tool(
        "approval.list",
        effect=READS_PEOPLE,
        commands=("approvals",),
        for_model=False,
        form="[action] [number]",
        help=CommandHelp(
            HelpTopic.SETTINGS, "What waits for a yes, and what may run", (",approvals", ",approvals revoke 12")
        ),
    )
    async def approval_list(turn: Turn, args: ApprovalListArgs) -> str:
        """List what waits for a yes here and what runs without asking, or take a grant back. An owner in a direct chat sees
        those of all chats."""
        await commands.service.load()
        caller = Caller.of_turn(turn)
        with explain_refusals(turn, ",approvals"):
            if args.action == "revoke":
                return await commands.take_back(caller, args.number, turn.session)
            Decider.of_caller(caller)  # raises if nobody typed it
            return await commands.list_visible(caller, turn.session, turn.zone)

    return *make_tools(ApprovalCommands, lambda: commands), approval_list


def format_cards(cards: Sequence[CardRow], texts: Texts, zone: tzinfo) -> list[str]:
    """Format the newest open cards for a chat."""
    if not cards:
        return [texts.say("CardRow.none")]
    lines = [
        texts.say(
            "approval_open_line",
            id=card.id,
            tools=", ".join(card.tools),
            chat=card.session,
            until=f"{datetime.fromisoformat(card.expires).astimezone(zone):%Y-%m-%d %H:%M}",
        )
        for card in cards[-MAX_LISTED:]
    ]
    return [texts.say("approval_open"), *lines, *_more_line(texts, "list", len(cards))]


def format_grants(grants: Sequence[GrantRow], count: int, texts: Texts) -> list[str]:
    """Format the newest grants, of so many, for a chat."""
    if not grants:
        return [texts.say("GrantRow.none")]
    lines = [texts.say("approval_grants")]
    for grant in grants:
        value = code((grant.arguments or grant.value)[:MAX_LISTED_VALUE_CHARS])
        scope = texts.say("approval_in_chat", chat=grant.session) if grant.session else texts.say("approval_always")
        kind = texts.say(f"approval_kind_{grant.kind}", value=value)
        lines.append(texts.say("approval_grant_line", number=grant.number, tool=grant.tool, target=kind, scope=scope))
    return [*lines, *_more_line(texts, "grants", count)]


def _more_line(texts: Texts, words: str, count: int) -> list[str]:
    left = count - MAX_LISTED
    return [texts.say("approval_more", count=left, command=f"bubbot approvals {words}")] if left > 0 else []


async def open_approvals(context: CommandContext) -> ApprovalCommands:
    """Return the running bot's own approvals, so that an answer takes effect at once, or those of the home."""
    service = context.service(ApprovalService) or ApprovalService(
        context.open_tape,
        context.now,
        os.urandom,
        context.settings or ApprovalSettings(),
        projections=context.make_projections(),
    )
    await service.load()
    return ApprovalCommands(service)


COMMANDS = make_group(
    "approvals",
    ApprovalCommands,
    open_approvals,
    "See what the bot asks before it does it, answer, and see and take back what it may do without asking. `list`, `show` "
    "and `grants` are read-only and work while the bot runs.",
    help_line="answer what the bot asks, and see what it may do",
)
