"""Tapes as JSON lines: what a line is, what is refused, and what a repair keeps."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from bubbot.features.memory.views import MemoryView
from bubbot.runtime.context.pairing import pair_calls
from bubbot.stores.jsonl import JsonLineWriter, line_hash, read_lines, to_bub
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, event, message

NO_HASH = "0000000000000000000000000000000000000000000000000000000000000000"


BUB = Path(__file__).parents[2] / "data" / "bub"


def lines(*entries: TapeEntry) -> list[bytes]:
    writer = JsonLineWriter()
    return [writer.encode_line(entry.with_id(place)) for place, entry in enumerate(entries, 1)]


def bub(name: str) -> list[bytes]:
    return (BUB / f"{name}.jsonl").read_bytes().splitlines(keepends=True)


def reasons(raw: list[bytes]) -> list[tuple[int, str]]:
    return [(one.number, one.reason) for one in read_lines(raw).problems]


THREE = lines(message("user", "Grüße\n"), event("x", {"n": 1.0}, key="k"), anchor("phase/a"))


def test_a_line_is_the_entry_with_the_hash_of_everything_before_it() -> None:
    first, second, _ = (json.loads(line) for line in THREE)
    assert list(second) == ["id", "kind", "payload", "meta", "date", "key", "hash"]
    assert first["hash"] == line_hash(NO_HASH, first)
    assert second["hash"] == line_hash(first["hash"], second)
    assert "Grüße\\n".encode() in THREE[0]


def test_a_hash_can_be_computed_from_the_description_in_the_reference() -> None:
    data = json.loads(THREE[0])
    given = data.pop("hash")
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    assert given == sha256((NO_HASH + "\n" + text).encode()).hexdigest()


def test_what_was_written_is_read() -> None:
    found = read_lines(THREE)
    assert not found.problems
    assert (found.renumbered, found.erased, found.unhashed) == (0, 0, 0)
    assert lines(*found.entries) == THREE


def bubs_window(raw: list[bytes]) -> list[object]:
    """What Bub shows its model of: the payloads after the newest anchor, whatever that is called."""
    found = [json.loads(line) for line in raw]
    last = max(one["id"] for one in found if one["kind"] == "anchor")
    return [one["payload"] for one in found if one["id"] > last]


def test_in_a_file_for_bub_anchors_that_open_no_window_empty_none_there_and_come_back_as_anchors() -> None:
    tape = (
        anchor("session/start"), message("user", "hello"), anchor("memory/open", {"version": 1}, window=False),
        TapeEntry("anchor", {"name": "memory/seal", "state": {"version": 1}}), anchor("task/a", window=False),
    )  # fmt: skip
    numbered = [one.with_id(place) for place, one in enumerate(tape, 1)]
    plain, writer = lines(*tape), JsonLineWriter()
    raw = [writer.encode_line(to_bub(one)) for one in numbered]
    assert {"role": "user", "content": "hello"} not in bubs_window(plain)
    assert bubs_window(raw)[0] == {"role": "user", "content": "hello"}
    found = read_lines(raw)
    assert (found.problems, found.renumbered, found.unhashed) == ((), 0, 0)
    assert lines(*found.entries) == plain


@pytest.mark.parametrize("data", [{"name": "phase/a"}, {"name": "tape/anchor", "n": 1}, {}])
def test_an_event_that_stands_for_no_such_anchor_stays_an_event(data: dict[str, object]) -> None:
    raw = lines(event("tape/anchor", data))
    assert lines(*read_lines(raw).entries) == raw


def test_an_erased_entry_stays_a_fact_without_content_and_opens_no_window() -> None:
    gone = replace(anchor("phase/secret"), payload={}, erased=True, date="2026-11-21", key="k")
    raw = lines(message("user", "hi"), gone)
    assert json.loads(raw[1]) == {
        "id": 2, "kind": "anchor", "date": "2026-11-21", "erased": True, "key": "k", "hash": json.loads(raw[1])["hash"],
    }  # fmt: skip
    found = read_lines(raw)
    assert found.erased == 1
    assert not found.entries[1].opens_window
    assert found.entries[1].meta == {"imported_erased": True}
    assert lines(*found.entries) == raw


def test_meta_that_only_says_it_was_erased_does_not_take_content_out_of_an_export() -> None:
    raw = lines(TapeEntry("message", {"role": "user", "content": "still here"}, {"imported_erased": True}))
    assert b"still here" in raw[0]
    assert not read_lines(raw).problems


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [("Grüße", "Grüsse", 1), ('"id":2', '"id":4', 2), ('"kind":"event"', '"kind":"error"', 2), ('"n":1.0', '"n":1', 2)],
)
def test_an_altered_line_is_found_and_no_other_is_blamed(old: str, new: str, line: int) -> None:
    altered = b"".join(THREE).replace(old.encode(), new.encode(), 1).splitlines(keepends=True)
    assert altered != THREE
    assert [number for number, _ in reasons(altered)] == [line]


def test_an_altered_hash_is_found_and_the_next_line_still_holds() -> None:
    digit = json.loads(THREE[1])["hash"][0]
    altered = [THREE[0], THREE[1].replace(f'"hash":"{digit}'.encode(), b'"hash":"' + (b"0" if digit != "0" else b"1"))]
    assert [number for number, _ in reasons([*altered, THREE[2]])] == [2]


def test_a_missing_line_and_two_that_changed_places_are_found() -> None:
    assert [number for number, _ in reasons([THREE[0], THREE[2]])] == [2]
    assert [number for number, _ in reasons([THREE[1], THREE[2]])] == [1]
    assert reasons([THREE[0], THREE[2], THREE[1]])


def test_a_hash_that_is_gone_or_renamed_is_found() -> None:
    plain = json.loads(THREE[0])
    del plain["hash"]
    bare = json.dumps(plain).encode()
    assert reasons([bare, THREE[1]])[0][0] == 2
    assert reasons([THREE[0], THREE[1].replace(b'"hash"', b'"hush"')])[0][0] == 2
    assert reasons([THREE[0].replace(b'"hash"', b'"hush"')])[0][0] == 1


def test_white_space_order_of_names_a_byte_order_mark_and_line_ends_of_windows_do_no_harm() -> None:
    changed = [json.dumps(dict(reversed(json.loads(line).items())), indent=None).encode() + b"\r\n" for line in THREE]
    found = read_lines([b"\xef\xbb\xbf" + changed[0], b"\r\n", *changed[1:]])
    assert not found.problems
    assert lines(*found.entries) == THREE


def test_a_tape_of_february_without_dates_is_read_and_its_results_pair_by_place() -> None:
    found = read_lines(bub("2026-02"))
    assert not found.problems
    assert (found.renumbered, found.unhashed) == (0, 7)
    assert {entry.date for entry in found.entries} == {""}
    calls = pair_calls(found.entries, set())[4]
    assert [call.result for call in calls] == ["README.md\nsetup.py", "# A project"]


def test_duplicate_ids_are_renumbered_and_keep_the_old_one() -> None:
    found = read_lines(bub("two-writers"))
    assert not found.problems
    assert [entry.id for entry in found.entries] == [1, 2, 3, 4, 5, 6, 7]
    assert [entry.meta.get("imported_id") for entry in found.entries] == [None, None, None, 3, 4, 4, None]
    assert found.renumbered == 3


def test_odd_dates_and_fields_are_kept() -> None:
    entries = read_lines(bub("two-writers")).entries
    assert (entries[4].date, entries[4].meta["imported_date"]) == ("2026-03-09T08:00:03.500000+00:00", 1773043203.5)
    assert entries[5].date == "2026-03-09T09:00:00"
    assert (entries[6].date, entries[6].kind) == ("yesterday", "hologram")
    assert entries[6].meta == {"context": False, "imported_fields": {"lens": "wide"}}


def test_lines_without_ids_meta_or_dates_are_read() -> None:
    found = read_lines(bub("odd"))
    assert not found.problems
    first, second, third, fourth, fifth = found.entries[:5]
    assert first.meta == {"imported_fields": {"meta": "none"}, "imported_id": "one"}
    assert (second.date, dict(second.meta)) == ("", {})
    assert third.date == "2026-02-13T16:26:40.000000+00:00"
    assert fourth.meta["imported_date"] == 1771000001.25
    assert (fifth.date, fifth.meta["imported_date"]) == ("", 1e300)


def test_imported_memory_is_read_and_its_anchors_open_no_window() -> None:
    entries = read_lines(bub("odd")).entries
    assert not any(entry.opens_window for entry in entries)
    memory = MemoryView().fold([entries[5:9]])
    assert (memory.version, memory.long_term, memory.dailies[0].content) == (1, "Likes tea.", "Rain.")


def test_every_unreadable_line_is_told_with_its_number_and_reason() -> None:
    told = reasons(bub("torn"))
    assert [number for number, _ in told] == [2, 4, 5, 6, 7]
    for (_, reason), words in zip(told, ("UTF-8", "payload", "NaN", "Extra data", "ends within"), strict=True):
        assert words in reason


def test_a_repair_keeps_ids_and_puts_an_event_in_the_place_of_each_unreadable_line() -> None:
    raw = bub("torn")
    found = read_lines(raw, date="2026-11-21")
    assert [entry.name for entry in found.entries if entry.name == "tape/unreadable"] == ["tape/unreadable"] * 5
    assert found.entries[2].payload["content"] == "readable"
    stands = found.entries[1]
    assert (stands.date, stands.payload["data"]) == ("2026-11-21", {"line": 2, "sha256": sha256(raw[1]).hexdigest()})
    assert [problem.raw for problem in found.problems] == [raw[1], *raw[3:]]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"[]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b"{", "not JSON"),
        (b'{"payload":{}}', "kind"),
        (b'{"kind":"","payload":{}}', "kind"),
        (b'{"kind":"event"}', "payload is missing"),
        (b'{"kind":"event","payload":{},"key":1}', "key"),
        (b'{"kind":"event","payload":{"a":1,"a":2}}', "'a' is in one object twice"),
        (b'{"kind":"event","payload":{"a":"\\ud800"}}', "cannot be stored"),
        (b'{"kind":"event","payload":{"a":1e999}}', "cannot be stored"),
        (b'{"kind":"event","payload":{},"n":' + b"9" * 5000 + b"}", "cannot be read"),
        (b'{"kind":"event","payload":' + b'{"a":' * 100000 + b"1" + b"}" * 100001, "cannot be read"),
        (b'{"kind":"event","erased":true,"payload":{"a":1}}', "erased and still has content"),
        (b"\x00\x01SQLite", "not"),
    ],
)  # fmt: skip
def test_what_is_no_entry_is_refused_with_a_reason(raw: bytes, words: str) -> None:
    assert words in reasons([raw + b"\n"])[0][1]


def test_a_key_that_is_there_twice_is_refused_and_names_the_other_line() -> None:
    line = b'{"kind":"event","payload":{},"key":"k"}\n'
    assert reasons([line, line]) == [(2, "its key 'k' is that of line 1")]


def test_a_file_of_which_nothing_is_readable_gives_problems_and_no_exception() -> None:
    raw = bytes(range(256)) * 50
    found = read_lines(raw.splitlines(keepends=True))
    assert len(found.problems) == len(found.entries) > 0
