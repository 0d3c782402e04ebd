"""Tapes as JSON lines: what `bubbot tape export` writes and `bubbot tape import` reads, and what Bub keeps.

Each exported line carries a `hash`: SHA-256 over the hash of the line before it (64 zeros at first) and the line's
own values. It is computed anew for every file. The chain in the database covers a salt that erasure removes and that
no file may hold, so it could not be checked from the file alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bubbot.errors import EntryInvalid
from bubbot.tape.entry import EMPTY_OBJECT, Kind, TapeEntry, encode, event, thaw, timestamp

NO_HASH = "0" * 64
"""The hash before the first line."""
UNREADABLE = "tape/unreadable"
"""The event that a repair puts in the place of a line it could not read."""
CLOSED_ANCHOR = "tape/anchor"
"""The event that stands, in a file for Bub, for an anchor that opens no window: Bub takes every anchor for one that does."""
IMPORTED_ERASED = "imported_erased"
"""The key of meta that marks an imported entry whose content was erased where it came from."""

_KNOWN = ("id", "kind", "payload", "meta", "date", "key", "hash", "erased", "timestamp")
_LOOKS_LIKE_HASH = re.compile(r"[0-9a-fA-F]{60,68}")
_WHITE = b" \t\r\n"


def fields(entry: TapeEntry) -> dict[str, Any]:
    """The entry as the object of its line, without a hash."""
    head: dict[str, Any] = {"id": entry.id, "kind": str(entry.kind)}
    if _was_erased(entry):
        data = {**head, "date": entry.date, "erased": True}
    else:
        data = {**head, "payload": thaw(entry.payload), "meta": thaw(entry.meta), "date": entry.date}
    return data | ({"key": entry.key} if entry.key is not None else {})


def for_bub(entry: TapeEntry) -> TapeEntry:
    """Put an event in the place of an anchor that opens no window; `read_lines` makes it the anchor again."""
    if entry.kind != Kind.ANCHOR or entry.opens_window or _was_erased(entry):
        return entry
    return replace(entry, kind=Kind.EVENT, payload={"name": CLOSED_ANCHOR, "data": entry.payload})


def _not_for_bub(entry: TapeEntry) -> TapeEntry:
    """The anchor that `for_bub` made an event of; any other entry as it is."""
    data = entry.payload.get("data")
    if (
        entry.kind != Kind.EVENT
        or entry.payload != {"name": CLOSED_ANCHOR, "data": data}
        or not isinstance(data, Mapping)
    ):
        return entry
    made = replace(entry, kind=Kind.ANCHOR, payload=data)
    return entry if made.opens_window else made


def _was_erased(entry: TapeEntry) -> bool:
    """Whether it was erased, here or where it was imported from."""
    return entry.erased or (entry.meta.get(IMPORTED_ERASED) is True and entry.payload in ({}, {"window": False}))


def line_hash(previous: str, data: dict[str, Any]) -> str:
    """The hash of a line: over the one before it and the line's values, sorted, without `hash` itself."""
    values = {name: value for name, value in data.items() if name != "hash"}
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return sha256(f"{previous}\n{text}".encode()).hexdigest()


class JsonLineWriter:
    """Makes the lines of one file, one after another."""

    def __init__(self) -> None:
        self._hash = NO_HASH

    def line(self, entry: TapeEntry) -> bytes:
        """The entry's line, with its line feed."""
        data = fields(entry)
        self._hash = line_hash(self._hash, data)
        return f"{encode({**data, 'hash': self._hash})}\n".encode()


class _LineModel(BaseModel):
    """What a line has to be. Everything that real tapes of this format leave out or hold besides is allowed."""

    model_config = ConfigDict(extra="allow", strict=True, hide_input_in_errors=True)

    kind: str = Field(min_length=1)
    payload: dict[str, Any] = Field(default_factory=dict)
    key: str | None = None
    hash: str | None = None
    erased: bool = False


