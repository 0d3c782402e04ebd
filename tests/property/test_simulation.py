"""Schedules of the bot's own gateway, runtime, outbox and approvals, chosen by seeds: `tests/simulation` has people, platform,
processes that are killed, and what has to be true however it went. A failure names the command that runs it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import pytest
from msgspec import structs

from bubbot.gateway.inbox import Inbox
from bubbot.gateway.inbox_views import SessionTraceView
from bubbot.ports.channel import ChannelEvent, Inbound, Receive
from bubbot.ports.turn import AcceptedInbound
from bubbot.tape.entry import TapeEntry
from bubbot.tape.store import Batch, ResetBatch
from bubbot.tape.view import QueryAnswers
from tests.simulation.process import Adapter, Connection, SearchedAdapter
from tests.simulation.schedules import Schedule

SCHEDULES, LONG = 100, 10_000
AT_ONCE = 100
"""Schedules of one test: each test has its own limit of time."""
FOUND_WITHIN = 300
"""Schedules within which a planted fault has to be found."""

# What is left of a killed process runs into its end, and some of it has not begun yet.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


def run_schedules(seeds: range, adapter: type[Adapter] | None = None) -> None:
    for seed in seeds:
        Schedule(seed, adapter=adapter).run()


@pytest.mark.law("T2", "T5", "T10", "T12", "T14", "T17", "T20", "P1")
@pytest.mark.parametrize("first", range(0, SCHEDULES, 25))
def test_nothing_is_lost_doubled_or_mixed_up_whichever_task_runs_first_and_whenever_a_process_ends(first: int) -> None:
    run_schedules(range(first, first + 25))


@pytest.mark.proof
@pytest.mark.parametrize("first", range(SCHEDULES, LONG, AT_ONCE))
def test_nothing_is_lost_doubled_or_mixed_up_in_many_schedules(first: int) -> None:
    run_schedules(range(first, min(first + AT_ONCE, LONG)))


@pytest.mark.parametrize("seed", [12, 22, 26])
def test_the_same_seed_is_the_same_schedule(seed: int) -> None:
    first, second = Schedule(seed), Schedule(seed)
    first.run()
    second.run()
    assert first.platform.story == second.platform.story
    assert first.steps == second.steps
    assert "KILL" in first.platform.story


class Hasty(SearchedAdapter):
    """Acknowledges an update before it is durable."""

    async def take(self, receive: Receive, chat: str, event: ChannelEvent) -> None:
        """See `Adapter`."""
        self._platform.acknowledge(chat, event)
        await receive(event)


def acknowledge_first(_patch: pytest.MonkeyPatch) -> None:
    """Only the adapter is another one."""


def settle_outside_the_merge(patch: pytest.MonkeyPatch) -> None:
    merge_fork = Connection.merge_fork

    async def merge_then_settle(
        self: Connection, fork: str, batches: Sequence[Batch], reset: tuple[str, ResetBatch] | None = None
    ) -> list[tuple[TapeEntry, ...]]:
        settling = [batch for batch in batches if any(entry.name == "inbox/done" for entry in batch.entries)]
        stored = await merge_fork(self, fork, [batch for batch in batches if batch not in settling], reset)
        settled = await self.append(settling)
        merged, after = iter(stored), iter(settled)
        return [next(after) if batch in settling else next(merged) for batch in batches]

    patch.setattr(Connection, "merge_fork", merge_then_settle)


def look_then_accept(patch: pytest.MonkeyPatch) -> None:
    accept = Inbox.accept

    async def accept_if_absent(
        self: Inbox, inbound: Inbound, also: Mapping[str, Sequence[TapeEntry]] = MappingProxyType({})
    ) -> AcceptedInbound | None:
        if await self.has_fact(inbound.session, inbound.external_id):
            return None
        accepted = await accept(self, inbound, also)
        return accepted or await accept(self, structs.replace(inbound, external_id=f"{inbound.external_id}'"), also)

    patch.setattr(Inbox, "accept", accept_if_absent)


def begin_without_a_trace(patch: pytest.MonkeyPatch) -> None:
    extend_fork = Connection.extend_fork

    async def forget_beginnings(
        self: Connection, fork: str, staged: Sequence[Batch], reset: ResetBatch | None = None
    ) -> None:
        if not any(entry.name == "effect.begin" for batch in staged for entry in batch.entries):
            await extend_fork(self, fork, staged, reset)

    patch.setattr(Connection, "extend_fork", forget_beginnings)


def erase_what_waits(patch: pytest.MonkeyPatch) -> None:
    def fold_all(self: SessionTraceView, answers: QueryAnswers) -> tuple[int, ...]:
        stored = [entry for entry in answers[0] if not entry.erased]
        return tuple(entry.id for entry in stored if self.session in self.references.find_sessions(entry))

    patch.setattr(SessionTraceView, "fold", fold_all)


@pytest.mark.parametrize(
    ("plant", "adapter"),
    [
        (acknowledge_first, Hasty),
        (settle_outside_the_merge, None),
        (look_then_accept, None),
        pytest.param(begin_without_a_trace, None, marks=pytest.mark.proof),
        pytest.param(erase_what_waits, None, marks=pytest.mark.proof),
    ],
)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], adapter: type[Adapter] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=r"again: python -m tests.simulation \d+"):
        run_schedules(range(FOUND_WITHIN), adapter)
