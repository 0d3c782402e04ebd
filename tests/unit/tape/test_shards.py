"""Shards: one name per chat, the same in every process, and today's names where there is one."""

from __future__ import annotations

import pytest

from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.service import TapeService
from bubbot.tape.shards import count_shards, shard_tape, shard_tapes
from tests.doubles import CountingIds, SteppingClock

INBOX = "bubbot/inbox/telegram"


def test_one_shard_is_the_tape_itself() -> None:
    assert shard_tape(INBOX, "telegram:1") == INBOX
    assert shard_tapes(INBOX) == (INBOX,)


def test_the_threads_of_a_chat_are_together() -> None:
    assert len({shard_tape(INBOX, f"telegram:-100{thread}", 8) for thread in ("", ":1", ":2", ":general")}) == 1


@pytest.mark.parametrize(
    ("session", "shard"), [("telegram:1", 3), ("telegram:2", 0), ("discord:99:7", 2), ("stdin:\ud800", 4)]
)
def test_the_shard_of_a_chat_never_changes(session: str, shard: int) -> None:
    assert shard_tape(INBOX, session, 8) == f"{INBOX}/{shard}"


def test_chats_are_spread_over_all_shards_and_facts_about_none_stay_on_the_tape() -> None:
    names = {shard_tape(INBOX, f"telegram:{chat}", 8) for chat in range(200)}
    assert {*names, shard_tape(INBOX, "", 8)} == set(shard_tapes(INBOX, 8))


def test_the_store_says_how_many_there_are(sqlite_store: SqliteStore, sharded_store: InMemoryStore) -> None:
    assert [count_shards(store) for store in (sqlite_store, sharded_store)] == [1, 8]


async def test_a_service_opens_its_shards_once(sharded_store: InMemoryStore) -> None:
    tape = TapeService(sharded_store, INBOX, now=SteppingClock(), new_id=CountingIds())
    assert tuple(shard.name for shard in tape.shards()) == shard_tapes(INBOX, 8)
    assert tape.shards()[0] is tape
    assert tape.shard("telegram:1") is tape.shard("telegram:1:7") is tape.shards()[4]
