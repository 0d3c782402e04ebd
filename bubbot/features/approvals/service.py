"""The approvals of a bot: what waits for an answer, who may give it, what a yes starts, and what runs without asking."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from types import MappingProxyType
from typing import Literal, TypeAlias

from bubbot.errors import ConfigError
from bubbot.features.approvals.card import ApprovalCard, code, find_chat
from bubbot.features.approvals.decision import MatchedGrant
from bubbot.features.approvals.events import ASKED, CONTINUED, DECIDED, GRANTED, OPENED, REJECTED, REVOKED
from bubbot.features.approvals.settings import ApprovalSettings
from bubbot.features.approvals.state import (
    APPROVALS_PROJECTION,
    APPROVALS_TAPE,
    ApprovalState,
    OpenApproval,
    StandingGrant,
    opened_from,
)
from bubbot.gateway.names import name_chat
from bubbot.gateway.quarantine_view import QuarantineView
from bubbot.ports.channel import APPROVAL_ORIGIN, Inbound, Outbound, Role, Sender
from bubbot.ports.tool import GrantKind, GrantTarget
from bubbot.ports.turn import Turn
from bubbot.records import dataclass
from bubbot.tape.entry import JsonObject, TapeEntry, event, timestamp
from bubbot.tape.erasure import HOME_TAPE
from bubbot.tape.fork import MergeResult
from bubbot.tape.handle import Clock
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.provenance import Source, most_foreign
from bubbot.tape.query import OpeningAnchor, TapeQuery, parse_moment
from bubbot.tape.service import TapeService
from bubbot.texts import Texts

log = logging.getLogger(__name__)

ID_ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Characters of ids: none looks like another one."""
ID_LENGTH = 5
MAX_REASON_CHARS = 500
MAX_NAMED_CHARS = 120
"""Characters of a command in a sentence about it."""

