"""Audits of a database: hash chains, names, copied columns, erasures and blobs must agree. A store adds what is its own."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any

from bubbot.errors import EntryInvalid
from bubbot.ports.progress import OnProgress, report_each
from bubbot.stores.names import (
    SELECT_FIRST,
    DatabaseRows,
    TapeNameRow,
    imported_heads,
    missing_blobs,
    name_fact,
    payload_data,
    predates_names,
)
from bubbot.stores.rows import microseconds
from bubbot.tape.blobs import blob_digest
from bubbot.tape.chain import (
    GENESIS,
    AuditFinding,
    StoredLink,
    audit,
    chain_value,
    genesis,
)
from bubbot.tape.entry import EMPTY_OBJECT, Kind, TapeEntry
from bubbot.tape.erasure import BLOB_REMOVED, TAPE_ERASED, is_rename
from bubbot.tape.query import parse_moment
from bubbot.tape.service import session_tape

_SESSION_TAPE = re.compile(r"([0-9a-f]{16})__[0-9a-f]{16}")


def _count(conn: DatabaseRows, number: int) -> int:
    row = conn.execute("SELECT count(*) FROM entries INDEXED BY entries_id WHERE tape = ?", (number,)).fetchone()
    return int(row[0])


@dataclass
class _CoveredIds:
    """An inclusive range of ids of one tape that one fact covers."""

    fact: int
    low: int
    high: int


@dataclass
class AuditRun:
    """The state of one audit.

    Attributes:
        conn: in a read transaction.
        checks_names: the database has a version that checks names of tapes and facts of erasures.
        names: every tape of the database.
        covers: the ids that facts of erasures cover, by tape.
        removed: digests of blobs whose removal is recorded.
        imported: the number of imported entries by a tape's first name.
    """

    conn: DatabaseRows
    checks_names: bool
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
            if owner is None or type(entry_id) is not int or entry_id <= self.imported.get(owner.original_name, 0):
                continue  # an imported fact is about another home or an earlier tape
            data = payload_data(payload)
            if name == BLOB_REMOVED:
                self.removed.update(digest for digest in _list(data.get("digests")) if isinstance(digest, str))
            else:
                self._add_covers(seq, data.get("covers"))

    def _add_covers(self, fact: int, covers: object) -> None:
        for name, spans in covers.items() if isinstance(covers, Mapping) else ():
            for tape in self.names:
                if tape.first_position <= fact and tape.name_at(fact) == name:
                    self.covers[tape.number] += [_CoveredIds(fact, low, high) for low, high in _spans(spans)]

    def check_tapes(self, tapes: Sequence[TapeNameRow], on_progress: OnProgress) -> tuple[int, list[AuditFinding]]:
        """Check some tapes; return the number of their entries and the findings. Report entries with checked hashes."""
        counts = [_count(self.conn, tape.number) for tape in tapes]
        count, findings = sum(counts), list[AuditFinding]()
        for tape, before in zip(tapes, accumulate(counts, initial=0), strict=False):
            findings += self.check_chain(tape, partial(report_each, on_progress=on_progress, total=count, start=before))
        findings += [finding for tape in tapes for finding in self.check_content(tape)]
        return count, findings

    def check_chain(
        self, tape: TapeNameRow, report: Callable[[Iterable[tuple[Any, ...]]], Iterable[tuple[Any, ...]]]
    ) -> Iterator[AuditFinding]:
        """Check the hash chain, beginning with the name, and the content of every entry; `report` counts the rows."""
        start, wrong = self._chain_start(tape)
        rows = self.conn.execute(
            "SELECT entries.id, kind, date, key, payload, meta, salt, digest, chain, fact FROM entries "
            "INDEXED BY entries_id LEFT JOIN erased ON erased.tape = entries.tape AND erased.id = entries.id "
            "WHERE entries.tape = ? ORDER BY entries.id",
            (tape.number,),
        )
        if wrong:
            yield AuditFinding(tape.name, 0, "renamed", wrong)
        yield from audit(tape.name, self._with_valid_facts(tape, report(rows)), start)

    def _with_valid_facts(self, tape: TapeNameRow, rows: Iterable[tuple[Any, ...]]) -> Iterator[StoredLink]:
        """Yield the rows; drop a row's fact of erasure if it does not cover the row."""
        erased_before = self._erased_before(tape)
        spans: dict[int, list[_CoveredIds]] = defaultdict(list)
        for cover in self.covers.get(tape.number, ()):
            spans[cover.fact].append(cover)
        for row in rows:
            entry_id, fact = row[0], row[9]
            if fact is not None and self.checks_names and entry_id not in erased_before:
                fact = fact if any(span.low <= entry_id <= span.high for span in spans[fact]) else None
            yield StoredLink(*(*row[:9], fact))

    def _erased_before(self, tape: TapeNameRow) -> set[int]:
        """Return the ids that were erased before facts listed the erased ids."""
        fact = name_fact(self.conn, tape.number) if self.checks_names else None
        ids: set[int] = set()
        for low, high in _spans(fact[1].get("erased")) if fact else ():
            ids.update(range(low, high + 1))
        return ids

    def _chain_start(self, tape: TapeNameRow) -> tuple[bytes, str]:
        """Return the chain value before the first entry, and the problem with the name; empty for none."""
        if not self.checks_names:
            return GENESIS, ""
        first = self.conn.execute(SELECT_FIRST, (tape.number,)).fetchall()
        fact = name_fact(self.conn, tape.number)
        data = fact[1] if fact else {}
        newest = self.conn.execute(
            "SELECT kind, payload FROM entries INDEXED BY entries_id WHERE tape = ? ORDER BY id DESC LIMIT 1",
            (tape.number,),
        ).fetchone()
        names_agree = (data.get("name"), data.get("from")) == (tape.name, tape.archived_from)
        if newest and tape.archived_from is not None and not names_agree:
            payload = {"name": "tape/renamed", "data": payload_data(newest[1])}
            names_agree = is_rename(newest[0], payload, tape.original_name, tape.name) and _is_rename_event(newest[1])
        archived = "" if tape.archived_from is None or names_agree else "no entry at its end says that it is an archive"
        if not first:
            return genesis(tape.original_name), archived
        if predates_names(first):
            if names_agree if "from" in data else data.get("name") == tape.original_name:
                return GENESIS, archived
            return GENESIS, f"its facts say that it is {data['name']}" if "name" in data else "no fact says its name"
        names = {name for tape in self.names for name in (tape.original_name, tape.name)}
        for name in sorted(names, key=lambda name: name != tape.original_name):
            _, kind, date, key, digest, chain = first[0]
            if chain_value(genesis(name), entry_id=1, kind=kind, date=date, key=key, digest=digest) == chain:
                wrong = "" if name == tape.original_name else f"it began under the name {name}"
                return genesis(name), wrong or archived
        return genesis(tape.original_name), archived

    def check_content(self, tape: TapeNameRow) -> Iterator[AuditFinding]:
        """Check the copied columns, order, erasures and blobs of a tape."""
        yield from _check_columns(self.conn, tape)
        if self.checks_names:
            yield from self._check_erasures(tape)
        yield from self._check_blobs(tape)

    def _check_erasures(self, tape: TapeNameRow) -> Iterator[AuditFinding]:
        """Report covered ids that were not erased, and erasures without an entry."""
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

    def read_blobs(self, tape: TapeNameRow) -> Iterator[tuple[str, object]]:
        """Yield digest and bytes of the blobs of a tape."""
        yield from self.conn.execute("SELECT digest, data FROM blobs WHERE tape = ?", (tape.number,))

    def _check_blobs(self, tape: TapeNameRow) -> Iterator[AuditFinding]:
        for digest, data in self.read_blobs(tape):
            if not isinstance(data, bytes) or blob_digest(data) != digest:
                yield AuditFinding(tape.name, 0, "altered", f"the blob {digest} is not what was stored")
        if self.checks_names:
            fact = name_fact(self.conn, tape.number)
            accounted = self.removed.union(_list(fact[1].get("missing_blobs")) if fact else ())
            for digest, entry_id in missing_blobs(self.conn, tape, self.imported.get(tape.original_name, 0)).items():
                if digest not in accounted:
                    yield AuditFinding(tape.name, entry_id, "missing", f"the blob {digest} that it cites is gone")

    def check_database_rows(self, version: int) -> Iterator[AuditFinding]:
        """Check the rows about the database itself: migrations, and the label in the names of session tapes."""
        applied = [row[0] for row in self.conn.execute("SELECT version FROM migrations ORDER BY version")]
        if applied != list(range(1, version + 1)):
            lists = ", ".join(map(str, applied)) or "none"
            detail = f"it has version {version}, and the migrations that it lists are {lists}"
            yield AuditFinding("the database", 0, "missing", detail)
        labels = {found[1] for tape in self.names if (found := _SESSION_TAPE.fullmatch(tape.original_name))}
        row = self.conn.execute("SELECT value FROM deployment WHERE key = 'workspace'").fetchone()
        if labels and row is None:
            yield AuditFinding("the database", 0, "missing", "the label in the names of its sessions' tapes is gone")
        elif labels and _label_in_names(row[0]) not in labels:
            detail = f"its sessions' tapes do not have the label {row[0]!r} in their names"
            yield AuditFinding("the database", 0, "altered", detail)

    def check_lone_rows(self) -> Iterator[AuditFinding]:
        """Check for rows of missing tapes."""
        for table in ("entries", "erased", "blobs"):
            rows = self.conn.execute(
                f"SELECT tape, count(*) FROM {table} WHERE tape NOT IN (SELECT tape FROM tapes) GROUP BY tape"
            )
            for number, count in rows:
                yield AuditFinding(
                    f"tape {number}", 0, "missing", f"it is no longer listed; {table} has {count} rows of it"
                )


