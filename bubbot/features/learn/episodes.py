"""Episodes: the turns of a slice of a tape, as the models were shown them, with what they did and how that was judged."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

from msgspec import Struct

from bubbot.errors import BubbotError
from bubbot.features.learn.rewards import Reward
from bubbot.ports.model import ModelRequest
from bubbot.runtime.compose import embed_images, has_request, rebuild_sent
from bubbot.runtime.context.selectors import text_of
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.runtime.rerun import PAGE_ENTRIES
from bubbot.runtime.targets import BRANCH_CHOSEN, BRANCH_ENDED
from bubbot.runtime.turns import CallRecord, StepRecord, TurnRecord
from bubbot.tape.entry import EMPTY_OBJECT, Kind, TapeEntry, is_for_people, objects_of, text_field
from bubbot.tape.events import TURN_ENDS, CommandRun
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges, TapeQuery

Reason: TypeAlias = Literal["consent", "unknown people", "not kept", "different", "erased", "open"]
"""Why something is left out. `consent`: somebody whose words it has does not allow it. `unknown people`: the model was shown another
chat, an owner was told of one, or what the turn answers is gone. `not kept`: the request cannot be built again. `different`: it can,
and is not what was recorded. `erased`: a part is gone. `open`: the turn has not ended within the slice."""
IsAllowed: TypeAlias = Callable[[TurnRecord], Awaitable[Reason | None]]
"""Return why a turn may not be used; None if it may."""


class EpisodeStep(Struct, frozen=True):
    """A call of a model.

    Attributes:
        record: what was recorded of it.
        request: what the model was shown, as it was sent; images are data URLs.
        text: what it wrote.
    """

    record: StepRecord
    request: ModelRequest
    text: str

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The calls that it made, with their results."""
        return self.record.calls

    @property
    def wrote_nothing(self) -> bool:
        """True if it failed, or wrote no word and made no call."""
        return not self.text and not self.calls

    def goes_on_from(self, earlier: EpisodeStep) -> bool:
        """Return true if its request begins with that of an earlier step, and with what that wrote."""
        messages, known = self.request.messages, earlier.request.messages
        if self.request.system != earlier.request.system or messages[: len(known)] != known:
            return False
        if earlier.wrote_nothing:
            return True
        written = messages[len(known)] if len(messages) > len(known) else EMPTY_OBJECT
        called = [text_field(call, "id") for call in objects_of(written.get("tool_calls"))]
        return written.get("role") == "assistant" and called == [call.id for call in earlier.calls]


class Subtask(Struct, frozen=True):
    """A part of a turn that a model worked on apart from it.

    Attributes:
        fork: its fork, which names it.
        label: the purpose, such as the name of its agent.
        steps: its calls of models.
        is_branch: it is one of several answers to one question.
        inherited: how many messages of the first request had been there before it.
    """

    fork: str
    label: str
    steps: tuple[EpisodeStep, ...]
    is_branch: bool = False
    inherited: int = 0


class EpisodeTurn(Struct, frozen=True):
    """A turn of an episode.

    Attributes:
        record: what was recorded of it.
        steps: the calls of models that led to its answer; none if only commands ran.
        subtasks: what models worked on apart from it.
        commands: the comma commands that ran: no model chose them.
        rewards: how it was judged.
        inherited: how many messages of the first request had been there before the turn.
        chosen: the fork of the branch that became part of the conversation, then or later; empty without one.
    """

    record: TurnRecord
    steps: tuple[EpisodeStep, ...]
    subtasks: tuple[Subtask, ...]
    commands: tuple[TapeEntry, ...]
    rewards: tuple[Reward, ...]
    inherited: int
    chosen: str = ""

    @property
    def span(self) -> tuple[int, int]:
        """Its first and its last entry."""
        return self.record.entries[0].id, self.record.entries[-1].id

    @property
    def is_continuous(self) -> bool:
        """True if each request of it goes on from the one before, so that the last one holds them all."""
        return all(later.goes_on_from(step) for step, later in pairwise(self.steps))


class LeftOutTurn(Struct, frozen=True):
    """A turn that is not used, or a part of one.

    Attributes:
        entry: its first entry.
        part: the fork of a sub-task; empty for the whole turn.
    """

    entry: int
    reason: Reason
    part: str = ""


