"""Interrupted attempts at a sub-task: what they left on the tape, so that nothing that has a result is done twice."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from bubbot.errors import ToolFailed, ToolRetry
from bubbot.features.agents.events import ENDED, STARTED
from bubbot.ports.middleware import ToolInvocation
from bubbot.ports.tool import EffectKind
from bubbot.records import dataclass
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.view import QueryAnswers
from bubbot.texts import OUTCOME_UNKNOWN

MAX_EVENTS = 500
"""The newest events about sub-tasks that are searched for an interrupted attempt."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call that an interrupted attempt has made. `content`: its result; None if it has none."""

    name: str
    arguments: str
    content: str | None = None
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt at a sub-task in an interrupted turn.

    Attributes:
        fork: its fork.
        first: an entry id from which its entries are to be found.
        ended: the event of its end; None if it was cut off.
    """

    fork: str
    first: int
    ended: TapeEntry | None = None


@dataclass(frozen=True, slots=True)
class AttemptsView:
    """The attempts at an order in interrupted turns, oldest first.

    Attributes:
        order: the digest of the order.
        turns: the ids of the turns.
    """

    order: str
    turns: Collection[str]
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the newest events about sub-tasks, through the name index."""
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=(STARTED, ENDED), newest=True, limit=MAX_EVENTS),)

    def fold(self, answers: QueryAnswers) -> tuple[Attempt, ...]:
        """Pair the starts with the ends. A sub-task that was discarded has an end only."""
        attempts: dict[str, Attempt] = {}
        for entry in sorted(answers[0], key=lambda entry: entry.id):
            data = entry.payload.get("data") or {}
            if entry.erased or data.get("order") != self.order or entry.meta.get("turn") not in self.turns:
                continue
            fork = data["fork"]
            first = attempts[fork].first if fork in attempts else entry.id
            attempts[fork] = Attempt(fork, first, entry if entry.name == ENDED else None)
        return tuple(attempts.values())


@dataclass(frozen=True, slots=True)
class RecordedCallsView:
    """The calls of an attempt, in order."""

    attempt: Attempt
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the calls and results from its start on."""
        kinds = (Kind.TOOL_CALL, Kind.TOOL_RESULT)
        return (TapeQuery(tape, IdRanges(((self.attempt.first, None),)), kinds=kinds),)

    def fold(self, answers: QueryAnswers) -> tuple[RecordedCall, ...]:
        """Pair the calls with their results by id; models use an id again, so that the oldest open call gets it."""
        return pair_recorded(entry for entry in answers[0] if entry.meta.get("fork") == self.attempt.fork)


def pair_recorded(entries: Iterable[TapeEntry]) -> tuple[RecordedCall, ...]:
    """Pair the calls of the entries with their results."""
    calls: list[RecordedCall] = []
    waiting: dict[str, list[int]] = {}
    for entry in entries:
        if entry.erased:
            continue
        if entry.kind == Kind.TOOL_CALL:
            for call in entry.payload["calls"]:
                waiting.setdefault(call["id"], []).append(len(calls))
                calls.append(RecordedCall(call["function"]["name"], call["function"]["arguments"]))
        elif entry.kind == Kind.TOOL_RESULT:
            for result in entry.payload["results"]:
                if (places := waiting.get(result["tool_call_id"])) and result["content"] != OUTCOME_UNKNOWN:
                    call = calls[place := places.pop(0)]
                    calls[place] = RecordedCall(
                        call.name, call.arguments, result["content"], bool(result.get("is_error"))
                    )
    return tuple(calls)


def answer_from_record(recorded: list[RecordedCall], call: ToolInvocation) -> str | None:
    """Take the first recorded call that equals this one out of the record, and return its result.

    None if there is none, or if the call only reads and has no result: then it runs.

    Raises:
        ToolFailed: the recorded call failed, or nobody knows whether it did what it does.
    """
    for place, record in enumerate(recorded):
        if not _is_same(record, call):
            continue
        del recorded[place]
        if record.content is None:
            if call.tool.effect.kind is EffectKind.READ or call.tool.is_parallel:
                return None
            raise ToolFailed(
                f"{call.tool.name} began before an interruption, and its outcome is unknown; it was not run again"
            )
        if record.is_error:
            raise ToolFailed(record.content)
        return record.content
    return None


def _is_same(record: RecordedCall, call: ToolInvocation) -> bool:
    if record.name not in call.tool.names:
        return False
    try:
        return call.tool.parse(record.arguments) == call.args
    except ToolRetry:
        return False


def find_finished(attempts: Sequence[Attempt], answered: Collection[str]) -> Attempt | None:
    """Return the oldest attempt that ended with a result and has not answered another order."""
    return next((each for each in attempts if each.fork not in answered and _is_finished(each)), None)


def find_cut_off(attempts: Sequence[Attempt], answered: Collection[str]) -> Attempt | None:
    """Return the newest attempt without a result that no other order continues."""
    return next((each for each in reversed(attempts) if each.fork not in answered and not _is_finished(each)), None)


def _is_finished(attempt: Attempt) -> bool:
    return attempt.ended is not None and attempt.ended.payload["data"]["status"] == "answered"
