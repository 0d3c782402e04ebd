"""The views of other features that programs read tapes by, as `app` gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from bubbot.features.mcp.serve.answers import AnswerExplanation, Hit, Memory, SearchMessagesArgs
from bubbot.tape.entry import JsonObject, TapeEntry
from bubbot.tape.handle import TapeHandle


class QuotedEntry(Protocol):
    """A message with its newest correction; None if there is none."""

    @property
    def entry(self) -> TapeEntry: ...
    @property
    def correction(self) -> TapeEntry | None: ...


class FoundTopic(Struct, frozen=True):
    """A topic with the state of its newest handoff, which may rest on other tapes.

    Attributes:
        name: its name.
        anchor: the entry that took it up last.
        date: of its newest message, or when it was taken up.
        messages: how many.
        is_current: the chat is on it.
        state: the state of the newest handoff.
    """

    name: str
    anchor: int
    date: str
    messages: int
    is_current: bool
    state: JsonObject


class TapeViews(Protocol):
    """The views. Each reads one tape, and gives what stands on it; what may be shown of that is decided by `GrantedTapes`."""

    async def search(self, tape: TapeHandle, args: SearchMessagesArgs, limit: int) -> tuple[Sequence[Hit], bool]:
        """Find messages, the best first; true if older matches may exist. Raise `BubbotError` for a wrong date."""
        ...

    async def read_messages(self, tape: TapeHandle, limit: int, before: int) -> Sequence[QuotedEntry]:
        """Return the newest messages below an id (0: of all), oldest first, without deleted ones."""
        ...

    async def list_anchors(self, tape: TapeHandle, limit: int) -> Sequence[int]:
        """Return the ids of the newest anchors, newest first, without the markers of memories."""
        ...

    async def read_memory(self, tape: TapeHandle) -> Memory:
        """Return the memory of the chat itself, whole, its notes newest first."""
        ...

    async def explain(self, tape: TapeHandle, turn: str) -> AnswerExplanation:
        """Explain an answer, without what stands on other tapes. Raise `EntryNotFound` if there is no such turn."""
        ...

    async def list_topics(self, tape: TapeHandle) -> Sequence[FoundTopic]:
        """Return the topics, the current one first."""
        ...
