"""Facts: one class is the payload, its validator, its references and its part of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from functools import singledispatchmethod
from typing import Any, ClassVar

import msgspec
import pytest
from msgspec import UNSET, Struct, UnsetType

from bubbot.app.events import OWN_REFERENCES
from bubbot.errors import TapeCorrupt
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import TapeEntry, encode, event
from bubbot.tape.fact import Cited, Current, Fact, FactState, decode_state, encode_state, find_cited, models_of
from bubbot.tape.projection import ProjectedTape, checkpoint_model, project_facts
from bubbot.tape.references import EntryId, EventReferences, PersonId, SessionId, declared_references
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, SteppingClock
from tests.tapes import whole


class Guest(Fact):
    """A guest of a room, until the guest leaves.

    Attributes:
        room: the room.
        id: the guest.
        invited: the entry of the invitation.
        note: what is known of the guest.
        tags: anything else.
    """

    EVENTS = ("guest/came", "guest/left")
    room: SessionId
    id: PersonId
    invited: EntryId = 0
    note: str | UnsetType = UNSET
    tags: Mapping[str, Any] = {}

    @property
    def subject(self) -> tuple[str, str]:
        """The guest in this room."""
        return self.room, self.id

    @classmethod
    def upgrade(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read `place`, as earlier versions called the room."""
        return {**data, "room": data["place"]} if "place" in data else data


class RoomClosed(Fact):
    """A room was closed for good."""

    EVENTS = ("room/closed",)
    room: SessionId


class Visit(Struct, array_like=True, frozen=True):
    """A guest and how often the guest came."""

    guest: Cited[Guest]
    count: int = 1


class House(FactState):
    """Who is in which room."""

    FACTS: ClassVar = (Guest, RoomClosed)
    guests: Current[Guest] = msgspec.field(default_factory=Current)
    closed: Current[RoomClosed | Guest] = msgspec.field(default_factory=Current)
    visits: tuple[Visit, ...] = ()
    last: Cited[Guest] | None = None

    @singledispatchmethod
    def fold(self, fact: Any, cited: Cited[Any], /) -> None:
        """Change the state."""
        raise NotImplementedError

    @fold.register
    def _(self, _fact: Guest, cited: Cited[Any], /) -> None:
        self.guests.apply(cited)
        if not cited.is_revoked:
            self.last = cited
            self.visits = (*self.visits, Visit(cited, len(self.visits) + 1))

    @fold.register
    def _(self, fact: RoomClosed, cited: Cited[Any], /) -> None:
        self.closed.put(cited)
        self.guests.drop_if(lambda guest: guest.fact.room == fact.room)


HOUSE = project_facts(House, name="house", version=1, tapes="bubbot/house", interval=4)


def stored(*facts: TapeEntry) -> list[TapeEntry]:
    return [entry.with_id(number) for number, entry in enumerate(facts, 1)]


ANN, BOB = Guest("test:1", "42", 7), Guest("test:2", "43")
STORY = stored(
    ANN.to_entry(), BOB.to_entry(), ANN.to_entry("guest/left"), RoomClosed("test:2").to_entry(), ANN.to_entry()
)


class TestPayloads:
    def test_it_has_the_order_of_the_class_and_leaves_out_what_is_not_said(self) -> None:
        assert encode(ANN.payload()) == '{"room":"test:1","id":"42","invited":7,"tags":{}}'
        assert (
            encode(Guest("r", "1", note="old").payload()) == '{"room":"r","id":"1","invited":0,"note":"old","tags":{}}'
        )

    def test_a_frozen_object_of_an_entry_is_stored_as_it_was(self) -> None:
        tags = event("x", {"tags": {"a": [1, {"b": 2.5}]}}).data["tags"]
        assert encode(Guest("r", "1", tags=tags).to_entry().data) == encode({**ANN.payload(), "room": "r", "id": "1", "invited": 0, "tags": tags})  # fmt: skip

    def test_a_key_and_meta_go_along(self) -> None:
        entry = ANN.to_entry("guest/left", key="k", turn="t")
        assert (entry.name, entry.key, dict(entry.meta)) == ("guest/left", "k", {"turn": "t"})

    def test_what_this_version_does_not_know_stays_in_the_entry(self) -> None:
        entry = event("guest/came", {**ANN.payload(), "mood": "merry"})
        assert Guest.of(entry) == ANN
        assert entry.data["mood"] == "merry"

    def test_keys_of_an_earlier_version_are_read(self) -> None:
        assert Guest.of(event("guest/came", {"place": "test:1", "id": "42", "invited": 7})) == ANN

    @pytest.mark.parametrize(
        ("data", "problem"),
        [
            ({"room": "r"}, "missing required field `id`"),
            ({"room": "r", "id": 5}, r"Expected `str`, got `int` - at `\$.id`"),
            ({"room": "r", "id": "1", "invited": "2"}, r"Expected `int`, got `str` - at `\$.invited`"),
        ],
    )
    def test_another_shape_names_entry_event_and_field(self, data: dict[str, Any], problem: str) -> None:
        with pytest.raises(TapeCorrupt, match=rf"#7 is not a guest/came that can be read: .*{problem}"):
            Guest.of(event("guest/came", data).with_id(7))

    def test_two_facts_of_one_name_are_refused(self) -> None:
        class Twin(Fact):
            EVENTS = ("room/closed",)

        with pytest.raises(ValueError, match="room/closed is a name of RoomClosed and of Twin"):
            models_of(RoomClosed, Twin)


