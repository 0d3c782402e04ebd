"""A tape in a file: append facts, open a new window, and read both through views. Nothing is ever overwritten."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from bubbot.features.conversation.anchors import AnchorsView
from bubbot.runtime.context.view import ContextView
from bubbot.stores.sqlite.store import open_store
from bubbot.tape.entry import message
from bubbot.tape.service import TapeService


def now() -> datetime:
    """The clock is passed in, like every source of chance, so that a test can hold it still."""
    return datetime.now(UTC)  # noqa: TID251 - an example is its own composition root


async def main(folder: Path) -> None:
    """Writes a short conversation and reads it back."""
    store = await open_store(folder / "tapes.db", salt=os.urandom, now=now)
    tape = TapeService(store, "example", now=now, new_id=lambda: uuid4().hex)
    try:
        await talk(tape)
    finally:
        await store.aclose()


async def talk(tape: TapeService) -> None:
    """Appends, and reads what was appended through views."""
    await tape.ensure_bootstrap_anchor()
    await tape.append([message("user", "Which colour?"), message("assistant", "Green.")])
    await tape.handoff("phase/paint", {"summary": "The colour is green.", "source_ids": [3]})
    await tape.append([message("user", "Paint the door.")])

    for shown in (await tape.read(ContextView())).context_messages:
        print(shown.ids, shown.message["role"], shown.message["content"])
    for line in await tape.read(AnchorsView()):
        print("anchor", line.id, line.name)
    print(await tape.head(), "entries on the tape,", len(await tape.from_last_anchor()), "in the window")


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        asyncio.run(main(Path(temporary)))

# prints: 6 entries on the tape, 2 in the window
