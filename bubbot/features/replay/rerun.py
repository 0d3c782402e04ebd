"""Turns run again with another model: in forks that are thrown away, with tools answered from the record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from bubbot.errors import BubbotError, ConfigError, EntryNotFound, LeaseLost, ModelCallDenied, StoreError
from bubbot.features.replay.facts import RunSummary, TurnReplay
from bubbot.formatting import clean
from bubbot.ports.model import ModelReply
from bubbot.ports.people import AsksConsent
from bubbot.ports.turn import Turn
from bubbot.runtime.answer import route_assistant
from bubbot.runtime.compose import embed_images, rebuild_request
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.runtime.rerun import RecordedResults, SpeakerFinder, answering_steps, find_turns
from bubbot.runtime.turns import StepRecord, TurnRecord, discarded_steps
from bubbot.tape.entry import TapeEntry
from bubbot.tape.handle import ids_of
from bubbot.tape.query import cut_spans
from bubbot.tape.service import TapeService

PURPOSE = "replay"
MAX_STEPS = 20


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
    speakers = SpeakerFinder(tape)
    async for turn in find_turns(tape, *span):
        people = await speakers.find(turn)
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


async def _rerun_turn(
    host: Turn, tape: TapeService, turn: TurnRecord, strategies: ContextStrategies
) -> tuple[TurnReplay, list[TapeEntry]]:
    """Run a turn again with the model of the host turn; return it with the steps that say what that cost.

    Raises:
        ReplayDenied: a budget ended it.
    """
    step = answering_steps(turn)[0]
    request = await embed_images(await rebuild_request(step.data, tape, strategies=strategies), tape.get_blob)
    outer = await tape.open_fork(stamp={"turn": host.id})
    fork = await outer.fork(stamp={"origin": PURPOSE})
    child = host.derive(fork, origin=PURPOSE, message_ids=(), allowed_tools=frozenset())
    record, messages = RecordedResults(turn), [dict(message) for message in request.messages]
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


def _answer_calls(reply: ModelReply, record: RecordedResults) -> list[dict[str, Any]]:
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
    return _summarise(answering_steps(turn), text, [call.name for _, call in turn.calls], error=error)