class TestStates:
    def test_the_newest_fact_about_the_same_counts_until_it_is_taken_back(self) -> None:
        state = House().apply(STORY)
        assert [(guest.id, guest.fact) for guest in state.guests] == [(5, ANN)]
        assert (("test:2", "43") in state.guests, state.guests.find(("test:1", "42")) is not None) == (False, True)
        assert [each.fact for each in state.closed] == [RoomClosed("test:2")]

    def test_other_events_and_erased_ones_are_ignored(self) -> None:
        erased = TapeEntry("event", {}, id=1, erased=True)
        assert House().apply([erased, event("other", {"room": 1})]) == House()

    def test_two_states_share_nothing(self) -> None:
        House().apply(STORY)
        assert len(House().guests) == 0

    def test_a_checkpoint_holds_ids_only_and_reads_back(self) -> None:
        state = House().apply(STORY)
        saved = encode_state(state)
        assert encode(saved) == '{"guests":[5],"closed":[4],"visits":[[1,1],[2,2],[5,3]],"last":5}'
        assert find_cited(House, saved) == [5, 4, 1, 2, 5, 5]
        assert decode_state(House, saved, STORY) == state

    def test_a_field_that_an_earlier_version_lacks_has_its_default(self) -> None:
        assert decode_state(House, {"guests": [1]}, STORY) == House(guests=Current([Cited(ANN, 1)]))

    @pytest.mark.parametrize("saved", [{"guests": [9]}, {"last": 9}, {"visits": [[9, 1]]}])
    def test_an_entry_that_is_gone_makes_a_checkpoint_unusable(self, saved: dict[str, Any]) -> None:
        with pytest.raises(LookupError):
            decode_state(House, saved, STORY)

    def test_what_a_checkpoint_cites_is_declared(self) -> None:
        assert declared_references(checkpoint_model(House)) == EventReferences(
            entries=("after", "state.guests[]", "state.closed[]", "state.last")
        )

    async def test_a_damaged_fact_stops_the_projection_and_names_the_tape(self) -> None:
        tape = TapeService(InMemoryStore(), "bubbot/house", now=SteppingClock(), new_id=CountingIds())
        await tape.append([event("guest/came", {"room": 1})])
        with pytest.raises(TapeCorrupt, match="bubbot/house: entry #1 is not a guest/came"):
            await ProjectedTape(HOUSE, tape).load()

    async def test_it_is_the_same_from_a_checkpoint_and_from_the_beginning(self) -> None:
        store = InMemoryStore()
        tape = TapeService(store, "bubbot/house", now=SteppingClock(), new_id=CountingIds())
        first = ProjectedTape(HOUSE, tape)
        await first.load()
        await first.follow(await tape.append([entry.with_id(0) for entry in STORY]))
        assert await first.write_checkpoint(force=True)
        later = ProjectedTape(HOUSE, tape)
        assert await later.load() == first.state == House().apply(await whole(store, "bubbot/house"))


def test_every_registered_model_can_be_resolved() -> None:
    """A name that is imported for type checkers alone would fail when the first such fact is read."""
    for name, model in OWN_REFERENCES.events.items():
        declared_references(model)
        if issubclass(model, Fact):
            assert name in model.EVENTS


def test_references_are_those_of_the_types() -> None:
    assert declared_references(Guest) == EventReferences(entries=("invited",), sessions=("room",), people=("id",))


ODD_VALUES: tuple[Any, ...] = (5, -0.5, True, None, "odd", [], [5], ["odd"], [[5]], [{"odd": 5}], {}, {"odd": [5]})


@pytest.mark.parametrize(
    "name", sorted(name for name, model in OWN_REFERENCES.events.items() if issubclass(model, Fact))
)
def test_a_record_of_any_shape_can_be_tried(name: str) -> None:
    model: Any = OWN_REFERENCES.events[name]
    fields = [field.encode_name for field in msgspec.structs.fields(model)]
    usual = dict.fromkeys(fields, "odd")
    payloads: list[dict[str, Any]] = [{}, usual]
    payloads += [{**usual, field: value} for field in fields for value in ODD_VALUES]
    for data in payloads:
        found = model.try_of(event(name, data))
        assert found is None or isinstance(found, model)
        assert (Cited.try_of(model, event(name, data)) is None) is (found is None)
