"""The entries of a turn, from any of them."""

from __future__ import annotations

import re

import pytest

from bubbot.errors import EntryNotFound
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import TapeEntry, event, message
from bubbot.tape.store import Batch
from tests.unit.features.trace.test_pages import look, pages_of


def start(turn: str) -> TapeEntry:
    return event("turn/start", {}, turn=turn)


async def test_a_turn_goes_on_to_its_end_to_the_next_start_or_to_the_end_of_the_tape(
    memory_store: InMemoryStore,
) -> None:
    said = [message("user", letter) for letter in "abcde"]
    cut = [start("cut"), said[1]]
    done = [start("done"), said[2], event("turn/end", {}, turn="done")]
    runs = [start("runs"), said[4]]
    await memory_store.append([Batch("talk", (said[0], *cut, *done, said[3], *runs))])
    pages = pages_of(memory_store)

    async def entries(turn: object) -> str:
        return " ".join(re.findall(r"Entries</dt><dd>([^<]*)<", await look(pages, f"/session/talk/turn/{turn}")))

    assert [await entries(number) for number in (2, 3, 4, 5, 6, 8, 9)] == [
        *["2–3"] * 2,
        *["4–6"] * 3,
        *["8–9"] * 2,
    ]
    assert [await entries(name) for name in ("cut", "do", "r")] == ["2–3", "4–6", "8–9"]
    for wrong in ("1", "7", "10", "0", "other"):
        with pytest.raises(EntryNotFound):
            await entries(wrong)
