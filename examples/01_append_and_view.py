"""A tape in a home: append facts, open a new window, and read both through views. Nothing is ever overwritten."""

from __future__ import annotations

import asyncio
from tempfile import TemporaryDirectory

from bubbot import AnchorsView, ContextView, TapeService, message, open_store


async def main(folder: str) -> None:
    """Writes a short conversation and reads it back."""
    async with open_store(folder) as store:  # with a clock and ids of its own; pass `now` and `new_id` to choose them
        await talk(store.tape("example"))


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
        asyncio.run(main(temporary))

# prints: 6 entries on the tape, 2 in the window
