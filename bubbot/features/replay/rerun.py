"""Turns run again with another model: in forks that are thrown away, with tools answered from the record."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

from bubbot.errors import BubbotError, ConfigError, EntryNotFound, LeaseLost, ModelCallDenied, StoreError
from bubbot.features.replay.facts import RunSummary, TurnReplay
from bubbot.formatting import clean
from bubbot.ports.model import ModelReply, ToolCall
from bubbot.ports.people import Account, AsksConsent
from bubbot.ports.turn import Turn
from bubbot.runtime.answer import route_assistant
from bubbot.runtime.compose import embed_images, rebuild_request
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.runtime.context.view import records_view
from bubbot.runtime.turns import StepRecord, TurnRecord, discarded_steps, read_calls, read_results
from bubbot.tape.entry import Kind, TapeEntry, canonical, sender_id, text_field
from bubbot.tape.events import TURN_ENDS
from bubbot.tape.handle import TapeHandle, ids_of
from bubbot.tape.provenance import TERMINAL_SENDER
from bubbot.tape.query import IdRanges, TapeQuery, cut_spans, union
from bubbot.tape.service import TapeService
from bubbot.tape.store import SYSTEM_TAPE_PREFIX

PURPOSE = "replay"
NOT_RECORDED = "not recorded: in this replay nothing runs, and the turn that is replayed made no such call"
"""The answer to a call that the record does not have. So no effect happens again, and no other one either."""
MAX_STEPS = 20
PAGE_ENTRIES = 500
"""Entries read at a time: a slice may be a chat of years."""


class ReplayDenied(Exception):
    """A budget or a rate ended the replay; the text says which."""


class RerunResult(NamedTuple):
    """What came of turns that ran again.

    Attributes:
        turns: how each went.
        usage: the steps that say what that cost.
        problem: what ended it early; empty for nothing.
        left_out: turns that did not run, since somebody whose words they have has not allowed it.
    """

    turns: tuple[TurnReplay, ...]
    usage: list[TapeEntry]
    problem: str
    left_out: int


async def rerun_turns(
    host: Turn, tape: TapeService, span: tuple[int, int], strategies: ContextStrategies, consents: AsksConsent
) -> RerunResult:
    """Run the turns of a range of entries again, except those with words of people who have not allowed it.

    To compare models is to evaluate them with the words of people. Who asks allows it for their own words.
    """
    turns, usage, problem, left_out = list[TurnReplay](), list[TapeEntry](), "", 0
    async for turn in find_turns(tape, *span):
        people = await find_speakers(tape, turn)
        asked = None if people is None else people - {host.typing_account}
        if asked is None or not all([await consents.has_consented(account, "evaluation") for account in asked]):
            left_out += 1
            continue
        try:
            found, spent = await _rerun_turn(host, tape, turn, strategies)
        except ReplayDenied as error:
            problem = str(error)
            break
        except (EntryNotFound, ConfigError) as error:  # its request cannot be built again
            problem = f"#{turn.entries[0].id}: {error}"
            continue
        turns.append(found)
        usage += spent
    return RerunResult(tuple(turns), usage, problem, left_out)


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
                if entry.name in TURN_ENDS and _answering_steps(found := TurnRecord.of(turns.pop(turn))):
                    yield found
    for found in map(TurnRecord.of, turns.values()):  # cut off by the end of the range
        if _answering_steps(found):
            yield found


def _answering_steps(turn: TurnRecord) -> list[StepRecord]:
    return [step for step in turn.answering_steps if records_view(step.data)]


async def _rerun_turn(
    host: Turn, tape: TapeService, turn: TurnRecord, strategies: ContextStrategies
) -> tuple[TurnReplay, list[TapeEntry]]:
    """Run a turn again with the model of the host turn; return it with the steps that say what that cost.

    Raises:
        ReplayDenied: a budget ended it.
    """
    step = _answering_steps(turn)[0]
    request = await embed_images(await rebuild_request(step.data, tape, strategies=strategies), tape.get_blob)
    outer = await tape.open_fork(stamp={"turn": host.id})
    fork = await outer.fork(stamp={"origin": PURPOSE})
    child = host.derive(fork, origin=PURPOSE, message_ids=(), allowed_tools=frozenset())
    record, messages = _RecordedResults(turn), [dict(message) for message in request.messages]
    called: list[str] = []
    text = error = ""
    head = await tape.head()
    shown = ids_of(cut_spans(step.shown, head), head)
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
    again = _summarise(TurnRecord.of(fork.delta).steps, text, called, record.missed, error)
    usage = discarded_steps(fork.delta, PURPOSE)
    host.tape.raise_source(fork.source)
    await outer.discard()  # a replay of many turns would keep each request in memory
    question = next(
        (str(message["content"]) for message in reversed(request.messages) if message["role"] == "user"), ""
    )
    replayed = TurnReplay((tape.name, turn.entries[0].id), turn.id, question[:500], _summarise_recorded(turn), again)
    return replayed, usage


def _answer_calls(reply: ModelReply, record: _RecordedResults) -> list[dict[str, Any]]:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in reply.calls
    ]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": route_assistant(clean(reply.text)).content,
        "tool_calls": calls,
    }
    if reply.replay:
        message["replay"] = reply.replay
    results = [{"role": "tool", "tool_call_id": call.id, "content": record.answer(call)} for call in reply.calls]
    return [message, *results]


class _RecordedResults:
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

    def answer(self, call: ToolCall) -> str:
        """Return the recorded result of a call."""
        results = self._results.get(_call_key(call))
        if not results:
            self.missed += 1
            return NOT_RECORDED
        return results.pop(0) if len(results) > 1 else results[0]


def _call_key(call: ToolCall) -> tuple[str, str]:
    name = call.name.replace("_", ".")
    try:
        value = json.loads(call.arguments) if call.arguments.strip() else {}
        return name, canonical({"arguments": value})
    except (ValueError, RecursionError):
        return name, call.arguments


def _summarise(
    steps: Sequence[StepRecord], text: str, calls: Sequence[str], not_recorded: int = 0, error: str = ""
) -> RunSummary:
    costs = [step.cost for step in steps]
    known = [cost for cost in costs if cost is not None]
    return RunSummary(
        model=steps[-1].model if steps else "",
        text=text,
        steps=len(steps),
        calls=tuple(calls),
        not_recorded=not_recorded,
        input_tokens=sum(step.input_tokens for step in steps),
        output_tokens=sum(step.output_tokens for step in steps),
        cost=sum(known) if known and len(known) == len(costs) else None,
        error=error,
    )


def _summarise_recorded(turn: TurnRecord) -> RunSummary:
    text = route_assistant(str(turn.answer.payload["content"])).text if turn.answer else ""
    error = str(turn.errors[-1].payload.get("message", "")) if turn.errors else ""
    return _summarise(_answering_steps(turn), text, [call.name for _, call in turn.calls], error=error)
