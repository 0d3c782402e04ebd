"""One immutable fact on a tape."""

from __future__ import annotations

import json
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Sequence, Set, ValuesView
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from itertools import chain
from math import isfinite
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias

from bubbot.errors import EntryInvalid

JsonObject: TypeAlias = Mapping[str, Any]
"""A JSON object; deeply frozen (`MappingProxyType` and tuples) wherever it belongs to an entry."""

EMPTY_OBJECT: JsonObject = MappingProxyType({})


class Kind(StrEnum):
    """The kinds bubbot writes. Other kinds (imported, or from a newer version) pass through."""

    MESSAGE = "message"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    ANCHOR = "anchor"
    EVENT = "event"
    SYSTEM = "system"
    ERROR = "error"


def freeze(value: object, path: str = "payload") -> Any:
    """Copy a JSON value, deeply immutable. Raise `EntryInvalid`, which names the place, if it is not JSON."""
    return freeze_with_text(value, path)[0]


def freeze_with_text(value: object, path: str) -> tuple[Any, str]:
    """Freeze a value like `freeze` and return it with its `encode`d text: encoding checks the whole value at once."""
    try:
        frozen, text = _freeze_fast(value), _encode(value)
        if not text.isascii():
            text.encode()  # a lone surrogate anywhere
    except (TypeError, ValueError):
        frozen = _freeze_checked(value, path)
        text = _encode(frozen)
    return frozen, text


def _freeze_fast(value: Any) -> Any:
    """Freeze values of the usual types without the checks that encoding does. Raise `TypeError` for others."""
    kind = type(value)
    if kind is dict or kind is MappingProxyType:
        frozen = {**value}
        for name, item in frozen.items():
            if type(name) is not str:
                _refuse()
            if type(item) not in _PLAIN:  # most values are texts and numbers, which need no call
                frozen[name] = _freeze_fast(item)
        return MappingProxyType(frozen)
    if kind is list or kind is tuple:
        kinds = {*map(type, value)}
        if kinds <= _PLAIN:
            return tuple(value)
        # Rows of texts and numbers, such as ids, are most of what nests.
        if kinds <= _ROWS and _PLAIN.issuperset(map(type, chain.from_iterable(value))):
            return tuple(map(tuple, value))
        return tuple([item if type(item) in _PLAIN else _freeze_fast(item) for item in value])
    return value if kind in _PLAIN else _refuse()


_PLAIN = frozenset({str, int, float, bool, type(None)})
_ROWS = frozenset({list, tuple})


def _refuse() -> NoReturn:
    raise TypeError


def _freeze_checked(value: object, where: str) -> Any:
    match value:
        case None | bool() | int():
            return value
        case float():
            if not isfinite(value):
                raise EntryInvalid(f"{where} is {value}: JSON has no such number")
            return value
        case str():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise EntryInvalid(
                    f"{where} holds a lone surrogate at character {error.start}: it is not valid text"
                ) from error
            return str(value)
        case Mapping():
            for name in value:
                if not isinstance(name, str):
                    raise EntryInvalid(f"{where} has the key {name!r}: keys of an object are strings")
                _freeze_checked(name, f"a key of {where}")
            return MappingProxyType({name: _freeze_checked(item, f"{where}.{name}") for name, item in value.items()})
        case list() | tuple():
            return tuple(_freeze_checked(item, f"{where}[{index}]") for index, item in enumerate(value))
        case _:
            raise EntryInvalid(f"{where} is a {type(value).__name__}: only JSON values can be stored")


