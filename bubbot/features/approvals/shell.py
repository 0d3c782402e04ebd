"""The commands `bubbot approvals`: what waits for a yes, answers to it, and what runs without asking."""

import os
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from bubbot.errors import ConfigError
from bubbot.features.approvals.card import ApprovalCard, show_details
from bubbot.features.approvals.service import Answer, AnswerResult, ApprovalService, Decider, Scope
from bubbot.features.approvals.settings import ApprovalSettings
from bubbot.features.approvals.state import OpenApproval, StandingGrant
from bubbot.log import printable
from bubbot.ports.channel import Role
from bubbot.ports.command import Argument, Command, CommandContext, CommandGroup, CommandResult, described_by
from bubbot.ports.tool import NoArgs, ToolArgs
from bubbot.records import IsoTime, dataclass, json_data
from bubbot.tape.entry import timestamp
from bubbot.texts import Texts

TERMINAL = "terminal"
CardId: TypeAlias = Annotated[str, Argument("the five characters on the card")]
NONE = {"list": "Nothing waits for an answer.", "grants": "Nothing runs without asking."}


class ApproveCard(ToolArgs):
    """A card, and what the yes covers."""

    id: CardId
    scope: Annotated[Literal["once", "chat", "always"], Argument("what the yes covers (default: once)")] = "once"
    positional: ClassVar[tuple[str, ...]] = ("id", "scope")


class DenyCard(ToolArgs):
    """A card, and why not."""

    id: CardId
    reason: Annotated[str, Argument("why not, which the bot is told")] = ""
    positional: ClassVar[tuple[str, ...]] = ("id", "reason")


class CardReference(ToolArgs):
    """A card."""

    id: CardId


class GrantReference(ToolArgs):
    """A grant."""

    number: Annotated[int, Argument("the number of the grant; grants shows them")]


@dataclass(frozen=True, slots=True)
class CardRow:
    """A card that waits for an answer.

    Attributes:
        id: what is typed to answer it.
        session: the chat in which it came up.
        by: the person for whom the turn ran, as channel and id.
        tools: the tools of its calls.
        scopes: what a yes may cover.
        asked: when it was asked.
        expires: when it means no.
    """

    id: str
    session: str
    by: str
    tools: tuple[str, ...]
    scopes: tuple[str, ...]
    asked: IsoTime
    expires: IsoTime


@dataclass(frozen=True, slots=True)
class CardList:
    """What waits for an answer.

    Attributes:
        cards: the oldest first.
    """

    cards: tuple[CardRow, ...] = ()


@dataclass(frozen=True, slots=True)
class CardDetails:
    """A card with all that it asks for.

    Attributes:
        card: its row.
        details: exactly what would happen.
    """

    card: CardRow
    details: str


@dataclass(frozen=True, slots=True)
class GrantRow:
    """What may run without asking.

    Attributes:
        number: names it.
        tool: the tool.
        kind: of what it covers: arguments, domain, folder or recipient.
        value: what it covers; for arguments their digest.
        arguments: what exact arguments these are, as the card showed them; empty for everything else.
        session: the chat in which it counts until a new conversation begins there; None: everywhere and always.
        by: who gave it, as channel and id.
        granted: when.
    """

    number: int
    tool: str
    kind: str
    value: str
    session: str | None
    by: str
    granted: IsoTime
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class GrantList:
    """What may run without asking.

    Attributes:
        grants: the oldest first.
    """

    grants: tuple[GrantRow, ...] = ()


@dataclass(frozen=True, slots=True)
class CardAnswer:
    """What became of an answer.

    Attributes:
        id: of the card.
        verdict: what counts: approved or denied.
        is_waiting: the call runs when the bot runs with the channel of its chat.
    """

    id: str
    verdict: str
    is_waiting: bool


Render: TypeAlias = Callable[[ApprovalService, Any], Awaitable[tuple[str, object]]]
"""Answers for people, and for programs."""


async def _open_approvals(context: CommandContext) -> ApprovalService:
    """Return the running bot's own approvals, so that an answer takes effect at once, or those of the home."""
    service = context.service(ApprovalService) or ApprovalService(
        context.open_tape, context.now, os.urandom, context.settings or ApprovalSettings()
    )
    await service.load()
    return service


def _command(example: str, result: type) -> Callable[[Render], Command]:
    """Make a command of what renders its answer as a `result`; its name is the first word of the example."""
    action = example.partition(" ")[0]
    writes = action not in (*NONE, "show")

    def decorate(render: Render) -> Command:
        async def run(context: CommandContext, args: Any) -> CommandResult:
            text, data = await render(await _open_approvals(context), args)
            return CommandResult(f"{text}\n" if text else "", data=json_data(data), rows=_table(data))

        def on_missing_home(_settings: Any, args: Any) -> CommandResult:
            if action == "show":
                raise ConfigError(_unknown_text(args.id))
            return CommandResult(f"{NONE[action]}\n", data=json_data(result()))

        options = described_by(render) | {"on_missing_home": None if writes else on_missing_home}
        return Command(
            name=f"approvals {action}",
            run=run,
            example=f"approvals {example}",
            writes=writes,
            result=result,
            **options,
        )

    return decorate


