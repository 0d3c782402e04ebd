"""Tapes as JSON lines: the format of `bubbot tape export`, `bubbot tape import` and Bub.

Each exported line carries a `hash`: SHA-256 over the hash of the line before it (64 zeros at first) and the line's own
values. It is computed again for every file. The chain in the database covers a salt, which erasure removes and no file
may contain, so a file alone could not be checked against it.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bubbot.errors import EntryInvalid
from bubbot.tape.entry import EMPTY_OBJECT, Kind, TapeEntry, encode, thaw, timestamp
from bubbot.tape.events import UnreadableLine

NO_HASH = "0" * 64
"""The hash before the first line."""
CLOSED_ANCHOR = "tape/anchor"
"""The event that replaces an anchor without a window in a file for Bub, for which every anchor opens one."""
IMPORTED_ERASED = "imported_erased"
"""The key of meta that marks an imported entry whose content was erased at its origin."""

_FIELDS = ("id", "kind", "payload", "meta", "date", "key", "hash", "erased", "timestamp")
_LOOKS_LIKE_HASH = re.compile(r"[0-9a-fA-F]{60,68}")
_WHITE = b" \t\r\n"


def line_fields(entry: TapeEntry) -> dict[str, Any]:
    """Build the object of an entry's line, without a hash."""
    head: dict[str, Any] = {"id": entry.id, "kind": str(entry.kind)}
    if _was_erased(entry):
        data = {**head, "date": entry.date, "erased": True}
    else:
        data = {**head, "payload": thaw(entry.payload), "meta": thaw(entry.meta), "date": entry.date}
    return data | ({"key": entry.key} if entry.key is not None else {})


def to_bub(entry: TapeEntry) -> TapeEntry:
    """Replace an anchor that opens no window by an event; `read_lines` restores it."""
    if entry.kind != Kind.ANCHOR or entry.opens_window or _was_erased(entry):
        return entry
    return replace(entry, kind=Kind.EVENT, payload={"name": CLOSED_ANCHOR, "data": entry.payload})


def _from_bub(entry: TapeEntry) -> TapeEntry:
    """Restore the anchor that `to_bub` replaced; return any other entry unchanged."""
    data = entry.payload.get("data")
    if (
        entry.kind != Kind.EVENT
        or entry.payload != {"name": CLOSED_ANCHOR, "data": data}
        or not isinstance(data, Mapping)
    ):
        return entry
    anchor = replace(entry, kind=Kind.ANCHOR, payload=data)
    return entry if anchor.opens_window else anchor


def _was_erased(entry: TapeEntry) -> bool:
    """Return true if the entry was erased here or at the home of its export."""
    return entry.erased or (entry.meta.get(IMPORTED_ERASED) is True and entry.payload in ({}, {"window": False}))


def line_hash(previous: str, data: dict[str, Any]) -> str:
    """Hash a line: the hash of the line before it and this line's values, sorted, without `hash` itself."""
    values = {name: value for name, value in data.items() if name != "hash"}
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return sha256(f"{previous}\n{text}".encode()).hexdigest()


class JsonLineWriter:
    """The lines of one file, written one after another and chained by their hashes."""

    def __init__(self) -> None:
        self._hash = NO_HASH

    def encode_line(self, entry: TapeEntry) -> bytes:
        """Encode the entry's line, with its line feed."""
        data = line_fields(entry)
        self._hash = line_hash(self._hash, data)
        return f"{encode({**data, 'hash': self._hash})}\n".encode()


class _LineModel(BaseModel):
    """The schema of a line. Missing and further fields are allowed: real tapes have both."""

    model_config = ConfigDict(extra="allow", strict=True, hide_input_in_errors=True, defer_build=True)

    kind: str = Field(min_length=1)
    payload: dict[str, Any] = Field(default_factory=dict)
    key: str | None = None
    hash: str | None = None
    erased: bool = False


