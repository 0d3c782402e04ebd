"""What was altered, removed or erased behind the store's back, and how it comes to light."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bubbot.errors import TapeCorrupt
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import event
from bubbot.tape.query import OpeningAnchor, TapeQuery
from bubbot.tape.store import ResetBatch
from tests.raw import tamper
from tests.tapes import batch, note, notes, whole

ERASED = event("tape/erased")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bubbot.db"


@pytest.fixture
async def filled(sqlite_store: SqliteStore) -> SqliteStore:
    """The tape `tape` with entries 1 to 4 at the positions 1 to 4, and `other` with one entry."""
    await sqlite_store.append([batch(anchor("start"), note("pay 100 euros", key="k", by="me"), note("b"), event("e"))])
    await sqlite_store.append([notes("x", tape="other")])
    return sqlite_store


async def findings(store: SqliteStore, tape: str | None = None) -> list[tuple[str, int, str]]:
    return [(finding.tape, finding.id, finding.problem) for finding in (await store.audit(tape)).findings]


ALTERED: dict[str, tuple[str, tuple[Any, ...]]] = {
    "one byte of the payload": ("UPDATE entries SET payload = replace(payload, '100', '900') WHERE seq = 2", ()),
    "one byte so that it is no text": (
        "UPDATE entries SET payload = CAST(replace(CAST(payload AS BLOB), x'31', x'FF') AS TEXT) WHERE seq = 2",
        (),
    ),
    "one byte so that it is no JSON": ("UPDATE entries SET payload = replace(payload, ':', ';') WHERE seq = 2", ()),
    "the end of the payload": ("UPDATE entries SET payload = substr(payload, 1, 9) WHERE seq = 2", ()),
    "a NUL at the end": ("UPDATE entries SET payload = payload || char(0) WHERE seq = 2", ()),
    "meta": ('UPDATE entries SET meta = \'{"by":"you"}\' WHERE seq = 2', ()),
    "payload and meta moved": ("UPDATE entries SET meta = payload, payload = meta WHERE seq = 2", ()),
    "salt": ("UPDATE entries SET salt = zeroblob(16) WHERE seq = 2", ()),
    "digest": ("UPDATE entries SET digest = zeroblob(32) WHERE seq = 2", ()),
    "the content of another entry": (
        "UPDATE entries SET payload = (SELECT payload FROM entries WHERE seq = 3) WHERE seq = 2",
        (),
    ),
    "content gone without a fact": ("UPDATE entries SET payload = NULL, meta = NULL, salt = NULL WHERE seq = 2", ()),
    "half of the content gone": ("UPDATE entries SET meta = NULL WHERE seq = 2", ()),
}

READS: dict[str, Callable[[SqliteStore], Awaitable[object]]] = {
    "fetch": whole,
    "search": lambda store: store.fetch([TapeQuery("tape", text="b")]),
    "key": lambda store: store.append([batch(note("pay 100 euros", key="k"))]),
}


@pytest.mark.law("T15")
@pytest.mark.parametrize("how", ALTERED)
async def test_reading_altered_content_raises_naming_tape_and_id(filled: SqliteStore, path: Path, how: str) -> None:
    tamper(path, *ALTERED[how])
    for read in READS.values():
        with pytest.raises(TapeCorrupt, match="entry 2 of the tape tape"):
            await read(filled)


@pytest.mark.law("T15")
async def test_reading_goes_on_from_the_newest_state_after_such_an_error(filled: SqliteStore, path: Path) -> None:
    tamper(path, *ALTERED["one byte of the payload"])
    with pytest.raises(TapeCorrupt) as kept:
        await whole(filled)
    await filled.append([notes("y", tape="other")])
    assert (await filled.head("other"), kept.type) == (2, TapeCorrupt)


@pytest.mark.law("T16")
@pytest.mark.parametrize("how", ALTERED)
async def test_an_audit_reports_altered_content(filled: SqliteStore, path: Path, how: str) -> None:
    tamper(path, *ALTERED[how])
    assert set(await findings(filled)) == {("tape", 2, "altered")}


@pytest.mark.law("T15")
async def test_an_altered_entry_does_not_keep_the_others_from_being_read(filled: SqliteStore, path: Path) -> None:
    tamper(path, *ALTERED["one byte of the payload"])
    (found,) = await filled.fetch([TapeQuery("tape", kinds=("event",))])
    assert [entry.id for entry in found] == [4]


@pytest.mark.law("T16")
@pytest.mark.parametrize(
    "change",
    [
        "kind = 'system'",
        "date = '2026-01-01'",
        "key = 'other'",
        "key = NULL",
        "chain = zeroblob(32)",
        "kind = CAST(x'FF' AS TEXT)",
    ],
)
async def test_an_audit_reports_what_was_altered_beside_the_content(
    filled: SqliteStore, path: Path, change: str
) -> None:
    tamper(path, f"UPDATE entries SET {change} WHERE seq = 2")
    assert ("tape", 2, "altered") in await findings(filled)


@pytest.mark.law("T16")
@pytest.mark.parametrize("change", ["name = 'end'", "name = NULL", "opens = NULL"])
async def test_an_audit_reports_an_anchor_that_the_index_denies(filled: SqliteStore, path: Path, change: str) -> None:
    tamper(path, f"UPDATE entries SET {change} WHERE seq = 1")
    assert await findings(filled) == [("tape", 1, "altered")]


@pytest.mark.law("T16")
async def test_an_audit_reports_an_entry_that_the_index_makes_an_anchor(filled: SqliteStore, path: Path) -> None:
    tamper(path, "UPDATE entries SET opens = 1 WHERE seq = 3")
    assert await findings(filled) == [("tape", 3, "altered")]


@pytest.mark.law("T16")
async def test_an_altered_and_rechained_entry_shows_at_the_next_one(filled: SqliteStore, path: Path) -> None:
    tamper(path, "UPDATE entries SET chain = (SELECT chain FROM entries WHERE seq = 5) WHERE seq = 2")
    assert await findings(filled) == [("tape", 2, "altered"), ("tape", 3, "altered")]


@pytest.mark.law("T16")
@pytest.mark.parametrize(
    ("where", "missing"), [("seq = 1", [1]), ("seq = 2", [2]), ("seq IN (2, 3)", [2]), ("seq IN (1, 3)", [1, 3])]
)
async def test_a_removed_entry_is_reported_missing_and_nothing_else(
    filled: SqliteStore, path: Path, where: str, missing: list[int]
) -> None:
    tamper(path, f"DELETE FROM entries WHERE {where}")
    assert await findings(filled) == [("tape", entry_id, "missing") for entry_id in missing]


@pytest.mark.law("T16")
async def test_exchanged_entries_are_reported(filled: SqliteStore, path: Path) -> None:
    tamper(path, "UPDATE entries SET id = 100 + id WHERE seq IN (2, 3)")
    tamper(path, "UPDATE entries SET id = 5 - (id - 100) WHERE seq IN (2, 3)")
    assert ("tape", 2, "altered") in await findings(filled)


@pytest.mark.law("T16")
async def test_an_untouched_database_has_no_findings(filled: SqliteStore) -> None:
    report = await filled.audit()
    assert (report.findings, report.tapes, report.entries) == ((), 2, 5)


@pytest.mark.law("T16")
async def test_odd_names_are_no_finding(sqlite_store: SqliteStore) -> None:
    odd = ["a\x00b", "\x00", "", '"', "\\u0000", "👍", "\u2028"]
    await sqlite_store.append([batch(*[anchor(f"{name}x") for name in odd], *[event(name) for name in odd])])
    assert await findings(sqlite_store) == []


@pytest.mark.law("T16")
async def test_the_audit_of_one_tape_reports_that_tape_only(filled: SqliteStore, path: Path) -> None:
    tamper(path, "UPDATE entries SET name = 'end' WHERE seq = 1")
    tamper(path, "UPDATE entries SET payload = '{}' WHERE seq = 5")
    assert await findings(filled, "other") == [("other", 1, "altered")]
    assert await findings(filled, "tape") == [("tape", 1, "altered")]
    assert (await filled.audit("other")).entries == 1


@pytest.mark.law("T16", "T17")
async def test_erased_entries_are_reported_erased_and_not_altered(filled: SqliteStore) -> None:
    await filled.reset("tape", ResetBatch("old", erase=True, erase_also=(("other", (1,)),)), [anchor("start"), ERASED])
    report = await filled.audit()
    assert [(finding.tape, finding.id, finding.problem) for finding in report.findings] == [
        *[("old", entry_id, "erased") for entry_id in (1, 2, 3, 4)],
        ("other", 1, "erased"),
    ]
    assert {finding.detail for finding in report.findings} == {"by the fact at position 8"}


@pytest.mark.law("T16", "T17")
async def test_an_altered_date_of_an_erased_entry_is_still_reported(filled: SqliteStore, path: Path) -> None:
    await filled.reset("tape", ResetBatch("old", erase=True), [ERASED])
    tamper(path, "UPDATE entries SET date = '2026-01-01' WHERE seq = 2")
    assert ("old", 2, "altered") in await findings(filled)


@pytest.mark.law("T16")
async def test_the_chain_goes_on_after_an_archive(filled: SqliteStore) -> None:
    await filled.reset("tape", ResetBatch("old"), [event("tape/archived")])
    await filled.append([notes("c")])
    assert await findings(filled) == []


@pytest.mark.law("T16")
async def test_a_removed_last_entry_shows_against_a_kept_deployment_head(filled: SqliteStore, path: Path) -> None:
    kept = await filled.deployment_head()
    position = int(kept.partition(":")[0])
    assert position == 5
    tamper(path, "DELETE FROM entries WHERE seq = 5")
    assert await findings(filled) == []
    assert await filled.deployment_head(position) != kept


@pytest.mark.law("T16")
@pytest.mark.parametrize("change", ["append", "archive", "erase"])
async def test_a_kept_deployment_head_can_be_checked_after_the_tapes_have_changed(
    filled: SqliteStore, change: str
) -> None:
    kept = await filled.deployment_head()
    if change == "append":
        await filled.append([notes("c"), notes("y", tape="third")])
    else:
        await filled.reset("tape", ResetBatch("old", erase=change == "erase"), [ERASED])
    assert await filled.deployment_head(5) == kept
    assert await filled.deployment_head() != kept


@pytest.mark.law("T16")
async def test_the_deployment_head_of_an_empty_database_is_position_zero(sqlite_store: SqliteStore) -> None:
    assert (await sqlite_store.deployment_head()).startswith("0:")
    assert (await sqlite_store.audit()).head == await sqlite_store.deployment_head()


@pytest.mark.law("T16")
async def test_equal_texts_have_different_digests(sqlite_store: SqliteStore, path: Path) -> None:
    await sqlite_store.append([notes("yes", tape="one"), notes("yes", tape="two")])
    assert len({tape.hash for tape in await sqlite_store.tapes()}) == 2


@pytest.mark.law("T15")
async def test_an_altered_anchor_is_an_error_where_a_window_is_looked_for(filled: SqliteStore, path: Path) -> None:
    tamper(path, "UPDATE entries SET payload = replace(payload, 'start', 'stark') WHERE seq = 1")
    with pytest.raises(TapeCorrupt, match="entry 1 of the tape tape"):
        await filled.fetch([TapeQuery("tape", OpeningAnchor())])


@pytest.mark.law("T15")
async def test_an_altered_blob_is_an_error_naming_it(filled: SqliteStore, path: Path) -> None:
    digest = await filled.put_blob("tape", b"abc")
    tamper(path, "UPDATE blobs SET data = x'616264'")
    with pytest.raises(TapeCorrupt, match=f"{digest} of the tape tape"):
        await filled.get_blob("tape", digest)


@pytest.mark.law("T17")
async def test_what_was_erased_stays_so_when_its_tape_is_put_aside_and_another_has_its_name(
    filled: SqliteStore,
) -> None:
    await filled.reset("tape", ResetBatch("old", erase=True, erase_also=(("other", (1,)),)), [ERASED])
    await filled.reset("other", ResetBatch("other@old"), [event("tape/archived")])
    assert (await filled.audit()).damage == ()
