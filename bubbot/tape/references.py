"""Declared references: the fields of an entry that name other entries, and follow if these get new ids.

A fork's delta has the ids it would get if its parent did not grow. If the parent grew, the delta is *rebased*: its
entries get the next ids, and the declared references to them move along. References to the parent's entries, texts and
undeclared fields stay as they are.

The payload model of an event declares them: a `Fact`, a dataclass or a pydantic model whose fields are
annotated with `EntryId`, `SessionId` and their kin. The registry reads them from the payload as it stands on the tape.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, TypeAlias, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct, structs

from bubbot.errors import EntryInvalid
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.fact import Cited, Current

FindByKey: TypeAlias = Callable[[str], TapeEntry | None]
"""Returns the entry of the tape that has this key."""


class EventReferences(Struct, frozen=True):
    """Fields that name other things, as paths: `state.parents[]` is each item of the list `parents` in `state`.

    A value whose shape does not fit its declaration (imports, models) is not a reference.

    Attributes:
        entries: ids of entries of the same tape.
        spans: lists of inclusive id ranges of the same tape.
        tape_entries: pairs of a tape and an id.
        tape_spans: lists of pairs of a tape and id ranges, or an object with the id ranges by tape.
        sessions: session ids.
        people: numeric ids of people.
        blobs: digests of blobs of the same tape.
    """

    entries: tuple[str, ...] = ()
    spans: tuple[str, ...] = ()
    tape_entries: tuple[str, ...] = ()
    tape_spans: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    people: tuple[str, ...] = ()
    blobs: tuple[str, ...] = ()


class Reference(StrEnum):
    """What a field of a payload names; each value is a field of `EventReferences`."""

    ENTRY = "entries"
    SPANS = "spans"
    TAPE_ENTRY = "tape_entries"
    TAPE_SPANS = "tape_spans"
    SESSION = "sessions"
    PERSON = "people"
    BLOB = "blobs"


EntryId: TypeAlias = Annotated[int, Reference.ENTRY]
"""The id of an entry of the same tape."""
Spans: TypeAlias = Annotated[Sequence[Sequence[int]], Reference.SPANS]
"""Inclusive id ranges of the same tape."""
TapeEntryId: TypeAlias = Annotated[Sequence[Any], Reference.TAPE_ENTRY]
"""A pair of a tape and an id."""
TapeSpans: TypeAlias = Annotated[Any, Reference.TAPE_SPANS]
"""Pairs of a tape and id ranges, or an object with the id ranges by tape."""
SessionId: TypeAlias = Annotated[str, Reference.SESSION]
"""The id of a session."""
PersonId: TypeAlias = Annotated[str, Reference.PERSON]
"""The numeric id of a person."""
BlobDigest: TypeAlias = Annotated[str, Reference.BLOB]
"""The digest of a blob of the same tape."""

_NOTHING = EventReferences()


@cache
def declared_references(model: type) -> EventReferences:
    """Return the references that a payload model declares. Raise `EntryInvalid` if it is not a readable model."""
    found: dict[Reference, dict[str, None]] = {reference: {} for reference in Reference}
    for path, annotation in walk_fields(model):
        for mark in _marks(annotation):
            found[mark][path] = None
    return EventReferences(**{mark.value: tuple(paths) for mark, paths in found.items()})


def walk_fields(model: type, prefix: str = "", outer: tuple[type, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the path and the annotation of each field of a payload model, nested fields included.

    A field of a dataclass whose name ends with an underscore stands for the name without it; a field of a pydantic
    model stands for its alias.

    Args:
        prefix: of the paths.
        outer: the models that contain this one.

    Raises:
        EntryInvalid: it is not a model, an annotation cannot be resolved, or no path leads to a reference.
    """
    if model in outer:
        raise EntryInvalid(f"{model.__name__} holds itself at {prefix.rstrip('.')}: the paths to it have no end")
    try:
        hints = get_type_hints(model, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise EntryInvalid(f"the payload model {model!r} has an annotation that cannot be resolved: {error}") from error
    for name, key in _field_keys(model).items():
        yield from _walk(hints[name], prefix + key, (*outer, model))


def _walk(annotation: Any, path: str, outer: tuple[type, ...]) -> Iterator[tuple[str, Any]]:
    """Yield the fields at a path; a reference has no fields below it."""
    yield path, annotation
    if _marks(annotation):
        return
    origin, arguments = get_origin(annotation), get_args(annotation)
    is_class = isinstance(origin, type)
    if origin is Current:  # a checkpoint holds the ids of the facts
        yield f"{path}[]", EntryId
    elif origin is Cited:
        yield path, EntryId
    elif origin is None and _is_model(annotation):
        yield from walk_fields(annotation, f"{path}.", outer)
    elif is_class and issubclass(origin, Mapping):
        inner = [found for argument in arguments for _, found in _walk(argument, path, outer)]
        if any(map(_marks, inner)):
            raise EntryInvalid(f"{path} holds references under names of its own, to which no path leads")
    else:  # a sequence, a union, or a wrapper: `Annotated` may name a model for some keys of an object
        step = "[]" if is_class and issubclass(origin, (Sequence, Set)) else ""
        for argument in arguments:
            yield from _walk(argument, path + step, outer)


def _marks(annotation: Any) -> tuple[Reference, ...]:
    return tuple(mark for mark in getattr(annotation, "__metadata__", ()) if isinstance(mark, Reference))


def _is_model(kind: Any) -> bool:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return not kind.__struct_config__.array_like  # a path cannot name the items of an array by position
    return isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "model_fields"))


