"""What every tape store promises about content: it comes back equal, or is refused with the place named."""

from __future__ import annotations

from typing import Any

import pytest

from bubbot.errors import EntryInvalid, EntryNotFound
from bubbot.tape.blobs import blob_digest
from bubbot.tape.entry import TapeEntry, canonical, thaw
from bubbot.tape.query import TapeQuery
from bubbot.tape.store import TapeStore
from tests.tapes import batch, note, texts, whole

PAYLOADS: dict[str, dict[str, Any]] = {
    "empty": {},
    "emoji": {"content": "👩‍👩‍👧‍👦 🇯🇵 e\u0301 \u200d\ufeff"},
    "cjk": {"content": "漢字とかな 한국어", "鍵": "値"},
    "nested": {"a": [{"b": [[], {}, [[["deep"]]]]}], "c": {"d": {"e": {}}}},
    "null": {"a": None, "b": [None, {"c": None}]},
    "big integers": {"n": 2**200, "m": -(2**63) - 1, "o": 2**53 + 1},
    "floats": {"n": [0.1, -0.0, 1e-300, 1.7976931348623157e308, 5e-324, 3.0]},
    "numbers of two kinds": {"n": [1, 1.0, True, 0, 0.0, False]},
    "nul characters": {"a\x00b": "\x00", "content": "before\x00after"},
    "controls and quotes": {"content": "\x01\x1f\x7f\u2028\u2029\\\"'`\r\n\t"},
    "odd keys": {"": 1, " ": 2, "payload.a[0]": 3, "$": 4},
    "long": {"content": "x" * 200_000},
}


@pytest.mark.law("T15", "T18")
@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
async def test_a_payload_comes_back_equal(store: TapeStore, payload: dict[str, Any]) -> None:
    await store.append([batch(TapeEntry("event", payload, meta=payload))])
    (found,) = await whole(store)
    assert (canonical(found.payload), canonical(found.meta)) == (canonical(payload), canonical(payload))
    assert (thaw(found.payload), list(found.payload)) == (payload, list(payload))


@pytest.mark.law("T15")
async def test_keys_kinds_dates_and_names_of_tapes_may_hold_any_text(store: TapeStore) -> None:
    odd = "a\x00b 漢字 👍 ' \" %_"
    stored = (await store.append([batch(TapeEntry(odd, {"name": odd}, date=odd, key=odd), tape=odd)]))[0]
    assert await store.fetch([TapeQuery(odd, kinds=(odd,), keys=(odd,))]) == [stored]


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": ["ok", {"b": "\ud800"}]}, r"payload\.a\[1\]\.b holds a lone surrogate at character 0"),
        ({"\udfff": 1}, "a key of payload holds a lone surrogate"),
        ({"n": [0, float("nan")]}, r"payload\.n\[1\] is nan"),
        ({"n": float("-inf")}, r"payload\.n is -inf"),
        ({1: "a"}, "payload has the key 1"),
        ({"a": {"b": b"bytes"}}, r"payload\.a\.b is a bytes"),
        ({"a": {1, 2}}, r"payload\.a is a set"),
        ({"a": [object()]}, r"payload\.a\[0\] is a object"),
    ],
)
@pytest.mark.law("T18")
def test_what_is_not_json_is_refused_and_its_place_named(value: dict[str, Any], place: str) -> None:
    with pytest.raises(EntryInvalid, match=place):
        TapeEntry("event", value)


def test_the_place_of_what_is_refused_in_meta_is_named_too() -> None:
    with pytest.raises(EntryInvalid, match=r"meta\.sender\[0\]"):
        TapeEntry("event", {}, {"sender": ["\ud83d"]})


@pytest.mark.law("T1")
async def test_what_the_caller_does_to_its_objects_does_not_change_the_entry(store: TapeStore) -> None:
    content: list[Any] = [{"type": "text"}]
    payload: dict[str, Any] = {"content": content}
    meta: dict[str, Any] = {"tags": ["a"]}
    entry = TapeEntry("message", payload, meta)
    content[0]["type"] = "changed"
    await store.append([batch(entry)])
    content.append("more")
    payload["new"] = 1
    meta["tags"].clear()
    (found,) = await whole(store)
    assert thaw(found.payload) == {"content": [{"type": "text"}]}
    assert thaw(found.meta) == {"tags": ["a"]}


async def test_an_append_leaves_the_caller_with_the_entry_it_had(store: TapeStore) -> None:
    payload = {"content": ["a", {"b": None}]}
    entry = TapeEntry("message", payload, key="k")
    await store.append([batch(entry)])
    assert payload == {"content": ["a", {"b": None}]}
    assert entry == TapeEntry("message", payload, key="k")


@pytest.mark.law("T1")
async def test_a_fetched_entry_cannot_be_changed(store: TapeStore) -> None:
    await store.append([batch(TapeEntry("message", {"a": {"b": [1]}}))])
    (found,) = await whole(store)
    with pytest.raises(TypeError):
        found.payload["a"]["b"] = 2
    with pytest.raises(TypeError):
        found.payload["a"]["b"][0] = 2


@pytest.mark.law("T15")
async def test_unknown_kinds_and_fields_survive_untouched(store: TapeStore) -> None:
    entry = TapeEntry("hologram", {"name": "x", "from": {"the": ["future"]}}, {"new_field": {"v": 9}}, "not a date")
    await store.append([batch(entry)])
    assert await whole(store) == (entry.with_id(1),)


@pytest.mark.law("T15")
async def test_an_anchor_without_a_usable_name_survives(store: TapeStore) -> None:
    entries = [TapeEntry("anchor", payload) for payload in ({}, {"name": None}, {"name": ["a"]}, {"name": ""})]
    await store.append([batch(*entries)])
    assert [thaw(entry.payload) for entry in await whole(store)] == [thaw(entry.payload) for entry in entries]


async def test_a_blob_comes_back_by_its_digest(store: TapeStore) -> None:
    data = bytes(range(256)) * 300
    digest = await store.put_blob("tape", data)
    assert digest == blob_digest(data)
    assert await store.get_blob("tape", digest) == data


async def test_an_empty_blob_is_a_blob(store: TapeStore) -> None:
    assert await store.get_blob("tape", await store.put_blob("tape", b"")) == b""


async def test_a_blob_put_twice_has_one_name(store: TapeStore) -> None:
    assert await store.put_blob("tape", b"x") == await store.put_blob("tape", b"x")


async def test_a_blob_belongs_to_its_tape(store: TapeStore) -> None:
    digest = await store.put_blob("one", b"x")
    await store.append([batch(note("a"), tape="two")])
    for other in ("two", "nowhere"):
        with pytest.raises(EntryNotFound, match=digest):
            await store.get_blob(other, digest)


async def test_a_blob_is_no_entry(store: TapeStore) -> None:
    await store.put_blob("tape", b"x")
    assert (await store.head("tape"), await texts(store)) == (0, [])
