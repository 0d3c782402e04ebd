"""The talks of cases: forks that are thrown away, in which the bot answers a message of a case as it would in its chat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from msgspec import Struct, structs

from bubbot.errors import ConfigError, EntryNotFound
from bubbot.feature import Kernel
from bubbot.features.judge.evals.spec import EvalCase, EvalSetup
from bubbot.ports.agents import BOT_SPEAKER, NO_MEMORY, Agent
from bubbot.ports.channel import HUMAN_ORIGIN, TERMINAL_CHANNEL, Inbound, Role, Sender
from bubbot.ports.people import Account
from bubbot.ports.turn import AcceptedInbound, Turn
from bubbot.runtime.context.selectors import text_of
from bubbot.runtime.messages import sender_data
from bubbot.runtime.rerun import RecordedResults, SpeakerFinder, answering_steps, find_turns
from bubbot.runtime.turns import TurnRecord
from bubbot.tape import entry as make
from bubbot.tape.entry import Kind, TapeEntry, sender_id, text_field, timestamp
from bubbot.tape.fork import ForkedTape
from bubbot.tape.handle import TapeHandle
from bubbot.tape.provenance import PROVENANCE, source_of_role

PURPOSE = "evaluation"
PAGE_ENTRIES = 500


class PlannedCase(Struct, frozen=True):
    """A case, or a turn of a slice.

    Attributes:
        name: of the case; of a turn with the number of its first entry behind a slash.
        case: as the evaluation has it.
        entries: the first and the last entry of the turn; zeros for a made case.
    """

    name: str
    case: EvalCase
    entries: tuple[int, int] = (0, 0)


class CaseTalk(NamedTuple):
    """A fork with what was said, in which the message of a case can be answered.

    Attributes:
        turn: answers it.
        outer: the fork below that of the turn.
        record: the recorded results of the turn that is run again; None for a made case.
        session: the session of the chat; empty for a made case.
        tape: its tape; empty for a made case.
        question: the message.
        entries: of the turn that is run again, as they were read.
    """

    turn: Turn
    outer: ForkedTape
    record: RecordedResults | None
    session: str
    tape: str
    question: str
    entries: tuple[TapeEntry, ...] = ()

    async def discard(self) -> None:
        """Throw it away."""
        await self.turn.tape.discard()
        if self.outer.id:
            await self.outer.discard()


class CaseGone(Exception):
    """The entries of a case were erased, or what it needs was not kept."""


async def plan_cases(kernel: Kernel, cases: Mapping[str, EvalCase]) -> list[PlannedCase]:
    """List the cases in the order of the evaluation, the turns of slices in the order of their tapes.

    Raises:
        EntryNotFound: there is no such chat.
    """
    planned = []
    for name, case in cases.items():
        if not case.chat:
            planned.append(PlannedCase(name, case))
            continue
        tape = await kernel.open_copy(case.chat)
        last = min(case.last or 2**53, await tape.head())
        planned += [
            PlannedCase(f"{name}/{turn.entries[0].id}", case, (turn.entries[0].id, turn.entries[-1].id))
            async for turn in find_turns(tape, case.first, last)
        ]
    return planned


class CasePeople:
    """Finds whose words the models of cases may be shown. Reads each chat once."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._speakers: dict[str, SpeakerFinder] = {}

    async def find(self, planned: PlannedCase) -> set[Account] | None:
        """Return the people of a case; nobody for a made case, None if it is not known who they are.

        A setup may show other entries than the turn did, so everybody counts who spoke before.
        """
        if not planned.case.chat:
            return set()
        tape = await self._kernel.open_copy(planned.case.chat)
        turn = await _read_turn(tape, planned)
        speakers = self._speakers.setdefault(tape.name, SpeakerFinder(tape))
        people = None if turn is None else await speakers.find(turn)
        return None if people is None else people | await speakers.find_before(planned.entries[1])


async def _read_turn(tape: TapeHandle, planned: PlannedCase) -> TurnRecord | None:
    """Read a turn that is run again; None if it is gone."""
    found = [turn async for turn in find_turns(tape, *planned.entries) if turn.entries[0].id == planned.entries[0]]
    return found[0] if found else None


