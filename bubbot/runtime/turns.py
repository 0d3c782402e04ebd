"""Turns read back from their tape: the calls of models, what these called and got, and how each turn ended.

Imported entries may hold anything: what has another form counts as missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bubbot.ports.model import ToolCall
from bubbot.records import dataclass
from bubbot.tape import entry as make
from bubbot.tape.anchor import SESSION_START
from bubbot.tape.entry import EMPTY_OBJECT, JsonObject, Kind, TapeEntry, encode, objects_of, text_field
from bubbot.tape.events import STEP_EVENT, TURN_END, TURN_ENDS, TURN_INTERRUPTED, TURN_START, TurnEnd
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.view import QueryAnswers


@dataclass(frozen=True, slots=True)
class LastTurn:
    """A turn on the tape: its id, its status, and the first and the last id that it wrote."""

    turn: str
    status: str
    entries: tuple[int, int]


@dataclass(frozen=True, slots=True)
class LastTurnView:
    """The newest turn that has ended; None on a tape without one. Three entries, each found through an index."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read its end, its start, and the anchor that the first turn of a tape writes before its start."""
        return (
            TapeQuery(tape, kinds=(Kind.EVENT,), names=(TURN_END,), newest=True, limit=1),
            TapeQuery(tape, kinds=(Kind.EVENT,), names=(TURN_START,), newest=True, limit=1),
            TapeQuery(tape, kinds=(Kind.ANCHOR,), names=(SESSION_START,), newest=True, limit=1),
        )

    def fold(self, answers: QueryAnswers) -> LastTurn | None:
        """Return the turn; None if the entries do not belong to one."""
        end, start, opening = (part[0] if part else None for part in answers)
        if end is None or start is None or end.meta.get("turn") != start.meta.get("turn"):
            return None
        if (ended := TurnEnd.try_of(end)) is None:  # erased, or imported
            return None
        turn = end.meta.get("turn")
        first = opening.id if opening and opening.meta.get("turn") == turn else start.id
        return LastTurn(str(turn), ended.status, (min(first, start.id), end.id))


@dataclass(frozen=True, slots=True)
class TurnTokens:
    """The tokens of a turn's model calls: `read` by the models, `written` by them."""

    read: int = 0
    written: int = 0


@dataclass(frozen=True, slots=True)
class TurnTokensView:
    """The tokens of the model calls between two entries, those of sub-tasks included, as the providers counted them."""

    first: int
    last: int
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the steps."""
        part = IdRanges(((self.first, self.last),))
        return (TapeQuery(tape, part, kinds=(Kind.EVENT,), names=(STEP_EVENT,)),)

    def fold(self, answers: QueryAnswers) -> TurnTokens:
        """Add them up."""
        usages = [step.data.get("usage") or {} for step in answers[0] if not step.erased]
        return TurnTokens(
            sum(usage.get("input_tokens", 0) for usage in usages),
            sum(usage.get("output_tokens", 0) for usage in usages),
        )


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A call of a tool, and its result.

    Attributes:
        id: that the model gave it.
        name: of the tool.
        arguments: as the model wrote them.
        entry: the entry of the call.
        result: the result; None if there is none.
        result_entry: its entry; 0 if there is none.
        facts: the events about it.
    """

    id: str
    name: str
    arguments: str
    entry: int
    result: JsonObject | None
    result_entry: int
    facts: tuple[TapeEntry, ...]

    @property
    def is_error(self) -> bool:
        """True if it failed."""
        return self.result is not None and self.result.get("is_error") is True

    @property
    def elapsed_ms(self) -> int | None:
        """Milliseconds; None if unknown."""
        elapsed = (self.result or {}).get("elapsed_ms")
        return int(elapsed) if isinstance(elapsed, int | float) else None