class EpisodeReader:
    """Reads the turns of slices of one tape, in their order, some entries at a time."""

    def __init__(self, tape: TapeHandle, strategies: ContextStrategies, is_allowed: IsAllowed) -> None:
        """Set what is read, what rebuilds requests, and who is asked before words of people are used."""
        self._tape, self._strategies, self._is_allowed = tape, strategies, is_allowed
        self._chosen = frozenset[str]()

    async def read(
        self, first: int, last: int, rewards: Mapping[str, Sequence[Reward]]
    ) -> AsyncIterator[EpisodeTurn | LeftOutTurn]:
        """Yield the turns of a range of entries; `rewards` are those of each, by its id."""
        chosen = TapeQuery(self._tape.name, IdRanges(((first, None),)), kinds=(Kind.EVENT,), names=(BRANCH_CHOSEN,))
        (facts,) = await self._tape.fetch([chosen])
        self._chosen = frozenset(text_field(fact.data, "fork") for fact in facts)
        async for turn, has_ended in self._find_turns(first, last):
            async for found in self._read_turn(turn, rewards, has_ended=has_ended):
                yield found

    async def judge(self, first: int, last: int) -> AsyncIterator[LeftOutTurn]:
        """Yield the turns of a range of entries that may not be used, without building their requests."""
        async for turn, has_ended in self._find_turns(first, last):
            if reason := await self._judge(turn, has_ended=has_ended):
                yield LeftOutTurn(turn.entries[0].id, reason)

    async def _find_turns(self, first: int, last: int) -> AsyncIterator[tuple[TurnRecord, bool]]:
        open_turns: dict[str, list[TapeEntry]] = {}
        for low in range(first, last + 1, PAGE_ENTRIES):
            part = IdRanges(((low, min(low + PAGE_ENTRIES - 1, last)),))
            for entry in (await self._tape.fetch([TapeQuery(self._tape.name, part)]))[0]:
                if not (turn := text_field(entry.meta, "turn")):
                    continue
                open_turns.setdefault(turn, []).append(entry)
                if entry.name in TURN_ENDS:
                    yield TurnRecord.of(open_turns.pop(turn)), True
        for entries in open_turns.values():
            yield TurnRecord.of(entries), False

    async def _read_turn(
        self, turn: TurnRecord, rewards: Mapping[str, Sequence[Reward]], *, has_ended: bool
    ) -> AsyncIterator[EpisodeTurn | LeftOutTurn]:
        first = turn.entries[0].id
        if reason := await self._judge(turn, has_ended=has_ended):
            yield LeftOutTurn(first, reason)
            return
        steps: list[EpisodeStep] = []
        for record in turn.answering_steps:
            step = await self._read_step(record)
            if not isinstance(step, EpisodeStep):
                yield LeftOutTurn(first, step)
                return
            steps.append(step)
        subtasks = list[Subtask]()
        branches = {text_field(entry.data, "fork") for entry in turn.entries if entry.name == BRANCH_ENDED}
        for fork, records in _group_subtasks(turn).items():
            found = [await self._read_step(record) for record in records]
            whole = tuple(step for step in found if isinstance(step, EpisodeStep))
            if len(whole) < len(found):
                yield LeftOutTurn(first, next(step for step in found if not isinstance(step, EpisodeStep)), fork)
            else:
                inherited = _count_inherited(turn, whole[0], fork)
                subtasks.append(Subtask(fork, records[0].label, whole, fork in branches, inherited))
        commands = tuple(
            entry
            for entry in turn.entries
            if entry.name in CommandRun.EVENTS and not entry.erased and not is_for_people(entry.name, entry.meta)
        )
        if steps or commands or subtasks:
            inherited = _count_inherited(turn, steps[0]) if steps else 0
            given = tuple(rewards.get(turn.id, ()))
            chosen = next((each.fork for each in subtasks if each.fork in self._chosen), "")
            yield EpisodeTurn(turn, tuple(steps), tuple(subtasks), commands, given, inherited, chosen)

    async def _judge(self, turn: TurnRecord, *, has_ended: bool) -> Reason | None:
        if not has_ended:
            return "open"
        if any(entry.erased for entry in turn.entries):
            return "erased"
        return await self._is_allowed(turn)

    async def _read_step(self, record: StepRecord) -> EpisodeStep | Reason:
        if not has_request(record.data):
            return "not kept"
        try:
            rebuilt = await rebuild_sent(record.data, self._tape, strategies=self._strategies)
        except BubbotError:  # an entry or a blob that is gone, or a strategy that is not installed
            return "not kept"
        if not rebuilt.is_equal:
            return "different"
        request = await embed_images(rebuilt.sent, self._tape.get_blob)
        text = text_of(record.wrote.payload.get("content")).strip() if record.wrote is not None else ""
        return EpisodeStep(record, request, text)


def _group_subtasks(turn: TurnRecord) -> dict[str, list[StepRecord]]:
    found: dict[str, list[StepRecord]] = {}
    for step in turn.steps:
        if step.fork:
            found.setdefault(step.fork, []).append(step)
    return found


def _count_inherited(turn: TurnRecord, step: EpisodeStep, fork: str = "") -> int:
    """Return how many messages of the first request of a turn, or of a sub-task, stand before what was asked in it.

    All of them if nothing was: a turn may answer again what was asked before it.
    """
    asked = sum(
        entry.kind == Kind.MESSAGE and entry.payload.get("role") == "user" and text_field(entry.meta, "fork") == fork
        for entry in turn.entries
        if entry.id < step.record.entry.id
    )
    messages = step.request.messages
    places = [place for place, message in enumerate(messages) if message["role"] == "user"]
    return places[-min(asked, len(places))] if asked and places else len(messages)
