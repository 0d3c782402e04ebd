"""What stores offer beyond `TapeStore`: each protocol, on each store that has it."""

from __future__ import annotations

from typing import Any

import pytest

from bubbot.errors import ConfigError
from bubbot.ports.store import (
    require_chain,
    require_garbage_collection,
    require_index,
    require_sizes,
)
from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.sqlite.store import SqliteStore
from tests.tapes import notes


async def test_the_first_label_stays(store: Any) -> None:
    assert [await store.workspace(path) for path in ("/first", "/second")] == ["/first", "/first"]


async def test_entries_and_commits_are_counted(store: Any) -> None:
    before = store.commit_count
    await store.append([notes("a", "b"), notes("c", tape="other")])
    assert await store.count_entries() == 3
    assert store.commit_count > before


@pytest.mark.parametrize("require", [require_chain, require_sizes, require_garbage_collection, require_index])
def test_what_a_store_lacks_is_one_sentence(require: object, sqlite_store: SqliteStore) -> None:
    assert callable(require)
    assert require(sqlite_store) is sqlite_store
    with pytest.raises(ConfigError, match=r"^This store \(InMemoryStore\) [a-z ,:]+\.$"):
        require(InMemoryStore())
