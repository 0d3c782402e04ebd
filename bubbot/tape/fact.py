"""Facts: one class is an event's payload, validator, references, part of a checkpoint and documentation.

The tape keeps the payload as it was written. `Fact.of` reads it typed and ignores fields that this version does not
know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar, dataclass_transform, get_args

import msgspec
from msgspec import Struct

from bubbot.errors import TapeCorrupt
from bubbot.tape.entry import JsonObject, TapeEntry, event, thaw
from bubbot.tape.provenance import Source, source_of

PersonalFields: TypeAlias = Mapping[str, tuple[str, ...]]
"""The fields that are of a person alone, by the path of the field that names the person."""


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Fact(Struct, frozen=True):
    """The payload of an event, or of an event and of the one that revokes it. Subclasses are frozen, too.

    Give a field a default if older tapes lack it, and `UNSET` if a payload may leave it out. No field may be called
    `subject`, `payload`, `to_entry`, `of`, `try_of`, `upgrade`, `personal_data` or `quoted_texts`.

    Attributes:
        EVENTS: the names on the tape, which never change. The second one revokes the first one.
        PERSONAL: by the path of each field that names a person, the fields that are of this person and nobody else: what
            the person gets of it who asks for everything about them.
    """

    EVENTS: ClassVar[tuple[str, ...]] = ()
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({})

    @classmethod
    def of(cls, entry: TapeEntry) -> Self:
        """Read the payload of an entry. Raise `TapeCorrupt` if it does not have this shape."""
        try:
            return msgspec.convert(cls.upgrade(entry.data), cls)
        except msgspec.ValidationError as error:
            raise TapeCorrupt(f"entry #{entry.id} is not a {entry.name} that can be read: {error}") from error

    @classmethod
    def try_of(cls, entry: TapeEntry) -> Self | None:
        """Read the payload of an entry that anybody may have written; None if it does not have this shape."""
        try:
            return cls.of(entry)
        except TapeCorrupt:
            return None

    @classmethod
    def upgrade(cls, data: JsonObject) -> JsonObject:
        """Translate the payload of an earlier version to the keys of this one."""
        return data

    @property
    def subject(self) -> object:
        """What the fact is about: of several facts about one subject the newest counts."""
        return msgspec.structs.astuple(self)

    def payload(self) -> dict[str, Any]:
        """Return the data to append, in the order of the class's fields, without `UNSET` ones."""
        data: dict[str, Any] = msgspec.to_builtins(self, enc_hook=_thaw_object)
        return data

    def personal_data(self, path: str) -> dict[str, Any]:
        """Return what is of the person that the field at this path names; nothing if it is not declared."""
        data = self.payload()
        return {name: data[name] for name in self.PERSONAL.get(path, ()) if name in data}

    def quoted_texts(self) -> Iterator[tuple[Sequence[Any], str]]:
        """Yield what it quotes word for word of other entries: tape and id of each, and the text."""
        return iter(())

    def to_entry(self, name: str = "", /, *, key: str | None = None, **meta: Any) -> TapeEntry:
        """Make the entry to append.

        Args:
            name: one of `EVENTS`; empty for the first one.
            key: see `TapeEntry`.
        """
        return event(name or self.EVENTS[0], self.payload(), key=key, **meta)


def _thaw_object(value: object) -> Any:
    """Copy a frozen JSON object, which msgspec does not know. Raise `NotImplementedError` for other types."""
    if isinstance(value, MappingProxyType):
        return thaw(value)
    raise NotImplementedError(f"{type(value).__name__} is not JSON")


F = TypeVar("F", bound=Fact)
S = TypeVar("S", bound=Struct)


def models_of(*facts: type[Fact]) -> dict[str, type[Fact]]:
    """Return the facts' classes by the names of their events. Raise `ValueError` if two share a name."""
    found: dict[str, type[Fact]] = {}
    for fact in facts:
        for name in fact.EVENTS:
            if name in found:
                raise ValueError(f"{name} is a name of {found[name].__name__} and of {fact.__name__}")
            found[name] = fact
    return found


class Cited(Generic[F]):
    """A fact with its place on the tape. A checkpoint stores only its id, so no words of people get into one.

    Attributes:
        id: the entry's.
        date: when it was stored, ISO 8601 in UTC.
        source: whose words it is made of.
        is_revoked: the entry has the fact's second name, which revokes it.
    """

    __slots__ = ("date", "fact", "id", "is_revoked", "source")

    def __init__(
        self,
        fact: F,
        id: int = 0,  # noqa: A002 - the field's name
        date: str = "",
        source: Source = Source.OWN,
        *,
        is_revoked: bool = False,
    ) -> None:
        self.fact, self.id, self.date, self.source, self.is_revoked = fact, id, date, source, is_revoked

    @classmethod
    def of(cls, kind: type[F], entry: TapeEntry) -> Cited[F]:
        """Read an entry. Raise `TapeCorrupt` as `Fact.of` does."""
        is_revoked = entry.name in kind.EVENTS[1:]
        return cls(kind.of(entry), entry.id, entry.date, source_of(entry), is_revoked=is_revoked)

    @classmethod
    def try_of(cls, kind: type[F], entry: TapeEntry) -> Cited[F] | None:
        """Read an entry that anybody may have written; None as `Fact.try_of` does."""
        try:
            return cls.of(kind, entry)
        except TapeCorrupt:
            return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cited) and (self.id, self.date, self.fact) == (other.id, other.date, other.fact)

    def __hash__(self) -> int:
        return hash((self.id, self.fact))

    def __repr__(self) -> str:
        return f"Cited({self.fact!r}, {self.id})"


