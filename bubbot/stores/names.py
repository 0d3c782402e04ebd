"""Present and former names of tapes, and the facts about names and erasures."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from msgspec import Struct

from bubbot.errors import EntryInvalid
from bubbot.tape.blobs import cited_blobs
from bubbot.tape.chain import GENESIS, TapeEnd, chain_value
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.erasure import TAPE_NAMED, TAPE_RENAMED


class RowsOfStatement(Protocol):
    """The rows of a statement, read one after the other."""

    def __iter__(self) -> Iterator[Any]: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class DatabaseRows(Protocol):
    """A connection to a database, in a thread of its own. Statements are those of SQLite, see `bubbot.stores.rows`."""

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> RowsOfStatement: ...


_IMPORTS = "bubbot/imports"
_DIGEST = re.compile(r"[0-9a-f]{64}")


class TapeNameRow(Struct, frozen=True):
    """A row of `tapes`, with positions of two of its entries.

    Attributes:
        number: of the tape.
        name: the current name.
        archived_from: the name before it became an archive; None for other tapes.
        first_position: global position of its first entry; 0 if it has none.
        renamed_position: global position of the entry that gave it the current name; 0 if it always had it.
    """

    number: int
    name: str
    archived_from: str | None
    first_position: int = 0
    renamed_position: int = 0

    @property
    def original_name(self) -> str:
        return self.name if self.archived_from is None else self.archived_from

    def name_at(self, position: int) -> str:
        """Return its name at this global position."""
        return self.name if position >= self.renamed_position else self.original_name


def tape_names(conn: DatabaseRows) -> list[TapeNameRow]:
    """Read every tape of the database, by number."""
    rows = conn.execute(
        "SELECT tape, name, archived_from, (SELECT seq FROM entries INDEXED BY entries_id "
        "WHERE entries.tape = tapes.tape ORDER BY id LIMIT 1), (SELECT CASE WHEN kind = 'event' AND entries.name = ? THEN seq END "
        "FROM entries INDEXED BY entries_id WHERE entries.tape = tapes.tape ORDER BY id DESC LIMIT 1) "
        "FROM tapes ORDER BY tape",
        (TAPE_RENAMED,),
    )
    return [
        TapeNameRow(
            number, _text(name), source and _text(source), began or 0, (renamed or 0) if source is not None else 0
        )
        for number, name, source, began, renamed in rows
    ]


def _text(name: object) -> str:
    """Return a stored name; a damaged one that is not text becomes a name that no tape began with."""
    return name if isinstance(name, str) else repr(name)


def tape_ends(conn: DatabaseRows, position: int) -> list[TapeEnd]:
    """Read the ends of all tapes with entries at a global position, with their names at that time."""
    names = {tape.number: tape for tape in tape_names(conn)}
    rows = conn.execute(
        "SELECT tape, id, chain FROM entries WHERE seq IN "
        "(SELECT max(seq) FROM entries WHERE seq <= ? GROUP BY tape) ORDER BY tape",
        (position,),
    )
    return [
        TapeEnd(number, names[number].name_at(position) if number in names else "", head, chain)
        for number, head, chain in rows
    ]


SELECT_FIRST = "SELECT id, kind, date, key, digest, chain FROM entries INDEXED BY entries_id WHERE tape = ? AND id = 1"
SELECT_NAME_FACT = (
    "SELECT id, payload FROM entries INDEXED BY entries_name WHERE tape = ? AND name = ? AND kind = 'event' "
    "ORDER BY id LIMIT 1"
)


def predates_names(first: Sequence[tuple[Any, ...]]) -> bool:
    """Return true if a tape's chain does not begin with its name, as before version 3; `first`: rows of `SELECT_FIRST`."""
    return any(
        chain_value(GENESIS, entry_id=entry_id, kind=kind, date=date, key=key, digest=digest) == chain
        for entry_id, kind, date, key, digest, chain in first
    )


def parse_name_fact(
    first: Sequence[tuple[Any, ...]], fact: Sequence[tuple[Any, ...]]
) -> tuple[int, dict[str, Any]] | None:
    """Return the id and the data of the fact `tape/named` of a tape that predates names in the chain.

    `first` and `fact`: the rows of `SELECT_FIRST` and `SELECT_NAME_FACT`.
    """
    if not fact or not predates_names(first):
        return None
    data = payload_data(fact[0][1])
    return (fact[0][0], data) if data else None


def name_fact(conn: DatabaseRows, tape: int) -> tuple[int, dict[str, Any]] | None:
    """Find the id and the data of the fact `tape/named` of a tape that predates names in the chain."""
    fact = conn.execute(SELECT_NAME_FACT, (tape, TAPE_NAMED)).fetchall()
    return parse_name_fact(conn.execute(SELECT_FIRST, (tape,)).fetchall(), fact) if fact else None


def payload_data(payload: object) -> dict[str, Any]:
    """Return `data` of a stored event; empty if unreadable."""
    try:
        data = json.loads(payload)["data"] if isinstance(payload, str) else {}
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def imported_heads(conn: DatabaseRows) -> dict[str, int]:
    """Return the number of imported entries by the first name of their tape.

    Facts among these entries are about another home.
    """
    rows = conn.execute(
        "SELECT payload FROM entries WHERE tape = (SELECT tape FROM tapes WHERE name = ?) AND name = 'tape/imported'",
        (_IMPORTS,),
    )
    heads: dict[str, int] = {}
    for (payload,) in rows:
        data = payload_data(payload)
        if isinstance(data.get("tape"), str) and isinstance(data.get("entries"), int):
            heads[data["tape"]] = max(data["entries"], heads.get(data["tape"], 0))
    return heads


def missing_blobs(conn: DatabaseRows, tape: TapeNameRow, imported: int) -> dict[str, int]:
    """Find cited blobs that neither the tape nor an archive of it has; return the citing id by digest.

    The first `imported` entries do not count: the file did not contain their blobs.
    """
    stored = {
        digest
        for (digest,) in conn.execute(
            # By number: the name of a damaged tape may not be text.
            "SELECT digest FROM blobs WHERE tape IN (SELECT tape FROM tapes WHERE coalesce(archived_from, name) = "
            "(SELECT coalesce(archived_from, name) FROM tapes WHERE tape = ?))",
            (tape.number,),
        )
    }
    return {digest: entry_id for entry_id, digest in _citations(conn, tape.number, imported) if digest not in stored}


def _citations(conn: DatabaseRows, tape: int, imported: int) -> Iterator[tuple[int, str]]:
    rows = conn.execute(
        "SELECT id, kind, payload FROM entries INDEXED BY entries_id WHERE tape = ? AND id > ? AND payload IS NOT NULL "
        "AND (kind IN ('system', 'message', 'tool_result') OR name IN ('loop.step', 'command')) "
        "ORDER BY id DESC",
        (tape, imported),
    )
    for entry_id, kind, payload in rows:
        if not isinstance(payload, str) or not _DIGEST.search(payload):
            continue
        try:
            entry = TapeEntry(Kind(kind), json.loads(payload))
        except (ValueError, AttributeError, EntryInvalid, RecursionError):  # the audit reports it by its digest
            continue
        for digest in cited_blobs(entry):
            yield entry_id, digest
