"""One fact: frozen at construction, compared by content."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import pytest

from bubbot.errors import EntryInvalid
from bubbot.tape import entry as make
from bubbot.tape.entry import Kind, TapeEntry, canonical, encode, freeze, thaw, timestamp


def test_freezing_makes_tuples_and_read_only_mappings_all_the_way_down() -> None:
    frozen = freeze({"a": [{"b": [1]}]})
    assert isinstance(frozen, MappingProxyType)
    assert isinstance(frozen["a"], tuple)
    assert isinstance(frozen["a"][0], MappingProxyType)
    assert isinstance(frozen["a"][0]["b"], tuple)


def test_a_frozen_value_does_not_change_with_the_original() -> None:
    inner: dict[str, Any] = {"b": 1}
    frozen = freeze({"a": inner})
    inner["b"] = 2
    assert frozen["a"]["b"] == 1


@pytest.mark.parametrize("value", [None, True, 0, -1.5, "", "text", [], {}, [[{}]], {"a": {"b": [None]}}])
def test_thawing_undoes_freezing(value: object) -> None:
    assert thaw(freeze(value)) == value


def test_thawed_values_can_be_changed_without_changing_the_frozen() -> None:
    frozen = freeze({"a": [1]})
    thaw(frozen)["a"].append(2)
    assert frozen["a"] == (1,)


def test_a_text_of_a_class_of_its_own_becomes_plain_text() -> None:
    class Colour(StrEnum):
        RED = "red"

    assert type(freeze(Colour.RED)) is str


@pytest.mark.parametrize("value", [b"x", {1}, object(), len, float("nan"), float("inf"), "\udc80", 1j, range(2)])
def test_what_is_not_json_cannot_be_frozen(value: object) -> None:
    with pytest.raises(EntryInvalid, match="there"):
        freeze(value, "there")


def test_an_entry_cannot_be_changed() -> None:
    entry = make.message("user", "a")
    with pytest.raises(FrozenInstanceError):
        entry.kind = "other"  # type: ignore[misc]  # that is the point
    with pytest.raises(TypeError):
        entry.payload["content"] = "b"  # type: ignore[index]  # that is the point


@pytest.mark.parametrize("field", ["kind", "key"])
def test_kind_and_key_are_valid_text(field: str) -> None:
    fields: dict[str, Any] = {"kind": "message", "key": "k", field: "\ud800"}
    with pytest.raises(EntryInvalid, match=f"{field} holds a lone surrogate"):
        TapeEntry(payload={}, **fields)


def test_encoding_is_compact_and_keeps_the_order_of_keys() -> None:
    assert encode(freeze({"b": [1, {"z": None, "a": "漢"}], "a": 1.0})) == '{"b":[1,{"z":null,"a":"漢"}],"a":1.0}'


def test_encoded_text_reads_back_equal() -> None:
    value = {"n": [2**80, 0.1, -0.0, 1e-300], "t": '\x00\u2028"\\', "deep": [[[{}]]]}
    assert json.loads(encode(freeze(value))) == value


def test_the_canonical_text_does_not_depend_on_the_order_of_keys() -> None:
    assert canonical({"a": 1, "b": {"c": 2, "d": 3}}) == canonical({"b": {"d": 3, "c": 2}, "a": 1})


@pytest.mark.parametrize(
    ("one", "other"), [(1, 1.0), (1, True), (0, False), (0.0, -0.0), ("1", 1), ([], {}), (None, "")]
)
def test_the_canonical_text_tells_apart_what_python_calls_equal(one: object, other: object) -> None:
    assert canonical({"a": one}) != canonical({"a": other})


def test_only_events_have_data_and_only_an_object_is() -> None:
    assert make.event("note", {"a": [1]}).data == {"a": (1,)}
    assert TapeEntry("event", {"name": "note", "data": ["a"]}).data == {}
    assert TapeEntry("event", {"name": "note"}).data == {}
    assert TapeEntry("anchor", {"name": "note", "data": {"a": 1}}).data == {}


def test_same_content_is_kind_and_payload_and_never_meta_date_key_or_id() -> None:
    entry = TapeEntry("message", {"a": [1, {"b": 2}]}, {"m": 1}, "2026-11-21", "k", 7)
    assert entry.same_content(TapeEntry("message", {"a": [1, {"b": 2}]}))
    assert not entry.same_content(replace(entry, kind="system"))
    assert not entry.same_content(replace(entry, payload={"a": [1, {"b": 2.0}]}))


def test_a_timestamp_is_utc_with_microseconds_so_that_texts_sort_as_times() -> None:
    moments = [
        datetime(2026, 11, 21, 20, 21, tzinfo=UTC),
        datetime(2026, 11, 21, 15, 21, 0, 1, tzinfo=timezone(timedelta(hours=-5))),
        datetime(2026, 11, 22, 9, 30, tzinfo=timezone(timedelta(hours=9))),
    ]
    texts = [timestamp(moment) for moment in moments]
    assert texts[0] == "2026-11-21T20:21:00.000000+00:00"
    assert sorted(texts) == [texts[moments.index(moment)] for moment in sorted(moments)]


@pytest.mark.parametrize(
    ("kind", "payload", "name"),
    [
        ("anchor", {"name": "a"}, "a"),
        ("event", {"name": "a"}, "a"),
        ("message", {"name": "a"}, None),
        ("anchor", {}, None),
        ("event", {"name": 7}, None),
        ("anchor", {"name": ""}, ""),
    ],
)
def test_only_anchors_and_events_have_a_name(kind: str, payload: dict[str, Any], name: str | None) -> None:
    assert TapeEntry(kind, payload).name == name


@pytest.mark.law("T11")
@pytest.mark.parametrize(
    ("kind", "payload", "opens"),
    [
        ("anchor", {"name": "a"}, True),
        ("anchor", {"name": "a", "window": True}, True),
        ("anchor", {"name": "a", "window": None}, True),
        ("anchor", {"name": "a", "window": 0}, True),
        ("anchor", {"name": "a", "window": False}, False),
        ("anchor", {"name": "memory/seal"}, False),
        ("anchor", {"name": "memory/open", "window": True}, False),
        ("anchor", {"name": "memory"}, True),
        ("anchor", {}, True),
        ("event", {"name": "a"}, False),
        ("message", {}, False),
    ],
)
def test_an_anchor_opens_a_window_unless_it_says_false_or_is_memory(
    kind: str, payload: dict[str, Any], opens: bool
) -> None:
    assert TapeEntry(kind, payload).opens_window is opens


def test_the_text_of_an_entry_is_every_string_value_a_line_each() -> None:
    payload = {"role": "user", "content": [{"text": "a"}, "b"], "n": 7, "deep": {"x": [["c"]]}, "none": None}
    assert TapeEntry("message", payload).all_text() == "user\na\nb\nc"


def test_the_builders_make_the_payloads_of_the_format() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    built = {
        "message": make.message("user", "hi", turn=1),
        "tool_call": make.tool_call([call], text="wait"),
        "tool_result": make.tool_result([{"tool_call_id": "c1", "content": "ok"}]),
        "event": make.event("turn/start", {"n": 1}, key="k", turn=1),
        "system": make.system("be kind"),
        "error": make.error("tool", "it broke", at=2),
    }
    assert {kind: (entry.kind, thaw(entry.payload)) for kind, entry in built.items()} == {
        "message": ("message", {"role": "user", "content": "hi"}),
        "tool_call": ("tool_call", {"calls": [call], "content": "wait"}),
        "tool_result": ("tool_result", {"results": [{"tool_call_id": "c1", "content": "ok"}]}),
        "event": ("event", {"name": "turn/start", "data": {"n": 1}}),
        "system": ("system", {"content": "be kind"}),
        "error": ("error", {"kind": "tool", "message": "it broke", "at": 2}),
    }
    assert (built["event"].key, thaw(built["event"].meta), thaw(built["message"].meta)) == (
        "k",
        {"turn": 1},
        {"turn": 1},
    )


def test_a_tool_call_without_text_has_no_content() -> None:
    assert "content" not in make.tool_call([]).payload


def test_the_kinds_are_the_seven_of_the_format() -> None:
    assert [str(kind) for kind in Kind] == ["message", "tool_call", "tool_result", "anchor", "event", "system", "error"]