class Current(Generic[F]):
    """The facts in force, by subject, in the order of the tape. A fold changes it in place."""

    def __init__(self, facts: Iterable[Cited[F]] = ()) -> None:
        self._by_subject = {cited.fact.subject: cited for cited in facts}

    def __iter__(self) -> Iterator[Cited[F]]:
        return iter(self._by_subject.values())

    def __len__(self) -> int:
        return len(self._by_subject)

    def __contains__(self, subject: object) -> bool:
        return subject in self._by_subject

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Current) and [*self._by_subject.items()] == [*other._by_subject.items()]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Current({[*self]!r})"

    def find(self, subject: object) -> Cited[F] | None:
        """Return the fact about a subject; None if there is none."""
        return self._by_subject.get(subject)

    def put(self, cited: Cited[F]) -> None:
        """Add a fact and remove an earlier one about the same subject."""
        self._by_subject.pop(cited.fact.subject, None)
        self._by_subject[cited.fact.subject] = cited

    def drop(self, subject: object) -> Cited[F] | None:
        """Remove and return the fact about a subject; None if there is none."""
        return self._by_subject.pop(subject, None)

    def drop_if(self, has_ended: Callable[[Cited[F]], bool]) -> None:
        for cited in [cited for cited in self if has_ended(cited)]:
            del self._by_subject[cited.fact.subject]

    def apply(self, cited: Cited[F]) -> None:
        """Put a fact in force; remove the earlier one if the entry revokes it."""
        if cited.is_revoked:
            self.drop(cited.fact.subject)
        else:
            self.put(cited)


class FactState(Struct):
    """A state folded from facts. Subclasses add the fields, each with a default, and the folds.

    A field is a `Current` or `Cited` fact, or plain ids, numbers and times; words of people must not get into a
    checkpoint. `fold` is a `functools.singledispatchmethod` with one function for each class of facts.
    """

    FACTS: ClassVar[tuple[type[Fact], ...]] = ()

    def fold(self, fact: Any, cited: Cited[Any], /) -> None:
        """Change the state by one fact; `cited` has its place on the tape. A fold depends on nothing else."""
        raise NotImplementedError

    def apply(self, entries: Sequence[TapeEntry]) -> Self:
        """Fold these entries in the order of the tape, and return the state. Skip erased entries and other events."""
        kinds, fold = _models(type(self).FACTS), self.fold
        for entry in entries:
            kind = kinds.get(entry.name or "")
            if kind is not None and not entry.erased:
                cited = Cited.of(kind, entry)
                fold(cited.fact, cited)
        return self


@cache
def _models(facts: tuple[type[Fact], ...]) -> Mapping[str, type[Fact]]:
    return models_of(*facts)


def encode_state(state: Struct) -> dict[str, Any]:
    """Build what a checkpoint stores of a state: the ids of its facts, and the other fields as they are."""
    saved: dict[str, Any] = msgspec.to_builtins(state, enc_hook=_cite)
    return saved


def _cite(value: object) -> Any:
    if isinstance(value, Cited):
        return value.id
    return [cited.id for cited in value] if isinstance(value, Current) else _thaw_object(value)


def decode_state(kind: type[S], saved: JsonObject, cited: Sequence[TapeEntry]) -> S:
    """Read a state with the entries that it cites.

    Raises:
        LookupError: a cited entry is missing.
        TapeCorrupt: a cited entry is another fact than the field declares.
        msgspec.ValidationError: `saved` does not have the shape of the state.
    """
    entries = {entry.id: entry for entry in cited}

    def load(annotation: Any, value: Any) -> Any:
        if not _is_current(annotation):
            return _cite_as(annotation, entries[value])
        return Current(_cite_as(annotation, entries[number]) for number in value)

    return msgspec.convert(saved, kind, dec_hook=load)


def _cite_as(annotation: Any, entry: TapeEntry) -> Cited[Any]:
    """Read an entry as the fact of an annotation such as `Current[Audit]`, or, if it names several facts, as the one
    with the entry's name.
    """
    (fact,) = get_args(annotation)
    kinds = get_args(fact) or (fact,)
    return Cited.of(next((kind for kind in kinds if entry.name in kind.EVENTS), kinds[0]), entry)


def find_cited(kind: type[Struct], saved: JsonObject) -> list[int]:
    """Return the ids of the entries that a saved state cites. Raise `msgspec.ValidationError` like `decode_state`."""
    found: list[int] = []

    def collect(annotation: Any, value: Any) -> Any:
        found.extend(value if _is_current(annotation) else [value])
        return Current() if _is_current(annotation) else Cited(Fact())

    msgspec.convert(saved, kind, dec_hook=collect)
    return found


def _is_current(annotation: Any) -> bool:
    return getattr(annotation, "__origin__", None) is Current
