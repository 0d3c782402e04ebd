"""The facts of installed packages: what they declare moves, stays and goes as what bubbot itself writes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bubbot.app.bot import Bot, open_app
from bubbot.app.tapes import new_id, now
from bubbot.cli.tape.commands import STORE_COMMANDS, CollectTapesArgs
from bubbot.home import Home
from bubbot.ports.channel import Inbound, Sender
from bubbot.settings.loader import ModelSettings, Settings
from bubbot.shell_command import CommandContext
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.entry import TapeEntry, event, thaw
from bubbot.tape.service import TapeService
from bubbot.tape.store import Batch, ForkRecord
from tests.installed import install_feature
from tests.tapes import note, whole

SETTINGS = Settings(model=ModelSettings(name="scripted"))
LONG_AGO = "2020-01-01T00:00:00.000000+00:00"
SESSION = "stdin:default"
PACKAGE = """
from dataclasses import dataclass
from msgspec import UNSET, Struct, UnsetType
from bubbot.feature import Feature, FeatureFactory
from bubbot.tape.fact import Fact
from bubbot.tape.references import BlobDigest, EntryId, SessionId, Spans, TapeEntryId

class Member(Struct, frozen=True):
    session: SessionId
    words: str

class Cited(Fact):
    entry: EntryId | UnsetType = UNSET
    others: list[EntryId | TapeEntryId] | UnsetType = UNSET
    spans: Spans | UnsetType = UNSET
    blob: BlobDigest | UnsetType = UNSET

@dataclass(frozen=True)
class Joined:
    members: tuple[Member, ...]

