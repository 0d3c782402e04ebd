"""What stays on the tape of tasks if a person is forgotten: the runs of others, in the states in which they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec.structs import replace as replace_fields

from bubbot.features.people.facts import PersonForgetting
from bubbot.features.tasks.facts import TASKS_TAPE, NodeChanged, RunChanged, RunQueued
from bubbot.features.tasks.forgetting import restate_tasks
from bubbot.features.tasks.state import RunState, TasksState
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.forgetting import ForgottenPerson
from bubbot.tape.entry import TapeEntry
from bubbot.tape.fact import Fact
from bubbot.tape.store import Batch
from tests.family import GROUP, MEMBER, OWNER, family
from tests.task_runs import ANSWERS, begin_digest, write_digest
from tests.tasks import QUESTION, TaskBench

ANN = ForgottenPerson(accounts=(("tg", "1"),), chats=("tg:1",))


def queued(run: str, by: str = "5", session: str = "tg:-8") -> RunQueued:
    return RunQueued(run, "digest", session, "tg", by, "Somebody", (), False, "", ("a", "b"), True, f"m{run}")


def node(run: str, name: str, status: Any, attempt: int = 1, **fields: Any) -> NodeChanged:
    return NodeChanged(run=run, node=name, status=status, attempt=attempt, **fields)


def stored(*facts: Fact) -> list[TapeEntry]:
    return [replace(fact.to_entry(), id=place) for place, fact in enumerate(facts, 1)]


def after(entries: list[TapeEntry], erased: set[int]) -> dict[str, RunState]:
    """The runs after the erasure and what it restates."""
    restated = restate_tasks(TASKS_TAPE, entries, ANN, erased)
    left = [entry for entry in entries if entry.id not in erased | restated.erased]
    added = [replace(entry, id=len(entries) + place) for place, entry in enumerate(restated.added, 1)]
    return TasksState().apply([*left, *added]).runs


def test_runs_of_the_person_go_whole_ended_or_not_and_nothing_of_others() -> None:
    entries = stored(
        queued("MINE", by="1"),
        queued("BENS"),
        node("MINE", "a", "succeeded"),
        node("BENS", "a", "succeeded"),
        RunChanged(run="MINE", status="cancelled"),
        queued("HERE", session="tg:1:7"),
        node("HERE", "a", "running", fork="f"),
    )
    restated = restate_tasks(TASKS_TAPE, entries, ANN, {1})
    assert restated.erased == {3, 5, 6, 7}
    assert restated.added == ()
    assert after(entries, {1}).keys() == {"BENS"}


def test_an_account_of_another_channel_with_the_same_number_is_somebody_else() -> None:
    entries = stored(replace_fields(queued("OTHER", by="1", session="dc:9"), channel="dc"))
    assert restate_tasks(TASKS_TAPE, entries, ANN, set()).erased == frozenset()


def test_a_run_of_another_keeps_its_states_if_the_person_went_on_with_it() -> None:
    entries = stored(
        queued("BENS"),
        node("BENS", "a", "waiting", tokens=5, seconds=1.0, until="2030-01-01T00:00:00+00:00"),
        node("BENS", "a", "running", 2, fork="f1"),
        node("BENS", "a", "succeeded", 2, tokens=7, seconds=2.0),
        node("BENS", "b", "running", fork="f2"),
        node("BENS", "b", "running", fork="f3"),
        RunChanged(run="BENS", status="blocked", reason="task_stopped"),
    )
    (before,) = TasksState().apply(entries).runs.values()
    run = after(entries, {4, 6})["BENS"]
    assert [(each.status, each.attempt, each.forks) for each in run.nodes] == [
        (each.status, each.attempt, each.forks) for each in before.nodes
    ]
    assert run.nodes[1].forks == ("f2", "f3")  # else what the attempt did would be done again
    assert (run.status, run.reason, run.tokens, run.seconds) == ("blocked", "task_stopped", 12, 3.0)


def test_an_ended_run_of_another_stays_ended_with_its_verdicts() -> None:
    entries = stored(
        queued("BENS"),
        node("BENS", "a", "succeeded"),
        RunChanged(run="BENS", status="cancelled"),
        node("BENS", "b", "succeeded"),  # it came too late
    )
    run = after(entries, {3})["BENS"]
    assert (run.status, [each.status for each in run.nodes]) == ("cancelled", ["succeeded", "queued"])


async def test_in_a_bot_the_runs_of_the_forgotten_go_and_those_of_others_go_on(tmp_path: Path) -> None:
    write_digest(tmp_path)
    async with family(tmp_path, ScriptedModel(ANSWERS), agents={}) as bot:
        bench = TaskBench(bot)
        kept = await begin_digest(bench, "the school board", OWNER, GROUP)
        question = QUESTION.findall("\n".join(bot.channel.texts))[-1]
        await begin_digest(bench, "the harvest of Ben", MEMBER, GROUP)
        await begin_digest(bench, "the garden of Ben", MEMBER)
        assert len(bench.runs.state.runs) == 3
        inbox = "bubbot/inbox/tg"
        theirs = next(
            e for e in await bot.entries(inbox) if e.name == "inbox/received" and e.data["sender"]["id"] == MEMBER
        )
        await bot.daemon.bot.store.append(
            [Batch("bubbot/people", (PersonForgetting((inbox, theirs.id), "owner").to_entry(),))]
        )
    async with family(tmp_path, ScriptedModel(ANSWERS), agents={}) as bot:
        bench = TaskBench(bot)
        assert [*bench.runs.state.runs] == [kept]
        left = [
            entry for entry in await bot.entries(TASKS_TAPE) if not entry.erased and entry.name != "tasks/checkpoint"
        ]
        assert {entry.data["run"] for entry in left} == {kept}
        group = "\n".join(str(dict(entry.payload)) for entry in await bot.entries(GROUP))
        assert ("the school board" in group, "the harvest" in group) == (True, False)
        await bench.say(f",approve {question}", chat=GROUP)
        assert bench.runs.state.runs[kept].status == "succeeded"
