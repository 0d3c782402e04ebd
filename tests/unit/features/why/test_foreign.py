"""Which entries made the words of a turn foreign."""

from __future__ import annotations

from bubbot.features.why.foreign import ForeignEntry, read_foreign
from bubbot.runtime.turns import TurnRecord
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import event, message
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, SteppingClock


async def test_words_from_outside_come_first_and_those_of_other_tapes_are_named_without_being_read(
    memory_store: InMemoryStore, clock: SteppingClock, ids: CountingIds
) -> None:
    tape = TapeService(memory_store, "chat", now=clock, new_id=ids)
    foreign = {"people": [["chat", 1], ["notes", 2], ["odd"]], "world": [["notes", 4], ["chat", 9]]}
    entries = await tape.append(
        [
            message("user", "hi", sender={"id": "5", "name": "Ann"}),
            event("loop.step", {"status": "ok", "foreign": foreign}),
        ]
    )
    assert await read_foreign(tape, TurnRecord.of(entries)) == (
        ForeignEntry(9, "world"),
        ForeignEntry(4, "world", "notes"),
        ForeignEntry(1, "people", kind="message", author="Ann (#5)"),
        ForeignEntry(2, "people", "notes"),
    )
