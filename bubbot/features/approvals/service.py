"""The approvals of a bot: what waits for an answer, who may give it, what a yes starts, and what runs without asking."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from bubbot.errors import ConfigError, ValueInvalid
from bubbot.features.approvals.card import ApprovalCard
from bubbot.features.approvals.decider import Decider, decided_key
from bubbot.features.approvals.decision import MatchedGrant
from bubbot.features.approvals.facts import (
    Answer,
    AnswerRejected,
    ApprovalAsked,
    ApprovalContinued,
    ApprovalDecided,
    ApprovalOpened,
    Card,
    GrantRevoked,
    Scope,
    ToolGranted,
)
from bubbot.features.approvals.results import CardAnswer
from bubbot.features.approvals.settings import ApprovalSettings
from bubbot.features.approvals.state import APPROVALS_PROJECTION, APPROVALS_TAPE, ApprovalState
from bubbot.formatting import code, escape_markdown
from bubbot.gateway.names import name_chat
from bubbot.gateway.quarantine_view import QuarantineView
from bubbot.ports.approvals import ApprovalAnswer
from bubbot.ports.channel import APPROVAL_ORIGIN, Inbound, Outbound, Role
from bubbot.ports.session_names import split_session
from bubbot.ports.turn import Turn
from bubbot.tape.entry import TapeEntry, timestamp
from bubbot.tape.erasure import HOME_TAPE
from bubbot.tape.fact import Cited, Fact
from bubbot.tape.fork import MergeResult
from bubbot.tape.handle import Clock, TapeHandle
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.provenance import Source, most_foreign
from bubbot.tape.query import OpeningAnchor, TapeQuery, parse_moment
from bubbot.tape.service import TapeService
from bubbot.texts import Texts
from bubbot.tool import GrantKind, GrantTarget

if TYPE_CHECKING:
    from bubbot.feature import Kernel

log = logging.getLogger(__name__)

ID_ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Characters of ids: none looks like another one."""
ID_LENGTH = 5
MAX_REASON_CHARS = 500
MAX_NAMED_CHARS = 120
"""Characters of a command in a sentence about it."""

