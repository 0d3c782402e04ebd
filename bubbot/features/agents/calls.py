"""Agents that call each other: whom a turn calls next, and the turns of those who are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from bubbot.features.agents.directory import ConfiguredAgents
from bubbot.features.agents.facts import AgentJoined
from bubbot.middleware import CallNext
from bubbot.ports.agents import speaker_name
from bubbot.ports.channel import AGENT_ORIGIN, AgentCall, Inbound, Outbound, Role
from bubbot.ports.turn import SourcedReply, Turn, TurnOutcome
from bubbot.runtime.context.selectors import format_agent, text_of
from bubbot.runtime.context.tokens import estimate_tokens
from bubbot.tape.entry import TapeEntry, timestamp
from bubbot.tape.events import STEP_EVENT


class AgentCalls:
    """Lets agents speak to each other on a tape that they share. See `TurnSource`.

    Who is addressed answers, one after the other. A turn that calls somebody ends first; the call is accepted with its merge,
    so that it is neither lost nor doubled. What may follow a message of a person is bounded in turns and tokens; each call
    takes its share of what is left, so that no tree of calls exceeds that.
    """

    def __init__(self, agents: ConfiguredAgents) -> None:
        self._agents = agents

    async def around_turn(self, turn: Turn, call_next: CallNext[Turn, TurnOutcome]) -> TurnOutcome:
        """Let an agent join the chat before its first turn there; then ask those whom the turn calls."""
        if turn.origin == AGENT_ORIGIN and (gone := self._find_gone(turn)):
            return TurnOutcome("failed", turn.texts.say("agent_gone", name=gone))
        if not self._agents.has_agents:
            return await call_next(turn)
        if turn.agent.name and turn.agent.name not in turn.agent.living:
            await turn.tape.append([AgentJoined(turn.agent.name).to_entry()])
        outcome = await call_next(turn)
        # A job that calls agents would give them more than it may do itself: it orders sub-tasks.
        if (
            turn.inbounds
            and turn.works_for_person
            and not _waits_for_one_answer(turn.inbounds[0].inbound)
            and turn.role is not Role.STRANGER
            and outcome.status in ("answered", "silent", "failed")
        ):
            self._call_others(turn, outcome)
        return outcome

    def _find_gone(self, turn: Turn) -> str:
        """Return the name of the agent that the turn calls, if the settings have taken it out of the chat since; else empty."""
        name = turn.inbounds[0].inbound.agents[0]
        return "" if self._agents.may_call(name, turn.session) else name

    def _call_others(self, turn: Turn, outcome: TurnOutcome) -> None:
        """Add the inbounds of those whom the message addressed too, and of those whom the answer mentions."""
        first = turn.inbounds[0].inbound
        own, asked = turn.agent.name, [*first.agents[1:]]
        said = self._agents.find_mentioned(_answer_of(turn), turn.session) if outcome.status == "answered" else []
        asked_too = [name for name in dict.fromkeys(asked) if name != own]
        called = [name for name in said if name != own and name not in asked_too]
        if not (asked_too or called):
            return
        turns, tokens = self._left(turn, first)
        wanted = [*((name, "") for name in asked_too), *((name, own) for name in called)]
        for place, (name, by) in enumerate(wanted):
            share = turns // len(wanted) + (place < turns % len(wanted))
            if share < 1 or tokens // len(wanted) < 1:
                skipped = [self._agents.find_title(each) for each, _ in wanted[place:]]
                turn.notices.append(turn.texts.say("agents_bounded", names=", ".join(skipped)))
                return
            message = first.message if first.call is None else first.call.message
            call = AgentCall(by, share, tokens // len(wanted), message)
            turn.following.append(self._build(turn, first, name, call, is_asked_by_person=name in asked_too))

    def _left(self, turn: Turn, first: Inbound) -> tuple[int, int]:
        """Return the turns and tokens that may follow this turn."""
        settings, call = self._agents.settings, first.call
        if call is None:
            return settings.max_turns, settings.max_turn_tokens
        steps = [entry.data for entry in turn.tape.delta if entry.name == STEP_EVENT]
        usages = [usage for step in steps if isinstance(usage := step.get("usage"), Mapping)]
        used = sum(int(usage.get("input_tokens", 0)) + int(usage.get("output_tokens", 0)) for usage in usages)
        return call.turns - 1, call.tokens - (used or estimate_tokens(_answer_of(turn)))

    def _build(self, turn: Turn, first: Inbound, name: str, call: AgentCall, *, is_asked_by_person: bool) -> Inbound:
        """Build the inbound that asks an agent: for the person of this turn, and no more foreign or trusted than it."""
        who = "The same message asks" if is_asked_by_person else f"{format_agent(turn.agent.name)} asks"
        key, text = f"agent:{turn.id}:{speaker_name(name)}", f"[{who} you, {speaker_name(name)}]"
        source = str(turn.tape.source)
        made = first.follow_up(key, text, timestamp(turn.now()), origin=AGENT_ORIGIN, provenance=source)
        return structs.replace(made, agents=(name,), call=call)

    def prepare(self, turn: Turn, inbound: Inbound) -> None:
        """See `TurnSource.prepare`: an agent has the rights of the person for whom it works, and no more."""

    def build_reply(self, turn: Turn, inbound: Inbound, outcome: TurnOutcome) -> SourcedReply:  # noqa: ARG002 - the port
        """See `TurnSource.build_reply`: the answer goes to the chat."""
        if outcome.status == "silent":
            return SourcedReply(outcome.text)
        return SourcedReply(outcome.text, Outbound(inbound.channel, inbound.chat, "", inbound.thread))

    def failure_entries(self, inbound: Inbound, reason: str) -> Mapping[str, Sequence[TapeEntry]]:  # noqa: ARG002
        """See `TurnSource.failure_entries`."""
        return {}


def _waits_for_one_answer(inbound: Inbound) -> bool:
    """Return true for a question of a program or of `bubbot ask`: nobody would read what further agents answer."""
    return inbound.is_plain_text or inbound.is_one_shot


def _answer_of(turn: Turn) -> str:
    """Return what the agent of a turn said last, without the name before it."""
    said = [entry for entry in turn.tape.delta if entry.payload.get("role") == "assistant" and "fork" not in entry.meta]
    return text_of(said[-1].payload.get("content")) if said else ""