@dataclass(frozen=True, slots=True)
class ImportProblem:
    """A line that cannot be trusted or read.

    Attributes:
        number: the line's number, from 1.
        raw: its bytes in the file.
    """

    number: int
    reason: str
    raw: bytes = field(repr=False)


class ImportResult(Struct, frozen=True):
    """The content of a file.

    Attributes:
        entries: with the ids 1, 2, 3 …; an event replaces each problem.
        problems: the lines that cannot be read or trusted.
        renumbered: the number of entries with another id in the file.
        erased: the number of entries erased before the export.
        unhashed: the number of readable lines that no hash confirms.
    """

    entries: tuple[TapeEntry, ...]
    problems: tuple[ImportProblem, ...]
    renumbered: int = 0
    erased: int = 0
    unhashed: int = 0

    @property
    def has_entries(self) -> bool:
        """True if the file held a readable entry; events for problems do not count."""
        return len(self.entries) > len(self.problems)


def read_lines(lines: Iterable[bytes], *, date: str = "") -> ImportResult:
    """Read a complete file, passed as its lines with their line feeds.

    `date` is the date of events for unreadable lines. It raises nothing: a wrong line becomes an `ImportProblem`.
    """
    reader = _LineReader(date)
    entries: list[TapeEntry] = []
    for number, raw in enumerate(lines, 1):
        text = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        if text.strip(_WHITE):
            entries.append(reader.entry(number, text, raw, len(entries) + 1))
    return ImportResult(tuple(entries), tuple(reader.problems), reader.renumbered, reader.erased, reader.unhashed)


class _UnreadableLine(Exception):
    """The reason why a line is refused."""


@dataclass
class _LineReader:
    """The state of a reader that goes line by line.

    Attributes:
        date: of the events that replace unreadable lines.
        previous: the possible hashes of the line before; empty if unknown.
        hashed: true if the lines of this file have hashes; None before the first line.
        renumbered: a count, as in `ImportResult`.
        erased: a count, as in `ImportResult`.
        unhashed: a count, as in `ImportResult`.
        problems: the refused lines so far.
        keys: the keys so far, each with the number of its line.
    """

    date: str
    previous: tuple[str, ...] = (NO_HASH,)
    hashed: bool | None = None
    renumbered: int = 0
    erased: int = 0
    unhashed: int = 0
    problems: list[ImportProblem] = field(default_factory=list)
    keys: dict[str, int] = field(default_factory=dict)

    def entry(self, number: int, text: bytes, raw: bytes, place: int) -> TapeEntry:
        """Read the entry of a line for its place on the tape, or build the event that replaces it."""
        possible_hashes, self.previous = self.previous, ()
        try:
            data = _parse(text)
            self._check_hash(data, possible_hashes)
            entry = _entry(data)
            self._check_key(entry.key, number)
        except _UnreadableLine as reason:
            self.problems.append(ImportProblem(number, str(reason), raw))
            replacement = UnreadableLine(number, sha256(raw).hexdigest()).to_entry()
            return replacement.with_meta(EMPTY_OBJECT, self.date).with_id(place)
        self.erased += entry.meta.get(IMPORTED_ERASED) is True
        file_id = data.get("id")
        if file_id == place and type(file_id) is int:
            return entry.with_id(place)
        self.renumbered += 1
        meta = {**entry.meta, "imported_id": file_id} if "id" in data else entry.meta
        return replace(entry, meta=meta, id=place)

    def _check_hash(self, data: dict[str, Any], possible_hashes: tuple[str, ...]) -> None:
        """Compare the line with its hash; either every line has one or none has."""
        stored_hash = data.get("hash")
        if stored_hash is None and any(name not in _FIELDS and _looks_like_hash(value) for name, value in data.items()):
            raise _UnreadableLine("one of its fields looks like a hash under another name: it was altered")
        if self.hashed is None:
            self.hashed = stored_hash is not None
        if not self.hashed:
            if stored_hash is not None:
                raise _UnreadableLine("it has a hash, which the lines before it do not have")
            self.unhashed += 1
            return
        if not isinstance(stored_hash, str):
            raise _UnreadableLine("its hash is missing: it was altered, or it comes from another file")
        expected = [line_hash(previous, data) for previous in possible_hashes]
        # Keep both: if the hash itself was altered, the next line still follows from the content.
        self.previous = (stored_hash, *expected)
        if not expected:
            self.unhashed += 1
        elif stored_hash not in expected:
            raise _UnreadableLine("its hash is not that of its content: it was altered, or lines before it are missing")

    def _check_key(self, key: str | None, number: int) -> None:
        if key is None:
            return
        if key in self.keys:
            raise _UnreadableLine(f"its key {key!r} is that of line {self.keys[key]}")
        self.keys[key] = number