def find_fit(step: JsonObject) -> JsonObject:
    """Return what was changed in the request of a step for the model that was asked last; empty if nothing was."""
    fit: object = None
    for attempt in objects_of(step.get("attempts")):
        fit = attempt.get("fit")
    return fit if isinstance(fit, Mapping) else EMPTY_OBJECT


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A call of a model.

    Attributes:
        entry: the event that records it.
        data: its data.
        wrote: the entry that the model wrote; None for none.
        calls: what it called.
    """

    entry: TapeEntry
    data: JsonObject
    wrote: TapeEntry | None
    calls: tuple[CallRecord, ...]

    @property
    def id(self) -> int:
        """Its entry."""
        return self.entry.id

    @property
    def fork(self) -> str:
        """The sub-task that made it; empty for the turn itself."""
        return text_field(self.entry.meta, "fork")

    @property
    def label(self) -> str:
        """What it was for, if not for the answer: a purpose, or the sub-task that made it."""
        return text_field(self.data, "purpose") or (text_field(self.entry.meta, "origin") if self.fork else "")

    @property
    def number(self) -> int:
        """Its number in its turn."""
        return _number(self.data, "step")

    @property
    def status(self) -> str:
        """How it ended."""
        return text_field(self.data, "status")

    @property
    def model(self) -> str:
        """The model that answered, or that was asked."""
        return text_field(self.data, "answered") or text_field(self.data, "model")

    @property
    def elapsed_ms(self) -> int:
        """Milliseconds."""
        return _number(self.data, "elapsed_ms")

    @property
    def input_tokens(self) -> int:
        """Tokens that the model read."""
        return _number(self._usage, "input_tokens")

    @property
    def cached_tokens(self) -> int:
        """Those of them that its provider had in its cache."""
        return _number(self._usage, "cached_tokens")

    @property
    def output_tokens(self) -> int:
        """Tokens that the model wrote."""
        return _number(self._usage, "output_tokens")

    @property
    def cost(self) -> float | None:
        """US dollars; None: unknown. Steps of earlier versions have only the cost that the model reported, if any."""
        cost = self.data.get("cost", self._usage.get("cost"))
        return float(cost) if isinstance(cost, int | float) else None

    @property
    def shown(self) -> tuple[tuple[int, int], ...]:
        """The id ranges of this tape that the model was shown."""
        return _read_spans(self.data.get("shown"))

    @property
    def shown_elsewhere(self) -> tuple[tuple[str, tuple[tuple[int, int], ...]], ...]:
        """The other tapes of which the model was shown entries, with the id ranges."""
        pairs = [pair for pair in _read_pairs(self.data.get("shown")) if isinstance(pair[0], str)]
        return tuple([(tape, _read_spans(spans)) for tape, spans in pairs])

    @property
    def error(self) -> str:
        """Why it failed; empty if it did not."""
        return text_field(self.data, "error")

    @property
    def fit_rules(self) -> tuple[JsonObject, ...]:
        """The rules that changed its request for the model that was asked last: `rule`, and `learned` from which fact."""
        return tuple(objects_of(find_fit(self.data).get("rules")))

    @property
    def failed_attempts(self) -> tuple[JsonObject, ...]:
        """The calls of models that failed before."""
        return tuple(each for each in objects_of(self.data.get("attempts")) if each.get("status") == "failed")

    @property
    def _usage(self) -> JsonObject:
        usage = self.data.get("usage")
        return usage if isinstance(usage, Mapping) else {}


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """A turn.

    Attributes:
        entries: its entries.
        steps: its model calls, those of its sub-tasks among them.
    """

    entries: tuple[TapeEntry, ...]
    steps: tuple[StepRecord, ...]

    @classmethod
    def of(cls, entries: Sequence[TapeEntry]) -> TurnRecord:
        """Find the steps, and what belongs to each: what the model wrote stands before the step, results after it."""
        results: dict[tuple[str, str], tuple[int, JsonObject]] = {}
        facts: dict[tuple[str, str], list[TapeEntry]] = {}
        for entry in entries:
            fork = text_field(entry.meta, "fork")
            for result in read_results(entry):
                results[fork, text_field(result, "tool_call_id")] = entry.id, result
            if call := text_field(entry.data, "call"):
                facts.setdefault((fork, call), []).append(entry)

        def describe(entry: TapeEntry, call: ToolCall) -> CallRecord:
            key = text_field(entry.meta, "fork"), call.id
            result_entry, result = results.get(key, (0, None))
            about = tuple(facts.get(key, ()))
            return CallRecord(call.id, call.name, call.arguments, entry.id, result, result_entry, about)

        steps: list[StepRecord] = []
        written: dict[str, TapeEntry] = {}
        for entry in entries:
            fork = text_field(entry.meta, "fork")
            if entry.kind == Kind.TOOL_CALL or _is_message(entry, "assistant"):
                written[fork] = entry
            elif entry.name == STEP_EVENT and (data := entry.data):
                wrote = written.pop(fork, None)
                calls = tuple(describe(wrote, call) for call in read_calls(wrote)) if wrote else ()
                steps.append(StepRecord(entry, data, wrote, calls))
        return cls(tuple(entries), tuple(steps))

    @property
    def id(self) -> str:
        """Its id; empty if it has none."""
        return text_field(self.entries[0].meta, "turn") if self.entries else ""

    @property
    def status(self) -> str:
        """How it ended; empty while it has not."""
        return next((turn_status(entry) for entry in self.entries if entry.name in TURN_ENDS), "")

    @property
    def asked(self) -> tuple[TapeEntry, ...]:
        """The messages that it answers."""
        return tuple(entry for entry in self.entries if entry.is_shown_to("") and _is_message(entry, "user"))

    @property
    def answer(self) -> TapeEntry | None:
        """Its answer; None without one."""
        own = [entry for entry in self.entries if entry.is_shown_to("") and _is_message(entry, "assistant")]
        return own[-1] if own else None

    @property
    def errors(self) -> tuple[TapeEntry, ...]:
        """What ended it early."""
        return tuple(entry for entry in self.entries if entry.kind == Kind.ERROR)

    @property
    def calls(self) -> tuple[tuple[int, ToolCall], ...]:
        """What its models called, each with the entry of the call."""
        return tuple((entry.id, call) for entry in self.entries for call in read_calls(entry))

    @property
    def answering_steps(self) -> tuple[StepRecord, ...]:
        """The steps that led to the answer; the others are those of sub-tasks, or ask a model for their own purpose."""
        return tuple(step for step in self.steps if not step.label)

    @property
    def elapsed_ms(self) -> int:
        """Milliseconds of all model calls."""
        return sum(step.elapsed_ms for step in self.steps)

    @property
    def input_tokens(self) -> int:
        """Tokens that the models read."""
        return sum(step.input_tokens for step in self.steps)

    @property
    def output_tokens(self) -> int:
        """Tokens that the models wrote."""
        return sum(step.output_tokens for step in self.steps)

    @property
    def cost(self) -> float | None:
        """US dollars, as far as they are known; None if of no call."""
        costs = [step.cost for step in self.steps if step.cost is not None]
        return sum(costs) if costs else None


def discarded_steps(entries: Sequence[TapeEntry], purpose: str) -> list[TapeEntry]:
    """Build the steps of a fork that is thrown away as calls for a purpose: what they cost stays a fact (T13).

    What names entries and blobs of the fork is left out.
    """
    gone = {"view": {}, "head": 0, "as_of": [], "shown": [], "purpose": purpose}
    content = ("system", "tools", "messages", "foreign")
    return [
        make.event(STEP_EVENT, {**{key: value for key, value in entry.data.items() if key not in content}, **gone})
        for entry in entries
        if entry.name == STEP_EVENT
    ]


def turn_status(end: TapeEntry) -> str:
    """Return how a turn ended, by its last entry."""
    return "interrupted" if end.name == TURN_INTERRUPTED else text_field(end.data, "status")


def read_calls(entry: TapeEntry) -> tuple[ToolCall, ...]:
    """Read the calls that a model wrote in an entry; none if it is of another kind."""
    return tuple(map(read_call, objects_of(entry.payload.get("calls")))) if entry.kind == Kind.TOOL_CALL else ()


def read_call(call: JsonObject) -> ToolCall:
    """Read a call in the form of messages and entries. Arguments that are no text are written as JSON."""
    function = call.get("function")
    if not isinstance(function, Mapping):
        return ToolCall(text_field(call, "id"), "", "")
    arguments = function.get("arguments", "")
    text = arguments if isinstance(arguments, str) else encode(arguments)
    return ToolCall(text_field(call, "id"), text_field(function, "name"), text)


def read_results(entry: TapeEntry) -> tuple[JsonObject, ...]:
    """Read the results of calls in an entry; none if it is of another kind."""
    return tuple(objects_of(entry.payload.get("results"))) if entry.kind == Kind.TOOL_RESULT else ()


def _is_message(entry: TapeEntry, role: str) -> bool:
    return entry.kind == Kind.MESSAGE and entry.payload.get("role") == role


def _read_pairs(value: object) -> list[tuple[Any, Any]]:
    return [pair for pair in value if isinstance(pair, tuple) and len(pair) == 2] if isinstance(value, tuple) else []


def _read_spans(value: object) -> tuple[tuple[int, int], ...]:
    return tuple([(low, high) for low, high in _read_pairs(value) if type(low) is int and type(high) is int])


def _number(value: JsonObject, key: str) -> int:
    found = value.get(key)
    return int(found) if isinstance(found, int | float) else 0