Scope: TypeAlias = Literal["once", "chat", "always"]
Answer: TypeAlias = Literal["approved", "denied"]
Rejection: TypeAlias = Literal["unknown", "expired", "decided", "foreign", "scope", "gone", "restored"]
"""Why an answer does not count."""
NO_FACTS: Mapping[str, Sequence[TapeEntry]] = MappingProxyType({})
OpenTape: TypeAlias = Callable[[str], TapeService]
AcceptInbound: TypeAlias = Callable[[Inbound, Mapping[str, Sequence[TapeEntry]]], Awaitable[bool]]
SendMessage: TypeAlias = Callable[[str, str, Outbound, Mapping[str, Sequence[TapeEntry]]], Awaitable[None]]
DraftMessage: TypeAlias = Callable[[str, str, Outbound], Mapping[str, Sequence[TapeEntry]]]
FindSent: TypeAlias = Callable[[str, str, str], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class Decider:
    """The person who answers.

    Attributes:
        channel: the channel of the answer.
        id: the numeric id there; `terminal` for a shell.
        name: the shown name, which proves nothing.
        role: the role there.
        session: the chat of the answer.
        has_power: an owner in a direct chat or at a shell, who may answer what came up in other chats.
        surface: `button`, `command` or `shell`.
        moment: when it was pressed or typed, which is what counts; None for now.
        card: the platform's id of the message that was pressed.
    """

    channel: str
    id: str
    name: str
    role: Role
    session: str
    has_power: bool
    surface: str
    moment: datetime | None = None
    card: str = ""

    @property
    def is_shell(self) -> bool:
        """True if the operating system's user answers."""
        return self.surface == "shell"


@dataclass(frozen=True, slots=True)
class AnswerResult:
    """What became of an answer.

    Attributes:
        approval: the card; None if there is none of this id.
        rejection: why it does not count; None if it counts.
        by: who has answered before, if it was decided.
        verdict: what was answered then.
        is_waiting: the call runs when the bot is started with the channel of its chat.
    """

    approval: OpenApproval | None = None
    rejection: Rejection | None = None
    by: str = ""
    verdict: str = ""
    is_waiting: bool = False


@dataclass(frozen=True, slots=True)
class ApprovalPorts:
    """What answers act on in a running bot.

    Attributes:
        accept: see `Kernel.accept`.
        send: see `Kernel.send`.
        draft: see `Kernel.draft`.
        find_sent: see `Kernel.find_sent`.
        find_texts: see `Kernel`.
        zone: the time zone of the deployment.
    """

    accept: AcceptInbound
    send: SendMessage
    draft: DraftMessage
    find_sent: FindSent
    find_texts: Callable[[str, str, str], Awaitable[Texts]]
    zone: tzinfo


class ApprovalService:
    """Open cards and grants. Changes are serialised, and durable when they return.

    Attributes:
        settings: who may allow, and for how long a card counts.
    """

    def __init__(
        self,
        open_tape: OpenTape,
        now: Clock,
        random: Callable[[int], bytes],
        settings: ApprovalSettings,
        *,
        projections: ProjectionRunner | None = None,
        ports: ApprovalPorts | None = None,
    ) -> None:
        """Build it without reading anything.

        Args:
            open_tape: opens a tape by its name.
            now: the clock.
            random: returns that many random bytes.
            settings: see there.
            projections: keeps the state.
            ports: what answers act on; None if no bot runs: what was allowed runs at its next start.
        """
        self.settings = settings
        self._open_tape = open_tape
        self._tape = open_tape(APPROVALS_TAPE)
        self._now = now
        self._random = random
        self._ports = ports
        self._projected = (projections or ProjectionRunner()).project(APPROVALS_PROJECTION, self._tape)
        self._lock = asyncio.Lock()
        self._may_act = False

    @property
    def state(self) -> ApprovalState:
        """The state as of the last load or change."""
        return self._projected.state

    async def load(self) -> None:
        """Read the tape, once; later changes update the state."""
        await self._projected.catch_up()

    async def may_act(self) -> bool:
        """Return false while the home is a copy in quarantine: the original bot may have acted on the same yes.

        A home that has a database is not restored into, so that this stays true.
        """
        if not self._may_act:
            self._may_act = await self._open_tape(HOME_TAPE).read(QuarantineView()) is None
        return self._may_act

    async def apply_merge(self, result: MergeResult) -> None:
        """Apply the merged facts of a turn."""
        if "tape/erased" in [entry.name for entry in result.delta]:
            await self._projected.load()
        elif facts := result.staged.get(APPROVALS_TAPE):
            await self._projected.follow(facts)

    def list_unanswered(self) -> list[OpenApproval]:
        """List the cards that nobody has answered and that have not expired, oldest first."""
        now = self._now()
        return [each for each in self.state.open.values() if each.expires > now]

    async def list_open(self) -> list[OpenApproval]:
        """List the cards that wait for an answer, oldest first: unanswered ones whose chat was not reset meanwhile."""
        return [each for each in self.list_unanswered() if await self.read_asked(each) is not None]

    def list_grants(self) -> list[StandingGrant]:
        """List the grants, oldest first. That of a chat whose window has closed is still there, and covers nothing."""
        return list(self.state.grants.values())

    async def find_open_call(self, session: str, digest: str) -> OpenApproval | None:
        """Return the open card of a chat that holds a call with this digest."""
        for each in self.list_unanswered():
            is_same = each.session == session and digest in each.digests
            if is_same and await self.read_asked(each) is not None:
                return each
        return None

    async def read_arguments(self, grant: StandingGrant) -> str:
        """Read what a grant for exact arguments covers, as the card showed it.

        Empty if it covers something that it names itself, or if the chat in which it was asked is no longer there.
        """
        if grant.target.kind is not GrantKind.ARGUMENTS:
            return ""
        opened = await self._find_opened(grant.approval)
        if opened is None:
            return ""
        asked = await self._read_asked(opened.payload["data"]["tape"], grant.approval)
        wanted = {"kind": grant.target.kind.value, "value": grant.target.value}
        calls = asked["calls"] if asked else ()
        return next((call["details"] for call in calls if (call["tool"], call["target"]) == (grant.tool, wanted)), "")

    async def match_grant(self, turn: Turn, tool: str, target: GrantTarget | None) -> MatchedGrant | None:
        """Return the best grant that covers a call: an exact one before one of a folder around it.

        What was taken back counts no more, in mid-turn too.
        """
        found = sorted(self.state.find_grants(tool, target), key=lambda pair: not pair[1].is_exact)
        for grant, matched in found:
            if not grant.session or (grant.session == turn.session and grant.window == await find_window(turn)):
                return matched
        return None

    async def new_id(self) -> str:
        """Return an id that no card has had."""
        while True:
            number = "".join(ID_ALPHABET[byte % len(ID_ALPHABET)] for byte in self._random(ID_LENGTH))
            query = TapeQuery(APPROVALS_TAPE, keys=(opened_key(number),))
            if not (await self._tape.fetch([query]))[0]:
                return number

    @property
    def expires(self) -> str:
        """The moment at which a card that is written now means no."""
        return timestamp(self._now() + timedelta(hours=self.settings.hours))

    def may_answer(self, approval: OpenApproval, decider: Decider) -> bool:
        """Return true if this person may say yes or no to a card, from this chat."""
        if decider.is_shell:
            return True
        is_here = decider.session in (approval.session, approval.card) or decider.has_power
        is_asker = (decider.channel, decider.id) == (approval.channel, approval.asker.id)
        if approval.verdict == "confirm":
            return is_here and (is_asker or decider.role is Role.OWNER)
        return is_here and decider.role.at_least(Role(self.settings.role))

    async def answer(
        self,
        number: str,
        verdict: Answer,
        decider: Decider,
        *,
        scope: Scope = "once",
        reason: str = "",
        facts: Mapping[str, Sequence[TapeEntry]] = NO_FACTS,
    ) -> AnswerResult:
        """Answer a card. The first answer counts; one that does not count leaves a fact.

        Nothing is written to the tape of a session, where a turn may be running.

        Args:
            number: the id of the card, in any case.
            verdict: yes or no.
            decider: who answers.
            scope: what the yes covers.
            reason: why not.
            facts: those of other tapes that are stored with the decision.

        Returns:
            What became of it.
        """
        number = "".join(number.upper().split())
        async with self._lock:
            await self._projected.catch_up()
            approval = self.state.open.get(number)
            approval = approval or await self._read_opened(number)  # it may have ended while the answer waited
            rejection, earlier = await self._find_rejection(number, approval, verdict, decider, scope)
            if rejection is not None:
                await self._reject(number, approval, rejection, decider)
                return AnswerResult(approval, rejection, *earlier)
            assert approval is not None
            decided = decided_entry(approval, verdict, decider, scope, reason[:MAX_REASON_CHARS])
            granted = grant_entries(approval, decider, scope) if verdict == "approved" and scope != "once" else []
            is_waiting = not await self._continue(approval, decided, granted, facts, decider.card)
            if is_waiting:  # its channel does not run here: the next start goes on
                await self._write(decided, *granted, other_tapes=facts)
        log.info("approval decided", extra={"action": "approval.decided", "approval": number, "verdict": verdict})
        return AnswerResult(approval, verdict=verdict, is_waiting=is_waiting)

    async def _find_rejection(
        self, number: str, approval: OpenApproval | None, verdict: Answer, decider: Decider, scope: Scope
    ) -> tuple[Rejection | None, tuple[str, str]]:
        """Return why an answer does not count, and who has given which answer before."""
        query = TapeQuery(APPROVALS_TAPE, keys=(decided_key(number), opened_key(number)))
        known = {entry.name: entry for entry in (await self._tape.fetch([query]))[0] if not entry.erased}
        if (decided := known.get(DECIDED)) is not None:
            data = decided.payload["data"]
            return "decided", (data["by_name"] or data["by"], data["verdict"])
        if approval is None:
            return ("expired" if OPENED in known else "unknown"), ("", "")
        if self._is_late(approval, decider.moment):
            return "expired", ("", "")
        if not self.may_answer(approval, decider):
            return "foreign", ("", "")
        if verdict == "approved" and scope not in approval.scopes:
            return "scope", ("", "")
        if verdict == "approved" and await self.read_asked(approval) is None:
            return "gone", ("", "")
        if verdict == "approved" and not await self.may_act():
            return "restored", ("", "")
        return None, ("", "")

    def _is_late(self, approval: OpenApproval, moment: datetime | None) -> bool:
        """Return true if an answer was given after the end of its card, or got here so late that it may be wrong now."""
        now = self._now()
        given = min(moment or now, now)
        return approval.expires <= given or given + timedelta(hours=self.settings.hours) <= now

    async def _read_opened(self, number: str) -> OpenApproval | None:
        found = (await self._tape.fetch([TapeQuery(APPROVALS_TAPE, keys=(opened_key(number),))]))[0]
        is_card = found and not found[0].erased and found[0].name == OPENED
        return opened_from(found[0]) if is_card else None

    async def _reject(self, number: str, approval: OpenApproval | None, rejection: Rejection, decider: Decider) -> None:
        if approval is None and rejection == "unknown":
            return  # made up, or a typing error: nothing happened
        session = approval.session if approval else decider.session
        data = {
            "id": number, "reason": rejection, "by": decider.id, "channel": decider.channel, "session": session,
        }  # fmt: skip
        await self._write(event(REJECTED, data))

    async def read_asked(self, approval: OpenApproval) -> JsonObject | None:
        """Read the calls of a card from the tape of its chat; None if they were put aside or erased."""
        return await self._read_asked(approval.tape, approval.id)

    async def _read_asked(self, tape: str, number: str) -> JsonObject | None:
        found = (await self._open_tape(tape).fetch([TapeQuery(tape, keys=(asked_key(number),))]))[0]
        return found[0].payload["data"] if found and not found[0].erased and found[0].name == ASKED else None

    async def read_decision(self, number: str) -> JsonObject | None:
        """Return the data of the answer to a card; None without one."""
        found = await self._find_decision(number)
        return found.payload["data"] if found else None

    async def find_late(self, number: str) -> datetime | None:
        """Return when a card was answered, if that is longer ago than an answer may take; None if it is not.

        So long a bot was stopped after the answer: what was right then may be wrong now.
        """
        found = await self._find_decision(number)
        decided = parse_moment(found.date) if found else None
        is_late = decided is not None and decided + timedelta(hours=self.settings.hours) <= self._now()
        return decided if is_late else None

    async def _find_decision(self, number: str) -> TapeEntry | None:
        query = TapeQuery(APPROVALS_TAPE, keys=(decided_key(number),))
        found = (await self._tape.fetch([query]))[0]
        return found[0] if found and not found[0].erased else None

    async def _continue(
        self,
        approval: OpenApproval,
        decided: TapeEntry,
        granted: Sequence[TapeEntry] = (),
        facts: Mapping[str, Sequence[TapeEntry]] = NO_FACTS,
        pressed: str = "",
    ) -> bool:
        """Write a decision, the inbound that goes on after it and the changed card, in one transaction (T3).

        What is written already stays as it is. False if the channel of the chat does not run here: nothing is written.
        """
        if self._ports is None:
            return False
        data = decided.payload["data"]
        now, key = self._now(), f"decided:{approval.id}"
        inbound = continuation_inbound(approval, data["verdict"], data["scope"], data["reason"], timestamp(now))
        card = await self._draw_card(self._ports, approval, data, parse_moment(decided.date) or now, pressed=pressed)
        try:
            drawn = self._ports.draft(approval.session, key, card) if card else NO_FACTS
        except ConfigError:
            log.info("card not edited: its channel does not run here", extra={"action": "approval.unedited"})
            card, drawn = None, NO_FACTS
        own = [*([] if decided.id else [decided, *granted]), continued_entry(approval.id)]
        try:
            is_new = await self._ports.accept(inbound, {**facts, **drawn, APPROVALS_TAPE: own})
        except ConfigError:
            return False
        if not is_new:
            await self._write(*own)
        await self._projected.catch_up()
        if card is not None:
            await self._ports.send(approval.session, key, card, {})
        return True

    async def continue_decided(self) -> None:
        """Queue the turns of decisions that were taken while the bot, or the channel of a chat, did not run."""
        if self._ports is None or not await self.may_act():
            return
        async with self._lock:
            await self._projected.catch_up()
            for decision in list(self.state.decided.values()):
                if decided := await self._find_decision(decision.id):
                    await self._continue(decision.opened, decided)

    async def revoke(self, entry: int, by: str, channel: str) -> StandingGrant | None:
        """Take a grant back; None if there is none of this number. The next call under it asks again."""
        async with self._lock:
            await self._projected.catch_up()
            grant = self.state.grants.get(entry)
            if grant is not None:
                await self._write(event(REVOKED, {"grant": entry, "by": by, "channel": channel}))
            return grant

    async def end_workspace_grants(self, turn: Turn, tools: Collection[str], because: str) -> None:
        """Take back what these tools may run in the workspace of a turn without asking, and say so in its chat.

        It is durable when it returns: what they would run changes only then.
        """
        async with self._lock:
            await self._projected.catch_up()
            ended = [
                grant
                for grant in self.state.grants.values()
                if grant.tool in tools and await self._find_session(grant) in (turn.session, "")
            ]
            if not ended:
                return
            by = {"by": turn.sender.id, "channel": turn.inbounds[0].inbound.channel, "because": because}
            facts = [event(REVOKED, {"grant": grant.entry, **by}) for grant in ended]
            commands = ", ".join(dict.fromkeys([await self._name_command(grant) for grant in ended]))
            chat = find_chat(turn.session)
            text = turn.texts.say("approval_files_changed", commands=commands)
            message = Outbound(chat.channel, chat.chat, text, chat.thread)
            try:
                if self._ports is None:
                    raise ConfigError("no bot runs")
                key = f"grants_ended:{ended[-1].entry}"
                await self._ports.send(turn.session, key, message, {APPROVALS_TAPE: facts})
            except ConfigError:
                await self._write(*facts)
            else:
                await self._projected.catch_up()

    async def _find_session(self, grant: StandingGrant) -> str:
        """Return the session in which a grant was asked; empty if that is no longer known."""
        if grant.session:
            return grant.session
        opened = await self._find_opened(grant.approval)
        return str(opened.payload["data"]["session"]) if opened else ""

    async def _name_command(self, grant: StandingGrant) -> str:
        arguments = await self.read_arguments(grant)
        return code((arguments.partition("\n")[0] or grant.tool)[:MAX_NAMED_CHARS])

    async def _find_opened(self, number: str) -> TapeEntry | None:
        found = (await self._tape.fetch([TapeQuery(APPROVALS_TAPE, keys=(opened_key(number),))]))[0]
        return found[0] if found and not found[0].erased and found[0].name == OPENED else None

    async def _draw_card(
        self,
        ports: ApprovalPorts,
        approval: OpenApproval,
        decided: JsonObject,
        at: datetime,
        left: Sequence[str] = (),
        *,
        pressed: str = "",
    ) -> Outbound | None:
        """Draw a card as it is after its answer: who, when, and what; and which calls of it did not run.

        None if there is nothing to change.

        Args:
            ports: what answers act on.
            approval: the card.
            decided: the data of the answer.
            at: when it was given.
            left: the tools of its calls that did not run, if it is known.
            pressed: the platform's id of the message that was pressed; empty: the receipt names it.
        """
        chat = find_chat(approval.card)
        message = pressed or await ports.find_sent(approval.session, chat.channel, card_key(approval.id))
        if not message:
            return None
        asked, texts = (
            await self.read_asked(approval),
            await self.find_texts(approval.card, approval.session, approval.asker),
        )
        if asked is None:  # a reset put the calls aside
            text = texts.say("approval_gone", id=approval.id)
        else:
            is_here = approval.card == approval.session
            elsewhere = "" if is_here else await name_chat(self._tape, texts, approval.session)
            card = ApprovalCard(approval.id, asked, approval.session, approval.asker, texts, ports.zone, elsewhere)
            by = decided["by_name"] or decided["by"]
            text = card.format_decided(decided["verdict"], decided["scope"], by, at, left)
        return Outbound(chat.channel, chat.chat, text, chat.thread, edits=message)

    async def find_texts(self, card: str, session: str, asker: Sender) -> Texts:
        """Return the sentences of a card: for its asker in the chat of the turn, elsewhere for whoever wrote there last."""
        if self._ports is None:
            return Texts()
        chat = find_chat(card)
        return await self._ports.find_texts(chat.channel, asker.id if card == session else "", chat.chat)

    async def draw_unfinished(self, number: str, left: Sequence[str]) -> Outbound | None:
        """Draw the card of an answer again, which says that these tools of it did not run; None if it cannot be changed."""
        approval, decided = await self._read_opened(number), await self._find_decision(number)
        if self._ports is None or approval is None or decided is None:
            return None
        at = parse_moment(decided.date) or self._now()
        return await self._draw_card(self._ports, approval, decided.payload["data"], at, left)

    async def _write(self, *facts: TapeEntry, other_tapes: Mapping[str, Sequence[TapeEntry]] = NO_FACTS) -> None:
        await self._projected.write_checkpoint()
        stored = await self._tape.append(facts, if_absent=True, other_tapes=other_tapes)
        await self._projected.follow(stored)


async def find_window(turn: Turn) -> int:
    """Return the anchor that opened the window of a turn; 0 without one."""
    found = (await turn.tape.fetch([TapeQuery(turn.tape.name, OpeningAnchor(), missing="empty")]))[0]
    return found[0].id if found else 0


def opened_key(number: str) -> str:
    """Return the key of the fact on the access tape that a card was asked."""
    return f"opened:{number}"


def asked_key(number: str) -> str:
    """Return the key of the fact with the calls of a card, on the tape of its chat."""
    return f"asked:{number}"


def decided_key(number: str) -> str:
    """Return the key of the answer to a card: the first one counts."""
    return f"{APPROVAL_ORIGIN}:{number}"


def card_key(number: str) -> str:
    """Return the key of the message with a card."""
    return f"card:{number}"


def decided_entry(approval: OpenApproval, verdict: Answer, decider: Decider, scope: Scope, reason: str) -> TapeEntry:
    """Make the fact that a card was answered."""
    data = {
        "id": approval.id,
        "session": approval.session,
        "verdict": verdict,
        "scope": scope if verdict == "approved" else "",
        "reason": reason,
        "by": decider.id,
        "by_name": decider.name,
        "channel": decider.channel,
        "surface": decider.surface,
    }
    return event(DECIDED, data, key=decided_key(approval.id))


def continued_entry(number: str) -> TapeEntry:
    """Make the fact that the turn of an answer was queued."""
    return event(CONTINUED, {"id": number}, key=f"continued:{number}")


def grant_entries(approval: OpenApproval, decider: Decider, scope: Scope) -> list[TapeEntry]:
    """Make the grants of a yes that covers more than once: one for each thing that the calls act on."""
    place = {"session": approval.session, "window": [approval.tape, approval.window]} if scope == "chat" else {}
    named = dict.fromkeys(
        (tool, *target) for tool, target in zip(approval.tools, approval.targets, strict=True) if target
    )
    return [
        event(
            GRANTED,
            {
                "tool": tool, "kind": kind, "value": value, **place,
                "approval": approval.id, "by": decider.id, "channel": decider.channel,
            },
            key=f"grant:{approval.id}:{number}",
        )
        for number, (tool, kind, value) in enumerate(named)
    ]  # fmt: skip


def continuation_inbound(approval: OpenApproval, verdict: str, scope: str, reason: str, time: str) -> Inbound:
    """Build the inbound with which a chat goes on after an answer. Its text is for the model."""
    if verdict == "approved":
        text = (
            f"[Approval {approval.id}: allowed ({scope}). The calls that were waiting run now, as they were stored; their "
            "results follow. Go on with the task.]"
        )
    else:
        text = (
            f"[Approval {approval.id}: denied. The calls that were waiting do not run. Do not try them again in another "
            "form; tell the person briefly what is left undone.]"
        )
        if reason:
            text += f"\nReason given, as a quotation: {json.dumps(reason, ensure_ascii=False)}"
    return Inbound(
        approval.channel,
        decided_key(approval.id),
        approval.chat,
        approval.asker,
        text,
        time,
        thread=approval.thread,
        direct=approval.is_direct,
        space=approval.space,
        origin=APPROVAL_ORIGIN,
        # The calls are as foreign as what made the model write them, and a reason is somebody's words.
        provenance=str(most_foreign(approval.provenance, Source.PEOPLE if reason else Source.OWN)),
    )