FACTORY = FeatureFactory(
    "notes",
    lambda kernel, settings: Feature(name="notes", traces=("bubbot/notes",)),
    events={"notes/cited": Cited, "notes/joined": Joined},
)
"""


@asynccontextmanager
async def opened(home: Path) -> AsyncIterator[tuple[Bot, SqliteStore]]:
    async with open_app(SETTINGS, Home(home), channel_settings={"write": lambda _: None}) as app:
        assert isinstance(app.base_store, SqliteStore)
        yield app, app.base_store


def cited(tape: str, entry: int, blob: str) -> TapeEntry:
    data = {"entry": entry, "others": [1, entry, [tape, entry]], "spans": [[1, entry]], "blob": blob, "count": entry}
    return event("notes/cited", data)


def data_of(entry: TapeEntry) -> dict[str, object]:
    data: dict[str, object] = thaw(entry.payload)["data"]
    return data


@pytest.mark.law("T13")
async def test_the_references_of_a_package_move_in_a_fork_that_is_rebased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_feature(monkeypatch, tmp_path / "site", "notes", PACKAGE)
    async with opened(tmp_path / "home") as (app, store):
        tape = app.tape(SESSION)
        await tape.append([note("before")])
        slow, fast = await tape.open_fork(), await tape.open_fork()
        (mine,) = await slow.append([note("mine")])
        await slow.append([cited(tape.name, mine.id, "b" * 64), event("notes/unknown", {"entry": mine.id})])
        slow.stage("bubbot/notes", [event("notes/cited", {"others": [mine.id, [tape.name, mine.id]]})])
        await fast.append([note("theirs"), note("theirs, too")])
        await fast.merge()
        await slow.merge()
        entries, (staged,) = await whole(store, tape.name), await whole(store, "bubbot/notes")
    assert mine.id == 2
    assert entries[3].payload["content"] == "mine"
    assert data_of(entries[4]) == {
        "entry": 4, "others": [1, 4, [tape.name, 4]], "spans": [[1, 1], [4, 4]], "blob": "b" * 64, "count": 2,
    }  # fmt: skip
    assert data_of(entries[5]) == {"entry": 2}, "what nobody declared stays as it is"
    assert data_of(staged) == {"others": [2, [tape.name, 4]]}


async def test_they_move_when_the_next_start_merges_what_a_process_left_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_feature(monkeypatch, tmp_path / "site", "notes", PACKAGE)
    async with opened(tmp_path / "home") as (app, _):
        tape = app.tape(SESSION)
        fork = await tape.open_fork([note("mine")])
        await fork.append([event("notes/cited", {"entry": 1})])
        await fork.save()
        await tape.append([note("theirs")])
    async with opened(tmp_path / "home") as (app, store):
        await app.recover_all()
        await app.runtime.wait_idle()  # the session is taken up
        entries = await whole(store, tape.name)
    assert [entry.name or entry.payload["content"] for entry in entries] == [
        "theirs", "mine", "notes/cited", "turn/interrupted",
    ]  # fmt: skip
    assert data_of(entries[2]) == {"entry": 2}


async def test_a_record_of_another_shape_is_merged_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_feature(monkeypatch, tmp_path / "site", "notes", PACKAGE)
    odd: dict[str, object] = {"entry": "1", "others": {"1": 1}, "spans": [[1], 1, [2, 1]], "blob": None}
    async with opened(tmp_path / "home") as (app, store):
        tape = app.tape(SESSION)
        fork = await tape.open_fork([event("notes/cited", odd)])
        await tape.append([note("theirs")])
        await fork.merge()
        entries = await whole(store, tape.name)
    assert data_of(entries[1]) == odd


async def test_a_blob_that_a_package_names_is_no_garbage_in_a_fork_or_after_its_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_feature(monkeypatch, tmp_path / "site", "notes", PACKAGE)
    async with opened(tmp_path / "home") as (app, store):
        tape: TapeService = app.tape(SESSION)
        fork = await tape.open_fork()
        kept, loose = await fork.put_blob(b"kept"), await fork.put_blob(b"loose")
        await fork.append([event("notes/cited", {"blob": kept})])
        await fork.save()
        for _ in range(2):
            found = await store.find_unreferenced_blobs()
            assert [digest for digest, _ in found.tapes[tape.name]] == [loose]
            if fork.id in {record.id for record in await store.forks()}:
                await fork.merge()
        assert await store.drop_blobs(tape.name, found, "2026-11-23T00:00:00+00:00") == 1
        assert await tape.get_blob(kept) == b"kept"


@pytest.mark.law("T17")
async def test_erasing_a_session_reaches_the_facts_of_a_package_that_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_feature(monkeypatch, tmp_path / "site", "notes", PACKAGE)

    def joined(session: str, words: str) -> TapeEntry:
        return event(
            "notes/joined", {"members": [{"session": "stdin:third", "words": ""}, {"session": session, "words": words}]}
        )

    async with opened(tmp_path / "home") as (app, store):
        notes = app.channel_factory.open_tape("bubbot/notes")
        await notes.append(
            [joined(SESSION, "a secret"), joined("stdin:other", "words of others"), event("notes/joined")]
        )
        answer = await app.ask(
            Inbound("stdin", "1", "default", Sender("0", "owner"), ",reset erase", "2026-11-21T20:21:00Z")
        )
        assert answer.status == "answered"
        entries = await whole(store, "bubbot/notes")
    assert [entry.erased for entry in entries] == [True, False, False]


async def test_gc_merges_a_turn_of_long_ago_with_the_references_of_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_feature(monkeypatch, tmp_path / "site", "notes", PACKAGE)
    async with opened(tmp_path / "home") as (_, store):
        delta = (note("mine", date=LONG_AGO), event("notes/cited", {"entry": 1}).with_meta({}, LONG_AGO))
        await store.open_fork(ForkRecord("old", "tape", 0, (Batch("tape", delta),)))
        await store.append([Batch("tape", (note("theirs"),))])
        collect = STORE_COMMANDS.find("tape gc")
        assert collect is not None
        await collect.run(CommandContext(store, "workspace", now, new_id, SETTINGS), CollectTapesArgs())
        entries = await whole(store, "tape")
    assert data_of(entries[2]) == {"entry": 2}
