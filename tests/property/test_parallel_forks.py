"""Parallel forks and forks of forks: the merged tape is what a pure model of them says, references and requests too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event as label
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbot.errors import AnchorNotFound, TapeConflict
from bubbot.ports.model import ModelRequest
from bubbot.runtime.compose import rebuild_request
from bubbot.runtime.context.view import ContextView
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, event
from bubbot.tape.events import KERNEL_REFERENCES
from bubbot.tape.fork import ForkedTape
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import AfterAnchor, IdRanges, OpeningAnchor, TapeQuery, WholeTape, Window, evaluate
from bubbot.tape.references import entries_as_of
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from tests.doubles import CountingIds, SteppingClock
from tests.property.bench import Bench
from tests.property.bench import bench as open_bench
from tests.tapes import note, whole

VIEWS = tuple(ContextView(selector) for selector in ("window", "full", "from:phase", "messages"))


@dataclass(eq=False)
class Item:
    """An entry of the model: what it says, its key, and the items that it names.

    What a fork of a fork says is that sub-task's own: the windows of others leave it out. `author` names it.
    """

    text: str
    key: str | None = None
    names: tuple[Item, ...] = ()
    recalls: frozenset[Item] = frozenset()
    skipped_if_known: bool = False
    author: str = ""


@dataclass(eq=False)
class Node:
    """The tape, or a fork of a node: what it shows is the first `base` items of its parent, then its own."""

    handle: TapeHandle
    parent: Node | None = None
    base: int = 0
    own: list[Item] = field(default_factory=list)

    @property
    def shown(self) -> list[Item]:
        return ([] if self.parent is None else self.parent.shown[: self.base]) + self.own

    @property
    def fork(self) -> ForkedTape:
        assert isinstance(self.handle, ForkedTape)
        return self.handle

    def known(self, item: Item) -> Item | None:
        """The item that has the key of this one."""
        return next((one for one in self.shown if item.key is not None and one.key == item.key), None)


class Forest:
    """A tape with its forks, and the model of them."""

    def __init__(self, store: TapeStore, name: str) -> None:
        self.store = store
        clock = SteppingClock(step=timedelta(0))
        self.tape = TapeService(store, name, now=clock, new_id=CountingIds(f"fork-of-{name}"))
        self.root = Node(self.tape)
        self.nodes = [self.root]
        self.stands_for: dict[Item, Item] = {}
        self.replaced: set[Item] = set()
        self.steps: dict[str, list[Item]] = {}

    def standing(self, item: Item) -> Item:
        while item in self.stands_for:
            item = self.stands_for[item]
        return item

    async def begin(self) -> None:
        await self.append(self.root, Item("start"), [anchor("session/start")])

    async def append(self, node: Node, item: Item, entries: Sequence[TapeEntry], *more: Item) -> None:
        """The items to the model and their entries to the handle; both conflict or none does."""
        known = node.known(item)
        try:
            stored = await node.handle.append(entries, if_absent=item.skipped_if_known)
        except TapeConflict:
            label("conflict at an append")
            assert known is not None
            assert known.text != item.text
            return
        if known is None:
            node.own += [item, *more]
            assert [entry.id for entry in stored] == list(range(len(node.shown) - len(more), len(node.shown) + 1))
        else:
            assert item.skipped_if_known or known.text == item.text
            assert stored[0].id == node.shown.index(known) + 1

    async def do(self, action: str, place: int, first: int, second: int) -> None:
        node = self.nodes[place % len(self.nodes)]
        shown = node.shown
        position = first % len(shown)
        target = shown[position]
        match action:
            case "say":
                await self.append(node, Item(f"said {second}"), [note(f"said {second}")])
            case "key":
                text, key, known = f"{second % 2}", f"k{first % 3}", second % 3 == 0
                author = node.fork.id if node.parent and node.parent.parent else ""
                await self.append(node, Item(text, key, (), frozenset(), known, author), [note(text, key=key)])
            case "correct":
                data = {"corrects": position + 1, "content": f"{second}"}
                await self.append(node, Item(f"corrected {second}", names=(target,)), [event("correction", data)])
            case "cite":
                entries = [note(f"cites {second}", source=[node.handle.name, position + 1])]
                await self.append(node, Item(f"cites {second}", names=(target,)), entries)
            case "hand over":
                low, high = sorted((position, second % len(shown)))
                recalled = frozenset(shown[low : high + 1])
                entry = anchor("phase", {"source_ids": [position + 1]}, recalls=[(low + 1, high + 1)])
                await self.append(node, Item("phase", names=(target,), recalls=recalled), [entry])
            case "step":
                await self.step(node, VIEWS[second % len(VIEWS)])
            case "fork" if len(self.nodes) < 8:
                await self.open(node)
            case "merge" if node.parent is not None:
                await self.merge(node)
            case "discard" if node.parent is not None:
                await node.fork.discard()
                self.forget(node)
            case "reopen":
                await self.reopen()

    async def open(self, node: Node) -> None:
        opened = await (self.tape.open_fork() if node is self.root else node.fork.fork())
        assert opened.base == len(node.shown)
        self.nodes.append(Node(opened, node, len(node.shown)))

    async def step(self, node: Node, view: ContextView) -> None:
        """Records a request as a turn does."""
        head = await node.handle.head()
        if node is not self.root and node.parent is not self.root:
            view = replace(view, fork=node.fork.id)
        try:
            context = await node.handle.read(view)
        except AnchorNotFound:  # of a view from an anchor that is not there yet
            return
        name = f"step {len(self.steps)}"
        self.steps[name] = node.shown
        data: dict[str, Any] = {
            "step": name,
            "view": view.as_json(),
            "head": head,
            "as_of": [[1, head]],
            "shown": [[id_, id_] for id_ in context.ids],
            "parameters": {},
            "request": ModelRequest("", context.messages, (), {}, context.texts).digest(),
        }
        names = (node.shown[-1], *[node.shown[id_ - 1] for id_ in context.ids])
        await self.append(node, Item(name, names=names), [event("loop.step", data)])

    async def merge(self, node: Node) -> None:
        parent = node.parent
        assert parent is not None
        has_forks = any(other.parent is node for other in self.nodes)
        known = [parent.known(item) for item in node.own]
        clashes = [
            one
            for item, one in zip(node.own, known, strict=True)
            if one is not None and one.text != item.text and not item.skipped_if_known
        ]
        grown = len(parent.shown) - node.base
        try:
            merged = (await node.fork.merge()).delta
        except TapeConflict:
            label("conflict at a merge")
            assert has_forks or clashes
            if not has_forks:
                await node.fork.discard()
                self.forget(node)
            return
        assert not has_forks
        assert not clashes
        label(f"merged into {'the tape' if parent is self.root else 'a fork'}, {'grown' if grown else 'as it was'}")
        for item, one, entry in zip(node.own, known, merged, strict=True):
            if one is None:
                parent.own.append(item)
            else:
                self.stands_for[item] = one
                if (one.text, one.author) != (item.text, item.author):
                    self.replaced.add(item)
            assert entry.id == parent.shown.index(one or item) + 1
        self.nodes.remove(node)

    def forget(self, node: Node) -> None:
        for other in [other for other in self.nodes if other.parent is node]:
            self.forget(other)
        self.nodes.remove(node)

    async def reopen(self) -> None:
        """As after a crash, but everything was saved."""
        for node in self.nodes[1:]:
            await node.fork.save()
        records = {record.id: record for record in await self.store.forks() if record.tape == self.tape.name}
        assert sorted(records) == sorted(node.fork.id for node in self.nodes[1:])
        for node in self.nodes[1:]:  # a parent comes before its forks
            assert node.parent is not None
            opener = self.tape if node.parent is self.root else node.parent.fork
            node.handle = opener.reopen_fork(records[node.fork.id])

    async def check(self, node: Node) -> None:
        """The node shows what the model shows, with the references where they belong."""
        (entries,) = await node.handle.fetch([TapeQuery(self.tape.name)])
        shown = node.shown
        assert len(entries) == len(shown)
        places = {self.standing(item): place for place, item in enumerate(shown, 1)}
        for place, (entry, item) in enumerate(zip(entries, shown, strict=True), 1):
            assert (entry.id, entry.key) == (place, item.key)
            named = [places[self.standing(one)] for one in item.names]
            data = entry.payload.get("data", {})
            if entry.kind == "message":
                assert entry.payload["content"] == item.text
                assert entry.meta.get("source") == ((self.tape.name, named[0]) if named else None)
            elif entry.name == "correction":
                assert [data["corrects"]] == named
            elif entry.name == "phase":
                assert list(entry.payload["state"]["source_ids"]) == named
                assert _ids(entry.payload["recalls"]) == {places[self.standing(one)] for one in item.recalls}
            elif entry.name == "loop.step":
                assert data["head"] == named[0]
                assert _ids(data["shown"]) == set(named[1:])

    async def check_requests(self) -> None:
        """Each recorded request is built again byte for byte; only where another one stood under a key it is not."""
        entries = await whole(self.store, self.tape.name)
        texts = {"system": b"", "tools": b"[]"}
        blobs = {name: await self.store.put_blob(self.tape.name, text) for name, text in texts.items()}
        for data in [entry.payload["data"] for entry in entries if entry.name == "loop.step"]:
            if self.replaced.isdisjoint(self.steps[data["step"]]):
                label(f"rebuilt {'after a rebase' if len(data['as_of']) > 1 else 'as it was'}")
                request = await rebuild_request({**data, **blobs}, self.tape)
                assert request.digest() == data["request"]
                await self.check_recorded(data["as_of"], entries)

    async def check_recorded(self, spans: Sequence[Sequence[int]], entries: Sequence[TapeEntry]) -> None:
        """Every query on the tape as it was finds what it finds among all of its entries, put back as they were."""
        then = [entry for low, high in spans for entry in entries[low - 1 : high]]
        before = entries_as_of(self.tape.name, then, KERNEL_REFERENCES)
        recorded = await self.tape.as_of(spans)
        assert await recorded.head() == len(before)
        queries = [TapeQuery(self.tape.name, part, missing="empty") for part in PARTS]
        queries += [TapeQuery(self.tape.name, newest=True, limit=3, as_of=as_of) for as_of in (None, len(before) // 2)]
        assert await recorded.fetch(queries) == [tuple(evaluate(before, query)) for query in queries]


PARTS = (WholeTape(), Window(), OpeningAnchor(), AfterAnchor("phase"), IdRanges(((2, 4), (6, 9))))


def _ids(spans: Sequence[Sequence[int]]) -> set[int]:
    return {id_ for low, high in spans for id_ in range(low, high + 1)}


ACTIONS = (
    *["say"] * 3, *["key"] * 3, *["correct"] * 3, "cite", *["hand over"] * 2, *["step"] * 3, *["fork"] * 4,
    *["merge"] * 4, "discard", "reopen",
)  # fmt: skip
actions = st.tuples(st.sampled_from(ACTIONS), st.integers(0, 7), st.integers(0, 30), st.integers(0, 30))


async def merged_as_modelled(store: TapeStore, name: str, done: Sequence[tuple[str, int, int, int]]) -> None:
    forest = Forest(store, name)
    await forest.begin()
    for action, *numbers in done:
        await forest.do(action, *numbers)
        for node in forest.nodes:
            await forest.check(node)
    while len(forest.nodes) > 1:
        inner = next(node for node in forest.nodes[1:] if all(other.parent is not node for other in forest.nodes))
        await forest.merge(inner)
    await forest.check(forest.root)
    await forest.check_requests()
    assert [record for record in await store.forks() if record.tape == name] == []


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    path: Path = tmp_path_factory.mktemp("forks") / "bubbot.db"
    with open_bench(path) as opened:
        yield opened


@pytest.mark.law("T5", "T13")
@settings(max_examples=settings().max_examples * 3)
@given(st.lists(actions, min_size=15, max_size=50))
def test_forks_in_memory_merge_as_the_model_says(bench: Bench, done: list[tuple[str, int, int, int]]) -> None:
    bench.run(merged_as_modelled(InMemoryStore(), bench.fresh(), done))


@pytest.mark.law("T5", "T13", "T16")
@given(st.lists(actions, min_size=15, max_size=30))
def test_forks_in_sqlite_merge_as_the_model_says(bench: Bench, done: list[tuple[str, int, int, int]]) -> None:
    async def check(name: str) -> None:
        await merged_as_modelled(bench.store, name, done)
        assert (await bench.store.audit(name)).findings == ()

    bench.run(check(bench.fresh()))
