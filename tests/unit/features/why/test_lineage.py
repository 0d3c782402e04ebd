"""Where a window comes from: the anchors it continues, and the entries that they rest on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bubbot.models.scripted import ScriptedModel
from bubbot.shell_command import CommandContext
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, event, message
from bubbot.tape.service import TapeService
from bubbot.tape.store import Batch
from bubbot.texts import Texts
from tests.callers import run_shell
from tests.doubles import SteppingClock
from tests.turns import running


@pytest.fixture
def read(memory_store: InMemoryStore, tape: TapeService) -> Callable[..., Any]:
    async def read(head: int) -> Any:
        """The lineage of an answer that was given when the tape ended so, as programs get it."""
        step = {"step": 1, "as_of": [[1, head]], "head": head, "shown": [], "status": "ok"}
        facts = [
            event("turn/start", {"attempt": 1}),
            event("loop.step", step),
            event("turn/end", {"status": "answered"}),
        ]
        await tape.append([fact.with_meta({"turn": f"t{head}"}, "") for fact in facts])
        told = await run_shell("why", CommandContext(memory_store, "w", SteppingClock(), str), session=tape.name)
        assert told.data is not None
        return told.data["lineage"]

    return read


async def test_it_follows_parents_and_sources_to_entry_ids(tape: TapeService, read: Callable[..., Any]) -> None:
    await tape.append([anchor("session/start"), message("user", "a"), message("user", "b")])
    await tape.append([anchor("summary/one", {"source_ids": [2, 3]}), message("user", "c")])
    await tape.append([anchor("topic/x", {"parents": [1]}, window=False)])
    state = {"parents": [6, ["other", 3]], "source_ids": [5, 4]}
    await tape.append([anchor("summary/two", state, recalls=[(5, 5)])])
    found = await read(7)
    assert [
        (one["id"], one["parents"], one["elsewhere"], one["sources"], one["recalls"]) for one in found["anchors"]
    ] == [
        (7, (6,), 1, ((4, 5),), ((5, 5),)),
        (6, (1,), 0, (), ()),
        (4, (), 0, ((2, 3),), ()),
        (1, (), 0, (), ()),
    ]
    assert (found["entries"], found["is_cut"]) == (((2, 5),), False)


async def test_an_anchor_beside_the_sources_is_none_of_them(tape: TapeService, read: Callable[..., Any]) -> None:
    await tape.append([anchor("before"), message("user", "a"), anchor("after"), anchor("b", {"source_ids": [2]})])
    found = await read(4)
    assert [one["id"] for one in found["anchors"]] == [4]


async def test_what_is_no_anchor_has_no_lineage(tape: TapeService, read: Callable[..., Any]) -> None:
    await tape.append([message("user", "a")])
    assert await read(1) is None


async def test_a_long_lineage_is_cut(tape: TapeService, read: Callable[..., Any]) -> None:
    await tape.append([anchor("x", {"parents": [number - 1] if number > 1 else []}) for number in range(1, 60)])
    found = await read(59)
    assert [one["id"] for one in found["anchors"]] == list(range(59, 39, -1))
    assert found["is_cut"]
    await tape.append([anchor("wide", window=False) for _ in range(300)])
    await tape.append([anchor("all", {"parents": list(range(63, 363))})])
    found = await read(363)
    assert (len(found["anchors"]), found["is_cut"]) == (100, True)


async def test_forged_names_lead_nowhere(tape: TapeService, read: Callable[..., Any]) -> None:
    """An import may hold anything: names of itself, of younger entries, of nothing."""
    state = {"parents": [2, 1, -4, "x", [["a"], 1]], "source_ids": [2, 1, True, "y", 10**30]}
    await tape.append([anchor("a", state, recalls=[(-5, 0)]), anchor("b", state), anchor("c", {"source_ids": 7})])
    found = await read(2)
    assert [(one["id"], one["parents"], one["sources"], one["recalls"]) for one in found["anchors"]] == [
        (2, (1,), ((1, 1),), ()),
        (1, (), (), ()),
    ]
    assert (await read(3))["anchors"][0]["sources"] == ()


async def test_an_answer_names_the_window_it_was_given_in(memory_store: InMemoryStore, clock: SteppingClock) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        await bench.say("hello")
        assert "window opened" not in (await bench.say(",why")).text, "the first window comes from nothing"
        first = [entry.id for entry in await bench.entries() if entry.opens_window]
        await bench.say(f",handoff name=phase/two parents={first[0]} source_ids={first[0] + 1}")
        await bench.say("go on")
        opened = [entry.id for entry in await bench.entries() if entry.opens_window][-1]
        await bench.say(",new")
        lines = (await bench.say(",why")).text.splitlines()
        says = [line for line in lines if "window" in line or "comes from" in line]
        assert says == [
            f"window opened by #{opened} phase/two; parents #{first[0]}; sources: entries {first[0] + 1}",
            f"  comes from #{first[0]} session/start",
        ]
        context = CommandContext(memory_store, "w", clock, bench.new_id, texts=Texts("zh"))
        chinese = await run_shell("why", context, session=bench.tape().name)
        assert f"窗口由 #{opened} phase/two 开启；承接 #{first[0]}" in chinese.text


async def test_a_step_of_a_rebased_fork_names_its_own_window(memory_store: InMemoryStore, tape: TapeService) -> None:
    """The anchor that another fork wrote meanwhile opens no window of this one."""
    await tape.append([anchor("session/start"), message("user", "a")])
    fork = await tape.open_fork()
    await fork.append([event("turn/start", {"attempt": 1})])
    await fork.handoff("mine", {"parents": [1]})
    head = await fork.head()
    await fork.append(
        [event("loop.step", {"step": 1, "as_of": [[1, head]], "head": head, "shown": [], "status": "ok"})]
    )
    await fork.append([event("turn/end", {"status": "answered"})])
    await tape.append([anchor("theirs"), message("user", "b")])
    merged = (await fork.merge()).delta
    told = await run_shell("why", CommandContext(memory_store, "w", SteppingClock(), str), session=tape.name)
    assert told.data is not None
    assert [(one["id"], one["name"]) for one in told.data["lineage"]["anchors"]] == [
        (merged[1].id, "mine"),
        (1, "session/start"),
    ]


async def test_the_shell_explains_as_the_chat_does(memory_store: InMemoryStore, clock: SteppingClock) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        context = CommandContext(memory_store, "w", clock, bench.new_id)
        tape = bench.tape().name
        await bench.say(",tape.info")
        nothing = await run_shell("why", context, session=tape)
        assert (nothing.code, nothing.text) == (1, "No model has answered here yet.\n")
        answered = await bench.say("hello")
        await bench.say(",new")
        await bench.say("again")
        last = await run_shell("why", context, session=tape)
        assert last.text in (await bench.say(",why")).text.replace(",why yes", "") + "\n"
        first = await run_shell("why", context, session=tape, trace=answered.turn_id[:8])
        assert first.data is not None
        assert (first.data["turn"], first.data["answer"]) == (answered.turn_id, first.data["steps"][0]["entry"] - 1)
        assert first.data["lineage"]["anchors"][0]["name"] == "session/start"


async def test_an_erased_anchor_ends_its_line(
    memory_store: InMemoryStore, tape: TapeService, read: Callable[..., Any]
) -> None:
    anchors = TapeEntry("anchor", {}, erased=True), anchor("b", {"parents": [1]})
    await memory_store.append([Batch(tape.name, anchors)])
    assert [(one["id"], one["name"]) for one in (await read(2))["anchors"]] == [(2, "b"), (1, "")]
