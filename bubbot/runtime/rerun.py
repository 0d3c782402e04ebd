"""What is needed to run recorded turns again: the turns of a slice, whose words they have, and the results of their calls."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping

from bubbot.ports.model import ToolCall
from bubbot.ports.people import Account
from bubbot.runtime.context.view import records_view
from bubbot.runtime.turns import StepRecord, TurnRecord, read_calls, read_results
from bubbot.tape.entry import Kind, TapeEntry, canonical, sender_id, text_field
from bubbot.tape.events import TURN_ENDS
from bubbot.tape.handle import TapeHandle
from bubbot.tape.provenance import TERMINAL_SENDER
from bubbot.tape.query import IdRanges, TapeQuery, cut_spans, union
from bubbot.tape.store import SYSTEM_TAPE_PREFIX

NOT_RECORDED = "not recorded: in this replay nothing runs, and the turn that is replayed made no such call"
"""The answer to a call that the record does not have. So no effect happens again, and no other one either."""
PAGE_ENTRIES = 500
"""Entries read at a time: a slice may be a chat of years."""


async def find_speakers(tape: TapeHandle, turn: TurnRecord) -> set[Account] | None:
    """Find the people whose messages and memory the models of a turn were shown, and whom those quote.

    The person at the terminal is not among them. None if it is not known who spoke: the models were shown another chat.
    """
    head, channel = await tape.head(), tape.session.partition(":")[0]
    spans = {tape.name: [span for step in turn.steps for span in cut_spans(step.shown, head)]}
    for name, shown in (each for step in turn.steps for each in step.shown_elsewhere):
        spans.setdefault(name, []).extend(shown)
    if any(not name.startswith(SYSTEM_TAPE_PREFIX) for name in spans if name != tape.name):
        return None
    people = set[Account]()
    queries = [
        TapeQuery(name, IdRanges(union(shown)), kinds=(Kind.MESSAGE, Kind.EVENT)) for name, shown in spans.items()
    ]
    for entry in (entry for found in await tape.fetch(queries) for entry in found):
        quote = entry.meta.get("quote")
        quoted = sender_id(quote) if isinstance(quote, Mapping) and not quote.get("own") else ""
        people |= {(channel, number) for number in {sender_id(entry.meta), quoted}}
        people.add((text_field(entry.data, "channel"), text_field(entry.data, "by")))  # of memory that chats share
    return {account for account in people if account[1] not in ("", TERMINAL_SENDER)}


async def find_turns(tape: TapeHandle, first: int, last: int) -> AsyncIterator[TurnRecord]:
    """Find the turns of a range of entries that asked a model for an answer, some entries at a time."""
    turns: dict[str, list[TapeEntry]] = {}
    for low in range(first, last + 1, PAGE_ENTRIES):
        part = IdRanges(((low, min(low + PAGE_ENTRIES - 1, last)),))
        for entry in (await tape.fetch([TapeQuery(tape.name, part)]))[0]:
            if isinstance(turn := entry.meta.get("turn"), str) and not entry.erased and entry.is_shown_to(""):
                turns.setdefault(turn, []).append(entry)
                if entry.name in TURN_ENDS and answering_steps(found := TurnRecord.of(turns.pop(turn))):
                    yield found
    for found in map(TurnRecord.of, turns.values()):  # cut off by the end of the range
        if answering_steps(found):
            yield found


def answering_steps(turn: TurnRecord) -> list[StepRecord]:
    """List the steps of a turn that asked a model for its answer, as far as their requests can be built again."""
    return [step for step in turn.answering_steps if records_view(step.data)]


class RecordedResults:
    """The calls of a turn with their results. Each result answers one call; the last one of equal calls answers again."""

    def __init__(self, turn: TurnRecord) -> None:
        self.missed = 0
        calls: dict[str, tuple[str, str]] = {}
        self._results: dict[tuple[str, str], list[str]] = defaultdict(list)
        for entry in turn.entries:
            calls |= {call.id: _call_key(call) for call in read_calls(entry)}
            for result in read_results(entry):
                if (key := calls.get(str(result.get("tool_call_id")))) is not None:
                    self._results[key].append(str(result.get("content", "")))

    def find(self, call: ToolCall) -> str | None:
        """Return the recorded result of a call; None if the record has no such call."""
        results = self._results.get(_call_key(call))
        if not results:
            self.missed += 1
            return None
        return results.pop(0) if len(results) > 1 else results[0]

    def answer(self, call: ToolCall) -> str:
        """Return the recorded result of a call, else a sentence that nothing runs."""
        result = self.find(call)
        return NOT_RECORDED if result is None else result


def _call_key(call: ToolCall) -> tuple[str, str]:
    name = call.name.replace("_", ".")
    try:
        value = json.loads(call.arguments) if call.arguments.strip() else {}
        return name, canonical({"arguments": value})
    except (ValueError, RecursionError):
        return name, call.arguments