def _field_keys(model: type) -> Mapping[str, str]:
    if not _is_model(model):
        raise EntryInvalid(f"{model!r} is no payload model: write a Fact, a dataclass or a pydantic model")
    if issubclass(model, msgspec.Struct):
        return {item.name: item.encode_name for item in msgspec.structs.fields(model)}
    if is_dataclass(model):
        return {item.name: item.name.removesuffix("_") for item in fields(model)}
    pydantic_fields: Mapping[str, Any] = getattr(model, "model_fields", {})
    return {name: item.alias or name for name, item in pydantic_fields.items()}


class PersonReference(Struct, frozen=True):
    """A person that a fact names.

    Attributes:
        path: the field with the id.
        channel: the name of the channel; empty for somebody without an account.
        id: the numeric id there.
    """

    path: str
    channel: str
    id: str

    @property
    def account(self) -> tuple[str, str]:
        """Channel and id."""
        return self.channel, self.id


class ReferenceRegistry(Struct, frozen=True):
    """The references of every format of entry.

    Attributes:
        kinds: by kind, for paths from the payload.
        anchors: by name, for what an anchor of this name has beyond those of its kind.
        events: the payload models by name, for paths from the `data` of the payload; read on first use.
        meta: for paths from the meta of every entry.
    """

    kinds: Mapping[str, EventReferences]
    anchors: Mapping[str, EventReferences]
    events: Mapping[str, type]
    meta: EventReferences

    def of_event(self, name: str) -> EventReferences:
        """Return the references of an event; none if it is not declared."""
        model = self.events.get(name)
        return _NOTHING if model is None else declared_references(model)

    def find_sessions(self, entry: TapeEntry) -> Iterator[object]:
        """Yield the values of the fields of an event that name sessions."""
        for path in self.of_event(entry.name or "").sessions if entry.kind == Kind.EVENT else ():
            yield from _values(entry.payload.get("data"), _steps(path))

    def find_entries(self, entry: TapeEntry) -> Iterator[int]:
        """Yield the ids in the fields of an event that name entries of the same tape; skip other values."""
        for path in self.of_event(entry.name or "").entries if entry.kind == Kind.EVENT else ():
            for value in _values(entry.payload.get("data"), _steps(path)):
                if type(value) is int:
                    yield value

    def find_blobs(self, entry: TapeEntry) -> Iterator[object]:
        """Yield the values of the fields of an event that name blobs of the same tape."""
        for path in self.of_event(entry.name or "").blobs if entry.kind == Kind.EVENT else ():
            yield from _values(entry.payload.get("data"), _steps(path))

    def find_people(self, entry: TapeEntry, channel: str = "") -> Iterator[PersonReference]:
        """Yield the people that the fields of an event name.

        A person is on the channel that stands beside the id, else on that of the fact, else on `channel`.
        """
        for path in self.of_event(entry.name or "").people if entry.kind == Kind.EVENT else ():
            *outer, last = _steps(path)
            for found in _values(entry.data, outer):
                beside = (found.get(f"{last}_channel"), found.get("channel")) if isinstance(found, Mapping) else ()
                names = [name for name in (*beside, entry.data.get("channel")) if isinstance(name, str)]
                for number in _values(found, (last,)):
                    if isinstance(number, str):
                        yield PersonReference(path, names[0] if names else channel, number)

    def find_meta_people(self, entry: TapeEntry) -> Iterator[object]:
        """Yield the ids of the people whom the meta of an entry names."""
        for path in self.meta.people:
            yield from _values(entry.meta, _steps(path))

    def find_cited(self, tape: str, entry: TapeEntry) -> Iterator[tuple[str, int, int]]:
        """Yield the entries that an entry on `tape` names, as a tape and an inclusive id range."""
        if entry.kind == Kind.EVENT:
            yield from _cited(tape, entry.payload.get("data"), self.of_event(entry.name or ""))
        else:
            yield from _cited(tape, entry.payload, self.kinds.get(entry.kind, _NOTHING))
            if entry.kind == Kind.ANCHOR:
                yield from _cited(tape, entry.payload, self.anchors.get(entry.name or "", _NOTHING))

    def find_sources(self, tape: str, entry: TapeEntry) -> Iterator[tuple[str, int, int]]:
        """Yield the entries of which an entry on `tape` is a copy, as its meta says."""
        sources = tuple(path for path in (*self.meta.tape_entries, *self.meta.tape_spans) if path.startswith("source"))
        yield from _cited(tape, entry.meta, EventReferences(tape_entries=sources, tape_spans=sources))

    def with_events(self, events: Mapping[str, type]) -> ReferenceRegistry:
        """Return a registry that also knows these events. Raise `EntryInvalid` if one is declared already.

        It does not read the models yet; `declared_references` checks one.
        """
        if twice := sorted(self.events.keys() & events.keys()):
            raise EntryInvalid(f"the references of {', '.join(twice)} are declared twice: give one event another name")
        return structs.replace(self, events={**self.events, **events})


