"""A process that keeps a work of the deployment: it writes `begun` once the work is its own, and `over` if it loses it.

Arguments: ADDRESS NAME.
"""

from __future__ import annotations

import asyncio
import sys

from bubbot.stores.postgres.store import open_store
from tests.doubles import CountingSalt, SteppingClock


async def main(address: str, name: str) -> None:
    store = await open_store(address, salt=CountingSalt(), now=SteppingClock())

    async def work() -> None:
        print("begun", flush=True)
        try:
            await asyncio.Event().wait()
        finally:
            print("over", flush=True)

    await store.keep(name, work)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
