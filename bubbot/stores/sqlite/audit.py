"""Checking a database against itself: hash chains, names, copied columns, erasures, blobs and triggers."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bubbot.errors import EntryInvalid
from bubbot.stores.sqlite.names import (
    TapeNameRow,
    imported_heads,
    is_older,
    missing_blobs,
    name_fact,
    payload_data,
    tape_ends,
    tape_names,
)
from bubbot.stores.sqlite.rows import microseconds
from bubbot.stores.sqlite.schema import NAMED_SINCE, check_version, wrong_triggers
from bubbot.tape.blobs import digest_of
from bubbot.tape.chain import GENESIS, AuditFinding, StoredLink, audit, deployment_head, genesis, link, older_head
from bubbot.tape.entry import TapeEntry
from bubbot.tape.erasure import BLOB_REMOVED, NAMED, RENAMED, TAPE_ERASED, is_rename
from bubbot.tape.query import moment

_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class DeploymentAudit:
    """What an audit found, how much it read, and the deployment's head. `triggers`: the names of those that are missing
    or changed: without them the database does not refuse to lose history."""

    tapes: int
    entries: int
    findings: tuple[AuditFinding, ...]
    head: str
    triggers: tuple[str, ...] = ()

    @property
    def damage(self) -> tuple[AuditFinding, ...]:
        """The findings that should not be there: all but erasures."""
        return tuple(one for one in self.findings if one.what != "erased")


def audit_all(conn: sqlite3.Connection, only: str | None = None) -> DeploymentAudit:
    """Checks one tape or all, from one state of the database."""
    conn.execute("BEGIN")
    try:
        checked = _AuditRun(conn, _holds_names(conn), tape_names(conn))
        tapes = [tape for tape in checked.names if only is None or tape.name == only]
        findings = [finding for tape in tapes for finding in checked.chain(tape)]
        findings += [finding for tape in tapes for finding in checked.rest(tape)]
        if only is None:
            findings += checked.whole(gaps=any(one.what == "missing" for one in findings))
        count = sum(_count(conn, tape.number) for tape in tapes)
        return DeploymentAudit(len(tapes), count, tuple(findings), head_at(conn), wrong_triggers(conn))
    finally:
        conn.execute("COMMIT")


def _holds_names(conn: sqlite3.Connection) -> bool:
    """Whether tapes are held to their names: by the version, or by facts that no older version wrote."""
    facts = conn.execute("SELECT 1 FROM entries WHERE kind = 'event' AND name IN (?, ?) LIMIT 1", (NAMED, RENAMED))
    return check_version(conn) >= NAMED_SINCE or facts.fetchone() is not None


def _count(conn: sqlite3.Connection, number: int) -> int:
    row = conn.execute("SELECT count(*) FROM entries INDEXED BY entries_id WHERE tape = ?", (number,)).fetchone()
    return int(row[0])


@dataclass
class _CoveredIds:
    """The ids of one tape that one fact covers."""

    fact: int
    low: int
    high: int


@dataclass
class _AuditRun:
    """One audit. `named`: whether the database is of a version that holds tapes to their names, and erasures to facts."""

    conn: sqlite3.Connection
    named: bool
    names: list[TapeNameRow]
    covers: dict[int, list[_CoveredIds]] = field(init=False)
    removed: set[str] = field(init=False)
    imported: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.imported = imported_heads(self.conn)
        self.covers = defaultdict(list)
        self.removed = set()
        owners = {tape.number: tape for tape in self.names}
        rows = self.conn.execute(
            "SELECT seq, tape, id, name, payload FROM entries WHERE kind = 'event' AND name IN (?, ?) "
            "AND payload IS NOT NULL",
            (TAPE_ERASED, BLOB_REMOVED),
        )
        for seq, number, entry_id, name, payload in rows:
            owner = owners.get(number)
            if owner is None or entry_id <= self.imported.get(owner.first, 0):
                continue  # what an import brought is about another home, or an earlier tape
            data = payload_data(payload)
            if name == BLOB_REMOVED:
                self.removed.update(one for one in _list(data.get("digests")) if isinstance(one, str))
            else:
                self._add(seq, data.get("covers"))

    def _add(self, fact: int, covers: object) -> None:
        for name, spans in covers.items() if isinstance(covers, Mapping) else ():
            for tape in self.names:
                if tape.began <= fact and tape.at(fact) == name:
                    self.covers[tape.number] += [_CoveredIds(fact, low, high) for low, high in _spans(spans)]

    def chain(self, tape: TapeNameRow) -> Iterator[AuditFinding]:
        """The hash chain, from the name on, and the content of every entry."""
        start, wrong = self._start(tape)
        rows = self.conn.execute(
            "SELECT entries.id, kind, date, key, payload, meta, salt, digest, chain, fact FROM entries "
            "INDEXED BY entries_id LEFT JOIN erased ON erased.tape = entries.tape AND erased.id = entries.id "
            "WHERE entries.tape = ? ORDER BY entries.id",
            (tape.number,),
        )
        if wrong:
            yield AuditFinding(tape.name, 0, "renamed", wrong)
        yield from audit(tape.name, self._covered(tape, rows), start)

    def _covered(self, tape: TapeNameRow, rows: Iterable[tuple[Any, ...]]) -> Iterator[StoredLink]:
        """The rows, without facts that do not cover them."""
        before = self._erased_before(tape)
        spans: dict[int, list[_CoveredIds]] = defaultdict(list)
        for cover in self.covers.get(tape.number, ()):
            spans[cover.fact].append(cover)
        for row in rows:
            entry_id, fact = row[0], row[9]
            if fact is not None and self.named and entry_id not in before:
                fact = fact if any(one.low <= entry_id <= one.high for one in spans[fact]) else None
            yield StoredLink(*(*row[:9], fact))

    def _erased_before(self, tape: TapeNameRow) -> set[int]:
        """What was erased before facts said what they cover."""
        fact = name_fact(self.conn, tape.number) if self.named else None
        found: set[int] = set()
        for low, high in _spans(fact[1].get("erased")) if fact else ():
            found.update(range(low, high + 1))
        return found

    def _start(self, tape: TapeNameRow) -> tuple[bytes, str]:
        """The chain value before the first entry, and what is wrong with the name; nothing if all is well."""
        if not self.named:
            return GENESIS, ""
        first = self.conn.execute(
            "SELECT kind, date, key, digest, chain FROM entries INDEXED BY entries_id WHERE tape = ? AND id = 1",
            (tape.number,),
        ).fetchone()
        fact = name_fact(self.conn, tape.number)
        told = fact[1] if fact else {}
        newest = self.conn.execute(
            "SELECT kind, payload FROM entries INDEXED BY entries_id WHERE tape = ? ORDER BY id DESC LIMIT 1",
            (tape.number,),
        ).fetchone()
        aside = (told.get("name"), told.get("from")) == (tape.name, tape.archived_from)
        if newest and tape.archived_from is not None and not aside:
            payload = {"name": "tape/renamed", "data": payload_data(newest[1])}
            aside = is_rename(newest[0], payload, tape.first, tape.name) and _named(newest[1])
        archived = "" if tape.archived_from is None or aside else "no entry at its end says that it is an archive"
        if first is None:
            return genesis(tape.first), archived
        if is_older(self.conn, tape.number):
            if aside if "from" in told else told.get("name") == tape.first:
                return GENESIS, archived
            return GENESIS, f"its facts say that it is {told['name']}" if "name" in told else "no fact says its name"
        names = {one for tape in self.names for one in (tape.first, tape.name)}
        for name in sorted(names, key=lambda one: one != tape.first):
            kind, date, key, digest, chain = first
            if link(genesis(name), entry_id=1, kind=kind, date=date, key=key, digest=digest) == chain:
                wrong = "" if name == tape.first else f"it began under the name {name}"
                return genesis(name), wrong or archived
        return genesis(tape.first), archived

    def rest(self, tape: TapeNameRow) -> Iterator[AuditFinding]:
        """Copied columns, order, erasures and blobs of a tape."""
        yield from _disorder(self.conn, tape)
        if self.named:
            yield from self._erasures(tape)
        yield from self._blobs(tape)

    def _erasures(self, tape: TapeNameRow) -> Iterator[AuditFinding]:
        """Ids that facts cover and that were not erased; rows of erasures without their entry."""
        for cover in self.covers.get(tape.number, ()):
            rows = self.conn.execute(
                "SELECT entries.id FROM entries INDEXED BY entries_id LEFT JOIN erased USING (tape, id) "
                "WHERE entries.tape = ? AND entries.id BETWEEN ? AND ? AND erased.fact IS NULL",
                (tape.number, cover.low, cover.high),
            )
            for (entry_id,) in rows:
                detail = f"the fact at position {cover.fact} says that it was erased, and it was not"
                yield AuditFinding(tape.name, entry_id, "altered", detail)
        full = self.conn.execute(
            "SELECT erased.id FROM erased JOIN entries USING (tape, id) WHERE erased.tape = ? AND payload IS NOT NULL",
            (tape.number,),
        )
        for (entry_id,) in full:
            yield AuditFinding(tape.name, entry_id, "altered", "it is listed as erased, and its content is there")
        lone = self.conn.execute(
            "SELECT id FROM erased WHERE tape = ? AND NOT EXISTS "
            "(SELECT 1 FROM entries WHERE entries.tape = erased.tape AND entries.id = erased.id)",
            (tape.number,),
        )
        for (entry_id,) in lone:
            yield AuditFinding(tape.name, entry_id, "altered", "it is listed as erased, and there is no such entry")

    def _blobs(self, tape: TapeNameRow) -> Iterator[AuditFinding]:
        for digest, data in self.conn.execute("SELECT digest, data FROM blobs WHERE tape = ?", (tape.number,)):
            if not isinstance(data, bytes) or digest_of(data) != digest:
                yield AuditFinding(tape.name, 0, "altered", f"the blob {digest} is not what was stored")
        if self.named:
            fact = name_fact(self.conn, tape.number)
            known = self.removed.union(_list(fact[1].get("missing_blobs")) if fact else ())
            for digest, entry_id in missing_blobs(self.conn, tape, self.imported.get(tape.first, 0)).items():
                if digest not in known:
                    yield AuditFinding(tape.name, entry_id, "missing", f"the blob {digest} that it cites is gone")

    def whole(self, *, gaps: bool) -> Iterator[AuditFinding]:
        """What belongs to no single tape: rows of tapes that are not there, and positions."""
        for table in ("entries", "erased", "blobs"):
            rows = self.conn.execute(
                f"SELECT tape, count(*) FROM {table} WHERE tape NOT IN (SELECT tape FROM tapes) GROUP BY tape"
            )
            for number, count in rows:
                yield AuditFinding(
                    f"tape {number}", 0, "missing", f"it is not listed any more; {table} has {count} rows of it"
                )
        low, high, count = self.conn.execute(
            "SELECT coalesce(min(seq), 1), coalesce(max(seq), 0), count(*) FROM entries"
        ).fetchone()
        if not gaps and (low != 1 or high != count):
            yield AuditFinding("the database", 0, "missing", f"{count} entries have positions from {low} to {high}")


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _spans(value: object) -> Iterator[tuple[int, int]]:
    """The id ranges of a stored list, without what is none."""
    for span in _list(value):
        if len(_list(span)) == 2 and all(type(one) is int for one in span):
            yield span[0], span[1]


def _named(payload: object) -> bool:
    try:
        return isinstance(payload, str) and json.loads(payload).get("name") == "tape/renamed"
    except (ValueError, AttributeError, RecursionError):
        return False


def _disorder(conn: sqlite3.Connection, tape: TapeNameRow) -> Iterator[AuditFinding]:
    """Columns copied out of payload and date that no longer say what these say, and positions against ids."""
    rows = conn.execute(
        "SELECT seq, id, kind, payload, name, opens, at, date FROM entries INDEXED BY entries_id WHERE tape = ? ORDER BY id",
        (tape.number,),
    )
    last = 0
    for seq, entry_id, kind, payload, name, opens, at, date in rows:
        if seq <= last:
            yield AuditFinding(tape.name, entry_id, "altered", "its position is not above that of the entry before it")
        last = seq
        if wrong := _miscopied(kind, payload, name, opens) or _misdated(at, date):
            yield AuditFinding(tape.name, entry_id, "altered", wrong)


def _miscopied(kind: str, payload: str | None, name: object, opens: object) -> str:
    if payload is None:
        return "" if name is None and opens is None else "it was erased, and its name was not"
    if name is None and opens is None and kind not in ("anchor", "event"):
        return ""
    try:
        entry = TapeEntry(kind, json.loads(payload))
        due = entry.name, 1 if entry.opens_window else None
    except (ValueError, TypeError, AttributeError, EntryInvalid, RecursionError):  # its digest has told already
        return ""
    if due[0] != name:
        return "its name is not the one in its payload"
    return "" if due[1] == opens else "whether it opens a window is not what its payload says"


def _misdated(at: object, date: object) -> str:
    try:
        due = moment(date) if isinstance(date, str) else None
        same = at == (None if due is None else microseconds(due))
    except (ValueError, OverflowError):
        same = at is None
    return "" if same else "the number that ranges of dates use is not its date"


def head_at(conn: sqlite3.Connection, position: int | None = None, *, older: bool = False) -> str:
    """Return the deployment head now, or as it was when the newest entry stood at this global position.

    `older`: in the form of databases up to version 2, which did not cover names; such a database has no other.
    """
    if position is None:
        position = conn.execute("SELECT coalesce(max(seq), 0) FROM entries").fetchone()[0]
    position = min(position or 0, _LARGEST)
    form = older_head if older or check_version(conn) < NAMED_SINCE else deployment_head
    return form(position, tape_ends(conn, position))
