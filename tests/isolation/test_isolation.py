"""The privacy law: nobody is shown what was said or kept elsewhere, whatever people do; with any guard removed, somebody is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.isolation.acts import ACTS, LEFT_OUT
from tests.isolation.agents import AGENTS
from tests.isolation.guards import GUARDS
from tests.isolation.run import run

pytestmark = pytest.mark.law("P1")
TURNS = 500
MOST_SEEDS = 12
LOOKED_AT = (
    "request", "sub-task", "sent", "preview", "edit", "evidence", "own memory", "summary", "secret", "linked", "revoked", "granted",
    "job elsewhere", "page", "audited page", "program", "spans", "log", "export", "chat.read", "tape.search", "tape.read", "memory.recall",
    "memory.why", "session.why", "session.context", "tape.graph", "topic.open", "tape.handoff", "schedule.list", "approval.list",
    "audit.revoke", "session.explain", "session.usage", "picture", "file.send", "reaction", "deleted", "typing", "sent to a program",
    "preview to a program", "completion", "knock", "status", "reach", "repeat",
    "view", "view of anchors", "view.add",
    "own words", "asked by an agent", *(f"asked {agent}" for agent in AGENTS), "agent.order", "branch", "branch.ask", "branch.choose",
    "agent.list", "branch.list", "asked in a task",
)  # fmt: skip
"""What a run has to have watched, so that none of it passes because nothing was looked at."""


@pytest.mark.timeout(300)
def test_nobody_is_shown_what_belongs_elsewhere(tmp_path: Path) -> None:
    acts = run(tmp_path / "home", 112, TURNS)
    assert acts.world.leaks == []
    assert [name for name in LOOKED_AT if not acts.world.seen[name]] == []
    assert acts.done == {each.do.__name__ for each in ACTS}
    assert acts.used == {tool.name for tool in acts.world.toolbox} - LEFT_OUT


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(10))
def test_nobody_is_shown_what_belongs_elsewhere_in_many_turns(tmp_path: Path, seed: int) -> None:
    assert run(tmp_path / "home", seed, 1_000, everywhere=not seed).world.leaks == []


@pytest.mark.sampled(20)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("guard", GUARDS)
def test_without_a_guard_somebody_sees_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guard: str) -> None:
    GUARDS[guard].remove(monkeypatch)
    # A new tool or argument shifts what a seed draws: then another one shows it, and takes the place of the first.
    seeds = dict.fromkeys((GUARDS[guard].seed, *range(MOST_SEEDS)))
    for seed in seeds:
        if run(tmp_path / str(seed), seed, TURNS, stop_at_leak=True).world.leaks:
            return
    pytest.fail(f"nobody saw too much within {TURNS} turns of any of {len(seeds)} seeds")
