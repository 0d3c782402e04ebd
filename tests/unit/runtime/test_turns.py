"""A turn read back from its entries, those of imports among them."""

from __future__ import annotations

from typing import Any

import pytest

from bubbot.runtime.turns import LastTurn, LastTurnView, TurnRecord, discarded_steps, read_calls
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape import entry as make
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, SteppingClock

CALL = {"id": "c1", "type": "function", "function": {"name": "note", "arguments": '{"text": "hi"}'}}
STEP = {"step": 1, "status": "ok", "model": "small", "usage": {"input_tokens": 7, "output_tokens": 2, "cost": 0.5}}


def numbered(*entries: TapeEntry) -> list[TapeEntry]:
    return [entry.with_id(place) for place, entry in enumerate(entries, 1)]


def test_a_step_has_what_its_model_wrote_and_the_results_and_facts_of_its_calls() -> None:
    entries = numbered(
        make.event("turn/start", {}),
        make.message("user", "hello"),
        make.tool_call([CALL]),
        make.event("loop.step", STEP),
        make.event("effect.begin", {"call": "c1"}),
        make.tool_result([{"tool_call_id": "c1", "content": "noted", "elapsed_ms": 3}]),
        make.message("assistant", "done"),
        make.event("loop.step", {**STEP, "answered": "large", "cost": None}),
        make.event("turn/end", {"status": "answered"}),
    )
    turn = TurnRecord.of(entries)
    assert (turn.status, [entry.id for entry in turn.asked]) == ("answered", [2])
    assert turn.answer is not None
    assert turn.answer.id == 7
    first, second = turn.steps
    (call,) = first.calls
    assert (first.wrote, call.name, call.entry, call.result_entry, call.elapsed_ms) == (entries[2], "note", 3, 6, 3)
    assert [fact.id for fact in call.facts] == [5]
    assert (first.model, second.model, first.cost, second.cost, turn.cost) == ("small", "large", 0.5, None, 0.5)
    assert (turn.input_tokens, turn.output_tokens) == (14, 4)


def test_equal_ids_of_calls_in_a_sub_task_are_told_apart() -> None:
    entries = numbered(
        make.tool_call([CALL]),
        make.event("loop.step", STEP),
        make.tool_call([CALL], fork="f", origin="agent:scout"),
        make.event("loop.step", STEP, fork="f", origin="agent:scout"),
        make.tool_result([{"tool_call_id": "c1", "content": "inner", "is_error": True}], fork="f"),
        make.tool_result([{"tool_call_id": "c1", "content": "outer"}]),
    )
    turn = TurnRecord.of(entries)
    assert [step.calls[0].result_entry for step in turn.steps] == [6, 5]
    assert [step.calls[0].is_error for step in turn.steps] == [False, True]
    assert [step.label for step in turn.steps] == ["", "agent:scout"]
    assert [step.id for step in turn.answering_steps] == [2]


@pytest.mark.parametrize("data", [{}, {"status": 5}, {"status": "answered"}], ids=str)
async def test_an_end_that_cannot_be_read_is_not_the_end_of_a_turn(data: dict[str, Any]) -> None:
    tape = TapeService(InMemoryStore(), "t", now=SteppingClock(), new_id=CountingIds())
    await tape.append([make.event("turn/start", {}, turn="x"), make.event("turn/end", data, turn="x")])
    ended = LastTurn("x", "answered", (1, 2)) if data.get("status") == "answered" else None
    assert await tape.read(LastTurnView()) == ended


def test_what_has_another_form_counts_as_missing() -> None:
    odd = TapeEntry(Kind.TOOL_CALL, {"calls": ["?", {"id": 4}, {"id": "x", "function": {"arguments": {"a": 1}}}]})
    assert [(call.id, call.name, call.arguments) for call in read_calls(odd)] == [("", "", ""), ("x", "", '{"a":1}')]
    turn = TurnRecord.of(
        numbered(
            odd,
            make.event("loop.step", {"usage": "much", "step": "one", "attempts": 3}),
            TapeEntry(Kind.TOOL_RESULT, {"results": "none"}),
            TapeEntry(Kind.EVENT, {"name": "loop.step", "data": []}),
            TapeEntry(Kind.EVENT, {"name": "turn/interrupted"}),
        )
    )
    (step,) = turn.steps
    assert (step.number, step.input_tokens, step.cost, step.failed_attempts) == (0, 0, None, ())
    assert (turn.status, turn.answer, turn.id) == ("interrupted", None, "")


def test_the_steps_of_a_discarded_fork_name_nothing_of_it() -> None:
    step = make.event("loop.step", {**STEP, "head": 9, "system": "a", "messages": "b", "view": {"selector": "full"}})
    (left,) = discarded_steps([make.message("user", "x"), step], "replay")
    assert left.data == {**STEP, "view": {}, "head": 0, "as_of": (), "shown": (), "purpose": "replay"}
