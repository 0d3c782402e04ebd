"""Turns run again with another model: in forks that are thrown away, with tools answered from the record."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from bubbot.errors import BubbotError, LeaseLost, ModelCallDenied, StoreError
from bubbot.features.replay.report import ReplayedTurn, RunSummary
from bubbot.ports.model import ModelReply, ToolCall
from bubbot.ports.text import clean
from bubbot.ports.turn import Turn
from bubbot.runtime.answer import route_assistant
from bubbot.runtime.compose import embed_images, rebuild_request
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.tape import entry as make
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, canonical, thaw
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.service import TapeService

PURPOSE = "replay"
NOT_RECORDED = "not recorded: in this replay nothing runs, and the turn that is replayed made no such call"
"""The answer to a call that the record does not have. So no effect happens again, and no other one either."""
MAX_STEPS = 20
PAGE_ENTRIES = 500
"""Entries read at a time: a slice may be a chat of years."""
TURN_ENDS = ("turn/end", "turn/interrupted")


class ReplayDenied(Exception):
    """A budget or a rate ended the replay; the text says which."""


async def find_turns(tape: TapeHandle, first: int, last: int) -> AsyncIterator[list[TapeEntry]]:
    """Find the turns of a range of entries that asked a model for an answer, each with its entries, some entries at a time."""
    turns: dict[str, list[TapeEntry]] = {}
    for low in range(first, last + 1, PAGE_ENTRIES):
        part = IdRanges(((low, min(low + PAGE_ENTRIES - 1, last)),))
        for entry in (await tape.fetch([TapeQuery(tape.name, part)]))[0]:
            if isinstance(turn := entry.meta.get("turn"), str) and not entry.erased and entry.is_shown_to(""):
                turns.setdefault(turn, []).append(entry)
                if entry.name in TURN_ENDS and _answering_steps(found := turns.pop(turn)):
                    yield found
    for found in turns.values():  # cut off by the end of the range
        if _answering_steps(found):
            yield found


def _answering_steps(entries: Sequence[TapeEntry]) -> list[JsonObject]:
    steps = [entry.data for entry in entries if entry.name == "loop.step" and entry.kind == Kind.EVENT]
    return [step for step in steps if "purpose" not in step and step.get("view")]


async def rerun_turn(
    host: Turn, tape: TapeService, entries: Sequence[TapeEntry], strategies: ContextStrategies
) -> tuple[ReplayedTurn, list[TapeEntry]]:
    """Run a turn again with the model of the host turn; return it with the steps that say what that cost.

    Raises:
        ReplayDenied: a budget ended it.
    """
    step = _answering_steps(entries)[0]
    request = await embed_images(await rebuild_request(step, tape, strategies=strategies), tape.get_blob)
    outer = await tape.open_fork(stamp={"turn": host.id})
    fork = await outer.fork(stamp={"origin": PURPOSE})
    child = host.derive(fork, origin=PURPOSE, message_ids=(), allowed_tools=frozenset())
    record, messages = _Record(entries), [dict(message) for message in request.messages]
    called: list[str] = []
    text = error = ""
    shown = [each for span in step["shown"] if type(span[0]) is int for each in range(span[0], span[1] + 1)]
    try:
        for _ in range(MAX_STEPS):
            reply = await child.runner.ask(
                child, request.system, messages, purpose=PURPOSE, shown=shown, tools=request.tools
            )
            if not reply.calls:
                text = route_assistant(clean(reply.text)).text
                break
            messages += _answer_calls(reply, record)
            called += [call.name for call in reply.calls]
        else:
            error = f"no answer after {MAX_STEPS} model calls"
    except ModelCallDenied as denied:
        raise ReplayDenied(host.texts.format_commands(denied.notice) or str(denied)) from denied
    except (StoreError, LeaseLost):
        raise
    except BubbotError as failed:
        error = host.texts.reason(failed)
    steps = [thaw(entry.data) for entry in fork.delta if entry.name == "loop.step"]
    host.tape.raise_source(fork.source)
    await outer.discard()  # a replay of many turns would keep each request in memory
    again = _summarise(steps, text, called, record.missed, error)
    usage = [
        make.event("loop.step", {**each, "head": 0, "as_of": [], "shown": []}) for each in map(_without_content, steps)
    ]
    question = next(
        (str(message["content"]) for message in reversed(request.messages) if message["role"] == "user"), ""
    )
    turn = ReplayedTurn(
        entries[0].id, str(entries[0].meta["turn"]), question[:500], _summarise_recorded(entries), again
    )
    return turn, usage


def _without_content(step: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what names the blobs of a fork that is thrown away."""
    return {key: value for key, value in step.items() if key not in ("system", "tools", "messages", "foreign")}


