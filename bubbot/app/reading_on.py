"""Several processes on one store: each step of a turn reads on what the others wrote, before anything decides by it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TypeVar

from bubbot.feature import Around, Feature
from bubbot.middleware import CallNext
from bubbot.ports.turn import Turn
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.store import SharesWriting, TapeStore

log = logging.getLogger(__name__)

V = TypeVar("V")
R = TypeVar("R")

READ_ON_SECONDS = 1.0
"""Seconds after which a process that nobody asks anything reads on: its timer has the jobs that others made."""


def find_shared(store: TapeStore) -> SharesWriting | None:
    """Return the store if several processes may write to it, else None."""
    return store if isinstance(store, SharesWriting) else None


class FactsReader:
    """Reads on what other processes wrote: at each event, turn, step and call of a tool, and now and then in between."""

    def __init__(self, projections: ProjectionRunner) -> None:
        """Take the projections of this process; those of packages are their own."""
        self._projections = projections
        self._packages: dict[str, ProjectionRunner] = {}

    def make_projections(self, package: str, shared: SharesWriting | None) -> ProjectionRunner:
        """Make the projections of an installed feature: if they fail, those of others go on."""
        runner = ProjectionRunner(shared)
        if shared is not None:
            self._packages[package] = runner
        return runner

    async def read_on(self) -> None:
        """Fold what others wrote. Raise `StoreError` if the store cannot be asked."""
        await self._projections.read_on()
        for name, runner in self._packages.items():
            try:
                await runner.read_on()
            except Exception:  # a boundary: a package is third-party code; its own use of the state raises again
                log.warning(
                    "the feature %s does not see what other processes wrote",
                    name,
                    exc_info=True,
                    extra={"action": "feature.stale", "feature": name},
                )

    async def run(self) -> None:
        """Read on now and then, until cancelled."""
        while True:
            await asyncio.sleep(READ_ON_SECONDS)
            await self.read_on()

    async def around(self, value: V, call_next: CallNext[V, R]) -> R:
        """Read on before the rest."""
        await self.read_on()
        return await call_next(value)

    async def before_step(self, _turn: Turn) -> None:
        """Read on before the request of a step is built."""
        await self.read_on()

    def features(self) -> Sequence[Feature]:
        """Return what stands outermost around turns, steps and tools; nothing with one process."""
        if not self._projections.is_shared:
            return ()
        return (
            Feature(
                name="reading on",
                around=Around(turn=(self.around,), tool=(self.around,), before_step=(self.before_step,)),
            ),
        )