async def open_talk(
    host: Turn, kernel: Kernel, planned: PlannedCase, setup: EvalSetup, metadata: Sequence[object]
) -> CaseTalk:
    """Open the talk of a case under a setup. Nothing of it is ever stored.

    Args:
        host: the turn in which the evaluation runs, whose person pays.
        metadata: values for the turn that answers.

    Raises:
        CaseGone: a turn cannot be run again.
    """
    if planned.case.chat:
        return await _open_recorded(host, kernel, planned, setup, metadata)
    assert kernel.open_blank is not None
    tape, case = kernel.open_blank(), planned.case
    outer = await tape.open_fork(stamp={"turn": host.id})
    await outer.ensure_bootstrap_anchor()
    people: dict[str, str] = {}
    now = host.now()
    lines = [
        _write_line(people, line.who, line.text, now - timedelta(days=line.days_ago), is_group=case.group)
        for line in case.history
    ]
    question = _write_line(people, case.who, case.message, now, is_group=case.group)
    stored = await outer.append([*lines, question])
    inner = await outer.fork(stamp={"origin": PURPOSE})
    sender = Sender(people[case.who], case.who)
    turn = _derive(
        host, inner, [stored[-1].id], setup, metadata, sender=sender, text=case.message, is_direct=not case.group
    )
    turn.agent = structs.replace(turn.agent, memory=setup.memory or NO_MEMORY)
    turn.max_steps = case.steps
    return CaseTalk(turn, outer, None, "", "", case.message)


def _write_line(people: dict[str, str], who: str, text: str, moment: datetime, *, is_group: bool) -> TapeEntry:
    """Write a message of a made talk. The first person is an owner, if nobody else is there."""
    if who == BOT_SPEAKER:
        return replace(make.message("assistant", text), date=timestamp(moment))
    number = people.setdefault(who, str(len(people) + 1))
    role = Role.MEMBER if is_group else Role.OWNER
    meta: dict[str, Any] = {"origin": HUMAN_ORIGIN, "sender": sender_data(Sender(number, who), role)}
    meta[PROVENANCE] = str(source_of_role(role))
    if is_group:
        meta["group"] = True
    return replace(make.message("user", text or " ", **meta), date=timestamp(moment))


async def _open_recorded(
    host: Turn, kernel: Kernel, planned: PlannedCase, setup: EvalSetup, metadata: Sequence[object]
) -> CaseTalk:
    tape = await kernel.open_copy(planned.case.chat)
    turn = await _read_turn(tape, planned)
    if turn is None:
        raise CaseGone(f"#{planned.entries[0]} is erased, or no answer of a model")
    step = answering_steps(turn)[0]
    try:
        outer = await tape.as_of([(int(first), int(last)) for first, last in step.data["as_of"]])
    except (EntryNotFound, ConfigError, KeyError, TypeError, ValueError) as error:
        raise CaseGone(f"#{planned.entries[0]}: {error}") from error
    asked = [
        entry
        for entry in turn.entries
        if entry.kind == Kind.MESSAGE and entry.payload.get("role") == "user" and entry.id <= await outer.head()
    ]
    if not asked:
        raise CaseGone(f"#{planned.entries[0]} answers no message")
    question = text_of(asked[-1].payload.get("content"))
    sender = asked[-1].meta.get("sender") or {}
    who = Sender(sender_id(asked[-1].meta), text_field(sender, "name"))
    inner = await outer.fork(stamp={"turn": host.id, "origin": PURPOSE})
    ids = [entry.id for entry in asked]
    is_direct = not asked[-1].meta.get("group")
    child = _derive(host, inner, ids, setup, metadata, sender=who, text=question, is_direct=is_direct)
    return CaseTalk(child, outer, RecordedResults(turn), tape.session, tape.name, question, turn.entries)


def _derive(
    host: Turn,
    fork: ForkedTape,
    asked: Sequence[int],
    setup: EvalSetup,
    metadata: Sequence[object],
    *,
    sender: Sender,
    text: str,
    is_direct: bool,
) -> Turn:
    """Build the turn that answers in a fork. Its person is that of the host, who pays; who speaks stands on the tape."""
    model = "scripted" if setup.script else setup.model
    agent = Agent(persona=setup.persona, model=model, strategy=setup.strategy, memory=setup.memory)
    child = host.derive(fork, origin=PURPOSE, message_ids=asked, metadata=metadata, agent=agent)
    inbound = Inbound(
        TERMINAL_CHANNEL, fork.id, "evaluation", sender, text, timestamp(host.now()), direct=is_direct, addressed=True
    )
    child.inbounds = (AcceptedInbound(0, inbound),)
    return child
