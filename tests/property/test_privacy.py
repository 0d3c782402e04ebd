"""The privacy law: nobody is shown what was said or kept elsewhere, whatever people do; with any guard removed, somebody is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from bubbot.app.reading import session_reader
from bubbot.feature import ReadSession
from bubbot.features.access.links import AccountLinks
from bubbot.features.access.service import AccessService
from bubbot.features.files import roots as files
from bubbot.features.memory import memories
from bubbot.features.strategies import recall, retrieval
from bubbot.features.topics.commands import require_session
from bubbot.ports.turn import Turn
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import TapeQuery
from tests.isolation.acts import LEFT_OUT, Acts
from tests.isolation.world import World

pytestmark = pytest.mark.law("P1")
TURNS = 160
"""Besides a call of every tool, some sixty."""
LOOKED_AT = (
    "request", "sub-task", "sent", "preview", "edit", "evidence", "own memory", "summary", "secret", "linked", "revoked", "granted",
    "job elsewhere", "export", "chat.read", "tape.search", "tape.read", "memory.recall", "memory.why", "session.why", "session.context",
    "tape.graph", "topic.open",
)  # fmt: skip
"""What a run has to have watched, so that none of it passes because nothing was looked at."""


def run(home: Path, seed: int, turns: int, *, lives: int = 2, everywhere: bool = False) -> Acts:
    """Let people act in a new home over some lives of its bot, the last of which calls every tool; look through tapes and exports."""
    acts = Acts(World(home), Random(seed))

    async def live() -> None:
        for life in range(lives):
            async with acts.world.life():
                await acts.run(turns // lives)
                if life == lives - 1:
                    await acts.call_every_tool(everywhere=everywhere)
                await acts.world.audit()

    asyncio.run(live())
    acts.world.export()
    return acts


def test_nobody_is_shown_what_belongs_elsewhere(tmp_path: Path) -> None:
    acts = run(tmp_path / "home", 61, TURNS)
    assert acts.world.leaks == []
    assert [name for name in LOOKED_AT if not acts.world.seen[name]] == []
    assert acts.used == {tool.name for tool in acts.world.toolbox} - LEFT_OUT


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(10))
def test_nobody_is_shown_what_belongs_elsewhere_in_many_turns(tmp_path: Path, seed: int) -> None:
    assert run(tmp_path / "home", seed, 1_000, lives=4, everywhere=not seed).world.leaks == []


def first_leak(home: Path, guard: Guard, turns: int = 400) -> Sequence[str]:
    """Let people act until somebody sees too much."""
    acts = Acts(World(home), Random(guard.seed))

    async def live() -> None:
        async with acts.world.life():
            await acts.run(turns, stop_at_leak=True, often=guard.often)
            await acts.world.audit()

    asyncio.run(live())
    return acts.world.leaks


_choose_zones = vars(memories)["choose_zones"]


def _choose_in_groups(facts: Any, enabled: Any) -> Any:
    return _choose_zones(replace(facts, is_direct=True), enabled)


def _choose_elsewhere(facts: Any, enabled: Any) -> Any:
    return _choose_zones(replace(facts, replies_elsewhere=False), enabled)


async def _revoke_nothing(*_: object) -> None:
    """In place of taking a grant back."""


async def _link_everybody(*_: object) -> tuple[tuple[str, str], ...]:
    return (("tg", "1"), ("tg", "5"), ("tg", "7"), ("dc", "11"), ("dc", "15"))


def _read_every_chat(patch: pytest.MonkeyPatch) -> None:
    """Let every chat read every other one."""
    patch.setattr("bubbot.app.bot.session_reader", lambda open_tape, _, *rest: session_reader(open_tape, _agree, *rest))


def _agree(*_: object) -> bool:
    return True


def _trust_bindings(patch: pytest.MonkeyPatch) -> None:
    """Let whoever has bound a topic to a chat read there."""
    bound = set[tuple[str, str]]()

    async def require_nothing(turn: Turn, source: str, read_session: ReadSession) -> Any:
        if not turn.inbounds[0].inbound.text.startswith(",topic"):  # `chat.read` opens what was bound
            return await require_session(turn, source, read_session)
        bound.add((turn.session, source))
        return SimpleNamespace(session=source)

    patch.setattr("bubbot.features.topics.commands.require_session", require_nothing)

    def build_reader(open_tape: Any, may_read: Callable[[str, str], bool], *rest: Any) -> ReadSession:
        return session_reader(
            open_tape, lambda reader, source: (reader, source) in bound or may_read(reader, source), *rest
        )

    patch.setattr("bubbot.app.bot.session_reader", build_reader)


def _read_evidence_elsewhere(patch: pytest.MonkeyPatch) -> None:
    """Take what is recalled from another tape, by the same ids."""
    tapes: list[str] = []

    def query(tape: str, *part: Any, **options: Any) -> TapeQuery:
        tapes.append(tape)
        return TapeQuery(next((other for other in tapes if other != tape), tape), *part, **options)

    patch.setattr(retrieval, "TapeQuery", query)


def _recall_subtasks(patch: pytest.MonkeyPatch) -> None:
    for module in (retrieval, recall):
        patch.setattr(
            module, "is_evidence", lambda entry: not entry.erased and bool(retrieval.evidence_text(entry).strip())
        )


@dataclass(frozen=True)
class Guard:
    """What keeps words where they belong: `remove` takes it away, and people do what it is for more `often`.

    With the `seed` a leak comes early; with any other one it comes too, but later.
    """

    remove: Callable[[pytest.MonkeyPatch], None]
    often: Sequence[str] = ()
    seed: int = 3


def replaced(target: object, name: str, by: object, *often: str, seed: int) -> Guard:
    """A guard that is one function."""
    return Guard(lambda patch: patch.setattr(target, name, by), often, seed)


GUARDS = {
    "the grant": replaced(AccessService, "may_read", lambda *_: True, seed=10),
    "taking a grant back": replaced(AccessService, "revoke_reading", _revoke_nothing, "grant", "model_reads", seed=6),
    "the chat of a thread": Guard(_read_every_chat, seed=1),
    "the binding of a topic": Guard(_trust_bindings, ("open_topic", "model_reads", "remember"), seed=6),
    "own memory in groups": replaced(memories, "choose_zones", _choose_in_groups, seed=5),
    "own memory elsewhere": replaced(
        memories, "choose_zones", _choose_elsewhere, "send_elsewhere", "keep", "link", seed=7
    ),
    "whose accounts are linked": replaced(AccountLinks, "linked_accounts", _link_everybody, seed=10),
    "the workspace of a chat": replaced(
        files, "workspace_folder", lambda home, _: home / "sessions", "model_reads", seed=7
    ),
    "the tape of evidence": Guard(_read_evidence_elsewhere, ("remember", "change_context", "ask"), seed=10),
    "sub-tasks in evidence": Guard(_recall_subtasks, ("invent",), seed=6),
    "sub-tasks for others": replaced(TapeEntry, "is_shown_to", lambda *_: True, "invent", seed=6),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("guard", GUARDS)
def test_without_a_guard_somebody_sees_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guard: str) -> None:
    GUARDS[guard].remove(monkeypatch)
    assert first_leak(tmp_path / "home", GUARDS[guard])
