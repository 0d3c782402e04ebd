"""Turns read back from their tape: model calls, tool calls with their results, and the status of each turn.

Imported entries may hold anything: values of another form count as missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from bubbot.ports.agents import writer_of
from bubbot.ports.model import ToolCall
from bubbot.tape import entry as make
from bubbot.tape.anchor import SESSION_START
from bubbot.tape.entry import EMPTY_OBJECT, JsonObject, Kind, TapeEntry, encode, objects_of, text_field
from bubbot.tape.events import (
    STEP_EVENT,
    TURN_END,
    TURN_ENDS,
    TURN_INTERRUPTED,
    TURN_START,
    StrategyFailure,
    TurnEnd,
)
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.view import QueryAnswers


class LastTurn(Struct, frozen=True):
    """A turn on the tape; `entries` are the first and the last id that it wrote."""

    turn: str
    status: str
    entries: tuple[int, int]


class LastTurnView(Struct, frozen=True):
    """The newest turn that has ended; None without one. It reads three entries, each through an index."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Query its end, its start, and the anchor that the first turn of a tape writes before its start."""
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


class TurnTokens(Struct, frozen=True):
    read: int = 0
    written: int = 0


class TurnTokensView(Struct, frozen=True):
    """The tokens of the model calls between two entries, those of sub-tasks included, as the providers counted them."""

    first: int
    last: int
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        part = IdRanges(((self.first, self.last),))
        return (TapeQuery(tape, part, kinds=(Kind.EVENT,), names=(STEP_EVENT,)),)

    def fold(self, answers: QueryAnswers) -> TurnTokens:
        usages = [step.data.get("usage") or {} for step in answers[0] if not step.erased]
        return TurnTokens(
            sum(usage.get("input_tokens", 0) for usage in usages),
            sum(usage.get("output_tokens", 0) for usage in usages),
        )


class CallRecord(Struct, frozen=True):
    """A call of a tool, and its result.

    Attributes:
        id: the id that the model gave.
        entry: the entry of the call.
        result: the result, if any.
        result_entry: the result's entry; 0 for none.
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
        return self.result is not None and self.result.get("is_error") is True

    @property
    def elapsed_ms(self) -> int | None:
        """Milliseconds; None if unknown."""
        elapsed = (self.result or {}).get("elapsed_ms")
        return int(elapsed) if isinstance(elapsed, int | float) else None


def find_fit(step: JsonObject) -> JsonObject:
    """Return how a step's request was changed for the model that was asked last; empty if it was not."""
    fit: object = None
    for attempt in objects_of(step.get("attempts")):
        fit = attempt.get("fit")
    return fit if isinstance(fit, Mapping) else EMPTY_OBJECT


