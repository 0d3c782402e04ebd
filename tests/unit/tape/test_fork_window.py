"""Windows of sub-tasks: an anchor that one wrote moves only its own window (T11), and contexts keep them apart."""

from __future__ import annotations

import pytest

from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.runtime.context.view import ContextView
from bubbot.tape import entry as make
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import OpeningAnchor, TapeQuery, Window, evaluate
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from tests.doubles import CountingIds, SteppingClock

NAME = "tape"


def said(text: str, role: str = "user") -> TapeEntry:
    return make.message(role, text)


@pytest.fixture
async def tape(store: TapeStore) -> TapeService:
    made = TapeService(store, NAME, now=SteppingClock(), new_id=CountingIds())
    await made.append([anchor("session/start"), said("hello")])
    return made


def shown(entries: tuple[TapeEntry, ...] | list[TapeEntry]) -> list[str]:
    return [entry.payload.get("content", entry.name) for entry in entries]


async def window(handle: object, fork: str = "") -> list[str]:
    opening, entries = await handle.fetch([TapeQuery(NAME, OpeningAnchor(fork)), TapeQuery(NAME, Window(fork))])  # type: ignore[attr-defined]
    return shown([*opening, *entries])


@pytest.mark.law("T11", "T13")
async def test_an_anchor_of_a_sub_task_moves_only_its_own_window(tape: TapeService, store: TapeStore) -> None:
    turn = await tape.open_fork([said("question")])
    child = await turn.fork([anchor("agent/x"), said("task")])
    inner = await child.fork([anchor("agent/y"), said("inner task")])
    own, childs, inners = ["session/start", "hello", "question"], ["agent/x", "task"], ["agent/y", "inner task"]
    assert [await window(one) for one in (turn, child, inner)] == [own, childs, inners]
    await inner.merge()
    assert await window(child) == [*childs, "agent/y", "inner task"]
    await child.merge()
    own += ["agent/x", "task", "agent/y", "inner task"]
    assert await window(turn) == own
    await turn.append([said("after")])
    await turn.merge()
    assert await window(tape) == [*own, "after"]
    entries = await store.fetch([TapeQuery(NAME)])
    for fork in (child.id, inner.id, "other", ""):
        for part in (Window(fork), OpeningAnchor(fork)):
            (found,) = await store.fetch([TapeQuery(NAME, part)])
            assert list(found) == evaluate(entries[0], TapeQuery(NAME, part))
    assert await window(store, inner.id) == ["agent/y", "inner task", "after"]
    assert await window(store, child.id) == ["agent/x", "task", "agent/y", "inner task", "after"]


@pytest.mark.law("T11")
async def test_a_sub_task_without_an_anchor_reads_the_window_of_its_turn(tape: TapeService) -> None:
    turn = await tape.open_fork([said("question")])
    child = await turn.fork([said("aside")])
    assert await window(child) == ["session/start", "hello", "question", "aside"]
    await child.handoff("phase", {})
    assert (await window(child))[:1] == ["phase"]
    await child.merge()
    assert (await window(turn))[:4] == ["session/start", "hello", "question", "aside"]


@pytest.mark.law("T10", "T13")
async def test_a_context_shows_what_its_own_task_wrote(tape: TapeService) -> None:
    turn = await tape.open_fork([said("question")])
    child = await turn.fork([anchor("agent/x"), said("task")])
    inner = await child.fork([said("inner task"), said("inner answer", "assistant")])
    await inner.merge()
    await child.append([said("answer", "assistant")])
    in_child = await child.read(ContextView(fork=child.id))
    assert [message["content"] for message in in_child.messages][1:] == ["task", "answer"]
    await child.merge()
    await turn.append([said("done", "assistant")])
    for selector in ("window", "messages", "full", "compact", "summary"):
        context = await turn.read(ContextView(selector, budget=100_000, strategies=OWN_STRATEGIES))
        texts = [message["content"] for message in context.messages if "[" not in message["content"]]
        assert texts == ["hello", "question", "done"], selector