def _answer_calls(reply: ModelReply, record: _Record) -> list[dict[str, Any]]:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in reply.calls
    ]
    message: dict[str, Any] = {"role": "assistant", "content": reply.text, "tool_calls": calls}
    if reply.replay:
        message["replay"] = reply.replay
    results = [{"role": "tool", "tool_call_id": call.id, "content": record.answer(call)} for call in reply.calls]
    return [message, *results]


class _Record:
    """The calls of a turn with their results. Each result answers one call; the last one of equal calls answers again."""

    def __init__(self, entries: Sequence[TapeEntry]) -> None:
        self.missed = 0
        calls: dict[str, tuple[str, str]] = {}
        self._results: dict[tuple[str, str], list[str]] = defaultdict(list)
        for entry in entries:
            if entry.kind == Kind.TOOL_CALL:
                for call in entry.payload["calls"]:
                    function = call["function"]
                    calls[str(call["id"])] = _call_key(str(function["name"]), str(function["arguments"]))
            elif entry.kind == Kind.TOOL_RESULT:
                for result in entry.payload["results"]:
                    if (key := calls.get(str(result.get("tool_call_id")))) is not None:
                        self._results[key].append(str(result.get("content", "")))

    def answer(self, call: ToolCall) -> str:
        """Return the recorded result of a call."""
        results = self._results.get(_call_key(call.name, call.arguments))
        if not results:
            self.missed += 1
            return NOT_RECORDED
        return results.pop(0) if len(results) > 1 else results[0]


def _call_key(name: str, arguments: str) -> tuple[str, str]:
    try:
        value = json.loads(arguments) if arguments.strip() else {}
        return name.replace("_", "."), canonical({"arguments": value})
    except (ValueError, RecursionError):
        return name.replace("_", "."), arguments


def _summarise(
    steps: Sequence[Mapping[str, Any]], text: str, calls: Sequence[str], not_recorded: int = 0, error: str = ""
) -> RunSummary:
    usages = [step["usage"] for step in steps if isinstance(step.get("usage"), Mapping)]
    costs = [step.get("cost") for step in steps]
    known = [cost for cost in costs if isinstance(cost, int | float)]
    return RunSummary(
        model=str(steps[-1].get("answered") or steps[-1].get("model", "")) if steps else "",
        text=text,
        steps=len(steps),
        calls=tuple(calls),
        not_recorded=not_recorded,
        input_tokens=sum(usage.get("input_tokens", 0) for usage in usages),
        output_tokens=sum(usage.get("output_tokens", 0) for usage in usages),
        cost=sum(known) if known and len(known) == len(costs) else None,
        error=error,
    )


def _summarise_recorded(entries: Sequence[TapeEntry]) -> RunSummary:
    steps = _answering_steps(entries)
    texts = [
        str(entry.payload["content"])
        for entry in entries
        if entry.kind == Kind.MESSAGE and entry.payload.get("role") == "assistant"
    ]
    calls = [
        str(call["function"]["name"])
        for entry in entries
        if entry.kind == Kind.TOOL_CALL
        for call in entry.payload["calls"]
    ]
    errors = [str(entry.payload.get("message", "")) for entry in entries if entry.kind == Kind.ERROR]
    return _summarise(steps, texts[-1].strip() if texts else "", calls, error=errors[-1] if errors else "")