@dataclass(frozen=True, slots=True)
class ImportProblem:
    """A line that cannot be trusted or read: its number, why, and its bytes as they are in the file."""

    number: int
    reason: str
    raw: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What a file holds. `entries` have the ids 1, 2, 3 …; a problem has an event of its own in its place.

    `renumbered` counts the entries that had another id in the file, `unhashed` the readable lines that no hash
    vouches for.
    """

    entries: tuple[TapeEntry, ...]
    problems: tuple[ImportProblem, ...]
    renumbered: int = 0
    erased: int = 0
    unhashed: int = 0


def read_lines(lines: Iterable[bytes], *, date: str = "") -> ImportResult:
    """Reads a whole file, given as its lines with their line feeds; `date` is that of events for unreadable ones.

    Raises nothing: what is wrong is a `ImportProblem`.
    """
    reader = _LineReader(date)
    entries: list[TapeEntry] = []
    for number, raw in enumerate(lines, 1):
        text = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        if text.strip(_WHITE):
            entries.append(reader.entry(number, text, raw, len(entries) + 1))
    return ImportResult(tuple(entries), tuple(reader.problems), reader.renumbered, reader.erased, reader.unhashed)


class _UnreadableLine(Exception):
    """Why a line cannot be taken."""


@dataclass
class _LineReader:
    """Reads line by line. `previous` are the hashes the line before may have; empty where that is not known."""

    date: str
    previous: tuple[str, ...] = (NO_HASH,)
    hashed: bool | None = None
    renumbered: int = 0
    erased: int = 0
    unhashed: int = 0
    problems: list[ImportProblem] = field(default_factory=list)
    keys: dict[str, int] = field(default_factory=dict)

    def entry(self, number: int, text: bytes, raw: bytes, place: int) -> TapeEntry:
        """The entry of a line at its place on the tape, or the event that stands for it."""
        previous, self.previous = self.previous, ()
        try:
            data = _parsed(text)
            self._check_hash(data, previous)
            made = _entry(data)
            self._check_key(made.key, number)
        except _UnreadableLine as why:
            self.problems.append(ImportProblem(number, str(why), raw))
            stands = event(UNREADABLE, {"line": number, "sha256": sha256(raw).hexdigest()})
            return stands.stamped(EMPTY_OBJECT, self.date).stored(place)
        self.erased += made.meta.get(IMPORTED_ERASED) is True
        given = data.get("id")
        if given == place and type(given) is int:
            return made.stored(place)
        self.renumbered += 1
        meta = {**made.meta, "imported_id": given} if "id" in data else made.meta
        return replace(made, meta=meta, id=place)

    def _check_hash(self, data: dict[str, Any], previous: tuple[str, ...]) -> None:
        """Compares the line with its hash; every line has one, or none has."""
        given = data.get("hash")
        if given is None and any(name not in _KNOWN and _like_a_hash(value) for name, value in data.items()):
            raise _UnreadableLine("one of its fields looks like a hash under another name: it was altered")
        if self.hashed is None:
            self.hashed = given is not None
        if not self.hashed:
            if given is not None:
                raise _UnreadableLine("it has a hash, which the lines before it do not have")
            self.unhashed += 1
            return
        if not isinstance(given, str):
            raise _UnreadableLine("its hash is missing: it was altered, or it comes from another file")
        due = [line_hash(one, data) for one in previous]
        self.previous = (given, *due)  # where the hash itself was altered, the next line still follows from the content
        if not due:
            self.unhashed += 1
        elif given not in due:
            raise _UnreadableLine("its hash is not that of its content: it was altered, or lines before it are missing")

    def _check_key(self, key: str | None, number: int) -> None:
        if key is None:
            return
        if key in self.keys:
            raise _UnreadableLine(f"its key {key!r} is that of line {self.keys[key]}")
        self.keys[key] = number


def _like_a_hash(value: object) -> bool:
    return isinstance(value, str) and _LOOKS_LIKE_HASH.fullmatch(value) is not None


def _parsed(text: bytes) -> dict[str, Any]:
    """The object of a line."""
    try:
        data = json.loads(text.decode(), object_pairs_hook=_object, parse_constant=_no_number)
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


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        raise _UnreadableLine(
            f"the name {next(name for name in names if names.count(name) > 1)!r} is in one object twice"
        )
    return made


def _no_number(word: str) -> Any:
    raise _UnreadableLine(f"it holds {word}, which is no JSON number")


def _entry(data: dict[str, Any]) -> TapeEntry:
    """The entry of a line's object, without its id. Contracts of kinds are not checked; odd parts go into meta."""
    try:
        line = _LineModel.model_validate({name: value for name, value in data.items() if name != "date"})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise _UnreadableLine(f"its {'.'.join(map(str, first['loc']))} is wrong ({first['msg']})") from error
    date, odd = _date(data)
    meta = data.get("meta")
    extra = {name: value for name, value in data.items() if name not in _KNOWN}
    if meta is not None and not isinstance(meta, dict):
        extra["meta"] = meta
    kept = {"imported_date": odd} if odd is not None else {}
    kept |= {"imported_fields": extra} if extra else {}
    kept |= {IMPORTED_ERASED: True} if line.erased else {}
    payload = line.payload
    if line.erased:
        if payload or meta:
            raise _UnreadableLine("it says that it was erased and still has content")
        payload = {"window": False} if line.kind == Kind.ANCHOR else {}
    elif "payload" not in data:
        raise _UnreadableLine("its payload is missing")
    try:
        entry = TapeEntry(line.kind, payload, {**(meta if isinstance(meta, dict) else {}), **kept}, date, line.key)
        return _not_for_bub(entry)
    except (EntryInvalid, RecursionError) as error:
        raise _UnreadableLine(f"it cannot be stored ({error})") from error


def _date(data: dict[str, Any]) -> tuple[str, Any]:
    """The date as text, and the value it was made from where that is not the same; no date is an empty text."""
    given = data.get("date")
    if isinstance(given, str):
        return given, data.get("timestamp")
    if given is None:
        given = data.get("timestamp")
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        try:
            return timestamp(datetime.fromtimestamp(given, UTC)), given
        except (OverflowError, OSError, ValueError):
            return "", given
    return "", given
