"""Branches: one question, answered side by side by several alternatives, of which one may become part of the conversation.

Each branch is a sub-task from the window of its conversation. What it wrote carries its fork, so that no later window, search
or summary shows it. The chosen one is copied with new ids; the copies name the entries of the branch as their `source`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from msgspec import UNSET, Struct, structs, to_builtins

from bubbot.concurrency import task_group
from bubbot.errors import CommandRefused
from bubbot.features.agents.facts import (
    AgentEnded,
    BranchChosen,
    BranchEffect,
    BranchEnded,
    BranchesAsked,
    BranchSetup,
)
from bubbot.features.agents.service import SubTaskService
from bubbot.features.agents.task import BranchOrder
from bubbot.ports.agents import ORIGIN_PREFIX
from bubbot.ports.channel import Role
from bubbot.ports.turn import Turn
from bubbot.runtime.messages import sender_data
from bubbot.runtime.turns import StepRecord, TurnRecord
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, canonical, is_said_by_person, text_field
from bubbot.tape.events import KERNEL_REFERENCES
from bubbot.tape.handle import TapeHandle, ids_of, spans_of
from bubbot.tape.provenance import PROVENANCE, source_of
from bubbot.tape.query import IdRanges, OpeningAnchor, TapeQuery, cut_spans, union
from bubbot.tape.references import MovedIds
from bubbot.tape.view import QueryAnswers
from bubbot.tool import Tool

MAX_BRANCHES = 6
"""Alternatives of one question at most."""
GROUP_DIGITS = 12
COPIED_KINDS = (Kind.MESSAGE, Kind.TOOL_CALL, Kind.TOOL_RESULT)
"""What a conversation is made of. How its models were asked, and what they did outside, stays with the branch."""
_OWN_META = frozenset({"fork", "turn", "origin", "source"})
"""The meta of an entry of a branch that its copy does not have."""


class ShownTape(Struct, frozen=True):
    """What a branch was shown of another tape.

    Attributes:
        tape: the tape.
        entries: the ranges of its entries, each as its first and last id.
    """

    tape: str
    entries: tuple[tuple[int, ...], ...]


class Branch(Struct, frozen=True):
    """A branch that has ended. A range is its first and last id.

    Attributes:
        number: its number, from 1.
        fork: its fork.
        model: the model that it was asked of; empty: that of the conversation.
        prompt: its instruction; empty: none.
        agent: the agent that it was asked of; empty: whoever answered the turn.
        status: `answered`, `failed` or `stopped`.
        text: its answer, or why there is none.
        answer: the entry of the answer; None without one.
        entries: the ranges of all that it wrote.
        models: those that answered, or were asked in vain.
        steps: model calls.
        input_tokens: tokens that its models read, those of its own sub-tasks included.
        output_tokens: tokens that they wrote.
        cost: US dollars; None: unknown.
        tools: the tools that it called, in order.
        effects: what it did outside, in order.
        shown: the ranges of earlier entries of this tape that its models were shown.
        shown_alone: those of them that not every branch was shown.
        shown_elsewhere: what they were shown of other tapes.
        is_erased: what it wrote was erased, or a part of it.
        is_chosen: it is part of the conversation.
    """

    number: int
    fork: str
    model: str
    prompt: str
    agent: str
    status: str
    text: str
    answer: int | None
    entries: tuple[tuple[int, ...], ...]
    models: tuple[str, ...]
    steps: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    tools: tuple[str, ...]
    effects: tuple[BranchEffect, ...]
    shown: tuple[tuple[int, ...], ...]
    shown_alone: tuple[tuple[int, ...], ...]
    shown_elsewhere: tuple[ShownTape, ...]
    is_erased: bool = False
    is_chosen: bool = False

    @property
    def is_answered(self) -> bool:
        """True if it can be chosen."""
        return self.status == "answered" and self.answer is not None and not self.is_erased


class BranchGroup(Struct, frozen=True):
    """The branches of a question, as its tape has them.

    Attributes:
        asked: the entry of the question.
        fact: its fact.
        branches: those that have ended, by number.
        chosen: the entry of the choice; None if none was made.
    """

    asked: TapeEntry
    fact: BranchesAsked
    branches: tuple[Branch, ...]
    chosen: TapeEntry | None

    @property
    def choice(self) -> BranchChosen | None:
        """The choice, if it can be read."""
        return None if self.chosen is None else BranchChosen.try_of(self.chosen)


class BranchGroupView(Struct, frozen=True):
    """The branches of the newest question, or those of a group; None if there are none."""

    group: str = ""

    def steps(self, tape: str) -> Generator[tuple[TapeQuery, ...], QueryAnswers, BranchGroup | None]:
        """Read the question, then the ends and the choice, then what the branches wrote."""
        events = TapeQuery(tape, kinds=(Kind.EVENT,))
        newest = replace(events, names=BranchesAsked.EVENTS, newest=True, limit=1)
        (found,) = yield (replace(newest, keys=(asked_key(self.group),)) if self.group else newest,)
        asked = found[0] if found else None
        if asked is None or asked.erased or (fact := BranchesAsked.try_of(asked)) is None:
            return None
        later = IdRanges(((asked.id + 1, None),))
        ended, chosen = yield (
            replace(events, part=later, names=BranchEnded.EVENTS),
            replace(events, part=later, keys=(chosen_key(fact.group),)),
        )
        ends = {
            end.number: end
            for entry in ended
            if not entry.erased and (end := BranchEnded.try_of(entry)) and end.group == fact.group
        }
        spans = tuple(sorted({(low, high) for end in ends.values() for low, high in end.entries}))
        (written,) = (yield (TapeQuery(tape, IdRanges(spans)),)) if spans else ((),)
        choice = BranchChosen.try_of(chosen[0]) if chosen else None
        branches = [_describe(ends[number], written, choice) for number in sorted(ends)]
        return BranchGroup(asked, fact, tuple(_tell_apart(branches)), chosen[0] if chosen else None)


def asked_key(group: str) -> str:
    """Return the key of the question of a group."""
    return f"branch:{group}"


def chosen_key(group: str) -> str:
    """Return the key of the choice among a group."""
    return f"branch:{group}:chosen"


def _describe(end: BranchEnded, written: Sequence[TapeEntry], choice: BranchChosen | None) -> Branch:
    own = [entry for entry in written if text_field(entry.meta, "fork") == end.fork]
    inside = [entry for entry in written if any(low <= entry.id <= high for low, high in end.entries)]
    answers = [
        entry.id for entry in own if entry.kind == Kind.MESSAGE and not is_said_by_person(entry.kind, entry.payload)
    ]
    texts = [ended.result for entry in own if entry.name in AgentEnded.EVENTS and (ended := AgentEnded.try_of(entry))]
    steps = [step for step in TurnRecord.of(inside).steps if step.fork == end.fork]
    first = min((low for low, _ in end.entries), default=0)
    elsewhere = dict.fromkeys([pair for step in steps for pair in step.shown_elsewhere])
    return Branch(
        number=end.number,
        fork=end.fork,
        model=end.alternative.model or "",
        prompt=end.alternative.prompt or "",
        agent=end.alternative.agent or "",
        status=end.status,
        text=texts[-1] if texts else "",
        answer=answers[-1] if answers and end.is_answered else None,
        entries=tuple((low, high) for low, high in end.entries),
        models=end.models,
        steps=end.steps,
        input_tokens=end.usage.input_tokens,
        output_tokens=end.usage.output_tokens,
        cost=end.cost,
        tools=end.tools,
        effects=end.effects,
        shown=tuple(spans_of(_shown_before(steps, first))),
        shown_alone=(),
        shown_elsewhere=tuple([ShownTape(tape, spans) for tape, spans in elsewhere]),
        is_erased=any(entry.erased for entry in inside),
        is_chosen=choice is not None and choice.number == end.number,
    )


def _shown_before(steps: Sequence[StepRecord], first: int) -> list[int]:
    """List the entries before a branch that its models were shown."""
    return ids_of(cut_spans(union([span for step in steps for span in step.shown]), first - 1), first)


def _tell_apart(branches: Sequence[Branch]) -> list[Branch]:
    """Note what some branches were shown and not all."""
    shown = {each.number: {*ids_of([(low, high) for low, high in each.shown], 0)} for each in branches if each.steps}
    common = set.intersection(*shown.values()) if shown else set()
    return [
        structs.replace(each, shown_alone=tuple(spans_of([*shown.get(each.number, common) - common])))
        for each in branches
    ]


class BranchService:
    """Asks questions in branches, and takes one of them into the conversation."""

    def __init__(self, tasks: SubTaskService) -> None:
        self._tasks = tasks

    async def ask(
        self, turn: Turn, question: str, alternatives: Sequence[BranchSetup], tools: Sequence[Tool]
    ) -> BranchGroup:
        """Answer a question in one branch for each alternative, at the same time as far as the settings allow.

        A turn that runs again after an interruption asks only those again that had not ended.
        """
        tasks = self._tasks.find_tasks(turn)
        tasks.questions += 1
        group = _name_group(turn, question, alternatives, tasks.questions)
        asked = BranchesAsked(group, turn.sender.id, question, tuple(alternatives))
        await turn.tape.append([asked.to_entry(key=asked_key(group), **_describe_asker(turn))])

        async def run(number: int, alternative: BranchSetup) -> None:
            order = BranchOrder(group, number, alternative)
            try:
                await self._tasks.run(
                    turn,
                    question,
                    tools,
                    name=f"branch-{number}",
                    mode="delta",
                    has_own_window=False,
                    branch=order,
                    agent=alternative.agent or "",
                )
            except TimeoutError:
                return  # its end is recorded

        async with task_group() as running:
            for number, alternative in enumerate(alternatives, 1):
                running.create_task(run(number, alternative))
        found = await turn.tape.read(BranchGroupView(group))
        assert found is not None
        return found

    async def choose(self, turn: Turn, number: int, group: str = "") -> tuple[Branch, BranchChosen]:
        """Append a branch of the newest question, or of a group, to the conversation. It is merged with the turn.

        An attempt of this turn that was interrupted may have chosen it already: then nothing is added.

        Raises:
            CommandRefused: there is no such branch, or it must not be chosen: not by this person, not any more, or not twice.
        """
        found = await turn.tape.read(BranchGroupView(group))
        if found is None:
            raise CommandRefused("branch_gone" if group else "branch_none")
        branch = require_branch(found, number)
        if not may_choose(turn, found):
            raise CommandRefused("branch_not_yours", name=text_field(_sender_of(found), "name"))
        if (choice := found.choice) is not None:
            assert found.chosen is not None
            interrupted = {accepted.interrupted_turn for accepted in turn.inbounds if accepted.interrupted_turn}
            if choice.number == number and found.chosen.meta.get("turn") in interrupted:
                return branch, choice
            raise CommandRefused("branch_already", number=choice.number)
        if found.chosen is not None or branch.is_erased:
            raise CommandRefused("branch_erased", number=number)
        if not branch.is_answered:
            raise CommandRefused("branch_unanswered", number=number)
        if (opening := await _find_opening(turn.tape)) > found.asked.id:
            raise CommandRefused("branch_other_window", entry=opening)
        return branch, await self._copy(turn, found, branch)

    async def _copy(self, turn: Turn, group: BranchGroup, branch: Branch) -> BranchChosen:
        """Append the fact of the choice and the copies, together."""
        tape = turn.tape
        spans = tuple((low, high) for low, high in branch.entries)
        (written,) = await tape.fetch([TapeQuery(tape.name, IdRanges(spans), kinds=COPIED_KINDS)])
        originals = [entry for entry in written if text_field(entry.meta, "fork") == branch.fork]
        first = await tape.head() + 2
        copies = copy_entries(tape.name, originals, first, _said_by(group), branch.agent)
        chosen = BranchChosen(
            group.fact.group,
            branch.number,
            branch.fork,
            turn.sender.id,
            spans_of([entry.id for entry in originals]),
            [[first, first + len(copies) - 1]],
            branch.effects,
        )
        await tape.append([chosen.to_entry(key=chosen_key(group.fact.group)), *copies])
        return chosen


def copy_entries(
    tape: str, originals: Sequence[TapeEntry], first: int, said_by: JsonObject, agent: str = ""
) -> list[TapeEntry]:
    """Make the copies of entries of a branch, with ids from `first` on in the references among them.

    Args:
        said_by: the meta of the question: who asked it, and how.
        agent: the agent that answered in the branch; empty for whoever answers the turn that chooses it.
    """
    ids = {entry.id: first + place for place, entry in enumerate(originals)}
    moved = MovedIds(tape, ids, KERNEL_REFERENCES)
    copies = []
    for original in originals:
        entry = moved.move(tape, original)
        meta: dict[str, Any] = {name: value for name, value in entry.meta.items() if name not in _OWN_META}
        meta |= {"source": [tape, original.id], PROVENANCE: str(source_of(original))}
        if is_said_by_person(entry.kind, entry.payload):
            meta |= said_by
        elif agent:
            meta["origin"] = f"{ORIGIN_PREFIX}{agent}"
        copies.append(TapeEntry(entry.kind, entry.payload, meta))
    return copies


def require_branch(group: BranchGroup, number: int) -> Branch:
    """Return a branch by its number. Raise `CommandRefused` if there is none."""
    found = next((each for each in group.branches if each.number == number), None)
    if found is None:
        numbers = ", ".join(str(each.number) for each in group.branches)
        raise CommandRefused("branch_no_number" if numbers else "branch_none", number=number, numbers=numbers)
    return found


def may_choose(turn: Turn, group: BranchGroup) -> bool:
    """Return true for who asked the question, and for admins."""
    return turn.role.at_least(Role.ADMIN) or turn.sender.id == group.fact.asker


def _name_group(turn: Turn, question: str, alternatives: Sequence[BranchSetup], place: int) -> str:
    """Name the branches of a question; a turn that runs again gives them the same name."""
    first = turn.inbounds[0].id if turn.inbounds else turn.id  # messages may join, and the first one stays
    parts = [turn.session, first, question, to_builtins(list(alternatives)), place]
    return sha256(canonical({"branches": parts}).encode()).hexdigest()[:GROUP_DIGITS]


def _describe_asker(turn: Turn) -> Mapping[str, Any]:
    """Build the meta of a message that the person of a turn wrote, as the question is one."""
    meta: dict[str, Any] = {"origin": turn.origin, "sender": sender_data(turn.sender, turn.role)}
    return meta if turn.is_direct else {**meta, "group": True}


def _sender_of(group: BranchGroup) -> JsonObject:
    sender = group.asked.meta.get("sender")
    return sender if isinstance(sender, Mapping) else {}


def _said_by(group: BranchGroup) -> JsonObject:
    return {name: group.asked.meta[name] for name in ("origin", "sender", "group") if name in group.asked.meta}


async def _find_opening(tape: TapeHandle) -> int:
    (found,) = await tape.fetch([TapeQuery(tape.name, OpeningAnchor(), missing="empty")])
    return found[0].id if found else 0


def read_alternatives(
    models: Sequence[str], prompts: Sequence[str], agents: Sequence[str] = ()
) -> tuple[BranchSetup, ...]:
    """Join models, instructions and agents in order; one of a kind is that of all.

    Raises:
        CommandRefused: they do not pair, or they are too few or too many.
    """
    count = max(len(models), len(prompts), len(agents))
    if count < 2:
        raise CommandRefused("branch_few")
    if count > MAX_BRANCHES:
        raise CommandRefused("branch_many", most=MAX_BRANCHES)
    if {len(models), len(prompts), len(agents)} - {0, 1, count}:
        raise CommandRefused("branch_unequal", models=len(models), prompts=len(prompts), agents=len(agents))
    parts = (models, prompts, agents)
    return tuple(BranchSetup(*(_pick(part, place) for part in parts)) for place in range(count))


def _pick(values: Sequence[str], place: int) -> Any:
    value = values[place] if len(values) > 1 else values[0] if values else ""
    return value or UNSET
