"""The spans of a turn, built from its facts alone: the same facts give the same spans, ids included.

A turn is a trace whose id is that of the turn. Below its agent span stand steps, in them model calls and tool calls;
a sub-task is an agent span below the call that ran it. Nothing of OpenTelemetry is imported here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bubbot.features.otel.content import Exposure
from bubbot.features.otel.names import (
    AGENT_KIND,
    CHAT,
    EXECUTE_TOOL,
    FINISH_REASONS,
    INVOKE_AGENT,
    REQUEST_PARAMETERS,
    STEP_KIND,
    TOOL_KIND,
    Name,
    split_model,
)
from bubbot.features.otel.people import find_people
from bubbot.ports.agents import writer_of
from bubbot.ports.model import ToolCall
from bubbot.runtime.tool_list import unwrap_call
from bubbot.runtime.turns import read_calls, read_results
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, objects_of, thaw
from bubbot.tape.events import STEP_EVENT, TURN_END, TURN_START

AttributeValue: TypeAlias = str | int | float | Sequence[str]
ShownRequests: TypeAlias = Mapping[int, Sequence[Mapping[str, AttributeValue]]]
"""What models were shown, as attributes of each attempt, by the entry of the step."""
NO_REQUESTS: ShownRequests = MappingProxyType({})
_TURN_ID = re.compile(r"[0-9a-f]{32}")
_SPAN_ID = re.compile(r"[0-9a-f]{16}")


class SpanData(Struct, frozen=True):
    """A span.

    Attributes:
        trace: the id of its trace, 16 bytes.
        id: its own, 8 bytes.
        parent: the id of the span above it; None for the turn.
        name: what viewers show.
        kind: `client` for a call to a provider.
        start: nanoseconds of Unix time.
        end: nanoseconds of Unix time.
        attributes: by the names of `Name`.
        error: None if nothing failed; else what viewers show of it, which may be empty.
        links: traces and spans that it goes with.
    """

    trace: bytes
    id: bytes
    parent: bytes | None
    name: str
    kind: Literal["internal", "client"]
    start: int
    end: int
    attributes: Mapping[str, AttributeValue]
    error: str | None = None
    links: tuple[tuple[bytes, bytes], ...] = ()


def trace_id(turn: str) -> bytes:
    """Return the trace of a turn: its own id, so that `,why` and a viewer name it alike."""
    if _TURN_ID.fullmatch(turn) and turn.strip("0"):
        return bytes.fromhex(turn)
    return sha256(f"trace {turn}".encode()).digest()[:16]


def span_id(turn: str, part: str) -> bytes:
    """Return the id of a span: always the same for the same fact."""
    return sha256(f"span {turn} {part}".encode()).digest()[:8]


def agent_span(turn: str, fork: str = "") -> bytes:
    """Return the span of a turn, or of the sub-task in a fork."""
    return span_id(turn, f"agent {fork}")


def step_span(turn: str, entry: int) -> bytes:
    """Return the span of the step that an entry records."""
    return span_id(turn, f"step {entry}")


def find_step_span(turn: str, step: TapeEntry) -> bytes:
    """Return the span of a step: the one that its server of models was told of, if there is one."""
    told = step.data.get("span")
    if isinstance(told, str) and _SPAN_ID.fullmatch(told) and told.strip("0"):
        return bytes.fromhex(told)
    return step_span(turn, step.id)


def command_span(turn: str, entry: int) -> bytes:
    """Return the span of the command that an entry records."""
    return span_id(turn, f"command {entry}")


@dataclass(slots=True)
class _Scope:
    """What an agent does: that of the turn, or of a sub-task in its fork.

    Attributes:
        fork: the fork; empty for the turn.
        agent: the id of its span.
        name: of the sub-task.
        first: its first entry.
        messages: those it was given and wrote so far.
        output: what its model wrote last, and that no step has taken yet.
        answer: the last text of its model.
        step: the step that runs, with the id of its span; None between steps and before the first.
        calls: calls without a result, by id, with the entry and the place.
        error: the kind and the text of what ended it early.
        start: of its earliest span; end: of its latest.
    """

    fork: str
    agent: bytes
    first: TapeEntry
    name: str = ""
    messages: list[dict[str, Any]] = field(default_factory=list)
    output: dict[str, Any] | None = None
    answer: str = ""
    step: _Step | None = None
    calls: dict[str, tuple[ToolCall, int, int]] = field(default_factory=dict)
    error: tuple[str, str] | None = None
    status: str = ""
    start: int = 0
    end: int = 0

    def cover(self, start: int, end: int) -> None:
        """Last from the beginning of a span, and until its end."""
        self.start, self.end = min(self.start or start, start), max(self.end, end)


@dataclass(slots=True)
class _Step:
    """A step whose calls may still run. `end` is that of its model call."""

    span: bytes
    entry: TapeEntry
    start: int
    end: int


class TurnSpans:
    """Builds the spans of one turn."""

    def __init__(
        self,
        entries: Sequence[TapeEntry],
        exposure: Exposure,
        cited: Sequence[TapeEntry] = (),
        requests: ShownRequests = NO_REQUESTS,
    ) -> None:
        """Take the facts.

        Args:
            entries: those of the turn, from its start to its end.
            exposure: what the receiver may see.
            cited: messages of an interrupted attempt that the turn answers.
            requests: what models were shown; of a step that it does not have, the messages of the turn are shown.
        """
        self._requests = requests
        self._entries = [entry for entry in entries if not entry.erased]
        self._cited = [entry for entry in cited if not entry.erased]
        self._exposure = exposure if exposure.people else exposure.of_turn(find_session(entries), find_people(entries))
        self.turn = next((str(turn) for entry in self._entries if (turn := entry.meta.get("turn"))), "")
        self._trace = trace_id(self.turn)
        self._spans: list[SpanData] = []
        self._scopes: dict[str, _Scope] = {}
        self._runs: list[tuple[str, bytes, str]] = []  # of each call that ended: its scope, its span, its result
        self._people: list[str] = []

    def build(self) -> list[SpanData]:
        """Build them, the turn's own last; none if the turn was erased."""
        start = next((entry for entry in self._entries if entry.name == TURN_START), None)
        if start is None or not self.turn:
            return []
        root = self._scope("", start)
        for entry in self._cited:
            self._take_message(root, entry)
        for entry in self._entries:
            self._take(entry)
        for scope in self._scopes.values():
            self._end_step(scope)
            for waiting in scope.calls.values():  # cut off, and no result says so: an old tape
                self._end_call(scope, waiting, {}, scope.end or _nanos(scope.first.date))
        for scope in reversed(self._scopes.values()):
            if scope is not root:
                self._add_agent(scope, self._find_parent(scope))
        self._add_turn(root, start)
        return _nest(self._spans)

    def _scope(self, fork: str, entry: TapeEntry) -> _Scope:
        if fork not in self._scopes:
            self._scopes[fork] = _Scope(fork, agent_span(self.turn, fork), entry)
        return self._scopes[fork]

    def _take(self, entry: TapeEntry) -> None:
        scope = self._scope(str(entry.meta.get("fork", "")), entry)
        data = entry.data
        match entry.kind:
            case Kind.MESSAGE:
                self._take_message(scope, entry)
            case Kind.TOOL_CALL | Kind.TOOL_RESULT if "source" in entry.meta:
                pass  # a copy: the call ran where the original stands
            case Kind.TOOL_CALL:
                self._take_calls(scope, entry)
            case Kind.TOOL_RESULT:
                for result in read_results(entry):
                    self._take_result(scope, entry, result)
            case Kind.ERROR:
                scope.error = str(entry.payload.get("kind", "")), str(entry.payload.get("message", ""))
            case Kind.EVENT:
                if entry.name == STEP_EVENT:
                    self._take_step(scope, entry, data)
                elif entry.name == "command":
                    self._take_command(scope, entry, data)
                elif entry.name in ("agent/started", "agent/ended"):
                    scope.name = str(data.get("name", ""))
                    scope.status = str(data.get("status", ""))
                    if entry.name == "agent/ended":
                        scope.answer = str(data.get("result", ""))
                        scope.cover(_nanos(entry.date), _nanos(entry.date))
            case _:
                pass

    def _take_message(self, scope: _Scope, entry: TapeEntry) -> None:
        role, content = str(entry.payload.get("role", "")), entry.payload.get("content", "")
        if role == "assistant":
            scope.answer = content if isinstance(content, str) else ""
        elif (sender := entry.meta.get("sender")) and not scope.fork:
            self._people.append(str(sender.get("id", "")))
        message = self._exposure.message(role, content) if self._exposure.has_content else {}
        if role == "assistant":
            scope.output = message
        scope.messages.append(message)

    def _take_calls(self, scope: _Scope, entry: TapeEntry) -> None:
        self._end_step(scope)
        calls = read_calls(entry)
        scope.calls |= {call.id: (unwrap_call(call), entry.id, place) for place, call in enumerate(calls)}
        if self._exposure.has_content:
            message = self._exposure.message("assistant", entry.payload.get("content", ""))
            message["parts"] += [self._exposure.call_part(call) for call in calls]
            scope.messages.append(message)
            scope.output = message
        else:
            scope.messages.append({})

    def _take_step(self, scope: _Scope, entry: TapeEntry, data: JsonObject) -> None:
        self._end_step(scope)
        end = _nanos(entry.date)
        start = end - _millis(data.get("elapsed_ms"))
        step = scope.step = _Step(find_step_span(self.turn, entry), entry, start, end)
        # What the model wrote stands before its step: it is output, and the messages before it are input.
        output, scope.output = scope.output, None
        before = scope.messages[:-1] if output is not None else scope.messages
        attempts = [*objects_of(data.get("attempts"))]
        for place, attempt in enumerate(attempts):
            is_last = place == len(attempts) - 1
            self._add_call(step, attempt, place, before=before, output=output if is_last else None)

    def _end_step(self, scope: _Scope) -> None:
        """Build the span of the step that ran, if one did."""
        step, scope.step = scope.step, None
        if step is None:
            return
        data = step.entry.data
        status, purpose = str(data.get("status", "")), str(data.get("purpose", ""))
        attributes: dict[str, AttributeValue] = {
            Name.KIND: STEP_KIND,
            Name.ENTRY: step.entry.id,
            Name.STEP_STATUS: status,
        }
        if purpose:
            attributes[Name.PURPOSE] = self._exposure.sub_agent(purpose) if ":" in purpose else purpose
        failed = status in ("error", "stopped", "auto_handoff")
        name = f"step {attributes[Name.PURPOSE] if purpose else data.get('step', '')}"
        error = self._exposure.error(str(data.get("error", ""))) if failed else None
        if failed:
            attributes[Name.ERROR] = _error_type(data)
        self._add(name, step.span, scope.agent, (step.start, step.end), attributes, error=error)
        scope.cover(step.start, step.end)

    def _add_call(
        self,
        step: _Step,
        attempt: JsonObject,
        place: int,
        *,
        before: Sequence[dict[str, Any]],
        output: dict[str, Any] | None,
    ) -> None:
        """Build the span of one call of a model; only the one that answered has the outcome of the step."""
        exposure, data = self._exposure, step.entry.data
        provider, model = split_model(exposure.label(str(attempt.get("model", ""))))
        start = step.start + _millis(attempt.get("started_ms"))
        attributes: dict[str, AttributeValue] = {
            Name.OPERATION: CHAT,
            Name.PROVIDER: provider,
            Name.REQUEST_MODEL: model,
            Name.ENTRY: step.entry.id,
        }
        if (first := attempt.get("first_text_ms")) is not None:
            attributes[Name.FIRST_CHUNK] = _millis(first) / 1e9
        found = attempt.get("usage")
        usage = found if isinstance(found, Mapping) else {}
        for name, key in (
            (Name.INPUT_TOKENS, "input_tokens"),
            (Name.OUTPUT_TOKENS, "output_tokens"),
            (Name.CACHED_TOKENS, "cached_tokens"),
        ):
            if usage.get(key) or (key in usage and name is not Name.CACHED_TOKENS):
                attributes[name] = int(usage[key])
        if isinstance(cost := attempt.get("cost"), (int, float)):
            attributes[Name.COST] = float(cost)
        status, error = attempt.get("status"), None
        if status == "ok":
            reason = str(data.get("finish", ""))
            reason = FINISH_REASONS.get(reason, reason)
            if reason:
                attributes[Name.FINISH_REASONS] = [exposure.label(reason)]
            for name, key in ((Name.RESPONSE_MODEL, "answered"), (Name.RESPONSE_ID, "response_id")):
                if data.get(key):
                    attributes[name] = exposure.label(str(data[key]))
            if exposure.has_content and output is not None:
                attributes[Name.OUTPUT_MESSAGES] = exposure.write_messages([{**output, "finish_reason": reason}])
        else:
            attributes[Name.ERROR] = str(attempt.get("kind") or status or "unknown")
            error = self._exposure.error(str(attempt.get("error", "")))
        attributes |= self._write_parameters(data, attempt)
        if place < len(requests := self._requests.get(step.entry.id, ())):
            attributes |= requests[place]
        elif exposure.has_content and not data.get("purpose"):
            attributes[Name.INPUT_MESSAGES] = exposure.write_messages(before)
        span, times = (
            span_id(self.turn, f"call {step.entry.id} {place}"),
            (start, start + _millis(attempt.get("elapsed_ms"))),
        )
        self._add(f"{CHAT} {model}", span, step.span, times, attributes, error=error, kind="client")

    def _write_parameters(self, step: JsonObject, attempt: JsonObject) -> dict[str, AttributeValue]:
        """Return the parameters of a call, as its model got them: without content only numbers that have a known name."""
        fit = attempt.get("fit")
        parameters = (fit if isinstance(fit, Mapping) else step).get("parameters")
        if not isinstance(parameters, Mapping) or not parameters:
            return {}
        attributes: dict[str, AttributeValue] = {
            REQUEST_PARAMETERS[name]: value
            for name, value in parameters.items()
            if name in REQUEST_PARAMETERS and isinstance(value, (int, float))
        }
        if self._exposure.has_content:
            shown = self._exposure.value(thaw(parameters), numbers=False)
            attributes[Name.PARAMETERS] = self._exposure.write_json(shown)
        return attributes

    def _take_result(self, scope: _Scope, entry: TapeEntry, result: JsonObject) -> None:
        call_id = str(result.get("tool_call_id", ""))
        if (waiting := scope.calls.pop(call_id, None)) is None:
            return  # the result of a call of another turn, or a second one
        self._end_call(scope, waiting, result, _nanos(entry.date))
        if self._exposure.has_content:
            scope.messages.append(self._exposure.result_message(call_id, str(result.get("content", ""))))
        else:
            scope.messages.append({})

    def _end_call(self, scope: _Scope, waiting: tuple[ToolCall, int, int], result: JsonObject, noted: int) -> None:
        """Build the span of a call. One that never began, or was cut off, has no duration."""
        call, entry_id, place = waiting
        exposure, content = self._exposure, str(result.get("content", ""))
        start = _nanos(str(result["started"])) if result.get("started") else noted
        end = start + _millis(result.get("elapsed_ms"))
        name = exposure.tool(call.name)
        attributes: dict[str, AttributeValue] = {
            Name.OPERATION: EXECUTE_TOOL,
            Name.TOOL: name,
            Name.TOOL_TYPE: "function",
            Name.TOOL_CALL: exposure.label(call.id),
            Name.KIND: TOOL_KIND,
            Name.ENTRY: entry_id,
        }
        error = None
        if result.get("is_error") or not result.get("started"):
            attributes[Name.ERROR] = "tool_error" if result.get("started") else "not_finished"
            error = self._exposure.error(content)
        if exposure.has_content:
            arguments = exposure.arguments(call)
            shown = arguments if isinstance(arguments, str) else exposure.write_json(arguments)
            output = exposure.text(content)
            attributes |= {Name.TOOL_ARGUMENTS: shown, Name.INPUT: shown, Name.INPUT_TYPE: "application/json"}
            attributes |= {Name.TOOL_RESULT: output, Name.OUTPUT: output, Name.OUTPUT_TYPE: "text/plain"}
        span, parent = span_id(self.turn, f"tool {entry_id} {place}"), scope.step.span if scope.step else scope.agent
        self._add(f"{EXECUTE_TOOL} {name}", span, parent, (start, end), attributes, error=error)
        self._runs.append((scope.fork, span, content))
        scope.cover(start, end)

    def _take_command(self, scope: _Scope, entry: TapeEntry, data: JsonObject) -> None:
        """Build the span of a command that a person typed: a tool call without a model."""
        exposure, end = self._exposure, _nanos(entry.date)
        name, status = exposure.tool(str(data.get("name", ""))), str(data.get("status", ""))
        attributes: dict[str, AttributeValue] = {
            Name.OPERATION: EXECUTE_TOOL,
            Name.TOOL: name,
            Name.TOOL_TYPE: "function",
            Name.KIND: TOOL_KIND,
            Name.ENTRY: entry.id,
        }
        output, error = str(data.get("output", "")), None
        if status != "ok":
            attributes[Name.ERROR] = status
            error = self._exposure.error(output)
        if exposure.has_content:
            scope.messages.append(exposure.message("user", str(data.get("raw", ""))))
            scope.answer = output
            attributes |= {Name.INPUT: exposure.text(str(data.get("raw", ""))), Name.OUTPUT: exposure.text(output)}
            attributes |= {Name.INPUT_TYPE: "text/plain", Name.OUTPUT_TYPE: "text/plain"}
        start = end - _millis(data.get("elapsed_ms"))
        span = command_span(self.turn, entry.id)
        self._add(f"{EXECUTE_TOOL} {name}", span, scope.agent, (start, end), attributes, error=error)
        scope.cover(start, end)

    def _parent_of(self, scope: _Scope) -> _Scope:
        """Return the scope that a sub-task runs in: that of its parent fork if it wrote something, else the turn's."""
        return self._scopes.get(scope.fork.rpartition("/")[0]) or self._scopes[""]

    def _find_parent(self, scope: _Scope) -> bytes:
        """Find the call that ran a sub-task: its result names the fork. Without one, the agent stands above it."""
        parent = self._parent_of(scope)
        calls = [span for fork, span, content in self._runs if fork == parent.fork and scope.fork in content]
        return calls[-1] if calls else parent.agent

    def _add_agent(self, scope: _Scope, parent: bytes) -> None:
        """Build the span of a sub-task."""
        name = self._exposure.sub_agent(scope.name)
        attributes = self._agent_attributes(scope, name)
        if scope.status:
            attributes[Name.STATUS] = scope.status
        error = None
        if scope.status != "answered":
            attributes[Name.ERROR] = scope.error[0] if scope.error else scope.status or "interrupted"
            error = self._exposure.error(scope.error[1] if scope.error else "")
        start = scope.start or _nanos(scope.first.date)
        times = start, max(scope.end, start)
        self._add(f"{INVOKE_AGENT} {name}", scope.agent, parent, times, attributes, error=error)

    def _add_turn(self, scope: _Scope, start: TapeEntry) -> None:
        exposure, data, last = self._exposure, start.data, self._entries[-1]
        session = str(data.get("session", ""))
        conversation = exposure.identify("session", session)
        agent = exposure.label(writer_of(start)) or exposure.agent
        attributes = self._agent_attributes(scope, agent)
        attributes |= {
            Name.CONVERSATION: conversation,
            Name.SESSION: conversation,
            Name.TURN: self.turn,
            Name.ENTRY: start.id,
            Name.ATTEMPT: int(data.get("attempt", 1)),
            Name.ORIGIN: _origin(self._entries),
        }
        if person := next((person for person in self._people if person), ""):
            attributes[Name.USER] = exposure.identify("user", f"{session.partition(':')[0]}:{person}")
        begin, status, error = _nanos(start.date), "interrupted", None
        if last.name == TURN_END:
            status, end = str(last.data.get("status", "")), _nanos(last.date)
        else:  # recorded by a later process: the turn itself lasted as long as what it did
            end = max(begin, scope.end)
        attributes[Name.STATUS] = status
        if status not in ("answered", "silent"):
            attributes[Name.ERROR] = scope.error[0] if scope.error else status
            error = self._exposure.error(scope.error[1] if scope.error else "")
        again = str(data.get("again", ""))
        links = ((trace_id(again), agent_span(again)),) if again else ()
        name = f"{INVOKE_AGENT} {agent}"
        self._add(name, scope.agent, None, (begin, end), attributes, error=error, links=links)

    def _agent_attributes(self, scope: _Scope, name: str) -> dict[str, AttributeValue]:
        """Return the attributes of an agent; with content the whole list of its messages, since viewers read it there."""
        attributes: dict[str, AttributeValue] = {Name.OPERATION: INVOKE_AGENT, Name.AGENT: name, Name.KIND: AGENT_KIND}
        if not self._exposure.has_content:
            return attributes
        messages = scope.messages
        asked = [message for message in messages if message.get("role") == "user"]
        if messages and messages[-1].get("role") == "assistant":
            messages, output = messages[:-1], {**messages[-1], "finish_reason": "stop"}
            attributes[Name.OUTPUT_MESSAGES] = self._exposure.write_messages([output])
        attributes[Name.INPUT_MESSAGES] = self._exposure.write_messages(messages)
        attributes[Name.INPUT] = self._exposure.label("\n\n".join(_text_of(message) for message in asked))
        attributes[Name.INPUT_TYPE] = attributes[Name.OUTPUT_TYPE] = "text/plain"
        attributes[Name.OUTPUT] = self._exposure.text(scope.answer)
        return attributes

    def _add(
        self,
        name: str,
        span: bytes,
        parent: bytes | None,
        times: tuple[int, int],
        attributes: Mapping[str, AttributeValue],
        *,
        error: str | None,
        kind: Literal["internal", "client"] = "internal",
        links: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        start, end = times
        self._spans.append(SpanData(self._trace, span, parent, name, kind, start, end, attributes, error, links))


def find_session(entries: Sequence[TapeEntry]) -> str:
    """Return the session of a turn; empty if its start is not among the entries."""
    start = next((entry for entry in entries if entry.name == TURN_START), None)
    return str(start.data.get("session", "")) if start is not None else ""


def _nest(spans: Sequence[SpanData]) -> list[SpanData]:
    """Let each span last as long as what stands below it.

    A step lasts as long as its calls. Besides, durations are whole milliseconds and dates are not, so that a call can
    seem to end before what it ran.
    """
    by_id = {span.id: span for span in spans}
    starts = {span.id: span.start for span in spans}
    ends = {span.id: span.end for span in spans}
    for span in spans:
        above = by_id.get(span.parent or b"")
        while above is not None:
            starts[above.id] = min(starts[above.id], span.start)
            ends[above.id] = max(ends[above.id], span.end)
            above = by_id.get(above.parent or b"")
    return [replace(span, start=starts[span.id], end=ends[span.id]) for span in spans]


def _origin(entries: Sequence[TapeEntry]) -> str:
    """Return where a turn came from: `human`, `schedule` or another source, without what follows a colon."""
    asked = (entry for entry in entries if "origin" in entry.meta and not writer_of(entry))
    origins: Iterator[str] = (str(entry.meta["origin"]) for entry in asked)
    return next(origins, "human").partition(":")[0]


def _text_of(message: Mapping[str, Any]) -> str:
    return "\n".join(str(part["content"]) for part in message.get("parts", ()) if part.get("type") == "text")


def _error_type(data: JsonObject) -> str:
    """Return the kind of the error that ended a step: that of its last call, if one failed."""
    kinds = [str(attempt["kind"]) for attempt in objects_of(data.get("attempts")) if attempt.get("kind")]
    return kinds[-1] if kinds else str(data.get("status", ""))


def _millis(value: object) -> int:
    """Return milliseconds as nanoseconds."""
    return max(0, int(value * 1_000_000)) if isinstance(value, (int, float)) else 0


_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def _nanos(date: str) -> int:
    """Return an instant of the tape as nanoseconds of Unix time; that of 1970 if it is unknown."""
    try:
        return (datetime.fromisoformat(date) - _EPOCH) // timedelta(microseconds=1) * 1000
    except (ValueError, TypeError):
        return 0
