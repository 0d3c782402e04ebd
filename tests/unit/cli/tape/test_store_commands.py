"""What the commands about the store say: tables, sentences in the language of the bot, exit codes."""

from __future__ import annotations

from typing import Any

import pytest

from bubbot.app.tapes import new_id, now
from bubbot.cli.tape.commands import STORE_COMMANDS
from bubbot.errors import ConfigError, UsageError
from bubbot.features.search.settings import SearchSettings
from bubbot.settings.loader import Settings
from bubbot.shell_command import Command, CommandContext, CommandResult, TableResult
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.service import TapeService
from bubbot.texts import Texts
from tests.doubles import CountingIds, SteppingClock
from tests.made_settings import make_settings
from tests.tapes import note, notes


def find(name: str) -> Command:
    found = STORE_COMMANDS.find(f"tape {name}")
    assert found is not None
    return found


async def run(
    store: SqliteStore, name: str, *, language: str = "en", settings: Settings | None = None, **arguments: Any
) -> CommandResult:
    context = CommandContext(store, "workspace", now, new_id, settings or Settings(), texts=Texts(language))
    return await find(name).run(context, find(name).args(**arguments))


async def archived(store: SqliteStore) -> str:
    tape = TapeService(store, "chat", now=SteppingClock(), new_id=CountingIds(), session="test:chat")
    await tape.append([note("kept")])
    return await tape.reset()


async def test_the_list_is_a_table_and_an_object_for_programs(sqlite_store: SqliteStore) -> None:
    assert (await run(sqlite_store, "list")).text == ""
    archive = await archived(sqlite_store)
    told = await run(sqlite_store, "list")
    assert isinstance(told, TableResult)
    assert [(row[0], row[2], row[3]) for row in told.rows] == [
        (archive, archive, "archive of chat"),
        ("test:chat", "chat", ""),
    ]
    assert told.right == (1,)
    assert told.data is not None
    assert [tape["archived_from"] for tape in told.data["tapes"]] == [None, "chat"]
    assert (await run(sqlite_store, "list", language="de")).rows[0][3] == "Archiv von chat"


async def test_sizes_have_headings_and_a_line_about_the_file(sqlite_store: SqliteStore) -> None:
    await sqlite_store.append([notes("live")])
    told = await run(sqlite_store, "size")
    assert isinstance(told, TableResult)
    assert (told.header, told.right) == (("bytes", "of blobs", "entries", "tape"), (0, 1, 2))
    assert told.rows[0][3] == "tape"
    assert "the database file, of which" in told.text


async def test_a_head_that_the_tapes_had_is_confirmed_and_another_one_is_damage(sqlite_store: SqliteStore) -> None:
    await sqlite_store.append([notes("live")])
    head = str((await run(sqlite_store, "verify")).data["head"])  # type: ignore[index]
    told = await run(sqlite_store, "verify", head=head)
    assert (told.code, told.text.splitlines()[0]) == (0, "the kept head is the one these tapes had at position 1")
    position = head.partition(":")[0]
    told = await run(sqlite_store, "verify", head=f"{position}:{'0' * 64}", language="zh")
    assert (told.code, told.text.splitlines()[0]) == (5, "保存的头部值与这些记录在位置 1 时的不一致")
    with pytest.raises(UsageError, match="'soon' is not a deployment head"):
        await run(sqlite_store, "verify", head="soon")


async def test_an_archive_is_not_archived_again(sqlite_store: SqliteStore) -> None:
    archive = await archived(sqlite_store)
    with pytest.raises(ConfigError, match="is an archive already"):
        await run(sqlite_store, "archive", tape=archive)
    told = await run(sqlite_store, "archive", tape="chat")
    assert told.data == {"tape": "chat", "archive": told.text.strip()}


async def test_the_index_is_told_of_and_rebuilt(sqlite_store: SqliteStore) -> None:
    await sqlite_store.append([notes("live")])
    told = await run(sqlite_store, "index")
    assert (told.code, told.text) == (
        1,
        "There is no search index yet; searches read the tapes. It is filled while the bot runs.\n",
    )
    told = await run(sqlite_store, "index", rebuild=True)
    assert told.code == 0
    assert told.text.startswith("1 entries are indexed; ")
    off = make_settings(SearchSettings(index=False))
    told = await run(sqlite_store, "index", rebuild=True, settings=off)
    assert (told.code, told.text) == (1, "[search] index is false: there is none, and searches read the tape.\n")
    assert told.data == {"usable": False, "rebuilding": False, "state": None}


def test_a_look_and_a_dry_run_only_read_beside_a_running_bot() -> None:
    for name, reads, writes in (
        ("index", {}, {"rebuild": True}),
        ("gc", {"dry_run": True}, {}),
    ):
        command = find(name)
        assert command.writes
        assert command.only_reads is not None
        assert command.only_reads(command.args(**reads))
        assert not command.only_reads(command.args(**writes))