class StepRecord(Struct, frozen=True):
    """A call of a model.

    Attributes:
        entry: the event that records it.
        data: the data of that event.
        wrote: the entry that the model wrote, if any.
        calls: its tool calls.
    """

    entry: TapeEntry
    data: JsonObject
    wrote: TapeEntry | None
    calls: tuple[CallRecord, ...]

    @property
    def id(self) -> int:
        return self.entry.id

    @property
    def fork(self) -> str:
        """The sub-task that made it; empty for the turn itself."""
        return text_field(self.entry.meta, "fork")

    @property
    def label(self) -> str:
        """The purpose of a call that is not for the answer, or the sub-task that made it."""
        return text_field(self.data, "purpose") or (text_field(self.entry.meta, "origin") if self.fork else "")

    @property
    def number(self) -> int:
        """Its number within the turn."""
        return _number(self.data, "step")

    @property
    def status(self) -> str:
        return text_field(self.data, "status")

    @property
    def model(self) -> str:
        """The model that answered, else the one that was asked."""
        return text_field(self.data, "answered") or text_field(self.data, "model")

    @property
    def weights(self) -> str:
        """The digest of the weights that answered; empty if nobody was certain of them."""
        return text_field(self.data, "weights")

    @property
    def elapsed_ms(self) -> int:
        """Milliseconds."""
        return _number(self.data, "elapsed_ms")

    @property
    def input_tokens(self) -> int:
        return _number(self._usage, "input_tokens")

    @property
    def cached_tokens(self) -> int:
        """Input tokens that the provider had cached."""
        return _number(self._usage, "cached_tokens")

    @property
    def output_tokens(self) -> int:
        return _number(self._usage, "output_tokens")

    @property
    def cost(self) -> float | None:
        """US dollars; None: unknown. Steps of earlier versions have only the cost that the model reported, if any."""
        cost = self.data.get("cost", self._usage.get("cost"))
        return float(cost) if isinstance(cost, int | float) else None

    @property
    def shown(self) -> tuple[tuple[int, int], ...]:
        """The id ranges of this tape that the model saw."""
        return _read_spans(self.data.get("shown"))

    @property
    def shown_elsewhere(self) -> tuple[tuple[str, tuple[tuple[int, int], ...]], ...]:
        """The other tapes whose entries the model saw, with the id ranges."""
        pairs = [pair for pair in _read_pairs(self.data.get("shown")) if isinstance(pair[0], str)]
        return tuple([(tape, _read_spans(spans)) for tape, spans in pairs])

    @property
    def error(self) -> str:
        """The reason if it failed; empty otherwise."""
        return text_field(self.data, "error")

    @property
    def fit_rules(self) -> tuple[JsonObject, ...]:
        """The rules that changed its request for the model that was asked last: `rule`, and the fact it was `learned`
        from.
        """
        return tuple(objects_of(find_fit(self.data).get("rules")))

    @property
    def strategy_failure(self) -> StrategyFailure | None:
        """The context strategy that failed, so that `window` built the request; None if none did."""
        failure = self.data.get("strategy_failure")
        if not isinstance(failure, Mapping):
            return None
        return StrategyFailure(text_field(failure, "selector"), text_field(failure, "problem"))

    @property
    def failed_attempts(self) -> tuple[JsonObject, ...]:
        """The failed calls of models before it."""
        return tuple(each for each in objects_of(self.data.get("attempts")) if each.get("status") == "failed")

    @property
    def _usage(self) -> JsonObject:
        usage = self.data.get("usage")
        return usage if isinstance(usage, Mapping) else {}


class TurnRecord(Struct, frozen=True):
    """A turn.

    Attributes:
        entries: its entries.
        steps: its model calls, sub-tasks included.
    """

    entries: tuple[TapeEntry, ...]
    steps: tuple[StepRecord, ...]

    @classmethod
    def of(cls, entries: Sequence[TapeEntry]) -> TurnRecord:
        """Group the entries by step: the model's entry stands before the step, the results after it."""
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
    def agent(self) -> str:
        """The agent that answered; empty for the bot itself."""
        return writer_of(self.entries[0]) if self.entries else ""

    @property
    def status(self) -> str:
        """The final status; empty until it has ended."""
        return next((turn_status(entry) for entry in self.entries if entry.name in TURN_ENDS), "")

    @property
    def asked(self) -> tuple[TapeEntry, ...]:
        """The answered messages."""
        return tuple(entry for entry in self.entries if entry.is_shown_to("") and _is_message(entry, "user"))

    @property
    def answer(self) -> TapeEntry | None:
        """The answer, if any."""
        own = [entry for entry in self.entries if entry.is_shown_to("") and _is_message(entry, "assistant")]
        return own[-1] if own else None

    @property
    def errors(self) -> tuple[TapeEntry, ...]:
        """The errors that ended it early."""
        return tuple(entry for entry in self.entries if entry.kind == Kind.ERROR)

    @property
    def calls(self) -> tuple[tuple[int, ToolCall], ...]:
        """The tool calls of its models, each with the entry of the call."""
        return tuple((entry.id, call) for entry in self.entries for call in read_calls(entry))

    @property
    def answering_steps(self) -> tuple[StepRecord, ...]:
        """The steps that led to the answer, without those of sub-tasks and for other purposes."""
        return tuple(step for step in self.steps if not step.label)

    @property
    def elapsed_ms(self) -> int:
        """Milliseconds of all model calls."""
        return sum(step.elapsed_ms for step in self.steps)

    @property
    def input_tokens(self) -> int:
        return sum(step.input_tokens for step in self.steps)

    @property
    def output_tokens(self) -> int:
        return sum(step.output_tokens for step in self.steps)

    @property
    def cost(self) -> float | None:
        """US dollars of the calls whose cost is known; None if none is."""
        costs = [step.cost for step in self.steps if step.cost is not None]
        return sum(costs) if costs else None


