"""Short words for writing tapes in tests and reading them back."""

from __future__ import annotations

from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import TapeQuery
from bubbot.tape.store import Batch, TapeStore


def note(text: str, *, key: str | None = None, date: str = "", **meta: object) -> TapeEntry:
    """A message that says the text."""
    return TapeEntry("message", {"role": "user", "content": text}, meta, date, key)


def batch(*entries: TapeEntry, tape: str = "tape", expect_head: int | None = None, keep_first: bool = False) -> Batch:
    return Batch(tape, entries, expect_head=expect_head, if_absent=keep_first)


def notes(*texts: str, tape: str = "tape") -> Batch:
    return batch(*[note(text) for text in texts], tape=tape)


async def whole(store: TapeStore, tape: str = "tape") -> tuple[TapeEntry, ...]:
    """Every entry of the tape."""
    return (await store.fetch([TapeQuery(tape)]))[0]


async def texts(store: TapeStore, tape: str = "tape") -> list[str]:
    """The contents of the tape's messages."""
    return [entry.payload.get("content", "") for entry in await whole(store, tape)]
