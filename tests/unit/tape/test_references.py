"""Declared references: what moves along if entries get new ids, and that nothing else does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Optional

import pytest
from msgspec import Struct
from pydantic import BaseModel, Field

from bubbot.app.events import OWN_REFERENCES
from bubbot.errors import EntryInvalid
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, event, thaw
from bubbot.tape.events import KERNEL_REFERENCES
from bubbot.tape.fact import Fact
from bubbot.tape.references import (
    BlobDigest,
    EntryId,
    EventReferences,
    MovedIds,
    PersonId,
    Rebase,
    RecordedState,
    SessionId,
    TapeEntryId,
    TapeSpans,
    declared_references,
    entries_as_of,
)
from tests.tapes import note


def moved(ids: dict[int, int]) -> MovedIds:
    return MovedIds("tape", ids, OWN_REFERENCES)


def data_of(entry: TapeEntry, ids: dict[int, int], *, tape: str = "tape") -> object:
    return thaw(moved(ids).move(tape, entry).payload)["data"]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (event("correction", {"corrects": 4, "content": "#4"}), {"corrects": 14, "content": "#4"}),
        (event("turn/start", {"messages": [2, 4], "attempt": 4}), {"messages": [2, 14], "attempt": 4}),
        (event("turn/start", {"inbounds": [["tape", 4], ["inbox", 4]]}), {"inbounds": [["tape", 14], ["inbox", 4]]}),
        (event("reaction", {"entry": 5, "message": "4"}), {"entry": 15, "message": "4"}),
        (event("context/cut", {"from": 4}), {"from": 14}),
        (event("handoff", {"state": {"parents": [4, ["tape", 5], ["x", 5]]}}),
         {"state": {"parents": [14, ["tape", 15], ["x", 5]]}}),
        (event("tape/erased", {"covers": {"tape": [[1, 4]], "x": [[1, 4]]}}),
         {"covers": {"tape": [[1, 3], [14, 14]], "x": [[1, 4]]}}),
        (event("loop.step", {"as_of": [[1, 5]], "head": 5, "step": 4}),
         {"as_of": [[1, 3], [14, 15]], "head": 15, "step": 4}),
    ],
)  # fmt: skip
@pytest.mark.law("T13")
def test_declared_references_move_along(given: TapeEntry, wanted: object) -> None:
    assert data_of(given, {4: 14, 5: 15}) == wanted


def test_an_entry_of_another_tape_moves_only_what_names_the_tape() -> None:
    assert data_of(event("correction", {"corrects": 4}), {4: 14}, tape="other") == {"corrects": 4}
    copied = moved({4: 14}).move("other", note("copy", source=["tape", 4]))
    assert thaw(copied.meta) == {"source": ["tape", 14]}


@pytest.mark.parametrize(
    "entry",
    [
        note("4", turn=4),
        event("correction", {"corrects": 3}),
        event("correction", {"corrects": "4"}),
        event("correction", {"corrects": True}),
        event("turn/start", {"messages": 4, "inbounds": [["tape"], "tape", ["tape", 4, 4]]}),
        event("loop.step", {"shown": [[4], "4", [5, 4], [1, None]], "as_of": 4}),
        event("of a feature", {"corrects": 4}),
        TapeEntry("event", {"name": 4, "data": [4]}),
        TapeEntry("hologram", {"corrects": 4, "recalls": [[4, 4]]}),
        anchor("inbox", {"after": 4}),
    ],
)
def test_anything_else_stays_the_same_object(entry: TapeEntry) -> None:
    assert moved({1: 1, 4: 14}).move("tape", entry) is entry


def test_a_checkpoint_of_the_inbox_has_references_that_other_anchors_do_not_have() -> None:
    state = {"after": 4, "open": [{"id": 4, "attempts": 4}]}
    entry = moved({4: 14}).move("tape", anchor("inbox/mark", state, window=False))
    assert thaw(entry.payload["state"]) == {"after": 14, "open": [{"id": 14, "attempts": 4}]}


def test_a_range_keeps_the_order_of_its_ids() -> None:
    ids = moved({4: 14, 5: 9, 6: 15, 7: 16})
    assert ids.spans(2, 8) == [[2, 3], [14, 14], [9, 9], [15, 16], [8, 8]]
    assert ids.spans(1, 3) == [[1, 3]]
    assert ids.spans(5, 10**15) == [[9, 9], [15, 16], [8, 10**15]]


def test_a_rebase_gives_the_next_ids_and_those_of_stored_keys() -> None:
    delta = [note("a"), note("b", key="k"), note("c", key="new"), note("d", key="new"), note("e")]
    stored = {"k": note("b", key="k").with_id(7)}
    plan = Rebase(5, KERNEL_REFERENCES).plan("tape", delta, 8, stored.get)
    assert plan is not None
    assert dict(plan.ids) == {6: 9, 7: 7, 8: 10, 9: 10, 10: 11}
    assert Rebase(8, KERNEL_REFERENCES).plan("tape", delta, 8, stored.get) is None


@pytest.mark.law("T13")
def test_entries_as_of_a_recorded_state_have_the_ids_they_had_then() -> None:
    before = [note("a"), note("b"), event("correction", {"corrects": 3}), anchor("x", {"parents": [2, 4]})]
    tape = [
        note("a").with_id(1),
        note("theirs").with_id(2),
        note("b").with_id(3),
        event("correction", {"corrects": 4}).with_id(4),
        anchor("x", {"parents": [3, 5]}).with_id(5),
        note("later").with_id(6),
    ]
    then = [tape[0], *tape[2:5]]
    found = entries_as_of("tape", then, KERNEL_REFERENCES)
    assert found[1:] == entries_as_of("tape", then[1:], KERNEL_REFERENCES, first=2)
    assert found[2:] == [event("correction", {"corrects": 3}).with_id(3), anchor("x", {"parents": [2, 4]}).with_id(4)]
    assert [entry.payload for entry in found[:2]] == [entry.payload for entry in before[:2]]
    assert entries_as_of("tape", tape[:4], KERNEL_REFERENCES) == tape[:4]
    assert entries_as_of("tape", [], KERNEL_REFERENCES) == []


@pytest.mark.law("T13")
def test_an_entry_that_has_its_id_again_by_chance_names_what_it_named_then() -> None:
    """A fork wrote 2, 3 and 4; the tape got the key of 3 meanwhile, so that 2 became 3, 3 became 2, and 4 stayed 4."""
    now = [note("b", key="k").with_id(2), note("a").with_id(3), event("correction", {"corrects": 3}).with_id(4)]
    then = entries_as_of("tape", [now[1], now[0], now[2]], KERNEL_REFERENCES, first=2)
    assert then == [
        note("a").with_id(2),
        note("b", key="k").with_id(3),
        event("correction", {"corrects": 2}).with_id(4),
    ]


def test_a_recorded_state_tells_the_moved_entries_from_the_others() -> None:
    tape = [note(str(entry_id)).with_id(entry_id) for entry_id in range(1, 11)]
    state = RecordedState.parse([[1, 2], [9, 10], [5, 6]])
    assert state == RecordedState(2, ((9, 10), (5, 6)))
    found = [entry for entry in tape if entry.id in (5, 6, 9, 10)]
    assert [entry.id for entry in state.pick_moved(found)] == [9, 10, 5, 6]
    assert [state.current_id(entry_id) for entry_id in range(1, 8)] == [1, 2, 9, 10, 5, 6, 7]
    assert RecordedState.parse([]) == RecordedState(0)
    assert RecordedState.parse([[3, 4]]) == RecordedState(0, ((3, 4),))
    assert RecordedState.parse([[1, 7]]).current_id(4) == 4


class Cited(Fact):
    """What a feature cites."""

    spans: TapeSpans


class Member(Struct, frozen=True):
    session: SessionId


class Joined(Fact):
    """Sessions within a list."""

    members: list[Member]


class Source(BaseModel):
    entry: EntryId | None = None
    people: list[PersonId] = []


class CitedModel(BaseModel):
    """The same in a model that a package may prefer."""

    limit: ClassVar[int] = 3
    from_: Annotated[list[Source], Field(alias="from")]
    blob: BlobDigest


@dataclass(frozen=True)
class CitedClass:
    """And in a dataclass."""

    from_: tuple[EntryId | TapeEntryId, ...]
    state: Optional[Cited]  # noqa: UP045 - a package may write it so
    kind: Literal["a", "b"] = "a"
    by: str | None = None


@dataclass(frozen=True)
class Endless:
    inner: Endless | None = None


@dataclass(frozen=True)
class Keyed:
    by_name: dict[str, EntryId]


@dataclass(frozen=True)
class Unresolved:
    entry: NoSuchName  # type: ignore[name-defined]  # noqa: F821


def test_a_model_declares_references_by_its_annotations() -> None:
    assert declared_references(Cited) == EventReferences(tape_spans=("spans",))
    assert declared_references(CitedModel) == EventReferences(
        entries=("from[].entry",), people=("from[].people[]",), blobs=("blob",)
    )
    assert declared_references(CitedClass) == EventReferences(
        entries=("from[]",), tape_entries=("from[]",), tape_spans=("state.spans",)
    )


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (int, "is no payload model"),
        (Endless, "Endless holds itself at inner"),
        (Keyed, "by_name holds references under names of its own"),
        (Unresolved, "an annotation that cannot be resolved: name 'NoSuchName'"),
    ],
)
def test_a_model_that_cannot_be_read_is_refused(model: type, reason: str) -> None:
    with pytest.raises(EntryInvalid, match=reason):
        declared_references(model)


def test_a_feature_adds_the_references_of_its_events_once() -> None:
    registry = KERNEL_REFERENCES.with_events({"team/cited": Cited})
    fact = event("team/cited", {"spans": [["tape", [[4, 5]]]]})
    assert MovedIds("tape", {4: 14}, registry).move("tape", fact).payload["data"]["spans"] == (
        ("tape", ((14, 14), (5, 5))),
    )
    with pytest.raises(EntryInvalid, match="correction are declared twice"):
        KERNEL_REFERENCES.with_events({"correction": Cited})


def test_the_sessions_that_an_event_names_are_found_where_it_declares_them() -> None:
    registry = KERNEL_REFERENCES.with_events({"team/joined": Joined})
    fact = event("team/joined", {"members": [{"session": "a:1"}, {"session": 4}, "b:1", {}], "session": "c:1"})
    assert list(registry.find_sessions(fact)) == ["a:1", 4]
    assert list(registry.find_sessions(TapeEntry("event", {"name": "team/joined", "data": 4}))) == []
    assert list(registry.find_sessions(anchor("team/joined", {"members": []}))) == []


@pytest.mark.parametrize(
    ("fact", "accounts"),
    [
        (event("schedule/paused", {"by": {"channel": "telegram", "id": "1"}}), [("telegram", "1")]),
        (
            event("access/linked", {"channel": "a", "id": "1", "other_channel": "b", "other": "2"}),
            [("a", "1"), ("b", "2")],
        ),
        (event("inbox/received", {"channel": "a", "sender": {"id": "1"}, "quote": None}), [("a", "1")]),
        (event("reaction", {"sender": {"id": "1", "name": "Ann"}}), [("of the tape", "1")]),
        (event("access/audit_granted", {"channel": "", "id": "anna"}), [("", "anna")]),
        (event("schedule/added", {"by": {"channel": "a", "id": 4}, "granted": None}), []),
        (event("schedule/fired", {"job": "1"}), []),
    ],
)
def test_a_person_is_on_the_channel_beside_the_id_or_that_of_the_fact(
    fact: TapeEntry, accounts: list[tuple[str, str]]
) -> None:
    assert [person.account for person in OWN_REFERENCES.find_people(fact, "of the tape")] == accounts


def test_people_in_a_list_are_on_the_channel_of_the_fact() -> None:
    class Met(Fact):
        EVENTS = ("team/met",)
        channel: str
        people: tuple[PersonId, ...]

    registry = KERNEL_REFERENCES.with_events({"team/met": Met})
    fact = event("team/met", {"channel": "a", "people": ["1", 2, "3"]})
    assert [(person.path, person.account) for person in registry.find_people(fact)] == [
        ("people[]", ("a", "1")),
        ("people[]", ("a", "3")),
    ]