def _label_in_names(label: object) -> str:
    """Return the form of the label in the names of tapes; empty if it is invalid."""
    try:
        return session_tape(str(label), "").partition("__")[0]
    except UnicodeEncodeError:  # a damaged page
        return ""


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _spans(value: object) -> Iterator[tuple[int, int]]:
    """Yield the valid id ranges of a stored list."""
    for span in _list(value):
        if len(_list(span)) == 2 and all(type(end) is int for end in span):
            yield span[0], span[1]


def _is_rename_event(payload: object) -> bool:
    try:
        return isinstance(payload, str) and json.loads(payload).get("name") == "tape/renamed"
    except (ValueError, AttributeError, RecursionError):
        return False


def _check_columns(conn: DatabaseRows, tape: TapeNameRow) -> Iterator[AuditFinding]:
    """Check the columns copied from payload and date, and positions against ids."""
    rows = conn.execute(
        "SELECT seq, id, kind, payload, meta, name, opens, at, date FROM entries INDEXED BY entries_id WHERE tape = ? ORDER BY id",
        (tape.number,),
    )
    last = 0
    for seq, entry_id, kind, payload, meta, name, opens, at, date in rows:
        if seq <= last:
            yield AuditFinding(tape.name, entry_id, "altered", "its position is not above that of the entry before it")
        last = seq
        if wrong := _miscopied_column(kind, payload, meta, name, opens) or _wrong_date(at, date):
            yield AuditFinding(tape.name, entry_id, "altered", wrong)


def _miscopied_column(kind: str, payload: str | None, meta: str | None, name: object, opens: object) -> str:
    if payload is None:
        return "" if name is None and opens is None else "it was erased, and its name was not"
    if name is None and opens is None and kind not in ("anchor", "event"):
        return ""
    try:
        entry = TapeEntry(kind, json.loads(payload), json.loads(meta or "{}") if kind == Kind.ANCHOR else EMPTY_OBJECT)
        expected = entry.name, 1 if entry.opens_window else None
    except (ValueError, TypeError, AttributeError, EntryInvalid, RecursionError):  # the digest has reported it already
        return ""
    if expected[0] != name:
        return "its name is not the one in its payload"
    return "" if expected[1] == opens else "whether it opens a window is not what its payload says"


def _wrong_date(at: object, date: object) -> str:
    try:
        expected = parse_moment(date) if isinstance(date, str) else None
        agrees = at == (None if expected is None else microseconds(expected))
    except (ValueError, OverflowError):
        agrees = at is None
    return "" if agrees else "the number that ranges of dates use is not its date"
