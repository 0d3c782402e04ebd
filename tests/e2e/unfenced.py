"""`bubbot` without the fence: it heeds no epoch and no lost lease. For the proof that the judge of the chaos finds what the fence prevents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bubbot.app.workers import ChatWorkers
from bubbot.stores import transaction
from bubbot.stores.postgres.jobs import PostgresJobs
from tests.e2e import hurried

BOT = "tests.e2e.unfenced:run"


async def _nothing(*_: Any) -> None:
    pass


def run(arguments: Sequence[str]) -> int:
    """The process."""
    setattr(transaction, "refuse_lost_leases", lambda *_: None)  # noqa: B010 - the type checker rightly minds
    setattr(PostgresJobs, "confirm", _nothing)  # noqa: B010
    setattr(ChatWorkers, "_on_lost", _nothing)  # noqa: B010
    return hurried.run(arguments)
