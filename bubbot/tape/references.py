"""Declared references: which fields of an entry name other entries, and how these follow if entries get new ids.

A fork's delta has the ids it would get if its parent did not grow. If the parent grew, the delta is *rebased*: its
entries get the next ids, and the declared references to them move along. References to the parent's entries, texts
and everything undeclared stay as they are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from bubbot.errors import EntryInvalid
from bubbot.tape.entry import Kind, TapeEntry

FindByKey: TypeAlias = Callable[[str], TapeEntry | None]
"""Returns the entry of the tape that has this key."""


@dataclass(frozen=True, slots=True)
class EventReferences:
    """Fields that name other things, as paths: `state.parents[]` is each item of the list `parents` in `state`.

    A value of another shape than its declaration says (imports, models) is no reference.

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


_NOTHING = EventReferences()
_STATE = EventReferences(entries=("state.source_ids[]", "state.parents[]"), tape_entries=("state.parents[]",))


@dataclass(frozen=True, slots=True)
class ReferenceRegistry:
    """The references of every format of entry.

    Attributes:
        kinds: by kind, for paths from the payload.
        anchors: by name, for what an anchor of this name has beyond those of its kind.
        events: by name, for paths from the `data` of the payload.
        meta: for paths from the meta of every entry.
    """

    kinds: Mapping[str, EventReferences]
    anchors: Mapping[str, EventReferences]
    events: Mapping[str, EventReferences]
    meta: EventReferences

    def with_events(self, events: Mapping[str, EventReferences]) -> ReferenceRegistry:
        """Return a registry that also knows these events. Raise `EntryInvalid` if one is declared already."""
        if twice := sorted(self.events.keys() & events.keys()):
            raise EntryInvalid(f"the references of {', '.join(twice)} are declared twice: give one event another name")
        return replace(self, events={**self.events, **events})


KERNEL_REFERENCES = ReferenceRegistry(
    kinds={
        Kind.MESSAGE: EventReferences(blobs=("content[].digest",)),
        Kind.SYSTEM: EventReferences(blobs=("digest",)),
        Kind.ANCHOR: replace(_STATE, spans=("recalls",)),
    },
    anchors={
        "inbox/mark": EventReferences(entries=("state.after", "state.open[].id")),
        "outbox/mark": EventReferences(entries=("state.after", "state.open[].id")),
    },
    events={
        "turn/start": EventReferences(entries=("messages[]",), tape_entries=("inbounds[]",), sessions=("session",)),
        "turn/joined": EventReferences(tape_entries=("inbounds[]",)),
        "loop.step": EventReferences(
            entries=("head",), spans=("shown", "as_of"), tape_spans=("shown",), blobs=("system", "tools")
        ),
        "context/cut": EventReferences(entries=("from",)),
        "handoff": _STATE,
        "correction": EventReferences(entries=("corrects",)),
        "reaction": EventReferences(entries=("entry",), people=("sender.id",)),
        "attachment/failed": EventReferences(tape_entries=("inbound",)),
        "attachment/transcribed": EventReferences(tape_entries=("inbound",), blobs=("digest",)),
        "tape/erased": EventReferences(tape_spans=("covers",)),
        "tape/named": EventReferences(spans=("erased",), blobs=("missing_blobs[]",)),
        "tape/imported": EventReferences(sessions=("session",)),
        "inbox/received": EventReferences(sessions=("session",), people=("sender.id", "quote.sender.id")),
        "inbox/changed": EventReferences(sessions=("session",), people=("sender.id", "quote.sender.id")),
        "inbox/unparsed": EventReferences(sessions=("session",)),
        "inbox/interrupted": EventReferences(entries=("inbounds[]",)),
        "inbox/done": EventReferences(entries=("inbounds[]",)),
        "outbox/intent": EventReferences(sessions=("session",)),
        "outbox/preview-begin": EventReferences(sessions=("session",)),
        "outbox/preview": EventReferences(sessions=("session",)),
        "outbox/receipt": EventReferences(entries=("intent",)),
        "outbox/ended": EventReferences(entries=("intent",)),
    },
    meta=EventReferences(
        tape_entries=("inbound", "source"), sessions=("session",), people=("sender.id", "quote.sender.id")
    ),
)
"""What the kernel's own entries name. `meta.edited` and the `inbound` of the outbox are ids of an inbox tape that they
do not name; inbox tapes are never rebased."""


@dataclass(frozen=True, slots=True)
class MovedIds:
    """Entries of one tape that have new ids.

    Attributes:
        tape: the name of the tape.
        ids: the new id by the old one, in ascending order of the old ones.
        references: what names them.
    """

    tape: str
    ids: Mapping[int, int]
    references: ReferenceRegistry
    _old: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_old", tuple(self.ids))

    def move(self, tape: str, entry: TapeEntry) -> TapeEntry:
        """Return an entry of this tape with its references to the moved entries; itself if it has none."""
        declared, name = self.references, entry.name or ""
        payload: Any = entry.payload
        if entry.kind == Kind.EVENT:
            references = declared.events.get(name, _NOTHING)
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
        """Return the ranges that an inclusive id range became, in the order of its ids."""
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
    """How a fork's delta follows if its tape has grown.

    Attributes:
        base: the newest id of the tape when the fork was opened; the delta has the ids after it.
        references: what moves along.
        if_absent: keys whose entries are skipped if the key is on the tape by now, whatever the content.
    """

    base: int
    references: ReferenceRegistry
    if_absent: frozenset[str] = frozenset()

    def plan(self, tape: str, delta: Sequence[TapeEntry], head: int, find: FindByKey) -> MovedIds | None:
        """Decide the ids of the delta on a tape with this head; None if they are the ids it has.

        An entry whose key is on the tape by now will not be written: the stored one stands in its place.
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
    tape: str, entries: Sequence[TapeEntry], spans: Sequence[Sequence[int]], references: ReferenceRegistry
) -> list[TapeEntry]:
    """Return the entries of a recorded state of their tape, with the ids that they had in it.

    Args:
        tape: its name.
        entries: of the whole tape, by ascending id.
        spans: the ids, as they are now, of what was entry 1, 2, 3 … of the tape then (`as_of` of a `loop.step`).
        references: what moves along.
    """
    found = [entry for low, high in spans for entry in entries[low - 1 : high]]
    earlier = {entry.id: place for place, entry in enumerate(found, 1) if entry.id != place}
    if not earlier:
        return found
    back = MovedIds(tape, dict(sorted(earlier.items())), references)
    return [
        back.move(tape, entry).with_id(place) if entry.id in earlier else entry for place, entry in enumerate(found, 1)
    ]


def _steps(path: str) -> tuple[str, ...]:
    """Split `state.open[].id` into `state`, `open`, `[]` and `id`."""
    return tuple(step for step in path.replace("[]", ".[]").split(".") if step)


def _change(value: Any, steps: Sequence[str], change: Callable[[Any], Any]) -> Any:
    """Return the value with the change at the end of a path; itself if nothing changed, or if the path leads nowhere."""
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
    """Change the second value of a pair that begins with `first`; anything else is returned as it is."""
    if not isinstance(pair, (list, tuple)) or len(pair) != 2 or pair[0] != first:
        return pair
    second = change(pair[1])
    return pair if second is pair[1] else (first, second)


def _add_span(spans: list[list[int]], low: int, high: int) -> None:
    """Add a range; one that continues the last range extends it."""
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
