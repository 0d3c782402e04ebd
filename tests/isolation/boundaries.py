"""Boundaries of the trace page that let too much through: one for each rule of ours."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest

from bubbot.tape.boundary import SharedTape, TapeBoundary, Viewer
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import TapeQuery
from bubbot.tape.store import SYSTEM_TAPE_PREFIX, TapeStore, TapeSummary


def weaken(boundary: type[TapeBoundary]) -> Callable[[pytest.MonkeyPatch], None]:
    """Return what puts this boundary in place of ours."""
    return lambda patch: patch.setattr("bubbot.app.panels.TapeBoundary", boundary)


class WeakBoundary(TapeBoundary):
    """A boundary that keeps its store, so that a subclass can answer some queries without it."""

    def __init__(
        self, store: TapeStore, viewer: Viewer, *, shared: Collection[SharedTape] = (), **options: Any
    ) -> None:
        super().__init__(store, viewer, shared=shared, **options)
        self.store, self.shared = store, shared

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        return [await self.answer(query) for query in queries]

    async def answer(self, query: TapeQuery) -> tuple[TapeEntry, ...]:
        """Answer one query."""
        return (await super().fetch([query]))[0]

    async def read_all(self, query: TapeQuery) -> tuple[TapeEntry, ...]:
        """Answer a query as for the owner."""
        return (await self.store.fetch([query]))[0]

    def find_shared(self, tape: str) -> SharedTape | None:
        """Find what a shared tape is about."""
        return next((each for each in self.shared if each.covers(tape)), None)


class ShowsAllTapes(WeakBoundary):
    """Shows every tape."""

    def may_read(self, tape: str) -> bool:
        return True

    async def answer(self, query: TapeQuery) -> tuple[TapeEntry, ...]:
        return await self.read_all(query)

    async def tapes(self) -> list[TapeSummary]:
        return await self.store.tapes()


class ShowsAllFacts(WeakBoundary):
    """Shows all facts of the tapes that are about several sessions."""

    async def answer(self, query: TapeQuery) -> tuple[TapeEntry, ...]:
        return await (self.read_all(query) if self.find_shared(query.tape) else super().answer(query))


class ShowsAllReplays(WeakBoundary):
    """Shows what replays quote of any chat."""

    async def answer(self, query: TapeQuery) -> tuple[TapeEntry, ...]:
        return await (self.read_all(query) if query.tape == "bubbot/replay" else super().answer(query))


class TrustsSubjects(WeakBoundary):
    """Takes a fact with a subject for one of a granted session."""

    async def answer(self, query: TapeQuery) -> tuple[TapeEntry, ...]:
        shared = self.find_shared(query.tape)
        if shared is None or not shared.subject:
            return await super().answer(query)
        return tuple(entry for entry in await self.read_all(query) if shared.subject in entry.data)


class ShowsAllSessions(WeakBoundary):
    """Shows the tape of every session."""

    def may_read(self, tape: str) -> bool:
        return not tape.startswith(SYSTEM_TAPE_PREFIX) or super().may_read(tape)

    async def answer(self, query: TapeQuery) -> tuple[TapeEntry, ...]:
        is_of_system = query.tape.startswith(SYSTEM_TAPE_PREFIX)
        return await (super().answer(query) if is_of_system else self.read_all(query))
