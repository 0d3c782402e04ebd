"""What entries make of JSON values: an immutable copy with the same bytes, and an error for everything else."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bubbot.errors import EntryInvalid
from bubbot.tape.entry import PackedObject, TapeEntry, canonical, encode, freeze, thaw

TEXTS = st.text(max_size=6)  # has no lone surrogates
LEAVES = (
    TEXTS
    | st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, -(2**64), 10**30, 1e16, 1e-7, 1.5e300, -0.0, 5e-324])
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.dictionaries(
    TEXTS,
    st.recursive(
        LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=12
    ),
    max_size=4,
)
NO_JSON = st.sampled_from(
    [float("nan"), float("-inf"), "\ud800", "a\udc00", b"a", {1}, object(), {1: 2}, {"\udfff": 1}]
)


@given(VALUES)
def test_a_frozen_value_has_the_bytes_of_the_plain_one(value: dict[str, Any]) -> None:
    frozen = freeze(value)
    assert thaw(frozen) == value
    assert encode(frozen) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert canonical(frozen) == json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    assert _is_immutable(frozen)


@given(VALUES, NO_JSON, st.data())
def test_a_value_that_is_not_json_is_refused_wherever_it_stands(
    value: dict[str, Any], bad: object, data: st.DataObject
) -> None:
    place: Any = value
    while inner := [item for item in _items(place) if isinstance(item, (dict, list))]:
        if data.draw(st.booleans()):
            break
        place = data.draw(st.sampled_from(inner))
    if isinstance(place, list):
        place.append(bad)
    else:
        place["bad"] = bad
    with pytest.raises(EntryInvalid):
        freeze(value)


@given(VALUES, VALUES, VALUES)
def test_the_texts_of_a_stamped_entry_are_those_of_its_values(
    payload: dict[str, Any], own: dict[str, Any], stamp: dict[str, Any]
) -> None:
    entry = TapeEntry("message", payload, own).stamped(freeze(stamp), encode(stamp), "", 7).with_id(8)
    merged = {**stamp, **own}
    assert thaw(entry.meta) == merged
    assert entry.texts == (_dumps(payload), _dumps(merged))
    assert entry.take_texts() == (_dumps(payload), _dumps(merged))
    assert entry.cache == {}, "a stored entry keeps no texts"
    assert entry.take_texts() == (_dumps(payload), _dumps(merged))


@given(VALUES, VALUES)
def test_a_packed_event_reads_the_same(data: dict[str, Any], meta: dict[str, Any]) -> None:
    assume(len(encode(data)) < 400)  # little is not packed
    for filling, is_packed in (("x" * 600, True), ("", False)):
        payload = {"name": "loop.step", "data": data, "filling": filling}
        entry, twin = TapeEntry("event", payload, meta, id=7), TapeEntry("event", payload, meta, id=7)
        texts = entry.take_texts()
        for _ in range(2):
            entry.pack()
            assert (type(entry.payload) is PackedObject) is is_packed
            assert entry.cache == {}
            assert entry == twin
            assert twin == entry
            assert repr(entry) == repr(twin)
            assert (len(entry.payload), list(entry.payload)) == (len(twin.payload), list(twin.payload))
            assert (thaw(entry.payload), thaw(entry.meta)) == (payload, meta)
            assert all(map(_is_immutable, entry.payload.values()))
            assert entry.texts == texts
            assert entry.with_id(8).payload == twin.payload


def _dumps(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _items(value: dict[str, Any] | list[Any]) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else list(value)


def _is_immutable(value: object) -> bool:
    if isinstance(value, MappingProxyType):
        return all(map(_is_immutable, value.values()))
    return all(map(_is_immutable, value)) if isinstance(value, tuple) else not isinstance(value, (dict, list))