@dataclass(frozen=True, slots=True)
class MovedIds:
    """Entries of one tape that have new ids.

    Attributes:
        ids: the new id by the old one, in ascending order of the keys.
        references: the fields that name them.
    """

    tape: str
    ids: Mapping[int, int]
    references: ReferenceRegistry
    _old: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_old", tuple(self.ids))

    def move(self, tape: str, entry: TapeEntry) -> TapeEntry:
        """Return an entry of `tape` with its references updated; itself if it names no moved entry."""
        declared, name = self.references, entry.name or ""
        payload: Any = entry.payload
        if entry.kind == Kind.EVENT:
            references = declared.of_event(name)
            payload = _change(payload, ("data",), lambda data: self._move_values(tape, data, references))
        else:
            payload = self._move_values(tape, payload, declared.kinds.get(entry.kind, _NOTHING))
            if entry.kind == Kind.ANCHOR:
                payload = self._move_values(tape, payload, declared.anchors.get(name, _NOTHING))
        meta = self._move_values(tape, entry.meta, declared.meta)
        is_unchanged = payload is entry.payload and meta is entry.meta
        return entry if is_unchanged else replace(entry, payload=payload, meta=meta)

    def _move_values(self, tape: str, root: Any, references: EventReferences) -> Any:
        if tape == self.tape:
            for path in references.entries:
                root = _change(root, _steps(path), self._move_id)
            for path in references.spans:
                root = _change(root, _steps(path), self._move_spans)
        for path in references.tape_entries:
            root = _change(root, _steps(path), self._move_pair)
        for path in references.tape_spans:
            root = _change(root, _steps(path), self._move_tape_spans)
        return root

    def _move_id(self, value: Any) -> Any:
        return self.ids.get(value, value) if type(value) is int else value

    def _move_pair(self, value: Any) -> Any:
        return _change_second(value, self.tape, self._move_id)

    def _move_spans(self, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            return value
        items: list[Any] = []
        is_changed = False
        for item in value:
            if _is_span(item) and (pieces := self.spans(*item)) != [[*item]]:
                items += pieces
                is_changed = True
            else:
                items.append(item)
        return items if is_changed else value

    def _move_tape_spans(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return _change(value, (self.tape,), self._move_spans)
        return _change(value, ("[]",), lambda pair: _change_second(pair, self.tape, self._move_spans))

    def spans(self, low: int, high: int) -> list[list[int]]:
        """Translate an inclusive id range; the result is in the order of its ids."""
        pieces: list[list[int]] = []
        at = low
        for old in self._old[bisect_left(self._old, low) : bisect_right(self._old, high)]:
            _add_span(pieces, at, old - 1)
            _add_span(pieces, self.ids[old], self.ids[old])
            at = old + 1
        _add_span(pieces, at, high)
        return pieces


@dataclass(frozen=True, slots=True)
class Rebase:
    """The rule by which a fork's delta gets new ids if its tape has grown.

    Attributes:
        base: the newest id of the tape when the fork was opened; the delta has the ids after it.
        references: the references that follow.
        if_absent: keys whose entries are skipped if the tape has the key by now, whatever the content.
    """

    base: int
    references: ReferenceRegistry
    if_absent: frozenset[str] = frozenset()

    def plan(self, tape: str, delta: Sequence[TapeEntry], head: int, find: FindByKey) -> MovedIds | None:
        """Choose the ids of the delta on a tape with this head; None if it keeps its ids.

        An entry whose key the tape has by now will not be written: the stored one stands in its place.
        """
        if head == self.base:
            return None
        ids: dict[int, int] = {}
        keyed: dict[str, int] = {}
        for old, entry in enumerate(delta, self.base + 1):
            stored = None if entry.key is None else find(entry.key)
            if stored is not None:
                ids[old] = stored.id
            elif entry.key is not None and entry.key in keyed:
                ids[old] = keyed[entry.key]
            else:
                head += 1
                ids[old] = head
                if entry.key is not None:
                    keyed[entry.key] = head
        return MovedIds(tape, ids, self.references)


def entries_as_of(
    tape: str, found: Sequence[TapeEntry], references: ReferenceRegistry, *, first: int = 1
) -> list[TapeEntry]:
    """Return entries of a recorded state of their tape with the ids that they had then.

    Args:
        found: the current entries that were `first`, `first` + 1 … then. All entries before them must still have their
            ids.
        references: the references that follow.
    """
    earlier = {entry.id: place for place, entry in enumerate(found, first) if entry.id != place}
    if not earlier:
        return list(found)
    back = MovedIds(tape, dict(sorted(earlier.items())), references)
    moved = min(earlier.values())  # one behind it may have its id again by chance, and name others that have not
    return [
        entry if place < moved else back.move(tape, entry).with_id(place) for place, entry in enumerate(found, first)
    ]


class RecordedState(Struct, frozen=True):
    """A tape at some time, in terms of the current ids of its entries (`as_of` of a `loop.step`).

    Attributes:
        base: entries 1 to this one have kept their ids; a store answers about them through its indexes.
        moved: the ranges of the other entries, in the order of that time: those a fork wrote before its parent grew.
    """

    base: int
    moved: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, spans: Sequence[Sequence[int]]) -> RecordedState:
        """Parse the current id ranges of the entries that were 1, 2, 3 … then."""
        ranges = [(each[0], each[1]) for each in spans if _is_span(each)]  # imported ones may be anything
        base = ranges.pop(0)[1] if ranges and ranges[0][0] == 1 else 0
        return cls(base, tuple(ranges))

    def pick_moved(self, found: Sequence[TapeEntry]) -> list[TapeEntry]:
        """Put entries of the moved ranges, given by ascending id, into the order of that time."""
        ids = [entry.id for entry in found]
        return [entry for low, high in self.moved for entry in found[bisect_left(ids, low) : bisect_right(ids, high)]]

    def current_id(self, entry_id: int) -> int:
        """Return the current id of an entry of that time; unchanged for one that did not exist then."""
        place = self.base
        for low, high in self.moved if entry_id > self.base else ():
            if entry_id <= place + high - low + 1:
                return low + entry_id - place - 1
            place += high - low + 1
        return entry_id


def _steps(path: str) -> tuple[str, ...]:
    """Split `state.open[].id` into `state`, `open`, `[]` and `id`."""
    return tuple(step for step in path.replace("[]", ".[]").split(".") if step)


def _values(value: Any, steps: Sequence[str]) -> Iterator[object]:
    """Yield the values at the end of a path; nothing if the path does not exist."""
    if not steps:
        yield value
    elif steps[0] == "[]":
        for item in value if isinstance(value, (list, tuple)) else ():
            yield from _values(item, steps[1:])
    elif isinstance(value, Mapping) and steps[0] in value:
        yield from _values(value[steps[0]], steps[1:])


def _cited(tape: str, root: Any, references: EventReferences) -> Iterator[tuple[str, int, int]]:
    """Yield the entries in these fields of a payload or meta, as a tape and an inclusive id range."""
    for path in references.entries:
        yield from _ranges(tape, [(value, value) for value in _values(root, _steps(path))])
    for path in references.spans:
        for spans in _values(root, _steps(path)):
            yield from _ranges(tape, spans)
    for path in (*references.tape_entries, *references.tape_spans):
        for value in _values(root, _steps(path)):
            for other, places in _pairs(value):
                yield from _ranges(other, [(places, places)] if type(places) is int else places)


def _ranges(tape: str, spans: object) -> Iterator[tuple[str, int, int]]:
    for span in spans if isinstance(spans, (list, tuple)) else ():
        if _is_span(span):
            yield tape, span[0], span[1]


def _pairs(value: Any) -> list[tuple[str, Any]]:
    """Return the pairs of a tape and what is named of it: of a single pair, of a list of them, or of an object."""
    found = list(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(found, (list, tuple)):
        return []
    return [(each[0], each[1]) for each in ([found] if _is_pair(found) else found) if _is_pair(each)]


def _is_pair(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2 and isinstance(value[0], str)


def _change(value: Any, steps: Sequence[str], change: Callable[[Any], Any]) -> Any:
    """Return the value changed at the end of a path; itself if nothing changed or the path does not exist."""
    if not steps:
        return change(value)
    step, rest = steps[0], steps[1:]
    if step == "[]":
        if not isinstance(value, (list, tuple)):
            return value
        items = tuple([_change(item, rest, change) for item in value])
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if not isinstance(value, Mapping) or step not in value:
        return value
    item = _change(value[step], rest, change)
    return value if item is value[step] else {**value, step: item}


def _change_second(pair: Any, first: str, change: Callable[[Any], Any]) -> Any:
    """Change the second value of a pair that begins with `first`; return anything else unchanged."""
    if not isinstance(pair, (list, tuple)) or len(pair) != 2 or pair[0] != first:
        return pair
    second = change(pair[1])
    return pair if second is pair[1] else (first, second)


def _add_span(spans: list[list[int]], low: int, high: int) -> None:
    """Add a range, or extend the last one if it continues it."""
    if low > high:
        return
    if spans and spans[-1][1] + 1 == low:
        spans[-1][1] = high
    else:
        spans.append([low, high])


def _is_span(value: Any) -> bool:
    if not isinstance(value, (list, tuple)) or len(value) != 2 or any(type(end) is not int for end in value):
        return False
    return bool(value[0] <= value[1])
