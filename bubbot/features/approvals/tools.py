"""The commands with which people answer cards, and see and take back what runs without asking."""

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

from pydantic import Field

from bubbot.errors import ToolRetry
from bubbot.features.approvals.card import code, escape_markdown
from bubbot.features.approvals.service import Answer, AnswerResult, ApprovalService, Decider, Scope
from bubbot.features.approvals.state import OpenApproval, StandingGrant
from bubbot.ports.channel import Inbound, Role
from bubbot.ports.tool import ADMINISTERS, READS_PEOPLE, CommandHelp, HelpTopic, Tool, ToolArgs, tool
from bubbot.ports.turn import Turn
from bubbot.tape.query import parse_moment
from bubbot.texts import COMMAND_PREFIX, Texts

MAX_LISTED_VALUE_CHARS = 120
MAX_LISTED = 30
"""Cards, and grants, that a chat is shown at once: the newest."""


class ApproveCallArgs(ToolArgs):
    """The arguments of `approval.approve`."""

    id: str = Field(description="the five characters on the card", max_length=32)
    scope: Literal["once", "chat", "always"] = Field(
        default="once", description="once, chat (until a new conversation begins here) or always"
    )
    positional: ClassVar[tuple[str, ...]] = ("id", "scope")


class DenyCallArgs(ToolArgs):
    """The arguments of `approval.deny`."""

    id: str = Field(description="the five characters on the card", max_length=32)
    reason: str = Field(default="", description="why not, which I am told", max_length=2_000)
    positional: ClassVar[tuple[str, ...]] = ("id", "reason")


class ApprovalListArgs(ToolArgs):
    """The arguments of `approval.list`."""

    action: Literal["list", "revoke"] = Field(default="list", description="list, or revoke to take a grant back")
    number: int = Field(default=0, ge=0, description="the number of the grant to take back")
    positional: ClassVar[tuple[str, ...]] = ("action", "number")


def approval_tools(service: ApprovalService) -> tuple[Tool, ...]:
    """Build the commands."""

    @tool(
        "approval.approve",
        effect=ADMINISTERS,
        commands=("approve",),
        for_model=False,
        help=CommandHelp(HelpTopic.SETTINGS, "Allow what a card asks for", (",approve 7KQ2M", ",approve 7KQ2M always")),
    )
    async def approval_approve(turn: Turn, args: ApproveCallArgs) -> str:
        """Allow what a card asks for: once, in this chat until a new conversation begins, or always."""
        decider = _decider(turn)
        result = await service.answer(args.id, "approved", decider, scope=args.scope)
        return _answer_text(turn, args.id, result)

    @tool(
        "approval.deny",
        effect=ADMINISTERS,
        commands=("deny",),
        for_model=False,
        help=CommandHelp(HelpTopic.SETTINGS, "Refuse what a card asks for", (",deny 7KQ2M", ",deny 7KQ2M not today")),
    )
    async def approval_deny(turn: Turn, args: DenyCallArgs) -> str:
        """Refuse what a card asks for; I am told why, if you say so."""
        decider = _decider(turn)
        result = await service.answer(args.id, "denied", decider, reason=args.reason)
        return _answer_text(turn, args.id, result)

    @tool(
        "approval.list",
        effect=READS_PEOPLE,
        commands=("approvals",),
        for_model=False,
        help=CommandHelp(
            HelpTopic.SETTINGS, "What waits for a yes, and what may run", (",approvals", ",approvals revoke 12")
        ),
    )
    async def approval_list(turn: Turn, args: ApprovalListArgs) -> str:
        """List what waits for a yes here and what runs without asking, or take a grant back. An owner in a direct chat sees
        those of all chats."""
        await service.load()
        decider = _decider(turn)
        if args.action == "revoke":
            return await _revoke(turn, service, decider, args.number)
        is_visible = decider.has_power
        cards = [each for each in await service.list_open() if is_visible or turn.session in (each.session, each.card)]
        grants = [each for each in service.list_grants() if is_visible or each.session == turn.session]
        arguments = {each.entry: await service.read_arguments(each) for each in grants[-MAX_LISTED:]}
        return format_lists(cards, grants, arguments, turn.texts, lambda card: _moment(turn, card))

    return approval_approve, approval_deny, approval_list


