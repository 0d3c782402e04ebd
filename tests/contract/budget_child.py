"""A process that makes calls from a budget that others use, too, until it is used up; then it writes how many it made.

Arguments: ADDRESS LIFE LIMIT [`blind`]. It writes a line when it is ready, and begins once it reads one. `blind` takes away what
refuses a reservation if another process wrote after the check.
"""

from __future__ import annotations

import asyncio
import sys
from unittest.mock import patch

from bubbot.errors import BudgetExceeded
from bubbot.features.budget.budget import Budget
from bubbot.ports.usage import BudgetSubject
from bubbot.stores.postgres.store import open_store
from bubbot.tape.service import TapeService
from tests.budgets import opened, plan, spend
from tests.doubles import CountingSalt, SteppingClock

READING, WRITING = 4, 10
AT_ONCE = 4


async def main(address: str, life: str, limit: float) -> None:
    store = await open_store(address, salt=CountingSalt(), now=SteppingClock())
    budget = await opened(store, plan(day=limit), life=life)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    counts = await asyncio.gather(*(call_on(budget, f"test:{life}{number}") for number in range(AT_ONCE)))
    await store.aclose()
    print(sum(counts), flush=True)


async def call_on(budget: Budget, session: str) -> int:
    """Make calls until the budget is used up; return how many."""
    count = 0
    while True:
        try:
            await spend(budget, READING, WRITING, BudgetSubject(session, "test:1", turn="t"))
        except BudgetExceeded:
            return count
        count += 1


if __name__ == "__main__":
    append = TapeService.append

    async def append_anywhere(self: TapeService, *arguments: object, **named: object) -> object:
        named.pop("heads", None)
        return await append(self, *arguments, **named)  # type: ignore[arg-type]

    with patch.object(TapeService, "append", append_anywhere if "blind" in sys.argv else append):
        asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
