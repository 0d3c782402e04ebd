"""A worker without its fence: it never asks whether others took its chats over, drops nothing, and writes under any lease."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

from bubbot.stores.postgres.jobs import PostgresJobs
from bubbot.stores.transaction import Transaction
from bubbot.tape.store import Batch
from tests.e2e import hurried

UNFENCED = "tests.e2e.unfenced:run"


async def confirm(_: PostgresJobs) -> None:
    """What `confirm` would be without its guard."""


async def refuse_nothing(_: Transaction, _batches: Sequence[Batch]) -> None:
    """What `refuse_lost_leases` would be without its guard."""


async def drop_nothing() -> None:
    """What a worker would do that is not told that it was lost."""


def run(arguments: Sequence[str]) -> int:
    """The process."""
    begin = PostgresJobs.begin

    async def begin_for_ever(jobs: PostgresJobs, number: int) -> None:
        await begin(jobs, number)
        object.__setattr__(jobs._options, "on_lost", drop_nothing)

    with (
        patch.object(PostgresJobs, "confirm", confirm),
        patch.object(PostgresJobs, "begin", begin_for_ever),
        patch.object(Transaction, "refuse_lost_leases", refuse_nothing),
    ):
        return hurried.run(arguments)
