"""The entries of a turn, from any of them."""

from __future__ import annotations

import pytest

from bubbot.errors import EntryNotFound
from bubbot.features.trace.turn import TurnSpan, find_turn
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import TapeEntry, event, message
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, SteppingClock


def start(turn: str) -> TapeEntry:
    return event("turn/start", {}, turn=turn)


async def test_a_turn_goes_on_to_its_end_to_the_next_start_or_to_the_end_of_the_tape() -> None:
    tape = TapeService(InMemoryStore(), "tape", now=SteppingClock(), new_id=CountingIds())
    await tape.append([message("user", "a"), start("cut"), message("user", "b"), start("done"), message("user", "c")])
    await tape.append([event("turn/end", {}), message("user", "d"), start("runs"), message("user", "e")])
    cut, done = TurnSpan("cut", 2, 3, is_open=True), TurnSpan("done", 4, 6)
    runs = TurnSpan("runs", 8, 9, is_open=True)
    assert [await find_turn(tape, str(number)) for number in (2, 3, 4, 5, 6, 8, 9)] == [
        cut,
        cut,
        done,
        done,
        done,
        runs,
        runs,
    ]
    assert [await find_turn(tape, name) for name in ("cut", "do", "r")] == [cut, done, runs]
    for wrong in ("1", "7", "10", "0", "other", ""):
        with pytest.raises(EntryNotFound):
            await find_turn(tape, wrong)