Rejection: TypeAlias = Literal["unknown", "expired", "decided", "foreign", "scope", "gone", "restored"]
"""Why an answer does not count."""
NO_FACTS: Mapping[str, Sequence[TapeEntry]] = MappingProxyType({})
OpenTape: TypeAlias = Callable[[str], TapeService]
F = TypeVar("F", bound=Fact)


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
        kernel: Kernel | None = None,
    ) -> None:
        """Build it without reading anything.

        Args:
            random: returns that many random bytes.
            kernel: queues the turns of answers; None if no bot runs: they are queued at its next start.
        """
        self.settings = settings
        self._open_tape = open_tape
        self._tape = open_tape(APPROVALS_TAPE)
        self._now = now
        self._random = random
        self._kernel = kernel
        projections = projections or ProjectionRunner()
        self._projected = projections.project(APPROVALS_PROJECTION, self._tape)
        self._lock = projections.lock(self._tape.name)
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

        True is cached: no backup is restored into a home that has a database.
        """
        if not self._may_act:
            self._may_act = await self._open_tape(HOME_TAPE).read(QuarantineView()) is None
        return self._may_act

    async def apply_merge(self, result: MergeResult) -> None:
        """Apply the merged facts of a turn."""
        if result.has_erased:
            await self._projected.load()
        elif facts := result.staged.get(APPROVALS_TAPE):
            await self._projected.follow(facts)

    def list_unanswered(self) -> list[Card]:
        """List the cards that nobody has answered and that have not expired, oldest first."""
        now = self._now()
        return [card for card in self.state.open if card.fact.ends_at > now]

    async def list_open(self) -> list[Card]:
        """List the cards that wait for an answer, oldest first: unanswered ones whose chat was not reset meanwhile."""
        return [card for card in self.list_unanswered() if await self.read_asked(card.fact) is not None]

    async def find_open_call(self, session: str, digest: str) -> str:
        """Return the id of the open card of a chat that holds a call with this digest; empty for none."""
        for card in self.list_unanswered():
            is_same = card.fact.session == session and digest in card.fact.digests
            if is_same and await self.read_asked(card.fact) is not None:
                return card.fact.id
        return ""

    async def read_arguments(self, grant: ToolGranted) -> str:
        """Read what a grant for exact arguments covers, as the card showed it.

        Empty for other kinds, whose value names the target, and if the calls of its card are gone.
        """
        if grant.kind != GrantKind.ARGUMENTS or (opened := await self._find_opened(grant.approval)) is None:
            return ""
        asked = await self.read_asked(opened.fact)
        calls = asked.calls if asked else ()
        return next((call.details for call in calls if (call.tool, call.target) == (grant.tool, grant.target)), "")

    async def match_grant(self, turn: Turn, tool: str, target: GrantTarget | None) -> MatchedGrant | None:
        """Return the best grant that covers a call: an exact one before one of a folder around it.

        What was taken back counts no more, in mid-turn too.
        """
        found = sorted(self.state.find_grants(tool, target), key=lambda pair: not pair[1].is_exact)
        for grant, matched in found:
            if await _is_in_force(grant.fact, turn):
                return matched
        return None

    async def new_id(self) -> str:
        """Return an id that no card has had."""
        while True:
            number = "".join(ID_ALPHABET[byte % len(ID_ALPHABET)] for byte in self._random(ID_LENGTH))
            if not (await self._tape.fetch([TapeQuery(APPROVALS_TAPE, keys=(opened_key(number),))]))[0]:
                return number

    @property
    def expires(self) -> str:
        """The moment at which a card that is written now means no."""
        return self.expires_after(self.settings.hours)

    def expires_after(self, hours: float) -> str:
        """Return the moment so many hours from now, ISO 8601 in UTC."""
        return timestamp(self._now() + timedelta(hours=hours))

    def may_answer(self, card: ApprovalOpened, decider: Decider) -> bool:
        """Return true if this person may say yes or no to a card, from this chat."""
        if decider.is_shell:
            return True
        is_here = decider.session in (card.session, card.card) or decider.has_power
        is_asker = (decider.channel, decider.id) == (card.channel, card.asker)
        if card.verdict == "confirm":
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
    ) -> CardAnswer:
        """Answer a card. The first answer counts; one that does not count leaves a fact.

        Nothing is written to the tape of a session, where a turn may be running.

        Args:
            number: the id of the card, as it was typed.
            verdict: yes or no.
            decider: who answers.
            scope: what the yes covers.
            reason: why not.
            facts: those of other tapes that are stored with the decision.

        Raises:
            ValueInvalid: it does not count; the sentence says why.
        """
        number = read_id(number)
        async with self._lock:
            await self._projected.catch_up()
            card = self.state.open.find(number) or await self._find_opened(number)  # it may have ended meanwhile
            earlier = await self.find_decision(number)
            rejection = "decided" if earlier else await self._find_rejection(card, verdict, decider, scope)
            if rejection:
                await self._reject(number, card, rejection, decider)
                raise _refuse(number, rejection, earlier.fact if earlier else None, decider)
            assert card is not None
            decided = decider.decide(card.fact, verdict, scope, reason[:MAX_REASON_CHARS])
            granted = decider.grant(card.fact, scope) if verdict == "approved" and scope != "once" else []
            new = [decided.to_entry(key=decided_key(number)), *granted]
            is_waiting = not await self._continue(
                card, decided, self._now(), new=new, facts=facts, pressed=decider.card
            )
            if is_waiting:  # its channel does not run here: the next start goes on
                await self._write(*new, other_tapes=facts)
        log.info("approval decided", extra={"action": "approval.decided", "approval": number, "verdict": verdict})
        return CardAnswer(number, verdict, is_waiting)

    async def _find_rejection(
        self, card: Card | None, verdict: Answer, decider: Decider, scope: Scope
    ) -> Rejection | None:
        """Return why the first answer to a card does not count."""
        if card is None:
            return "unknown"
        if self._is_late(card.fact, decider.moment):
            return "expired"
        if not self.may_answer(card.fact, decider):
            return "foreign"
        if verdict == "approved" and scope not in card.fact.scopes:
            return "scope"
        if verdict == "approved" and await self.read_asked(card.fact) is None:
            return "gone"
        if verdict == "approved" and not await self.may_act():
            return "restored"
        return None

    def _is_late(self, card: ApprovalOpened, moment: datetime | None) -> bool:
        """Return true if an answer was given after its card had expired, or arrived `settings.hours` or more after it was given."""
        now = self._now()
        given = min(moment or now, now)
        return card.ends_at <= given or given + timedelta(hours=self.settings.hours) <= now

    async def _reject(self, number: str, card: Card | None, rejection: Rejection, decider: Decider) -> None:
        if card is None and rejection == "unknown":
            return  # made up, or a typing error: nothing happened
        session = card.fact.session if card else decider.session
        await self._write(AnswerRejected(number, rejection, decider.id, decider.channel, session).to_entry())

    async def read_asked(self, card: ApprovalOpened) -> ApprovalAsked | None:
        """Read the calls of a card from the tape of its chat; None if they were put aside or erased."""
        found = await find_fact(self._open_tape(card.tape), ApprovalAsked, asked_key(card.id))
        return found.fact if found else None

    async def find_decision(self, number: str) -> Cited[ApprovalDecided] | None:
        """Return the answer to a card; None without one."""
        return await find_fact(self._tape, ApprovalDecided, decided_key(number))

    async def find_answer(self, number: str) -> ApprovalAnswer | None:
        """Return the answer to a question of a feature; see `FindApproval`."""
        if (decided := await self.find_decision(number)) is None:
            return None
        fact = decided.fact
        return ApprovalAnswer(fact.verdict == "approved", fact.by, decided.date)

    async def _find_opened(self, number: str) -> Card | None:
        return await find_fact(self._tape, ApprovalOpened, opened_key(number))

    def find_late(self, decided: Cited[ApprovalDecided]) -> datetime | None:
        """Return when a card was answered if that is `settings.hours` or more ago, else None.

        The bot was stopped for so long after the answer that the answer may be wrong now.
        """
        moment = parse_moment(decided.date)
        is_late = moment is not None and moment + timedelta(hours=self.settings.hours) <= self._now()
        return moment if is_late else None

    async def _continue(
        self,
        card: Card,
        decided: ApprovalDecided,
        at: datetime,
        *,
        new: Sequence[TapeEntry] = (),
        facts: Mapping[str, Sequence[TapeEntry]] = NO_FACTS,
        pressed: str = "",
    ) -> bool:
        """Write a decision, the inbound that goes on after it and the changed card, in one transaction (T3).

        False if the channel of the chat does not run here: nothing is written.

        Args:
            at: when it was given.
            new: the facts of the answer that are not written yet.
            facts: those of other tapes that are stored with them.
            pressed: see `_draw_card`.
        """
        if (kernel := self._kernel) is None:
            return False
        number, session, key = card.fact.id, card.fact.session, f"decided:{card.fact.id}"
        inbound = continuation_inbound(card, decided, timestamp(self._now()))
        drawn = await self._draw_card(kernel, card.fact, decided, at, pressed=pressed)
        try:
            drafted = kernel.draft(session, key, drawn) if drawn else NO_FACTS
        except ConfigError:
            log.info("card not edited: its channel does not run here", extra={"action": "approval.unedited"})
            drawn, drafted = None, NO_FACTS
        own = [*new, continued_entry(number)]
        try:
            is_new = await kernel.accept(inbound, {**facts, **drafted, APPROVALS_TAPE: own})
        except ConfigError:
            return False
        if not is_new:
            await self._write(*own)
        await self._projected.catch_up()
        if drawn is not None:
            await kernel.send(session, key, drawn, {})
        return True

    async def continue_decided(self) -> None:
        """Queue the turns of decisions that were taken while the bot, or the channel of a chat, did not run."""
        if self._kernel is None or not await self.may_act():
            return
        async with self._lock:
            await self._projected.catch_up()
            for answered in self.state.decided:
                if decided := await self.find_decision(answered.decided.fact.id):
                    await self._continue(answered.opened, decided.fact, parse_moment(decided.date) or self._now())

    async def revoke(self, number: int, by: str, channel: str) -> bool:
        """Take a grant back; false if there is none of this number. The next call under it asks again."""
        async with self._lock:
            await self._projected.catch_up()
            is_there = number in self.state.by_number
            if is_there:
                await self._write(GrantRevoked(number, by, channel).to_entry())
            return is_there

    async def end_workspace_grants(self, turn: Turn, tools: Collection[str], because: str) -> None:
        """Revoke the grants of these tools for the workspace of a turn, and say so in its chat.

        The revocation is durable when this returns, before the files change.
        """
        async with self._lock:
            await self._projected.catch_up()
            ended = [
                grant
                for grant in [*self.state.grants]  # which another turn may change meanwhile
                if grant.fact.tool in tools and await self._find_session(grant.fact) in (turn.session, "")
            ]
            if not ended:
                return
            channel = turn.inbounds[0].inbound.channel
            facts = [GrantRevoked(grant.id, turn.sender.id, channel, because).to_entry() for grant in ended]
            commands = ", ".join(dict.fromkeys([await self._name_command(grant.fact) for grant in ended]))
            chat = split_session(turn.session)
            text = turn.texts.say("approval_files_changed", commands=commands)
            message = Outbound(chat.channel, chat.chat, text, chat.thread)
            try:
                if self._kernel is None:
                    raise ConfigError("no bot runs")
                key = f"grants_ended:{ended[-1].id}"
                await self._kernel.send(turn.session, key, message, {APPROVALS_TAPE: facts})
            except ConfigError:
                await self._write(*facts)
            else:
                await self._projected.catch_up()

    async def _find_session(self, grant: ToolGranted) -> str:
        """Return the session in which a grant was asked; empty if that is no longer known."""
        if grant.session:
            return grant.session
        opened = await self._find_opened(grant.approval)
        return opened.fact.session if opened else ""

    async def _name_command(self, grant: ToolGranted) -> str:
        arguments = await self.read_arguments(grant)
        return code((arguments.partition("\n")[0] or grant.tool)[:MAX_NAMED_CHARS])

    async def _draw_card(
        self,
        kernel: Kernel,
        card: ApprovalOpened,
        decided: ApprovalDecided,
        at: datetime,
        left: Sequence[str] = (),
        *,
        pressed: str = "",
    ) -> Outbound | None:
        """Draw a card as it is after its answer: who, when, and what; and which calls of it did not run.

        None if there is nothing to change.

        Args:
            at: when it was given.
            left: the tools of its calls that did not run, if it is known.
            pressed: the platform's id of the message that was pressed; empty: the receipt names it.
        """
        chat = split_session(card.card)
        message = pressed or await kernel.find_sent(card.session, chat.channel, card_key(card.id))
        if not message:
            return None
        asked, texts = await self.read_asked(card), await self.find_texts(card)
        if asked is None:  # a reset put the calls aside
            text = texts.say("approval_gone", id=card.id)
        else:
            drawn = ApprovalCard(asked, card, texts, kernel.zone, await self.name_elsewhere(self._tape, card, texts))
            text = drawn.format_decided(decided, at, left)
        return Outbound(chat.channel, chat.chat, text, chat.thread, edits=message)

    async def find_texts(self, card: ApprovalOpened) -> Texts:
        """Return the sentences of a card: for its asker in the chat of the turn, elsewhere for whoever wrote there last."""
        if self._kernel is None:
            return Texts()
        chat = split_session(card.card)
        return await self._kernel.find_texts(chat.channel, card.asker if card.card == card.session else "", chat.chat)

    async def name_elsewhere(self, tape: TapeHandle, card: ApprovalOpened, texts: Texts) -> str:
        """Return what people call the chat in which a card came up; empty if the card is shown there."""
        return await name_chat(tape, texts, card.session) if card.card != card.session else ""

    async def draw_unfinished(self, number: str, left: Sequence[str]) -> Outbound | None:
        """Draw the card of an answer again, which says that these tools of it did not run; None if it cannot be changed."""
        card, decided = await self._find_opened(number), await self.find_decision(number)
        if self._kernel is None or card is None or decided is None:
            return None
        at = parse_moment(decided.date) or self._now()
        return await self._draw_card(self._kernel, card.fact, decided.fact, at, left)

    async def _write(self, *facts: TapeEntry, other_tapes: Mapping[str, Sequence[TapeEntry]] = NO_FACTS) -> None:
        await self._projected.write_checkpoint()
        stored = await self._tape.append(facts, if_absent=True, other_tapes=other_tapes)
        await self._projected.follow(stored)


async def find_window(turn: Turn) -> int:
    """Return the anchor that opened the window of a turn; 0 without one."""
    found = (await turn.tape.fetch([TapeQuery(turn.tape.name, OpeningAnchor(), missing="empty")]))[0]
    return found[0].id if found else 0


async def _is_in_force(grant: ToolGranted, turn: Turn) -> bool:
    """Return true if a grant counts in a turn: everywhere, or in the window of its chat in which it was given."""
    if not grant.session:
        return True
    return grant.session == turn.session and grant.anchor == await find_window(turn)


async def find_fact(tape: TapeHandle, kind: type[F], key: str) -> Cited[F] | None:
    """Return the fact of this key on a tape; None if there is none, or if it was erased."""
    found = (await tape.fetch([TapeQuery(tape.name, keys=(key,))]))[0]
    is_there = found and not found[0].erased and found[0].name in kind.EVENTS
    return Cited.of(kind, found[0]) if is_there else None


def read_id(number: str) -> str:
    """Return the id of a card as it is written on the card."""
    return "".join(number.upper().split())


def _refuse(number: str, rejection: Rejection, earlier: ApprovalDecided | None, decider: Decider) -> ValueInvalid:
    """Make the error that says why an answer does not count; what people wrote stays words in a chat."""
    show = str if decider.is_shell else escape_markdown
    if earlier is None:
        return ValueInvalid(f"approval_{rejection}", id=show(number))
    return ValueInvalid(f"approval_was_{earlier.verdict}", id=number, by=show(earlier.person))


def opened_key(number: str) -> str:
    """Return the key of the fact on the access tape that a card was asked."""
    return f"opened:{number}"


def asked_key(number: str) -> str:
    """Return the key of the fact with the calls of a card, on the tape of its chat."""
    return f"asked:{number}"


def card_key(number: str) -> str:
    """Return the key of the message with a card."""
    return f"card:{number}"


def continued_entry(number: str) -> TapeEntry:
    """Make the fact that the turn of an answer was queued."""
    return ApprovalContinued(number).to_entry(key=f"continued:{number}")


def continuation_inbound(card: Card, decided: ApprovalDecided, time: str) -> Inbound:
    """Build the inbound with which a chat goes on after an answer. Its text is for the model, or the command of a question."""
    opened = card.fact
    if opened.command:
        text = opened.command
    elif decided.verdict == "approved":
        text = (
            f"[Approval {opened.id}: allowed ({decided.scope}). The calls that were waiting run now, as they were stored; "
            "their results follow. Go on with the task.]"
        )
    else:
        text = (
            f"[Approval {opened.id}: denied. The calls that were waiting do not run. Do not try them again in another "
            "form; tell the person briefly what is left undone.]"
        )
        if decided.reason:
            text += f"\nReason given, as a quotation: {json.dumps(decided.reason, ensure_ascii=False)}"
    return Inbound(
        opened.channel,
        decided_key(opened.id),
        opened.chat,
        opened.sender,
        text,
        time,
        thread=opened.thread,
        direct=opened.direct,
        space=opened.space,
        origin=APPROVAL_ORIGIN,
        # The calls are as foreign as what made the model write them, and a reason is somebody's words.
        provenance=str(most_foreign(card.source, Source.PEOPLE if decided.reason else Source.OWN)),
        agents=opened.agents,
    )
