"""A turn from its own entries: its steps, what each called and got, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bubbot.errors import EntryNotFound
from bubbot.features.trace.entries import (
    EntryRow,
    call_arguments,
    call_name,
    describe_entry,
    objects,
    pretty_arguments,
    text_of,
)
from bubbot.features.trace.words import Excerpt
from bubbot.records import dataclass
from bubbot.tape.entry import JsonObject, Kind, TapeEntry
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges, TapeQuery

TURN_START, TURN_ENDS = "turn/start", ("turn/end", "turn/interrupted")
STEP = "loop.step"
MAX_TURN_ENTRIES = 1000
"""Entries of one turn on its page; the timeline shows the others."""
MAX_STARTS_SEARCHED = 5000
"""The newest turns among which one is looked for by its id alone."""
CALL_CHARS = 1000
"""Characters of the arguments and of the result of a call."""
EFFECT_NAMES = ("effect.begin", "effect.end", "approval.checked", "approval.asked", "approval.decided")


@dataclass(frozen=True, slots=True)
class TurnSpan:
    """Where a turn stands on its tape.

    Attributes:
        turn: its id.
        first: its first entry.
        last: its last one; of one without an end the newest of the tape, or the one before the next turn.
        is_open: it has no end.
    """

    turn: str
    first: int
    last: int
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class CallRow:
    """A call of a tool, and its result.

    Attributes:
        id: that the model gave it.
        name: of the tool.
        arguments: as the model wrote them.
        entry: the entry of the call.
        result: the text of the result; None: there is none.
        result_entry: its entry; 0 for none.
        elapsed_ms: how long it took; None: unknown.
        is_error: it failed.
        facts: what was decided and recorded about it, by names of events.
    """

    id: str
    name: str
    arguments: Excerpt
    entry: int
    result: Excerpt | None = None
    result_entry: int = 0
    elapsed_ms: int | None = None
    is_error: bool = False
    facts: tuple[EntryRow, ...] = ()


@dataclass(frozen=True, slots=True)
class StepRow:
    """A call of a model.

    Attributes:
        id: its entry.
        number: of the step in its turn.
        label: what it was for, if not for the answer: a purpose, or the sub-task that made it.
        fork: the sub-task; empty for the turn itself.
        date: when it ended.
        data: of the event.
        wrote: the entry that the model wrote; None for none.
        calls: what it called.
    """

    id: int
    number: int
    label: str
    fork: str
    date: str
    data: JsonObject
    wrote: EntryRow | None = None
    calls: tuple[CallRow, ...] = ()

    @property
    def status(self) -> str:
        """How it ended."""
        return text_of(self.data, "status")

    @property
    def model(self) -> str:
        """The model that answered, or that was asked."""
        return text_of(self.data, "answered") or text_of(self.data, "model")

    @property
    def elapsed_ms(self) -> int:
        """Milliseconds."""
        return count_of(self.data, "elapsed_ms")

    @property
    def input_tokens(self) -> int:
        """Tokens that the model read."""
        return count_of(self._usage, "input_tokens")

    @property
    def cached_tokens(self) -> int:
        """Those of them that its provider had in its cache."""
        return count_of(self._usage, "cached_tokens")

    @property
    def output_tokens(self) -> int:
        """Tokens that the model wrote."""
        return count_of(self._usage, "output_tokens")

    @property
    def cost(self) -> float | None:
        """US dollars; None: unknown."""
        cost = self.data.get("cost", self._usage.get("cost"))
        return float(cost) if isinstance(cost, int | float) else None

    @property
    def error(self) -> str:
        """Why it failed; empty if it did not."""
        return text_of(self.data, "error")

    @property
    def failed_attempts(self) -> tuple[JsonObject, ...]:
        """The calls of models that failed before."""
        return tuple(each for each in objects(self.data.get("attempts")) if each.get("status") == "failed")

    @property
    def _usage(self) -> JsonObject:
        usage = self.data.get("usage")
        return usage if isinstance(usage, Mapping) else {}


@dataclass(frozen=True, slots=True)
class TurnPage:
    """A turn.

    Attributes:
        span: where it stands.
        status: how it ended; empty while it has not.
        asked: the messages that it answers.
        answer: its answer; None for none.
        steps: its model calls.
        errors: what ended it early.
        facts: effects and approvals that belong to no call shown here, and other events.
        before: an entry of the turn before; 0 for none.
        after: an entry of the turn after; 0 for none.
        left_out: entries that are not read here.
        began: when its first entry was written.
        ended: when its last entry was written.
    """

    span: TurnSpan
    status: str
    asked: tuple[EntryRow, ...]
    answer: EntryRow | None
    steps: tuple[StepRow, ...]
    errors: tuple[EntryRow, ...]
    facts: tuple[EntryRow, ...] = ()
    before: int = 0
    after: int = 0
    left_out: int = 0
    began: str = ""
    ended: str = ""

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


def count_of(value: JsonObject, key: str) -> int:
    """Return a number of an object; 0 if it is missing or none."""
    found = value.get(key)
    return int(found) if isinstance(found, int | float) else 0


async def find_turn(tape: TapeHandle, reference: str) -> TurnSpan:
    """Find a turn by its id, or by one of its entries as a number. Raise `EntryNotFound`."""
    if reference.isascii() and reference.isdigit() and len(reference) < 19:
        return await _find_around(tape, int(reference))
    query = TapeQuery(tape.name, kinds=(Kind.EVENT,), names=(TURN_START,), newest=True, limit=MAX_STARTS_SEARCHED)
    for start in (await tape.fetch([query]))[0]:
        if reference and text_of(start.meta, "turn").startswith(reference):
            return await _close(tape, start)
    raise EntryNotFound(f"there is no turn {reference!r} among the newest {MAX_STARTS_SEARCHED} of this tape")


async def _find_around(tape: TapeHandle, entry_id: int) -> TurnSpan:
    before = TapeQuery(
        tape.name, IdRanges(((1, entry_id),)), kinds=(Kind.EVENT,), names=(TURN_START,), newest=True, limit=1
    )
    after = TapeQuery(tape.name, IdRanges(((entry_id + 1, None),)), kinds=(Kind.EVENT,), names=(TURN_START,), limit=1)
    starts = await tape.fetch([before, after])
    if starts[0]:
        span = await _close(tape, starts[0][0])
        if entry_id <= span.last:
            return span
    if starts[1]:  # the first entries of a tape stand before the start of its first turn
        entry = await tape.entry(entry_id)
        if entry.meta.get("turn") and entry.meta.get("turn") == starts[1][0].meta.get("turn"):
            return await _close(tape, starts[1][0])
    raise EntryNotFound(f"the entry {entry_id} belongs to no turn of this tape")


async def _close(tape: TapeHandle, start: TapeEntry) -> TurnSpan:
    names = (TURN_START, *TURN_ENDS)
    query = TapeQuery(tape.name, IdRanges(((start.id + 1, None),)), kinds=(Kind.EVENT,), names=names, limit=1)
    found = (await tape.fetch([query]))[0]
    turn = text_of(start.meta, "turn")
    if not found:
        return TurnSpan(turn, start.id, await tape.head(), is_open=True)
    if found[0].name == TURN_START:
        return TurnSpan(turn, start.id, found[0].id - 1, is_open=True)
    return TurnSpan(turn, start.id, found[0].id)


async def read_turn(tape: TapeHandle, span: TurnSpan) -> TurnPage:
    """Read a turn."""
    ahead = TapeQuery(
        tape.name, IdRanges(((1, span.first - 1),)), kinds=(Kind.EVENT,), names=(TURN_START,), newest=True, limit=1
    )
    behind = TapeQuery(tape.name, IdRanges(((span.last + 1, None),)), kinds=(Kind.EVENT,), names=(TURN_START,), limit=1)
    own = TapeQuery(tape.name, IdRanges(((span.first, span.last),)), limit=MAX_TURN_ENTRIES)
    before, after, entries = await tape.fetch([ahead, behind, own])
    left_out = max(span.last - span.first + 1 - MAX_TURN_ENTRIES, 0)
    return fold_turn(
        span, entries, before=before[0].id if before else 0, after=after[0].id if after else 0, left_out=left_out
    )


def fold_turn(
    span: TurnSpan, entries: Sequence[TapeEntry], *, before: int = 0, after: int = 0, left_out: int = 0
) -> TurnPage:
    """Make the page of a turn of its entries."""
    ends = [entry for entry in entries if entry.name in TURN_ENDS]
    status = next((end_status(entry) for entry in ends), "")
    own = [entry for entry in entries if entry.is_shown_to("") and not entry.erased]
    asked = [entry for entry in own if entry.kind == Kind.MESSAGE and entry.payload.get("role") == "user"]
    answers = [entry for entry in own if entry.kind == Kind.MESSAGE and entry.payload.get("role") == "assistant"]
    errors = [entry for entry in entries if entry.kind == Kind.ERROR]
    steps = _fold_steps(entries)
    shown = {fact.id for step in steps for call in step.calls for fact in call.facts}
    facts = [
        entry
        for entry in entries
        if entry.kind == Kind.EVENT
        and entry.id not in shown
        and entry.name not in (STEP, TURN_START, *TURN_ENDS)
        and not entry.erased
    ]
    return TurnPage(
        span,
        status,
        tuple(map(describe_entry, asked)),
        describe_entry(answers[-1]) if answers else None,
        steps,
        tuple(map(describe_entry, errors)),
        tuple(map(describe_entry, facts)),
        before,
        after,
        left_out,
        entries[0].date if entries else "",
        entries[-1].date if entries else "",
    )


def end_status(entry: TapeEntry) -> str:
    """Return how a turn ended, by its last entry."""
    if entry.name != TURN_ENDS[0]:
        return "interrupted"
    data = entry.payload.get("data")
    return text_of(data, "status") if isinstance(data, Mapping) else ""


def _fold_steps(entries: Sequence[TapeEntry]) -> tuple[StepRow, ...]:
    """Find the steps, and what belongs to each: what the model wrote stands before the step, results after it."""
    results: dict[tuple[str, str], tuple[TapeEntry, JsonObject]] = {}
    facts: dict[tuple[str, str], list[TapeEntry]] = {}
    for entry in entries:
        fork = text_of(entry.meta, "fork")
        if entry.kind == Kind.TOOL_RESULT and not entry.erased:
            for result in objects(entry.payload.get("results")):
                results[fork, text_of(result, "tool_call_id")] = entry, result
        data = entry.payload.get("data") if entry.name in EFFECT_NAMES else None
        if isinstance(data, Mapping) and text_of(data, "call"):
            facts.setdefault((fork, text_of(data, "call")), []).append(entry)
    steps: list[StepRow] = []
    written: dict[str, TapeEntry] = {}
    for entry in entries:
        fork = text_of(entry.meta, "fork")
        role = entry.payload.get("role") if entry.kind == Kind.MESSAGE else None
        if entry.kind == Kind.TOOL_CALL or role == "assistant":
            written[fork] = entry
        data = entry.payload.get("data") if entry.name == STEP else None
        if isinstance(data, Mapping):
            wrote = written.pop(fork, None)
            calls = objects(wrote.payload.get("calls")) if wrote is not None else ()
            rows = tuple(_call_row(wrote, call, fork, results, facts) for call in calls if wrote is not None)
            label = text_of(data, "purpose") or (text_of(entry.meta, "origin") if fork else "")
            row = describe_entry(wrote) if wrote is not None else None
            steps.append(StepRow(entry.id, count_of(data, "step"), label, fork, entry.date, data, row, rows))
    return tuple(steps)


def _call_row(
    entry: TapeEntry,
    call: JsonObject,
    fork: str,
    results: Mapping[tuple[str, str], tuple[TapeEntry, JsonObject]],
    facts: Mapping[tuple[str, str], Sequence[TapeEntry]],
) -> CallRow:
    call_id = text_of(call, "id")
    found = results.get((fork, call_id))
    arguments = Excerpt.of(pretty_arguments(call_arguments(call)), CALL_CHARS)
    about = tuple(describe_entry(fact) for fact in facts.get((fork, call_id), ()))
    if found is None:
        return CallRow(call_id, call_name(call), arguments, entry.id, facts=about)
    source, result = found
    content = result.get("content")
    text = content if isinstance(content, str) else pretty_arguments(content)
    elapsed = result.get("elapsed_ms")
    return CallRow(
        call_id,
        call_name(call),
        arguments,
        entry.id,
        Excerpt.of(text, CALL_CHARS),
        source.id,
        int(elapsed) if isinstance(elapsed, int | float) else None,
        result.get("is_error") is True,
        about,
    )
