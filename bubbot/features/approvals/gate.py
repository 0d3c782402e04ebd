"""The gate: each call of a model is decided before it runs; what needs a yes is stored, and asked with a card."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from hashlib import sha256
from typing import TypeAlias

from msgspec import UNSET, Struct, structs
from msgspec.structs import replace

from bubbot.arguments.fields import Args, write_given
from bubbot.concurrency import run_uninterrupted
from bubbot.errors import ToolFailed, ToolRefused, ToolSignal
from bubbot.features.approvals.card import HOUR_SECONDS, MAX_NAMED, ApprovalCard
from bubbot.features.approvals.decision import (
    CallerColumn,
    CallFacts,
    Decision,
    EffectRow,
    MatchedGrant,
    Place,
    Verdict,
    decide,
)
from bubbot.features.approvals.facts import (
    AnswerRejected,
    ApprovalAsked,
    ApprovalOpened,
    CallChecked,
    StoredCall,
)
from bubbot.features.approvals.service import (
    ApprovalService,
    asked_key,
    card_key,
    find_fact,
    find_window,
    opened_key,
)
from bubbot.features.approvals.state import APPROVALS_TAPE, covers
from bubbot.formatting import clean
from bubbot.middleware import CallNext, ToolInvocation
from bubbot.ports.access import Allowance
from bubbot.ports.approvals import ApprovalQuestion
from bubbot.ports.channel import APPROVAL_ORIGIN, Outbound, Role
from bubbot.ports.model import ToolCall
from bubbot.ports.session_names import split_session
from bubbot.ports.turn import Turn, TurnOutcome
from bubbot.runtime.effects import EFFECT_BEGIN, EFFECT_END
from bubbot.runtime.router import holds_command
from bubbot.runtime.session import MAX_ATTEMPTS
from bubbot.runtime.tool_list import unwrap_call
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.events import EffectBegin, EffectEnd
from bubbot.tape.fact import Cited
from bubbot.tape.provenance import Source, source_of
from bubbot.tape.query import IdRanges, TapeQuery, WholeTape
from bubbot.tool import CallPlan, EffectKind, GrantTarget, Power, Repeat, Tool, ToolOutput, digest_call, plan_call

TURN_START = "turn/start"
MAX_LEFT = 500
"""The newest facts and calls among which those of an interrupted attempt are looked for."""
MAX_ANCHORS = 100
"""How many of the newest anchors are searched for one that opened a clean window; without one, all checks of the tape count."""
_SILENT_ROWS = (EffectRow.READS_OWN, EffectRow.READS_PEOPLE, EffectRow.INSIDE, EffectRow.JOBS)
"""What runs in these rows needs no fact of its own: the declared effect of the tool says why."""


FindJobGrants: TypeAlias = Callable[[Turn], Sequence[Allowance]]
"""Return what the job of a turn may do; nothing if it is no turn of a job."""


class WaitingCall(Struct, frozen=True):
    """A call that needs a yes.

    Attributes:
        stored: the call, still without the id under which it will run.
        decision: why it does not run.
        why: the ends of the names of the sentences that say why it needs a yes.
        is_cut_off: it began before an interruption, and nobody knows whether it happened.
    """

    stored: StoredCall
    decision: Decision
    why: tuple[str, ...] = ()
    is_cut_off: bool = False


_STANDING_ROWS = (
    EffectRow.READS_COMPOSED,
    EffectRow.READS_WORLD,
    EffectRow.FOLDERS,
    EffectRow.SANDBOXED,
    EffectRow.OUTSIDE,
)
"""A grant may stand for calls in these rows: they act outside, change a folder or read an address."""


def make_waiting(
    tool: Tool,
    args: Args,
    plan: CallPlan,
    decision: Decision,
    *,
    used_before: bool = False,
    is_cut_off: bool = False,
) -> WaitingCall:
    """Make a call that needs a yes.

    Args:
        used_before: see `ToolInvocation`.
        is_cut_off: see `WaitingCall`.
    """
    row, is_alone = decision.row, CallerColumn.NOBODY in decision.callers
    # It reads what was shown, and the choice would tell more than the window may.
    is_over_budget = row is EffectRow.READS_WORLD and bool(decision.tainted_by) and not is_alone
    reason = "choice" if is_over_budget else row.value
    if row is EffectRow.READS_COMPOSED and plan.query:
        reason = "query"
    stored = StoredCall(
        "",
        tool.name,
        tool.provider_name,
        write_given(args),
        digest_call(tool, args),
        clean(plan.details),
        plan.state,
        plan.target if row in _STANDING_ROWS else None,
        plan.site if is_over_budget and plan.site else UNSET,
    )
    why = ("cut_off" if is_cut_off else reason, *(["used_before"] if used_before else []))
    return WaitingCall(stored, decision, why, is_cut_off)


@dataclass
class TurnCard:
    """A card that a turn or a sub-task has begun, and not written yet; `question` is that of a feature, if it is one."""

    id: str
    calls: list[WaitingCall] = field(default_factory=list)
    question: ApprovalQuestion | None = None


CardKey: TypeAlias = tuple[str, Verdict, bool]
"""The calls of one card: they come from one fork, the same people may answer them, and all or none of them were cut off."""


@dataclass
class TurnApprovals:
    """What a turn and its sub-tasks ask; metadata that they share.

    It must not refer to the turn: only the garbage collector would free such a cycle.

    Attributes:
        cards: those that are not written yet.
        asked: the ids of cards by the digests of their calls.
        deciding: held until the check of a call is written, so that calls of one step spend the budget one after another.
    """

    cards: dict[CardKey, TurnCard] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    deciding: asyncio.Lock | None = None


@dataclass
class ApprovedCalls:
    """The calls that a person has allowed in this turn: each runs once, exactly as it was stored.

    Attributes:
        asked: the card.
        begun: the ids of those that began, in an interrupted attempt or in this one.
        taken: the ids of those that came.
    """

    asked: ApprovalAsked
    begun: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)

    def list_tools(self, *, begun: bool) -> list[str]:
        """List the tools of the calls that began, or of those that did not, one for each call."""
        return [call.tool for call in self.asked.calls if (call.id in self.begun) is begun]

    def take(self, call: ToolCall, digest: str) -> StoredCall | None:
        """Take out the stored call with this id and digest; None if a model made this one."""
        for stored in self.asked.calls:
            if (stored.id, stored.digest) == (call.id, digest) and stored.id not in self.taken:
                self.taken.add(stored.id)
                return stored
        return None


class CallGate:
    """The middleware of approvals. It is inside all middleware that changes calls, so that it decides about their final form."""

    def __init__(
        self,
        service: ApprovalService,
        stage: Callable[[Turn, str, Outbound], bool],
        list_tools: Callable[[], Sequence[Tool]],
        find_job_grants: FindJobGrants,
    ) -> None:
        """Take its dependencies; `stage`: see `Kernel.stage`."""
        self._service = service
        self._stage = stage
        self._list_tools = list_tools
        self._find_job_grants = find_job_grants

    async def around_turn(self, turn: Turn, call_next: CallNext[Turn, TurnOutcome]) -> TurnOutcome:
        """Give an answer's turn its stored calls, ask about calls that were cut off, and write the turn's cards at its end."""
        approvals = turn.metadata[TurnApprovals] = TurnApprovals()
        facts = await self._read_attempts(turn)
        if turn.origin == APPROVAL_ORIGIN:
            await self._prepare_continuation(turn, facts)
        await self._ask_about_cut_off(turn, facts)
        try:
            return await self._finish_continuation(turn, await call_next(turn))
        finally:  # however it ends: people learn what waits for them
            if approvals.cards:
                await self._write_cards(turn)

    async def around_tool(self, call: ToolInvocation, call_next: CallNext[ToolInvocation, ToolOutput]) -> ToolOutput:
        """Decide about a call of a model. What a person types is its own yes.

        Raises:
            ToolRefused: it does not run, and nobody is asked.
        """
        if call.call is None or call.plan is None:
            return await call_next(call)
        approvals = call.turn.find_metadata(TurnApprovals) or TurnApprovals()
        approvals.deciding = approvals.deciding or asyncio.Lock()
        async with approvals.deciding:
            waiting = await self._check(call, call.call, call.plan)
        return await call_next(call) if waiting is None else waiting

    async def ask(self, turn: Turn, question: ApprovalQuestion) -> str:
        """Ask a question of a feature, which is no call of a model; see `AskApproval`."""
        digest = sha256(question.details.encode()).hexdigest()
        stored = StoredCall("", question.about, question.about, "{}", digest, clean(question.details), "", None)
        verdict = Verdict.CONFIRM if question.by == "asker" else Verdict.ASK
        shown = tuple(dict.fromkeys([*turn.shown.world[:1], *(entry for entry, _ in turn.shown.people[:1])]))
        waiting = WaitingCall(stored, Decision(verdict, EffectRow.INSIDE, (), shown), ("question",))
        number = await self._service.new_id()
        await run_uninterrupted(self._write_card(turn.root, TurnCard(number, [waiting], question)))
        return number

    async def _check(self, call: ToolInvocation, made: ToolCall, plan: CallPlan) -> str | None:
        """Decide about a call, and write down why; return what a model is told if it waits for a yes, None if it runs.

        Raises:
            ToolRefused: it does not run, and nobody is asked.
        """
        digest = digest_call(call.tool, call.args)
        facts = await self._collect_facts(call.turn, call.tool, plan, digest, used_before=call.used_before)
        decision = decide(facts)
        acts = facts.effect.kind is EffectKind.OUTSIDE or facts.effect.power is Power.FOLDERS
        if acts and not await self._service.may_act():
            await self._record(call, digest, facts, structs.replace(decision, verdict=Verdict.REFUSE, grant=None))
            raise ToolRefused(
                f"{call.tool.name} was not run: this bot is a copy that was restored from a backup, and acts on nothing "
                "until its owner releases it. Go on without it, and say so."
            )
        approved = call.turn.find_metadata(ApprovedCalls)
        if approved is not None and (stored := approved.take(made, digest)) is not None:
            if stored.state != plan.state:
                raise ToolFailed(
                    f"{call.tool.name} was not run: what it rests on has changed since it was allowed. If it is still "
                    "wanted, call it again: a person is asked anew."
                )
            allowed = structs.replace(decision, verdict=Verdict.RUN, grant=None)
            await self._record(call, digest, facts, allowed, approved.asked.id)
            approved.begun.add(made.id)
            return None
        match decision.verdict:
            case Verdict.RUN:
                if decision.row not in _SILENT_ROWS:
                    number = approved.asked.id if approved and facts.is_opened else ""
                    await self._record(call, digest, facts, decision, number)
                return None
            case Verdict.REFUSE:
                await self._record(call, digest, facts, decision)
                await self._tell_of_job(call)
                raise ToolRefused(refusal_text(call.tool, facts))
        waiting = make_waiting(call.tool, call.args, plan, decision, used_before=call.used_before)
        number, is_new = await self._add(call.turn, waiting)
        await self._record(call, digest, facts, decision, number)
        return asked_text(number, is_new=is_new)

    async def _collect_facts(
        self, turn: Turn, tool: Tool, plan: CallPlan, digest: str, *, used_before: bool
    ) -> CallFacts:
        place, shown = find_place(turn), turn.shown
        quote = shown.find_quote(plan.address) if plan.address else None
        query_bits: float | None = 0.0
        cost = spent = 0.0
        if shown.world and (plan.address or plan.query or plan.bits):
            checks = await _read_window_checks(turn)
            spent = sum(check.fact.told_bits for check in checks)
            answered = min(turn.root.message_ids, default=0)
            ran = [check.fact for check in checks if check.id > answered and check.fact.verdict == Verdict.RUN]
            if plan.query:
                earlier = sum(each.tool == tool.name for each in ran)
                query_bits = shown.weigh_query(plan.query, earlier, plan.receiver)
                cost = query_bits or min(earlier, 1)  # how often something is looked for tells something, too
            is_repeated = any(each.digest == digest for each in ran)
            if quote is not None and (is_repeated or not quote.is_asked):
                cost = math.log2(quote.choices + 1)
            cost += plan.bits
        approved = turn.find_metadata(ApprovedCalls)
        people = min(shown.people, key=lambda pair: list(Role).index(pair[1]), default=None)
        return CallFacts(
            plan.effect,
            turn.role,
            place,
            tool.role,
            is_composed=(bool(plan.address) and quote is None) or query_bits is None,
            quote=quote.entry if quote is not None else None,
            cost=round(cost, 4),
            spent=round(spent, 4),
            is_opened=approved is not None and bool(plan.site) and plan.site == approved.asked.site,
            world=shown.world[0] if shown.world else None,
            people=people,
            grant=await self._find_grant(turn, tool, plan.target),
            was_used=used_before,
            may_park=self._service.settings.jobs == "ask",
        )

    async def _find_grant(self, turn: Turn, tool: Tool, target: GrantTarget | None) -> MatchedGrant | None:
        """Return the best grant for a call. A job has its own and no others of people: they were approved with it."""
        before = [*turn.allowed_before, *(self._find_job_grants(turn) if is_job(turn) else ())]
        found = [
            MatchedGrant(0, target is not None and target.is_exactly(item.value))
            for item in before
            if item.tool == tool.name and _allows(item.value, target)
        ]
        if not is_job(turn) and (grant := await self._service.match_grant(turn, tool.name, target)) is not None:
            found.append(grant)
        return max(found, key=lambda grant: grant.is_exact, default=None)

    async def _record(
        self, call: ToolInvocation, digest: str, facts: CallFacts, decision: Decision, number: str = ""
    ) -> None:
        """Write down what a decision rests on."""
        checked = CallChecked(
            call=call.call.id if call.call else "",
            tool=call.tool.name,
            digest=digest,
            verdict=decision.verdict.value,
            effect=str(facts.effect),
            row=decision.row.value,
            columns=tuple(caller.value for caller in decision.callers),
            role=facts.role.value,
            place=facts.place.value,
            tainted_by=decision.tainted_by,
            quote=facts.quote or UNSET,
            grant=UNSET if decision.grant is None else decision.grant,
            approval=number or UNSET,
            used_before=facts.was_used or UNSET,
        )
        if not facts.cost or decision.row is not EffectRow.READS_WORLD:
            await call.turn.tape.append([checked.to_entry()])
            return
        # On the turn's own tape, and durable before anything is read: otherwise a dropped sub-task or a crash would
        # restore the budget of the window.
        root = call.turn.root.tape
        await root.append([replace(checked, bits=facts.cost, spent=facts.spent).to_entry()])
        await root.save()

    async def _add(self, turn: Turn, waiting: WaitingCall, number: str = "") -> tuple[str, bool]:
        """Add a call to a card of its turn; return the id of the card, and false if it was asked before.

        Args:
            number: the id that its card had in an interrupted attempt; empty for none.
        """
        approvals = turn.find_metadata(TurnApprovals)
        if approvals is None:  # the turn has no middleware around it
            raise ToolRefused(f"{waiting.stored.tool} was not run: nobody can be asked here. Do not try it again.")
        digest = waiting.stored.digest
        if earlier := approvals.asked.get(digest) or await self._service.find_open_call(turn.session, digest):
            return earlier, False
        key = find_card_key(turn, waiting, Role(self._service.settings.role))
        card = approvals.cards.get(key)
        if card is None:
            card = approvals.cards.setdefault(key, TurnCard(number or await self._service.new_id()))
            if turn.is_subtask:
                turn.after_results.append(self._write_cards)
        approvals.asked[digest] = card.id
        card.calls.append(waiting)
        return card.id, True

    async def _write_cards(self, turn: Turn, *, only_cut_off: bool = False) -> None:
        """Write the waiting calls, and stage their cards; both are merged with the turn.

        A turn writes its cards at its end. A sub-task writes its own after each step, durably and on the turn's tape, since
        the turn may drop the sub-task.
        """
        approvals = turn.find_metadata(TurnApprovals)
        assert approvals is not None, "a call was added, or the turn is within its middleware"
        for key in list(approvals.cards):
            fork, _, is_cut_off = key
            if (fork == turn.tape.id or not turn.is_subtask) and (is_cut_off or not only_cut_off):
                await run_uninterrupted(self._write_card(turn.root, approvals.cards.pop(key)))
        if turn.is_subtask:
            await turn.root.tape.save()  # the result of the sub-task says that it was asked

    async def _write_card(self, turn: Turn, card: TurnCard) -> None:
        service, first, tape = self._service, turn.inbounds[0].inbound, turn.tape
        home = (card.question.chat if card.question else "") or turn.session
        asked = await self._ask(turn, card)
        opened = ApprovalOpened(
            card.id,
            turn.session,
            tape.name,
            asked.verdict,
            tuple(call.tool for call in asked.calls),
            tuple((call.target.kind.value, call.target.value) if call.target else () for call in asked.calls),
            asked.scopes,
            asked.expires,
            first.channel,
            first.chat,
            first.thread,
            first.direct,
            first.space,
            turn.sender.id,
            clean(turn.sender.name),
            tuple(turn.sender.roles),
            self._card_chat(turn, asked.verdict, home),
            (tape.name, asked.window),
            tuple(call.digest for call in asked.calls),
            UNSET if turn.agent.viewer is None else turn.agent.viewer,
            turn.agent.title if turn.agent.is_among_others else UNSET,
            card.question.command if card.question else UNSET,
        )
        is_here = opened.card == turn.session
        texts = turn.texts if is_here else await service.find_texts(opened)
        drawn = ApprovalCard(asked, opened, texts, turn.zone, await service.name_elsewhere(tape, opened, texts))
        seconds = int((card.question.hours if card.question else service.settings.hours) * HOUR_SECONDS)
        message = drawn.message(opened.card, service.settings.role, seconds=seconds)
        if not self._stage(turn, card_key(card.id), message) and opened.card != home:
            opened, place = replace(opened, card=home), split_session(home)
            moved = structs.replace(message, channel=place.channel, chat=place.chat, thread=place.thread)
            self._stage(turn, card_key(card.id), moved)
        await tape.append([asked.to_entry(key=asked_key(card.id))])
        tape.stage(APPROVALS_TAPE, [opened.to_entry(key=opened_key(card.id))])

    async def _ask(self, turn: Turn, card: TurnCard) -> ApprovalAsked:
        verdict = Verdict.CONFIRM
        for call in card.calls:
            verdict = verdict.stricter(call.decision.verdict)
        is_cut_off = any(call.is_cut_off for call in card.calls)
        stored = [call.stored for call in card.calls]
        once_only = {call.tool for call in stored if call.target is None}
        named = {(call.tool, call.target) for call in stored if call.tool not in once_only}
        can_stand = verdict is Verdict.ASK and not is_cut_off and 0 < len(named) <= MAX_NAMED
        can_stand = can_stand and not is_job(turn)  # a job has grants of its own
        head, first = await turn.tape.head(), turn.inbounds[0].inbound
        tainted = dict.fromkeys(
            (tape, entry)
            for call in card.calls
            for tape, entry in call.decision.tainted_by
            if tape != turn.tape.name or entry <= head
        )
        return ApprovalAsked(
            card.id,
            tuple(
                replace(call, id=f"approved{card.id}{place}", target=None if call.tool in once_only else call.target)
                for place, call in enumerate(stored)
            ),
            verdict.value,
            tuple(dict.fromkeys(reason for call in card.calls for reason in call.why)),
            tuple(tainted),
            ("once", "chat", "always") if can_stand else ("once",),
            self._service.expires_after(card.question.hours) if card.question else self._service.expires,
            turn.sender.id,
            first.channel,
            first.chat,
            await find_window(turn),
            is_cut_off or UNSET,
        )

    def _card_chat(self, turn: Turn, verdict: str, home: str) -> str:
        """Return the session of the chat that gets a card: `settings.to`, if set, for an `ask` of a group or a job, else `home`."""
        to, inbound = self._service.settings.to, turn.inbounds[0].inbound
        return to if to and verdict == "ask" and (is_job(turn) or not inbound.direct) else home

    async def _prepare_continuation(self, turn: Turn, facts: Sequence[TapeEntry]) -> None:
        """Give a turn that an answer started the calls that were stored. `facts` are those of interrupted attempts."""
        number = turn.inbounds[0].inbound.external_id.removeprefix(f"{APPROVAL_ORIGIN}:")
        asked = await find_fact(turn.tape, ApprovalAsked, asked_key(number))
        decided = await self._service.find_decision(number)
        if decided is None or asked is None:  # a reset came before this turn
            turn.fixed_reply = turn.texts.say("approval_gone", id=number)
            await self._correct_card(turn, number, ())
            return
        if decided.fact.verdict != "approved" or holds_command(turn.inbounds[0].inbound):
            return  # a question of a feature goes on with its command, which looks at the answer
        calls = asked.fact.calls
        approved = ApprovedCalls(asked.fact, _find_begun(facts) & {call.id for call in calls})
        turn.metadata[ApprovedCalls] = approved
        if not await self._service.may_act():
            turn.fixed_reply = turn.texts.say("approval_restored", id=number)
            return
        if decided_at := self._service.find_late(decided):
            moment = f"{decided_at.astimezone(turn.zone):%Y-%m-%d %H:%M}"
            turn.fixed_reply = _end_text(turn, approved, turn.texts.say("approval_late", id=number, moment=moment))
            return
        turn.stored_calls = [ToolCall(call.id, call.name, call.arguments) for call in calls]

    async def _finish_continuation(self, turn: Turn, outcome: TurnOutcome) -> TurnOutcome:
        """Correct the card of an answer if not all of what it allowed has begun, and say so if the turn is given up."""
        approved = turn.find_metadata(ApprovedCalls)
        if approved is None:
            return outcome
        if left := approved.list_tools(begun=False):
            await self._correct_card(turn, approved.asked.id, left)
        if outcome.status != "failed" or max(accepted.attempts for accepted in turn.inbounds) < MAX_ATTEMPTS:
            return outcome
        reason = turn.texts.say("approval_gave_up", id=approved.asked.id)
        return replace_fields(outcome, text=turn.texts.add_trace(_end_text(turn, approved, reason), turn.id))

    async def _correct_card(self, turn: Turn, number: str, left: Sequence[str]) -> None:
        if (card := await self._service.draw_unfinished(number, left)) is not None:
            self._stage(turn, f"unfinished:{number}:{turn.id}", card)

    async def _read_attempts(self, turn: Turn) -> Sequence[TapeEntry]:
        """Return the facts of interrupted attempts at a turn about its calls, in order."""
        interrupted = {accepted.interrupted_turn for accepted in turn.inbounds} - {""}
        if not interrupted:
            return ()
        names = (EFFECT_BEGIN, EFFECT_END, *CallChecked.EVENTS, TURN_START)
        query = TapeQuery(turn.tape.name, WholeTape(), kinds=(Kind.EVENT,), names=names, newest=True, limit=MAX_LEFT)
        found = [entry for entry in (await turn.tape.fetch([query]))[0] if not entry.erased]
        attempts = _list_attempts(found, interrupted)
        return sorted((entry for entry in found if entry.meta.get("turn") in attempts), key=lambda entry: entry.id)

    async def _ask_about_cut_off(self, turn: Turn, facts: Sequence[TapeEntry]) -> None:
        """Ask about the calls that interrupted attempts left.

        The cards of calls that began and may not run twice are written at once. A call whose card was not written joins a
        card of this attempt.
        """
        if not facts or turn.role is Role.STRANGER:
            return
        ends = [EffectEnd.try_of(fact) for fact in facts if fact.name == EFFECT_END]
        ended = {end.call for end in ends if end}
        for fact in facts:
            waiting, number = None, ""
            begin = _read_begin(fact)
            if begin and begin.call not in ended and begin.once == Repeat.NEVER:
                decision = Decision(Verdict.ASK, EffectRow.OUTSIDE, ())
                waiting = await self._find_left(turn, fact, decision, is_cut_off=True)
            elif (check := _read_check(fact)) and await self._is_unwritten(turn, check):
                tainted = tuple((tape, entry) for tape, entry in check.tainted_by)
                decision = Decision(Verdict(check.verdict), EffectRow(check.row), (), tainted)
                waiting = await self._find_left(turn, fact, decision, used_before=bool(check.used_before))
                number = check.approval or ""
            if waiting is not None:
                turn.tape.raise_source(source_of(fact))
                await self._add(turn, waiting, number)
        await self._write_cards(turn, only_cut_off=True)

    async def _is_unwritten(self, turn: Turn, check: CallChecked) -> bool:
        """Return true if a call was to be asked, and the turn ended before its card was written."""
        if check.verdict not in (Verdict.ASK, Verdict.CONFIRM):
            return False
        query = TapeQuery(turn.tape.name, keys=(asked_key(check.approval or ""),))
        return not (await turn.tape.fetch([query]))[0]

    async def _find_left(
        self,
        turn: Turn,
        fact: TapeEntry,
        decision: Decision,
        *,
        used_before: bool = False,
        is_cut_off: bool = False,
    ) -> WaitingCall | None:
        """Return the call of a begin without an end, or of a check; None if it is not found, or fits no more."""
        data = fact.data
        tool = next((tool for tool in self._list_tools() if tool.name == data["tool"]), None)
        if tool is None or (made := await _find_made(turn, fact)) is None:
            return None
        try:
            args = tool.parse(unwrap_call(made).arguments)
        except ToolSignal:
            return None
        if digest_call(tool, args) != data["digest"]:
            return None
        try:
            plan = await plan_call(turn, tool, args)
        except ToolSignal:
            if not is_cut_off:
                return None
            # What was cut off may have changed what its plan looks at: people learn of it all the same.
            plan = CallPlan(tool.effect, write_given(args, indent=2))
        return make_waiting(tool, args, plan, decision, used_before=used_before, is_cut_off=is_cut_off)

    async def _tell_of_job(self, call: ToolInvocation) -> None:
        """Say once in the chat of a job that it has no grant for what it tried."""
        turn, root = call.turn, call.turn.root
        if not is_job(turn) or TurnApprovals not in turn.metadata or self._find_job_grants(turn):
            return
        key = f"job_refused:{turn.cause}"
        query = TapeQuery(APPROVALS_TAPE, keys=(key,))
        staged = [entry.key for entry in root.tape.staged_entries(APPROVALS_TAPE)]
        if key in staged or (await turn.tape.fetch([query]))[0]:
            return
        first = turn.inbounds[0].inbound
        rejected = AnswerRejected(turn.cause, "job", turn.sender.id, first.channel, turn.session)
        root.tape.stage(APPROVALS_TAPE, [rejected.to_entry(key=key)], if_absent=True)
        root.notices.append(turn.texts.say("approval_job_refused", tool=call.tool.name, job=turn.cause))


def find_card_key(turn: Turn, waiting: WaitingCall, role: Role) -> CardKey:
    """Return the key of the card that a call joins: calls that different people have to answer get different cards.

    `role` is the least that may answer an `ask`; an asker who has it answers all calls on one card.
    """
    verdict = Verdict.ASK if turn.role.at_least(role) else waiting.decision.verdict
    return turn.tape.id, verdict, waiting.is_cut_off


async def _read_window_checks(turn: Turn) -> list[Cited[CallChecked]]:
    """Read the checks since the newest clean window was opened.

    A window that the model opened after it had seen words of the world shares the budget of the one before: otherwise a
    page could reset the budget by ordering a handoff, or by being long.
    """
    tape = turn.root.tape
    query = TapeQuery(tape.name, WholeTape(), kinds=(Kind.ANCHOR,), newest=True, limit=MAX_ANCHORS)
    anchors = (await tape.fetch([query]))[0]
    start = next((each.id for each in anchors if _opens_clean_window(each)), 0)
    checks = TapeQuery(tape.name, IdRanges(((start + 1, None),)), kinds=(Kind.EVENT,), names=CallChecked.EVENTS)
    found = [Cited.try_of(CallChecked, entry) for entry in (await tape.fetch([checks]))[0] if not entry.erased]
    return [check for check in found if check]


def _opens_clean_window(anchor: TapeEntry) -> bool:
    if anchor.erased or "fork" in anchor.meta or anchor.payload.get("window") is False:
        return False
    return source_of(anchor) is not Source.WORLD


async def _find_made(turn: Turn, fact: TapeEntry) -> ToolCall | None:
    """Return the call of a model, as it made it, that a begin or a check is about."""
    query = TapeQuery(turn.tape.name, WholeTape(), kinds=(Kind.TOOL_CALL,), newest=True, limit=MAX_LEFT)
    for entry in (await turn.tape.fetch([query]))[0]:
        for call in entry.payload["calls"] if entry.id < fact.id else ():
            if call["id"] == fact.data["call"]:
                return ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
    return None


def _read_check(entry: TapeEntry) -> CallChecked | None:
    return CallChecked.try_of(entry) if entry.name in CallChecked.EVENTS else None


def _read_begin(entry: TapeEntry) -> EffectBegin | None:
    return EffectBegin.try_of(entry) if entry.name == EFFECT_BEGIN else None


def _find_begun(facts: Sequence[TapeEntry]) -> set[str]:
    """Return the ids of the calls that may have done something: outside after their begin, inside once they may run."""
    checks = filter(None, map(_read_check, facts))
    allowed = [check for check in checks if check.verdict == Verdict.RUN]
    inside = {check.call for check in allowed if not check.effect.startswith(EffectKind.OUTSIDE)}
    return inside | {begin.call for begin in map(_read_begin, facts) if begin}


def _end_text(turn: Turn, approved: ApprovedCalls, reason: str) -> str:
    """Say why the turn of an answer does nothing more, and which tools may have acted: nothing was done only if no call began."""
    begun = ", ".join(dict.fromkeys(approved.list_tools(begun=True)))
    end = turn.texts.say("approval_begun", tools=begun) if begun else turn.texts.say("approval_nothing_done")
    return f"{reason} {end}"


def _list_attempts(facts: Sequence[TapeEntry], interrupted: Collection[str]) -> set[str]:
    """Return the ids of these attempts at a turn, and of those that they ran again."""
    again = {entry.meta.get("turn"): entry.data.get("again", "") for entry in facts if entry.name == TURN_START}
    found: set[str] = set()
    for newest in interrupted:
        turn = newest
        while turn and turn not in found:
            found.add(turn)
            turn = again.get(turn, "")
    return found


def find_place(turn: Turn) -> Place:
    """Return where the calls of a turn come from."""
    if turn.is_subtask:
        return Place.SUBTASK
    if is_job(turn):
        return Place.JOB
    return Place.DIRECT if turn.is_direct else Place.GROUP


def is_job(turn: Turn) -> bool:
    """Return true if a turn works for no person.

    A turn after an answer to a card, a call between agents and a step of a person's task work for the person who wrote first.
    """
    return not turn.works_for_person


def asked_text(number: str, *, is_new: bool) -> str:
    """Return the result of a call that waits for a yes, for the model."""
    if not is_new:
        return f"asked before ({number}): the same call waits for an answer and has not run. Do not call it again."
    return (
        f"asked ({number}): it has not run. A person is asked to allow it, and it goes on by itself when they answer. Do "
        "not call it again. Do now whatever else the task needs and does not depend on its result: further calls that have "
        "to be allowed join the same question. Then finish your answer and say what is waiting."
    )


def refusal_text(tool: Tool, facts: CallFacts) -> str:
    """Return why a call does not run, for the model, in words that invite no other try."""
    if facts.place.has_nobody:
        reason = "nobody is here who could allow it, and it was not allowed beforehand"
    else:
        reason = "the person you work for may not have this done"
    return f"{tool.name} was not run: {reason}. It stays so whatever the arguments; go on without it, and say so."


def _allows(value: str, target: GrantTarget | None) -> bool:
    if not value:
        return True
    return target is not None and covers(GrantTarget(target.kind, value), target)
