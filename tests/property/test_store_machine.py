"""SQLite and PostgreSQL against the store in memory, step by step: the same results, the same errors, the same tapes."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from itertools import count, product
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from bubbot.errors import BubbotError
from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.postgres.store import PostgresStore
from bubbot.stores.postgres.store import open_store as open_on_server
from bubbot.stores.sqlite.store import SqliteStore, open_store
from bubbot.tape.anchor import anchor
from bubbot.tape.blobs import blob_digest
from bubbot.tape.entry import TapeEntry, event
from bubbot.tape.events import KERNEL_REFERENCES
from bubbot.tape.query import TapeQuery
from bubbot.tape.references import Rebase
from bubbot.tape.store import Batch, ForkRecord, ResetBatch, TapeStore
from tests.doubles import CountingSalt, SteppingClock
from tests.postgres_server import PostgresServer, copied_database
from tests.property.strategies import KEYS, entries, exactly, names, queries
from tests.tapes import whole

pytestmark = pytest.mark.law("T2", "T3", "T4", "T5", "T9", "T13", "T17")

TAPES = ("one", "two", "three")
BLOBS = (b"", b"a", b"b" * 50)
CONTENTS = st.sampled_from("ab")

Reach: TypeAlias = "tuple[tuple[str, tuple[int, ...]], ...]"

tapes = st.sampled_from(TAPES)
small = st.builds(
    lambda content, key: TapeEntry("message", {"content": content}, {}, "2026-11-21", key),
    CONTENTS,
    st.none() | st.sampled_from(KEYS[:3]),
)
given_entries = st.lists(small | entries(st.none() | st.sampled_from(KEYS)), max_size=3).map(tuple)
# The head a batch expects, counted from the one it will find: mostly none, sometimes right, sometimes stale.
offsets = st.sampled_from([None, None, None, 0, 0, -1, 1])
staged = st.lists(st.builds(Batch, tapes, given_entries, if_absent=st.booleans()), max_size=3).map(tuple)
# Named by a reset: entries of other tapes, existing or not, some of them twice.
also = st.lists(st.tuples(tapes, st.lists(st.integers(1, 6), max_size=3).map(tuple)), max_size=2).map(tuple)


def shown(result: Any) -> Any:
    """A result in a form that tells 1 from 1.0 and has no hashes, which one store keeps and the other does not."""
    if isinstance(result, TapeEntry):
        return exactly([result])
    if isinstance(result, (list, tuple)):
        return [shown(item) for item in result]
    return result


class StoreMachine(RuleBasedStateMachine):
    forks = Bundle("forks")
    blobs = Bundle("blobs")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix="bubbot-machine-"))
        self.salt = CountingSalt()
        self.numbers = count(1)
        self.memory = InMemoryStore()
        self.stored = self.opened()

    def opened(self) -> SqliteStore | PostgresStore:
        return self.runner.run(open_store(self.folder / "bubbot.db", salt=self.salt, now=SteppingClock()))

    def both(self, job: Callable[[TapeStore], Awaitable[Any]]) -> None:
        """Does the same with both and compares what comes of it."""

        async def outcome(store: TapeStore) -> Any:
            try:
                return shown(await job(store))
            except BubbotError as error:
                return type(error)

        wanted = self.runner.run(outcome(self.memory))
        assert self.runner.run(outcome(self.stored)) == wanted

    def head(self, tape: str) -> int:
        return self.runner.run(self.memory.head(tape))

    def aside(self, tape: str, *, erase: bool, reach: Reach) -> ResetBatch:
        others = tuple((name, ids) for name, ids in reach if name != tape)
        return ResetBatch(f"old@{next(self.numbers)}", erase=erase, erase_also=others)

    @initialize()
    def begin(self) -> None:
        self.both(lambda store: store.append([Batch("one", (anchor("session/start"),))]))

    @rule(batches=st.lists(st.tuples(tapes, given_entries, offsets, st.booleans()), min_size=1, max_size=3))
    def append(self, batches: list[tuple[str, tuple[TapeEntry, ...], int | None, bool]]) -> None:
        made = [
            Batch(tape, given, None if offset is None else max(self.head(tape) + offset, 0), keep_first)
            for tape, given, offset, keep_first in batches
        ]
        self.both(lambda store: store.append(made))

    @rule(tape=tapes, name=names)
    def hand_off(self, tape: str, name: str) -> None:
        pair = (anchor(name, {"phase": name}), event("handoff", {"name": name}))
        self.both(lambda store: store.append([Batch(tape, pair)]))

    @rule(asked=st.lists(st.one_of(*[queries(tape) for tape in TAPES]), min_size=1, max_size=4))
    def fetch(self, asked: list[TapeQuery]) -> None:
        self.both(lambda store: store.fetch(asked))

    @rule(tape=tapes, data=st.data(), if_absent=st.booleans())
    def redeliver(self, tape: str, data: st.DataObject, if_absent: bool) -> None:
        """A key that is on the tape comes again, with the same content or another."""
        stored = self.runner.run(whole(self.memory, tape))
        if keyed := [entry for entry in stored if entry.key]:
            again = TapeEntry("message", {"content": data.draw(CONTENTS)}, key=data.draw(st.sampled_from(keyed)).key)
            self.both(lambda store: store.append([Batch(tape, (again,), if_absent=if_absent)]))

    @rule(tape=tapes, data=st.data())
    def forget(self, tape: str, data: st.DataObject) -> None:
        """Entries that are there are erased from outside."""
        if head := self.head(tape):
            ids = tuple(data.draw(st.lists(st.integers(1, head), min_size=1, max_size=3)))
            how = self.aside("scratch", erase=True, reach=((tape, ids),))
            self.both(lambda store: store.reset("scratch", how, [event("tape/erased")]))

    @rule(reach=also, blob=st.sampled_from(BLOBS), given=given_entries)
    def erase(self, reach: Reach, blob: bytes, given: tuple[TapeEntry, ...]) -> None:
        """Entries of several tapes are erased under a fact on the home's tape, and a blob with them."""
        made = [Batch("bubbot/home", (event("tape/erased"),)), Batch("one", given)]
        further = [("two", (blob_digest(blob),))]
        self.both(lambda store: store.erase(made, reach, further))

    @rule(target=forks, tape=tapes, offset=st.sampled_from([0, 0, 0, -1, 1]), held=staged, exact=st.booleans())
    def open_fork(self, tape: str, offset: int, held: tuple[Batch, ...], exact: bool) -> tuple[str, str]:
        record = ForkRecord(f"fork-{next(self.numbers)}", tape, max(self.head(tape) + offset, 0), held)
        self.both(lambda store: store.open_fork(record, expect_head=exact))
        return record.id, tape

    @rule(target=forks, fork=forks, base=st.integers(0, 3), held=staged)
    def open_fork_of_a_fork(self, fork: tuple[str, str], base: int, held: tuple[Batch, ...]) -> tuple[str, str]:
        name, tape = fork
        record = ForkRecord(f"{name}/{next(self.numbers)}", tape, base, held)
        self.both(lambda store: store.open_fork(record))
        return record.id, tape

    @rule(fork=forks, held=staged, erase=st.none() | st.booleans(), reach=also)
    def extend_fork(self, fork: tuple[str, str], held: tuple[Batch, ...], erase: bool | None, reach: Reach) -> None:
        how = None if erase is None else self.aside(fork[1], erase=erase, reach=reach)
        self.both(lambda store: store.extend_fork(fork[0], held, how))

    @rule(fork=forks, more=staged, offset=offsets, reset=st.sampled_from([None, None, False, True]), reach=also)
    def merge_fork(
        self, fork: tuple[str, str], more: tuple[Batch, ...], offset: int | None, reset: bool | None, reach: Reach
    ) -> None:
        name, tape = fork
        head = 0 if reset is not None else self.head(tape)
        own = Batch(tape, (event("merged"),), None if offset is None or "/" in name else max(head + offset, 0))
        how = None if reset is None else (tape, self.aside(tape, erase=reset, reach=reach))
        fact = [Batch(tape, (event("tape/erased"),))] if reset else []
        self.both(lambda store: store.merge_fork(name, [own, *more, *fact], how))

    @rule(fork=forks, base=st.integers(0, 6), given=given_entries, more=staged, skipped=st.sets(st.sampled_from(KEYS)))
    def merge_fork_wherever_its_tape_ends(
        self, fork: tuple[str, str], base: int, given: tuple[TapeEntry, ...], more: tuple[Batch, ...], skipped: set[str]
    ) -> None:
        name, tape = fork
        citing = [event("correction", {"corrects": base + place}) for place in range(3)]
        rebase = None if "/" in name else Rebase(base, KERNEL_REFERENCES, frozenset(skipped))
        own = Batch(tape, (*given, *citing), rebase=rebase)
        copies = Batch("two", (TapeEntry("message", {"content": "a"}, {"source": [tape, base + 1]}),))
        self.both(lambda store: store.merge_fork(name, [own, copies, *more]))

    @rule(fork=forks)
    def drop_fork(self, fork: tuple[str, str]) -> None:
        self.both(lambda store: store.drop_fork(fork[0]))

    @rule(tape=tapes, erase=st.booleans(), first=given_entries, fact=st.sampled_from([True, True, False]), reach=also)
    def reset(
        self,
        tape: str,
        erase: bool,
        first: tuple[TapeEntry, ...],
        fact: bool,
        reach: Reach,
    ) -> None:
        how = self.aside(tape, erase=erase, reach=reach)
        begin: Sequence[TapeEntry] = (*first, event("tape/erased")) if fact else first
        self.both(lambda store: store.reset(tape, how, begin))

    @rule(target=blobs, tape=tapes, data=st.sampled_from(BLOBS))
    def put_blob(self, tape: str, data: bytes) -> Any:
        self.both(lambda store: store.put_blob(tape, data))
        return multiple(self.runner.run(self.memory.put_blob(tape, data)))

    @rule(tape=tapes, digest=blobs)
    def get_blob(self, tape: str, digest: str) -> None:
        self.both(lambda store: store.get_blob(tape, digest))

    @rule()
    def reopen(self) -> None:
        self.runner.run(self.stored.aclose())
        self.stored = self.opened()
        self.everything_is_the_same()

    @rule()
    def everything_is_the_same(self) -> None:
        async def everything(store: TapeStore) -> Any:
            listed = await store.tapes()
            return await store.fetch([TapeQuery(tape.name) for tape in listed]), await store.forks()

        self.both(everything)

    @invariant()
    def the_tapes_are_the_same(self) -> None:
        async def listed(store: TapeStore) -> Any:
            return [(tape.name, tape.head, tape.archived_from, tape.erased) for tape in await store.tapes()]

        self.both(listed)

    def teardown(self) -> None:
        try:
            self.everything_is_the_same()
            for tape, digest in product(self.runner.run(self.memory.tapes()), map(blob_digest, BLOBS)):
                self.get_blob(tape.name, digest)
            audit = self.runner.run(self.stored.audit())
            assert {finding.problem for finding in audit.findings} <= {"erased"}
            entries_erased = sum(tape.erased for tape in self.runner.run(self.memory.tapes()))
            assert len(audit.findings) == entries_erased
        finally:
            self.runner.run(self.stored.aclose())
            self.runner.close()
            shutil.rmtree(self.folder)


class PostgresMachine(StoreMachine):
    """The same against a database of its own on a server, which the test names."""

    server: PostgresServer

    def __init__(self) -> None:
        self.database = ExitStack()
        self.address = self.database.enter_context(copied_database(self.server))
        super().__init__()

    def opened(self) -> PostgresStore:
        return self.runner.run(open_on_server(self.address, salt=self.salt, now=SteppingClock()))

    def teardown(self) -> None:
        with self.database:
            super().teardown()


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=settings().max_examples, stateful_step_count=30)


def test_a_store_on_a_server_does_the_same_step_by_step(postgres_server: PostgresServer) -> None:
    PostgresMachine.server = postgres_server
    run_state_machine_as_test(
        PostgresMachine, settings=settings(max_examples=settings().max_examples, stateful_step_count=30)
    )