def thaw(value: Any) -> Any:
    """Copy a frozen value into dicts and lists, for `json.dumps` and libraries."""
    kind = type(value)
    if kind in _PLAIN:  # most values are, and the test for a mapping is slow
        return value
    if kind is dict or kind is MappingProxyType:
        return {name: item if type(item) in _PLAIN else thaw(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [item if type(item) in _PLAIN else thaw(item) for item in value]
    return {name: thaw(item) for name, item in value.items()} if isinstance(value, Mapping) else value


def _make_encoder(*, sort_keys: bool) -> Callable[[object], str]:
    """Make a function that encodes like `json.JSONEncoder`, but creates the encoder of C only once.

    `JSONEncoder.encode` creates it for each value, which takes longer than encoding most values.
    """
    encoder = json.JSONEncoder(
        ensure_ascii=False,
        separators=(",", ":"),
        allow_nan=False,
        check_circular=False,
        default=dict,
        sort_keys=sort_keys,
    )
    make = getattr(json.encoder, "c_make_encoder", None)  # an interpreter need not have it
    if make is None:
        return encoder.encode
    pieces = make(None, dict, json.encoder.encode_basestring, None, ":", ",", sort_keys, False, False)  # noqa: FBT003

    def write(value: object) -> str:
        return "".join(pieces(value, 0))

    return write


_encode = _make_encoder(sort_keys=False)
_encode_sorted = _make_encoder(sort_keys=True)


def encode(value: JsonObject) -> str:
    """Serialise for a store: compact JSON, keys in the given order, no escapes beyond JSON's own."""
    return _encode(value)


def canonical(value: JsonObject) -> str:
    """Serialise with sorted keys: equal texts mean equal values (and 1 is not 1.0)."""
    return _encode_sorted(value)


class PackedObject(Mapping[str, Any]):
    """A frozen JSON object as its text, which takes a quarter of the memory of its values. Each use decodes it."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def _decode(self) -> JsonObject:
        decoded: JsonObject = _seal(json.loads(self.text))
        return decoded

    def __getitem__(self, name: str) -> Any:
        return self._decode()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decode())

    def __len__(self) -> int:
        return len(self._decode())

    def __eq__(self, other: object) -> bool:
        return self._decode() == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._decode())

    # The inherited methods would decode it once for each name.

    def keys(self) -> KeysView[str]:
        return self._decode().keys()

    def items(self) -> ItemsView[str, Any]:
        return self._decode().items()

    def values(self) -> ValuesView[Any]:
        return self._decode().values()


def timestamp(moment: datetime) -> str:
    """Format as ISO 8601 in UTC with microseconds, so that text order is time order."""
    return (moment if moment.tzinfo is UTC else moment.astimezone(UTC)).isoformat(timespec="microseconds")


@dataclass(frozen=True, slots=True)
class TapeEntry:
    """One fact. Construction freezes `payload` and `meta` deeply; it neither shares nor changes the caller's objects.

    Attributes:
        kind: see `Kind`.
        meta: facts about the entry, such as its turn and its sender.
        date: ISO 8601 in UTC; empty for a new entry, and if unknown.
        key: makes an append idempotent.
        id: 0 until a store assigns one; ids of a tape are 1, 2, 3 … without gaps.
        erased: the content was erased on request; payload and meta are empty.
        name: the name of an anchor or event; None for other kinds.
        cache: what views computed from the entry alone; until it is stored, also its encoded texts.
    """

    kind: str
    payload: JsonObject
    meta: JsonObject = field(default_factory=dict)
    date: str = ""
    key: str | None = None
    id: int = 0
    erased: bool = False
    name: str | None = field(init=False, repr=False, compare=False)
    cache: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        try:
            payload, payload_text = freeze_with_text(self.payload, "payload")
            meta, meta_text = freeze_with_text(self.meta, "meta") if self.meta else (EMPTY_OBJECT, "{}")
        except RecursionError as error:
            raise EntryInvalid("the payload or meta is nested too deeply to be stored") from error
        put(self, "payload", payload)
        put(self, "meta", meta)
        if type(self.kind) is not Kind:
            freeze(self.kind, "kind")
        if self.key is not None and not (type(self.key) is str and self.key.isascii()):
            freeze(self.key, "key")
        put(self, "name", _name_of(self.kind, payload))
        self.cache[_TEXTS] = payload_text, meta_text

    @property
    def opens_window(self) -> bool:
        """True for an anchor that moves the window: any whose payload does not say `"window": false`.

        Imported memory zones lack that mark; their markers never open a window (they would empty the context). An
        anchor that a sub-task wrote moves only the window of the sub-task; see `opens_window_of`.
        """
        return self.opens_window_of("")

    def opens_window_of(self, fork: str) -> bool:
        """Return true for an anchor that moves the window of the sub-task with this fork; empty: of the tape."""
        if self.erased or self.kind != Kind.ANCHOR or self.payload.get("window") is False:
            return False
        return not (self.name or "").startswith("memory/") and self.is_shown_to(fork)

    def is_shown_to(self, fork: str) -> bool:
        """Return true if the sub-task with this fork has the entry in its context; empty: if the tape has it.

        A sub-task sees what it wrote itself and what the sub-tasks wrote that it is part of, no other sub-task's
        entries.
        """
        writer = self.meta.get("fork", "")
        return not isinstance(writer, str) or writer in ("", fork) or fork.startswith(f"{writer}/")

    @property
    def data(self) -> JsonObject:
        """The data of an event; empty for other kinds, and if the entry has none or no object (imports)."""
        data = self.payload.get("data") if self.kind == Kind.EVENT else None
        return data if type(data) is MappingProxyType else EMPTY_OBJECT

    def same_content(self, other: TapeEntry) -> bool:
        """Return true if kind and payload are equal; meta and date do not count."""
        return self.kind == other.kind and canonical(self.payload) == canonical(other.payload)

    def with_id(self, entry_id: int) -> TapeEntry:
        if self.id == entry_id:
            return self
        texts = self.cache.get(_TEXTS)
        return self._copy_with(self.meta, self.date, entry_id, texts)

    def with_meta(self, meta: JsonObject, date: str) -> TapeEntry:
        """Return the entry with this meta (frozen) below its own, and this date if it has none."""
        return self.stamped(meta, encode(meta), date, self.id)

    def stamped(self, meta: JsonObject, text: str, date: str, entry_id: int) -> TapeEntry:
        """Return the entry like `with_meta`, with an id; `text` is `encode(meta)`."""
        texts, own = self.cache.get(_TEXTS), self.meta
        if not own:
            texts = texts and (texts[0], text)
        elif not meta:
            meta = own
        else:
            # Without common keys the text of both is the two texts joined.
            is_joined = texts and own.keys().isdisjoint(meta)
            texts = (texts[0], f"{text[:-1]},{texts[1][1:]}") if texts and is_joined else None
            meta = MappingProxyType({**meta, **own})
        return self._copy_with(meta, self.date or date, entry_id, texts)

    def _copy_with(self, meta: JsonObject, date: str, entry_id: int, texts: tuple[str, str] | None) -> TapeEntry:
        """Copy the entry and share its frozen values; `replace` would freeze them again."""
        cache: dict[object, Any] = {_TEXTS: texts} if texts else {}
        return _assemble((self.kind, self.payload, meta, date, self.key, entry_id, self.erased), self.name, cache)

    @property
    def texts(self) -> tuple[str, str]:
        """Payload and meta as `encode` writes them."""
        payload = self.payload
        return self.cache.get(_TEXTS) or (
            payload.text if type(payload) is PackedObject else encode(payload),
            encode(self.meta),
        )

    def take_texts(self) -> tuple[str, str]:
        """Return `texts` and keep only what `pack` needs: once stored, the entry may stay in memory for long."""
        texts = self.cache.pop(_TEXTS, None) or self.texts
        if self.kind == Kind.EVENT and type(self.payload) is not PackedObject:
            self.cache[_PACKABLE] = texts[0] if len(texts[0]) >= MIN_PACKED_CHARS else ""
        return texts

    def pack(self) -> None:
        """Keep the payload of a long event as text."""
        if self.kind != Kind.EVENT or type(self.payload) is PackedObject:
            return
        text = self.cache.pop(_PACKABLE, None)
        if text is None:
            text = self.texts[0]
        if len(text) >= MIN_PACKED_CHARS:
            object.__setattr__(self, "payload", PackedObject(text))

    @classmethod
    def from_stored(cls, *, entry_id: int, kind: str, key: str | None, date: str, payload: Any, meta: Any) -> TapeEntry:
        """Build an entry from stored JSON values without checks: construction checked them."""
        if type(payload) is not dict or type(meta) is not dict:
            raise TypeError("payload and meta have to be objects")
        name = _name_of(kind, payload)
        return _assemble((kind, _seal(payload), _seal(meta), date, key, entry_id, False), name, {})

    def all_text(self) -> str:
        """Return every string value of payload and meta, one per line (T9)."""
        return "\n".join([*_strings(self.payload), *_strings(self.meta)])

    def searchable_text(self) -> str:
        """Return what search finds: the texts of `list_searchable` and the sender's shown name, one per line."""
        return "\n".join([*list_searchable(self.kind, self.payload, self.meta), *sender_name(self.meta)])


THOUGHTS = "thoughts"
"""The key of a model's thoughts in the payload of a message or of tool calls."""
_NAMED = (Kind.ANCHOR, Kind.EVENT)
_TEXTS = "texts"
"""The key of the encoded texts in the cache of an entry that is not stored yet."""
_PACKABLE = "packable"
"""The key of the encoded payload in the cache of an entry that is stored and may be packed; empty if it is too short."""
MIN_PACKED_CHARS = 600
"""Characters from which `pack` makes a difference: `loop.step` takes 6.2 kB as values, half of what a long chat takes."""


def _name_of(kind: str, payload: JsonObject) -> str | None:
    name = payload["name"] if kind in _NAMED and "name" in payload else None
    return name if type(name) is str else None


def _assemble(
    values: tuple[str, JsonObject, JsonObject, str, str | None, int, bool], name: str | None, cache: dict[object, Any]
) -> TapeEntry:
    """Build an entry from checked and frozen values of its fields."""
    entry, put = object.__new__(TapeEntry), object.__setattr__
    kind, payload, meta, date, key, entry_id, erased = values
    put(entry, "kind", kind)
    put(entry, "payload", payload)
    put(entry, "meta", meta)
    put(entry, "date", date)
    put(entry, "key", key)
    put(entry, "id", entry_id)
    put(entry, "erased", erased)
    put(entry, "name", name)
    put(entry, "cache", cache)
    return entry


def _seal(value: Any) -> Any:
    """Freeze a value that the JSON decoder made."""
    if type(value) is dict:
        return MappingProxyType({name: _seal(item) for name, item in value.items()})
    return tuple([_seal(item) for item in value]) if type(value) is list else value


def objects_of(value: object) -> Iterator[JsonObject]:
    """Yield the objects of a list; skip everything else (imports)."""
    for item in value if isinstance(value, (list, tuple)) else ():
        if isinstance(item, Mapping):
            yield item


def text_field(value: JsonObject, key: str) -> str:
    """Return a text of an object; empty if it is missing or no text (imports)."""
    found = value.get(key)
    return found if isinstance(found, str) else ""


def int_field(value: JsonObject, key: str) -> int:
    """Return a whole number of an object; 0 if it is missing or anything else, such as `true` (imports)."""
    found = value.get(key)
    return found if type(found) is int else 0


def sender_name(meta: JsonObject) -> list[str]:
    """Return the sender's shown name in a list; empty if the meta has none."""
    sender = meta.get("sender")
    name = sender.get("name") if isinstance(sender, Mapping) else None
    return [name] if isinstance(name, str) and name else []


def is_said_by_person(kind: str, payload: JsonObject) -> bool:
    """Return true for a message that a person wrote, and no model."""
    return kind == Kind.MESSAGE and payload.get("role") == "user"


def sender_id(meta: JsonObject) -> str:
    """Return the sender's id on the platform; empty if the meta has none."""
    sender = meta.get("sender")
    number = sender.get("id") if isinstance(sender, Mapping) else None
    return number if isinstance(number, str) else ""


def _strings(value: Any, without: Set[str] = frozenset()) -> list[str]:
    """List the strings of a JSON value, except those under some keys."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for key, item in value.items() if key not in without for text in _strings(item, without)]
    if isinstance(value, tuple | list):
        return [text for item in value for text in _strings(item, without)]
    return []


_STRUCTURE: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        Kind.MESSAGE: frozenset({"role", "type", "media_type", "digest", "id", THOUGHTS}),
        Kind.TOOL_CALL: frozenset({"id", "type", "outside", THOUGHTS}),
        Kind.TOOL_RESULT: frozenset({"tool_call_id", "type", "media_type", "digest"}),
    }
)
"""By kind, the keys whose strings nobody said: a role, the id of a call, the type of a file, what a model only thought."""
_SAID_IN_EVENTS = frozenset({"content", "text", "raw", "output", "title", "summary", "path"})
"""The fields of events whose strings people wrote or read."""


JUDGEMENT_PREFIX = "judge/"
"""The beginning of the names of events that judge what stands on a tape."""
FOR_PEOPLE = "for_people"
"""The key in the meta of an event that people alone read, such as the answer to a command about judgements."""


def is_for_people(name: str | None, meta: Mapping[str, Any]) -> bool:
    """Return true for an event that no model reads, by its name and its meta; see `bubbot.tape.withheld`."""
    return FOR_PEOPLE in meta or (name is not None and name.startswith(JUDGEMENT_PREFIX))


def list_searchable(kind: str, payload: Mapping[str, Any], meta: Mapping[str, Any]) -> list[str]:
    """List the texts of an entry that people wrote, read, or may look for, in the order of the payload.

    What a sub-task wrote is its own: it has none. Nor has what no model reads: answers of the search stand on the tape. Of an
    event, search finds the fields of `_SAID_IN_EVENTS`.
    """
    if meta.get("fork") or (kind == Kind.EVENT and is_for_people(_name_of(kind, payload), meta)):
        return []
    if kind != Kind.EVENT:
        return _strings(payload, _STRUCTURE.get(kind, frozenset()))
    data = payload.get("data")
    items = data.items() if isinstance(data, Mapping) else ()
    return [text for key, item in items if key in _SAID_IN_EVENTS for text in _strings(item)]


def message(role: str, content: str | Sequence[JsonObject], *, thoughts: str = "", **meta: Any) -> TapeEntry:
    """Build a chat message; `content` is text or a list of content parts, `thoughts` is never sent to a model again."""
    return TapeEntry(Kind.MESSAGE, {"role": role, "content": content, **_thoughts(thoughts)}, meta)


def _thoughts(thoughts: str) -> dict[str, str]:
    return {THOUGHTS: thoughts} if thoughts else {}


def tool_call(
    calls: Sequence[JsonObject], *, text: str = "", thoughts: str = "", outside: Sequence[str] = (), **meta: Any
) -> TapeEntry:
    """Build the entry of a model's tool calls: OpenAI-style `{"id","type","function":{"name","arguments"}}` each.

    `outside` lists the ids of calls that act outside: an `effect.begin` precedes each.
    """
    payload: dict[str, Any] = {"calls": list(calls)}
    if text:
        payload["content"] = text
    payload |= _thoughts(thoughts)
    if outside:
        payload["outside"] = list(outside)
    return TapeEntry(Kind.TOOL_CALL, payload, meta)


def tool_result(results: Sequence[JsonObject], *, blobs: Sequence[str] | None = None, **meta: Any) -> TapeEntry:
    """Build the entry of tool results: `{"tool_call_id","content","is_error"?}` each.

    `blobs` lists the digests of the full texts of truncated results; None if unknown.
    """
    payload: dict[str, Any] = {"results": list(results)}
    if blobs is not None:
        payload["blobs"] = list(blobs)
    return TapeEntry(Kind.TOOL_RESULT, payload, meta)


def event(name: str, data: JsonObject | None = None, *, key: str | None = None, **meta: Any) -> TapeEntry:
    return TapeEntry(Kind.EVENT, {"name": name, "data": data or {}}, meta, key=key)


def system(content: str, **meta: Any) -> TapeEntry:
    return TapeEntry(Kind.SYSTEM, {"content": content}, meta)


def error(kind: str, text: str, **details: Any) -> TapeEntry:
    """Build an error entry; `kind` is the stable word of the error class."""
    return TapeEntry(Kind.ERROR, {"kind": kind, "message": text, **details})
