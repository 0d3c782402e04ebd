"""Outside effects: each has a durable begin before it starts (T19), and a turn that runs again repeats none (T20).

A call that acts outside writes `effect.begin`, runs, and writes `effect.end` with its result. If the process dies in
between, recovery repeats nothing. The turn that runs again reads what its earlier attempt did (`AttemptRecord`):

    result recorded     the same call is answered with it
    no begin            it never ran, and runs now
    begin, no end       `key`: it runs again under the same key; `probe`: the tool is asked; `never`: outcome unknown
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, TypeAlias

from msgspec import UNSET, Struct, structs

from bubbot.arguments.fields import Args
from bubbot.errors import ToolFailed, ToolRetry
from bubbot.middleware import ToolInvocation
from bubbot.ports.model import ToolCall
from bubbot.ports.turn import Turn
from bubbot.runtime.context.selectors import BLANK_MESSAGE_TEXT
from bubbot.runtime.tool_list import unwrap_call
from bubbot.runtime.turns import read_calls
from bubbot.tape import entry as make
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, text_field
from bubbot.tape.events import CommandRun, EffectBegin, EffectEnd, TurnStart
from bubbot.tape.handle import TapeHandle
from bubbot.tape.provenance import Source, most_foreign, source_of
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.view import QueryAnswers
from bubbot.texts import NOT_RUN, OUTCOME_UNKNOWN
from bubbot.tool import EffectKind, Repeat, Tool, ToolOutput, digest_call

(EFFECT_BEGIN,) = EffectBegin.EVENTS
(EFFECT_END,) = EffectEnd.EVENTS
MAX_TURN_STARTS = 64
"""How many of the newest turns are searched for an interrupted attempt before the whole tape is read."""
KEY_DIGITS = 32


class EffectRun:
    """A running call of a tool.

    Attributes:
        call_id: the id that the model gave the call; empty for a command.
        is_begun: the call may have acted outside.
    """

    def __init__(self, call_id: str = "") -> None:
        self.call_id = call_id
        self.is_begun = False
        self._key = ""

    async def run(self, call: ToolInvocation) -> ToolOutput:
        """Run the tool; if the call acts outside, write its begin durably first. Call it innermost: the call is final
        here.
        """
        effect = call.plan.effect if call.plan else call.tool.effect
        if not call.tool.acts_outside and effect.kind is not EffectKind.OUTSIDE:
            turn = replace(call.turn, call_id=self.call_id) if call.tool.is_parallel else call.turn
            return await _run_tool(call, turn)
        if self.is_begun and effect.once is Repeat.NEVER:
            raise ToolFailed(f"{call.tool.name} began before, and must not run twice; its outcome is unknown")
        return await self.act(call, effect.once)

    async def act(self, call: ToolInvocation, once: Repeat, key: str = "") -> ToolOutput:
        """Write the begin and run the tool. `key` is the key of the repeated attempt; empty for a new effect."""
        turn, digest = call.turn, digest_call(call.tool, call.args)
        if once is not Repeat.NEVER:
            self._key = key or self._key or _new_key(turn, self.call_id, digest)
        kept_key = UNSET if once is Repeat.NEVER else self._key
        await turn.tape.append([EffectBegin(self.call_id, call.tool.name, digest, str(once), kept_key).to_entry()])
        await turn.tape.save()
        self.is_begun = True
        return await _run_tool(call, replace(turn, effect_key=self._key))

    def end(self, *, is_error: bool) -> list[TapeEntry]:
        """Build the end, to append together with the result; empty if there was no begin."""
        end = EffectEnd(self.call_id, "error" if is_error else "ok")
        return [end.to_entry()] if self.is_begun else []


async def _run_tool(call: ToolInvocation, turn: Turn) -> ToolOutput:
    if call.plan is not None and call.plan.effect.source is Source.WORLD:
        turn.tape.raise_source(Source.WORLD)  # what the tool writes while it runs may also hold foreign words
    output: ToolOutput = await call.tool.run(turn, call.args)
    return output


def _new_key(turn: Turn, call_id: str, digest: str) -> str:
    """Make the key of a new effect. The position in the fork distinguishes equal calls: models reuse ids."""
    text = f"{turn.tape.id} {len(turn.tape.delta)} {call_id} {digest}"
    return sha256(text.encode()).hexdigest()[:KEY_DIGITS]


def missing_results(delta: Iterable[TapeEntry], fork: str) -> list[TapeEntry]:
    """Build the results of the calls that a fork left without one (T12).

    If a sub-task has ended, its outcome is the result of its call.

    Args:
        delta: the fork's entries.
        fork: its id if it is nested; empty for the fork of a turn.
    """
    calls = _OpenCalls()
    for entry in delta:
        writer = entry.meta.get("fork", "")
        if writer == fork:
            calls.take(entry)
        elif writer and entry.kind == Kind.EVENT and _caller_of(writer) == fork:
            calls.end(entry)
    return [make.tool_result(calls.results, provenance=str(calls.source))] if calls.results else []


@dataclass
class _OpenCalls:
    """The calls of a fork without a result. `results` are the ones they get, with the provenance `source`."""

    results: list[dict[str, Any]] = field(default_factory=list)
    source: Source = Source.OWN

    def take(self, entry: TapeEntry) -> None:
        """Process an entry of the fork: calls, a begin or results."""
        if entry.kind == Kind.TOOL_CALL:
            outside = entry.payload.get("outside", ())
            for call in entry.payload["calls"]:
                content = NOT_RUN if call["id"] in outside else OUTCOME_UNKNOWN
                self.results.append({"tool_call_id": call["id"], "content": content, "is_error": True})
        elif entry.name == EFFECT_BEGIN:
            if (waiting := self._find(entry.payload["data"]["call"], NOT_RUN)) is not None:
                waiting["content"] = OUTCOME_UNKNOWN
        elif entry.kind == Kind.TOOL_RESULT:
            for result in entry.payload["results"]:
                if (waiting := self._find(result["tool_call_id"])) is not None:
                    self.results.remove(waiting)  # once: models reuse ids

    def end(self, entry: TapeEntry) -> None:
        """Process the fact that a call ended, which a sub-task writes before its caller writes the result."""
        call = text_field(entry.data, "call_id")  # `call` would name a call of the sub-task itself
        if not call or "result" not in entry.data or (waiting := self._find(call, OUTCOME_UNKNOWN)) is None:
            return
        waiting["content"] = text_field(entry.data, "result") or BLANK_MESSAGE_TEXT
        if entry.data.get("status") == "answered":
            del waiting["is_error"]
        self.source = most_foreign(self.source, source_of(entry))

    def _find(self, call: str, *contents: str) -> dict[str, Any] | None:
        """Find the oldest call with this id and, if given, one of these results."""
        found = (item for item in self.results if item["tool_call_id"] == call)
        return next((item for item in found if not contents or item["content"] in contents), None)


def _caller_of(fork: str) -> str:
    """Return the outer fork of a nested one; empty for the fork of a turn."""
    parent = fork.rpartition("/")[0]
    return parent if "/" in parent else ""


class RecordedCall(Struct, frozen=True):
    """A call that an interrupted attempt made.

    Attributes:
        id: the id that the model gave it; empty for a command.
        arguments: as the model wrote them; empty for a command.
        fork: the fork of the sub-task that made it; empty for the turn itself.
        content: its result, if any.
        is_error: the result is an error.
        was_run: false if it certainly did not run.
        digest: of the tool and its arguments, if it has a begin.
        once: what the begin allows.
        key: the idempotency key of the begin.
    """

    id: str
    name: str
    arguments: str = ""
    fork: str = ""
    content: str | None = None
    is_error: bool = False
    was_run: bool = True
    digest: str = ""
    once: Repeat = Repeat.NEVER
    key: str = ""


OnAnswered: TypeAlias = Callable[[ToolInvocation, RecordedCall, bool], Awaitable[None]]
"""Gets a call, its record, and whether it succeeded."""


class AttemptCallsView(Struct, frozen=True):
    """The calls of interrupted attempts at a turn, sub-tasks included, in order.

    Attributes:
        turns: the ids of the attempts.
        first: an entry id not above any of their entries.
    """

    turns: frozenset[str]
    first: int
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        kinds, names = (Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.EVENT), (EFFECT_BEGIN, *CommandRun.EVENTS)
        return (TapeQuery(tape, IdRanges(((self.first, None),)), kinds=kinds, names=names),)

    def fold(self, answers: QueryAnswers) -> tuple[RecordedCall, ...]:
        """Pair the calls with their begins and results."""
        return pair_recorded(entry for entry in answers[0] if entry.meta.get("turn") in self.turns)


@dataclass
class _Pairing:
    """Calls in order; `waiting` has the positions of those without a result by fork and id, oldest first."""

    calls: list[RecordedCall] = field(default_factory=list)
    waiting: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def add(self, call: RecordedCall) -> None:
        self.waiting.setdefault((call.fork, call.id), []).append(len(self.calls))
        self.calls.append(call)

    def begin(self, fork: str, data: JsonObject) -> None:
        begun: Any = {
            "name": data["tool"],
            "digest": data["digest"],
            "once": Repeat(data["once"]),
            "key": data.get("key", ""),
            "was_run": True,
        }
        places = self.waiting.get((fork, data["call"]), ())
        place = next((place for place in places if not self.calls[place].digest), None)
        if place is None or not data["call"]:  # a command has no entry before it ends
            self.add(RecordedCall(data["call"], fork=fork, **begun))
        else:
            self.calls[place] = structs.replace(self.calls[place], **begun)

    def answer(self, fork: str, call_id: str, content: str, *, is_error: bool) -> None:
        """Give the oldest open call of this id its result; models reuse ids."""
        if (places := self.waiting.get((fork, call_id))) and content not in (OUTCOME_UNKNOWN, NOT_RUN):
            place = places.pop(0)
            self.calls[place] = structs.replace(self.calls[place], content=content, is_error=is_error)


def pair_recorded(entries: Iterable[TapeEntry]) -> tuple[RecordedCall, ...]:
    pairing = _Pairing()
    for entry in entries:
        fork = entry.meta.get("fork", "")
        if entry.erased:
            continue
        if entry.kind == Kind.TOOL_CALL:
            outside = entry.payload.get("outside", ())
            for plain in map(unwrap_call, read_calls(entry)):
                was_run = plain.id not in outside  # unless a begin follows
                pairing.add(RecordedCall(plain.id, plain.name, plain.arguments, fork, was_run=was_run))
        elif entry.kind == Kind.TOOL_RESULT:
            for item in entry.payload["results"]:
                pairing.answer(fork, item["tool_call_id"], item["content"], is_error=bool(item.get("is_error")))
        elif entry.name == EFFECT_BEGIN:
            pairing.begin(fork, entry.payload["data"])
        elif entry.name in CommandRun.EVENTS:
            data = entry.payload["data"]
            pairing.answer(fork, "", data["output"], is_error=data["status"] != "ok")
    return tuple(pairing.calls)


class AttemptRecord:
    """The calls of interrupted attempts at a turn, and the calls of this one answered from them; shared with its
    sub-tasks.
    """

    def __init__(
        self,
        calls: Sequence[RecordedCall],
        on_answered: OnAnswered | None = None,
    ) -> None:
        """Take what is recorded.

        Args:
            calls: in order.
            on_answered: called after each call that was answered without the middleware of tools.
        """
        self._on_answered = on_answered
        self._all = tuple(calls)
        self._left = list(calls)
        self._continued: dict[str, str] = {}
        self._settling: set[str] = set()

    def continue_fork(self, fork: str, attempt: str) -> None:
        """Let the sub-task of this fork continue the one that an attempt ran in another fork."""
        self._continued[fork] = attempt

    def has_used(self, tool: Tool) -> bool:
        """Return true if an attempt may have acted outside with the tool."""
        return any(
            call.name in tool.names and (call.digest or (tool.acts_outside and call.was_run)) for call in self._all
        )

    def list_unfinished(self, stored: Sequence[ToolCall]) -> list[ToolCall]:
        """List the calls that began but did not end, and can be settled; without those `stored` for the turn.

        Calls of sub-tasks are settled when their sub-task makes them again.
        """
        runs = {(call.name, call.arguments) for call in stored}
        calls = [
            ToolCall(call.id, call.name.replace(".", "_"), call.arguments)
            for call in self._left
            if call.digest and call.content is None and call.once is not Repeat.NEVER and call.id and not call.fork
        ]
        unfinished = [call for call in calls if (call.name, call.arguments) not in runs]
        self._settling |= {call.id for call in unfinished}
        return unfinished

    def find(self, call: ToolInvocation) -> RecordedCall | None:
        """Find the oldest recorded call that this one repeats and that has answered no other call."""
        own = self._continued.get(call.turn.tape.id) if call.turn.is_subtask else ""
        digest = digest_call(call.tool, call.args)
        for recorded in self._left:
            if recorded.digest == digest:
                return recorded
            if recorded.digest or recorded.fork != own or call.tool.is_parallel or not recorded.was_run:
                continue  # a tool that orders its own calls also handles its own attempts
            if _is_same(recorded, call.tool, call.args) and self._can_answer(recorded, call):
                return recorded
        return None

    def _can_answer(self, recorded: RecordedCall, call: ToolInvocation) -> bool:
        """Return true if a recorded call without a begin answers this one, which then does not simply run again.

        A turn's model has seen what the attempt did: if it reads again, it wants the current state, and an inside call
        without a result may run again. A sub-task starts over and has seen nothing, so that results answer its reads, too.
        """
        if call.turn.is_subtask:
            return recorded.content is not None or call.tool.effect.kind is not EffectKind.READ
        if call.tool.effect.kind is EffectKind.INSIDE:
            return recorded.content is not None
        return call.tool.acts_outside

    async def answer(
        self, recorded: RecordedCall, call: ToolInvocation, run: EffectRun, *, may_repeat: bool = True
    ) -> ToolOutput | None:
        """Answer a call from its record; None if it did not happen, so that it runs now.

        Args:
            run: runs the call if needed.
            may_repeat: the call may run again under its key.

        Raises:
            ToolFailed: the recorded call failed, or its outcome is unknown.
        """
        output, is_ok = None, False
        try:
            output = await self._answer(recorded, call, run, may_repeat=may_repeat)
            is_ok = True
        finally:
            if self._on_answered is not None and (output is not None or not is_ok):
                await self._on_answered(call, recorded, is_ok)
        return output

    async def _answer(
        self, recorded: RecordedCall, call: ToolInvocation, run: EffectRun, *, may_repeat: bool
    ) -> ToolOutput | None:
        self._left.remove(recorded)
        if recorded.content is not None:
            if recorded.is_error:
                raise ToolFailed(recorded.content)
            return recorded.content
        output = await _settle(recorded, call, run, may_repeat=may_repeat)
        if isinstance(output, str) and run.call_id in self._settling:
            # The model did not make this call itself: if it does now, it gets the same answer.
            self._settling.discard(run.call_id)
            self._left.append(structs.replace(recorded, content=output))
        return output


async def _settle(
    recorded: RecordedCall, call: ToolInvocation, run: EffectRun, *, may_repeat: bool
) -> ToolOutput | None:
    """Settle a call that may have happened (T20), as its begin allows."""
    tool = call.tool
    if recorded.digest and recorded.once is Repeat.KEY and may_repeat:
        return await run.act(call, Repeat.KEY, recorded.key)
    if recorded.digest and recorded.once is Repeat.PROBE and tool.probe is not None:
        output: object = await tool.probe(replace(call.turn, effect_key=recorded.key), call.args)
        if output is not None and not isinstance(output, str):
            raise ToolFailed(f"{tool.name} was asked whether it happened, and returned a {type(output).__name__}")
        return output
    raise ToolFailed(f"{tool.name} began before an interruption, and its outcome is unknown; it was not run again")


def _is_same(recorded: RecordedCall, tool: Tool, args: Args) -> bool:
    if recorded.name not in tool.names:
        return False
    try:
        return tool.parse(recorded.arguments) == args
    except ToolRetry:
        return False


def runs_again(turn: Turn) -> bool:
    for accepted in turn.inbounds:  # noqa: SIM110 - runs for each turn and call; a generator costs two calls
        if accepted.interrupted_turn:
            return True
    return False


async def find_record(turn: Turn) -> AttemptRecord | None:
    """Return the record of interrupted attempts at the turn; None if there was none. It is read once and kept with the
    turn. A sub-task that goes on with forks of earlier turns brings its own (`read_fork_record`).
    """
    if (record := turn.find_metadata(AttemptRecord)) is not None:
        return record
    if not runs_again(turn):
        return None
    turns = frozenset(accepted.interrupted_turn for accepted in turn.inbounds if accepted.interrupted_turn)
    calls = await turn.tape.read(AttemptCallsView(turns, await _find_start(turn, turns)))
    found: AttemptRecord = turn.metadata.setdefault(AttemptRecord, AttemptRecord(calls))
    return found


async def read_fork_record(
    tape: TapeHandle,
    forks: Sequence[str],
    first: int,
    continued_by: str,
    on_answered: OnAnswered | None = None,
) -> AttemptRecord:
    """Return the record of a chain of forks, each of which continued the one before, for the fork that continues the last.

    A call that a fork repeated counts once, with its newest begin and its newest result.

    Args:
        tape: the tape, on which they were merged.
        forks: their ids, oldest first.
        first: an entry id not above any of their entries.
        continued_by: the id of the fork that goes on.
        on_answered: see `AttemptRecord`.
    """
    kinds, names = (Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.EVENT), (EFFECT_BEGIN,)
    query = TapeQuery(tape.name, IdRanges(((first, None),)), kinds=kinds, names=names)
    entries = (await tape.fetch([query]))[0] if forks else ()
    calls: list[RecordedCall] = []
    for fork in forks:
        repeated: list[RecordedCall] = []
        for call in pair_recorded(entry for entry in entries if entry.meta.get("fork") == fork):
            earlier = next((each for each in calls if _identify(each) == _identify(call)), None)
            if earlier is not None:
                calls.remove(earlier)
            repeated.append(structs.replace(call if earlier is None else _unite(earlier, call), fork=forks[-1]))
        calls += repeated
    record = AttemptRecord(calls, on_answered)
    if forks:
        record.continue_fork(continued_by, forks[-1])
    return record


def _unite(call: RecordedCall, repeated: RecordedCall) -> RecordedCall:
    """Return what is known of a call and its repetition, which has no begin if it was answered, or cut off before it ran."""
    begun = call if call.digest and not repeated.digest else repeated
    ended = call if repeated.content is None else repeated
    was_run = call.was_run or repeated.was_run
    return structs.replace(begun, content=ended.content, is_error=ended.is_error, was_run=was_run)


def _identify(call: RecordedCall) -> tuple[str, str]:
    """Return the tool, as models write it, and the arguments."""
    return call.name.replace(".", "_"), call.arguments


async def _find_start(turn: Turn, turns: frozenset[str]) -> int:
    starts = TapeQuery(turn.tape.name, kinds=(Kind.EVENT,), names=TurnStart.EVENTS, newest=True, limit=MAX_TURN_STARTS)
    found: Mapping[Any, int] = {entry.meta.get("turn"): entry.id for entry in (await turn.tape.fetch([starts]))[0]}
    return min((found.get(turn_id, 1) for turn_id in turns), default=1)
