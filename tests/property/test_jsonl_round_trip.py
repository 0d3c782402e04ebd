"""Export and import are each other's inverse, and no byte of an exported line can change unnoticed and do harm."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.jsonl import JsonLineWriter, read_lines, to_bub
from bubbot.stores.sqlite.store import open_store
from bubbot.tape.entry import EMPTY_OBJECT, TapeEntry
from bubbot.tape.store import Batch, TapeStore
from tests.doubles import CountingSalt, SteppingClock
from tests.property.strategies import entries, exactly, json_values, keyed_apart
from tests.tapes import whole

metas = st.dictionaries(st.sampled_from(["turn", "origin", "imported_id", "ü"]), json_values, max_size=2)


@st.composite
def tapes(draw: st.DrawFn) -> list[TapeEntry]:
    """A tape as a store holds it, with ids, keys, meta and erased entries."""
    found = draw(st.lists(entries(st.none()), max_size=12))
    made = [replace(entry, meta=draw(metas), id=place) for place, entry in enumerate(keyed_apart(found), 1)]
    gone = draw(st.sets(st.integers(1, 12), max_size=3))
    return [
        replace(one, payload=EMPTY_OBJECT, meta=EMPTY_OBJECT, erased=True) if one.id in gone else one for one in made
    ]


def exported(tape: Sequence[TapeEntry]) -> list[bytes]:
    writer = JsonLineWriter()
    return [writer.encode_line(entry) for entry in tape]


def as_facts(tape: Sequence[TapeEntry]) -> list[tuple[object, ...]]:
    """Entries for comparison; of an erased one id, kind, date and key count, and that it was erased."""
    told = exactly(
        [replace(one, payload=EMPTY_OBJECT, meta=EMPTY_OBJECT, erased=True) if _erased(one) else one for one in tape]
    )
    assert len(told) == len(tape)
    return told


def _erased(entry: TapeEntry) -> bool:
    return entry.erased or entry.meta.get("imported_erased") is True


async def _through(store: TapeStore, raw: Sequence[bytes]) -> tuple[TapeEntry, ...]:
    """Imports the lines into an empty tape and reads it back."""
    found = read_lines(raw)
    assert not found.problems
    assert not found.renumbered
    await store.append([Batch("tape", found.entries, expect_head=0)])
    return await whole(store)


@given(tapes())
def test_export_and_import_in_memory_give_the_same_tape_and_the_same_file(tape: list[TapeEntry]) -> None:
    raw = exported(tape)
    stored = asyncio.run(_through(InMemoryStore(), raw))
    assert as_facts(stored) == as_facts(tape)
    assert exported(stored) == raw


@given(tapes())
def test_a_file_for_bub_gives_the_same_tape(tape: list[TapeEntry]) -> None:
    raw = exported([to_bub(entry) for entry in tape])
    assert exported(asyncio.run(_through(InMemoryStore(), raw))) == exported(tape)


@given(st.lists(tapes(), min_size=1, max_size=8))
def test_export_and_import_in_sqlite_give_the_same_tape_and_the_same_file(
    new_database: Path, several: list[list[TapeEntry]]
) -> None:
    async def run(folder: Path) -> None:
        store = await open_store(
            Path(shutil.copy(new_database, folder)), salt=CountingSalt(), now=SteppingClock()
        )  # one database for a few tapes
        try:
            for place, tape in enumerate(several):
                raw = exported(tape)
                found = read_lines(raw)
                await store.append([Batch(f"tape{place}", found.entries, expect_head=0)])
                stored = await whole(store, f"tape{place}")
                assert as_facts(stored) == as_facts(tape)
                assert exported(stored) == raw
        finally:
            await store.aclose()

    with TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


@given(tapes().filter(bool), st.data())
def test_any_altered_byte_is_found_or_changes_nothing(tape: list[TapeEntry], data: st.DataObject) -> None:
    """Harmless is what gives the same entries: white space, or another spelling of the same value."""
    raw = bytearray(b"".join(exported(tape)))
    for _ in range(20):
        place = data.draw(st.integers(0, len(raw) - 1))
        before, raw[place] = raw[place], data.draw(st.integers(0, 255))
        found = read_lines(BytesIO(raw))
        assert found.problems or as_facts(found.entries) == as_facts(tape)
        raw[place] = before


def test_every_single_flipped_bit_of_a_short_file_is_found_or_changes_nothing() -> None:
    tape = [
        TapeEntry("message", {"role": "user", "content": "Grüße"}, {"turn": "t"}, "2026-11-21T20:21:00+00:00", id=1),
        TapeEntry("event", {"name": "x", "data": {"n": 1.50, "deep": [True, None]}}, key="k", id=2),
        TapeEntry("anchor", EMPTY_OBJECT, id=3, erased=True),
    ]
    whole_file = bytearray(b"".join(exported(tape)))
    harmless = 0
    for place in range(len(whole_file)):
        for bit in range(8):
            raw = whole_file.copy()
            raw[place] ^= 1 << bit
            found = read_lines(BytesIO(raw))
            harmless += not found.problems
            assert found.problems or as_facts(found.entries) == as_facts(tape), (place, bit, raw)
    assert harmless < 10, "what is harmless is rare: a line feed at the end of the file that became a space"


@given(tapes().filter(bool), st.data())
def test_any_cut_within_a_line_is_found(tape: list[TapeEntry], data: st.DataObject) -> None:
    raw = b"".join(exported(tape))
    ends = {place + 1 for place, byte in enumerate(raw) if byte == 10}
    cut = data.draw(st.integers(1, len(raw) - 1).filter(lambda place: place not in ends and place + 1 not in ends))
    assert read_lines(BytesIO(raw[:cut])).problems


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_no_bytes_raise(raw: bytes) -> None:
    lines = [*exported([TapeEntry("message", {"content": "a"}, id=1)]), *BytesIO(raw)]
    found = read_lines(lines)
    assert len(found.entries) >= 1
