"""What `bubbot tape gc` finds and removes: archives by age, turns cut off long ago, blobs of tapes that nobody uses."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from bubbot.app.tapes import new_id, now
from bubbot.cli.tape.commands import STORE_COMMANDS, CollectTapesArgs
from bubbot.gateway.inbox import Inbox, inbox_tape
from bubbot.gateway.outbox import Outbox, outbox_tape
from bubbot.ports.channel import Inbound, MessagePart, Receipt, Sender
from bubbot.ports.inbox import done_entry
from bubbot.settings.loader import Settings
from bubbot.settings.sections import StoreSettings
from bubbot.shell_command import CommandContext, CommandResult
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, event, thaw
from bubbot.tape.handle import Clock
from bubbot.tape.service import TapeService
from bubbot.tape.store import Batch, ForkRecord, ResetBatch
from tests.doubles import START, CountingIds, SteppingClock
from tests.tapes import note, notes, whole

LONG_AGO = "2020-01-01T00:00:00.000000+00:00"


def desk(store: SqliteStore, days: int = 365, clock: Clock = now) -> CommandContext:
    settings = Settings(store=StoreSettings(archive_days=days))
    return CommandContext(store, "workspace", clock, new_id, settings)


async def collect(context: CommandContext, **arguments: Any) -> CommandResult:
    command = STORE_COMMANDS.find("tape gc")
    assert command is not None
    return await command.run(context, CollectTapesArgs(**arguments))


async def plan(store: SqliteStore, at: datetime, days: int = 365, older: int | None = None) -> list[str]:
    """The names of the archives that a dry run finds."""
    told = await collect(desk(store, days, lambda: at), older=older, dry_run=True)
    assert told.data is not None
    return [archive["name"] for archive in told.data["archives"]]


async def archived(store: SqliteStore, name: str, clock: SteppingClock) -> str:
    tape = TapeService(store, name, now=clock, new_id=CountingIds(), session=f"test:{name}")
    await tape.append([note("kept")])
    return await tape.reset()


@pytest.mark.parametrize(
    ("days", "older", "found"),
    [
        (365, None, ["old"]),
        (0, None, []),
        (0, 1, ["old", "young"]),
        (3650, 400, ["old"]),
        (1, 0, ["new", "old", "young"]),
    ],
)
async def test_archives_are_found_by_when_they_were_put_aside(
    sqlite_store: SqliteStore, days: int, older: int | None, found: list[str]
) -> None:
    now = START + timedelta(days=1000)
    for name, age in (("old", 500), ("young", 10), ("new", 0)):
        await archived(sqlite_store, name, SteppingClock(now - timedelta(days=age, minutes=1)))
    assert [name.partition("@")[0] for name in await plan(sqlite_store, now, days, older)] == found


async def test_an_archive_without_a_time_in_its_name_is_as_old_as_its_newest_entry(sqlite_store: SqliteStore) -> None:
    await sqlite_store.append([Batch("tape", (note("a", date=LONG_AGO),))])
    await sqlite_store.reset("tape", ResetBatch("put aside"), [note("b")])
    before = datetime.fromisoformat(LONG_AGO) + timedelta(days=364)
    assert await plan(sqlite_store, before) == []
    assert len(await plan(sqlite_store, before + timedelta(days=2))) == 1


async def test_a_turn_cut_off_long_ago_is_merged_as_interrupted_whatever_its_channel(
    sqlite_store: SqliteStore, clock: SteppingClock
) -> None:
    inbox = Inbox(TapeService(sqlite_store, inbox_tape("gone"), now=clock, new_id=CountingIds()), CountingIds())
    accepted = await inbox.accept(Inbound("gone", "1", "1", Sender("1", "Ada"), "hello", LONG_AGO))
    assert accepted is not None
    start = event("turn/start", {"attempt": 1, "session": "gone:1", "inbounds": [[inbox.name, accepted.id]]}, turn="t")
    for name, date in (("old", LONG_AGO), ("young", "2999-01-01T00:00:00.000000+00:00")):
        staged = Batch(name, (start.with_meta({}, date),))
        await sqlite_store.open_fork(ForkRecord(name, name, 0, (staged,)))
    inner = event("noted").with_meta({}, LONG_AGO)
    await sqlite_store.open_fork(ForkRecord("old/inner", "old", 1, (Batch("old", (inner,)),)))
    told = await collect(desk(sqlite_store))
    assert "Turns cut off at least 30 days ago merged: 1." in told.text
    assert [one.id for one in await sqlite_store.forks()] == ["young"]
    assert [entry.name for entry in await whole(sqlite_store, "old")] == ["turn/start", "noted", "turn/interrupted"]
    assert [entry.name for entry in await whole(sqlite_store, inbox.name)] == ["inbox/received", "inbox/interrupted"]


async def test_copies_of_an_archive_in_other_chats_are_named_before_and_after_and_stay(
    sqlite_store: SqliteStore, clock: SteppingClock
) -> None:
    other = TapeService(sqlite_store, "other", now=clock, new_id=CountingIds(), session="test:reader")
    tape = TapeService(sqlite_store, "tape", now=clock, new_id=CountingIds(), session="test:tape")
    await tape.append([note("kept")])
    shown = event("loop.step", {"shown": [["tape", [[1, 2]]]]})
    begun = anchor("session/start", meta={"session": "test:reader"})
    await other.append([begun, note("it says: kept", source=["tape", 1]), shown])
    archive = await tape.reset()
    later = await archived(sqlite_store, "unread", clock)
    for dry_run in (True, False):
        told = await collect(desk(sqlite_store), older=0, dry_run=dry_run)
        assert told.data is not None
        (copies,) = [each["copies"] for each in told.data["archives"] if each["name"] == archive]
        assert list(copies) == [{"tape": "other", "session": "test:reader", "entries": 1, "prompts": 1}]
        assert (
            f"Other chats hold copies of {archive}, which stay:\n  test:reader: 1 entries, 1 kept prompts" in told.text
        )
        assert f"copies of {later}" not in told.text
    assert not [entry for entry in await whole(sqlite_store, "other") if entry.erased]


async def test_what_is_removed_is_told_and_a_second_run_finds_nothing(
    sqlite_store: SqliteStore, clock: SteppingClock
) -> None:
    await sqlite_store.append([notes("live")])
    await sqlite_store.put_blob("tape", b"loose")
    archive = await archived(sqlite_store, "other", clock)
    told = await collect(desk(sqlite_store), older=0)
    assert "erased: 1, with 1 entry." in told.text
    assert "Blobs that nothing names removed: 1." in told.text
    assert [entry.erased for entry in await whole(sqlite_store, archive)] == [True, False]
    fact, removed = await whole(sqlite_store, "bubbot/home")
    data = {"archive": archive, "entries": 1, "reason": "retention", "covers": {archive: [[1, 1]]}}
    assert thaw(fact.payload)["data"] == data
    assert (removed.name, removed.payload["data"]["tape"]) == ("blob/removed", "tape")
    again = await collect(desk(sqlite_store), older=0)
    assert "erased: 0, with 0 entries." in again.text
    assert len(await whole(sqlite_store, "bubbot/home")) == 2
    audit = await sqlite_store.audit()
    assert (audit.entries, audit.damage) == (7, ())


async def test_messages_that_still_wait_stay_when_an_archive_goes(
    sqlite_store: SqliteStore, clock: SteppingClock
) -> None:
    """They came before the chat was archived, or while it was, and the bot has been off since."""
    ids, services = CountingIds(), {}
    for name in (inbox_tape("test"), outbox_tape("test")):
        services[name] = TapeService(sqlite_store, name, now=clock, new_id=ids)
    inbox, outbox = Inbox(services[inbox_tape("test")], ids), Outbox(services[outbox_tape("test")])
    for text in ("answered", "waits"):
        await inbox.accept(Inbound("test", text, "other", Sender("1", "Ada"), text, LONG_AGO))
        await outbox.enqueue("test:other", text, (MessagePart("other", text),), {})
    await inbox.append(done_entry([1], outcome="answered"))
    await outbox.record_receipt((await outbox.pending())[0], 0, Receipt("p"))
    tape = TapeService(sqlite_store, "other", now=clock, new_id=ids, session="test:other")
    await tape.append([anchor("session/start", {"owner": "human"}, meta={"session": "test:other"})])
    await tape.reset()
    await collect(desk(sqlite_store), older=0)
    assert [entry.erased for entry in await whole(sqlite_store, inbox.name)][:2] == [True, False]
    assert [entry.erased for entry in await whole(sqlite_store, outbox.name)][:2] == [True, False]
    inbox = Inbox(TapeService(sqlite_store, inbox.name, now=clock, new_id=ids), ids)
    outbox = Outbox(TapeService(sqlite_store, outbox.name, now=clock, new_id=ids))
    assert [accepted.inbound.text for accepted in await inbox.open_inbounds()] == ["waits"]
    assert [message.parts[0].text for message in await outbox.pending()] == ["waits"]


async def test_the_replays_of_an_archive_go_with_it(sqlite_store: SqliteStore, clock: SteppingClock) -> None:
    def replayed(tape: str, session: str, date: str) -> TapeEntry:
        return event("replay/ended", {"tape": tape, "session": session, "question": "words"}).with_meta({}, date)

    tape = TapeService(sqlite_store, "other", now=clock, new_id=CountingIds(), session="test:other")
    await tape.append([anchor("session/start", {"owner": "human"}, meta={"session": "test:other"})])
    archive = await tape.reset()
    facts = [
        replayed("other", "test:other", LONG_AGO), replayed("other", "test:else", LONG_AGO),
        replayed("other", "test:other", "2999-01-01T00:00:00.000000+00:00"),
        replayed(archive, "test:other", "2999-01-01T00:00:00.000000+00:00"),
    ]  # fmt: skip
    await sqlite_store.append([Batch("bubbot/replay", tuple(facts))])
    await collect(desk(sqlite_store), older=0)
    assert [entry.erased for entry in await whole(sqlite_store, "bubbot/replay")] == [True, False, False, True]
    assert (await sqlite_store.audit()).damage == ()