def find_conversation_step(entries: Sequence[TapeEntry]) -> JsonObject | None:
    """Return the data of the newest step of the conversation among these; those of sub-tasks and for a purpose are not of it."""
    for entry in reversed(entries):
        if entry.name == STEP_EVENT and entry.is_shown_to(""):
            data = entry.data
            if "purpose" not in data and isinstance(data.get("view"), Mapping):
                return data
    return None


def discarded_steps(entries: Sequence[TapeEntry], purpose: str) -> list[TapeEntry]:
    """Build the steps of a discarded fork as calls for a purpose, so that their cost stays a fact (T13).

    It drops references to entries and blobs of the fork.
    """
    gone = {"view": {}, "head": 0, "as_of": [], "shown": [], "purpose": purpose}
    content = ("system", "tools", "messages", "foreign")
    return [
        make.event(STEP_EVENT, {**{key: value for key, value in entry.data.items() if key not in content}, **gone})
        for entry in entries
        if entry.name == STEP_EVENT
    ]


def turn_status(end: TapeEntry) -> str:
    """Return the status of a turn by its last entry."""
    return "interrupted" if end.name == TURN_INTERRUPTED else text_field(end.data, "status")


def read_calls(entry: TapeEntry) -> tuple[ToolCall, ...]:
    """Read the calls of a `tool_call` entry; none for other kinds."""
    return tuple(map(read_call, objects_of(entry.payload.get("calls")))) if entry.kind == Kind.TOOL_CALL else ()


def read_call(call: JsonObject) -> ToolCall:
    """Read a call from a message or an entry. Arguments that are not a text are written as JSON."""
    function = call.get("function")
    if not isinstance(function, Mapping):
        return ToolCall(text_field(call, "id"), "", "")
    arguments = function.get("arguments", "")
    text = arguments if isinstance(arguments, str) else encode(arguments)
    return ToolCall(text_field(call, "id"), text_field(function, "name"), text)


def read_results(entry: TapeEntry) -> tuple[JsonObject, ...]:
    """Read the results of a `tool_result` entry; none for other kinds."""
    return tuple(objects_of(entry.payload.get("results"))) if entry.kind == Kind.TOOL_RESULT else ()


def find_copied(tape: str, entry: TapeEntry) -> int:
    """Return the entry of this tape that an entry is a copy of; 0 if it is none."""
    source = entry.meta.get("source")
    is_here = isinstance(source, tuple) and len(source) == 2 and source[0] == tape and type(source[1]) is int
    return source[1] if is_here and isinstance(source, tuple) else 0


def _is_message(entry: TapeEntry, role: str) -> bool:
    return entry.kind == Kind.MESSAGE and entry.payload.get("role") == role


def _read_pairs(value: object) -> list[tuple[Any, Any]]:
    return [pair for pair in value if isinstance(pair, tuple) and len(pair) == 2] if isinstance(value, tuple) else []


def _read_spans(value: object) -> tuple[tuple[int, int], ...]:
    return tuple([(low, high) for low, high in _read_pairs(value) if type(low) is int and type(high) is int])


def _number(value: JsonObject, key: str) -> int:
    found = value.get(key)
    return int(found) if isinstance(found, int | float) else 0
