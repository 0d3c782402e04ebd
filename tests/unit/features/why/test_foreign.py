"""Which entries made the words of a turn foreign."""

from __future__ import annotations

from bubbot.shell_command import CommandContext
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import event, message
from bubbot.tape.service import TapeService
from tests.callers import run_shell
from tests.doubles import CountingIds, SteppingClock


async def test_words_from_outside_come_first_and_those_of_other_tapes_are_named_without_being_read(
    memory_store: InMemoryStore, clock: SteppingClock, ids: CountingIds
) -> None:
    tape = TapeService(memory_store, "w__chat", now=clock, new_id=ids)
    foreign = {"people": [["w__chat", 2], ["notes", 2], ["odd"]], "world": [["notes", 4], ["w__chat", 9]]}
    turn = [
        event("turn/start", {}),
        message("user", "hi", sender={"id": "5", "name": "Ann"}),
        event("loop.step", {"step": 1, "status": "ok", "foreign": foreign}),
        event("turn/end", {"status": "answered"}),
    ]
    await tape.append([entry.with_meta({"turn": "a"}, "") for entry in turn])
    told = await run_shell("why", CommandContext(memory_store, "w", clock, ids), session=tape.name)
    assert told.data is not None
    assert list(told.data["foreign"]) == [
        {"entry": 9, "source": "world", "tape": "", "kind": "", "author": ""},
        {"entry": 4, "source": "world", "tape": "notes", "kind": "", "author": ""},
        {"entry": 2, "source": "people", "tape": "", "kind": "message", "author": "Ann (#5)"},
        {"entry": 2, "source": "people", "tape": "notes", "kind": "", "author": ""},
    ]
