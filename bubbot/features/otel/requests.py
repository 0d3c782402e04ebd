"""What models were shown, as attributes of their spans: the requests are rebuilt from the tape, as `,why` does it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from bubbot.errors import BubbotError
from bubbot.features.otel.content import MAX_LIST_CHARS, Exposure
from bubbot.features.otel.names import Name
from bubbot.features.otel.people import Person, find_people
from bubbot.features.otel.spans import AttributeValue, ShownRequests
from bubbot.ports.model import ModelRequest, ToolCall, ToolSpecs
from bubbot.runtime.compose import has_request, rebuild_sent
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.runtime.request_rules import apply_rules
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, canonical, objects_of, text_field, thaw
from bubbot.tape.events import STEP_EVENT
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.service import TapeService

MAX_SYSTEM_CHARS = 100_000
"""The longest system prompt of a span."""
MAX_TOOLS_CHARS = 200_000
"""The longest list of tool schemas of a span; the last tools are left out."""
MAX_TURN_CHARS = 4_000_000
"""Characters of requests in one turn after which its further spans have only the newest messages."""
MIN_LIST_CHARS = 20_000
"""What these have at most."""
MAX_MESSAGES_READ = 2_000
"""Newest messages of a tape among which the people are looked for whose names are replaced."""


async def read_people(tape: TapeService, entries: Sequence[TapeEntry]) -> list[Person]:
    """Return the people that requests of a turn may name, the newest first: those of the tape, and of what is shown of others."""
    wrote = (Kind.MESSAGE,)
    queries = [
        TapeQuery(tape.name, IdRanges(((1, entries[-1].id),)), kinds=wrote, newest=True, limit=MAX_MESSAGES_READ)
    ]
    others: dict[str, set[tuple[int, int]]] = {}
    for step in entries:
        for name, spans in _shown_of_others(step):
            others.setdefault(name, set()).update(spans)
    for name, ranges in others.items():
        part = IdRanges(tuple(sorted(ranges)))
        queries.append(TapeQuery(name, part, kinds=wrote, newest=True, limit=MAX_MESSAGES_READ))
    return [person for answer in await tape.fetch(queries) for person in find_people(answer)]


def _shown_of_others(step: TapeEntry) -> list[tuple[str, list[tuple[int, int]]]]:
    """Return the ranges of other tapes that a step was shown; an imported step may hold anything."""
    shown = step.data.get("shown") if step.name == STEP_EVENT else ()
    found = []
    for pair in shown if isinstance(shown, Sequence) else ():
        match pair:
            case [str() as name, [*spans]]:
                found.append((name, _pairs(spans)))
            case _:
                pass
    return found


def _pairs(spans: Sequence[object]) -> list[tuple[int, int]]:
    found = []
    for span in spans:
        match span:
            case [int() as low, int() as high] if 0 < low <= high:
                found.append((low, high))
            case _:
                pass
    return found


async def read_requests(
    tape: TapeService, entries: Sequence[TapeEntry], strategies: ContextStrategies, exposure: Exposure
) -> ShownRequests:
    """Rebuild the requests of all steps among the entries, as attributes of the spans of their attempts.

    A step whose request was not kept, or cannot be rebuilt, is left out. Called only if there is content.
    """
    writer, found = _RequestWriter(exposure), dict[int, Sequence[Mapping[str, AttributeValue]]]()
    for entry in entries:
        if entry.name == STEP_EVENT and has_request(entry.data):
            await asyncio.sleep(0)  # a window may be long, and turns of others go on
            try:
                rebuilt = await rebuild_sent(entry.data, tape, strategies=strategies)
                attempts = [*objects_of(entry.data.get("attempts"))]
                requests = [_fit(rebuilt.composed, attempt) for attempt in attempts[:-1]]
            except BubbotError:  # an unknown strategy or rule, or a blob that is gone
                continue
            found[entry.id] = [writer.write(each, is_exact=rebuilt.is_equal) for each in (*requests, rebuilt.sent)]
    return found


def _fit(request: ModelRequest, attempt: JsonObject) -> ModelRequest:
    """Return the request as the model of an attempt got it."""
    fit = attempt.get("fit")
    rules = fit.get("rules") if isinstance(fit, Mapping) else ()
    return apply_rules([text_field(rule, "rule") for rule in objects_of(rules)], request)


class _RequestWriter:
    """Writes the requests of one turn. What several of them have is made fit to go out once."""

    def __init__(self, exposure: Exposure) -> None:
        self._exposure = exposure
        self._written: dict[bytes, str] = {}
        self._left = MAX_TURN_CHARS

    def write(self, request: ModelRequest, *, is_exact: bool) -> Mapping[str, AttributeValue]:
        """Return the attributes of a request."""
        attributes: dict[str, AttributeValue] = {Name.REQUEST_EXACT: is_exact}
        if request.system:
            attributes[Name.SYSTEM] = self._write_once(request.system.encode(), lambda: self._system(request.system))
        if request.tools:
            tools = ToolSpecs.of(request.tools)
            attributes[Name.TOOLS] = self._write_once(tools.encoded, lambda: self._tools(tools))
        keys = request.texts or [canonical(message).encode() for message in request.messages]
        pairs = list(zip(keys, request.messages, strict=True))
        texts = (self._write_once(key, partial(self._message, message)) for key, message in reversed(pairs))
        limit = max(MIN_LIST_CHARS, min(MAX_LIST_CHARS, self._left))
        attributes[Name.INPUT_MESSAGES] = self._exposure.join_messages(texts, len(pairs), limit)
        self._left -= sum(len(value) for value in attributes.values() if isinstance(value, str))
        return attributes

    def _write_once(self, key: bytes, write: Callable[[], str]) -> str:
        if key not in self._written:
            self._written[key] = write()
        return self._written[key]

    def _system(self, system: str) -> str:
        return self._exposure.write_json([{"type": "text", "content": self._exposure.text(system, MAX_SYSTEM_CHARS)}])

    def _tools(self, tools: ToolSpecs) -> str:
        exposure, texts, size = self._exposure, list[str](), 0
        for tool in tools:
            described = {"name": exposure.tool(tool.name), "description": exposure.text(tool.description)}
            schema = exposure.value(thaw(tool.parameters), numbers=False)
            text = exposure.write_json({"type": "function", **described, "parameters": schema})
            size += len(text)
            if size > MAX_TOOLS_CHARS:
                note = f"[{len(tools) - len(texts)} more tools left out]"
                texts.append(json.dumps({"type": "function", "name": note}))
                break
            texts.append(text)
        return exposure.label(f"[{', '.join(texts)}]")

    def _message(self, message: JsonObject) -> str:
        """Write a message of a request in the form of the conventions."""
        exposure, role, content = self._exposure, text_field(message, "role"), message.get("content")
        if role == "tool":
            text = content if isinstance(content, str) else json.dumps(content, default=dict, ensure_ascii=False)
            return exposure.write_json(exposure.result_message(text_field(message, "tool_call_id"), text))
        shown = exposure.message(role, content)
        for call in objects_of(message.get("tool_calls")):
            function = call.get("function")
            function = function if isinstance(function, Mapping) else {}
            name, arguments = text_field(function, "name"), text_field(function, "arguments")
            shown["parts"].append(exposure.call_part(ToolCall(text_field(call, "id"), name, arguments)))
        return exposure.write_json(shown)