async def _revoke(turn: Turn, service: ApprovalService, decider: Decider, number: int) -> str:
    """Take a grant back: an owner any in a direct chat, who may allow here those of this chat."""
    say = turn.texts.say
    grant = service.state.grants.get(number)
    may_revoke = decider.has_power or (
        grant is not None and grant.session == turn.session and turn.role.at_least(Role(service.settings.role))
    )
    if grant is None or not may_revoke:
        raise ToolRetry(say("approval_no_grant", number=number))
    await service.revoke(number, decider.id, decider.channel)
    return say("approval_revoked", number=number)


def format_lists(
    cards: list[OpenApproval],
    grants: list[StandingGrant],
    arguments: Mapping[int, str],
    texts: Texts,
    moment: Callable[[OpenApproval], str],
) -> str:
    """Format open cards and grants for people. `arguments` says of each grant for exact arguments what these are."""
    lines = [
        texts.say("approval_open_line", id=card.id, tools=", ".join(card.tools), chat=card.session, until=moment(card))
        for card in cards[-MAX_LISTED:]
    ]
    lines = [texts.say("approval_open"), *lines] if lines else [texts.say("approval_open_none")]
    lines += _more_line(texts, "list", len(cards))
    if not grants:
        return "\n".join([*lines, texts.say("approval_grants_none")])
    lines.append(texts.say("approval_grants"))
    for grant in grants[-MAX_LISTED:]:
        value = code((arguments.get(grant.entry) or grant.target.value)[:MAX_LISTED_VALUE_CHARS])
        scope = texts.say("approval_in_chat", chat=grant.session) if grant.session else texts.say("approval_always")
        kind = texts.say(f"approval_kind_{grant.target.kind}", value=value)
        lines.append(texts.say("approval_grant_line", number=grant.entry, tool=grant.tool, target=kind, scope=scope))
    return "\n".join([*lines, *_more_line(texts, "grants", len(grants))])


def _more_line(texts: Texts, command: str, count: int) -> list[str]:
    left = count - MAX_LISTED
    return [texts.say("approval_more", count=left, command=f"bubbot approvals {command}")] if left > 0 else []


def _moment(turn: Turn, card: OpenApproval) -> str:
    return f"{card.expires.astimezone(turn.zone):%Y-%m-%d %H:%M}"


def _decider(turn: Turn) -> Decider:
    """Return who answers. Raise `ToolRetry` if nobody typed or pressed it: words of a model or page are no answer."""
    inbounds = [accepted.inbound for accepted in turn.inbounds]
    people = {inbound.sender.id for inbound in inbounds}
    if not turn.is_typed or not turn.runs_command or turn.sender.bot or len(people) != 1:
        raise ToolRetry(turn.texts.say("approval_only_people"))
    return Decider(
        inbounds[0].channel,
        turn.sender.id,
        turn.sender.name,
        turn.role,
        turn.session,
        turn.has_power_over_other_chats,
        "button" if inbounds[0].press else "command",
        parse_moment(inbounds[0].time),
    )


def decider_of_press(inbound: Inbound, role: Role) -> Decider:
    """Return who answers with a button, in this role."""
    has_power = role.at_least(Role.OWNER) and inbound.direct
    moment, person = parse_moment(inbound.time), inbound.sender
    card = inbound.press.message if inbound.press else ""
    return Decider(inbound.channel, person.id, person.name, role, inbound.session, has_power, "button", moment, card)


def read_press(text: str) -> tuple[str, Answer, Scope] | None:
    """Return the card, the answer and the scope that a button of a card stands for; None for another button."""
    match text.removeprefix(COMMAND_PREFIX).split():
        case ["approve", number, ("once" | "chat" | "always") as scope]:
            return number, "approved", scope
        case ["deny", number]:
            return number, "denied", "once"
    return None


def format_rejection(texts: Texts, number: str, result: AnswerResult) -> str:
    """Say why an answer does not count; empty if it does."""
    word = "".join(number.upper().split())
    if result.rejection == "decided":
        name = "approval_was_approved" if result.verdict == "approved" else "approval_was_denied"
        return texts.say(name, id=word, by=escape_markdown(result.by))
    return texts.say(f"approval_{result.rejection}", id=escape_markdown(word)) if result.rejection else ""


def _answer_text(turn: Turn, number: str, result: AnswerResult) -> str:
    """Say what became of an answer. Raise `ToolRetry` if it does not count."""
    say, word = turn.texts.say, "".join(number.upper().split())
    if rejection := format_rejection(turn.texts, number, result):
        raise ToolRetry(rejection)
    if result.is_waiting:
        return say("approval_done_waiting", id=word)
    return say("approval_done_approved" if result.verdict == "approved" else "approval_done_denied", id=word)