def _table(data: object) -> tuple[tuple[str, ...], ...]:
    if isinstance(data, CardList):
        rows: tuple[tuple[str, ...], ...] = tuple(
            (card.id, card.session, ", ".join(card.tools), f"until {card.expires[:16].replace('T', ' ')} UTC")
            for card in data.cards
        )
    elif isinstance(data, GrantList):
        rows = tuple(
            (
                str(grant.number),
                grant.tool,
                f"{grant.kind} {' '.join(grant.arguments.split()) or grant.value}",
                f"in {grant.session}" if grant.session else "always",
            )
            for grant in data.grants
        )
    else:
        return ()
    return tuple(tuple(map(printable, row)) for row in rows)


def _card_row(card: OpenApproval) -> CardRow:
    by = f"{card.channel}:{card.asker.id}"
    return CardRow(card.id, card.session, by, card.tools, card.scopes, card.date, timestamp(card.expires))


async def _grant_rows(service: ApprovalService) -> tuple[GrantRow, ...]:
    return tuple([_grant_row(each, await service.read_arguments(each)) for each in service.list_grants()])


def _grant_row(grant: StandingGrant, arguments: str) -> GrantRow:
    return GrantRow(
        grant.entry,
        grant.tool,
        grant.target.kind.value,
        grant.target.value,
        grant.session or None,
        grant.giver,
        grant.date,
        show_details(arguments),
    )


def _unknown_text(number: str) -> str:
    return f"no card {number!r} waits for an answer; bubbot approvals list shows those that do"


@_command("list", CardList)
async def list_cards(service: ApprovalService, args: NoArgs) -> tuple[str, CardList]:
    """Show what waits for an answer, in every chat."""
    cards = tuple(map(_card_row, await service.list_open()))
    return "" if cards else NONE["list"], CardList(cards)


@_command("show 7KQ2M", CardDetails)
async def show(service: ApprovalService, args: CardReference) -> tuple[str, CardDetails]:
    """Show exactly what a card asks for."""
    card = next((each for each in await service.list_open() if each.id == args.id.upper()), None)
    asked = None if card is None else await service.read_asked(card)
    if card is None or asked is None:
        raise ConfigError(_unknown_text(args.id))
    details = ApprovalCard(card.id, asked, card.session, card.asker, Texts()).format_details()
    head = f"{card.id} in {card.session}, for {card.channel}:{card.asker.id}"
    return printable(f"{head}\n\n{details}", keep="\n"), CardDetails(_card_row(card), details)


async def _answer(
    service: ApprovalService, number: str, verdict: Answer, *, scope: Scope = "once", reason: str = ""
) -> CardAnswer:
    decider = Decider(TERMINAL, TERMINAL, "", Role.OWNER, "", has_power=True, surface="shell")
    result = await service.answer(number, verdict, decider, scope=scope, reason=reason)
    if result.rejection is not None:
        raise ConfigError(_rejection_text(number, result))
    return CardAnswer(number.upper(), verdict, result.is_waiting)


def _rejection_text(number: str, result: AnswerResult) -> str:
    match result.rejection:
        case "decided":
            return printable(f"{number} was {result.verdict} before, by {result.by}")
        case "expired":
            return f"{number} has expired: nobody answered in time, which means no"
        case "scope":
            return f"{number} can only be allowed once: each such call needs a yes of its own"
        case "restored":
            return f"{number} runs nothing here: the home is in quarantine; bubbot restore --release ends that"
        case "gone":
            return f"what {number} asked for is no longer on the tape of its chat"
    return _unknown_text(number)


@_command("approve 7KQ2M", CardAnswer)
async def approve(service: ApprovalService, args: ApproveCard) -> tuple[str, CardAnswer]:
    """Allow what a card asks for: once, in its chat until a new conversation begins there, or always."""
    answer = await _answer(service, args.id, "approved", scope=args.scope)
    return f"{answer.id} is allowed. " + _next_text(answer), answer


@_command("deny 7KQ2M 'not today'", CardAnswer)
async def deny(service: ApprovalService, args: DenyCard) -> tuple[str, CardAnswer]:
    """Refuse what a card asks for."""
    answer = await _answer(service, args.id, "denied", reason=args.reason)
    return f"{answer.id} is refused. " + _next_text(answer), answer


def _next_text(answer: CardAnswer) -> str:
    return "Its chat goes on when the bot runs there." if answer.is_waiting else "Its chat goes on now."


@_command("grants", GrantList)
async def list_grants(service: ApprovalService, args: NoArgs) -> tuple[str, GrantList]:
    """Show what may run without asking."""
    grants = await _grant_rows(service)
    return "" if grants else NONE["grants"], GrantList(grants)


@_command("revoke 12", GrantList)
async def revoke(service: ApprovalService, args: GrantReference) -> tuple[str, GrantList]:
    """Take a grant back; the next call under it asks again."""
    grant = await service.revoke(args.number, TERMINAL, TERMINAL)
    if grant is None:
        raise ConfigError(f"there is no grant {args.number}; bubbot approvals grants shows all grants")
    return f"Grant {args.number} is taken back.", GrantList(await _grant_rows(service))


APPROVALS_COMMANDS = CommandGroup(
    "approvals",
    (list_cards, show, approve, deny, list_grants, revoke),
    "See what the bot asks before it does it, answer, and see and take back what it may do without asking. `list`, `show` "
    "and `grants` are read-only and work while the bot runs.",
)