def _looks_like_hash(value: object) -> bool:
    return isinstance(value, str) and _LOOKS_LIKE_HASH.fullmatch(value) is not None


def _parse(text: bytes) -> dict[str, Any]:
    """Parse the object of a line."""
    try:
        data = json.loads(text.decode(), object_pairs_hook=_unique_names, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise _UnreadableLine(f"it is not UTF-8 (byte {error.start + 1})") from error
    except json.JSONDecodeError as error:
        cut = "" if text.endswith(b"\n") else "; the file ends within it"
        raise _UnreadableLine(f"it is not JSON ({error.msg}, column {error.colno}{cut})") from error
    except (ValueError, RecursionError) as error:
        raise _UnreadableLine(f"it cannot be read ({error})") from error
    if not isinstance(data, dict):
        raise _UnreadableLine("it is not a JSON object")
    try:
        encode(data).encode()
    except (UnicodeEncodeError, ValueError, RecursionError) as error:
        raise _UnreadableLine("it holds text or a number that cannot be stored") from error
    return data


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        raise _UnreadableLine(
            f"the name {next(name for name in names if names.count(name) > 1)!r} is in one object twice"
        )
    return result


def _refuse_constant(word: str) -> Any:
    raise _UnreadableLine(f"it holds {word}, which is not a JSON number")


def _entry(data: dict[str, Any]) -> TapeEntry:
    """Build the entry of a line's object, without its id.

    Contracts of kinds are not checked; unusual fields go into meta.
    """
    try:
        line = _LineModel.model_validate({name: value for name, value in data.items() if name != "date"})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise _UnreadableLine(f"its {'.'.join(map(str, first['loc']))} is wrong ({first['msg']})") from error
    date, original_date = _date(data)
    meta = data.get("meta")
    extra = {name: value for name, value in data.items() if name not in _FIELDS}
    if meta is not None and not isinstance(meta, dict):
        extra["meta"] = meta
    notes = {"imported_date": original_date} if original_date is not None else {}
    notes |= {"imported_fields": extra} if extra else {}
    notes |= {IMPORTED_ERASED: True} if line.erased else {}
    payload = line.payload
    if line.erased:
        if payload or meta:
            raise _UnreadableLine("it says that it was erased and still has content")
        payload = {"window": False} if line.kind == Kind.ANCHOR else {}
    elif "payload" not in data:
        raise _UnreadableLine("its payload is missing")
    try:
        entry = TapeEntry(line.kind, payload, {**(meta if isinstance(meta, dict) else {}), **notes}, date, line.key)
        return _from_bub(entry)
    except (EntryInvalid, RecursionError) as error:
        raise _UnreadableLine(f"it cannot be stored ({error})") from error


def _date(data: dict[str, Any]) -> tuple[str, Any]:
    """Return the date as text, and the original value if it differs; a missing date is an empty text."""
    value = data.get("date")
    if isinstance(value, str):
        return value, data.get("timestamp")
    if value is None:
        value = data.get("timestamp")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return timestamp(datetime.fromtimestamp(value, UTC)), value
        except (OverflowError, OSError, ValueError):
            return "", value
    return "", value
